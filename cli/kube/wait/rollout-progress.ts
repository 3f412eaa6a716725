/** How far the parts of an installation have come, and what keeps the first of them. */
import { type PartName, objectName } from '../../../install/names.ts'
import type { ManifestObject } from '../../../install/manifest-object.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import { type NodeRollout, currentRevision, isReady, nodeRollout, replicaRollout } from './node-rollout.ts'
import { partTrouble, selectorText } from './pod-trouble.ts'
import { type Rollout, type WorkloadShape, isRolledOut, rolloutOf } from './rollout.ts'
import type { Missing } from './wait-until.ts'

/** Who needs another comes after it. */
const PARTS: readonly PartName[] = ['etcd', 'broker', 'agent', 'gateway', 'routeagent', 'dns']

export interface Progress {
  readonly missing: Missing | undefined
  /** What is gone on without, and why: `node w3 is not ready`. */
  readonly leftOut: readonly string[]
}

/** Names the parts that are missing, and the trouble of the first of them. Nodes that are not ready are left out. */
export async function rolloutProgress(
  admin: Pick<ClusterAdmin, 'list'>,
  namespace: string,
  signal: AbortSignal,
): Promise<Progress> {
  const missing: { readonly part: PartName; readonly count: string }[] = []
  const leftOut = new Set<string>()
  for (const kind of ['StatefulSet', 'Deployment', 'DaemonSet']) {
    for (const object of await admin.list('apps/v1', kind, { namespace }, signal)) {
      const part = PARTS.find((one) => objectName(one) === object.metadata.name)
      const whole = rolloutOf(object)
      if (part === undefined || isRolledOut(whole)) continue
      const { rollout, leftOut: nodes } = await onReadyNodes(admin, object, { part, whole, namespace }, signal)
      for (const node of nodes) leftOut.add(nodeText(node))
      if (isRolledOut(rollout)) continue
      missing.push({ part, count: rollout.wanted === undefined ? '' : `${rollout.ready} of ${rollout.wanted} ready` })
    }
  }
  const [first] = missing.sort((a, b) => PARTS.indexOf(a.part) - PARTS.indexOf(b.part))
  if (first === undefined) return { missing: undefined, leftOut: [...leftOut] }
  const trouble = await partTrouble(admin, first.part, namespace, signal)
  const what = missing.map(({ part }) => part).join(', ')
  const how = trouble ?? { why: `${first.part} ${first.count}`.trim() }
  return { missing: { what, ...how }, leftOut: [...leftOut] }
}

/** Why a node is left out. */
export const nodeText = (node: string): string => `node ${node} is not ready`

async function onReadyNodes(
  admin: Pick<ClusterAdmin, 'list'>,
  object: ManifestObject,
  { part, whole, namespace }: { readonly part: PartName; readonly whole: Rollout; readonly namespace: string },
  signal: AbortSignal,
): Promise<NodeRollout> {
  const unready = await unreadyNodes(admin, signal)
  if (unready.size === 0 || object.kind === 'StatefulSet') return { rollout: whole, leftOut: [] }
  const pods = await admin.list('v1', 'Pod', { namespace, labelSelector: selectorText(part) }, signal)
  if (object.kind === 'Deployment') {
    return replicaRollout(whole, object['status'] as WorkloadShape['status'], { pods, unready })
  }
  const revisions = await admin.list('apps/v1', 'ControllerRevision', { namespace }, signal)
  return nodeRollout(whole, { pods, unready, revision: currentRevision(object.metadata.name, revisions) })
}

/** Their names. */
export async function unreadyNodes(
  admin: Pick<ClusterAdmin, 'list'>,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const nodes = await admin.list('v1', 'Node', {}, signal)
  return new Set(nodes.filter((node) => !isReady(node)).map(({ metadata }) => metadata.name))
}
