/**
 * Lets the roll-out of a DaemonSet go on beside nodes that are down. Their pods count as unavailable, so with as many
 * such nodes as maxUnavailable, the controller updates no other node.
 */
import type { ManifestObject } from '../../install/values/values.ts'
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import { type ObjectRef, refOf, titleOf } from '../../kubeapi/kube/kube.ts'
import type { ClusterAdmin } from '../context/context.ts'
import type { HeldRollout } from './rollout.ts'

interface Raised {
  readonly ref: ObjectRef
  readonly before: number | string
}

/** Raises maxUnavailable of DaemonSets during one roll-out. */
export class RolloutRoom {
  readonly #admin: Pick<ClusterAdmin, 'merge'>
  readonly #raised = new Map<string, Raised>()

  constructor(admin: Pick<ClusterAdmin, 'merge'>) {
    this.#admin = admin
  }

  /** Adds the pods that are not waited for to maxUnavailable. Throws ClusterApiError. */
  async make(held: readonly HeldRollout[], signal: AbortSignal): Promise<void> {
    for (const { object, wanted, away } of held) {
      const [ref, now] = [refOf(object), maxUnavailable(object)]
      const before = this.#raised.get(titleOf(ref))?.before ?? now
      if (before === undefined || isOfOther(object)) continue
      const room = raised(before, wanted, away)
      if (room === now) continue
      this.#raised.set(titleOf(ref), { ref, before })
      await this.#admin.merge(ref, { spec: withMax(room) }, signal)
    }
  }

  /** Restores the values from before. Returns the DaemonSets whose value could not be restored. */
  async restore(signal: AbortSignal): Promise<readonly string[]> {
    const kept: string[] = []
    for (const [title, { ref, before }] of this.#raised) {
      try {
        await this.#admin.merge(ref, { spec: withMax(before) }, signal)
        this.#raised.delete(title)
      } catch (error) {
        if (!(error instanceof ClusterApiError) && !signal.aborted) throw error
        kept.push(title)
      }
    }
    return kept
  }
}

/** Percentages are rounded up, as the controller does (apps/v1 RollingUpdateDaemonSet). */
function raised(before: number | string, wanted: number, away: number): number {
  const share = typeof before === 'string' ? Math.ceil((Number.parseInt(before, 10) * wanted) / 100) : before
  return Math.max(1, Number.isFinite(share) ? share : 1) + away
}

function maxUnavailable({ spec }: ManifestObject): number | string | undefined {
  const { updateStrategy } = (spec ?? {}) as {
    readonly updateStrategy?: { readonly rollingUpdate?: { readonly maxUnavailable?: number | string } }
  }
  return updateStrategy?.rollingUpdate?.maxUnavailable
}

function withMax(value: number | string): unknown {
  return { updateStrategy: { rollingUpdate: { maxUnavailable: value } } }
}

const OTHERS = /^(meta\.helm\.sh|argocd\.argoproj\.io|(kustomize|helm)\.toolkit\.fluxcd\.io)\//

/** Helm, Argo CD or Flux keeps the object, and would revert the change. */
function isOfOther({ metadata: { labels = {}, annotations = {} } }: ManifestObject): boolean {
  return [...Object.keys(labels), ...Object.keys(annotations)].some((key) => OTHERS.test(key))
}
