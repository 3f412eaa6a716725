/** What this node tells the other clusters about its lanes. Pure. */
import { containsAddress, parseAddress, parsePrefix } from '../model/ip.ts'
import { type Endpoint, type EndpointCandidate, endpointName } from '../model/objects.ts'
import type { GatewayLaneConfig } from './config.ts'
import { isBehindNat } from './plan-lanes.ts'
import type { GatewayWorld } from './world.ts'

/** One Endpoint for each lane whose device exists: its public key is read from the device. */
export function planEndpoints(world: GatewayWorld): Endpoint[] {
  return world.lanes.flatMap((lane) => {
    const device = world.devices.get(lane.lane)
    if (device === undefined) return []
    const cluster = world.own.spec.id
    return {
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'Endpoint',
      metadata: { name: endpointName(cluster, world.node, lane.lane) },
      spec: {
        cluster,
        node: world.node,
        lane: lane.lane,
        publicKey: device.publicKey,
        candidates: planCandidates(world, lane),
        capabilities: ['wireguard'],
      },
    } satisfies Endpoint
  })
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

/** This node's first IPv4 InternalIP that is not a pod address. */
function nodeAddress(world: GatewayWorld): string | undefined {
  const pods = world.own.spec.podCIDRs.map((text) => parsePrefix(text))
  const node = world.nodes.find((entry) => entry.metadata.name === world.node)
  const internal = (node?.status?.addresses ?? []).filter((entry) => entry.type === 'InternalIP')
  return internal
    .map((entry) => entry.address)
    .find((text) => !text.includes(':') && !pods.some((pod) => containsAddress(pod, parseAddress(text))))
}
