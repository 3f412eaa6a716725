/** What the gateway works with. */
import type { ClusterApi } from '../cluster/cluster-api.ts'
import type { Nft } from '../kernel/nft.ts'
import type { PacketSteering } from '../kernel/packet-steering.ts'
import type { SegmentJoining } from '../kernel/segment-joining.ts'
import type { RouteTable } from '../kernel/route-table.ts'
import type { Sysctl } from '../kernel/sysctl.ts'
import type { Wireguard } from '../kernel/wireguard.ts'
import type { ComponentDeps } from '../runtime/component.ts'
import type { OpenProbeSocket } from './probe-socket.ts'

export interface GatewayDeps extends ComponentDeps {
  readonly cluster: ClusterApi
  readonly routes: RouteTable
  /** Family ip. */
  readonly nft: Nft
  /** Family ip6. */
  readonly nft6: Nft
  readonly wireguard: Wireguard
  readonly sysctl: Sysctl
  /** Where absent, the devices keep the kernel's default: one processor each. */
  readonly steering?: PacketSteering
  /** Where absent, or where it cannot be had, each packet of a user-space lane goes its way by itself. */
  readonly joining?: SegmentJoining
  /** The real UDP socket where absent. */
  readonly openProbeSocket?: OpenProbeSocket
}
