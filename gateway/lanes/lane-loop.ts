/**
 * The loop that makes this node's kernel equal to the plan: world → plan → apply → probes and Endpoint objects. It runs
 * when poked (an object, the kernel or the state of a connection changed, or the turn of a candidate ended) and every
 * 30 s, to repair what other programs changed.
 */
import { Round, applyRouting } from '../../kernel/apply/apply.ts'
import { Drift } from '../../kernel/kernel.ts'
import { ensureForwarding } from '../../kernel/tuning/tuning.ts'
import { type Family, reportedOtherRanges } from '../../model/addresses/addresses.ts'
import type { Failure, LoopRun } from '../../runtime/runtime.ts'
import { DEFAULT_LOOP, type LoopInit, ReconcileLoop, SerialQueue, WakeTimer } from '../../reconcile/reconcile.ts'
import { type LaneState, linkKey } from '../cable/cable.ts'
import { type LanePlan, type Refusal, isMade, plannedLinks } from '../links/links.ts'
import { GatewayTable } from '../nft/nft.ts'
import { laneScope, planLaneRoutes } from './plan-lane-routes.ts'
import {
  type GatewayConfig,
  type GatewayDeps,
  type GatewayLoopDeps,
  type GatewayMetrics,
  type GatewayWorld,
  forwarding,
  healthKey,
  laneLabels,
  loopDeps,
} from '../world/world.ts'
import { type Probing, carryingText, handedOverHealth } from '../health/health.ts'
import { Departure, Returning } from './departure.ts'
import { EndpointWriter, ownEndpoints } from './endpoint-writer.ts'
import { HandshakeRetries, RoamedPeers } from '../reach/reach.ts'
import { type GatewayPlan, planGateway } from './plan-gateway.ts'
import { GATEWAY_KINDS, type Known, isLeaving, readGatewayWorld, readReach } from './read-world.ts'

/** If one step fails, the others still run. A lane that goes down must not stay routed for longer than this. */
const LOOP_TIMING: LoopInit = { ...DEFAULT_LOOP, retryMaxMs: 1000 }

/** Other programs and this loop change routes and links in bursts. */
const KERNEL_SETTLE_MS = 200

/** A round uses more CPU time than a change of routes and would delay it, for one link and for the next one. */
const AFTER_ROUTES_MS = 150
/** A suspect link changes little but the routes, and the kernel's notification of that change needs no quick round. */
const AFTER_SUSPECT_MS = 1000

/** Each pod may change the ranges of its node. Traffic to unknown ranges is tracked, which does no harm. */
const RANGES_SETTLE_MS = 1000

/** What a round has applied to the kernel. */
interface Applied {
  /** States of the existing devices, by remote lane. */
  readonly states: ReadonlyMap<number, LaneState>
  /** The policy and the routes are in place. */
  readonly routed: boolean
}

interface RoutedFrom {
  readonly world: GatewayWorld
  readonly lanes: readonly LanePlan[]
}

export interface LaneLoopInit {
  readonly config: GatewayConfig
  readonly metrics: GatewayMetrics
  readonly probing: Probing
  /** The identity that the Endpoint announces: RotationLoop. */
  readonly nextIdentity?: () => string | undefined
  /** Called after each round. */
  readonly onRound: () => void
}

export class LaneLoop {
  readonly #deps: GatewayDeps
  readonly #init: LaneLoopInit
  readonly #nft: GatewayTable
  readonly #nft6: GatewayTable
  readonly #calls = new HandshakeRetries()
  readonly #roamed = new RoamedPeers()
  readonly #endpoints: EndpointWriter
  readonly #drift: Drift
  readonly #returning = new Returning()
  readonly #callJitter: number
  #refusals = ''
  readonly #departure: Departure
  #successorsSince: ReadonlyMap<string, number> = new Map()
  #plan: GatewayPlan | undefined
  #routed: ReadonlySet<string> = new Set()
  /** Until then, kernel notifications may come from this loop's own routes. Monotonic milliseconds. */
  #ownRoutesUntilMs = -Infinity
  /** What the routes in the kernel were planned from. */
  #routedFrom: RoutedFrom | undefined
  readonly #outcome: GatewayLoopDeps
  readonly #loop: ReconcileLoop
  /** Removes silent links from the routes at once, without waiting for the end of a round. */
  readonly #routes: ReconcileLoop
  readonly #rounds = new SerialQueue()
  readonly #wake: WakeTimer

