/**
 * Writes Gateway.status: at once when poked, a moment after a change of state, and every `statusMs` if more than the
 * constantly changing figures differs. It writes at least every heartbeatMs, because the heartbeat shows that this
 * gateway is alive. Every write is sent to every node of the cluster.
 */
import {
  type ConditionFinding,
  type ConnectionStatus,
  type Gateway,
  type KnownRelay,
  MEMBERSHIP_NAME,
  endpointName,
  isNodeOfSite,
  ownedByNode,
  sameOwners,
} from '../../model/model.ts'
import { LINK_RUNGS, type LinkRung, RUNG_TCP_443, linkRung, remoteLaneOf } from '../../model/lanes/lanes.ts'
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import { isNotFound } from '../../kernel/kernel.ts'
import type { Nft } from '../../kernel/nft/nft.ts'
import { DEFAULT_LOOP, ReconcileLoop, WakeTimer } from '../../reconcile/reconcile.ts'
import {
  type GatewayConfig,
  type GatewayDeps,
  type GatewayMetrics,
  type PublicNameView,
  healthKey,
  laneLabels,
  loopDeps,
} from '../world/world.ts'
import { DropCounts } from '../nft/nft.ts'
import { type LaneLoop, StaleOwnerGuard } from '../lanes/lanes.ts'
import { HeardLinks, type LinkHealth, type Probing, sleepRule } from '../health/health.ts'
import { type ReportedSizes, gatewayEvents, sizeEvents } from './plan-conditions.ts'
import { type LanePlan, plannedLinks } from '../links/links.ts'
import { NAT_TRAITS, type NatView, type PortMappingView, type Relays, natTraits } from '../reach/reach.ts'
import { LinkPlaces } from './link-places.ts'
import { placedLinks, planStatus } from './plan-status.ts'

export interface StatusInit {
  readonly config: GatewayConfig
  readonly metrics: GatewayMetrics
  readonly probing: Probing
  /** State of the key rotation: RotationLoop.report. */
  readonly rotation?: () => ConditionFinding | undefined
  /** What is known of the public name (PublicName). */
  readonly publicName?: () => PublicNameView | undefined
  /** Relays for links that nothing else reaches. Absent: there are none. */
  readonly relays?: Pick<Relays, 'mapping' | 'whyRelayed' | 'nat' | 'trips' | 'punched' | 'web'>
  /** What is known of the router in front of this node (PortMappings). */
  readonly portMapping?: () => PortMappingView | undefined
  /** The loop whose state the status reports. */
  readonly lanes: Pick<LaneLoop, 'plan' | 'routed' | 'failure' | 'withdrawn'>
}

/**
 * Others wait for the heartbeat. Once the API server is back, the heartbeat must come before they consider this gateway
 * silent.
 */
const RETRY_MAX_MS = 2000
/** Delay that lets traffic move to other links first, because reading all devices takes as long. */
const SOON_MS = 100

export class StatusLoop {
  readonly #deps: GatewayDeps
  readonly #init: StatusInit
  readonly #roundMs: number
  #written: { readonly text: string; readonly atMs: number } | undefined
  #driver: string | undefined
  #reportedSizes: ReportedSizes = new Map()
  readonly #drops: DropCounts
  readonly #owners: StaleOwnerGuard
  readonly #heard: HeardLinks
  readonly #places = new LinkPlaces()
  readonly #loop: ReconcileLoop
  readonly #wake: WakeTimer

