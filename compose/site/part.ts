/** The input of a part of a site, and the interface of the modules that start parts. */
import type { ClusterApi, LeaseStore } from '../../kubeapi/kubeapi.ts'
import type { SiteConfig } from '../../kubeapi/files/files.ts'
import { formatAddress, parseAddressPort } from '../../model/addresses/addresses.ts'
import { type ClusterId, MEMBERSHIP_NAME } from '../../model/model.ts'
import type { IdentityStore } from '../../protocol/membership/membership.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { type ComponentDeps, type HostPort, interfaceNetworks } from '../../runtime/runtime.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import type { HubRole } from '../hub/hub.ts'
import type { KubeSite } from './kube-site.ts'

export const COMPONENTS = ['agent', 'gateway', 'routeagent', 'dns', 'hub'] as const
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

export interface RemoteNode {
  /** The only Node that this machine may run. */
  readonly node: string
  /** Keeps what the hub gives beside objects current until the signal. Never rejects. */
  readonly keep: (signal: AbortSignal) => Promise<void>
  /** Set if this machine is one of several hubs of the site. The one that acts also runs the agent. */
  readonly hub?: HubRole
}

/** A site with access to its objects. */
export interface Site {
  readonly config: SiteConfig
  readonly api: ClusterApi
  /** Absent on a site without Kubernetes. */
  readonly kube?: KubeSite
  /** The Leases of a site without Kubernetes, in its state folder or at its hub. Absent on a Kubernetes cluster. */
  readonly leases?: LeaseStore
  /** Set on a node of a site without Kubernetes that does not see the folder of the site: the hub has its objects. */
  readonly remote?: RemoteNode
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
  /** The agent runs where the hub acts, so that an earlier one has ended. It waits for no Lease. */
  readonly isOnlyAgent?: boolean
}

export interface ComponentModule {
  readonly run: (deps: ComponentDeps, site: SiteRun, signal: AbortSignal) => Promise<void>
  /** The plan as text. Absent if the part does not change the kernel. */
  readonly plan?: (clock: Clock, site: SiteRun, signal: AbortSignal) => Promise<string>
}

/** The addresses of spec.hub.listen that this machine has. */
export function hubAddresses({ hub }: Pick<SiteConfig, 'hub'>): readonly HostPort[] {
  const own = new Set(interfaceNetworks().map((network) => network.split('/')[0]))
  const addresses = hub.listen.map((text) => parseAddressPort(text, 'spec.hub.listen'))
  return addresses
    .map(({ address, port }) => ({ host: formatAddress(address), port }))
    .filter(({ host }) => own.has(host))
}

/** Whether other machines are hubs of the site, too: spec.hub.listen has an address of this one, and others. */
export function hasSeveralHubs(config: Pick<SiteConfig, 'hub'>): boolean {
  return mayShareWithHubs(config) && hubAddresses(config).length > 0
}

/** Whether the folder of the site may be that of one of several hubs, also where another machine has its address. */
export function mayShareWithHubs(config: Pick<SiteConfig, 'hub'>): boolean {
  const { length } = config.hub.listen
  return length > 1 && hubAddresses(config).length < length
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