  constructor(deps: GatewayDeps, init: LaneLoopInit) {
    this.#deps = deps
    this.#init = init
    this.#nft = new GatewayTable(deps.nft, deps.clock)
    this.#nft6 = new GatewayTable(deps.nft6, deps.clock)
    this.#endpoints = new EndpointWriter(deps)
    this.#drift = new Drift({ ...deps, repairs: init.metrics.driftRepairs })
    this.#callJitter = deps.clock.random()
    const count = ({ ok, ms }: LoopRun): void => {
      init.metrics.rounds.inc({ result: ok ? 'ok' : 'failed' })
      init.metrics.roundDuration.observe(ms / 1000)
      init.onRound()
    }
    this.#outcome = loopDeps({ ...deps, count }, 'lanes')
    this.#loop = new ReconcileLoop(this.#outcome, LOOP_TIMING, (signal) => this.#round(signal))
    this.#routes = new ReconcileLoop(loopDeps(deps, 'ways'), LOOP_TIMING, (signal) => this.#reroute(signal))
    this.#wake = new WakeTimer(deps.clock, () => this.poke())
    this.#departure = new Departure(deps, init.config.node)
  }

  poke(): void {
    this.#routes.poke()
    this.#loop.poke()
  }

  /**
   * A link came up, went down, became suspect or answers again. The routes change at once, and everything else later.
   */
  linksChanged(what: 'state' | 'doubt'): void {
    this.#routes.poke()
    this.#wake.at(this.#deps.clock.monotonic() + (what === 'state' ? AFTER_ROUTES_MS : AFTER_SUSPECT_MS))
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#routes.run(signal), this.#loop.run(signal)])
  }

