/**
 * Keeps replicas that all write from trying at the same time. Of several tries on one head one is made, and the others
 * cost etcd and the replicas as much and bring nothing. The head names who wrote last: whoever wrote longest ago among
 * those that wrote just now tries at once, and each of the others gives those before it the time of two writes.
 *
 * It only spreads the tries. Nobody is waited for who has not written lately, nobody for longer than a few writes take,
 * and the comparison of the head decides as ever; that each comes to it is for WriteTurns (decision 57).
 */
import type { Clock } from '../../../reconcile/clock.ts'
import { WakeableSleep } from '../../../reconcile/wakeable-sleep.ts'
import { type Head, replicaOf } from './etcd-values.ts'

/** How long each is given: twice what writes take, since half of them take longer than the mean. */
const PACE = { first: 30, least: 6, most: 500 }
/** How much of it the last write is. */
const SHARE = 0.2
/** Who has not written for so many of these has nothing to write, or is dead. */
const ACTIVE = 4

export class WriteRotation {
  readonly #clock: Clock
  readonly #replica: string
  readonly #sleep: WakeableSleep
  /** When each was seen to write, the longest ago first. */
  readonly #wrote = new Map<string, number>()
  #paceMs = PACE.first

  constructor(clock: Clock, replica: string) {
    this.#clock = clock
    this.#replica = replica
    this.#sleep = new WakeableSleep(clock)
  }

  /** The log has a new head. */
  see({ writes: [latest] }: Pick<Head, 'writes'>): void {
    if (latest === undefined) return
    const nowMs = this.#clock.monotonic()
    const replica = replicaOf(latest)
    this.#wrote.delete(replica)
    this.#wrote.set(replica, nowMs)
    for (const [one, atMs] of this.#wrote) if (!this.#isActive(atMs, nowMs)) this.#wrote.delete(one)
    this.#sleep.wake()
  }

  /** A write of this replica took so long, made or not. */
  took(ms: number): void {
    const paceMs = this.#paceMs + SHARE * (2 * ms - this.#paceMs)
    this.#paceMs = Math.min(PACE.most, Math.max(PACE.least, paceMs))
  }

  /** Until it is this replica's time. False where that is so already. Rejects with the signal's reason. */
  async await(signal: AbortSignal): Promise<boolean> {
    for (let hasWaited = false; ; hasWaited = true) {
      const ms = this.#waitMs()
      if (ms <= 0) return hasWaited
      await this.#sleep.sleep(ms, signal)
    }
  }

  #waitMs(): number {
    const nowMs = this.#clock.monotonic()
    const active = [...this.#wrote].filter(([, atMs]) => this.#isActive(atMs, nowMs))
    const last = active.at(-1)
    if (last === undefined) return 0
    const place = active.findIndex(([replica]) => replica === this.#replica)
    // One that has not written lately is not behind those that have.
    const before = place < 0 ? 0 : place
    return last[1] + before * this.#paceMs - nowMs
  }

  #isActive(atMs: number, nowMs: number): boolean {
    return nowMs - atMs <= ACTIVE * this.#paceMs
  }
}
