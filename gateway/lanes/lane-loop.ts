/**
 * The loop that makes this node's kernel equal to the plan: read the world, plan, apply, probe, write the Endpoint
 * objects. It runs when something requests it (round-requests.ts) and every 30 s, to repair what other programs changed.
 */
import { Round } from '../../kernel/apply/apply.ts'
import { Drift } from '../../kernel/kernel.ts'
import type { Failure, LoopRun } from '../../runtime/runtime.ts'
import { ReconcileLoop } from '../../reconcile/reconcile.ts'
import { linkKey } from '../cable/cable.ts'
import { type Refusal, isMade } from '../links/links.ts'
import {
  type GatewayConfig,
  type GatewayDeps,
  type GatewayLoopDeps,
  type GatewayMetrics,
  type GatewayWorld,
  type PublicNameView,
  healthKey,
  laneLabels,
  loopDeps,
} from '../world/world.ts'
import type { Probing } from '../health/health.ts'
import { CallHistory, type PortMappings, type Relays } from '../reach/reach.ts'
import { PlanApplier } from './apply-plan.ts'
import { Departure } from './departure.ts'
import { EndpointWriter } from './endpoint-writer.ts'
import { LanePhases, upKeys } from './lane-phase.ts'
import { LANE_LOOP_TIMING, LaneRoutes } from './lane-routes.ts'
import { type GatewayPlan, planGateway } from './plan-gateway.ts'
import { type Known, readGatewayWorld, readReach } from './read-world.ts'
import { RoundRequests } from './round-requests.ts'

export interface LaneLoopInit {
  readonly config: GatewayConfig
  readonly metrics: GatewayMetrics
  readonly probing: Probing
  /** The identity that the Endpoint announces: RotationLoop. */
  readonly nextIdentity?: () => string | undefined
  /** What is known of the public name (PublicName). */
  readonly publicName?: () => PublicNameView | undefined
  /** Relays for links that nothing else reaches. Absent: there are none. */
  readonly relays?: Pick<Relays, 'known' | 'planned'>
  /** The router in front of this node. Absent: none is asked. */
  readonly portMappings?: Pick<PortMappings, 'known' | 'planned'>
  /** Called after each round. */
  readonly onRound: () => void
}

export class LaneLoop {
  readonly #deps: GatewayDeps
  readonly #init: LaneLoopInit
  readonly #phase: LanePhases
  readonly #departure: Departure
  readonly #calls: CallHistory
  readonly #applier: PlanApplier
  /** Removes silent links from the routes at once, without waiting for the end of a round. */
  readonly #routes: LaneRoutes
  readonly #endpoints: EndpointWriter
  readonly #refusals: RefusalReports
  readonly #requests: RoundRequests
  readonly #newRound: () => Round
  readonly #outcome: GatewayLoopDeps
  readonly #loop: ReconcileLoop
  /** Restores tables that another program has changed, without waiting for the other steps of a round. */
  readonly #tables: ReconcileLoop
  #isTableChanged = false

