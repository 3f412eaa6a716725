/** What a part of a site is started with, and the shape of the modules that start one. */
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

/** What this cluster is in its clusterset. */
export interface MembershipInfo {
  readonly cluster: ClusterId
  /** Its address as the broker saw it when joining; absent where the broker could not know whose that was. */
  readonly observedAddress?: string
}

/** A site whose objects can be read and written. */
export interface Site {
  readonly config: SiteConfig
  readonly api: ClusterApi
  /** Absent on a site without Kubernetes. */
  readonly kube?: KubeSite
  /** In the state folder of a site without Kubernetes; absent on a real cluster. */
  readonly leases?: LeaseStore
  /** What a real cluster's driver counts with. */
  readonly metrics?: Metrics | undefined
}

export interface SiteRun extends Site {
  readonly node: string
  readonly identity: IdentityStore
  /** How often gateways of this site write their status at least: SEALANE_HEARTBEAT. */
  readonly heartbeatMs: number
  /** How long the Lease of a lane lasts: SEALANE_LEASE. */
  readonly leaseMs: number
  /** Resolves once this cluster has joined. Rejects with the signal's reason. */
  readonly membership: (signal: AbortSignal) => Promise<MembershipInfo>
}

export interface ComponentModule {
  readonly run: (deps: ComponentDeps, site: SiteRun, signal: AbortSignal) => Promise<void>
  /** The text of what would be applied; absent where a part touches no kernel. */
  readonly plan?: (clock: Clock, site: SiteRun, signal: AbortSignal) => Promise<string>
}

// For parts that have nothing to take down on a site: they end when the membership does.

/** Aborts once this site, which had joined, has no Membership any more; with the signal's reason when that came first. */
export function untilLeft(api: Pick<ClusterApi, 'cache'>, signal: AbortSignal): AbortSignal {
  const left = new AbortController()
  const memberships = api.cache('Membership')
  const look = (): void => {
    if (memberships.synced && memberships.get(MEMBERSHIP_NAME) === undefined) left.abort(new Error('the site has left'))
  }
  memberships.onChange(look)
  look()
  return AbortSignal.any([signal, left.signal])
}
