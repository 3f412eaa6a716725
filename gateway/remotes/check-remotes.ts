/** Clusters: what model/addresses/remote-clusters.ts says of them, with this node's own view. Pure. */
import { machineNeeds } from '../../model/addresses/needed-ranges.ts'
import { type RemoteCluster, checkRemoteClusters, underlayAddresses } from '../../model/addresses/remote-clusters.ts'
import type { GatewayWorld } from '../world.ts'
import type { Problem } from '../../model/reasons/problem.ts'

/** An object that is not used, and why. */
export interface Refusal extends Problem {
  /** `Cluster paris`, `Endpoint paris.gw-lane0`. */
  readonly subject: string
}

/** Remote clusters that may be routed, by id. */
export function checkClusters(world: GatewayWorld): { clusters: readonly RemoteCluster[]; refusals: Refusal[] } {
  const { own, clusters: all, nodes } = world
  const underlay = underlayAddresses(
    nodes,
    world.addresses.map((entry) => entry.address),
  )
  const needed = machineNeeds({
    nodes: underlayAddresses(nodes),
    interfaces: world.addresses.map((entry) => entry.address),
    nextHops: world.machine?.nextHops ?? [],
    nameServers: world.machine?.nameServers ?? [],
  })
  const { clusters, refused } = checkRemoteClusters({ own, clusters: all, underlay, needed })
  return { clusters, refusals: refused.map(({ name, ...why }) => ({ subject: `Cluster ${name}`, ...why })) }
}
