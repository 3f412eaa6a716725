/**
 * Reports that the broker no longer accepts this cluster as a member (evicted, or another site has taken its id). Each
 * reason is reported once: it does not resolve itself, and everything received stays as it is.
 */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { MEMBERSHIP_NAME } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { JoinStore } from '../../protocol/membership/membership.ts'
import { Backoff, type Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'

export interface RefusedMembershipDeps {
  readonly api: Pick<ClusterApi, 'report'>
  readonly logger: Logger
  /** Called whenever the broker's answer changes. */
  readonly note?: ((reason: string | undefined) => void) | undefined
}

export class RefusedMembership {
  readonly #deps: RefusedMembershipDeps
  #reported: { readonly reason: string | undefined } | undefined

  constructor(deps: RefusedMembershipDeps) {
    this.#deps = deps
  }

  /** Takes the broker's reason, or undefined if it has accepted this cluster as a member. */
  onReason(reason: string | undefined, code?: ReasonCode): void {
    if (this.#reported?.reason === reason && this.#reported !== undefined) return
    this.#reported = { reason }
    this.#deps.note?.(reason)
    if (reason !== undefined) this.#report(reason, code)
  }

  #report(reason: string, code: ReasonCode = 'Refused'): void {
    const { api, logger } = this.#deps
    logger.error('the broker refuses this cluster', { reason: code, why: reason })
    const note = `the broker refuses this cluster: ${reason}`
    api.report({ regarding: { kind: 'Membership', name: MEMBERSHIP_NAME }, type: 'Warning', reason: 'Refused', note })
  }
}

/**
 * Stores the broker's reason where the next `sealane join` reads it. Only one write runs at a time, the last reason
 * wins, and a failed write is tried again.
 */
export class RefusalNote {
  readonly #deps: { readonly clock: Clock; readonly logger: Logger }
  readonly #store: Pick<JoinStore, 'problem'>
  readonly #signal: AbortSignal
  /** The reason that is not written yet. */
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

  /** Takes the reason, or undefined if the broker accepts this cluster as a member. */
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
        logger.warn('cannot store the answer of the broker; retrying', { reason: 'RoundFailed', why: String(error) })
        await clock.sleep(backoff.next(), this.#signal).catch(() => undefined)
      }
    }
    this.#writing = false
  }
}
