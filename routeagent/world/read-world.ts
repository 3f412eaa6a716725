/** Reads the cluster's objects as one value, or says why there is none yet. */
import { isDeepStrictEqual } from 'node:util'
import type { ClusterApi, ObjectCache, ObjectChange } from '../../kubeapi/kubeapi.ts'
import { plannedFamilies, withoutIpv6Pods } from '../../model/addresses/addresses.ts'
import { type Exposure, exposureOf } from '../../model/access/access.ts'
import {
  type AccessPolicy,
  type Cluster,
  type ClusterAccessPolicy,
  type ClusterTrafficPolicy,
  type Endpoint,
  type EndpointSlice,
  type Gateway,
  MEMBERSHIP_NAME,
  type Membership,
  type Namespace,
  type Node,
  type Pod,
  type RouteAgent,
  type ServiceExport,
  type ServiceImport,
  type TrafficPolicy,
  VXLAN_PORT,
} from '../../model/model.ts'
import { Listeners } from '../../reconcile/reconcile.ts'
import type { RouteAgentConfig } from './config.ts'
import { type KernelFacts, type NodeRouteWorld, ownLanes } from './node-world.ts'
import { ownCluster } from './plan-own-ranges.ts'

type CacheListener<T> = (change: ObjectChange<T> | undefined) => void

/** A cache that is opened only when it is needed, so that other nodes cause no load on the API server. */
export class LazyInformer<T> {
  readonly #make: () => ObjectCache<T>
  readonly #listeners = new Listeners<Parameters<CacheListener<T>>>()
  #cache: ObjectCache<T> | undefined

  constructor(make: () => ObjectCache<T>) {
    this.#make = make
  }

