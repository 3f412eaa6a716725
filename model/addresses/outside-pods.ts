/**
 * Which addresses of pods are outside the pod CIDRs that a cluster states, so that other clusters do not reach them. The
 * node of a pod and the agent decide this alike. Pure.
 */
import type { Node, Pod } from '../model.ts'
import {
  type Address,
  MAX_PODS_OUTSIDE,
  type Prefix,
  addressIn,
  classifyAddress,
  compareAddresses,
  containsAddress,
  formatAddress,
  formatPrefix,
  prefixOf,
} from '../values/values.ts'

export interface StatedPods {
  /** The pod CIDRs that the cluster states. It offers no family of which it states none. */
  readonly podCIDRs: readonly Prefix[]
  /** Addresses of nodes, in canonical form: pods on the host network have these. */
  readonly nodes: ReadonlySet<string>
}

/** The address if it is outside. Undefined also for a text that is no address. */
export function outsideAddress(text: string, { podCIDRs, nodes }: StatedPods): Address | undefined {
  const address = addressIn(text, text.includes(':') ? 'IPv6' : 'IPv4')
  if (address === undefined || classifyAddress(address) !== 'usable' || nodes.has(formatAddress(address))) {
    return undefined
  }
  const isOffered = podCIDRs.some(({ family }) => family === address.family)
  return isOffered && !podCIDRs.some((prefix) => containsAddress(prefix, address)) ? address : undefined
}

/** The addresses by which machines call this node: InternalIP and ExternalIP. */
export function addressesOfNode({ status }: Node): Address[] {
  return (status?.addresses ?? [])
    .filter(({ type }) => type === 'InternalIP' || type === 'ExternalIP')
    .flatMap(({ address }) => addressIn(address, address.includes(':') ? 'IPv6' : 'IPv4') ?? [])
}

/** Pods that begin and end change no network as wide as these. */
const NETWORK_LENGTH = { 4: 24, 6: 64 } as const

/**
 * Addresses of the pods of one node that are outside, sorted, one of each network, at most MAX_PODS_OUTSIDE. Of a
 * network, the one that was reported `before` stays while a pod has it. Only `status.podIPs` counts: other clusters do
 * not call the addresses of further networks of a pod. Pods on the host network do not count, nor those that have ended.
 */
export function outsidePodsOf(
  pods: readonly Pod[],
  { node, before, ...stated }: StatedPods & { readonly node: string; readonly before: readonly string[] },
): readonly string[] {
  const outside = pods
    .filter(({ spec, status }) => spec?.nodeName === node && spec.hostNetwork !== true && !hasEnded(status?.phase))
    .flatMap(({ status }) => status?.podIPs?.map(({ ip }) => ip) ?? status?.podIP ?? [])
    .flatMap((text) => outsideAddress(text, stated) ?? [])
  const known = new Set(before)
  const byNetwork = new Map<string, Address>()
  for (const address of outside.sort(compareAddresses)) {
    const network = formatPrefix(prefixOf(address, NETWORK_LENGTH[address.family]))
    if (!byNetwork.has(network) || known.has(formatAddress(address))) byNetwork.set(network, address)
  }
  // Those that were reported come first, so that a further network does not take their place.
  const chosen = [...byNetwork.values()].sort((a, b) => rank(a, known) - rank(b, known) || compareAddresses(a, b))
  return chosen.slice(0, MAX_PODS_OUTSIDE).sort(compareAddresses).map(formatAddress)
}

function rank(address: Address, known: ReadonlySet<string>): number {
  return known.has(formatAddress(address)) ? 0 : 1
}

function hasEnded(phase: string | undefined): boolean {
  return phase === 'Succeeded' || phase === 'Failed'
}
