/**
 * What a node of a plain site may write at the hub: what it says about itself, and Leases of lanes that are its own,
 * offered or lapsed. Everything else of the site is written by the acting agent and by the user. Pure.
 */
import { ANNOTATION_HANDOVER, LANE_LEASE_PREFIX, MAX_LANE } from '../../model/lanes/lanes.ts'
import { type Kind, type KubeObject, endpointName } from '../../model/model.ts'
import type { StoredLease } from '../kubeapi.ts'
import { type HeldLease, hasLapsed } from '../lease/lease.ts'

export type NodeChange =
  | { readonly verb: 'apply' | 'applyStatus'; readonly object: KubeObject }
  | { readonly verb: 'remove'; readonly kind: Kind; readonly name: string }
  | { readonly verb: 'writeLease'; readonly lease: StoredLease }

export interface AccessFacts {
  /** The name of the caller's Node, by its certificate. */
  readonly node: string
  /** The cluster id of this site. Undefined before it has joined. */
  readonly cluster: string | undefined
  /** The stored Lease that the change replaces. */
  readonly lease?: (HeldLease & { readonly stored: StoredLease }) | undefined
  /** Monotonic milliseconds. */
  readonly nowMs: number
}

/** Why the node may not make this change; undefined if it may. */
export function accessProblem(change: NodeChange, facts: AccessFacts): string | undefined {
  if (change.verb === 'writeLease') return leaseProblem(change.lease, facts)
  const { kind, name } = change.verb === 'remove' ? change : { kind: change.object.kind, ...nameOf(change.object) }
  const problem = nameProblem(kind, name, facts)
  if (problem !== undefined || change.verb === 'remove') return problem
  return objectProblem(change.object, facts)
}

function nameOf({ metadata: { name } }: KubeObject): { readonly name: string } {
  return { name }
}

function nameProblem(kind: Kind, name: string, { node, cluster }: AccessFacts): string | undefined {
  if (kind === 'Gateway' || kind === 'RouteAgent') {
    return name === node ? undefined : `node ${node} may write ${kind} ${node} and not ${name}`
  }
  if (kind !== 'Endpoint') return `node ${node} may not write objects of kind ${kind}`
  if (cluster === undefined) return 'the site has not joined a clusterset'
  const lanes = Array.from({ length: MAX_LANE + 1 }, (_, lane) => endpointName(cluster, node, lane))
  return lanes.includes(name) ? undefined : `node ${node} may write its own Endpoints and not ${name}`
}

function objectProblem(object: KubeObject, { node, cluster }: AccessFacts): string | undefined {
  for (const { kind, name } of object.metadata.ownerReferences ?? []) {
    if (kind !== 'Node' || name !== node) return `node ${node} may name Node ${node} as owner and not ${kind} ${name}`
  }
  if (object.kind !== 'Endpoint') return undefined
  const { spec } = object
  if (spec.node !== node || spec.cluster !== cluster)
    return `node ${node} may not write an Endpoint of node ${spec.node} of cluster ${spec.cluster}`
  return object.metadata.name === endpointName(spec.cluster, spec.node, spec.lane)
    ? undefined
    : `the name of Endpoint ${object.metadata.name} does not fit its lane ${spec.lane}`
}

function leaseProblem(
  { metadata: { name }, spec }: StoredLease,
  { node, lease, nowMs }: AccessFacts,
): string | undefined {
  if (!name.startsWith(LANE_LEASE_PREFIX)) return `node ${node} may not write Lease ${name}`
  const holder = spec?.holderIdentity ?? ''
  if (holder !== '' && holder !== node) return `node ${node} may not make ${holder} the holder of Lease ${name}`
  if (lease === undefined || lease.holder === '' || lease.holder === node) return undefined
  const isOffered = lease.stored.metadata.annotations?.[ANNOTATION_HANDOVER] !== undefined
  if (holder === node && (isOffered || hasLapsed(lease, nowMs))) return undefined
  return `Lease ${name} is held by ${lease.holder}, which renews it and does not offer it`
}
