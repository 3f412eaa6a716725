/** Detects the platform of a cluster: its machines, its distribution and its version of Kubernetes. */
import type { Confidence, Distribution, Evidence, Finding } from './evidence.ts'
import { nodeMachine } from '../../model/model.ts'
import { findProduct, settingsOf } from './product.ts'
import { type World, annotationOf, keysAt, labelOf, listAt, nameOf, pathOf, textAt } from './snapshot.ts'

/** Properties of the machines that matter for every CNI. */
export const PLATFORM_KEYS = [
  'bottlerocket',
  'container-selinux',
  'doubtful-virtual-nodes',
  'eks-auto',
  'eks-fargate',
  'flatcar',
  'gke-autopilot',
  'ipv6-nodes',
  'old-kernel',
  'some-selinux',
  'talos',
  'unlabelled-virtual-nodes',
  'virtual-nodes',
  'windows-nodes',
] as const
export type PlatformKey = (typeof PLATFORM_KEYS)[number]

const EKS_FARGATE = 'EKS Fargate'

const MARKS: Readonly<Record<PlatformKey, (node: unknown) => string | undefined>> = {
  bottlerocket: (node) => osImage(node, /^Bottlerocket\b/),
  'container-selinux': (node) => osImage(node, CONTAINER_SELINUX),
  'doubtful-virtual-nodes': (node) => {
    const machine = nodeMachine(node)
    if (machine.is !== 'virtual' || machine.onlyBy === undefined) return undefined
    return `${machine.sign} (${machine.product})`
  },
  'eks-auto': (node) => labelled(node, 'eks.amazonaws.com/compute-type', 'auto'),
  'eks-fargate': (node) => virtualSign(node, (product) => product === EKS_FARGATE),
  flatcar: (node) => osImage(node, /^Flatcar\b/),
  'gke-autopilot': (node) => (/^gk3-/.test(nameOf(node)) ? 'its name begins with gk3-' : undefined),
  'ipv6-nodes': (node) => {
    const addresses = listAt(node, 'status', 'addresses').filter((entry) => textAt(entry, 'type') === 'InternalIP')
    const only = addresses.length > 0 && addresses.every((entry) => textAt(entry, 'address')?.includes(':') === true)
    return only ? 'no IPv4 InternalIP' : undefined
  },
  // WireGuard is part of the kernel since 5.6.
  'old-kernel': (node) => {
    const text = textAt(node, 'status', 'nodeInfo', 'kernelVersion')
    const [, major = '', minor = ''] = /^(\d{1,3})\.(\d{1,3})/.exec(text ?? '') ?? []
    if (major === '' || !isLinux(node)) return undefined
    return Number(major) * 1000 + Number(minor) < 5006 ? `status.nodeInfo.kernelVersion ${text ?? ''}` : undefined
  },
  'some-selinux': (node) => osImage(node, CONTAINER_SELINUX),
  talos: (node) => osImage(node, /^Talos\b/),
  'virtual-nodes': (node) => virtualSign(node, (product) => product !== EKS_FARGATE),
  'unlabelled-virtual-nodes': (node) => {
    const machine = nodeMachine(node)
    return machine.is === 'virtual' && machine.isSure && !machine.isLabelled ? machine.sign : undefined
  },
  'windows-nodes': (node) => {
    const machine = nodeMachine(node)
    return machine.is === 'other-system' && machine.system === 'windows' ? machine.sign : undefined
  },
}

/**
 * The systems whose SELinux policy is container-selinux, and is enforced as shipped: those of Red Hat and their kin, and
 * the immutable ones of SUSE. A container runtime that does not use SELinux ignores the type in a pod.
 */
const CONTAINER_SELINUX =
  /^(Red Hat Enterprise Linux|CentOS|Fedora|Rocky Linux|AlmaLinux|Oracle Linux|SLE Micro|SUSE Linux Micro|SUSE Linux Enterprise Micro|openSUSE MicroOS)\b/

/** These hold for all nodes or for none: a DaemonSet has one template for all of them. */
const OF_ALL: Readonly<Partial<Record<PlatformKey, boolean>>> = { 'container-selinux': true, 'some-selinux': false }

function osImage(node: unknown, pattern: RegExp): string | undefined {
  const text = textAt(node, 'status', 'nodeInfo', 'osImage') ?? ''
  return isLinux(node) && pattern.test(text) ? `status.nodeInfo.osImage ${text}` : undefined
}

