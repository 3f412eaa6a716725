/** Takes what the named counters of a table have seen over into a metric, whatever becomes of the table. */
import type { Counter } from '../../runtime/metrics/metrics.ts'
import type { Nft, NftFamily } from './nft-transaction.ts'

export interface DroppedPacketsInit<Reason extends string> {
  /** Of each family that is looked at. */
  readonly table: string
  /** Reason → what it means. */
  readonly reasons: Readonly<Record<Reason, string>>
  /** The named counter of a reason. */
  readonly counterOf: (reason: Reason) => string
  /** With the label `reason`. */
  readonly dropped: Counter
}

export class DroppedPackets<Reason extends string> {
  readonly #init: DroppedPacketsInit<Reason>
  readonly #seen = new Map<string, number>()

  /** The metric has every reason from the start. */
  constructor(init: DroppedPacketsInit<Reason>) {
    this.#init = init
    for (const reason of this.#reasons()) init.dropped.inc({ reason }, 0)
  }

  /** What the families drop is added up. Throws KernelError ENOENT while one of them has no table. */
  async look(nfts: readonly Pick<Nft, 'counters' | 'family'>[], signal: AbortSignal): Promise<void> {
    for (const nft of nfts) this.#add(nft.family, await nft.counters(this.#init.table, signal))
  }

  #add(family: NftFamily, counters: ReadonlyMap<string, number>): void {
    const { counterOf, dropped } = this.#init
    for (const reason of this.#reasons()) {
      const key = `${family} ${reason}`
      const now = counters.get(counterOf(reason)) ?? 0
      const before = this.#seen.get(key) ?? 0
      // A table that was made anew counts from nothing.
      const more = now >= before ? now - before : now
      this.#seen.set(key, now)
      if (more > 0) dropped.inc({ reason }, more)
    }
  }

  #reasons(): Reason[] {
    return Object.keys(this.#init.reasons) as Reason[]
  }
}
