/**
 * Follows what happens to one nftables table, by the kernel's own notifications (NFNLGRP_NFTABLES), and reports it
 * unless it was our own doing. The kernel does not say whose hand it was in a way that a container could use, so what
 * comes while a transaction of ours is under way, or just after it, is taken for ours where it is about elements, and
 * else reported once that is over: somebody may have been there at the same time.
 */
import type { Clock } from '../../reconcile/reconcile.ts'
import { type KernelMessage, attributes, readCString, watchMessages } from '../route/route.ts'
import type { NftFamily } from './nft-transaction.ts'

/** linux/netfilter/nfnetlink.h and nf_tables.h. */
const NFNLGRP_NFTABLES = 7
const SUBSYSTEM_NFTABLES = 10
const NFGENMSG_BYTES = 4
const FAMILY_NUMBERS: Readonly<Record<NftFamily, number>> = { ip: 2, ip6: 10 }
const ELEMENT_MESSAGES: readonly number[] = [12, 14]
const GENERATION_MESSAGE = 15
/** In messages about tables, chains, rules, sets and elements alike. */
const NFTA_TABLE = 1

/** After our own transaction its notifications are still on their way for so long. */
const SETTLE_MS = 100

/** A program that goes on, or two programs that undo each other's work, are answered ever more slowly, down to this. */
const SLOWEST_MS = 1000
/** After so much quiet the next is reported at once again. */
const QUIET_MS = 2 * SLOWEST_MS

/** How soon the next change may be reported: at once after a quiet time, then with gaps that double. */
export class ReportPace {
  readonly #clock: Pick<Clock, 'monotonic'>
  #reportedAt = -Infinity
  #gapMs = 0

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
  }

  waitMs(): number {
    return Math.max(0, this.#reportedAt + this.#gapMs - this.#clock.monotonic())
  }

  reported(): void {
    const nowMs = this.#clock.monotonic()
    const isQuiet = nowMs - this.#reportedAt >= QUIET_MS
    this.#gapMs = isQuiet ? 0 : Math.min(SLOWEST_MS, Math.max(SETTLE_MS, 2 * this.#gapMs))
    this.#reportedAt = nowMs
  }
}

export type NftChangeKind = 'structure' | 'elements'

/** What a notification says of the table; undefined when it is about something else. */
export function changeOf(message: KernelMessage, family: NftFamily, table: string): NftChangeKind | undefined {
  const { type, data } = message
  const kind = type & 0xff
  if (type >> 8 !== SUBSYSTEM_NFTABLES || kind === GENERATION_MESSAGE || data.length < NFGENMSG_BYTES) return undefined
  if (data.readUInt8(0) !== FAMILY_NUMBERS[family]) return undefined
  const name = attributes(data, NFGENMSG_BYTES).get(NFTA_TABLE)
  if (name === undefined || readCString(name) !== table) return undefined
  return ELEMENT_MESSAGES.includes(kind) ? 'elements' : 'structure'
}

/** Transactions of our own, and the watchers of those of others. */
export class NftWatch {
  readonly #clock: Pick<Clock, 'monotonic' | 'setTimer'>
  #underWay = 0
  #settledAt = -Infinity

  constructor(clock: Pick<Clock, 'monotonic' | 'setTimer'>) {
    this.#clock = clock
  }

  /** Does a transaction of our own. */
  async own<T>(run: () => Promise<T>): Promise<T> {
    this.#underWay += 1
    try {
      return await run()
    } finally {
      this.#underWay -= 1
      this.#settledAt = this.#clock.monotonic() + SETTLE_MS
    }
  }

  /** Of Nft.onChange(). Throws KernelError. */
  follow(family: NftFamily, table: string, listener: () => void): () => void {
    let stopTimer: (() => void) | undefined
    const pace = new ReportPace(this.#clock)
    const report = (): void => {
      stopTimer = undefined
      if (!watch.isOpen()) return
      if (this.#isBusy()) {
        later()
        return
      }
      pace.reported()
      listener()
    }
    const later = (): void => {
      stopTimer ??= this.#clock.setTimer(Math.max(this.#isBusy() ? SETTLE_MS : 0, pace.waitMs()), report)
    }
    const watch = watchMessages({ protocol: 'netfilter', groups: [NFNLGRP_NFTABLES] }, (message) => {
      const kind = message === undefined ? 'structure' : changeOf(message, family, table)
      if (kind === undefined || (kind === 'elements' && this.#isBusy())) return
      later()
    })
    return () => {
      stopTimer?.()
      watch.stop()
    }
  }

  #isBusy(): boolean {
    return this.#underWay > 0 || this.#clock.monotonic() < this.#settledAt
  }
}