  constructor(deps: GatewayDeps, init: LaneLoopInit) {
    const { config, metrics } = init
    const { logger } = deps
    this.#deps = deps
    this.#init = init
    const drift = new Drift({ ...deps, repairs: metrics.driftRepairs })
    this.#newRound = () => new Round({ logger, changes: metrics.changes, drift })
    const count = ({ ok, ms }: LoopRun): void => {
      metrics.rounds.inc({ result: ok ? 'ok' : 'failed' })
      metrics.roundDuration.observe(ms / 1000)
      init.onRound()
    }
    this.#outcome = loopDeps({ ...deps, count }, 'lanes')
    this.#loop = new ReconcileLoop(this.#outcome, LANE_LOOP_TIMING, (signal) => this.#round(signal))
    this.#routes = new LaneRoutes(deps, {
      newRound: this.#newRound,
      asOfNow: (world) => this.#asOfNow(world),
      onFailure: () => this.#loop.poke(),
    })
    this.#calls = new CallHistory(deps.clock)
    this.#applier = new PlanApplier(deps, { config, calls: this.#calls, routes: this.#routes })
    this.#requests = new RoundRequests(deps, {
      loop: this.#loop,
      routes: this.#routes,
      followTables: (changed) =>
        this.#applier.followTables(() => {
          this.#isTableChanged = true
          this.#tables.poke()
          changed()
        }),
    })
    this.#tables = new ReconcileLoop(loopDeps(deps, 'tables'), LANE_LOOP_TIMING, async (signal) => {
      if (!this.#isTableChanged) return
      this.#isTableChanged = false
      // What fails is tried again by the round that is requested too.
      await this.#applier.restoreTables(this.#newRound(), signal)
    })
    this.#phase = new LanePhases(deps)
    this.#departure = new Departure(deps, { node: config.node, wakeAt: (ms) => this.#requests.wakeAt(ms) })
    this.#endpoints = new EndpointWriter(deps)
    this.#refusals = new RefusalReports({ logger, metrics })
  }

  poke(): void {
    this.#requests.poke()
  }

  /**
   * A link came up, went down, became suspect or answers again. The routes change at once, and everything else later.
   */
  linksChanged(what: 'state' | 'suspect'): void {
    this.#requests.linksChanged(what)
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#routes.run(signal), this.#tables.run(signal), this.#loop.run(signal)])
  }

  /** Watches what the plan depends on. Returns the function that ends this. */
  follow(): () => void {
    return this.#requests.follow()
  }

  /** The plan of the last round. Undefined before the first. */
  get plan(): GatewayPlan | undefined {
    return this.#phase.plan
  }

  /** Why the last round failed. Undefined if it succeeded. */
  get failure(): Failure | undefined {
    return this.#outcome.failure
  }

  /** Why the lanes are not ready. Undefined if they are. */
  get notReady(): string | undefined {
    return this.failure?.message ?? this.#phase.notReady
  }

  /** This node is about to leave and has withdrawn its routes. */
  get withdrawn(): boolean {
    return this.#routes.withdrawn
  }

  /** Connections, by healthKey(), that were up when the routes were last applied: traffic can use them. */
  get routed(): ReadonlySet<string> {
    return this.#phase.routed
  }

  /** Throws what failed, after all other steps. */
  async #round(signal: AbortSignal): Promise<void> {
    const { config, probing, metrics } = this.#init
    const { cable, handover } = this.#deps

    const read = await readGatewayWorld(this.#deps, config, signal, this.#known())
    if (read === undefined) return
    const roamed = this.#calls.roamed(read.laneStates.values(), read.monotonicMs)
    // What relays have answered while the kernel was read need not wait for the next round.
    const world = this.#phase.look({ ...read, ...this.#init.relays?.known, roamed })
    if (this.#phase.returnsUntilMs !== undefined) this.#requests.wakeAt(this.#phase.returnsUntilMs)
    const up = upKeys(world)

    const plan = planGateway(world, cable.rules)
    const { lanes, refusals, nextAtMs } = plan.lanes
    this.#calls.planned(lanes, world.monotonicMs)
    this.#init.relays?.planned(world, plan.lanes)
    this.#init.portMappings?.planned(world, plan.lanes)
    this.#refusals.report(refusals)

    const round = this.#newRound()
    const { states: laneStates, routed, called } = await this.#applier.apply(world, plan, round, signal)

    const probed = lanes.filter((one) => [world.laneStates, laneStates].some((states) => states.has(one.remoteLane)))
    // Only links that are taken over start as up. A prober that is created later has received nothing yet.
    probing.setLanes(probed, this.#phase.plan === undefined ? up : new Set())
    const calledLinks = probed.flatMap(({ links }) => links.filter((link) => called.has(linkKey(link))))
    probing.called(new Set(calledLinks.map(({ remoteLane, cluster }) => healthKey(remoteLane, cluster))))
    // Set only now, so that a reader of the plan finds the probers of its peers.
    this.#phase.planned(plan, up)

    // The first plan restores what the Endpoint states of relays, so the world has not had it yet.
    const { statedCosts = [] } = this.#init.relays?.known ?? {}
    await round.attempt(() => this.#endpoints.write({ ...world, laneStates, statedCosts }, signal))
    metrics.laneMtu.reset()
    for (const lane of lanes) metrics.laneMtu.set(lane.mtu, laneLabels(lane))
    if (nextAtMs !== undefined) this.#requests.wakeAt(nextAtMs)
    // One device that cannot be created does not affect the links of the others.
    if (routed) this.#phase.routesApplied(up)
    const made = isMade(lanes, world.laneStates)
    if (!signal.aborted) handover?.tried((made ? probing.problem() : round.failure)?.message)
    round.finish()
  }

  /** What this process knows now and neither the kernel nor an object contains, except for what relays show. */
  #known(): Known {
    const { handover } = this.#deps
    const nextIdentity = this.#init.nextIdentity?.()
    const publicName = this.#init.publicName?.()
    return {
      health: this.#init.probing.health(),
      ...this.#calls.known,
      ...this.#init.portMappings?.known,
      ...(nextIdentity === undefined ? {} : { nextIdentity }),
      ...(publicName === undefined ? {} : { publicName }),
      ...this.#departure.look(this.#phase.plan === undefined),
      ...(handover === undefined ? {} : { handedOver: handover.handedOver() }),
    }
  }

  #asOfNow(world: GatewayWorld): GatewayWorld | undefined {
    if (this.#phase.plan === undefined) return undefined
    const known = { ...this.#known(), ...this.#init.relays?.known }
    return { ...world, ...known, ...readReach(this.#deps.api, world.node, world.own.spec.id) }
  }
}

/** Logs what was refused of the other clusters' claims when it changes. */
class RefusalReports {
  readonly #deps: Pick<GatewayDeps, 'logger'> & { readonly metrics: Pick<GatewayMetrics, 'refusals'> }
  #last = ''

  constructor(deps: Pick<GatewayDeps, 'logger'> & { readonly metrics: Pick<GatewayMetrics, 'refusals'> }) {
    this.#deps = deps
  }

  report(refusals: readonly Refusal[]): void {
    const { logger, metrics } = this.#deps
    metrics.refusals.set(refusals.length)
    const text = JSON.stringify(refusals)
    if (text === this.#last) return
    this.#last = text
    for (const { subject, reason, message } of refusals) logger.warn('refused', { subject, reason, why: message })
  }
}
