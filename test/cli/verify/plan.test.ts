/** Which checks verify makes and in which order, and the objects of its probes. */
import fc from 'fast-check'
import t from 'tap'
import { type PlanInit, planChecks } from '../../../cli/status/verify/plan-checks.ts'
import {
  DRAINED_ANNOTATION,
  type ObjectsInit,
  PROBE_LABEL,
  PROBE_LABEL_VALUE,
  UNTIL_ANNOTATION,
  planObjects,
  planSweep,
  policyObject,
} from '../../../cli/status/verify/plan-objects.ts'
import { parseResolvConf, searchedBefore } from '../../../cli/status/verify/plan-search.ts'
import type { ManifestObject } from '../../../install/values/manifest.ts'
import { equalsGolden } from '../../support/golden.ts'

const BASE: PlanInit = {
  caller: 'cluster',
  exposure: 'exports',
  families: [4],
  failover: false,
  gateways: 2,
  knowsPolicies: true,
}

function planText(init: Partial<PlanInit>): string {
  return planChecks({ ...BASE, ...init })
    .map(({ check, family = '-', expects, after = '-', skip }) => {
      const left = skip === undefined ? '' : ` (${skip.reason}: ${skip.why})`
      return `${check} ${family} ${expects} ${after}${left}\n`
    })
    .join('')
}

t.test('the plan of each shape of members', async (t) => {
  const rows: readonly (readonly [string, Partial<PlanInit>])[] = [
    ['exported services, one family', {}],
    ['all pods, both families', { exposure: 'pods', families: [4, 6] }],
    ['nothing is exposed', { exposure: 'nothing' }],
    ['from a site', { caller: 'site' }],
    ['a gateway may be drained', { failover: true }],
    ['a gateway may be drained, but it is the only one', { failover: true, gateways: 1 }],
    ['no access policies', { knowsPolicies: false }],
  ]
  equalsGolden(t, rows.map(([name, init]) => `# ${name}\n${planText(init)}`).join('\n'), 'verify/plan.txt')
})

t.test('what a check builds on comes before it', async (t) => {
  const inits = fc.record({
    caller: fc.constantFrom('cluster' as const, 'site' as const),
    exposure: fc.constantFrom('exports' as const, 'pods' as const, 'nothing' as const),
    families: fc.constantFrom([4] as const, [6] as const, [4, 6] as const),
    failover: fc.boolean(),
    gateways: fc.nat(8),
    knowsPolicies: fc.boolean(),
  })
  fc.assert(
    fc.property(inits, (init) => {
      const plan = planChecks(init)
      return plan.every(({ after }, i) => after === undefined || plan.slice(0, i).some(({ check }) => check === after))
    }),
  )
  t.pass()
})

const OBJECTS: ObjectsInit = {
  run: '0123456789abcdef',
  namespace: 'sealane-verify-01234567',
  makesNamespace: true,
  letter: 'b',
  member: 'c2',
  caller: 'c1',
  image: { name: 'registry.example/sealane:1', pullPolicy: 'IfNotPresent', pullSecrets: [] },
  families: ['IPv4', 'IPv6'],
  roles: ['client', 'server'],
  exports: true,
  knowsPolicies: true,
  isOpenShift: false,
  nodes: {},
  until: '2026-11-30T03:00:00.000Z',
  lastsSeconds: 1200,
}

t.test('the objects of one end', async (t) => {
  equalsGolden(t, `${JSON.stringify(planObjects(OBJECTS), undefined, 2)}\n`, 'verify/objects.json')
  const titles = (init: Partial<ObjectsInit>): readonly string[] =>
    planObjects({ ...OBJECTS, ...init }).map(({ kind, metadata }) => `${kind} ${metadata.name}`)
  t.same(
    titles({ exports: false, roles: ['client'] }),
    ['Namespace sealane-verify-01234567', 'Pod sealane-probe-client'],
    'a caller alone',
  )
  t.notMatch(
    titles({ makesNamespace: false }).join(),
    'Namespace',
    'the namespace of a user is never an object of ours',
  )
  t.notMatch(titles({ knowsPolicies: false }).join(), 'AccessPolicy')
  t.same(policyObject(OBJECTS, [])['spec'], {
    targetRefs: [
      { kind: 'ServiceExport', name: 'sealane-probe-b' },
      { kind: 'ServiceExport', name: 'sealane-probe-b-headless' },
    ],
    from: [],
  })
})

