/** The route agent of one node: routes to the gateways, and balancing of clusterset IPs on the client's node. */
import { Round } from '../kernel/apply/apply.ts'
import type { CallLookup, ConnectionTable, FlowTable, PacketLog } from '../kernel/nfnetlink/nfnetlink.ts'
import { type Nft, formatNft, removeTable, sweepTraces } from '../kernel/nft/nft.ts'
import { type OpenProbeSocket, openUdpProbeSocket } from '../kernel/probing/probing.ts'
import {
  type NextHopTable,
  type RouteTable,
  formatAddress,
  formatForwardingEntry,
  formatGroup,
  formatHop,
  formatLink,
  formatLinkChange,
  formatNeighbour,
  formatRoute,
  formatRule,
} from '../kernel/route/route.ts'
import {
  type BridgePorts,
  type ChecksumOffload,
  type DevicePackets,
  type ReceiveCoalescing,
  type Sysctl,
  possibleCpus,
  readDevicePackets,
} from '../kernel/tuning/tuning.ts'
import { type ClusterApi, HeardGateways, watchLeaving } from '../kubeapi/kubeapi.ts'
import { type Family, type OpenPort, plannedFamilies, reportedOtherRanges } from '../model/addresses/addresses.ts'
import {
  type EndpointSlice,
  type OpenConnections,
  type ServiceImport,
  NFT_TABLE_FLOWS,
  NFT_TABLE_NODE,
  VXLAN_DEVICE,
} from '../model/model.ts'
import { type ForwardPolicies, formatPolicy } from '../kernel/xfrm/xfrm.ts'
import type { Logger } from '../runtime/logging/logging.ts'
import { unansweredClusters } from '../model/lanes/lanes.ts'
import { problemText } from '../model/reasons/reasons.ts'
import { DEFAULT_LOOP, type TcpProbe, untilDone } from '../reconcile/reconcile.ts'
import { type ComponentDeps, type MachineNetwork, probeTcp, messageOf } from '../runtime/runtime.ts'
import { type AccessPlan, AccessReader, type AccessSite, DeniedSamples } from './access/access.ts'
import {
  BalanceLoop,
  BalancePlanner,
  HairpinLoop,
  TrafficReader,
  accessSite,
  nodeNftWorld,
  planTable,
  restoreHairpin,
  serviceContext,
} from './balance/balance.ts'
import { ConnectionLoop } from './count-connections.ts'
import { FlowLoop } from './flows/flows.ts'
import { OutsidePodsLoop } from './outside-pods.ts'
import { GatewayProbes } from './probes/probes.ts'
import {
  type NodeRoutePlan,
  RouteLoop,
  type Unguarded,
  changesRoutes,
  planNodeRoutes,
  removeNodeRoutes,
} from './routes/routes.ts'
import {
  FactsReader,
  type NodeRouteWorld,
  type RouteAgentCaches,
  type RouteAgentConfig,
  addressFamily,
  changesSpec,
  forwardingMarker,
  hairpinRecord,
  ownCluster,
  readWorld,
  routeAgentCaches,
  routeAgentMetrics,
  withFacts,
} from './world/world.ts'

export interface RouteAgentDeps extends ComponentDeps {
  readonly api: ClusterApi
  readonly routes: RouteTable
  /** Next-hop objects of the same kernel. Absent: routes have next hops of their own. */
  readonly nextHops?: NextHopTable
  /** Tables of family ip. */
  readonly nft: Nft
  /** Tables of family ip6. */
  readonly nft6: Nft
  readonly sysctl: Sysctl
  /** Absent: pods are open while nft tables are missing, unless failClosed is true. */
  readonly forwardPolicies?: ForwardPolicies
  /** Absent: the overlay device does not hold back segments to join them. */
  readonly coalescing?: ReceiveCoalescing
  /** Absent: the checksum offload of the overlay device stays as it is. */
  readonly checksumOffload?: ChecksumOffload
  /** Absent: bridge ports stay as they are. */
  readonly bridgePorts?: BridgePorts
  /** Absent: open connections are not counted. */
  readonly connections?: ConnectionTable
  /** Absent: UDP flows to endpoints that have gone stay. */
  readonly flows?: FlowTable
  /** Absent: how calls end is not counted. */
  readonly lookup?: CallLookup
  /** Absent: refused packets are counted, but not sampled. */
  readonly packetLog?: PacketLog
  /** Absent: calls are not counted. */
  readonly countsCalls?: true
  /** Absent: default gateways and name servers are not known. */
  readonly machineNetwork?: () => Promise<MachineNetwork>
  /** Absent: the real TCP probe. */
  readonly probeTcp?: TcpProbe
  /** Absent: the real socket and the real packet counters. */
  readonly openProbeSocket?: OpenProbeSocket
  readonly devicePackets?: DevicePackets
}

