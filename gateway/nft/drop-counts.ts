/** Looks now and then at what the tables sealane_gateway have dropped. */
import { DroppedPackets } from '../../kernel/nft/dropped-packets.ts'
import type { Nft } from '../../kernel/nft/nft.ts'
import { NFT_TABLE_GATEWAY } from '../../model/kernel-ids.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { DROP_REASONS, type DropReason, dropCounter } from './drop-reasons.ts'
import type { GatewayMetrics } from '../metrics.ts'

/** A look costs the start of a process. */
const EVERY_MS = 10_000

export interface DropCountsDeps {
  /** Those that have a table of ours. What both families drop is added up. */
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

  /** Looks, unless it has just done so. Throws KernelError ENOENT while there is no table. */
  async look(signal: AbortSignal): Promise<void> {
    const { nfts, clock } = this.#deps
    if (clock.monotonic() - this.#lookedAtMs < EVERY_MS) return
    this.#lookedAtMs = clock.monotonic()
    await this.#dropped.look(nfts(), signal)
  }
}
