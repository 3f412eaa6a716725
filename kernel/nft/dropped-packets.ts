/** Adds the growth of the named counters of a table to a metric, even if the table is replaced in between. */
import type { Counter } from '../../runtime/metrics/metrics.ts'
import type { Nft, NftFamily } from './nft-transaction.ts'

export interface DroppedPacketsInit<Reason extends string> {
  /** Name of the table in each family. */
  readonly table: string
  /** Reason → its meaning. */
  readonly reasons: Readonly<Record<Reason, string>>
  /** Returns the name of the counter of a reason. */
  readonly counterOf: (reason: Reason) => string
  /** Has the label `reason`. */
  readonly dropped: Counter
}

export class DroppedPackets<Reason extends string> {
  readonly #init: DroppedPacketsInit<Reason>
  readonly #seen = new Map<string, number>()

  /** The metric has a series for every reason from the start. */
  constructor(init: DroppedPacketsInit<Reason>) {
    this.#init = init
    for (const reason of this.#reasons()) init.dropped.inc({ reason }, 0)
  }

  /** Adds what all families have dropped. Throws KernelError ENOENT if one of them has no table. */
  async look(nfts: readonly Pick<Nft, 'counters' | 'family'>[], signal: AbortSignal): Promise<void> {
    for (const nft of nfts) this.#add(nft.family, await nft.counters(this.#init.table, signal))
  }

  #add(family: NftFamily, counters: ReadonlyMap<string, number>): void {
    const { counterOf, dropped } = this.#init
    for (const reason of this.#reasons()) {
      const key = `${family} ${reason}`
      const now = counters.get(counterOf(reason)) ?? 0
      const before = this.#seen.get(key) ?? 0
      // The counters of a new table start at 0.
      const more = now >= before ? now - before : now
      this.#seen.set(key, now)
      if (more > 0) dropped.inc({ reason }, more)
    }
  }

  #reasons(): Reason[] {
    return Object.keys(this.#init.reasons) as Reason[]
  }
}
