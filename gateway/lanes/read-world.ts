/**
 * Reads the world (gateway/world/gateway-world.ts) from the object caches and from this node's kernel. Changes nothing.
 */
import { formatAddress, plannedFamilies, withoutIpv6Pods } from '../../model/addresses/addresses.ts'
import {
  type Cluster,
  type Endpoint,
  IPV6_FORWARDING,
  LANE_MARK,
  MEMBERSHIP_NAME,
  type Membership,
} from '../../model/model.ts'
import { exposureOf } from '../../model/access/access.ts'
import { isLaneNumber, isOnlyGateway, leavingReason, remoteLanes, statedRemoteLanes } from '../../model/lanes/lanes.ts'
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { KernelError } from '../../kernel/kernel.ts'
import type { RouteTable } from '../../kernel/route/route.ts'
import type { Sysctl } from '../../kernel/tuning/tuning.ts'
import type { GatewayConfig, GatewayDeps, GatewayWorld } from '../world/world.ts'
import { type LaneState, laneDeviceNames } from '../cable/cable.ts'
import { drainingLinks, leavingNodes, reachedByOthers } from '../health/health.ts'
import { canLink, farEnds } from '../links/links.ts'

export type WorldDeps = Pick<
  GatewayDeps,
  'api' | 'routes' | 'nextHops' | 'sysctl' | 'cable' | 'clock' | 'machineNetwork'
>

/** Kinds whose changes cause a new plan. */
export const GATEWAY_KINDS = ['Membership', 'Cluster', 'Endpoint', 'Node'] as const

/** What this process has learned and what neither the kernel nor an object contains. */
export type Known = Pick<
  GatewayWorld,
  | 'health'
  | 'callJitter'
  | 'successorsSince'
  | 'handedOver'
  | 'leaving'
  | 'withdrawn'
  | 'nextIdentity'
  | 'publicName'
  | 'relayPlaces'
  | 'relayRefusals'
  | 'relayMoves'
  | 'relaysAsked'
  | 'statedCosts'
  | 'upAt'
  | 'triesDirect'
  | 'punched'
  | 'mapped'
  | 'routerOutside'
>

const NOTHING_KNOWN = { health: new Map(), callJitter: 0 } as const

export function readMembership(api: ClusterApi): Membership | undefined {
  return api.cache('Membership').get(MEMBERSHIP_NAME)
}

/** Names the kinds that have not been read yet. Undefined if all that the plan depends on have been read. */
export function whyCachesNotSynced(api: ClusterApi): string | undefined {
  const missing = [...GATEWAY_KINDS, 'RouteAgent' as const].filter((kind) => !api.cache(kind).synced)
  return missing.length === 0 ? undefined : `not read yet: ${missing.join(', ')}`
}

/** Resolves when everything that the plan depends on has been read once. */
export async function whenCachesSynced(api: ClusterApi, signal: AbortSignal): Promise<void> {
  // This node's own Gateway object holds the state of an earlier process. Only this node changes it.
  const kinds = [...GATEWAY_KINDS, 'RouteAgent', 'Gateway'] as const
  await Promise.all(kinds.map((kind) => api.cache(kind).whenSynced(signal)))
}

/**
 * Undefined while this cluster's own Cluster object does not exist, because every plan needs its index and prefixes.
 * `known` is what this process has learned; omit it for a dry run. Throws KernelError.
 */