/** A node of Linux that is a machine: others run no pod of a DaemonSet of ours. */
function isMachine(node: unknown): boolean {
  return nodeMachine(node).is === 'machine'
}

export function platform(world: World): Evidence[] {
  const nodes = world.list('Node', '')
  const machines = nodes.filter(isMachine)
  return PLATFORM_KEYS.flatMap((key): Evidence[] => {
    const marked = nodes.filter((node) => MARKS[key](node) !== undefined)
    if (marked[0] === undefined) return []
    const ofAll = OF_ALL[key]
    if (ofAll !== undefined && ofAll !== machines.every((node) => MARKS[key](node) !== undefined)) return []
    const others = marked.length === 1 ? '' : ` and ${marked.length - 1} more`
    const how = `Node ${nameOf(marked[0])}${others}: ${MARKS[key](marked[0]) ?? ''}`
    return [{ about: 'platform', value: key, confidence: 'certain', how }]
  })
}

/** A node whose pods Sealane does not serve: it runs Windows, or is no machine of its own. */
export function isWithoutRouteAgent(node: unknown): boolean {
  return !isMachine(node)
}

function isLinux(node: unknown): boolean {
  return nodeMachine(node).is !== 'other-system'
}

/** `label type=virtual-kubelet (Virtual Kubelet)`; for EKS Fargate the sign alone. */
function virtualSign(node: unknown, isMeant: (product: string) => boolean): string | undefined {
  const machine = nodeMachine(node)
  if (machine.is !== 'virtual' || machine.onlyBy !== undefined || !isMeant(machine.product)) return undefined
  return machine.product === EKS_FARGATE ? machine.sign : `${machine.sign} (${machine.product})`
}

function labelled(node: unknown, key: string, value: string): string | undefined {
  return keysAt(node, 'metadata', 'labels').includes(key) && labelOf(node, key) === value
    ? `label ${key}=${value}`
    : undefined
}

// Detects the distribution by the first row that matches.

interface Row {
  readonly distribution: Distribution
  readonly confidence: Confidence
  /** The evidence for the distribution. Undefined if there is none. */
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
    mark: (world) => {
      const [settings] = settingsOf(world, findProduct(world, 'kubeadm'))
      return settings === undefined ? undefined : pathOf(settings)
    },
  },
]

export function distribution(world: World): Evidence[] {
  for (const { distribution: value, confidence, mark } of ROWS) {
    const how = mark(world)
    if (how !== undefined) return [{ about: 'distribution', value, confidence, how }]
  }
  return []
}

/** For detectors whose result depends on the distribution. */
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

// Determines the version of Kubernetes, and whether it is supported. Pure.

export interface KubernetesVersion {
  /** `v1.33.5+k3s1`, as the API server reports it. */
  readonly text: string
  readonly major: number
  readonly minor: number
}

/**
 * Sealane's CRDs validate addresses with CEL functions that CRDs may use since 1.31. All other requirements are older:
 * ValidatingAdmissionPolicy 1.30, CEL in CRDs 1.29, server-side apply 1.22, discovery.k8s.io/v1 1.21.
 */
const MINIMUM_KUBERNETES = { major: 1, minor: 31, why: 'CRDs can check addresses and networks since 1.31' }

export function kubernetesVersion(version: unknown): Finding<KubernetesVersion> | undefined {
  const text = textAt(version, 'gitVersion')
  const both = `${textAt(version, 'major') ?? ''}.${textAt(version, 'minor') ?? ''}`
  const [, major = '', minor = ''] = /^v?(\d{1,4})\.(\d{1,4})/.exec(text ?? both) ?? []
  if (major === '') return undefined
  const value = { text: text ?? `v${both}`, major: Number(major), minor: Number(minor) }
  return { value, confidence: 'certain', how: "the API server's /version" }
}

/** One sentence if the version is too old. Undefined otherwise. */
export function tooOld(version: KubernetesVersion): string | undefined {
  const { major, minor, why } = MINIMUM_KUBERNETES
  if (version.major > major || (version.major === major && version.minor >= minor)) return undefined
  return `Kubernetes ${version.text} is too old: expected ${major}.${minor} or newer (${why})`
}
