/**
 * How far DaemonSets and Deployments have come on the nodes that can run their pods. Their own status counts every
 * node, so one that is down would be waited for: without end, or until its pods are made elsewhere. Pure.
 */
import type { ManifestObject } from '../../../install/manifest-object.ts'
import { conditionsOf } from '../access/object-status.ts'
import type { Rollout, WorkloadShape } from './rollout.ts'

export interface NodeWorld {
  /** Of this DaemonSet. */
  readonly pods: readonly ManifestObject[]
  /** Names of Nodes that are there and not ready. */
  readonly unready: ReadonlySet<string>
  /** Of the DaemonSet's pods as they should be now; undefined while nobody has said. */
  readonly revision: string | undefined
}

export interface NodeRollout {
  readonly rollout: Rollout
  /** Nodes that are not counted, sorted. */
  readonly leftOut: readonly string[]
}

/** `whole` is what the status says, all nodes counted. One pod at least has to be ready: on no node it runs nowhere. */
export function nodeRollout(whole: Rollout, { pods, unready, revision }: NodeWorld): NodeRollout {
  const placed = pods.map((pod) => ({ pod, node: nodeOf(pod) ?? '' }))
  const leftOut = [...new Set(placed.map(({ node }) => node).filter((node) => unready.has(node)))].sort()
  if (whole.wanted === undefined || leftOut.length === 0) return { rollout: whole, leftOut: [] }
  const counted = placed.filter(({ pod, node }) => {
    return !unready.has(node) && revision !== undefined && pod.metadata.labels?.[REVISION] === revision && isReady(pod)
  })
  return { rollout: { ready: counted.length, wanted: Math.max(1, whole.wanted - leftOut.length) }, leftOut }
}

/** As nodeRollout(), for a Deployment; one pod at least has to be ready. */
export function replicaRollout(
  whole: Rollout,
  status: WorkloadShape['status'],
  { pods, unready }: Pick<NodeWorld, 'pods' | 'unready'>,
): NodeRollout {
  const stuck = pods.filter((pod) => unready.has(nodeOf(pod) ?? '') && !('deletionTimestamp' in pod.metadata))
  if (whole.wanted === undefined || stuck.length === 0) return { rollout: whole, leftOut: [] }
  const leftOut = [...new Set(stuck.map((pod) => nodeOf(pod) ?? ''))].sort()
  // Those that hang may be of this version or of an earlier one: the others alone must be enough.
  const updated = Math.max(0, (status?.updatedReplicas ?? 0) - stuck.length)
  const ready = Math.min(status?.readyReplicas ?? 0, updated)
  return { rollout: { ready, wanted: Math.max(1, whole.wanted - stuck.length) }, leftOut }
}

const REVISION = 'controller-revision-hash'

/** The revision of the pods that a DaemonSet makes now: the latest of its ControllerRevisions. */
export function currentRevision(name: string, revisions: readonly ManifestObject[]): string | undefined {
  const own = revisions.filter(({ metadata }) => {
    const { ownerReferences = [] } = metadata as { readonly ownerReferences?: readonly Owner[] }
    return ownerReferences.some((owner) => owner.kind === 'DaemonSet' && owner.name === name)
  })
  const number = (object: ManifestObject): number => Number(object['revision'])
  const latest = own.reduce<ManifestObject | undefined>(
    (best, one) => (best === undefined || number(one) > number(best) ? one : best),
    undefined,
  )
  return latest?.metadata.labels?.[REVISION]
}

export function isReady(object: ManifestObject): boolean {
  return conditionsOf(object).some(({ type, status }) => type === 'Ready' && status === 'True')
}

interface Owner {
  readonly kind: string
  readonly name: string
}

interface PodPlace {
  readonly nodeName?: string
  readonly affinity?: {
    readonly nodeAffinity?: {
      readonly requiredDuringSchedulingIgnoredDuringExecution?: {
        readonly nodeSelectorTerms?: readonly {
          readonly matchFields?: readonly { readonly key: string; readonly values?: readonly string[] }[]
        }[]
      }
    }
  }
}

/** Where it runs, or is meant to: a DaemonSet's pod says it before it is scheduled. */
function nodeOf({ spec }: ManifestObject): string | undefined {
  const { nodeName, affinity } = (spec ?? {}) as PodPlace
  const terms = affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms ?? []
  const fields = terms.flatMap(({ matchFields = [] }) => matchFields)
  return nodeName ?? fields.find(({ key }) => key === 'metadata.name')?.values?.[0]
}
