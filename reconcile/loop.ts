/**
 * The bounded-frequency loop that every reconciler runs in: pokes coalesce, one run at a time, at least `minMs`
 * between the starts of two runs, a full round at `resyncMs` to repair drift, and backoff after a failure.
 */
import { Backoff } from './retry.ts'
import type { Clock } from './clock.ts'

export interface LoopDeps {
  readonly clock: Clock
  /** Called after each failed run. The loop goes on. */
  readonly onError: (error: unknown) => void
  /** Called after each run with its duration. */
  readonly onRun?: (result: { readonly ok: boolean; readonly ms: number }) => void
}

export interface LoopInit {
  readonly minMs: number
  readonly resyncMs: number
  readonly retryMinMs: number
  readonly retryMaxMs: number
  /** After a failed run a poke brings the next one no sooner than this; undefined: only the backoff does. */
  readonly pokedRetryMs?: number
}

export const DEFAULT_LOOP: LoopInit = { minMs: 10, resyncMs: 30_000, retryMinMs: 100, retryMaxMs: 10_000 }

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

  /** Asks for a run soon. Cheap; may be called from any watch callback. */
  poke(): void {
    this.#poked = true
    this.#wake?.()
  }

  /** Runs at once, then whenever poked or due, until the signal; resolves after the run under way has ended. */
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
        // One wake-up where nothing happens, and most of the time nothing does.
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

  /** Waits `ms`, or until aborted, or (where `wakeable`) until poked. Whether it has been poked since the run began. */
  async #pause(ms: number, signal: AbortSignal, wakeable: boolean): Promise<boolean> {
    if (signal.aborted || ms <= 0 || (wakeable && this.#poked)) return this.#poked
    const waiting = new AbortController()
    if (wakeable) this.#wake = () => waiting.abort()
    try {
      await this.#deps.clock.sleep(ms, AbortSignal.any([signal, waiting.signal]))
    } catch {
      // Woken or stopped: the loop condition shows which.
    } finally {
      this.#wake = undefined
    }
    return this.#poked
  }
}
