/** Real time that passes faster, so that a wait of a minute takes a fraction of one. */
import { SystemClock } from '../../reconcile/clock.ts'

export class FastClock extends SystemClock {
  readonly #times: number

  constructor(times: number) {
    super()
    this.#times = times
  }

  override monotonic(): number {
    return super.monotonic() * this.#times
  }

  override sleep(ms: number, signal: AbortSignal): Promise<void> {
    return super.sleep(ms / this.#times, signal)
  }

  override setTimer(ms: number, callback: () => void): () => void {
    return super.setTimer(ms / this.#times, callback)
  }
}
