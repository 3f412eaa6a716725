/** Whether the store can be read and written, looked at together with what others have written to it. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { messageOf, reasonOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { BrokerMetrics } from '../config/config.ts'
import type { GroupObserver } from './grouped-log.ts'
import type { RecordLog } from './record-log.ts'

/** A change of the leader of etcd, or an endpoint that is silent, takes less. */
const CUT_OFF_MS = 10_000

export interface StoreHealthDeps {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly logger: Logger
}

export class StoreHealth {
  /** Why this broker is not ready; undefined: it is. */
  reason: string | undefined = 'the broker is starting'
  readonly #deps: StoreHealthDeps
  #readAtMs: number
  #isCutOff = false

  constructor(deps: StoreHealthDeps) {
    this.#deps = deps
    this.#readAtMs = deps.clock.monotonic()
  }

  /** To be called when all is open. */
  started(): void {
    this.reason = undefined
    this.#readAtMs = this.#deps.clock.monotonic()
  }

  /**
   * To be called every second or so. `onCutOff` is called with true when a store that others serve too was out of reach
   * for ten seconds, and with false when it is back. Throws StateError.
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
        logger.warn('this broker is cut off from the store: its members are sent to others', {
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
    logger.info('the store is in reach again')
    onCutOff(false)
  }
}

// What the metrics say of the store: how long commits take, and by which code it cannot be read or written now.

interface StoreProblemDeps {
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
