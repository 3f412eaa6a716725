/** What this node tells the other clusters about its lanes. Pure. */
import { ownedByNode } from '../../model/node-owner.ts'
import { type Endpoint, endpointName } from '../../model/objects.ts'
import { planCandidates } from '../reach/plan-candidates.ts'
import type { GatewayWorld } from '../world.ts'

/** One Endpoint for each lane whose device exists: its public key is read from the device. They go with the Node. */
export function planEndpoints(world: GatewayWorld): Endpoint[] {
  const owned = ownedByNode(world.nodes.find(({ metadata }) => metadata.name === world.node))
  return world.lanes.flatMap((lane) => {
    const device = world.devices.get(lane.lane)
    if (device === undefined) return []
    const cluster = world.own.spec.id
    return {
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'Endpoint',
      metadata: { name: endpointName(cluster, world.node, lane.lane), ...owned },
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
