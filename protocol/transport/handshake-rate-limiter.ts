/**
 * Limits how many TLS handshakes begin, and tells rejected clients when to come back. A handshake and the calls that
 * follow it take milliseconds of the broker's only thread. The limiter grants handshakes for elapsed time, but counts
 * at most MAX_PASSED_MS at once. A broker whose event loop is late, because it lacks CPU time or is busy with earlier
 * clients, therefore grants fewer and can finish those that it has begun.
 */
import type { Clock } from '../../reconcile/reconcile.ts'

export const TICK_MS = 20
/** Handshakes that may begin at once after an idle time. */
const BURST = 8
/** Longest elapsed time that counts between two calls of take(). */
const MAX_PASSED_MS = 2 * TICK_MS
/** Weight of the newest measurement in the moving average of the rate. */
const FRESH = 0.2
const SLOWEST = 10
const LEARN_MS = 100
/** Longest wait for a handshake. Clients of the previous release give up after three seconds. */
const PATIENCE_MS = 2000

export class HandshakeTurns {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #perSecond: number
  #turns = BURST
  #at: number
  /** Measured handshakes per second while some clients had to wait. */
  #perSecondNow: number
  /** Time in which clients had to wait since the last update of the rate, and the handshakes granted in it. */
  #learning = { ms: 0, turns: 0 }
  /** Time that the last rejected client was told to come back at. */
  #nextAt = 0

  constructor(clock: Pick<Clock, 'monotonic'>, perSecond: number) {
    this.#clock = clock
    this.#perSecond = perSecond
    this.#at = clock.monotonic()
    this.#perSecondNow = perSecond
  }

  /** Returns how many of the `waiting` handshakes may begin now. */
  take(waiting: number): number {
    const now = this.#clock.monotonic()
    const passedMs = now - this.#at
    this.#at = now
    this.#turns = Math.min(BURST, this.#turns + (Math.min(passedMs, MAX_PASSED_MS) * this.#perSecond) / 1000)
    const given = Math.min(waiting, Math.floor(this.#turns))
    this.#turns -= given
    // The rate is measured only while some must wait, because otherwise it shows the demand and not the capacity.
    if (waiting > given) this.#learn(passedMs, given)
    return given
  }

  /** Longest queue of handshakes. Clients beyond it would give up before their handshake begins. */
  get mostWaiting(): number {
    return Math.ceil((this.#perSecondNow * PATIENCE_MS) / 1000)
  }

  /**
   * Returns in how many milliseconds a rejected client should come back: after those that wait and those rejected
   * earlier.
   */
  comeBackMs(waiting: number): number {
    const now = this.#clock.monotonic()
    const gapMs = 1000 / this.#perSecondNow
    this.#nextAt = Math.max(this.#nextAt + gapMs, now + waiting * gapMs)
    return this.#nextAt - now
  }

  #learn(ms: number, turns: number): void {
    this.#learning = { ms: this.#learning.ms + ms, turns: this.#learning.turns + turns }
    if (this.#learning.ms < LEARN_MS) return
    const learnt = (this.#learning.turns * 1000) / this.#learning.ms
    this.#learning = { ms: 0, turns: 0 }
    this.#perSecondNow = Math.min(this.#perSecond, Math.max(SLOWEST, this.#perSecondNow * (1 - FRESH) + learnt * FRESH))
  }
}

// An overloaded broker tells a client when to come back before it spends any time on the handshake. It sends a TLS
// alert (RFC 8446 section 6) in the clear, with one of the numbers that IANA reserves for private use. A client of an
// earlier release sees a failed handshake and retries with its own back-off. An attacker on the path can forge the
// alert, but could also drop the packets.

/** The numbers 224 to 255 are reserved for private use. */
const FIRST = 224
const NUMBERS = 32
const STEP_MS = 500
/** The longest delay that an alert can express. */
export const MAX_COME_BACK_MS = NUMBERS * STEP_MS

/** Returns a fatal TLS alert that encodes the delay in steps of half a second. */
export function comeBackAlert(ms: number): Buffer {
  const steps = Math.min(NUMBERS, Math.max(1, Math.ceil(ms / STEP_MS)))
  return Buffer.from([0x15, 3, 3, 0, 2, 2, FIRST + steps - 1])
}

/** Parses the delay from an OpenSSL error text. Returns undefined if there is none. */
export function comeBackMs(errorText: string): number | undefined {
  const number = Number(/SSL alert number (\d+)/.exec(errorText)?.[1])
  return number >= FIRST && number < FIRST + NUMBERS ? (number - FIRST + 1) * STEP_MS : undefined
}
