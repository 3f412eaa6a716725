/** What the gateway works with. */
import type { ClusterApi } from '../kubeapi/cluster-api.ts'
import type { Knock } from '../kubeapi/known-machines.ts'
import type { Nft } from '../kernel/nft/nft.ts'
import type { NextHopTable } from '../kernel/route/nexthop/next-hop-table.ts'
import type { RouteTable } from '../kernel/route/route-table.ts'
import type { Sysctl } from '../kernel/tuning/sysctl.ts'
import type { ComponentDeps } from '../runtime/component.ts'
import type { MachineNetwork } from '../runtime/machine-network.ts'
import type { Cable } from './cable/cable.ts'
import type { OpenProbeSocket } from '../kernel/probing/probe-socket.ts'

/** What is known of the node that takes over the lane of this one. */
export interface Handover {
  /** Links, by healthKey(), that the other node has up. Nothing is sent over this node's own any more. */
  handedOver(): ReadonlySet<string>
  /** This node is about to go, or its process is and its lane with it. */
  leaving(): boolean
  /** After each try to make the lane: why it leads nowhere, or not to some cluster; undefined where it is there. */
  tried(failure: string | undefined): void
  /** Calls back after each change. Gives the function that ends it. */
  onChange(listener: () => void): () => void
}

export interface GatewayDeps extends ComponentDeps {
  readonly api: ClusterApi
  readonly routes: RouteTable
  /** Next-hop objects of the same kernel. Absent: routes have next hops of their own. */
  readonly nextHops?: NextHopTable
  /** Family ip. */
  readonly nft: Nft
  /** Family ip6. */
  readonly nft6: Nft
  /** Makes the links. */
  readonly cable: Cable
  readonly sysctl: Sysctl
  /** The real UDP socket where absent. */
  readonly openProbeSocket?: OpenProbeSocket
  /** The real one where absent (runtime/knock.ts). */
  readonly knock?: Knock
  /** Absent: default gateways and name servers are not known. */
  readonly machineNetwork?: () => Promise<MachineNetwork>
  /** Absent where nobody else can serve this node's lanes. */
  readonly handover?: Handover
}