/**
 * Runs until the signal and then leaves the kernel as it is, so that traffic continues during a restart. Resolves
 * earlier only if the membership says `leaving` or is gone, after everything of this component has been removed.
 */
export async function runRouteAgent(
  deps: RouteAgentDeps,
  config: RouteAgentConfig,
  signal: AbortSignal,
): Promise<void> {
  const metrics = routeAgentMetrics(deps.metrics)
  const logger = deps.logger.child({ component: 'routeagent', node: config.node })
  const heard = new HeardGateways({
    ...deps,
    logger,
    probeTcp: deps.probeTcp ?? probeTcp,
    heartbeatMs: config.heartbeatMs,
  })
  const caches = routeAgentCaches(deps.api, heard)
  const facts = new FactsReader(deps)
  const unguarded = (): Unguarded | undefined => {
    const [ipv4, ipv6] = balancing
    if (ipv4?.isGuarding() !== true) return { failure: ipv4?.failure }
    // Packets of IPv6 come by the overlay too. A kernel that lacks its table carries IPv4 all the same.
    return ipv6?.isUndecided() === true ? { failure: ipv6.failure } : undefined
  }
  const parts = { ...deps, caches, facts, logger, metrics }
  const counting: ConnectionLoop[] = []
  const openConnections = (): OpenConnections | undefined => counting[0]?.reported
  const onPlan = (): void => counting[0]?.planned()
  const probes = new GatewayProbes({
    ...parts,
    openSocket: deps.openProbeSocket ?? openUdpProbeSocket,
    devicePackets: deps.devicePackets ?? readDevicePackets,
    onChange: () => routes.poke(),
    onNodeState: () => routes.poke(),
  })
  const outside = new OutsidePodsLoop({ ...parts, onChange: () => routes.poke() }, config)
  const podsOutside = (): readonly string[] | undefined => outside.reported
  const isGuarding = (family: Family): boolean => balancing[family === 4 ? 0 : 1]?.isGuarding() === true
  const seen = { probes, unguarded, isGuarding, openConnections, podsOutside }
  const routes = new RouteLoop({ ...parts, ...seen, onPlan }, config)
  const onGuarding = (): void => routes.poke()
  if (deps.connections !== undefined) {
    const reported = { plan: () => routes.plan, onChange: () => routes.poke() }
    counting.push(new ConnectionLoop({ ...parts, ...reported, connections: deps.connections }, config))
  }
  const { bridgePorts } = deps
  const hairpin =
    bridgePorts === undefined || config.setsHairpin !== true
      ? []
      : [new HairpinLoop({ ...parts, bridgePorts }, hairpinRecord(config), () => balancing[0]?.localBackends())]
  const onBackends = (): void => hairpin[0]?.poke()
  const { packetLog } = deps
  const denied =
    packetLog === undefined
      ? []
      : [
          new DeniedSamples({
            ...{ clock: deps.clock, logger, packetLog, nfts: [deps.nft, deps.nft6], slices: caches.slices },
            podAt: (address) => flowLoops[0]?.podAt(address),
            callers: (family) => balancing[family === 4 ? 0 : 1]?.callers(),
            onFollowing: () => balancing.forEach((balance) => balance.factsChanged()),
          }),
        ]
  const samples = { isFollowing: () => denied[0]?.isFollowing === true }
  const balancing: BalanceLoop[] = [
    new BalanceLoop({ ...parts, samples, onGuarding, onBackends }, config),
    new BalanceLoop(
      { ...parts, samples, nft: deps.nft6, logger: logger.child({ family: 'IPv6' }), onGuarding },
      config,
    ),
  ]

  const flowLoops =
    deps.countsCalls === true
      ? [new FlowLoop({ ...parts, nfts: [deps.nft, deps.nft6], cpus: possibleCpus() }, config)]
      : []

  deps.status.readiness('routes', () => routes.notReady)
  deps.status.readiness('balance', () => balancing.map(({ notReady }) => notReady).find((why) => why !== undefined))
  deps.status.detail('denied', () => denied[0]?.list() ?? [])
  deps.status.detail('flows', () => ({ ...flowLoops[0]?.page(), denied: denied[0]?.list() ?? [] }))
  deps.status.plan('routeagent', () => describeNow(caches, facts, config, logger))

  const leaving = watchLeaving(deps.api)
  const stops = [
    () => leaving.close(),
    () => probes.close(),
    outside.follow(),
    ...balancing.map((balance) => balance.follow()),
    ...balancing.map((balance) => balance.followTable()),
    ...[caches.memberships, caches.nodes, caches.endpoints].map((cache) => cache.onChange(() => routes.poke())),
    caches.clusters.onChange((change) => {
      if (changesSpec(change)) routes.poke()
    }),
    caches.gateways.onChange((change) => {
      if (changesRoutes(change)) routes.poke()
    }),
    heard.onChange(() => metrics.staleGateways.set(heard.stale().length)),
    caches.routeAgents.onChange((change) => {
      if (reportedOtherRanges(change)) routes.poke()
    }),
    deps.routes.onChange(() => {
      facts.invalidate()
      routes.poke()
      for (const balance of balancing) balance.factsChanged()
    }),
  ]
  const until = AbortSignal.any([signal, leaving.signal])
  await Promise.all(
    [heard, routes, outside, ...balancing, ...counting, ...hairpin, ...denied, ...flowLoops].map((loop) =>
      loop.run(until),
    ),
  )
  for (const stop of stops) stop()
  if (leaving.signal.aborted) await tearDown(deps, config, signal)
}

