/**
 * That the broker does not take this cluster for a member any more (evicted, or succeeded by another site of its id).
 * Told once for each reason: it does not mend itself, while everything that was learnt stays as it is.
 */
import type { ClusterApi } from '../../../kubeapi/cluster-api.ts'
import { MEMBERSHIP_NAME } from '../../../model/objects.ts'
import type { Logger } from '../../../runtime/logging/logger.ts'
import type { ReasonCode } from '../../../model/reasons/reasons.ts'

export interface RefusedMembershipDeps {
  readonly api: Pick<ClusterApi, 'tell'>
  readonly logger: Logger
  /** For each word of the broker that says something new. */
  readonly note?: ((reason: string | undefined) => void) | undefined
}

export class RefusedMembership {
  readonly #deps: RefusedMembershipDeps
  #told: { readonly reason: string | undefined } | undefined

  constructor(deps: RefusedMembershipDeps) {
    this.#deps = deps
  }

  /** The broker's word; undefined when it has taken this cluster as a member. */
  hear(reason: string | undefined, code?: ReasonCode): void {
    if (this.#told?.reason === reason && this.#told !== undefined) return
    this.#told = { reason }
    this.#deps.note?.(reason)
    if (reason !== undefined) this.#tell(reason, code)
  }

  #tell(reason: string, code: ReasonCode = 'Refused'): void {
    const { api, logger } = this.#deps
    logger.error('the broker refuses this cluster', { reason: code, why: reason })
    const note = `the broker refuses this cluster: ${reason}`
    api.tell({ regarding: { kind: 'Membership', name: MEMBERSHIP_NAME }, type: 'Warning', reason: 'Refused', note })
  }
}
