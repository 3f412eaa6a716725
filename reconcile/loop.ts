/**
 * The loop in which every reconciler runs. It coalesces pokes, runs one round at a time, keeps at least `minMs` between
 * the starts of two rounds, runs a full round after `resyncMs` to repair drift, and backs off after a failure.
 */
import { Backoff } from './retry.ts'
import type { Clock } from './clock.ts'

export interface LoopDeps {
  readonly clock: Clock
  /** Called after each failed run. The loop continues. */
  readonly onError: (error: unknown) => void
  /** Called after each run with its duration. */
  readonly onRun?: (result: { readonly ok: boolean; readonly ms: number }) => void
}

export interface LoopInit {
  readonly minMs: number
  readonly resyncMs: number
  readonly retryMinMs: number
  readonly retryMaxMs: number
  /** The shortest time from a failed run to a run that a poke triggers; if undefined, only the backoff triggers one. */
  readonly pokedRetryMs?: number
}

export const DEFAULT_LOOP: LoopInit = { minMs: 10, resyncMs: 30_000, retryMinMs: 100, retryMaxMs: 10_000 }

/** Ends a pause, and nobody sees it. */
const WOKEN = new Error('woken')

export class ReconcileLoop {
  readonly #deps: LoopDeps
  readonly #init: LoopInit
  readonly #reconcile: (signal: AbortSignal) => Promise<void>
  #poked = true
  #wake: (() => void) | undefined

  constructor(deps: LoopDeps, init: LoopInit, reconcile: (signal: AbortSignal) => Promise<void>) {
    this.#deps = deps
    this.#init = init
    this.#reconcile = reconcile
  }

  /** Requests a run soon. It is cheap and may be called from any watch callback. */
  poke(): void {
    this.#poked = true
    this.#wake?.()
  }

  /**
   * Runs at once, then whenever it is poked or due, until the signal is aborted; resolves after the pending run has
   * ended.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps
    const { minMs, resyncMs } = this.#init
    const backoff = new Backoff(clock, { minMs: this.#init.retryMinMs, maxMs: this.#init.retryMaxMs })
    while (!signal.aborted) {
      this.#poked = false
      const started = clock.monotonic()
      const ok = await this.#once(signal)
      this.#deps.onRun?.({ ok, ms: clock.monotonic() - started })
      if (ok) backoff.reset()
      if (ok) {
        // One wake-up while nothing changes, which is the usual case.
        const isPoked = await this.#pause(started + Math.max(minMs, resyncMs) - clock.monotonic(), signal, true)
        if (isPoked) await this.#pause(started + minMs - clock.monotonic(), signal, false)
      } else {
        const ms = backoff.next()
        const deaf = Math.min(ms, this.#init.pokedRetryMs ?? ms)
        await this.#pause(deaf, signal, false)
        await this.#pause(ms - deaf, signal, true)
      }
    }
  }

  async #once(signal: AbortSignal): Promise<boolean> {
    try {
      await this.#reconcile(signal)
      return true
    } catch (error) {
      if (!signal.aborted) this.#deps.onError(error)
      return false
    }
  }

  /** Waits `ms`, or until aborted or (if `wakeable`) poked. Returns whether it has been poked since the run began. */
  async #pause(ms: number, signal: AbortSignal, wakeable: boolean): Promise<boolean> {
    if (signal.aborted || ms <= 0 || (wakeable && this.#poked)) return this.#poked
    // A process has dozens of loops that wake up many times a second: AbortSignal.any() and an error of its own for each
    // pause would cost more than most rounds.
    const waiting = new AbortController()
    const end = (): void => waiting.abort(WOKEN)
    signal.addEventListener('abort', end, { once: true })
    if (wakeable) this.#wake = end
    try {
      await this.#deps.clock.sleep(ms, waiting.signal)
    } catch {
      // It was woken or stopped; the loop condition decides which.
    } finally {
      this.#wake = undefined
      signal.removeEventListener('abort', end)
    }
    return this.#poked
  }
}