/** The text that `up --dry-run` prints for this node. Waits until everything has been read once. Changes nothing. */
export async function planRouteAgent(
  deps: Pick<RouteAgentDeps, 'api' | 'routes' | 'nextHops' | 'sysctl' | 'machineNetwork'>,
  config: Pick<RouteAgentConfig, 'node' | 'openPorts' | 'overlayPort' | 'failClosed'>,
  signal: AbortSignal,
): Promise<string> {
  const caches = routeAgentCaches(deps.api)
  const { routeAgents, access, traffic, callers, ...others } = caches
  const all = [
    ...Object.values(others),
    routeAgents.open(),
    access.exports,
    access.policies,
    access.clusterPolicies,
    traffic.policies,
    traffic.clusterPolicies,
  ] as {
    whenSynced(signal: AbortSignal): Promise<void>
  }[]
  await Promise.all(all.map((cache) => cache.whenSynced(signal)))
  const facts = new FactsReader(deps)
  await facts.read(signal)
  // The first plan opens what it depends on.
  describeNow(caches, facts, config)
  await Promise.all([callers.pods.whenRead(signal), callers.namespaces.whenRead(signal)])
  return describeNow(caches, facts, config)
}

/** A dry run says nothing besides the plan. */
const UNLOGGED: Pick<Logger, 'warn'> = { warn: () => undefined }

function describeNow(
  caches: RouteAgentCaches,
  facts: FactsReader,
  config: Pick<RouteAgentConfig, 'node' | 'openPorts' | 'overlayPort' | 'failClosed'>,
  logger: Pick<Logger, 'warn'> = UNLOGGED,
): string {
  const reading = readWorld(caches, config)
  if (!reading.ok) return `# waiting for ${reading.waitingFor}\n`
  if (facts.known === undefined) return '# waiting for the first reading of the devices of this machine\n'
  const world: RouteAgentWorld = {
    ...withFacts(reading.world, facts.known),
    imports: caches.imports.list(),
    slices: caches.slices.list(),
    divide: (planner) => {
      const reader = new TrafficReader(caches)
      reader.setUnanswered(unansweredClusters(caches.gateways.list()))
      reader.update(planner)
    },
    access: (family, site) => new AccessReader(caches, addressFamily(family), logger).plan(site).plan,
    ...(config.openPorts === undefined ? {} : { openPorts: config.openPorts }),
  }
  return describeRouteAgentPlan(world)
}

/**
 * Removes everything that the loops may have created, and last this node's RouteAgent object. Retries until it succeeds
 * or the signal comes: `sealane leave` waits until the object is gone.
 */
