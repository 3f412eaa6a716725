/**
 * That this node cannot make lanes: no device of its lane is there and listens where it should, since another program has
 * the port or the kernel refuses. After a while another node should have the lane, and this one takes none that others
 * offer; after some minutes without a try it may try again. One for a process, whatever lanes it had in turn.
 */
import { fitText } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'

/** A program that ends, as an earlier gateway does, has given its port back by then. */
export const UNMADE_MS = 10_000
/** So long after the last try it may be otherwise. */
export const FORGET_MS = 5 * 60_000
const MAX_WHY = 300

export class UnmadeLane {
  readonly #clock: Pick<Clock, 'monotonic'>
  /** What failed first, since the words may differ each time. */
  #first: { readonly why: string; readonly sinceMs: number } | undefined
  #lastMs = -Infinity
  #isReported = false

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
  }

  /** After each try. Undefined: it is made. */
  tried(failure: string | undefined): void {
    this.#forget()
    if (failure === undefined) this.#first = undefined
    else this.#first ??= { why: fitText(failure, MAX_WHY), sinceMs: this.#clock.monotonic() }
    this.#lastMs = this.#clock.monotonic()
  }

  /** Why another node should have it; undefined: it should not. */
  why(): string | undefined {
    this.#forget()
    // One try that failed long ago says little.
    if (this.#first === undefined || this.#lastMs - this.#first.sinceMs < UNMADE_MS) return undefined
    return `its lane cannot be made: ${this.#first.why}`
  }

  /** The same, once. */
  report(): string | undefined {
    const why = this.why()
    const isNew = why !== undefined && !this.#isReported
    this.#isReported = why !== undefined
    return isNew ? why : undefined
  }

  #forget(): void {
    if (this.#clock.monotonic() - this.#lastMs >= FORGET_MS) this.#first = undefined
  }
}
