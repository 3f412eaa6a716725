/**
 * How long it takes until the broker has what this cluster wants published. One change at a time is followed, from when
 * it was wanted until it is acknowledged; the time without a connection counts.
 */
import type { Clock } from '../../reconcile/clock.ts'

/** Of so many changes, and of how long ago at most, the quickest answer counts: one that was late says nothing yet. */
const LAST = 3
const RECENT_MS = 60_000

interface Answer {
  readonly atMs: number
  readonly tookMs: number
}

export class AcknowledgeDelay {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #observe: (seconds: number) => void
  /** When the first change was wanted that nobody follows yet. */
  #wantedAtMs: number | undefined
  #followed: { readonly sequence: number; readonly wantedAtMs: number; readonly sentAtMs: number } | undefined
  #answers: readonly Answer[] = []

  constructor(clock: Pick<Clock, 'monotonic'>, observe: (seconds: number) => void) {
    this.#clock = clock
    this.#observe = observe
  }

  wanted(): void {
    this.#wantedAtMs ??= this.#clock.monotonic()
  }

  /** The broker has all that is wanted. */
  settled(): void {
    this.#wantedAtMs = undefined
  }

  sent(sequence: number): void {
    if (this.#followed !== undefined || this.#wantedAtMs === undefined) return
    this.#followed = { sequence, wantedAtMs: this.#wantedAtMs, sentAtMs: this.#clock.monotonic() }
    this.#wantedAtMs = undefined
  }

  acknowledged(sequence: number): void {
    if (this.#followed === undefined || sequence < this.#followed.sequence) return
    const nowMs = this.#clock.monotonic()
    this.#observe((nowMs - this.#followed.wantedAtMs) / 1000)
    this.#answers = [...this.#answers, { atMs: nowMs, tookMs: nowMs - this.#followed.sentAtMs }].slice(-LAST)
    this.#followed = undefined
  }

  /** At least so many milliseconds the broker took for each of the last three changes; undefined: there were not three. */
  get answeredMs(): number | undefined {
    const oldest = this.#clock.monotonic() - RECENT_MS
    const recent = this.#answers.filter(({ atMs }) => atMs >= oldest)
    return recent.length < LAST ? undefined : Math.min(...recent.map(({ tookMs }) => tookMs))
  }

  /** The stream has ended: what was followed is sent again. */
  lost(): void {
    this.#wantedAtMs = this.#followed?.wantedAtMs ?? this.#wantedAtMs
    this.#followed = undefined
  }
}
