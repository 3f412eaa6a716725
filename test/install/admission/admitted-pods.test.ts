/**
 * Every pod of ours is admitted: by the Pod Security level of its namespace, and in OpenShift by the
 * SecurityContextConstraints that its account may use, and by none that is wider than it needs.
 */
import t from 'tap'
import { DEFAULT_VALUES, type InstallValues } from '../../../install/values/install-values.ts'
import { LEFT_ALONE } from '../../../install/values/marks.ts'
import { type Constraints, NONROOT_V2, RESTRICTED_V2, refusals } from './constraints.ts'
import { OUR_PODS, type OurPod, VALUE_SETS, constraintsIn, objectsOf, usableBy } from './our-pods.ts'
import { type Level, LEVELS, levelOf, violations } from './pod-security.ts'

const REQUIRED = 'openshift.io/required-scc'

/** What admits the pods of each part, with any values. */
const TABLE: Readonly<Record<string, { readonly scc: string; readonly level: Level }>> = {
  agent: { scc: 'nonroot-v2', level: 'restricted' },
  dns: { scc: 'nonroot-v2', level: 'restricted' },
  console: { scc: 'nonroot-v2', level: 'restricted' },
  broker: { scc: 'nonroot-v2', level: 'restricted' },
  etcd: { scc: 'nonroot-v2', level: 'restricted' },
  'move to etcd': { scc: 'nonroot-v2', level: 'restricted' },
  'move from etcd': { scc: 'nonroot-v2', level: 'restricted' },
  'image check': { scc: 'restricted-v2', level: 'restricted' },
  gateway: { scc: 'sealane-node', level: 'privileged' },
  routeagent: { scc: 'sealane-node', level: 'privileged' },
}

t.test('all pods are looked at', async (t) => {
  t.strictSame([...new Set(OUR_PODS.map(({ part }) => part))].sort(), Object.keys(TABLE).sort())
})

t.test(
  'Pod Security: each pod needs the level of the table, and its namespace has a level that admits it',
  async (t) => {
    for (const { part, title, namespace, pod, values } of OUR_PODS) {
      t.equal(levelOf(pod), TABLE[part]?.level, title)
      for (const mode of ['enforce', 'audit', 'warn']) {
        const level = namespaceLevel(values, namespace, mode)
        t.strictSame(violations(pod, level), [], `${title}: ${mode} ${level}`)
      }
    }
    const needed = (namespace: string): Level =>
      LEVELS.findLast((level) => OUR_PODS.some((one) => one.namespace === namespace && levelOf(one.pod) === level)) ??
      'restricted'
    for (const namespace of ['sealane-system', 'sealane-broker']) {
      t.equal(namespaceLevel(DEFAULT_VALUES, namespace, 'enforce'), needed(namespace), `${namespace}: no wider level`)
    }
  },
)

function namespaceLevel(values: InstallValues, name: string, mode: string): Level {
  const namespace = objectsOf(values).find(({ kind, metadata }) => kind === 'Namespace' && metadata.name === name)
  return namespace?.metadata.labels?.[`pod-security.kubernetes.io/${mode}`] as Level
}

/** The constraints that admit the pod. OpenShift tries only the one that the pod names, if it names one. */
function admitting(one: OurPod): readonly string[] {
  const usable = usableBy(one)
  const named = one.pod.metadata.annotations?.[REQUIRED]
  return constraintsIn(one.values)
    .filter(({ metadata: { name } }) => usable.includes(name) && (named === undefined || named === name))
    .filter((scc) => refusals(one.pod, scc).length === 0)
    .map(({ metadata }) => metadata.name)
}

t.test('OpenShift: each pod is admitted by the constraints of the table, which it names', async (t) => {
  for (const one of OUR_PODS.filter(({ values }) => values.platform.openshift)) {
    const { scc } = TABLE[one.part] ?? { scc: '' }
    t.strictSame(admitting(one), [scc], one.title)
    t.equal(one.pod.metadata.annotations?.[REQUIRED], scc, `${one.title}: named`)
    t.ok(
      usableBy(one).every((name) => name === 'restricted-v2' || name === scc),
      `${one.title}: no other is granted`,
    )
    if (scc !== 'restricted-v2') t.not(refusals(one.pod, RESTRICTED_V2).length, 0, `${one.title}: a grant is needed`)
    if (scc === 'sealane-node') t.not(refusals(one.pod, NONROOT_V2).length, 0, `${one.title}: more than nonroot-v2`)
  }
  for (const one of OUR_PODS.filter(({ values }) => !values.platform.openshift)) {
    t.equal(one.pod.metadata.annotations?.[REQUIRED], undefined, `${one.title}: nothing of OpenShift`)
  }
})

t.test('elsewhere nothing is granted', async (t) => {
  for (const [title, values] of VALUE_SETS) {
    const granting = objectsOf(values).filter(
      (object) =>
        object.apiVersion.startsWith('security.openshift.io/') || /scc/.test(JSON.stringify(object['roleRef'] ?? '')),
    )
    t.equal(granting.length > 0, values.platform.openshift, title)
  }
})

t.test('constraints of ours: what they allow, some pod needs', async (t) => {
  const values = { ...DEFAULT_VALUES, platform: { ...DEFAULT_VALUES.platform, openshift: true } }
  const ours = constraintsIn(values).find(({ metadata }) => metadata.name === 'sealane-node')
  if (ours === undefined) throw new Error('there are none')
  const pods = OUR_PODS.filter(({ part }) => TABLE[part]?.scc === 'sealane-node')
  const narrower: Readonly<Record<string, Partial<Constraints>>> = {
    'the network of the node': { allowHostNetwork: false },
    'ports of the node': { allowHostPorts: false },
    'files of the node': { allowHostDirVolumePlugin: false },
    NET_ADMIN: { allowedCapabilities: [] },
    root: { runAsUser: { type: 'MustRunAsNonRoot' } },
    ...Object.fromEntries(
      ours.volumes.map((kind) => [`volume ${kind}`, { volumes: ours.volumes.filter((other) => other !== kind) }]),
    ),
  }
  for (const [what, change] of Object.entries(narrower)) {
    t.ok(
      pods.some(({ pod }) => refusals(pod, { ...ours, ...change }).length > 0),
      `${what} is needed`,
    )
  }
  t.match(ours, {
    ...{ priority: null, users: [], groups: [], allowHostPID: false, allowHostIPC: false },
    ...{ allowPrivilegedContainer: false, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true },
    ...{ requiredDropCapabilities: ['ALL'], defaultAddCapabilities: null, seccompProfiles: ['runtime/default'] },
    seLinuxContext: { type: 'MustRunAs', seLinuxOptions: { type: 'spc_t' } },
  })
  for (const type of ['fsGroup', 'supplementalGroups', 'runAsUser', 'seLinuxContext'] as const) {
    t.not(ours[type].type, 'RunAsAny', type)
  }
})

t.test('a service mesh leaves every pod alone, whatever marks a user gives', async (t) => {
  for (const { title, pod, selector } of OUR_PODS) {
    t.match(pod.metadata.labels, LEFT_ALONE.labels, `${title}: labels`)
    t.match(pod.metadata.annotations, LEFT_ALONE.annotations, `${title}: annotations`)
    if (selector === undefined) continue
    t.strictSame(
      Object.keys(selector),
      ['app.kubernetes.io/name', 'app.kubernetes.io/component'],
      `${title}: the selector stays as in earlier releases`,
    )
    t.match(pod.metadata.labels, selector, `${title}: is selected`)
  }
})
