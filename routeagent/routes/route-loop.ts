/** Drives the routes: world → plan → kernel → RouteAgent status. */
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import { Round } from '../../kernel/apply/apply.ts'
import { Drift } from '../../kernel/kernel.ts'
import type { ChecksumOffload, ReceiveCoalescing, Sysctl } from '../../kernel/tuning/tuning.ts'
import type { NextHopTable, RouteTable } from '../../kernel/route/route.ts'
import {
  CONDITION_CLOSED_WITHOUT_TABLES,
  CONDITION_NODES_ANSWER,
  type Condition,
  MAX_FAILURE_LENGTH,
  NFT_TABLE_NODE,
  type OpenConnections,
  ROUTE_AGENT_BEAT_MS,
  type RouteAgent,
  VXLAN_DEVICE,
  fitText,
  isNodeOfSite,
  ownedByNode,
  setCondition,
} from '../../model/model.ts'
import type { ForwardPolicies } from '../../kernel/xfrm/xfrm.ts'
import type { Family } from '../../model/addresses/addresses.ts'
import { type ReasonCode, problem, problemText } from '../../model/reasons/reasons.ts'
import { type Clock, ReconcileLoop } from '../../reconcile/reconcile.ts'
import type { Failure } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { applyNodeRoutes } from './apply-node-routes.ts'
import {
  DEFAULT_VERSION,
  type FactsReader,
  LOOP_TIMING,
  OVERLAY_HOLD_MICROSECONDS,
  REPORT_AGAIN_MS,
  type NodeRouteWorld,
  type RouteAgentCaches,
  type RouteAgentConfig,
  type RouteAgentMetrics,
  forwardingMarker,
  loopDeps,
  rangeTexts,
  readWorld,
  withFacts,
} from '../world/world.ts'
import type { GatewayProbes } from '../probes/probes.ts'
import { ForwardGuard } from './forward-guard.ts'
import { type NodeHealth, planNodeHealth } from './plan-node-health.ts'
import { OverlayOffload } from './overlay-offload.ts'
import { type NodeRoutePlan, planNodeRoutes } from './plan-node-routes.ts'

export interface RouteLoopDeps {
  readonly api: ClusterApi
  readonly caches: RouteAgentCaches
  readonly routes: RouteTable
  readonly nextHops?: NextHopTable
  readonly sysctl: Sysctl
  readonly coalescing?: ReceiveCoalescing | undefined
  readonly checksumOffload?: ChecksumOffload | undefined
  /** Absent: pods are open while nft tables are missing, unless failClosed is true. */
  readonly forwardPolicies?: ForwardPolicies | undefined
  /** Whether the table of the family is in the kernel. */
  readonly isGuarding: (family: Family) => boolean
  readonly facts: FactsReader
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: RouteAgentMetrics
  /** Undefined if the table that decides who may use the overlay exists. */
  readonly unguarded: () => Unguarded | undefined
  /** The count for the status. Undefined if it is not known. */
  readonly openConnections: () => OpenConnections | undefined
  /** Addresses for the status. Undefined if they are not known yet: those of the previous status stay. */
  readonly podsOutside: () => readonly string[] | undefined
  /** Which nodes no longer answer, and what to probe. */
  readonly probes: Pick<GatewayProbes, 'silent' | 'late' | 'setNodes' | 'nodeStates' | 'problem'>
  /** Called after each plan. */
  readonly onPlan: () => void
}

/** The table does not exist, either because it has not been created yet or because of this failure. */
export interface Unguarded {
  readonly failure: string | undefined
}

/** Parts of the status that outlast a process, until it knows better. */
interface Said {
  readonly silentNodes: readonly string[]
  readonly conditions: readonly Condition[]
  readonly podsOutside: readonly string[]
  readonly podsOutsideTime: string | undefined
}

