/**
 * Types for the configuration of a cluster's own DNS: the existing objects, the planned changes, and the problems that
 * prevent them. The plans are pure; ClusterDnsClient applies them.
 */
import type { ObjectRef, ObjectType } from '../../kubeapi/kube/kube.ts'
import type { ObjectMeta } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'

/** An object from the API server, with unknown fields included, so that they are preserved when it is written back. */
export interface DnsObject {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: ObjectMeta
  readonly data?: Readonly<Record<string, string>>
  readonly spec?: Readonly<Record<string, unknown>>
  readonly [field: string]: unknown
}

/** The kind of cluster DNS, which determines how a zone is configured. */
export type ClusterDnsFlavour =
  /** CoreDNS with a Corefile that the operators of the cluster own: kubeadm, kind, kubespray, kOps, Talos, EKS. */
  | 'coredns'
  /** CoreDNS with a ConfigMap of additions that its Corefile imports. */
  | 'k3s'
  | 'aks'
  /** CoreDNS from a Helm chart that the cluster itself installs. */
  | 'rke2'
  | 'openshift'
  /** kube-dns, or another server that reads its ConfigMap (GKE, even with CoreDNS). */
  | 'kube-dns'
  /** Managed by the provider, and not configurable. */
  | 'eks-auto-mode'
  | 'gke-cloud-dns'
  | 'unknown'

export interface ClusterDnsOptions {
  /** The zone, without a final dot: `clusterset.local`. */
  readonly domain: string
  /** The address of the Service sealane-dns: `10.43.0.99`, `10.43.0.99:5353`, `[fd00::99]:53`. */
  readonly forwardTo: string
}

/** How a change takes effect. */
export type Effect =
  /** CoreDNS reloads its file: it takes up to a minute until the node has the new ConfigMap, then up to 45 s. */
  | { readonly how: 'by itself'; readonly withinSeconds: number }
  | { readonly how: 'restart'; readonly workload: ObjectRef }

export interface ClusterDnsChange {
  readonly object: ObjectRef
  /** The object as it was read. Undefined if it is created. */
  readonly before: DnsObject | undefined
  /** Undefined if the object is deleted. */
  readonly after: DnsObject | undefined
  /** The field that changes, with its old and new text, for a dry run. */
  readonly edit: { readonly field: string; readonly before: string | undefined; readonly after: string | undefined }
  readonly why: string
  readonly effect: Effect
}

export interface ClusterDnsProblem {
  /**
   * conflict: another server answers the zone. unreadable: the existing configuration cannot be parsed. absent: an
   * expected object does not exist. outOfReach: this cluster's DNS cannot be configured. cache: a cache in front of the
   * cluster's DNS cannot be configured; the rest of the plan is carried out.
   */
  readonly kind: 'conflict' | 'unreadable' | 'absent' | 'outOfReach' | 'cache'
  /** If absent, that of the kind. */
  readonly reason?: ReasonCode
  readonly object?: ObjectRef
  readonly message: string
  /** What the user has to do, one line each. */
  readonly advice: readonly string[]
}

/**
 * A conflict, or settings that are unreadable or absent, stop the whole plan: it has no changes. What is out of reach
 * stops only itself.
 */
export interface ClusterDnsPlan {
  readonly changes: readonly ClusterDnsChange[]
  readonly notes: readonly string[]
  readonly problems: readonly ClusterDnsProblem[]
}

/** The operations on the API server that applying a plan needs. */
export interface ClusterDnsClient {
  /** Undefined if the object or its kind does not exist. */
  get(object: ObjectRef, signal: AbortSignal): Promise<DnsObject | undefined>
  /**
   * All objects of a kind with these labels; empty if the kind does not exist. If it is not implemented, caches are
   * known by their usual names alone.
   */
  list?(type: ObjectType, labelSelector: string | undefined, signal: AbortSignal): Promise<readonly DnsObject[]>
  /**
   * Replaces `before` with `after`: creates the object if `before` is undefined, deletes it if `after` is undefined.
   * Returns false and changes nothing if the object has changed since it was read.
   */
  replace(change: Pick<ClusterDnsChange, 'object' | 'before' | 'after'>, signal: AbortSignal): Promise<boolean>
  /**
   * Restarts a rollout. If it is not implemented, or if the workload does not exist (NotFound), the user is asked to do
   * it.
   */
  restart?(workload: ObjectRef, signal: AbortSignal): Promise<void>
}

/** What is known about a cluster's DNS beyond the usual names. */
export interface FoundDns {
  /** The workload of the cluster's own CoreDNS. If undefined, it is looked for at the usual place. */
  readonly server?: ObjectRef | undefined
  /** Further ConfigMaps to read, such as those that an earlier join wired. */
  readonly maps?: readonly ObjectRef[]
}

export function findObject(present: readonly DnsObject[], ref: ObjectRef): DnsObject | undefined {
  return present.find(
    (object) =>
      object.kind === ref.kind &&
      object.metadata.name === ref.name &&
      object.metadata.namespace === ref.namespace &&
      object.apiVersion.split('/')[0] === ref.apiVersion.split('/')[0],
  )
}

export function configMapRef(name: string, namespace = 'kube-system'): ObjectRef {
  return { apiVersion: 'v1', kind: 'ConfigMap', namespace, name }
}

export const NO_CHANGE: ClusterDnsPlan = { changes: [], notes: [], problems: [] }

const REASONS: Readonly<Record<ClusterDnsProblem['kind'], ReasonCode>> = {
  conflict: 'ClusterDnsTaken',
  unreadable: 'ClusterDnsUnreadable',
  absent: 'ClusterDnsAbsent',
  outOfReach: 'ClusterDnsOutOfReach',
  cache: 'DnsCacheOutOfReach',
}

export function reasonOf({ kind, reason }: Pick<ClusterDnsProblem, 'kind' | 'reason'>): ReasonCode {
  return reason ?? REASONS[kind]
}

/** Carries out both plans, or neither if one of them must be stopped. */
export function joinPlans(...plans: readonly ClusterDnsPlan[]): ClusterDnsPlan {
  const problems = plans.flatMap((plan) => plan.problems)
  const stops = problems.filter(({ kind }) => kind !== 'outOfReach' && kind !== 'cache')
  if (stops.length > 0) return problemPlan(...problems)
  return { changes: plans.flatMap(({ changes }) => changes), notes: plans.flatMap(({ notes }) => notes), problems }
}

export function problemPlan(...problems: readonly ClusterDnsProblem[]): ClusterDnsPlan {
  return { changes: [], notes: [], problems }
}
