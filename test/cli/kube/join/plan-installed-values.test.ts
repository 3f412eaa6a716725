/** A second join reads the values of an installation back, and plans the same installation from them. */
import t from 'tap'
import {
  type InstalledObjects,
  MEMBER_PARTS,
  planInstalledMember,
  readInstalledValues,
  upgradedImage,
} from '../../../../cli/installation/plan-installed-values.ts'
import { refOf, titleOf } from '../../../../kubeapi/kube/kinds.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { planMember } from '../../../../install/plan-member.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../../install/values/install-values.ts'
import { appliedBy } from '../../../support/objects/applied-object.ts'

const SITE = 'kind: Site\n'

function otherValues(): InstallValues {
  const pod = (cpu: string) => ({
    resources: { requests: { cpu, memory: '64Mi' }, limits: { memory: '1Gi' } },
    nodeSelector: { disk: cpu },
    tolerations: [{ key: cpu, operator: 'Equal' as const, value: 'b', effect: 'NoSchedule' }],
    // One part has none.
    priorityClassName: cpu === '4' ? '' : `class-${cpu}`,
  })
  return {
    ...DEFAULT_VALUES,
    image: {
      ...DEFAULT_VALUES.image,
      repository: 'registry.example.org:5000/net/sealane',
      tag: 'own',
      pullPolicy: 'Always',
    },
    imagePullSecrets: [{ name: 'registry' }],
    logLevel: 'debug',
    objects: { labels: { team: 'net' }, annotations: { 'example.org/why': 'a=b' } },
    pods: { labels: { scan: 'on' }, annotations: { 'example.org/why': 'pods' } },
    member: {
      ...DEFAULT_VALUES.member,
      site: SITE,
      createNamespace: false,
      admissionPolicies: false,
      networkPolicies: false,
      criticalPodsQuota: true,
    },
    metrics: { ...DEFAULT_VALUES.metrics, open: true },
    agent: { ...DEFAULT_VALUES.agent, ...pod('1'), replicas: 3, proxySecret: 'corporate-proxy' },
    dns: { ...DEFAULT_VALUES.dns, ...pod('2'), replicas: 1, clusterIP: '10.43.0.11' },
    gateway: {
      ...DEFAULT_VALUES.gateway,
      ...pod('3'),
      userSpaceWireguard: false,
      statusListen: 'node',
      replace: 'never',
    },
    routeagent: { ...DEFAULT_VALUES.routeagent, ...pod('4'), statusListen: 'node' },
    console: { ...pod('5'), enabled: true },
  }
}

/** Returns the objects as an API server has them, without undefined fields and with their field managers. */
function liveOf(objects: readonly ManifestObject[], ...more: readonly ManifestObject[]): InstalledObjects {
  const stored = objects.map((object) => appliedBy('sealane', JSON.parse(JSON.stringify(object)) as ManifestObject))
  return new Map([...stored, ...more].map((object) => [titleOf(refOf(object)), object]))
}

const planned = (values: InstallValues): readonly ManifestObject[] => planMember(values).flatMap((part) => part.objects)
/** Removes empty fields as an API server does. */
const plain = (value: unknown): unknown =>
  JSON.parse(
    JSON.stringify(value, (key, inner: unknown) => {
      const mayBeEmpty = ['nodeSelector', 'tolerations', 'imagePullSecrets'].includes(key)
      return mayBeEmpty && Object.keys(inner ?? {}).length === 0 ? undefined : inner
    }),
  )

t.test('every value that can be said is read back', (t) => {
  const values = otherValues()
  for (const part of [...MEMBER_PARTS, 'member'] as const) {
    const standard = DEFAULT_VALUES[part] as unknown as Record<string, unknown>
    for (const [name, value] of Object.entries(values[part])) {
      const isFixed = part === 'member' && (name === 'enabled' || name === 'namespace')
      if (!isFixed) t.notSame(value, standard[name], `${part}.${name}: this test says another value than the default`)
    }
  }
  const home = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'sealane-system', labels: { team: 'net' } } }
  const live = liveOf(planned(values), home)
  const read = readInstalledValues(DEFAULT_VALUES, {}, live)
  t.equal(read.installed, true)
  t.strictSame(read.common.member, { ...values.member, site: '' })
  for (const part of MEMBER_PARTS) {
    t.strictSame(read.parts[part][part], values[part], part)
    for (const name of ['image', 'imagePullSecrets', 'logLevel'] as const) {
      t.strictSame(read.parts[part][name], values[name], `${part}: ${name}`)
    }
  }
  t.strictSame(plain(planInstalledMember(read, SITE, live)), plain(planned(values)), 'so nothing would be changed')
  t.end()
})

