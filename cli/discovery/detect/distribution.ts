/** Which distribution this is: the first mark that fits. */
import type { Evidence, Confidence, Distribution } from '../evidence.ts'
import { annotationOf, keysAt, nameOf, textAt } from '../snapshot/raw.ts'
import type { World } from '../snapshot/snapshot.ts'

interface Row {
  readonly distribution: Distribution
  readonly confidence: Confidence
  /** How it is known, or undefined when the mark is not there. */
  readonly mark: (world: World) => string | undefined
}

const ROWS: readonly Row[] = [
  {
    distribution: 'openshift',
    confidence: 'certain',
    mark: (world) =>
      world.list('ClusterVersion', 'config.openshift.io').length > 0 ||
      world.list('Network', 'config.openshift.io').length > 0
        ? 'objects of config.openshift.io'
        : undefined,
  },
  {
    distribution: 'gke',
    confidence: 'certain',
    mark: (world) => version(world, /-gke\./) ?? label(world, 'cloud.google.com/gke-nodepool'),
  },
  {
    distribution: 'eks',
    confidence: 'certain',
    mark: (world) => version(world, /-eks-/) ?? label(world, 'eks.amazonaws.com/nodegroup'),
  },
  { distribution: 'aks', confidence: 'certain', mark: (world) => label(world, 'kubernetes.azure.com/cluster') },
  {
    distribution: 'rke2',
    confidence: 'certain',
    mark: (world) => version(world, /\+rke2/) ?? annotation(world, 'rke2.io/node-args'),
  },
  {
    distribution: 'k3s',
    confidence: 'certain',
    mark: (world) => version(world, /\+k3s/) ?? annotation(world, 'k3s.io/node-args'),
  },
  { distribution: 'kind', confidence: 'certain', mark: (world) => provider(world, 'kind://') },
  {
    distribution: 'kubeadm',
    confidence: 'likely',
    mark: (world) =>
      world.get('ConfigMap', 'kubeadm-config', 'kube-system') === undefined
        ? undefined
        : 'ConfigMap kube-system/kubeadm-config',
  },
]

export function distribution(world: World): Evidence[] {
  for (const { distribution: value, confidence, mark } of ROWS) {
    const how = mark(world)
    if (how !== undefined) return [{ about: 'distribution', value, confidence, how }]
  }
  return []
}

/** For detectors whose answer hangs on it. */
export function isDistribution(world: World, wanted: Distribution): boolean {
  return distribution(world).some((claim) => claim.value === wanted)
}

function version(world: World, pattern: RegExp): string | undefined {
  const text = textAt(world.snapshot.version, 'gitVersion')
  return text !== undefined && pattern.test(text) ? `the API server's version ${text}` : undefined
}

function label(world: World, key: string): string | undefined {
  const node = world.list('Node', '').find((one) => keysAt(one, 'metadata', 'labels').includes(key))
  return node === undefined ? undefined : `Node ${nameOf(node)} label ${key}`
}

function annotation(world: World, key: string): string | undefined {
  const node = world.list('Node', '').find((one) => annotationOf(one, key) !== undefined)
  return node === undefined ? undefined : `Node ${nameOf(node)} annotation ${key}`
}

function provider(world: World, scheme: string): string | undefined {
  const node = world.list('Node', '').find((one) => textAt(one, 'spec', 'providerID')?.startsWith(scheme))
  return node === undefined ? undefined : `Node ${nameOf(node)} spec.providerID ${scheme}…`
}
