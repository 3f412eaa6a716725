/**
 * Records that this node cannot create its lanes: no device of its lane exists or listens on its port, because another
 * program uses the port or the kernel refuses. After some time, another node takes over the lane, and this node takes
 * no offered lane. Some minutes after the last attempt, this node may try again. A process has one record for all lanes
 * that it serves.
 */
import { fitText } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'

/** An earlier gateway process that is ending has freed its port by then. */
export const FAILED_LANE_MS = 10_000
/** The failure is forgotten this long after the last attempt. */
export const FORGET_MS = 5 * 60_000
const MAX_WHY = 300

export class FailedLane {
  readonly #clock: Pick<Clock, 'monotonic'>
  /** The first failure, because the message may differ with each attempt. */
  #first: { readonly why: string; readonly sinceMs: number } | undefined
  #lastMs = -Infinity
  #isReported = false

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
  }

  /** Called after each attempt. `failure` is undefined if the lane was created. */
  tried(failure: string | undefined): void {
    this.#forget()
    if (failure === undefined) this.#first = undefined
    else this.#first ??= { why: fitText(failure, MAX_WHY), sinceMs: this.#clock.monotonic() }
    this.#lastMs = this.#clock.monotonic()
  }

  /** Why another node should have the lane. Undefined if this node can keep it. */
  why(): string | undefined {
    this.#forget()
    // The attempts must have failed for this long.
    if (this.#first === undefined || this.#lastMs - this.#first.sinceMs < FAILED_LANE_MS) return undefined
    return `the lane cannot be set up: ${this.#first.why}`
  }

  /** Gives the reason once, and undefined until the failure has ended and occurred again. */
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
