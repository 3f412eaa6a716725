/** Whether the store can be read and written. A check also reads what other processes have written. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { messageOf, reasonOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { BrokerMetrics } from '../config/config.ts'
import type { GroupObserver } from './grouped-log.ts'
import type { RecordLog } from './record-log.ts'

/** A leader change of etcd, or a silent endpoint, takes less time. */
const CUT_OFF_MS = 10_000

export interface StoreHealthDeps {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly logger: Logger
}

export class StoreHealth {
  /** Why this broker is not ready. Undefined if it is ready. */
  reason: string | undefined = 'the broker is starting'
  readonly #deps: StoreHealthDeps
  #readAtMs: number
  #isCutOff = false

  constructor(deps: StoreHealthDeps) {
    this.#deps = deps
    this.#readAtMs = deps.clock.monotonic()
  }

  /** Call it once the store is open. */
  started(): void {
    this.reason = undefined
    this.#readAtMs = this.#deps.clock.monotonic()
  }

  /**
   * Call it about every second. It calls `onCutOff` with true once a shared store is unreachable for ten seconds, and
   * with false when the store is reachable again. Throws StateError.
   */
  async check(log: RecordLog, onCutOff: (isCutOff: boolean) => void): Promise<void> {
    const { clock, logger } = this.#deps
    try {
      await log.refresh()
    } catch (error) {
      this.reason = messageOf(error)
      const isLong = clock.monotonic() - this.#readAtMs >= CUT_OFF_MS
      if (log.isShared === true && isLong && !this.#isCutOff) {
        this.#isCutOff = true
        logger.warn('this broker has no connection to the store: it sends its members to other brokers', {
          reason: 'StateUnreachable',
        })
        onCutOff(true)
      }
      throw error
    }
    this.reason = undefined
    this.#readAtMs = clock.monotonic()
    if (!this.#isCutOff) return
    this.#isCutOff = false
    logger.info('the store answers again')
    onCutOff(false)
  }
}

// Metrics of the store: the duration of commits, and the reason code while it cannot be read or written.

interface StoreProblemDeps {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly metrics: Pick<BrokerMetrics, 'commits' | 'commitSeconds' | 'storeProblem'>
}

/** Reasons that keep a store from being written and not from being read: only a commit shows that they are over. */
const OF_WRITING: ReadonlySet<ReasonCode> = new Set(['StateFull', 'StateUnwritable'])

/** Keeps one reason for reads and one for writes, since a store that cannot be written may still be readable. */
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

  /** A check has ended. `error` is what went wrong, or undefined if nothing did. */
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