export class RouteLoop {
  readonly #deps: RouteLoopDeps
  readonly #config: RouteAgentConfig
  readonly #drift: Drift
  readonly #offload: OverlayOffload | undefined
  readonly #forwardGuard: ForwardGuard | undefined
  readonly #loop: ReconcileLoop
  /** The last plan, for /debug/plan. */
  plan: NodeRoutePlan | undefined
  /** Why the node is not ready. Undefined once a plan is in the kernel. */
  notReady: string | undefined = 'nothing planned yet'
  #applied = false
  /** The text of the object in the API, and when it was written, on the monotonic clock. */
  #reported: { readonly text: string; readonly at: number } | undefined
  #lastPlan = ''
  /** The site file leaves pods open while tables are missing. Undefined until the objects are read. */
  #isOpen: boolean | undefined
  #hasSaidOpen = false
  /** What the status says besides the plan. Undefined until the previous status was read. */
  #said: Said | undefined
  /** The addresses that this process reports, with the time that is written, and that time on the monotonic clock. */
  #beat: { readonly time: string; readonly at: number } | undefined
  #outside: { readonly text: string; readonly time: string; readonly at: number } | undefined

  constructor(deps: RouteLoopDeps, config: RouteAgentConfig) {
    this.#deps = deps
    this.#config = config
    const { checksumOffload: offload, forwardPolicies: policies, clock, logger, sysctl, isGuarding } = deps
    this.#offload =
      offload === undefined
        ? undefined
        : new OverlayOffload({ offload, logger, setting: config.overlayOffload ?? 'auto' })
    this.#drift = new Drift({ ...deps, repairs: deps.metrics.driftRepairs })
    this.#forwardGuard =
      policies === undefined
        ? undefined
        : new ForwardGuard({ policies, clock, logger, sysctl, isGuarding, drift: this.#drift })
    this.#loop = new ReconcileLoop(loopDeps(deps, 'routes'), LOOP_TIMING, (signal) => this.#round(signal))
  }

  poke(): void {
    this.#loop.poke()
  }

  run(signal: AbortSignal): Promise<void> {
    return this.#loop.run(signal)
  }

  /** Throws what failed, after all other steps. */
  async #round(signal: AbortSignal): Promise<void> {
    const reading = readWorld(this.#deps.caches, this.#config)
    if (!reading.ok) {
      this.notReady = `waiting for ${reading.waitingFor}`
      return
    }
    this.#sayOpen(reading.world)
    // Routes depend on devices and addresses of other programs, so the facts are always read again here.
    this.#deps.facts.invalidate()
    const facts = await this.#deps.facts.read(signal)
    const { probes } = this.#deps
    const plan = planNodeRoutes({
      ...withFacts(reading.world, facts),
      ...{ silentNodes: probes.silent(), lateGateways: probes.late() },
    })
    this.plan = plan
    this.#deps.onPlan()
    this.#logPlan(plan)
    if (!plan.ok) {
      this.notReady = problemText(plan)
      return this.#report(plan, plan, signal)
    }
    const unguarded = await this.#whyNoOverlay(plan.link.port, signal)
    if (unguarded !== undefined) {
      const { failure } = unguarded
      const reason = `waiting for table ${NFT_TABLE_NODE}, which protects the overlay`
      this.notReady = failure === undefined ? reason : `${reason}: ${failure}`
      if (failure === undefined) return
      return this.#report(plan, { message: this.notReady, reason: 'RoundFailed' }, signal)
    }
    const round = new Round({ logger: this.#deps.logger, drift: this.#drift })
    await applyNodeRoutes({ ...this.#deps, forwardingMarker: forwardingMarker(this.#config) }, plan, round, signal)
    if (round.changes > 0) this.#deps.logger.info('routes changed', { commands: round.changes })
    const held = await this.#deps.coalescing?.hold(VXLAN_DEVICE, OVERLAY_HOLD_MICROSECONDS)
    if (held !== undefined) this.#deps.logger.info('the overlay device joins TCP segments', { command: held })
    await this.#offload?.apply(plan.uplink, signal)
    await this.#forwardGuard?.apply(plan.policies, signal)
    this.#deps.probes.setNodes(plan.probed.address, plan.probed.nodes)
    this.#applied ||= round.failures === 0
    this.notReady = this.#applied ? undefined : round.failure?.message
    await this.#report(plan, round.failure, signal)
    round.finish()
  }

  /** The log says it once, and the condition for as long as it is true: an operator may have stated false before it also left out the XFRM policies. */
  #sayOpen({ exposure = 'pods', failClosed }: Pick<NodeRouteWorld, 'exposure' | 'failClosed'>): void {
    this.#isOpen = failClosed === false && exposure !== 'pods'
    if (!this.#isOpen || this.#hasSaidOpen) return
    this.#hasSaidOpen = true
    this.#deps.logger.info('spec.failClosed is false: pods are open while nft tables are missing')
  }

  // The device would unpack packets from any sender. An existing device was created under a table and stays, but that
  // table guards no other port.
  async #whyNoOverlay(port: number, signal: AbortSignal): Promise<Unguarded | undefined> {
    const unguarded = this.#deps.unguarded()
    if (unguarded === undefined) return undefined
    const found = (await this.#deps.routes.links(signal)).find(({ name }) => name === VXLAN_DEVICE)
    const isGuarded = found !== undefined && 'port' in found && found.port === port
    return isGuarded ? undefined : unguarded
  }

  async #report(plan: NodeRoutePlan, failure: Failure | undefined, signal: AbortSignal): Promise<void> {
    const { node } = this.#config
    const nodes = this.#deps.caches.nodes.list()
    // A Node that was removed has removed this object too, and the object must not be created without it.
    if (!isNodeOfSite(node, nodes)) return
    const health = await this.#health(plan, signal)
    const { clusters: paths, silentNodes } = health
    const { conditions = [] } = this.#said ?? {}
    const { podsOutside, podsOutsideTime } = this.#podsOutside()
    const why = failure ?? this.#deps.probes.problem()
    const openConnections = this.#deps.openConnections()
    const object: RouteAgent = {
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'RouteAgent',
      metadata: { name: node, ...ownedByNode(nodes.find(({ metadata }) => metadata.name === node)) },
      status: {
        version: this.#config.version ?? DEFAULT_VERSION,
        clusters: paths,
        reached: `${paths.filter(({ gateways }) => gateways.length > 0).length}/${paths.length}`,
        ...(plan.ok
          ? { podRanges: rangeTexts(plan.podRanges), underlay: plan.underlay, overlayPort: plan.link.port }
          : {}),
        ...(podsOutside.length === 0 ? {} : { podsOutside }),
        ...(podsOutside.length === 0 || podsOutsideTime === undefined ? {} : { podsOutsideTime }),
        ...(openConnections === undefined ? {} : { openConnections }),
        ...(openConnections === undefined && podsOutside.length === 0 ? {} : { heartbeatTime: this.#heartbeat() }),
        ...(silentNodes.length === 0 ? {} : { silentNodes }),
        ...(conditions.length === 0 ? {} : { conditions }),
        ...(why === undefined
          ? {}
          : { failure: fitText(problemText(why), MAX_FAILURE_LENGTH), failureReason: why.reason }),
      },
    }
    const text = JSON.stringify(object)
    // The object is also written at intervals, in case another program deleted it.
    const now = this.#deps.clock.monotonic()
    if (text === this.#reported?.text && now - this.#reported.at < REPORT_AGAIN_MS) return
    const { pathGateways, pathMtu, planProblems, podRanges, podRangesCut } = this.#deps.metrics
    pathGateways.reset()
    pathMtu.reset()
    for (const path of paths) {
      pathGateways.set(path.gateways.length, { cluster: path.cluster })
      pathMtu.set(path.mtu, { cluster: path.cluster })
    }
    planProblems.set(plan.ok ? plan.problems.length : 1)
    if (plan.ok) {
      podRanges.set(plan.podRanges.length)
      podRangesCut.set(plan.podRangesCut)
    }
    await this.#deps.api.apply(object, signal)
    await this.#deps.api.applyStatus(object, signal)
    this.#reported = { text, at: now }
  }

  /** The first one of a process differs from that of the process before. */
  #heartbeat(): string {
    const { clock } = this.#deps
    const at = clock.monotonic()
    if (this.#beat === undefined || at - this.#beat.at >= ROUTE_AGENT_BEAT_MS) {
      this.#beat = { at, time: new Date(clock.now()).toISOString() }
    }
    return this.#beat.time
  }

  /** What an earlier process has seen keeps its time: this one has not looked yet. */
  #podsOutside(): Pick<Said, 'podsOutside' | 'podsOutsideTime'> {
    const { podsOutside = [], podsOutsideTime } = this.#said ?? {}
    const reported = this.#deps.podsOutside()
    if (reported === undefined) return { podsOutside, podsOutsideTime }
    const { clock } = this.#deps
    const [text, at, before] = [reported.join(), clock.monotonic(), this.#outside]
    const isDue = before === undefined || before.text !== text || at - before.at >= ROUTE_AGENT_BEAT_MS
    const now = isDue ? { text, at, time: new Date(clock.now()).toISOString() } : before
    this.#outside = now
    return { podsOutside: reported, podsOutsideTime: now.time }
  }

  /** Without a plan, the previous statement about the nodes stays, because nothing new is known. */
  async #health(plan: NodeRoutePlan, signal: AbortSignal): Promise<NodeHealth> {
    const before = (this.#said ??= await this.#saidBefore(signal))
    if (!plan.ok) return { clusters: [], silentNodes: before.silentNodes, finding: undefined }
    const nodeStates = this.#deps.probes.nodeStates()
    const health = planNodeHealth({ paths: plan.paths, nodeStates, silentBefore: before.silentNodes })
    const { finding, silentNodes } = health
    const kept = before.conditions.filter(({ type }) => nodeStates.size > 0 || type !== CONDITION_NODES_ANSWER)
    const now = this.#deps.clock.now()
    const answers = finding === undefined ? kept : setCondition(kept, finding, now)
    const offloaded = this.#offload?.conditions(answers, now) ?? answers
    const closed = this.#forwardGuard?.conditions(offloaded, now) ?? offloaded
    const conditions = withStatedOpen(closed, this.#isOpen === true, now)
    this.#said = { ...before, silentNodes, conditions }
    return health
  }

  /**
   * The status of an earlier process on this node: a silent node stays silent until this process receives its answer.
   */
  async #saidBefore(signal: AbortSignal): Promise<Said> {
    const status = (await this.#deps.api.read('RouteAgent', this.#config.node, undefined, signal))?.status
    const { silentNodes = [], conditions = [], podsOutside = [], podsOutsideTime } = status ?? {}
    return { silentNodes, conditions, podsOutside, podsOutsideTime }
  }

  // Logs each set of problems once, not in every run.
  #logPlan(plan: NodeRoutePlan): void {
    const problems = plan.ok ? plan.problems.map((p) => problem(p.reason, `${p.subject}: ${p.message}`)) : [plan]
    const text = problems.map(problemText).join('; ')
    if (text !== this.#lastPlan) {
      for (const [reason, of] of Map.groupBy(problems, (one) => one.reason)) {
        this.#deps.logger.warn('some routes are left out', { reason, why: of.map(({ message }) => message) })
      }
    }
    this.#lastPlan = text
  }
}

const OPEN_WITHOUT_TABLES = 'OpenWithoutTables' satisfies ReasonCode

/** The conditions of the RouteAgent, with what the site file says about missing tables. */
function withStatedOpen(list: readonly Condition[], isOpen: boolean, nowMs: number): readonly Condition[] {
  const type = CONDITION_CLOSED_WITHOUT_TABLES
  if (isOpen) {
    const message = 'spec.failClosed of the site file is false: pods are open while nft tables are missing'
    return setCondition(list, { type, status: 'False', reason: OPEN_WITHOUT_TABLES, message }, nowMs)
  }
  const others = list.filter((one) => one.type !== type || one.reason !== OPEN_WITHOUT_TABLES)
  return others.length === list.length ? list : others
}
