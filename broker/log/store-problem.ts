/** What the metrics say of the store: how long commits take, and by which code it cannot be read or written now. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { reasonOf } from '../../runtime/error-reason.ts'
import type { BrokerMetrics } from '../metrics.ts'
import type { GroupObserver } from './grouped-log.ts'

export interface StoreProblemDeps {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly metrics: Pick<BrokerMetrics, 'commits' | 'commitSeconds' | 'storeProblem'>
}

/** What keeps a store from being written, and not from being read: only a commit shows that it is over. */
const OF_WRITING: ReadonlySet<ReasonCode> = new Set(['StateFull', 'StateUnwritable'])

/** What cannot be written may be read: each of the two has its word. */
export class StoreProblem implements GroupObserver {
  readonly #deps: StoreProblemDeps
  #beganMs = 0
  #reading: ReasonCode | undefined
  #writing: ReasonCode | undefined

  constructor(deps: StoreProblemDeps) {
    this.#deps = deps
  }

  begins(): void {
    this.#beganMs = this.#deps.clock.monotonic()
  }

  wrote(changes: number): void {
    const { clock, metrics } = this.#deps
    metrics.commits.observe(changes)
    metrics.commitSeconds.observe((clock.monotonic() - this.#beganMs) / 1000)
    if (this.#writing !== undefined) this.#show(this.#reading, undefined)
  }

  failed(error: unknown): void {
    this.#show(this.#reading, codeOf(error))
  }

  /** It was looked at: what was in the way, undefined for nothing. */
  looked(error: unknown): void {
    if (error !== undefined) this.#show(codeOf(error), this.#writing)
    else this.#show(undefined, this.#writing !== undefined && OF_WRITING.has(this.#writing) ? this.#writing : undefined)
  }

  #show(reading: ReasonCode | undefined, writing: ReasonCode | undefined): void {
    const { storeProblem } = this.#deps.metrics
    const before = [this.#reading, this.#writing]
    this.#reading = reading
    this.#writing = writing
    for (const code of before)
      if (code !== undefined && code !== reading && code !== writing) storeProblem.set(0, { code })
    for (const code of [reading, writing]) if (code !== undefined) storeProblem.set(1, { code })
  }
}

function codeOf(error: unknown): ReasonCode {
  return reasonOf(error) ?? 'StateFailed'
}