t.test('what an earlier release did not have comes; what was left out of this one stays out', (t) => {
  const all = planned(DEFAULT_VALUES)
  const without = (...names: readonly string[]): boolean => {
    const left = all.filter(({ kind, metadata }) => !names.includes(kind) && !names.includes(metadata.name))
    return readInstalledValues(DEFAULT_VALUES, {}, liveOf(left)).common.member.networkPolicies
  }
  t.equal(without('nothing'), true)
  t.equal(without('NetworkPolicy'), false)
  t.equal(without('NetworkPolicy', 'sealane-agent-imports'), true)
  t.end()
})

t.test('each choice of gateways is read back, and an unknown one is the default', (t) => {
  for (const [replace, want] of [
    ['gone', 'gone'],
    ['missing', 'missing'],
    ['never', 'never'],
  ] as const) {
    const live = liveOf(planned({ ...DEFAULT_VALUES, gateway: { ...DEFAULT_VALUES.gateway, replace } }))
    const read = readInstalledValues(DEFAULT_VALUES, {}, live)
    t.equal(read.parts.gateway.gateway.replace, want)
    const agents = planInstalledMember(read, SITE, live).filter(({ metadata }) => metadata.name === 'sealane-agent')
    t.equal(JSON.stringify(agents).includes('SEALANE_REPLACE_GATEWAYS'), want !== 'gone', want)
    t.equal(JSON.stringify(agents).includes('"nodes"],"verbs":["patch"]'), want !== 'never', want)
  }
  const odd = JSON.stringify(planned(otherValues())).replaceAll('"value":"never"', '"value":"other"')
  const live = liveOf(JSON.parse(odd) as ManifestObject[])
  t.equal(readInstalledValues(DEFAULT_VALUES, {}, live).parts.gateway.gateway.replace, 'gone')
  t.end()
})

t.test('where nothing stands, the defaults do', (t) => {
  const read = readInstalledValues(DEFAULT_VALUES, {}, new Map())
  t.equal(read.installed, false)
  const wanted = planned({ ...DEFAULT_VALUES, member: { ...DEFAULT_VALUES.member, site: SITE } })
  t.strictSame(plain(planInstalledMember(read, SITE, new Map())), plain(wanted))
  t.end()
})

t.test('what is empty is not applied: the server would remember who did, and keep nothing', (t) => {
  const text = JSON.stringify(planInstalledMember(readInstalledValues(DEFAULT_VALUES, {}, new Map()), SITE, new Map()))
  t.notMatch(text, /"(nodeSelector|tolerations|imagePullSecrets)":(\{\}|\[\])/)
  t.match(text, '"tolerations":[{"operator":"Exists"}]')
  t.end()
})

t.test('flags count for more than what stands; parts may differ, and one that is missing is like the first', (t) => {
  const values = { ...otherValues(), member: DEFAULT_VALUES.member }
  const all = planned(values)
  const mixed = all
    .filter(({ metadata, kind }) => !(kind === 'DaemonSet' && metadata.name === 'sealane-gateway'))
    .map((object) =>
      object.kind === 'Deployment' && object.metadata.name === 'sealane-dns'
        ? (JSON.parse(JSON.stringify(object).replaceAll('sealane:own', 'sealane:tried')) as ManifestObject)
        : object,
    )
  const imageOf = ({ image: { repository, tag } }: InstallValues): string => `${repository}:${tag}`
  const read = readInstalledValues(DEFAULT_VALUES, {}, liveOf(mixed))
  t.equal(imageOf(read.parts.dns), 'registry.example.org:5000/net/sealane:tried')
  t.equal(imageOf(read.parts.gateway), 'registry.example.org:5000/net/sealane:own')
  t.strictSame(read.parts.gateway.gateway, { ...DEFAULT_VALUES.gateway, replace: 'never' }, 'the agent says it')
  const asked = { ...DEFAULT_VALUES, image: { ...DEFAULT_VALUES.image, tag: 'asked' } }
  const reported = readInstalledValues(asked, { image: 'localhost/sealane:asked' }, liveOf(mixed))
  for (const part of MEMBER_PARTS) {
    t.equal(imageOf(reported.parts[part]), 'localhost/sealane:asked', part)
    t.equal(reported.parts[part].image.pullPolicy, 'Always', 'what was not asked stays')
  }
  t.end()
})

