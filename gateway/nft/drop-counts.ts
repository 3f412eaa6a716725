/** Reads at intervals how many packets the tables sealane_gateway have dropped. */
import { DroppedPackets, type Nft } from '../../kernel/nft/nft.ts'
import { NFT_TABLE_GATEWAY } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { GatewayMetrics } from '../world/world.ts'

export const DROP_REASONS = {
  'in-not-ours': 'not for an address of this cluster',
  'in-unknown-source': 'from an address of no other cluster',
  'in-lane-source': 'from a lane address, but neither a probe nor an ICMP error',
  'in-no-pod': 'from a lane, but not for a pod of this cluster',
  'in-not-admitted': 'from a lane, while no access rules are there',
  'lane-to-lane': 'from one lane to another',
  redirect: 'ICMP redirect from a lane',
  'out-no-pod': 'to a lane, but not from a pod of this cluster',
  'out-unknown-destination': 'to a lane, but not for another cluster',
  'out-unknown-source': 'from an address that other clusters do not know',
  'icmp-error': 'an ICMP error that cannot be translated',
  'lane-address-outside': 'for a lane address, but not from a lane',
  'lane-address-astray': 'from a lane address, but not into a lane',
  'host-service': 'from a lane for this node, but for a port that is not open',
  'lane-address-no-probe': 'for a lane address, but not a probe',
} as const satisfies Partial<Readonly<Record<ReasonCode, string>>>

export type DropReason = keyof typeof DROP_REASONS

/** The named counter of one reason to drop a packet. */
export function dropCounter(reason: DropReason): string {
  return `dropped-${reason}`
}

/** Reading the counters starts a process. */
const EVERY_MS = 10_000

export interface DropCountsDeps {
  /** The families that have a table. The counts of both families are added. */
  readonly nfts: () => readonly Pick<Nft, 'counters' | 'family'>[]
  readonly clock: Clock
  readonly metrics: Pick<GatewayMetrics, 'packetsDropped'>
}

export class DropCounts {
  readonly #deps: DropCountsDeps
  readonly #dropped: DroppedPackets<DropReason>
  #lookedAtMs = -Infinity

  constructor(deps: DropCountsDeps) {
    this.#deps = deps
    this.#dropped = new DroppedPackets({
      table: NFT_TABLE_GATEWAY,
      reasons: DROP_REASONS,
      counterOf: dropCounter,
      dropped: deps.metrics.packetsDropped,
    })
  }

  /** Reads the counters unless it has just done so. Throws KernelError ENOENT while there is no table. */
  async look(signal: AbortSignal): Promise<void> {
    const { nfts, clock } = this.#deps
    if (clock.monotonic() - this.#lookedAtMs < EVERY_MS) return
    this.#lookedAtMs = clock.monotonic()
    await this.#dropped.look(nfts(), signal)
  }
}
