/** The real drivers of this node's kernel, opened for one piece of work and closed after it. */
import { NftSession } from '../kernel/nft-session.ts'
import { type PacketSteering, SysfsPacketSteering } from '../kernel/packet-steering.ts'
import { ProcSysctl } from '../kernel/proc-sysctl.ts'
import { Rtnetlink } from '../kernel/rtnetlink.ts'
import { WgCommand } from '../kernel/wg-command.ts'

export interface Kernel {
  readonly routes: Rtnetlink
  readonly nft: NftSession
  readonly wireguard: WgCommand
  readonly sysctl: ProcSysctl
  readonly steering: PacketSteering
}

export async function withKernel<T>(work: (kernel: Kernel) => Promise<T>): Promise<T> {
  const routes = new Rtnetlink()
  const nft = new NftSession()
  try {
    return await work({
      routes,
      nft,
      wireguard: new WgCommand({ routes }),
      sysctl: new ProcSysctl(),
      steering: new SysfsPacketSteering(),
    })
  } finally {
    nft.close()
    routes.close()
  }
}