  constructor(deps: GatewayDeps, init: StatusInit) {
    this.#deps = deps
    this.#init = init
    this.#owners = new StaleOwnerGuard(deps.clock)
    this.#heard = new HeardLinks(deps.clock)
    const { nft, nft6, clock } = deps
    const nfts = (): readonly Nft[] => ((init.lanes.plan?.nft6.length ?? 0) > 0 ? [nft, nft6] : [nft])
    this.#drops = new DropCounts({ nfts, clock, metrics: init.metrics })
    // A round takes time itself. With two rounds per heartbeat, no heartbeat is late.
    this.#roundMs = Math.min(init.config.statusMs, init.config.heartbeatMs / 2)
    const timing = { ...DEFAULT_LOOP, resyncMs: this.#roundMs, retryMaxMs: RETRY_MAX_MS }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'status'), timing, (signal) => this.#round(signal))
    this.#wake = new WakeTimer(deps.clock, () => this.poke())
  }

  poke(): void {
    this.#loop.poke()
  }

  /** Call it after a change of state. */
  pokeSoon(): void {
    this.#wake.at(this.#deps.clock.monotonic() + SOON_MS)
  }

  run(signal: AbortSignal): Promise<void> {
    return this.#loop.run(signal)
  }

  close(): void {
    this.#wake.close()
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { config, probing } = this.#init
    const { cable, clock } = this.#deps
    const { plan, routed, failure } = this.#init.lanes
    if (plan === undefined) return
    const { lanes } = plan.lanes
    this.#driver ??= (await cable.driver(signal)).name
    const remoteLanes = lanes.map(({ remoteLane }) => remoteLane)
    const [before, askedMs] = [probing.health(), clock.monotonic()]
    const laneStates = await cable.observe(remoteLanes, lanes.flatMap(plannedLinks), signal)
    this.#heard.look(laneStates.values())
    const sleepBy = sleepRule(config.sleepAfterMs, this.#deps.api.cache('Cluster').list().length)
    probing.measure({ devices: lanes, states: laneStates, askedMs, before }, sleepBy)
    const health = probing.health()
    this.#places.look(placedLinks(lanes, laneStates, health), clock.now(), clock.monotonic())
    const publicName = this.#init.publicName?.()
    const portMapping = this.#init.portMapping?.()
    const gateway = planStatus({
      node: config.node,
      version: config.version,
      driver: this.#driver,
      sessionMs: cable.rules.sessionMs,
      nowMs: clock.now(),
      monotonicMs: clock.monotonic(),
      heardMs: (key) => this.#heard.heardMs(key),
      lanes,
      laneStates,
      health,
      routed,
      failure: failure ?? probing.problem(),
      ...(this.#init.lanes.withdrawn ? { flowsWith: probing.busyClusters() } : {}),
      ...rotationOf(this.#init.rotation?.()),
      ...(publicName === undefined ? {} : { publicName }),
      ...(portMapping === undefined ? {} : { portMapping }),
      placesOf: (key) => this.#places.of(key),
      ...natOf(this.#init.relays),
      conditions: this.#present()?.status?.conditions ?? [],
    })
    this.#measure(gateway, health)
    this.#measureNat(this.#init.relays?.nat)
    await this.#countDrops(signal)
    await this.#write(gateway, signal)
    this.#reportSizes(lanes, health)
  }

  async #countDrops(signal: AbortSignal): Promise<void> {
    try {
      await this.#drops.look(signal)
    } catch (error) {
      // Without lanes there is no table. The lane loop has any other failure too and reports it.
      if (!isNotFound(error)) this.#deps.logger.debug('cannot count dropped packets', { why: String(error) })
    }
  }

  async #write(gateway: Gateway, signal: AbortSignal): Promise<void> {
    const text = lastingText(gateway)
    const { api, clock } = this.#deps
    const nodes = api.cache('Node').list()
    const name = gateway.metadata.name
    if (!isNodeOfSite(name, nodes)) return
    const metadata = { name, ...ownedByNode(nodes.find((node) => node.metadata.name === name)) }
    const present = this.#present()
    const wanted: Gateway = { apiVersion: gateway.apiVersion, kind: gateway.kind, metadata }
    const object = this.#owners.checked(wanted, present)
    const isOwned = present !== undefined && sameOwners(present, object)
    const atMs = clock.monotonic()
    // The next round would write the heartbeat too late.
    const isDue = atMs + this.#roundMs > (this.#written?.atMs ?? -Infinity) + this.#init.config.heartbeatMs
    if (text === this.#written?.text && !isDue && isOwned) return
    // An earlier process may have set other labels.
    if (!isOwned || this.#written === undefined) await api.apply(object, signal)
    const beating = withHeartbeat(gateway, clock.now())
    try {
      await api.applyStatus(beating, signal)
    } catch (error) {
      if (!(error instanceof ClusterApiError && error.code === 'NotFound')) throw error
      await api.apply(object, signal)
      await api.applyStatus(beating, signal)
    }
    this.#written = { text, atMs }
    for (const event of gatewayEvents(present, gateway)) api.report(event)
  }

  #reportSizes(lanes: readonly LanePlan[], health: ReadonlyMap<string, LinkHealth>): void {
    const present = this.#present()
    if (present === undefined) return
    const { events, reported } = sizeEvents(this.#reportedSizes, present, lanes, health)
    this.#reportedSizes = reported
    for (const event of events) this.#deps.api.report(event)
  }

  #rungOf(connection: ConnectionStatus): LinkRung | undefined {
    const { api } = this.#deps
    const endpoints = api.cache('Endpoint')
    const id = api.cache('Membership').get(MEMBERSHIP_NAME)?.spec.clusterId
    const own = id === undefined ? undefined : endpoints.get(endpointName(id, this.#init.config.node, connection.lane))
    return linkRung(connection, own, endpoints.get(connection.endpoint))
  }

  #present(): Gateway | undefined {
    return this.#deps.api.cache('Gateway').get(this.#init.config.node)
  }

  #measureNat(nat: NatView | undefined): void {
    const { nat: kinds, natLife } = this.#init.metrics
    natLife.reset()
    if (nat === undefined) return
    const traits = natTraits(nat)
    for (const kind of NAT_TRAITS) kinds.set(traits.includes(kind) ? 1 : 0, { kind })
    if (nat.lifeSeconds !== undefined) natLife.set(nat.lifeSeconds, { protocol: 'udp' })
  }

  #measure(gateway: Gateway, health: ReadonlyMap<string, LinkHealth>): void {
    const { metrics } = this.#init
    const { connectionUp, connectionRtt, connectionJitter, connectionLoss, connectionMtu } = metrics
    const { handshakeAge, receivedBytes, sentBytes } = metrics
    const gauges = [
      connectionUp,
      connectionRtt,
      connectionJitter,
      connectionLoss,
      connectionMtu,
      handshakeAge,
      receivedBytes,
      sentBytes,
    ]
    for (const gauge of gauges) gauge.reset()
    const counts = new Map<LinkRung, number>(LINK_RUNGS.map((rung) => [rung, 0]))
    for (const connection of gateway.status?.connections ?? []) {
      const rung = connection.state === 'up' ? this.#rungOf(connection) : undefined
      if (rung !== undefined) counts.set(rung, (counts.get(rung) ?? 0) + 1)
    }
    for (const [rung, count] of counts) metrics.links.set(count, { rung })
    countRelays(metrics.relays, gateway.status?.relays ?? [])
    for (const connection of gateway.status?.connections ?? []) {
      const { cluster, lane: ownLane } = connection
      const remoteLane = remoteLaneOf(connection)
      const labels = { cluster, ...laneLabels({ ownLane, remoteLane }) }
      const { figures, asleep } = health.get(healthKey(remoteLane, cluster)) ?? {}
      const jitterMs = asleep === true ? undefined : figures?.jitterMs
      connectionUp.set(connection.state === 'up' ? 1 : 0, labels)
      if (connection.rttMs !== undefined) connectionRtt.set(connection.rttMs / 1000, labels)
      if (jitterMs !== undefined) connectionJitter.set(jitterMs / 1000, labels)
      if (connection.loss !== undefined) connectionLoss.set(connection.loss, labels)
      if (connection.mtu !== undefined) connectionMtu.set(connection.mtu, labels)
      if (connection.handshakeAgeSeconds !== undefined) handshakeAge.set(connection.handshakeAgeSeconds, labels)
      receivedBytes.set(connection.rxBytes, labels)
      sentBytes.set(connection.txBytes, labels)
    }
  }
}

/** By what they carry and by state: both are words of this release. */
function countRelays(gauge: GatewayMetrics['relays'], relays: readonly KnownRelay[]): void {
  gauge.reset()
  for (const [state, ofState] of Map.groupBy(relays, (relay) => relay.state)) {
    const datagrams = ofState.filter(({ at }) => at !== undefined).length
    if (datagrams > 0) gauge.set(datagrams, { carries: 'datagrams', state })
    if (ofState.length > datagrams) gauge.set(ofState.length - datagrams, { carries: RUNG_TCP_443, state })
  }
}

function natOf(
  relays: StatusInit['relays'],
): Partial<
  Pick<Parameters<typeof planStatus>[0], 'natMapping' | 'nat' | 'whyRelayed' | 'trips' | 'punched' | 'webRelays'>
> {
  if (relays === undefined) return {}
  const { mapping: natMapping, nat, web: webRelays } = relays
  const whyRelayed = (key: string): ReturnType<typeof relays.whyRelayed> => relays.whyRelayed(key)
  const known = { natMapping, webRelays, whyRelayed, trips: relays.trips(), punched: relays.punched() }
  return { ...known, ...(nat === undefined ? {} : { nat }) }
}

function rotationOf(rotation: ConditionFinding | undefined): { readonly rotation?: ConditionFinding } {
  return rotation === undefined ? {} : { rotation }
}

/** The part of a status that stays equal while nothing happens. */
function lastingText({ status }: Gateway): string {
  const connections = status?.connections.map((connection) => {
    // The message of a connection that is not up contains its duration.
    const candidates = connection.candidates?.map((one) => ({ ...one, ...MOVING_CANDIDATE }))
    const message = connection.message.replaceAll(/\d+ s\b/g, 's')
    return { ...connection, ...MOVING, message, candidates }
  })
  const relays = status?.relays?.map((one) => ({ ...one, rttMs: undefined }))
  return JSON.stringify({ ...status, connections, relays })
}

/** Fields that are left out: traffic and measurements. */
const MOVING = {
  rttMs: undefined,
  loss: undefined,
  handshakeAgeSeconds: undefined,
  rxBytes: undefined,
  txBytes: undefined,
}

/** The same of a candidate: `since` stays as long as it is not used. */
const MOVING_CANDIDATE = {
  rttMs: undefined,
  relayRttMs: undefined,
  loss: undefined,
  measuredTime: undefined,
}

/** The time keeps its milliseconds, so that two writes always differ. */
function withHeartbeat(gateway: Gateway, nowMs: number): Gateway {
  if (gateway.status === undefined) return gateway
  return { ...gateway, status: { ...gateway.status, heartbeatTime: new Date(nowMs).toISOString() } }
}
