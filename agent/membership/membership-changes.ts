/** Changes of the Membership that need the whole object to be written, because the API server of a site is its folder. */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { type Membership, MEMBERSHIP_NAME } from '../../model/model.ts'
import { WriteQueue } from '../../reconcile/reconcile.ts'

/**
 * Makes the changes of this process one after another. Each reads the Membership first: of two that read it at the same
 * time, the second one would take back what the first one has written.
 */
export class MembershipChanges {
  readonly #api: Pick<ClusterApi, 'read' | 'apply'>
  readonly #queue = new WriteQueue(1)

  constructor(api: Pick<ClusterApi, 'read' | 'apply'>) {
    this.#api = api
  }

  /** Does nothing unless the cluster is a member: a concurrent leave must stay. Throws ClusterApiError. */
  apply(change: (latest: Membership) => Membership, signal: AbortSignal): Promise<void> {
    return this.#queue.run(MEMBERSHIP_NAME, async () => {
      const latest = await this.#api.read('Membership', MEMBERSHIP_NAME, undefined, signal)
      if (latest?.spec.phase === 'joined') await this.#api.apply(change(latest), signal)
    })
  }
}