  /** The cache. The first call starts it. */
  open(): ObjectCache<T> {
    if (this.#cache !== undefined) return this.#cache
    this.#cache = this.#make()
    this.#cache.onChange((change) => this.#listeners.call(change))
    return this.#cache
  }

  /** Resolves once the cache has been read, or at once while it is not open. Rejects with the signal's reason. */
  async whenRead(signal: AbortSignal): Promise<void> {
    await this.#cache?.whenSynced(signal)
  }

  /** Like ObjectCache.onChange(), from when the cache is open. Returns the function that ends this. */
  onChange(listener: CacheListener<T>): () => void {
    return this.#listeners.add(listener)
  }
}

/** What the access rules are made of, besides memberships, clusters and slices. */
export interface AccessCaches {
  readonly exports: ObjectCache<ServiceExport>
  readonly policies: ObjectCache<AccessPolicy>
  readonly clusterPolicies: ObjectCache<ClusterAccessPolicy>
}

/** What the shares of clusters are made of, besides memberships, clusters, imports and slices. */
export interface TrafficCaches {
  readonly policies: ObjectCache<TrafficPolicy>
  readonly clusterPolicies: ObjectCache<ClusterTrafficPolicy>
}

export interface CallerCaches {
  readonly pods: LazyInformer<Pod>
  readonly namespaces: LazyInformer<Namespace>
}

export interface RouteAgentCaches {
  readonly memberships: ObjectCache<Membership>
  readonly nodes: ObjectCache<Node>
  readonly clusters: ObjectCache<Cluster>
  readonly endpoints: ObjectCache<Endpoint>
  readonly gateways: ObjectCache<Gateway>
  readonly imports: ObjectCache<ServiceImport>
  readonly slices: ObjectCache<EndpointSlice>
  /** Opened only by nodes that serve lanes: each node has one such object, and each may change with every pod. */
  readonly routeAgents: LazyInformer<RouteAgent>
  /**
   * Opened where some namespaces may call what others may not, and where calls are counted, which names the callers.
   * Namespaces: also once a service has been withdrawn. Pods: at least those of this node.
   */
  readonly callers: CallerCaches
  /** The world does not wait for them, because a cluster may lack their kinds: routes do not depend on them. */
  readonly access: AccessCaches
  /** The world does not wait for them either: without policies all endpoints count alike. */
  readonly traffic: TrafficCaches
}

/** `gateways` is a cache in which connections of dead gateways count as down, if there is one. */
export function routeAgentCaches(
  api: ClusterApi,
  gateways: ObjectCache<Gateway> = api.cache('Gateway'),
): RouteAgentCaches {
  return {
    memberships: api.cache('Membership'),
    nodes: api.cache('Node'),
    clusters: api.cache('Cluster'),
    endpoints: api.cache('Endpoint'),
    gateways,
    imports: api.cache('ServiceImport'),
    slices: api.cache('EndpointSlice'),
    routeAgents: new LazyInformer(() => api.cache('RouteAgent')),
    callers: {
      pods: new LazyInformer(() => api.cache('Pod')),
      namespaces: new LazyInformer(() => api.cache('Namespace')),
    },
    access: {
      exports: api.cache('ServiceExport'),
      policies: api.cache('AccessPolicy'),
      clusterPolicies: api.cache('ClusterAccessPolicy'),
    },
    traffic: { policies: api.cache('TrafficPolicy'), clusterPolicies: api.cache('ClusterTrafficPolicy') },
  }
}

/** Whether an object differs in more than its status, such as that of a Cluster, on which no plan of a node depends. */
export function changesSpec(change: ObjectChange<{ readonly spec: unknown }> | undefined): boolean {
  if (change?.type !== 'set' || change.previous === undefined) return true
  return !isDeepStrictEqual(change.object.spec, change.previous.spec)
}

export type ClusterWorld = Omit<NodeRouteWorld, 'facts'> & { readonly exposure: Exposure }
export type WorldReading =
  { readonly ok: true; readonly world: ClusterWorld } | { readonly ok: false; readonly waitingFor: string }

/**
 * There is no world until everything that the plans need has been read, and the kernel stays as it is: what was not
 * read must not count as removed.
 */
export function readWorld(
  caches: RouteAgentCaches,
  { node, overlayPort = VXLAN_PORT, failClosed }: Pick<RouteAgentConfig, 'node' | 'overlayPort' | 'failClosed'>,
): WorldReading {
  const { routeAgents, access: _access, traffic: _traffic, callers: _callers, ...others } = caches
  const unsynced = Object.entries(others).filter(([, cache]) => !(cache as ObjectCache<unknown>).synced)
  if (unsynced.length > 0) return waiting(`first reading of ${unsynced.map(([name]) => name).join(', ')}`)
  const membership = caches.memberships.get(MEMBERSHIP_NAME)
  if (membership === undefined) return waiting('this site to join a clusterset')
  const self = membership.spec.clusterId
  const clusters = caches.clusters.list()
  if (!clusters.some((cluster) => cluster.metadata.name === self)) return waiting(`Cluster ${self}, this cluster's own`)
  const endpoints = caches.endpoints.list()
  const servesLanes = ownLanes({ node, self, endpoints }).length > 0
  if (servesLanes && !routeAgents.open().synced) return waiting('first reading of routeAgents')
  return {
    ok: true,
    world: {
      node,
      self,
      nodes: caches.nodes.list(),
      clusters,
      endpoints,
      routeAgents: servesLanes ? routeAgents.open().list() : [],
      gateways: caches.gateways.list(),
      globalRange: membership.spec.globalRange,
      clustersetIpRange: membership.spec.clustersetIpRange,
      exposure: exposureOf(membership),
      ...(failClosed === undefined ? {} : { failClosed }),
      overlayPort,
    },
  }
}

/** If the kernel has no IPv6, this cluster counts as one without IPv6 pods, and IPv4 still works. */
export function withFacts(world: ClusterWorld, facts: KernelFacts): NodeRouteWorld {
  const own = ownCluster(world)
  if (own === undefined || facts.hasIpv6 !== false || !plannedFamilies(own).includes(6)) return { ...world, facts }
  const clusters = world.clusters.map((cluster) => (cluster === own ? withoutIpv6Pods(own) : cluster))
  return { ...world, clusters, facts, ipv6LeftOut: true }
}

function waiting(waitingFor: string): WorldReading {
  return { ok: false, waitingFor }
}
