/**
 * Lets the roll-out of a DaemonSet go on beside nodes that are down. Their pods count as unavailable, so with as many
 * such nodes as maxUnavailable, the controller updates no other node.
 */
import type { ManifestObject } from '../../install/values/values.ts'
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import { type ObjectRef, refOf, titleOf } from '../../kubeapi/kube/kube.ts'
import { ANNOTATION_MAX_UNAVAILABLE, oneLine, recordedMaxUnavailable } from '../../model/model.ts'
import type { ClusterAdmin } from '../context/context.ts'
import type { HeldRollout } from './rollout.ts'

interface Raised {
  readonly ref: ObjectRef
  readonly before: number | string
  /** What was written last. Undefined while the outcome of that is not known. */
  readonly room: number | undefined
}

/** How often another client may revert the value of a DaemonSet. */
const TRIES = 2

/** Raises maxUnavailable of DaemonSets during one roll-out. */
export class RolloutRoom {
  readonly #admin: Pick<ClusterAdmin, 'merge'>
  readonly #say: (text: string) => void
  readonly #raised = new Map<string, Raised>()
  readonly #reverted = new Map<string, number>()
  /** The DaemonSets that are changed no more. */
  readonly #stopped = new Set<string>()

  /** `say` takes one line for each DaemonSet that cannot be changed. */
  constructor(admin: Pick<ClusterAdmin, 'merge'>, say: (text: string) => void) {
    this.#admin = admin
    this.#say = say
  }

  /**
   * Adds the pods that are unavailable and not waited for to maxUnavailable, and restores the value of each DaemonSet
   * that is no longer held. A refusal is reported once: then the roll-out only takes longer. Throws ClusterApiError
   * Unavailable.
   */
  async make(held: readonly HeldRollout[], signal: AbortSignal): Promise<void> {
    const still = new Set(held.map(({ object }) => titleOf(refOf(object))))
    for (const [title, { ref, before }] of this.#raised) {
      if (still.has(title) || this.#stopped.has(title)) continue
      if (await this.#write(ref, restoredPatch(before), signal)) this.#raised.delete(title)
    }
    for (const one of held) await this.#raise(one, signal)
  }

  async #raise({ object, wanted, away }: HeldRollout, signal: AbortSignal): Promise<void> {
    const [ref, now] = [refOf(object), maxUnavailable(object)]
    const title = titleOf(ref)
    const last = this.#raised.get(title)
    // A join that was killed has recorded its value, and left the DaemonSet raised.
    const recorded = recordedMaxUnavailable(object.metadata.annotations)
    const before = last?.before ?? recorded ?? now
    // Each change raises metadata.generation, so a change now would hide again how many pods are wanted.
    if (wanted === undefined || before === undefined || isOfOther(object) || this.#stopped.has(title)) return
    if (last?.room !== undefined && last.room !== now && this.#isGivenUp(title)) return
    const room = raised(before, wanted, away)
    if (room === now) {
      if (last === undefined && recorded !== undefined) this.#raised.set(title, { ref, before, room })
      return
    }
    this.#raised.set(title, { ref, before, room: undefined })
    const isWritten = await this.#write(ref, raisedPatch(room, before), signal)
    if (isWritten) this.#raised.set(title, { ref, before, room })
    else if (last === undefined) this.#raised.delete(title)
  }

  /** Counts one more revert by another client, such as a GitOps tool whose labels do not name it. */
  #isGivenUp(title: string): boolean {
    const count = (this.#reverted.get(title) ?? 0) + 1
    this.#reverted.set(title, count)
    if (count < TRIES) return false
    this.#raised.delete(title)
    this.#stop(title, 'another client reverts it')
    return true
  }

  /** False if the API server refuses the change. */
  async #write(ref: ObjectRef, patch: unknown, signal: AbortSignal): Promise<boolean> {
    try {
      await this.#admin.merge(ref, patch, signal)
      return true
    } catch (error) {
      if (!(error instanceof ClusterApiError) || error.code === 'Unavailable') throw error
      this.#stop(titleOf(ref), oneLine(error.message))
      return false
    }
  }

  #stop(title: string, why: string): void {
    this.#stopped.add(title)
    this.#say(`note: maxUnavailable of ${title} cannot be changed for this roll-out, which may take longer: ${why}\n`)
  }

  /** Restores the values from before. Returns the DaemonSets whose value could not be restored. */
  async restore(signal: AbortSignal): Promise<readonly string[]> {
    const kept: string[] = []
    for (const [title, { ref, before }] of this.#raised) {
      try {
        await this.#admin.merge(ref, restoredPatch(before), signal)
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

/** One request writes both, so no process can be killed between them. */
function raisedPatch(value: number, before: number | string): unknown {
  return { metadata: { annotations: { [ANNOTATION_MAX_UNAVAILABLE]: String(before) } }, spec: withMax(value) }
}

function restoredPatch(before: number | string): unknown {
  return { metadata: { annotations: { [ANNOTATION_MAX_UNAVAILABLE]: null } }, spec: withMax(before) }
}

function withMax(value: number | string): unknown {
  return { updateStrategy: { rollingUpdate: { maxUnavailable: value } } }
}

/**
 * Restores what a join raised that was killed before it could restore it. Returns the DaemonSets that were restored. One
 * that cannot be changed keeps its record. Throws ClusterApiError Unavailable.
 */
export async function restoreRecorded(
  admin: Pick<ClusterAdmin, 'list' | 'merge'>,
  namespace: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const restored: string[] = []
  for (const object of await admin.list('apps/v1', 'DaemonSet', { namespace }, signal)) {
    const before = recordedMaxUnavailable(object.metadata.annotations)
    if (before === undefined || isOfOther(object)) continue
    const ref = refOf(object)
    try {
      await admin.merge(ref, restoredPatch(before), signal)
      restored.push(titleOf(ref))
    } catch (error) {
      if (!(error instanceof ClusterApiError) || error.code === 'Unavailable') throw error
    }
  }
  return restored
}

const OTHERS = /^(meta\.helm\.sh|argocd\.argoproj\.io|(kustomize|helm)\.toolkit\.fluxcd\.io)\//

/** Helm, Argo CD or Flux keeps the object, and would revert the change. */
function isOfOther({ metadata: { labels = {}, annotations = {} } }: ManifestObject): boolean {
  return [...Object.keys(labels), ...Object.keys(annotations)].some((key) => OTHERS.test(key))
}
