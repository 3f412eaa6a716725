/** Reads the cluster's objects as one value, or says why there is none yet. */
import type { ClusterApi, ObjectCache, ObjectChange } from '../../kubeapi/kubeapi.ts'
import { plannedFamilies, withoutIpv6Pods } from '../../model/addresses/addresses.ts'
import {
  type Cluster,
  type Endpoint,
  type EndpointSlice,
  type Gateway,
  MEMBERSHIP_NAME,
  type Membership,
  type Node,
  type RouteAgent,
  type ServiceImport,
} from '../../model/model.ts'
import { Listeners } from '../../reconcile/reconcile.ts'
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

  /** Like ObjectCache.onChange(), from when the cache is open. Returns the function that ends this. */
  onChange(listener: CacheListener<T>): () => void {
    return this.#listeners.add(listener)
  }
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
  }
}

export type ClusterWorld = Omit<NodeRouteWorld, 'facts'>
export type WorldReading =
  { readonly ok: true; readonly world: ClusterWorld } | { readonly ok: false; readonly waitingFor: string }

/**
 * There is no world until everything that the plans need has been read, and the kernel stays as it is: what was not
 * read must not count as removed.
 */
export function readWorld(caches: RouteAgentCaches, node: string): WorldReading {
  const { routeAgents, ...others } = caches
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
