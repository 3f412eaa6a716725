/**
 * Watches one nftables table through the notifications of the kernel (NFNLGRP_NFTABLES) and reports changes by other
 * programs. In a container, the kernel does not identify the program that made a change. So notifications that arrive
 * during one of our transactions, or just after it, count as ours if they are about elements. Otherwise they are
 * reported after the transaction, because another program may have changed the table at the same time.
 */
import type { Clock } from '../../reconcile/reconcile.ts'
import { type KernelMessage, attributes, readCString, watchMessages } from '../route/route.ts'
import type { NftFamily } from './nft-transaction.ts'

/** Constants of linux/netfilter/nfnetlink.h and nf_tables.h. */
const NFNLGRP_NFTABLES = 7
const SUBSYSTEM_NFTABLES = 10
const NFGENMSG_BYTES = 4
const FAMILY_NUMBERS: Readonly<Record<NftFamily, number>> = { ip: 2, ip6: 10 }
const ELEMENT_MESSAGES: readonly number[] = [12, 14]
const TABLE_DELETION = 2
const GENERATION_MESSAGE = 15
/** The same attribute in messages about tables, chains, rules, sets and elements. */
const NFTA_TABLE = 1

/** After our own transaction, its notifications may arrive for this long. */
const SETTLE_MS = 100

/**
 * The longest gap between reports. The gaps grow up to it if a program changes the table all the time, or if two
 * programs undo each other's changes.
 */
const SLOWEST_MS = 1000
/** After this long without a report, the next change is reported at once. */
const QUIET_MS = 2 * SLOWEST_MS

/** Rate limiter for reports: the first one after a quiet time is immediate, then the gaps double. */
export class ReportRateLimiter {
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

/** Gone: the table was deleted, and perhaps added again. */
export type NftChangeKind = 'gone' | 'structure' | 'elements'

/** Tells what a notification says about the table. Undefined if the notification is about something else. */
export function changeOf(message: KernelMessage, family: NftFamily, table: string): NftChangeKind | undefined {
  const { type, data } = message
  const kind = type & 0xff
  if (type >> 8 !== SUBSYSTEM_NFTABLES || kind === GENERATION_MESSAGE || data.length < NFGENMSG_BYTES) return undefined
  if (data.readUInt8(0) !== FAMILY_NUMBERS[family]) return undefined
  const name = attributes(data, NFGENMSG_BYTES).get(NFTA_TABLE)
  if (name === undefined || readCString(name) !== table) return undefined
  if (kind === TABLE_DELETION) return 'gone'
  return ELEMENT_MESSAGES.includes(kind) ? 'elements' : 'structure'
}

/** Tracks our own transactions, and watches for changes by other programs. */
export class NftWatch {
  readonly #clock: Pick<Clock, 'monotonic' | 'setTimer'>
  #underWay = 0
  #settledAt = -Infinity

  constructor(clock: Pick<Clock, 'monotonic' | 'setTimer'>) {
    this.#clock = clock
  }

  /** Runs a transaction of our own. */
  async own<T>(run: () => Promise<T>): Promise<T> {
    this.#underWay += 1
    try {
      return await run()
    } finally {
      this.#underWay -= 1
      this.#settledAt = this.#clock.monotonic() + SETTLE_MS
    }
  }

  /** Implements Nft.onChange(). Throws KernelError. */
  follow(family: NftFamily, table: string, listener: () => void): () => void {
    let stopTimer: (() => void) | undefined
    const limiter = new ReportRateLimiter(this.#clock)
    const report = (): void => {
      stopTimer = undefined
      if (!watch.isOpen()) return
      if (this.#isBusy()) {
        later()
        return
      }
      limiter.reported()
      listener()
    }
    const later = (): void => {
      stopTimer ??= this.#clock.setTimer(Math.max(this.#isBusy() ? SETTLE_MS : 0, limiter.waitMs()), report)
    }
    const watch = watchMessages({ protocol: 'netfilter', groups: [NFNLGRP_NFTABLES] }, (message) => {
      const kind = message === undefined ? 'structure' : changeOf(message, family, table)
      if (kind === undefined || (kind === 'elements' && this.#isBusy())) return
      // Nothing works without the table, however often it was lost lately. Our own deletion of it comes while busy.
      if (kind === 'gone' && !this.#isBusy()) {
        stopTimer?.()
        stopTimer = this.#clock.setTimer(0, report)
      } else later()
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
