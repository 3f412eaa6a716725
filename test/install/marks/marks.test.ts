/**
 * Labels and annotations that a user configures are on every object and pod; those that Sealane relies on stay as they
 * are.
 */
import t from 'tap'
import { planBroker } from '../../../install/plan-broker.ts'
import { planMember } from '../../../install/plan-member.ts'
import type { ManifestObject } from '../../../install/values/manifest.ts'
import { LEFT_ALONE, injectionProblem, isReservedKey, keyProblem, valueProblem } from '../../../install/values/marks.ts'
import { ALL_CRDS } from '../../../install/crds/all-crds.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../install/values/install-values.ts'

const ALL: InstallValues = {
  ...DEFAULT_VALUES,
  member: { ...DEFAULT_VALUES.member, site: 'kind: Site\n', criticalPodsQuota: true },
  gateway: { ...DEFAULT_VALUES.gateway, statusListen: 'node' },
  routeagent: { ...DEFAULT_VALUES.routeagent, statusListen: 'node' },
  metrics: { open: true, podMonitors: { enabled: true, interval: '30s', labels: {} } },
  etcd: { ...DEFAULT_VALUES.etcd, enabled: true },
}

function objectsOf(values: InstallValues): readonly ManifestObject[] {
  const replicas = { ...values, broker: { ...values.broker, store: 'etcd' } }
  return [...planMember(values), ...planBroker(values), ...planBroker(replicas)].flatMap(({ objects }) => objects)
}

interface Template {
  readonly template?: { readonly metadata: Pick<ManifestObject['metadata'], 'labels' | 'annotations'> }
  readonly selector?: { readonly matchLabels?: Readonly<Record<string, string>> }
}
const specOf = (object: ManifestObject): Template => object['spec'] ?? {}

t.test('on every object, and on pods', (t) => {
  const objects = { labels: { team: 'net', tier: 'all' }, annotations: { 'example.org/owner': 'net' } }
  const pods = { labels: { tier: 'pod' }, annotations: { 'example.org/scan': 'yes' } }
  const before = objectsOf(ALL)
  const kinds = new Set<string>()
  for (const [i, object] of objectsOf({ ...ALL, objects, pods }).entries()) {
    kinds.add(object.kind)
    const title = `${object.kind} ${object.metadata.name}`
    const was = before[i]
    t.same(object.metadata.labels, { ...objects.labels, ...was?.metadata.labels }, `${title}: labels`)
    t.same(object.metadata.annotations, objects.annotations, `${title}: annotations`)
    const [{ template }, earlier] = [specOf(object), was === undefined ? {} : specOf(was)]
    if (template === undefined) continue
    const labels = { team: 'net', tier: 'pod', ...earlier.template?.metadata.labels }
    t.same(template.metadata.labels, labels, `${title}: labels of pods`)
    const annotations = { ...objects.annotations, ...pods.annotations, ...earlier.template?.metadata.annotations }
    t.same(template.metadata.annotations, annotations, `${title}: annotations of pods`)
  }
  for (const kind of ['Namespace', 'ServiceAccount', 'ClusterRole', 'RoleBinding', 'ConfigMap', 'Service']) {
    t.ok(kinds.has(kind), kind)
  }
  for (const kind of ['ValidatingAdmissionPolicy', 'NetworkPolicy', 'ResourceQuota', 'PodMonitor', 'DaemonSet']) {
    t.ok(kinds.has(kind), kind)
  }
  t.end()
})

t.test('what no mark was asked for is as it was', (t) => {
  for (const { kind, metadata } of objectsOf(ALL)) t.notOk('annotations' in metadata, `${kind} ${metadata.name}`)
  t.end()
})

const MESHES = new Set([LEFT_ALONE.labels, LEFT_ALONE.annotations].flatMap((map) => Object.keys(map)))

t.test('no mark of Sealane can be taken by one of the user', (t) => {
  const used = [...objectsOf(ALL), ...(ALL_CRDS as readonly unknown[] as readonly ManifestObject[])]
  const keys = used.flatMap((object) =>
    [object.metadata, specOf(object).template?.metadata ?? {}].flatMap(({ labels, annotations }) =>
      Object.keys({ ...labels, ...annotations }),
    ),
  )
  for (const key of new Set(keys)) {
    t.ok(isReservedKey(key), `${key} is Sealane's`)
    const problem = MESHES.has(key) ? injectionProblem(key, 'taken') : keyProblem(key)
    t.match(problem, MESHES.has(key) ? `expected ${key}=` : `expected another key than ${key}`)
  }
  // A values file may still contain such keys.
  const taken = Object.fromEntries([...new Set(keys)].map((key) => [key, 'taken']))
  const marks = { labels: taken, annotations: {} }
  for (const object of objectsOf({ ...ALL, objects: marks, pods: marks })) {
    const { selector, template } = specOf(object)
    if (template !== undefined) t.match(template.metadata.labels, selector?.matchLabels ?? {}, object.metadata.name)
    t.equal(object.metadata.labels?.['app.kubernetes.io/managed-by'], 'sealane')
  }
  t.end()
})

t.test('a service mesh may be kept away once more, but not let in', (t) => {
  for (const map of [LEFT_ALONE.labels, LEFT_ALONE.annotations]) {
    for (const [key, value] of Object.entries(map)) {
      t.strictSame([keyProblem(key), injectionProblem(key, value)], [undefined, undefined], `${key}=${value}`)
      for (const other of ['true', 'enabled', 'ambient', '']) {
        t.match(injectionProblem(key, other), `expected ${key}=${value}: a service mesh must not`)
      }
    }
  }
  t.equal(injectionProblem('team', 'enabled'), undefined)
  t.end()
})

t.test('keys and values have the syntax of Kubernetes', (t) => {
  for (const key of ['team', 'example.org/team', 'app.kubernetes.io/instance', 'a.b_c-D']) {
    t.equal(keyProblem(key), undefined, key)
  }
  for (const key of ['', 'a b', '-a', 'Example.org/a', 'a/b/c', 'x'.repeat(64), '/a']) {
    t.match(keyProblem(key), 'expected a Kubernetes key', key)
  }
  for (const key of ['sealane.io/x', 'a.sealane.io/x', 'pod-security.kubernetes.io/enforce', 'pod-template-hash']) {
    t.match(keyProblem(key), `expected another key than ${key}`)
  }
  t.equal(keyProblem('notsealane.io/x'), undefined)
  t.equal(valueProblem('labels', ''), undefined)
  t.match(valueProblem('labels', 'a b'), "expected a label's value")
  t.match(valueProblem('labels', 'x'.repeat(64)), "expected a label's value")
  t.equal(valueProblem('annotations', 'a b: {"c": 1}'), undefined)
  t.match(valueProblem('annotations', 'x'.repeat(262_145)), 'at most 262144 bytes')
  t.end()
})
