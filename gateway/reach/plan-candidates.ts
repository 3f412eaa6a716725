/** Where the lanes of this node can be called. Pure. */
import { containsAddress, ipv4Among, parseAddress, parsePrefix } from '../../model/addresses/ip.ts'
import type { EndpointCandidate } from '../../model/objects.ts'
import type { GatewayLaneConfig } from '../config.ts'
import { hasAddress, isBehindNat, ownObservedAddress } from '../remotes/observed-address.ts'
import type { GatewayWorld } from '../world.ts'

/**
 * Where this lane may be called, best first: public addresses (the one that an operator gave, the node's own), the
 * address in the nodes' network, and at last the one that the broker saw, where it counts. Also behind NAT: who is
 * behind the same one can call there, and the others are called.
 */
export function planCandidates(world: GatewayWorld, { port, publicAddress }: GatewayLaneConfig): EndpointCandidate[] {
  const internal = internalAddress(world)
  const external = ipv4Among(addressesOfType(world, 'ExternalIP')).slice(0, 1)
  const outside = [...(publicAddress === undefined ? [] : [publicAddress]), ...external]
  const observed = ownObservedAddress(world)
  // The broker was called from it, and it is this node's: another name for what the Node did not state.
  const isOwn = observed !== undefined && hasAddress(world, observed)
  if (isOwn && observed !== internal) outside.push(observed)
  const candidates: EndpointCandidate[] = [
    ...outside.map((address) => ({ kind: 'public', address, port }) as const),
    ...(internal === undefined ? [] : [{ kind: 'private', address: internal, port } as const]),
    ...(observed === undefined || isOwn ? [] : [{ kind: 'observed', address: observed, port } as const]),
  ]
  return candidates.filter((one, i) => candidates.findIndex((other) => other.address === one.address) === i)
}

/** Of a gateway behind NAT that nobody outside can call, as far as is known: it has to call the others itself. */
export function isHidden(candidates: readonly EndpointCandidate[]): boolean {
  const has = (kind: EndpointCandidate['kind']): boolean => candidates.some((one) => one.kind === kind)
  return candidates.length === 0 || (has('observed') && !has('public'))
}

/** Of this node's own lane. */
export function isOwnLaneHidden(world: GatewayWorld, lane: GatewayLaneConfig): boolean {
  const candidates = planCandidates(world, lane)
  return candidates.length === 0 || (isBehindNat(world) && isHidden(candidates))
}

/**
 * This node's first IPv4 InternalIP, rather one outside the pod CIDRs. Where pods have addresses of the nodes' own
 * network there is none; the others can call it there unless this cluster is translated.
 */
function internalAddress(world: GatewayWorld): string | undefined {
  const pods = world.own.spec.podCIDRs.map((text) => parsePrefix(text))
  const addresses = ipv4Among(addressesOfType(world, 'InternalIP'))
  return addresses.find((text) => !pods.some((pod) => containsAddress(pod, parseAddress(text)))) ?? addresses[0]
}

function addressesOfType(world: GatewayWorld, type: string): string[] {
  const node = world.nodes.find((entry) => entry.metadata.name === world.node)
  const reported = (node?.status?.addresses ?? []).filter((entry) => entry.type === type)
  return reported.map((entry) => entry.address)
}
