/** What this node publishes to the other clusters about its lanes. Pure. */
import { ownedByNode } from '../../model/node-owner.ts'
import { CAPABILITY_ALL_PAIRS, CAPABILITY_DRAINING, CAPABILITY_SIZED_PROBES } from '../../model/lanes/lane-number.ts'
import { type Endpoint, endpointName } from '../../model/objects.ts'
import { planCandidates } from '../reach/plan-candidates.ts'
import type { CableRules } from '../cable/cable.ts'
import type { GatewayWorld } from '../world.ts'

/** One Endpoint for a lane that exists: who it is, any of its devices says. It goes with the Node. */
export function planEndpoints(world: GatewayWorld, rules: CableRules): Endpoint[] {
  const owned = ownedByNode(world.nodes.find(({ metadata }) => metadata.name === world.node))
  return world.lanes.flatMap((lane) => {
    const [state] = world.laneStates.values()
    if (state === undefined) return []
    const cluster = world.own.spec.id
    const fields = rules.endpointFields(state, world.nextIdentity)
    return {
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'Endpoint',
      metadata: { name: endpointName(cluster, world.node, lane.lane), ...owned },
      spec: {
        cluster,
        node: world.node,
        lane: lane.lane,
        ...fields,
        capabilities: [
          ...fields.capabilities,
          CAPABILITY_ALL_PAIRS,
          CAPABILITY_SIZED_PROBES,
          ...(world.leaving === true || world.returning === true ? [CAPABILITY_DRAINING] : []),
        ],
        candidates: planCandidates(world, lane),
      },
    } satisfies Endpoint
  })
}
