/**
 * Types for how a cluster's own DNS learns where clusterset.local is answered: what a cluster has, what would be
 * changed, and what prevents it. The plans are pure; ClusterDnsClient carries them out.
 */
import type { ObjectRef } from '../../kubeapi/kube/kube.ts'
import type { ObjectMeta } from '../../model/model.ts'

/** An object as the API server gives it, unknown fields included: what we write back is what we read, plus ours. */
export interface DnsObject {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: ObjectMeta
  readonly data?: Readonly<Record<string, string>>
  readonly spec?: Readonly<Record<string, unknown>>
  readonly [field: string]: unknown
}

/** Who runs the cluster's DNS, and how it gets a zone. */
export type ClusterDnsFlavour =
  /** A CoreDNS whose Corefile belongs to the people who run the cluster: kubeadm, kind, kubespray, kOps, Talos, EKS. */
  | 'coredns'
  /** CoreDNS with a ConfigMap of additions that its Corefile imports. */
  | 'k3s'
  | 'aks'
  /** CoreDNS from a Helm chart that the cluster itself installs. */
  | 'rke2'
  | 'openshift'
  /** kube-dns, or what reads its ConfigMap (GKE, also where it runs on CoreDNS). */
  | 'kube-dns'
  /** Run by the provider, out of reach. */
  | 'eks-auto-mode'
  | 'gke-cloud-dns'
  | 'unknown'

export interface ClusterDnsOptions {
  /** The zone, without a final dot: `clusterset.local`. */
  readonly domain: string
  /** The address of the Service sealane-dns: `10.43.0.99`, `10.43.0.99:5353`, `[fd00::99]:53`. */
  readonly forwardTo: string
}

/** When a change is felt. */
export type Effect =
  /** CoreDNS reads its file again. Up to a minute until the node has the new ConfigMap, then up to 45 s. */
  | { readonly how: 'by itself'; readonly withinSeconds: number }
  | { readonly how: 'restart'; readonly workload: ObjectRef }

export interface ClusterDnsChange {
  readonly object: ObjectRef
  /** As read. Undefined: it is created. */
  readonly before: DnsObject | undefined
  /** Undefined: it is deleted. */
  readonly after: DnsObject | undefined
  /** The field that differs and its texts, for a dry run. */
  readonly edit: { readonly field: string; readonly before: string | undefined; readonly after: string | undefined }
  readonly why: string
  readonly effect: Effect
}

export interface ClusterDnsProblem {
  /**
   * conflict: something else answers the zone. unreadable: we do not understand what is there. absent: what should be
   * there is not. outOfReach: this cluster's DNS takes no such setting.
   */
  readonly kind: 'conflict' | 'unreadable' | 'absent' | 'outOfReach'
  readonly object?: ObjectRef
  readonly message: string
  /** What to do, each a line of its own. */
  readonly advice: readonly string[]
}

/** With a problem there are no changes: all or nothing. */
export interface ClusterDnsPlan {
  readonly changes: readonly ClusterDnsChange[]
  readonly notes: readonly string[]
  readonly problems: readonly ClusterDnsProblem[]
}

/** What carrying out a plan needs of the API server. */
export interface ClusterDnsClient {
  /** Undefined where it does not exist, its kind included. */
  get(object: ObjectRef, signal: AbortSignal): Promise<DnsObject | undefined>
  /**
   * Writes `after` in place of `before`: creates where there is no `before`, deletes where there is no `after`.
   * Gives false, and does nothing, where the object is no longer the one that was read.
   */
  replace(change: Pick<ClusterDnsChange, 'object' | 'before' | 'after'>, signal: AbortSignal): Promise<boolean>
  /** A rollout restart. Left out, or where the workload is not there (NotFound): the user is asked to do it. */
  restart?(workload: ObjectRef, signal: AbortSignal): Promise<void>
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

export function problemPlan(...problems: readonly ClusterDnsProblem[]): ClusterDnsPlan {
  return { changes: [], notes: [], problems }
}
