/**
 * Decides which replica writes next if several want to write. The replica that wrote last is the first to know the new
 * head, and would overtake the others again and again. So a replica that was overtaken records in the store that it
 * wants to write, and the others let it, in the order of these records:
 *
 *   a write of this replica is overtaken ──► it wants to write (the failed transaction puts its key)
 *   a write of this replica is made      ──► it wants no more (the same transaction removes its key)
 *   another replica wanted earlier       ──► wait until it has written, at most MOST_MS after its key was seen
 *
 * Earlier means before this replica's own key, or before its group began if it has none. Later keys are not waited for,
 * so no wait is longer than MOST_MS. This changes only the order: the comparison of the head decides whether a write is
 * made (decision 57).
 */
import { type Clock, WakeableSleep } from '../../../reconcile/reconcile.ts'
import { type Head, replicaOf } from './etcd-rows.ts'

/** A replica that does not write within this time may be dead or slow. */
const MOST_MS = 250
/** A store has few replicas. Further keys are ignored. */
const MOST_WANTS = 64
/** One write removes at most this many of the keys. */
export const MOST_SERVED = 16

/** A replica that wants to write. `since` is the revision of etcd at which its key was put first. */
export interface Want {
  readonly replica: string
  readonly since: number
}

interface Known {
  readonly since: number
  readonly untilMs: number
}

export class WriteTurns {
  readonly #clock: Clock
  readonly #replica: string
  readonly #others = new Map<string, Known>()
  readonly #sleep: WakeableSleep
  #own: number | undefined

  constructor(clock: Clock, replica: string) {
    this.#clock = clock
    this.#sleep = new WakeableSleep(clock)
    this.#replica = replica
  }

  /** Whether the store records that this replica wants to write. */
  get isWanted(): boolean {
    return this.#own !== undefined
  }

  /** Replicas whose keys are removed with the next write of this replica: its own, and those that waited too long. */
  get served(): readonly string[] {
    const now = this.#clock.monotonic()
    const late = [...this.#others].filter(([, { untilMs }]) => untilMs <= now).map(([replica]) => replica)
    return (this.#own === undefined ? late : [this.#replica, ...late]).slice(0, MOST_SERVED)
  }

  /** The store has the key of a replica that wants to write. A repeated put of the key changes nothing. */
  see({ replica, since }: Want): void {
    if (replica === this.#replica) return
    const known = this.#others.get(replica)
    if (known?.since === since || (known === undefined && this.#others.size >= MOST_WANTS)) return
    this.#others.set(replica, { since, untilMs: this.#clock.monotonic() + MOST_MS })
    this.#sleep.wake()
  }

  /** The store no longer has the key of this replica. */
  seeServed(replica: string): void {
    if (this.#others.delete(replica)) this.#sleep.wake()
  }

  /** The watch starts again, so earlier keys may be gone. */
  forget(): void {
    this.#others.clear()
    this.#sleep.wake()
  }

  /** A write of this replica was overtaken. Its key is in the store since that revision of etcd. */
  overtaken(since: number): void {
    this.#own ??= since
  }

  /** A write of this replica was made, or it has nothing left to write. */
  done(): void {
    this.#own = undefined
  }

  /**
   * Waits until no replica wants to write that was earlier than this one, or earlier than revision `asOf` of etcd if
   * this one has no key. Resolves with false if it did not have to wait. Rejects with the signal's reason.
   */
  async await(asOf: number, signal: AbortSignal): Promise<boolean> {
    for (let hasWaited = false; ; hasWaited = true) {
      const now = this.#clock.monotonic()
      const place = this.#own ?? asOf
      const before = [...this.#others.values()].filter(({ since, untilMs }) => since <= place && untilMs > now)
      if (before.length === 0) return hasWaited
      await this.#sleep.sleep(Math.max(...before.map(({ untilMs }) => untilMs)) - now, signal)
    }
  }
}

/**
 * Time for each replica, in milliseconds: twice the mean duration of a write, since half of the writes take longer than
 * the mean.
 */
const SPACING = { first: 30, least: 6, most: 500 }
/** Weight of the latest write in the moving average. */
const SHARE = 0.2
/** A replica that has not written for this many paces has nothing to write, or is dead. */
const ACTIVE = 4

/**
 * Keeps replicas that all write from trying at the same time. Of several tries on one head only one succeeds, and the
 * others still cost etcd and the replicas the same work. The head names the last writer. Among the replicas that wrote
 * recently, the one whose last write is oldest tries at once. Each of the others gives every replica before it the time
 * of two writes.
 *
 * This only spreads the tries. A replica that has not written recently is not waited for, no wait is longer than a few
 * writes, and the comparison of the head still decides. WriteTurns ensures that each replica gets to write (decision
 * 57).
 */
export class WriteRotation {
  readonly #clock: Clock
  readonly #replica: string
  readonly #sleep: WakeableSleep
  /** When each replica last wrote, the oldest first. */
  readonly #wrote = new Map<string, number>()
  #spacingMs = SPACING.first

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

  /** A write of this replica took this long, whether it was made or not. */
  took(ms: number): void {
    const spacingMs = this.#spacingMs + SHARE * (2 * ms - this.#spacingMs)
    this.#spacingMs = Math.min(SPACING.most, Math.max(SPACING.least, spacingMs))
  }

  /**
   * Waits until it is this replica's time. Resolves with false if it did not have to wait. Rejects with the signal's
   * reason.
   */
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
    // A replica that has not written recently does not queue behind those that have.
    const before = place < 0 ? 0 : place
    return last[1] + before * this.#spacingMs - nowMs
  }

  #isActive(atMs: number, nowMs: number): boolean {
    return nowMs - atMs <= ACTIVE * this.#spacingMs
  }
}
