/** Real time, with jumps forward when the test wants them. */
import { SystemClock } from '../../reconcile/clock.ts'

export class JumpingClock extends SystemClock {
  #offset = 0
  readonly #sleepers = new Set<AbortController>()
  override monotonic(): number {
    return super.monotonic() + this.#offset
  }
  override async sleep(ms: number, signal: AbortSignal): Promise<void> {
    const jump = new AbortController()
    this.#sleepers.add(jump)
    try {
      await super.sleep(ms, AbortSignal.any([signal, jump.signal]))
    } catch (error) {
      if (signal.aborted) throw error
    } finally {
      this.#sleepers.delete(jump)
    }
  }
  /** Lets this much time pass at once, and wakes all sleepers. */
  jump(ms: number): void {
    this.#offset += ms
    for (const sleeper of this.#sleepers) sleeper.abort()
  }
}
