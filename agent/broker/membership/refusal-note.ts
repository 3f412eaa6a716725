/**
 * Notes what the broker says of this member where the next `sealane join` reads it. One write at a time, the last one
 * wins, and a write that fails is tried again.
 */
import type { JoinStore } from '../../../protocol/join.ts'
import { Backoff } from '../../../reconcile/backoff.ts'
import type { Clock } from '../../../reconcile/clock.ts'
import type { Logger } from '../../../runtime/logging/logger.ts'

export class RefusalNote {
  readonly #deps: { readonly clock: Clock; readonly logger: Logger }
  readonly #store: Pick<JoinStore, 'problem'>
  readonly #signal: AbortSignal
  /** Not written yet. */
  #word: { readonly reason: string | undefined } | undefined
  #writing = false

  constructor(
    deps: { readonly clock: Clock; readonly logger: Logger },
    store: Pick<JoinStore, 'problem'>,
    signal: AbortSignal,
  ) {
    this.#deps = deps
    this.#store = store
    this.#signal = signal
  }

  /** Undefined: the broker takes this cluster for a member. */
  onReason(reason: string | undefined): void {
    this.#word = { reason }
    if (!this.#writing) void this.#write()
  }

  async #write(): Promise<void> {
    const { clock, logger } = this.#deps
    const backoff = new Backoff(clock, { minMs: 500, maxMs: 60_000 })
    this.#writing = true
    while (this.#word !== undefined && !this.#signal.aborted) {
      const word = this.#word
      try {
        await this.#store.problem(word.reason === undefined ? undefined : { text: word.reason })
        if (this.#word === word) this.#word = undefined
      } catch (error) {
        logger.warn('what the broker said is not noted yet', { reason: 'RoundFailed', why: String(error) })
        await clock.sleep(backoff.next(), this.#signal).catch(() => undefined)
      }
    }
    this.#writing = false
  }
}
