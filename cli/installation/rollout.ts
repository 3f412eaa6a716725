/**
 * Determines whether the pods of Deployments, DaemonSets and StatefulSets match their specification. Pure except for
 * rolloutProgress() and unreadyNodes(), which list objects.
 */
import { type ManifestObject, type PartName, objectName } from '../../install/values/values.ts'
import { machineText, nodeMachine } from '../../model/model.ts'
import type { ClusterAdmin } from '../context/context.ts'
import { conditionsOf } from './object-status.ts'
import { partTrouble, selectorText } from './pod-trouble.ts'
import type { Missing } from './wait-until.ts'

export interface WorkloadShape {
  readonly metadata: { readonly name: string; readonly generation?: number }
  readonly spec?: { readonly replicas?: number }
  readonly status?: {
    readonly observedGeneration?: number
    readonly replicas?: number
    readonly readyReplicas?: number
    readonly updatedReplicas?: number
    readonly desiredNumberScheduled?: number
    readonly numberReady?: number
    readonly updatedNumberScheduled?: number
  }
}

export interface Rollout {
  readonly ready: number
  /** Undefined until its controller has observed the current generation. */
  readonly wanted: number | undefined
}

/** Pods of an earlier revision do not count. */
export function rolloutOf({ metadata, spec, status }: WorkloadShape): Rollout {
  if (status === undefined || status.observedGeneration !== metadata.generation) return { ready: 0, wanted: undefined }
  if (status.desiredNumberScheduled !== undefined) {
    const { numberReady = 0, updatedNumberScheduled = 0, desiredNumberScheduled } = status
    return { ready: Math.min(numberReady, updatedNumberScheduled), wanted: desiredNumberScheduled }
  }
  const { readyReplicas = 0, updatedReplicas = 0 } = status
  return { ready: Math.min(readyReplicas, updatedReplicas), wanted: spec?.replicas ?? 1 }
}

export function isRolledOut({ ready, wanted }: Rollout): boolean {
  return wanted !== undefined && ready >= wanted
}

// The rollout of DaemonSets and Deployments on the nodes that can run their pods. The status of these workloads counts
// every node, so the command would wait for a node that is down: forever, or until its pods are created elsewhere.
// Pure.

interface NodeWorld {
  /** The pods of this DaemonSet. */
  readonly pods: readonly ManifestObject[]
  /** The Nodes whose pods do not count, with the reason: they are not ready, or are no Linux machines. */
  readonly uncounted: ReadonlyMap<string, string>
  /** The current revision of the DaemonSet's pods. Undefined if it is not known. */
  readonly revision: string | undefined
}

interface NodeRollout {
  readonly rollout: Rollout
  /** The nodes that are not counted, sorted. */
  readonly leftOut: readonly string[]
  /** How many of them have no pod that is ready. A node that is not ready may have one, a virtual node too. */
  readonly away: number
}

/**
 * `whole` is the rollout on all nodes, according to the status. At least one pod has to be ready: without a ready node
 * the DaemonSet runs nowhere.
 */
function nodeRollout(whole: Rollout, { pods, uncounted, revision }: NodeWorld): NodeRollout {
  const placed = pods.map((pod) => ({ pod, node: nodeOf(pod) ?? '' }))
  const leftOut = [...new Set(placed.map(({ node }) => node).filter((node) => uncounted.has(node)))].sort()
  if (whole.wanted === undefined || leftOut.length === 0) return { rollout: whole, leftOut: [], away: 0 }
  const serving = new Set(placed.flatMap(({ pod, node }) => (isReady(pod) ? [node] : [])))
  const away = leftOut.filter((node) => !serving.has(node)).length
  const counted = placed.filter(({ pod, node }) => {
    return (
      !uncounted.has(node) && revision !== undefined && pod.metadata.labels?.[REVISION] === revision && isReady(pod)
    )
  })
  return { rollout: { ready: counted.length, wanted: Math.max(1, whole.wanted - leftOut.length) }, leftOut, away }
}

/** Like nodeRollout(), for a Deployment. At least one pod has to be ready. */
function replicaRollout(
  whole: Rollout,
  status: WorkloadShape['status'],
  { pods, uncounted }: Pick<NodeWorld, 'pods' | 'uncounted'>,
): Omit<NodeRollout, 'away'> {
  const stuck = pods.filter((pod) => uncounted.has(nodeOf(pod) ?? '') && !('deletionTimestamp' in pod.metadata))
  if (whole.wanted === undefined || stuck.length === 0) return { rollout: whole, leftOut: [] }
  const leftOut = [...new Set(stuck.map((pod) => nodeOf(pod) ?? ''))].sort()
  // The pods on nodes that do not count may be of this revision or of an earlier one. So the other pods alone have to be enough.
  const updated = Math.max(0, (status?.updatedReplicas ?? 0) - stuck.length)
  const ready = Math.min(status?.readyReplicas ?? 0, updated)
  return { rollout: { ready, wanted: Math.max(1, whole.wanted - stuck.length) }, leftOut }
}

const REVISION = 'controller-revision-hash'

