/**
 * How many handshakes may begin, and when one that cannot wait is to come back. A handshake, and all that its member
 * asks for afterwards, costs milliseconds of the one thread that serves everybody. Turns are given for time that passed,
 * but for no more of it than a turn of an idle event loop takes: a broker that is late, for want of processor time or
 * because the last ones have come with their work, gives fewer, and all that it has begun gets done.
 */
import type { Clock } from '../../reconcile/reconcile.ts'

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

// How a broker that has more handshakes to do than it can says when to come back, before it has spent anything on the
// one who asks: by a TLS alert (RFC 8446 section 6), in the clear, with one of the numbers that IANA keeps for private
// use. A client of an earlier release sees a handshake that failed, and tries again at its own pace. Somebody on the way
// could send the same, and could as well drop the packets.

/** 224 to 255: private use. */
const FIRST = 224
const NUMBERS = 32
const STEP_MS = 500
/** The longest that can be said. */
export const MAX_COME_BACK_MS = NUMBERS * STEP_MS

/** A fatal alert that says so, in steps of half a second. */
export function comeBackAlert(ms: number): Buffer {
  const steps = Math.min(NUMBERS, Math.max(1, Math.ceil(ms / STEP_MS)))
  return Buffer.from([0x15, 3, 3, 0, 2, 2, FIRST + steps - 1])
}

/** What OpenSSL's error text says of it; undefined: nothing. */
export function comeBackMs(errorText: string): number | undefined {
  const number = Number(/SSL alert number (\d+)/.exec(errorText)?.[1])
  return number >= FIRST && number < FIRST + NUMBERS ? (number - FIRST + 1) * STEP_MS : undefined
}
