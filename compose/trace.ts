/** Follows packets through the kernel of this machine for `sealane explain --probe`. */
import { runCommand } from '../kernel/kernel.ts'
import { type Nft, NftSession, type PacketTrace, type TracedCall, withTrace } from '../kernel/nft/nft.ts'
import { LANE_DEVICE_PREFIX, NFT_TABLE_GATEWAY, NFT_TABLE_NODE, VXLAN_DEVICE } from '../model/model.ts'
import type { Family } from '../model/addresses/addresses.ts'

export type { PacketTrace, TracedCall } from '../kernel/nft/nft.ts'

export interface TraceHereInit {
  readonly family: Family
  readonly call: TracedCall
  readonly seconds: number
}

export interface TraceHere extends PacketTrace {
  /**
   * Packets of our devices by name, and with `tables` the counters of our tables. To list those, nft reads the elements
   * of all sets of the machine. What cannot be read in time is left out.
   */
  counters(init: { readonly tables: boolean }, signal: AbortSignal): Promise<ReadonlyMap<string, number>>
}

/** Runs `work` while packets of the call are traced here. Throws what `work` throws, and the signal's reason. */
export async function traceHere<T>(
  { family, call, seconds }: TraceHereInit,
  signal: AbortSignal,
  work: (trace: TraceHere) => Promise<T>,
): Promise<T> {
  const nft = new NftSession({ family: family === 4 ? 'ip' : 'ip6' })
  try {
    return await withTrace({ nft, call, seconds }, signal, (trace) =>
      work({
        get problem() {
          return trace.problem
        },
        get leftOut() {
          return trace.leftOut
        },
        lines: (limited) => trace.lines(limited),
        counters: async ({ tables }, limited) =>
          new Map([...(tables ? await countersOf(nft, limited) : []), ...(await devicesOf(limited))]),
      }),
    )
  } finally {
    nft.close()
  }
}

const COUNTERS_MS = 2000

async function countersOf(nft: Nft, signal: AbortSignal): Promise<(readonly [string, number])[]> {
  const found: (readonly [string, number])[] = []
  const limited = AbortSignal.any([signal, AbortSignal.timeout(COUNTERS_MS)])
  for (const table of [NFT_TABLE_NODE, NFT_TABLE_GATEWAY]) {
    // A machine has the tables of the parts that run there.
    const counters = await nft.counters(table, limited).catch(() => new Map<string, number>())
    signal.throwIfAborted()
    for (const [name, packets] of counters) found.push([`${nft.family} ${table} ${name}`, packets])
  }
  return found
}

const LINKS_MS = 3000

async function devicesOf(signal: AbortSignal): Promise<(readonly [string, number])[]> {
  try {
    const { stdout } = await runCommand('ip', ['-j', '-s', 'link', 'show'], { signal, timeoutMs: LINKS_MS })
    return (JSON.parse(stdout) as readonly LinkLook[]).flatMap(({ ifname = '', stats64 }) => {
      if (!isOurs(ifname) || stats64 === undefined) return []
      const { tx, rx } = stats64
      return [
        [`device ${ifname} sent`, tx?.packets ?? 0] as const,
        [`device ${ifname} not sent`, (tx?.dropped ?? 0) + (tx?.errors ?? 0)] as const,
        [`device ${ifname} received`, rx?.packets ?? 0] as const,
      ]
    })
  } catch {
    signal.throwIfAborted()
    return []
  }
}

function isOurs(name: string): boolean {
  return name === VXLAN_DEVICE || new RegExp(`^${LANE_DEVICE_PREFIX}\\d+$`).test(name)
}

interface LinkStats {
  readonly packets?: number
  readonly dropped?: number
  readonly errors?: number
}

interface LinkLook {
  readonly ifname?: string
  readonly stats64?: { readonly tx?: LinkStats; readonly rx?: LinkStats }
}
