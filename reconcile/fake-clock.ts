/**
 * A Clock for tests that moves only by advance(). It has the same contract as SystemClock (test/compliance/clock.ts).
 */
import { type Clock, abortReason } from './clock.ts'

interface Pending {
  readonly at: number
  /** Order of creation, so that equal times fire in order. */
  readonly order: number
  readonly kind: 'sleep' | 'timer'
  readonly fire: () => void
}

export interface FakeClockInit {
  /** Milliseconds since 1970 at the start. */
  readonly now?: number
  readonly seed?: number
}

/** 2026-01-01T00:00:00Z */
const DEFAULT_NOW = 1_767_225_600_000

export class FakeClock implements Clock {
  #now: number
  #elapsed = 0
  #order = 0
  #random: number
  readonly #pending = new Set<Pending>()

  constructor(init: FakeClockInit = {}) {
    this.#now = init.now ?? DEFAULT_NOW
    this.#random = (init.seed ?? 1) >>> 0
  }

  now(): number {
    return this.#now
  }

  monotonic(): number {
    return this.#elapsed
  }

  sleep(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(abortReason(signal))
        return
      }
      const onAbort = (): void => {
        cancel()
        reject(abortReason(signal))
      }
      const cancel = this.#add('sleep', ms, () => {
        signal.removeEventListener('abort', onAbort)
        resolve()
      })
      signal.addEventListener('abort', onAbort, { once: true })
    })
  }

  setTimer(ms: number, callback: () => void): () => void {
    return this.#add('timer', ms, callback)
  }

  /** Returns the same sequence for the same seed (mulberry32). */
  random(): number {
    this.#random = (this.#random + 0x6d2b79f5) >>> 0
    let t = this.#random
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }

  /** Returns the milliseconds until each pending sleep and timer fires, soonest first. */
  pending(kind?: 'sleep' | 'timer'): number[] {
    const chosen = [...this.#pending].filter((item) => kind === undefined || item.kind === kind)
    return chosen.map((item) => item.at - this.#elapsed).sort((a, b) => a - b)
  }

  /**
   * Advances time and fires due items in order; promises settle in between. Items that these start are fired, too, if
   * they fall due within the span.
   */
  async advance(ms: number): Promise<void> {
    const end = this.#elapsed + ms
    await settle()
    for (let next = this.#next(end); next !== undefined; next = this.#next(end)) {
      this.#moveTo(Math.max(next.at, this.#elapsed))
      this.#pending.delete(next)
      next.fire()
      await settle()
    }
    this.#moveTo(end)
  }

  /** Sets only the wall clock, as an administrator or NTP would; monotonic time and timers are not affected. */
  setWallClock(now: number): void {
    this.#now = now
  }

  #add(kind: Pending['kind'], ms: number, fire: () => void): () => void {
    const item: Pending = { at: this.#elapsed + Math.max(0, ms), order: this.#order++, kind, fire }
    this.#pending.add(item)
    return () => {
      this.#pending.delete(item)
    }
  }

  #next(end: number): Pending | undefined {
    let best: Pending | undefined
    for (const item of this.#pending) {
      if (item.at > end) continue
      if (best === undefined || item.at < best.at || (item.at === best.at && item.order < best.order)) best = item
    }
    return best
  }

  #moveTo(elapsed: number): void {
    this.#now += elapsed - this.#elapsed
    this.#elapsed = elapsed
  }
}

/** Runs everything that is already resolved: promise chains and one iteration of the event loop. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}
