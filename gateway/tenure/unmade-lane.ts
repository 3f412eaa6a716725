/**
 * A lane of which no device can be made: another program has its port, or the kernel refuses. After a while another
 * node should have it. A lane whose devices are there carries, whatever fails beside it.
 */
import type { Clock } from '../../reconcile/clock.ts'
import { fitText } from '../../model/status-text.ts'

/** A program that ends, as an earlier gateway does, has given its port back by then. */
export const UNMADE_MS = 10_000
const MAX_WHY = 300

export class UnmadeLane {
  readonly #clock: Pick<Clock, 'monotonic'>
  #first: { readonly why: string; readonly sinceMs: number } | undefined
  #isReported = false

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
  }

  /** After each try. Undefined: it is made. What failed first is kept, since the words may differ each time. */
  tried(failure: string | undefined): void {
    if (failure === undefined) this.#first = undefined
    else this.#first ??= { why: fitText(failure, MAX_WHY), sinceMs: this.#clock.monotonic() }
  }

  /** Why another node should have it; undefined: it should not. */
  why(): string | undefined {
    if (this.#first === undefined || this.#clock.monotonic() - this.#first.sinceMs < UNMADE_MS) return undefined
    return `its lane cannot be made: ${this.#first.why}`
  }

  /** The same, once. */
  report(): string | undefined {
    const why = this.why()
    const isNew = why !== undefined && !this.#isReported
    this.#isReported = why !== undefined
    return isNew ? why : undefined
  }
}
