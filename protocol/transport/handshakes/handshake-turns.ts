/**
 * How many handshakes may begin, and when one that cannot wait is to come back. A handshake, and all that its member
 * asks for afterwards, costs milliseconds of the one thread that serves everybody. Turns are given for time that passed,
 * but for no more of it than a turn of an idle event loop takes: a broker that is late, for want of processor time or
 * because the last ones have come with their work, gives fewer, and all that it has begun gets done.
 */
import type { Clock } from '../../../reconcile/clock.ts'

export const TICK_MS = 20
/** Turns that are saved up while nobody comes. */
const BURST = 8
/** Of the time since the last turns, so much counts. */
const MAX_PASSED_MS = 2 * TICK_MS
/** How much of what is known of the pace is new. */
const FRESH = 0.2
const SLOWEST = 10
const LEARN_MS = 100
/** A member of the last release gives up after three seconds. */
const PATIENCE_MS = 2000

export class HandshakeTurns {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #perSecond: number
  #turns = BURST
  #at: number
  /** Turns in a second, as they were given while some waited. */
  #pace: number
  /** Of the time in which some waited since the pace was learnt last, and the turns in it. */
  #learning = { ms: 0, turns: 0 }
  /** When the last one that was sent away is to come. */
  #nextAt = 0

  constructor(clock: Pick<Clock, 'monotonic'>, perSecond: number) {
    this.#clock = clock
    this.#perSecond = perSecond
    this.#at = clock.monotonic()
    this.#pace = perSecond
  }

  /** How many of so many that wait may begin now. */
  take(waiting: number): number {
    const now = this.#clock.monotonic()
    const passedMs = now - this.#at
    this.#at = now
    this.#turns = Math.min(BURST, this.#turns + (Math.min(passedMs, MAX_PASSED_MS) * this.#perSecond) / 1000)
    const given = Math.min(waiting, Math.floor(this.#turns))
    this.#turns -= given
    // Only where some are left waiting does it say what the broker can.
    if (waiting > given) this.#learn(passedMs, given)
    return given
  }

  /** So many may wait: those behind them would give up before their turn. */
  get mostWaiting(): number {
    return Math.ceil((this.#pace * PATIENCE_MS) / 1000)
  }

  /** When one more may come, behind so many that wait and all that were sent away before it: in so many ms. */
  comeBackMs(waiting: number): number {
    const now = this.#clock.monotonic()
    const gapMs = 1000 / this.#pace
    this.#nextAt = Math.max(this.#nextAt + gapMs, now + waiting * gapMs)
    return this.#nextAt - now
  }

  #learn(ms: number, turns: number): void {
    this.#learning = { ms: this.#learning.ms + ms, turns: this.#learning.turns + turns }
    if (this.#learning.ms < LEARN_MS) return
    const pace = (this.#learning.turns * 1000) / this.#learning.ms
    this.#learning = { ms: 0, turns: 0 }
    this.#pace = Math.min(this.#perSecond, Math.max(SLOWEST, this.#pace * (1 - FRESH) + pace * FRESH))
  }
}
