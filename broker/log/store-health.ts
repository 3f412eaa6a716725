/** Whether the store can be read and written, looked at together with what others have written to it. */
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { messageOf } from '../../runtime/thrown.ts'
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