/** The revision of the pods that a DaemonSet creates now: that of its latest ControllerRevision. */
function currentRevision(name: string, revisions: readonly ManifestObject[]): string | undefined {
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

/** The node that the pod runs on or is meant for. A DaemonSet's pod names its node before it is scheduled. */
function nodeOf({ spec }: ManifestObject): string | undefined {
  const { nodeName, affinity } = (spec ?? {}) as PodPlace
  const terms = affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms ?? []
  const fields = terms.flatMap(({ matchFields = [] }) => matchFields)
  return nodeName ?? fields.find(({ key }) => key === 'metadata.name')?.values?.[0]
}

// The progress of the parts of an installation, and the problem of the first part that is missing.

/** A part comes after the parts that it depends on. */
const PARTS: readonly PartName[] = ['etcd', 'broker', 'agent', 'gateway', 'routeagent', 'dns', 'console']

export interface Progress {
  readonly missing: Missing | undefined
  /** What is not waited for, and why: `node w3 is not ready`. */
  readonly leftOut: readonly string[]
}

/** A DaemonSet whose roll-out is not complete on the nodes that count, while pods on other nodes are unavailable. */
export interface HeldRollout {
  readonly object: ManifestObject
  /** For how many nodes the DaemonSet wants a pod. Undefined: not known, nor whether the roll-out is held. */
  readonly wanted: number | undefined
  /** How many of them do not count, and have no pod that is ready. */
  readonly away: number
}

interface RolloutProgress extends Progress {
  readonly held: readonly HeldRollout[]
}

/** Names the parts that are missing and the problem of the first of them. Nodes that are not ready are left out. */
export async function rolloutProgress(
  admin: Pick<ClusterAdmin, 'list'>,
  namespace: string,
  signal: AbortSignal,
): Promise<RolloutProgress> {
  const missing: { readonly part: PartName; readonly count: string }[] = []
  const leftOut = new Set<string>()
  const held: HeldRollout[] = []
  for (const kind of ['StatefulSet', 'Deployment', 'DaemonSet']) {
    for (const object of await admin.list('apps/v1', kind, { namespace }, signal)) {
      const part = PARTS.find((one) => objectName(one) === object.metadata.name)
      const whole = rolloutOf(object)
      if (part === undefined || isRolledOut(whole)) continue
      const uncounted = await uncountedNodes(admin, signal)
      const init = { part, whole, namespace, uncounted }
      const { rollout, leftOut: nodes, away } = await onCountedNodes(admin, object, init, signal)
      for (const node of nodes) leftOut.add(uncounted.get(node) ?? nodeText(node))
      if (isRolledOut(rollout)) continue
      if (kind === 'DaemonSet' && (away > 0 || whole.wanted === undefined)) {
        held.push({ object, wanted: whole.wanted, away })
      }
      missing.push({ part, count: rollout.wanted === undefined ? '' : `${rollout.ready} of ${rollout.wanted} ready` })
    }
  }
  const [first] = missing.sort((a, b) => PARTS.indexOf(a.part) - PARTS.indexOf(b.part))
  if (first === undefined) return { missing: undefined, leftOut: [...leftOut], held }
  const trouble = await partTrouble(admin, first.part, namespace, signal)
  const what = missing.map(({ part }) => part).join(', ')
  const how = trouble ?? { why: `${first.part} ${first.count}`.trim() }
  return { missing: { what, ...how }, leftOut: [...leftOut], held }
}

/** The reason why a node is left out. */
export const nodeText = (node: string): string => `node ${node} is not ready`

interface PartRollout extends Pick<NodeWorld, 'uncounted'> {
  readonly part: PartName
  readonly whole: Rollout
  readonly namespace: string
}

async function onCountedNodes(
  admin: Pick<ClusterAdmin, 'list'>,
  object: ManifestObject,
  { part, whole, namespace, uncounted }: PartRollout,
  signal: AbortSignal,
): Promise<NodeRollout> {
  if (uncounted.size === 0 || object.kind === 'StatefulSet') return { rollout: whole, leftOut: [], away: 0 }
  const pods = await admin.list('v1', 'Pod', { namespace, labelSelector: selectorText(part) }, signal)
  if (object.kind === 'Deployment') {
    return { ...replicaRollout(whole, object['status'] as WorkloadShape['status'], { pods, uncounted }), away: 0 }
  }
  const revisions = await admin.list('apps/v1', 'ControllerRevision', { namespace }, signal)
  return nodeRollout(whole, { pods, uncounted, revision: currentRevision(object.metadata.name, revisions) })
}

/** The names of the Nodes that are not ready. */
export async function unreadyNodes(
  admin: Pick<ClusterAdmin, 'list'>,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const nodes = await admin.list('v1', 'Node', {}, signal)
  return new Set(nodes.filter((node) => !isReady(node)).map(({ metadata }) => metadata.name))
}

/** The Nodes on which no pod of a part is waited for, by name, with the reason as text. */
async function uncountedNodes(
  admin: Pick<ClusterAdmin, 'list'>,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  const nodes = await admin.list('v1', 'Node', {}, signal)
  return new Map(
    nodes.flatMap((node): readonly (readonly [string, string])[] => {
      const { name } = node.metadata
      const other = machineText(nodeMachine(node))
      if (other !== undefined) return [[name, `node ${name} is ${other}`]]
      return isReady(node) ? [] : [[name, nodeText(name)]]
    }),
  )
}
