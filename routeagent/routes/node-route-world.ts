/** What the routes of a node depend on, read at one moment. Plain data. */
import type { Cluster, Endpoint, Gateway, Node, RouteAgent } from '../../model/objects.ts'
import type { KernelFacts } from '../node-facts.ts'

export interface NodeRouteWorld {
  /** This node's name. */
  readonly node: string
  /** This cluster's id. */
  readonly self: string
  readonly nodes: readonly Node[]
  /** All members, this one included. */
  readonly clusters: readonly Cluster[]
  /** Of all clusters; only this cluster's own say which node serves which lane. */
  readonly endpoints: readonly Endpoint[]
  readonly gateways: readonly Gateway[]
  /** What the other nodes report about their pods; only read, and only of use, on a node that serves lanes. */
  readonly routeAgents: readonly RouteAgent[]
  readonly globalRange: string
  readonly clustersetIpRange: string
  readonly facts: KernelFacts
  /** Nodes that do not answer this node's probes over the overlay any more. Absent: none is known. */
  readonly silentNodes?: ReadonlySet<string>
  /** This cluster has IPv6 pods, but this kernel no IPv6: `clusters` has our IPv4 alone. */
  readonly ipv6LeftOut?: true
}

export interface SysctlSetting {
  readonly name: string
  readonly value: string
  /** Only where it is that: what somebody else chose stays, and a kernel need not have it. */
  readonly insteadOf?: string
  /** Where there is no such setting, nothing is wrong. */
  readonly ifPresent?: true
}

/** Lanes that this node serves, by this cluster's own Endpoints. */
export function ownLanes(world: Pick<NodeRouteWorld, 'endpoints' | 'self' | 'node'>): number[] {
  const own = world.endpoints.filter((e) => e.spec.cluster === world.self && e.spec.node === world.node)
  return [...new Set(own.map((e) => e.spec.lane))].sort((a, b) => a - b)
}
