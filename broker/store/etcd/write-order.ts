/**
 * Whose turn it is among replicas that write at the same time. Who has just written is the first to know what is there
 * now, and would overtake the others again and again. So who was overtaken says in the store that it wants to write, and
 * the others let it, in the order in which they said so:
 *
 *   a write of ours was overtaken ──► we want (a key of ours is put)
 *   a write of ours is made       ──► we have what we wanted (the same transaction takes the key away)
 *   somebody else wanted earlier  ──► wait until it has written, or until MOST_MS after it said so
 *
 * Earlier is what was said before our group was begun, or before we said so ourselves: who comes later is not waited for,
 * so that no wait is longer than MOST_MS. Nothing depends on it but who is first: the comparison of the head decides
 * (decision 57).
 */
import { type Clock, WakeableSleep } from '../../../reconcile/reconcile.ts'
import { type Head, replicaOf } from './etcd-rows.ts'

/** Who does not write within this may be dead, or far away. */
const MOST_MS = 250
/** A store has few replicas; what else is there is not looked at. */
const MOST_WANTS = 64
/** One write takes away no more of them. */
export const MOST_SERVED = 16

/** Of a replica that wants to write; `since` is the revision of etcd at which it said so first. */
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

  /** Whether the store says of this replica that it wants to write. */
  get isWanted(): boolean {
    return this.#own !== undefined
  }

  /** The replicas of which the store need not say any more that they want to write, once we have written. */
  get served(): readonly string[] {
    const now = this.#clock.monotonic()
    const late = [...this.#others].filter(([, { untilMs }]) => untilMs <= now).map(([replica]) => replica)
    return (this.#own === undefined ? late : [this.#replica, ...late]).slice(0, MOST_SERVED)
  }

  /** A replica wants to write, as the store says. That it says so again changes nothing. */
  see({ replica, since }: Want): void {
    if (replica === this.#replica) return
    const known = this.#others.get(replica)
    if (known?.since === since || (known === undefined && this.#others.size >= MOST_WANTS)) return
    this.#others.set(replica, { since, untilMs: this.#clock.monotonic() + MOST_MS })
    this.#sleep.wake()
  }

  /** The store says no more that it wants to write. */
  seeServed(replica: string): void {
    if (this.#others.delete(replica)) this.#sleep.wake()
  }

  /** The watch begins anew: what it told before may be over. */
  forget(): void {
    this.#others.clear()
    this.#sleep.wake()
  }

  /** A write of ours was overtaken, and the store says so since that revision of etcd. */
  overtaken(since: number): void {
    this.#own ??= since
  }

  /** A write of ours was made, or nothing is to be written any more. */
  done(): void {
    this.#own = undefined
  }

  /**
   * Until nobody wants to write who said so earlier than we did, or than revision `asOf` of etcd if we said nothing. False
   * where that is so already. Rejects with the signal's reason.
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

/** How long each is given: twice what writes take, since half of them take longer than the mean. */
const PACE = { first: 30, least: 6, most: 500 }
/** How much of it the last write is. */
const SHARE = 0.2
/** Who has not written for so many of these has nothing to write, or is dead. */
const ACTIVE = 4

/**
 * Keeps replicas that all write from trying at the same time. Of several tries on one head one is made, and the others
 * cost etcd and the replicas as much and bring nothing. The head names who wrote last: whoever wrote longest ago among
 * those that wrote just now tries at once, and each of the others gives those before it the time of two writes.
 *
 * It only spreads the tries. Nobody is waited for who has not written lately, nobody for longer than a few writes take,
 * and the comparison of the head decides as ever; that each comes to it is for WriteTurns (decision 57).
 */
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
