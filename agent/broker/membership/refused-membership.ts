/**
 * The broker does not take this cluster for a member any more (evicted, or another site has taken its id). Each reason
 * is reported once: it does not mend itself, and everything that was received stays as it is.
 */
import type { ClusterApi } from '../../../kubeapi/cluster-api.ts'
import { MEMBERSHIP_NAME } from '../../../model/objects.ts'
import type { Logger } from '../../../runtime/logging/logger.ts'
import type { ReasonCode } from '../../../model/reasons/reasons.ts'

export interface RefusedMembershipDeps {
  readonly api: Pick<ClusterApi, 'report'>
  readonly logger: Logger
  /** For each word of the broker that says something new. */
  readonly note?: ((reason: string | undefined) => void) | undefined
}

export class RefusedMembership {
  readonly #deps: RefusedMembershipDeps
  #reported: { readonly reason: string | undefined } | undefined

  constructor(deps: RefusedMembershipDeps) {
    this.#deps = deps
  }

  /** The broker's word; undefined when it has taken this cluster as a member. */
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