interface PodSpec {
  readonly activeDeadlineSeconds?: number
  readonly hostNetwork?: boolean
  readonly nodeSelector?: unknown
  readonly automountServiceAccountToken: boolean
  readonly securityContext: unknown
  readonly containers: readonly { readonly securityContext: unknown; readonly resources: { readonly limits: object } }[]
}

t.test('probe pods are restricted, limited and end by themselves', async (t) => {
  const pods = planObjects({ ...OBJECTS, nodes: { client: 'n1' } }).filter(({ kind }) => kind === 'Pod')
  const specs = pods.map((pod) => pod['spec'] as PodSpec)
  t.equal(specs.length, 2)
  for (const spec of specs) {
    t.equal(spec.activeDeadlineSeconds, 1200)
    t.equal(spec.hostNetwork, undefined)
    t.equal(spec.automountServiceAccountToken, false)
    t.same(spec.securityContext, {
      ...{ runAsNonRoot: true, runAsUser: 65_532, runAsGroup: 65_532 },
      seccompProfile: { type: 'RuntimeDefault' },
    })
    for (const { securityContext, resources } of spec.containers) {
      t.same(securityContext, {
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      })
      t.same(Object.keys(resources.limits), ['cpu', 'memory'])
    }
  }
  const open = planObjects({ ...OBJECTS, isOpenShift: true }).find(({ kind }) => kind === 'Pod')?.['spec'] as PodSpec
  t.same(open.securityContext, { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } }, 'OpenShift')
  t.same(specs[0]?.nodeSelector, { 'kubernetes.io/hostname': 'n1' })
})

t.test('remains are known by their time', async (t) => {
  const object = (name: string, annotations: Readonly<Record<string, string>>, label = PROBE_LABEL_VALUE) => ({
    ...{ apiVersion: 'v1', kind: 'Service' },
    metadata: { name, namespace: 'x', labels: { [PROBE_LABEL]: label }, annotations },
  })
  const at = Date.parse('2026-11-30T03:00:00Z')
  const all: readonly ManifestObject[] = [
    object('running', { [UNTIL_ANNOTATION]: '2026-11-30T03:00:01Z' }),
    object('over', { [UNTIL_ANNOTATION]: '2026-11-30T02:59:59Z', [DRAINED_ANNOTATION]: 'gw1' }),
    object('no-time', {}),
    object('bad-time', { [UNTIL_ANNOTATION]: 'soon' }),
    object('of-others', {}, 'other'),
  ]
  const { objects, drained } = planSweep(all, at)
  t.same(
    objects.map(({ metadata }) => metadata.name),
    ['over', 'no-time', 'bad-time'],
  )
  t.same(drained, ['gw1'])
})

t.test('what a resolver does to a name first', async (t) => {
  const name = 'web.shop.svc.clusterset.local'
  const pod = 'search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.43.0.10\noptions ndots:5\n'
  const rows: readonly (readonly [text: string, name: string, names: readonly string[]])[] = [
    [pod, name, [`${name}.shop.svc.cluster.local`, `${name}.svc.cluster.local`, `${name}.cluster.local`]],
    [pod, `${name}.`, []],
    [pod, 'a.b.c.d.e.f', []],
    ['search example.org\n', name, []],
    ['', name, []],
    ['search a\nsearch b.\noptions ndots:9 ndots:5\n', name, [`${name}.b`]],
    ['options ndots:x\nsearch a', 'web', ['web.a']],
  ]
  for (const [text, asked, names] of rows) t.same(searchedBefore(asked, parseResolvConf(text)), names, text)
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      const { ndots, search } = parseResolvConf(text)
      return ndots >= 0 && ndots <= 15 && search.length <= 15
    }),
  )
})
