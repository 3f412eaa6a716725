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
import type { Clock } from '../../../reconcile/clock.ts'
import { WakeableSleep } from '../../../reconcile/wakeable-sleep.ts'

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