async function tearDown(deps: RouteAgentDeps, config: RouteAgentConfig, signal: AbortSignal): Promise<void> {
  const { clock, logger } = deps
  const backoff = { minMs: DEFAULT_LOOP.retryMinMs, maxMs: DEFAULT_LOOP.retryMaxMs }
  const onFailure = (error: unknown): void => {
    logger.error('leaving failed; retrying', { reason: 'RoundFailed', why: messageOf(error) })
  }
  if (await untilDone(() => cleanRouteAgentNode(deps, config, signal), { clock, backoff, onFailure }, signal)) {
    logger.info('left: removed everything of Sealane from this kernel', { component: 'routeagent' })
  }
}

/**
 * Removes everything that the loops may have created on this node, once, and last its RouteAgent object. Throws what
 * failed, after all other steps. If the overlay or XFRM policies could not be removed, the tables stay.
 */
export async function cleanRouteAgentNode(
  deps: RouteAgentDeps,
  config: RouteAgentConfig,
  signal: AbortSignal,
): Promise<void> {
  const round = new Round(deps)
  const policiesGone = await removeNodeRoutes({ ...deps, forwardingMarker: forwardingMarker(config) }, round, signal)
  const { bridgePorts } = deps
  if (bridgePorts !== undefined)
    await round.attempt(() => restoreHairpin({ ...deps, bridgePorts }, hairpinRecord(config)))
  for (const nft of [deps.nft, deps.nft6]) {
    await round.attempt(() => removeTable(nft, NFT_TABLE_FLOWS, signal))
    await round.attempt(() => sweepTraces(nft, signal))
  }
  // The overlay always needs the tables that decide who may use it, and the policies those that set the mark.
  const hasOverlay = (await deps.routes.links(signal)).some(({ name }) => name === VXLAN_DEVICE)
  for (const nft of hasOverlay || !policiesGone ? [] : [deps.nft, deps.nft6])
    await round.attempt(() => removeTable(nft, NFT_TABLE_NODE, signal))
  round.finish()
  await deps.api.remove('RouteAgent', config.node, undefined, signal)
}

// The plans as text of the kernel tools, for --dry-run, /debug/plan, the log and the golden tests. Pure.

interface RouteAgentWorld extends NodeRouteWorld {
  readonly imports: readonly ServiceImport[]
  readonly slices: readonly EndpointSlice[]
  readonly openPorts?: readonly OpenPort[]
  /** Absent: nothing is offered to other clusters. */
  readonly access?: (family: Family, site: AccessSite) => AccessPlan
  /** Gives the planner the shares of the clusters. Absent: all endpoints count alike. */
  readonly divide?: (planner: BalancePlanner) => void
}

/**
 * What `up` would do on this node, as `ip`, `bridge`, `sysctl` and `nft` text, with one transaction for each family.
 */
export function describeRouteAgentPlan(world: RouteAgentWorld): string {
  const families = plannedFamilies(ownCluster(world))
  return [describeRoutes(planNodeRoutes(world)), ...families.map((family) => describeTable(world, family))].join('\n')
}

function describeTable(world: RouteAgentWorld, family: Family): string {
  const planner = new BalancePlanner(serviceContext(world, family))
  planner.replaceAll(world.imports, world.slices)
  world.divide?.(planner)
  planner.takeChanges()
  const table = nodeNftWorld(world, family, world.openPorts)
  const { statements } = planTable(table, planner.ports(), world.access?.(family, accessSite(table, world)))
  return `# nft -f -\n${formatNft(statements, addressFamily(family).nft)}`
}

export function describeRoutes(plan: NodeRoutePlan): string {
  if (!plan.ok) return `# ${problemText(plan)}\n`
  const lines = [
    ...plan.problems.map((p) => `# left out: ${p.subject}: ${problemText(p)}`),
    ...plan.guard.map(formatRule),
    formatLink(plan.link),
    formatAddress(plan.address),
    formatLinkChange(plan.link.name, { up: true }),
    ...plan.sysctls.map((s) => `sysctl -w ${s.name}=${s.value}`),
    ...plan.neighbours.map(formatNeighbour),
    ...plan.forwarding.map(formatForwardingEntry),
    ...plan.nextHops.hops.map(formatHop),
    ...plan.nextHops.groups.map(formatGroup),
    ...plan.routes.map(formatRoute),
    ...plan.rules.map(formatRule),
    ...plan.policies.leftOut.map((why) => `# left out: XFRM policies: ${why}`),
    ...plan.policies.policies.map(formatPolicy),
  ]
  return `${lines.join('\n')}\n`
}
