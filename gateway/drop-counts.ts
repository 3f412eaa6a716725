/** Takes what the kernel's named counters have seen over into the metrics. */
import type { Nft } from '../kernel/nft.ts'
import { NFT_TABLE_GATEWAY } from '../model/kernel-ids.ts'
import type { Clock } from '../reconcile/clock.ts'
import { DROP_REASONS, type DropReason, dropCounter } from './drop-reasons.ts'
import type { GatewayMetrics } from './metrics.ts'

/** A look costs the start of a process. */
const EVERY_MS = 10_000

export interface DropCountsDeps {
  readonly nft: Pick<Nft, 'counters'>
  readonly clock: Clock
  readonly metrics: Pick<GatewayMetrics, 'packetsDropped'>
}

export class DropCounts {
  readonly #deps: DropCountsDeps
  readonly #seen = new Map<DropReason, number>()
  #lookedAtMs = -Infinity

  constructor(deps: DropCountsDeps) {
    this.#deps = deps
    for (const reason of reasons()) deps.metrics.packetsDropped.inc({ reason }, 0)
  }

  /** Looks, unless it has just done so. Throws KernelError ENOENT while there is no table. */
  async look(signal: AbortSignal): Promise<void> {
    const { nft, clock, metrics } = this.#deps
    if (clock.monotonic() - this.#lookedAtMs < EVERY_MS) return
    this.#lookedAtMs = clock.monotonic()
    const counters = await nft.counters(NFT_TABLE_GATEWAY, signal)
    for (const reason of reasons()) {
      const now = counters.get(dropCounter(reason)) ?? 0
      const before = this.#seen.get(reason) ?? 0
      // A table that was made anew counts from nothing.
      const more = now >= before ? now - before : now
      this.#seen.set(reason, now)
      if (more > 0) metrics.packetsDropped.inc({ reason }, more)
    }
  }
}

function reasons(): DropReason[] {
  return Object.keys(DROP_REASONS) as DropReason[]
}