  /**
   * Watches what the plan depends on: each change pokes the loop, some after a delay. Returns the function that ends
   * this.
   */
  follow(): () => void {
    const { api, clock, routes, handover, logger } = this.#deps
    const poke = (): void => this.poke()
    const pokeIn = (ms: number): void => this.#wake.at(clock.monotonic() + ms)
    const stops = [
      ...GATEWAY_KINDS.map((kind) => api.cache(kind).onChange(poke)),
      api.cache('RouteAgent').onChange((change) => {
        if (reportedOtherRanges(change)) pokeIn(RANGES_SETTLE_MS)
      }),
      routes.onChange(() => pokeIn(clock.monotonic() < this.#ownRoutesUntilMs ? AFTER_SUSPECT_MS : KERNEL_SETTLE_MS)),
      ...[this.#nft, this.#nft6].map((table) => table.follow(logger, poke)),
      ...(handover === undefined ? [] : [handover.onChange(poke)]),
      () => this.#wake.close(),
    ]
    return () => stops.forEach((stop) => stop())
  }

  /** The plan of the last round. Undefined before the first. */
  get plan(): GatewayPlan | undefined {
    return this.#plan
  }

  /** Why the last round failed. Undefined if it succeeded. */
  get failure(): Failure | undefined {
    return this.#outcome.failure
  }

  /** Why the lanes are not ready. Undefined if they are. */
  get notReady(): string | undefined {
    if (this.failure !== undefined) return this.failure.message
    if (this.#plan === undefined) return 'this cluster has no Cluster object yet'
    // Kubernetes stops the next gateway once this one is ready.
    return this.#returning.untilMs === undefined ? undefined : 'started anew: not all of its links are up yet'
  }

  /** This node is about to leave and has withdrawn its routes. */
  get withdrawn(): boolean {
    return this.#routedFrom?.world.withdrawn === true
  }

  /** Connections, by healthKey(), that were up when the routes were last applied: traffic can use them. */
  get routed(): ReadonlySet<string> {
    return this.#routed
  }

  /** Throws what failed, after all other steps. */
  async #round(signal: AbortSignal): Promise<void> {
    const { config, probing, metrics } = this.#init
    const { cable } = this.#deps
    const read = await readGatewayWorld(this.#deps, config, signal, this.#known())
    if (read === undefined) return
    const seen = { ...read, roamed: this.#roamed.seen(read.laneStates.values(), read.monotonicMs) }
    const first = this.#plan === undefined
    const world = this.#asReturning(first ? this.#withHandedOver(seen) : seen)
    if (first) this.#routed = upKeys(world)
    const plan = planGateway(world, cable.rules)
    this.#roamed.reported(plan.lanes.lanes.flatMap(plannedLinks))
    this.#report(plan.lanes.refusals)
    this.#noteSuccessors(world, plan)
    const round = new Round({ logger: this.#deps.logger, changes: metrics.changes, drift: this.#drift })
    const { states: laneStates, routed } = await this.#apply(world, plan, round, signal)
    const probed = plan.lanes.lanes.filter((one) =>
      [world.laneStates, laneStates].some((states) => states.has(one.remoteLane)),
    )
    // Only links that are taken over start as up. A prober that is created later has received nothing yet.
    probing.setLanes(probed, first ? upKeys(world) : new Set())
    // Set only now, so that a reader of the plan finds the probers of its peers.
    this.#plan = plan
    await round.attempt(() => this.#endpoints.write({ ...world, laneStates }, signal))
    metrics.laneMtu.reset()
    for (const lane of plan.lanes.lanes) metrics.laneMtu.set(lane.mtu, laneLabels(lane))
    if (plan.lanes.nextAtMs !== undefined) this.#wake.at(plan.lanes.nextAtMs)
    // One device that cannot be created does not affect the links of the others.
    if (routed) this.#routed = upKeys(world)
    const made = isMade(plan.lanes.lanes, world.laneStates)
    if (!signal.aborted) this.#deps.handover?.tried((made ? probing.problem() : round.failure)?.message)
    round.finish()
  }

  #asReturning(world: GatewayWorld): GatewayWorld {
    const { monotonicMs, node, own, endpoints } = world
    if (this.#plan === undefined) this.#returning.begin(ownEndpoints(this.#deps, own.spec.id, node), monotonicMs)
    const isAlone = endpoints.length === 0
    this.#returning.look(monotonicMs, isAlone || this.#plan?.lanes.lanes.every(isUp(upKeys(world))) === true)
    const { untilMs } = this.#returning
    if (untilMs === undefined) return world
    this.#wake.at(untilMs)
    return { ...world, returning: true }
  }

  #known(): Known {
    return {
      health: this.#init.probing.health(),
      callJitter: this.#callJitter,
      successorsSince: this.#successorsSince,
      ...announced(this.#init.nextIdentity?.()),
      ...this.#departing(this.#deps.clock.monotonic()),
    }
  }

  /** After the announcement, this node withdraws its routes when all others had time to learn it, and not before. */
  #departing(nowMs: number): Pick<GatewayWorld, 'handedOver' | 'leaving' | 'withdrawn'> {
    const { api, handover } = this.#deps
    const leaving = handover?.leaving() ?? isLeaving(api, this.#init.config.node)
    const withdrawsAtMs = this.#departure.withdrawsAtMs(leaving, nowMs, this.#plan === undefined)
    if (leaving && nowMs < withdrawsAtMs) this.#wake.at(withdrawsAtMs)
    return {
      ...(handover === undefined ? {} : { handedOver: handover.handedOver() }),
      leaving,
      withdrawn: nowMs >= withdrawsAtMs,
    }
  }

  /** The world with what changes quickly: which links answer, and which clusters other gateways reach. */
  #asOfNow(world: GatewayWorld): GatewayWorld {
    const { leaving, withdrawn, ...known } = this.#known()
    const reach = readReach(this.#deps.api, world.node, world.own.spec.id)
    return { ...world, ...known, ...reach, leaving: leaving === true, withdrawn: withdrawn === true }
  }

  /**
   * Removes a link that became silent from the routes of its cluster, and lowers the MTU of routes over a link that no
   * longer carries large packets, even while a round is under way. A whole round takes some hundred milliseconds, in
   * which packets would be lost. If this fails, the round does it again.
   */
  async #reroute(signal: AbortSignal): Promise<void> {
    await this.#rounds.run(async () => {
      if (this.#plan === undefined || this.#routedFrom === undefined) return
      const { world, lanes } = this.#routedFrom
      const now = this.#asOfNow(world)
      if (carryingText(world) === carryingText(now)) return
      const round = new Round({ logger: this.#deps.logger, changes: this.#init.metrics.changes, drift: this.#drift })
      this.#ownRoutesUntilMs = Infinity
      try {
        await applyRouting(this.#deps.routes, planLaneRoutes(now, lanes), laneScope(this.#deps), round, signal)
      } finally {
        this.#ownRoutesUntilMs = this.#deps.clock.monotonic() + KERNEL_SETTLE_MS
      }
      if (round.failures === 0) this.#routedFrom = { world: now, lanes }
      else this.#loop.poke()
    })
  }

  /** In the first round nothing has been probed yet, so the state that the last process reported is used. */
  #withHandedOver(world: GatewayWorld): GatewayWorld {
    const gateway = this.#deps.api.cache('Gateway').get(world.node)
    const health = handedOverHealth({ ...world, gateway, rules: this.#deps.cable.rules })
    return { ...world, health }
  }

  // The policy is in place before the first device, so that no packet passes a lane untranslated or unchecked. If the
  // policy cannot be applied, no device is created; an existing device was created under a policy. A lane that is to be
  // removed stays under the policy until it is gone, and is removed after its routes: with a device the kernel deletes
  // every IPv4 route that has a next hop on it, including those that also use other lanes.
  async #apply(world: GatewayWorld, plan: GatewayPlan, round: Round, signal: AbortSignal): Promise<Applied> {
    const { cable } = this.#deps
    const { lanes } = plan.lanes
    const withIpv6 = plan.nft6.length > 0
    const guarded4 = await this.#nft.apply(plan.nft, round, signal)
    const guarded = (!withIpv6 || (await this.#nft6.apply(plan.nft6, round, signal))) && guarded4
    const callAgain = this.#calls.due(lanes.flatMap(plannedLinks))
    const { pathSource } = world
    const states = new Map<number, LaneState>()
    for (const lane of lanes) {
      const seen = world.laneStates.get(lane.remoteLane)
      if (seen === undefined && !guarded) continue
      const init = { withIpv6, seen, callAgain, pathSource, mayJoin: guarded, round, signal }
      const state = await cable.apply(lane, init)
      if (state !== undefined) states.set(lane.remoteLane, state)
    }
    if (states.size > 0) await this.#switchOnForwarding(withIpv6 ? [4, 6] : [4], round)
    const failures = round.failures
    if (states.size > 0 || lanes.length === 0) {
      const made = lanes.filter(({ remoteLane }) => states.has(remoteLane))
      await this.#rounds.run(async () => {
        // Links that became silent since the world was read have been removed from the routes and must not return.
        const now = this.#plan === undefined ? world : this.#asOfNow(world)
        this.#routedFrom = { world: now, lanes: made }
        await applyRouting(this.#deps.routes, planLaneRoutes(now, made), laneScope(this.#deps), round, signal)
      })
    }
    const routed = guarded && round.failures === failures
    const keep = lanes.map((lane) => lane.device)
    const swept = await cable.remove(keep, round, signal)
    // The IPv6 table is removed last, because until here lanes may still have carried IPv6.
    if (swept && !withIpv6) await this.#nft6.remove(round, signal)
    return { states, routed }
  }

  async #switchOnForwarding(families: readonly Family[], round: Round): Promise<void> {
    const { sysctl, logger } = this.#deps
    for (const family of families) {
      const { name, setting, marker } = forwarding(this.#init.config, family)
      const on = await round.attempt(() => ensureForwarding(sysctl, marker, setting))
      if (on?.value === true) logger.info(`switched on ${name} forwarding`)
    }
  }

  #noteSuccessors({ monotonicMs }: GatewayWorld, { lanes }: GatewayPlan): void {
    const keys = lanes.lanes.flatMap(({ successors }) => successors.map(linkKey))
    this.#successorsSince = new Map(keys.map((key) => [key, this.#successorsSince.get(key) ?? monotonicMs]))
  }

  #report(refusals: readonly Refusal[]): void {
    this.#init.metrics.refusals.set(refusals.length)
    const text = JSON.stringify(refusals)
    if (text === this.#refusals) return
    this.#refusals = text
    for (const { subject, reason, message } of refusals) {
      this.#deps.logger.warn('refused', { subject, reason, why: message })
    }
  }
}

function isUp(up: ReadonlySet<string>): (lane: LanePlan) => boolean {
  return ({ remoteLane, links }) => links.every(({ cluster }) => up.has(healthKey(remoteLane, cluster)))
}

function announced(nextIdentity: string | undefined): Pick<GatewayWorld, 'nextIdentity'> {
  return nextIdentity === undefined ? {} : { nextIdentity }
}

function upKeys(world: GatewayWorld): Set<string> {
  return new Set([...world.health].filter(([, view]) => view.state === 'up').map(([key]) => key))
}
