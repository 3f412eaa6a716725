/** Where the lanes of this node can be called. Pure. */
import { containsAddress, ipv4Among, parseAddress, parsePrefix } from '../model/ip.ts'
import type { EndpointCandidate } from '../model/objects.ts'
import type { GatewayLaneConfig } from './config.ts'
import type { GatewayWorld } from './world.ts'

/** True when the broker saw this site under an address that this node does not have. */
export function isBehindNat(world: Pick<GatewayWorld, 'observedAddress' | 'addresses'>): boolean {
  const { observedAddress } = world
  if (observedAddress === undefined) return false
  return !world.addresses.some((entry) => entry.address.split('/')[0] === observedAddress)
}

/**
 * Where this lane can be called, best first: the configured public address, the address that the broker saw where
 * this node really has it, then the node's own. Empty behind NAT without a public address: whoever called would
 * reach somebody else, so this gateway calls the others instead.
 */
export function planCandidates(world: GatewayWorld, lane: GatewayLaneConfig): EndpointCandidate[] {
  const { port } = lane
  if (lane.publicAddress === undefined && isBehindNat(world)) return []
  const candidates: EndpointCandidate[] = []
  if (lane.publicAddress !== undefined) candidates.push({ kind: 'public', address: lane.publicAddress, port })
  else if (world.observedAddress !== undefined) {
    candidates.push({ kind: 'observed', address: world.observedAddress, port })
  }
  const internal = nodeAddress(world)
  if (internal !== undefined) candidates.push({ kind: 'private', address: internal, port })
  return candidates.filter((one, i) => candidates.findIndex((other) => other.address === one.address) === i)
}

/**
 * This node's first IPv4 InternalIP, rather one outside the pod CIDRs. Where pods have addresses of the nodes' own
 * network there is none; the others can call it there unless this cluster is translated.
 */
function nodeAddress(world: GatewayWorld): string | undefined {
  const pods = world.own.spec.podCIDRs.map((text) => parsePrefix(text))
  const node = world.nodes.find((entry) => entry.metadata.name === world.node)
  const internal = (node?.status?.addresses ?? []).filter((entry) => entry.type === 'InternalIP')
  const addresses = ipv4Among(internal.map((entry) => entry.address))
  return addresses.find((text) => !pods.some((pod) => containsAddress(pod, parseAddress(text)))) ?? addresses[0]
}
