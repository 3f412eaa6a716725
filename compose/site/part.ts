/** The input of a part of a site, and the interface of the modules that start parts. */
import type { ClusterApi, LeaseStore } from '../../kubeapi/kubeapi.ts'
import type { SiteConfig } from '../../kubeapi/files/files.ts'
import { type ClusterId, MEMBERSHIP_NAME } from '../../model/model.ts'
import type { IdentityStore } from '../../protocol/membership/membership.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { ComponentDeps } from '../../runtime/runtime.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import type { KubeSite } from './kube-site.ts'

export const COMPONENTS = ['agent', 'gateway', 'routeagent', 'dns'] as const
export type ComponentName = (typeof COMPONENTS)[number]

/** This cluster's role in its clusterset. */
export interface MembershipInfo {
  readonly cluster: ClusterId
  /**
   * The cluster's address as the broker saw it during the join. Absent if the broker could not tell whose address it
   * was.
   */
  readonly observedAddress?: string
}

/** A site with access to its objects. */
export interface Site {
  readonly config: SiteConfig
  readonly api: ClusterApi
  /** Absent on a site without Kubernetes. */
  readonly kube?: KubeSite
  /** The Leases in the state folder of a site without Kubernetes. Absent on a Kubernetes cluster. */
  readonly leases?: LeaseStore
  /** The registry for the metrics of a Kubernetes cluster's driver. */
  readonly metrics?: Metrics | undefined
}

export interface SiteRun extends Site {
  readonly node: string
  readonly identity: IdentityStore
  /** The longest time between two status writes of a gateway of this site: SEALANE_HEARTBEAT. */
  readonly heartbeatMs: number
  /** The duration of a lane's Lease: SEALANE_LEASE. */
  readonly leaseMs: number
  /** Resolves once this cluster has joined. Rejects with the signal's reason. */
  readonly membership: (signal: AbortSignal) => Promise<MembershipInfo>
}

export interface ComponentModule {
  readonly run: (deps: ComponentDeps, site: SiteRun, signal: AbortSignal) => Promise<void>
  /** The plan as text. Absent if the part does not change the kernel. */
  readonly plan?: (clock: Clock, site: SiteRun, signal: AbortSignal) => Promise<string>
}

// For parts that have nothing to clean up on a site: they end with the membership.

/** Gives a signal that aborts once the Membership of this site is gone, or with the given signal. */
export function untilLeft(api: Pick<ClusterApi, 'cache'>, signal: AbortSignal): AbortSignal {
  const left = new AbortController()
  const memberships = api.cache('Membership')
  const look = (): void => {
    if (memberships.synced && memberships.get(MEMBERSHIP_NAME) === undefined)
      left.abort(new Error('the site has left its clusterset'))
  }
  memberships.onChange(look)
  look()
  return AbortSignal.any([signal, left.signal])
}
