/** A broker that follows object Topology: what it may do besides, and that a broker which follows none has no token. */
import t from 'tap'
import { DEFAULT_VALUES } from '../../install/values/install-values.ts'
import type { ManifestObject } from '../../install/values/manifest.ts'
import { followTopologyPatch, planBroker } from '../../install/plan-broker.ts'
import { REPLICAS_VALUES, manifestFiles } from '../../scripts/manifest-files.ts'

const TOKEN = '/var/run/secrets/kubernetes.io/serviceaccount'

interface PodSpec {
  readonly automountServiceAccountToken: boolean
  readonly volumes: readonly { readonly name: string }[]
  readonly containers: readonly [
    { readonly env: readonly unknown[]; readonly volumeMounts: readonly { readonly mountPath: string }[] },
  ]
}

function planned(base: typeof DEFAULT_VALUES, topologyFrom: string): readonly ManifestObject[] {
  const parts = planBroker({ ...base, broker: { ...base.broker, topologyFrom } })
  // As an API server receives them: without fields that are undefined.
  return JSON.parse(JSON.stringify(parts.flatMap(({ objects }) => objects))) as readonly ManifestObject[]
}

function podOf(objects: readonly ManifestObject[]): PodSpec {
  const named = objects.filter(({ metadata }) => metadata.name === 'sealane-broker')
  const workload = named.find(({ kind }) => /^(Deployment|StatefulSet)$/.test(kind))
  return (workload?.['spec'] as { readonly template: { readonly spec: PodSpec } }).template.spec
}

const sorted = (list: readonly unknown[]): readonly string[] => list.map((one) => JSON.stringify(one)).sort()

for (const [name, base] of Object.entries({ own: DEFAULT_VALUES, replicas: REPLICAS_VALUES })) {
  t.test(`${name}: least rights, and the same from the chart as from the Kustomize component`, async (t) => {
    const [without, following] = [planned(base, 'commands'), planned(base, 'object')]
    const kinds = (objects: readonly ManifestObject[]) => objects.filter(({ kind }) => kind.startsWith('ClusterRole'))
    t.same(kinds(without), [])
    t.notMatch(JSON.stringify(podOf(without)), TOKEN)
    const [role, binding] = kinds(following)
    t.strictSame(role?.['rules'], [
      { apiGroups: ['sealane.io'], resources: ['topologies'], verbs: ['get', 'list', 'watch'] },
      { apiGroups: ['sealane.io'], resources: ['topologies/status'], verbs: ['patch'] },
    ])
    t.match(binding, {
      roleRef: { kind: 'ClusterRole', name: 'sealane-broker' },
      subjects: [{ kind: 'ServiceAccount', name: 'sealane-broker', namespace: 'sealane-broker' }],
    })
    const [before, after] = [podOf(without), podOf(following)]
    t.equal(after.automountServiceAccountToken, false, 'the token is a volume that the pod names')
    t.equal(after.containers[0].volumeMounts.filter(({ mountPath }) => mountPath === TOKEN).length, 1)
    const [env, mount, volume] = followTopologyPatch() as readonly { readonly value: unknown }[]
    t.same(sorted(after.containers[0].env), sorted([...before.containers[0].env, env?.value]))
    t.same(sorted(after.containers[0].volumeMounts), sorted([...before.containers[0].volumeMounts, mount?.value]))
    t.same(sorted(after.volumes), sorted([...before.volumes, volume?.value]))
  })
}

t.test('the kind is in the component, and once in the chart', async (t) => {
  const files = manifestFiles()
  const withKind = [...files].filter(([, text]) => /name: topologies\.sealane\.io$/m.test(text)).map(([path]) => path)
  t.same(withKind.sort(), [
    'chart/crds/topologies.sealane.io.yaml',
    'crds/topologies.sealane.io.yaml',
    'topology/topologies.sealane.io.yaml',
  ])
})
