/** Takes what the kernel's named counters have seen over into the metrics. */
import type { Nft, NftFamily } from '../../kernel/nft/nft.ts'
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
  readonly #seen = new Map<string, number>()
  #lookedAtMs = -Infinity

  constructor(deps: DropCountsDeps) {
    this.#deps = deps
    for (const reason of reasons()) deps.metrics.packetsDropped.inc({ reason }, 0)
  }

  /** Looks, unless it has just done so. Throws KernelError ENOENT while there is no table. */
  async look(signal: AbortSignal): Promise<void> {
    const { nfts, clock } = this.#deps
    if (clock.monotonic() - this.#lookedAtMs < EVERY_MS) return
    this.#lookedAtMs = clock.monotonic()
    for (const nft of nfts()) this.#add(nft.family, await nft.counters(NFT_TABLE_GATEWAY, signal))
  }

  #add(family: NftFamily, counters: ReadonlyMap<string, number>): void {
    for (const reason of reasons()) {
      const key = `${family} ${reason}`
      const now = counters.get(dropCounter(reason)) ?? 0
      const before = this.#seen.get(key) ?? 0
      // A table that was made anew counts from nothing.
      const more = now >= before ? now - before : now
      this.#seen.set(key, now)
      if (more > 0) this.#deps.metrics.packetsDropped.inc({ reason }, more)
    }
  }
}

function reasons(): DropReason[] {
  return Object.keys(DROP_REASONS) as DropReason[]
}