export async function readGatewayWorld(
  deps: WorldDeps,
  config: GatewayConfig,
  signal: AbortSignal,
  known: Known = NOTHING_KNOWN,
): Promise<GatewayWorld | undefined> {
  const { api, routes, cable } = deps
  const membership = readMembership(api)
  const own = membership === undefined ? undefined : api.cache('Cluster').get(membership.spec.clusterId)
  if (own === undefined) return undefined
  const endpoints = api.cache('Endpoint').list()
  const remotes = endpoints.filter((endpoint) => endpoint.spec.cluster !== own.spec.id)
  // If all remotes are refused, it is the first device that exists.
  const numbers = new Set([...remoteLanes([]), ...statedRemoteLanes(remotes, own.spec.id)])
  const ends = remotes.flatMap((endpoint) => farEnds(endpoint, cable.rules))
  const laneStates = await cable.observe([...numbers], ends, signal)
  const monotonicMs = deps.clock.monotonic()
  return {
    ...known,
    monotonicMs,
    node: config.node,
    ...(membership === undefined ? {} : { globalRange: membership.spec.globalRange }),
    exposure: exposureOf(membership),
    ...(config.failClosed === true ? { failClosed: true } : {}),
    ...(await ownAsSeenHere(own, deps.sysctl)),
    clusters: api.cache('Cluster').list(),
    endpoints: remotes,
    ...(isOnlyGateway(own.spec.id, config.node, endpoints) ? { isOnlyGateway: true } : {}),
    ...readReach(api, config.node, own.spec.id),
    nodes: api.cache('Node').list(),
    routeAgents: api.cache('RouteAgent').list(),
    lanes: config.lanes,
    ...(config.observedAddress === undefined ? {} : { observedAddress: config.observedAddress }),
    openPorts: config.openPorts,
    rotateMs: config.rotateMs,
    addresses: await routes.addresses(signal),
    ...(deps.nextHops === undefined ? {} : { nextHopFeatures: await deps.nextHops.features(signal) }),
    ...(deps.machineNetwork === undefined ? {} : { machine: await deps.machineNetwork() }),
    laneStates,
    laneDevices: await laneDeviceNames(routes, signal),
    ...(await readPaths(routes, underlayTargets(remotes, config.lanes[0]?.lane, laneStates), signal)),
  }
}

/** Other paths to the clusters, which change without a change of this node's kernel. */
export function readReach(
  api: ClusterApi,
  node: string,
  cluster: string,
): Pick<GatewayWorld, 'reachedByOthers' | 'reachedWell' | 'draining'> {
  const endpoints = api.cache('Endpoint').list()
  const remotes = endpoints.filter(({ spec }) => spec.cluster !== cluster)
  const gateways = api.cache('Gateway').list()
  const [leaving, draining] = [leavingNodes(cluster, endpoints), drainingLinks(remotes)]
  return {
    reachedByOthers: reachedByOthers(node, gateways, leaving),
    reachedWell: reachedByOthers(node, gateways, leaving, draining),
    draining,
  }
}

export function isLeaving(api: ClusterApi, node: string): boolean {
  const object = api.cache('Node').get(node)
  return object !== undefined && leavingReason(object) !== undefined
}

/**
 * Leaves out IPv6 pods if the kernel has no IPv6: each of their routes would fail, and no connection would be reported
 * as up.
 */
async function ownAsSeenHere(own: Cluster, sysctl: Sysctl): Promise<Pick<GatewayWorld, 'own' | 'ipv6LeftOut'>> {
  if (!plannedFamilies(own).includes(6) || (await sysctl.read(IPV6_FORWARDING)) !== undefined) return { own }
  return { own: withoutIpv6Pods(own), ipv6LeftOut: true }
}

function underlayTargets(
  remotes: readonly Endpoint[],
  own: number | undefined,
  laneStates: ReadonlyMap<number, LaneState>,
): Set<string> {
  const callable = remotes.filter((one) => own !== undefined && isLaneNumber(one.spec.lane) && canLink(one, own))
  const candidates = callable.flatMap(({ spec }) => spec.candidates.map(({ address }) => address))
  const used = [...laneStates.values()].flatMap(({ links }) => [...links.values()].flatMap(({ at }) => at ?? []))
  const addresses = [...candidates, ...used.map(({ address }) => formatAddress(address))]
  return new Set(addresses.filter((address) => /^\d+\.\d+\.\d+\.\d+$/.test(address)))
}

async function readPaths(
  routes: RouteTable,
  targets: ReadonlySet<string>,
  signal: AbortSignal,
): Promise<Pick<GatewayWorld, 'pathMtu' | 'pathSource'>> {
  const pathMtu = new Map<string, number>()
  const pathSource = new Map<string, string>()
  for (const target of targets) {
    try {
      const { mtu, source } = await routes.lookup(target, signal, LANE_MARK)
      pathMtu.set(target, mtu)
      if (source !== undefined) pathSource.set(target, source)
    } catch (error) {
      // There is no route to the target, or it is not an address, so nothing is known of its path.
      if (!(error instanceof KernelError) || error.code === 'EINTR') throw error
    }
  }
  return { pathMtu, pathSource }
}
