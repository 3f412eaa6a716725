/** What a cluster runs on: its machines, its distribution, its version of Kubernetes. */
import type { Evidence } from '../evidence.ts'
import { keysAt, labelOf, listAt, nameOf, textAt } from '../snapshot/raw.ts'
import type { World } from '../snapshot/snapshot.ts'

/** Things about the machines that matter whatever the CNI is. */
export const PLATFORM_KEYS = [
  'eks-auto',
  'eks-fargate',
  'gke-autopilot',
  'ipv6-nodes',
  'old-kernel',
  'talos',
  'virtual-nodes',
  'windows-nodes',
] as const
export type PlatformKey = (typeof PLATFORM_KEYS)[number]

const MARKS: Readonly<Record<PlatformKey, (node: unknown) => string | undefined>> = {
  'eks-auto': (node) => labelled(node, 'eks.amazonaws.com/compute-type', 'auto'),
  'eks-fargate': (node) => labelled(node, 'eks.amazonaws.com/compute-type', 'fargate'),
  'gke-autopilot': (node) => (/^gk3-/.test(nameOf(node)) ? 'its name begins with gk3-' : undefined),
  'ipv6-nodes': (node) => {
    const addresses = listAt(node, 'status', 'addresses').filter((entry) => textAt(entry, 'type') === 'InternalIP')
    const only = addresses.length > 0 && addresses.every((entry) => textAt(entry, 'address')?.includes(':') === true)
    return only ? 'no IPv4 InternalIP' : undefined
  },
  // WireGuard came into the kernel with 5.6.
  'old-kernel': (node) => {
    const text = textAt(node, 'status', 'nodeInfo', 'kernelVersion')
    const [, major = '', minor = ''] = /^(\d{1,3})\.(\d{1,3})/.exec(text ?? '') ?? []
    if (major === '' || !isLinux(node)) return undefined
    return Number(major) * 1000 + Number(minor) < 5006 ? `status.nodeInfo.kernelVersion ${text ?? ''}` : undefined
  },
  talos: (node) =>
    /^Talos/.test(textAt(node, 'status', 'nodeInfo', 'osImage') ?? '') ? 'status.nodeInfo.osImage Talos' : undefined,
  'virtual-nodes': (node) => labelled(node, 'type', 'virtual-kubelet'),
  'windows-nodes': (node) => labelled(node, 'kubernetes.io/os', 'windows'),
}

export function platform(world: World): Evidence[] {
  const nodes = world.list('Node', '')
  return PLATFORM_KEYS.flatMap((key): Evidence[] => {
    const marked = nodes.filter((node) => MARKS[key](node) !== undefined)
    if (marked[0] === undefined) return []
    const others = marked.length === 1 ? '' : ` and ${marked.length - 1} more`
    const how = `Node ${nameOf(marked[0])}${others}: ${MARKS[key](marked[0]) ?? ''}`
    return [{ about: 'platform', value: key, confidence: 'certain', how }]
  })
}

export function isLinux(node: unknown): boolean {
  const os = labelOf(node, 'kubernetes.io/os') ?? textAt(node, 'status', 'nodeInfo', 'operatingSystem')
  return os === undefined || os === 'linux'
}

function labelled(node: unknown, key: string, value: string): string | undefined {
  return keysAt(node, 'metadata', 'labels').includes(key) && labelOf(node, key) === value
    ? `label ${key}=${value}`
    : undefined
}