t.test('a release goes to this release in the repository that is used; nothing else moves by itself', (t) => {
  const rows: readonly (readonly [earlier: string, ours: string, want: string | undefined])[] = [
    ['localhost/sealane:0.1.0', 'localhost/sealane:0.1.0', undefined],
    ['localhost/sealane:0.1.0', 'localhost/sealane:0.2.0', 'localhost/sealane:0.2.0'],
    ['registry.example.org:5000/s:v0.9.9', 'localhost/sealane:0.10.0', 'registry.example.org:5000/s:v0.10.0'],
    ['localhost/sealane:0.3.0', 'localhost/sealane:0.2.9', undefined],
    ['localhost/sealane:test', 'localhost/sealane:0.2.0', undefined],
    ['localhost/sealane:0.1.0-rc1', 'localhost/sealane:0.2.0', undefined],
    ['localhost/sealane:0.1.0', 'localhost/sealane:test', undefined],
    [`s:0.1.0@sha256:${'a'.repeat(64)}`, 's:0.2.0', undefined],
    [`s@sha256:${'a'.repeat(64)}`, 's:0.2.0', undefined],
  ]
  for (const [earlier, ours, want] of rows) t.equal(upgradedImage(earlier, ours), want, `${earlier} ${ours}`)
  t.end()
})

t.test("another owner's mark stays, and a digest that nobody wanted", (t) => {
  const owned = (object: ManifestObject): ManifestObject => ({
    ...object,
    metadata: { ...object.metadata, labels: { ...object.metadata.labels, 'app.kubernetes.io/managed-by': 'Helm' } },
  })
  // The chart has no site file; the ConfigMap came from another source.
  const chart = planned(DEFAULT_VALUES).map(owned)
  const map = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'sealane-site', namespace: 'sealane-system' } }
  const live = liveOf(chart, { ...map, data: { 'site.yaml': SITE } })
  const again = planInstalledMember(readInstalledValues(DEFAULT_VALUES, {}, live), SITE, live)
  t.strictSame(plain(again.filter(({ kind }) => kind !== 'ConfigMap')), plain(chart))
  const moved = planInstalledMember(readInstalledValues(DEFAULT_VALUES, {}, live), `${SITE}#\n`, live)
  const [before, after] = [again, moved].map((objects) =>
    JSON.stringify(objects.filter(({ kind }) => kind === 'DaemonSet')),
  )
  t.not(before, after, 'another site file starts the pods anew')
  t.end()
})

t.test('a policy that was taken out of force stays so, and that is known', (t) => {
  const all = planned(DEFAULT_VALUES)
  const name = 'sealane-node-writes'
  const binding = 'ValidatingAdmissionPolicyBinding'
  const live = liveOf(all.filter((object) => object.kind !== binding || object.metadata.name !== name))
  const read = readInstalledValues(DEFAULT_VALUES, {}, live)
  t.strictSame(read.leftOut, [name])
  const bindings = planInstalledMember(read, '', live).filter(({ kind }) => kind === binding)
  t.notOk(bindings.some(({ metadata }) => metadata.name === name))
  const first = liveOf(all.filter(({ kind }) => kind === 'ValidatingAdmissionPolicy'))
  t.strictSame(readInstalledValues(DEFAULT_VALUES, {}, first).leftOut, [], 'a first join that broke off is finished')
  t.end()
})
