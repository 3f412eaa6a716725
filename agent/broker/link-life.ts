/** Since when the way to the broker is open or not, and when the broker was heard last. */
import type { Clock } from '../../reconcile/clock.ts'

export class LinkLife {
  readonly #clock: Pick<Clock, 'now'>
  #isLive = false
  #sinceMs: number
  #heardMs: number | undefined

  constructor(clock: Pick<Clock, 'now'>) {
    this.#clock = clock
    this.#sinceMs = clock.now()
  }

  /** Takes whether all of it is live now. */
  onState(isLive: boolean): void {
    if (isLive === this.#isLive) return
    this.#isLive = isLive
    this.#sinceMs = this.#clock.now()
  }

  heard(): void {
    this.#heardMs = this.#clock.now()
  }

  /** RFC 3339, both. */
  times(): { readonly since: string; readonly heardAt?: string } {
    const heardAt = this.#heardMs === undefined ? {} : { heardAt: timeText(this.#heardMs) }
    return { since: timeText(this.#sinceMs), ...heardAt }
  }
}

/** Whole seconds. A clock that is beyond what a date can say is told as the first of all times. */
export function timeText(ms: number): string {
  const date = new Date(ms)
  return Number.isNaN(date.getTime()) ? '1970-01-01T00:00:00Z' : date.toISOString().replace(/\.\d+Z$/, 'Z')
}
