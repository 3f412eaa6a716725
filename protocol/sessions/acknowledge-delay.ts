/**
 * How long it takes until the broker has what this cluster wants published. One change at a time is followed, from when
 * it was wanted until it is acknowledged; the time without a connection counts.
 */
import type { Clock } from '../../reconcile/clock.ts'

export class AcknowledgeDelay {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #observe: (seconds: number) => void
  /** When the first change was wanted that nobody follows yet. */
  #wantedAtMs: number | undefined
  #followed: { readonly sequence: number; readonly wantedAtMs: number } | undefined

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
    this.#followed = { sequence, wantedAtMs: this.#wantedAtMs }
    this.#wantedAtMs = undefined
  }

  acknowledged(sequence: number): void {
    if (this.#followed === undefined || sequence < this.#followed.sequence) return
    this.#observe((this.#clock.monotonic() - this.#followed.wantedAtMs) / 1000)
    this.#followed = undefined
  }

  /** The stream has ended: what was followed is sent again. */
  lost(): void {
    this.#wantedAtMs = this.#followed?.wantedAtMs ?? this.#wantedAtMs
    this.#followed = undefined
  }
}
