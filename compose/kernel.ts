/**
 * Opens the drivers of this node's kernel for one task and closes them after it. In a container, /proc/sys and /sys are
 * read-only. Two variables tell where their writable parts are mounted (install/plan-member.ts).
 */
import { Conntrack, NetlinkPacketLog } from '../kernel/nfnetlink/nfnetlink.ts'
import { NftSession } from '../kernel/nft/nft.ts'
import {
  type BridgePorts,
  type ChecksumOffload,
  EthtoolChecksumOffload,
  type PacketSteering,
  ProcSysctl,
  type ReceiveCoalescing,
  type SegmentJoining,
  SysfsBridgePorts,
  SysfsPacketSteering,
  SysfsReceiveCoalescing,
  VethSegmentJoining,
} from '../kernel/tuning/tuning.ts'
import { Rtnetlink, RtnetlinkNextHops } from '../kernel/route/route.ts'
import { WgCommand } from '../kernel/wireguard/wireguard.ts'
import { XfrmPolicies } from '../kernel/xfrm/xfrm.ts'
import { SystemClock } from '../reconcile/reconcile.ts'

export interface Kernel {
  readonly routes: Rtnetlink
  readonly nextHops: RtnetlinkNextHops
  readonly nft: NftSession
  /**
   * The tables of family ip6. Its `nft -i` starts with the first change, so that it costs nothing on a node without
   * IPv6.
   */
  readonly nft6: NftSession
  readonly wireguard: WgCommand
  readonly sysctl: ProcSysctl
  readonly forwardPolicies: XfrmPolicies
  readonly steering: PacketSteering
  readonly coalescing: ReceiveCoalescing
  readonly joining: SegmentJoining
  readonly checksumOffload: ChecksumOffload
  readonly bridgePorts: BridgePorts
  readonly connections: Conntrack
  readonly flows: Conntrack
  readonly lookup: Conntrack
  readonly packetLog: NetlinkPacketLog
}

export async function withKernel<T>(work: (kernel: Kernel) => Promise<T>): Promise<T> {
  const clock = new SystemClock()
  const routes = new Rtnetlink()
  const nextHops = new RtnetlinkNextHops()
  const forwardPolicies = new XfrmPolicies()
  const nft = new NftSession()
  const nft6 = new NftSession({ family: 'ip6' })
  const tracked = new Conntrack({ clock })
  try {
    return await work({
      routes,
      nextHops,
      nft,
      nft6,
      forwardPolicies,
      wireguard: new WgCommand({ routes }),
      sysctl: new ProcSysctl('/proc/sys', process.env['SEALANE_SYSCTL_NET']),
      steering: new SysfsPacketSteering(process.env['SEALANE_NET_DEVICES']),
      coalescing: new SysfsReceiveCoalescing(process.env['SEALANE_NET_DEVICES']),
      joining: new VethSegmentJoining({ root: process.env['SEALANE_NET_DEVICES'], clock }),
      bridgePorts: new SysfsBridgePorts(),
      // Drivers are links below /sys/devices, which the writable mount does not have.
      checksumOffload: new EthtoolChecksumOffload({ clock }),
      connections: tracked,
      flows: tracked,
      lookup: tracked,
      packetLog: new NetlinkPacketLog({ clock }),
    })
  } finally {
    nft6.close()
    nft.close()
    forwardPolicies.close()
    nextHops.close()
    routes.close()
  }
}
