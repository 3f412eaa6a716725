/**
 * Drives table sealane_node of one family. The first run replaces the table in one transaction. Later runs send only
 * the elements of the services that changed. A check of the kernel every RESYNC_MS repairs changes by other programs.
 * While the cluster has no pods of the family, there is no table.
 */
import type { FlowTable, PacketLog } from '../../kernel/nfnetlink/nfnetlink.ts'
import { KernelError } from '../../kernel/kernel.ts'
import type { Nft, NftStatement } from '../../kernel/nft/nft.ts'
import { plannedFamilies } from '../../model/addresses/addresses.ts'
import { changesAnswers, unansweredClusters } from '../../model/lanes/lanes.ts'
import { MEMBERSHIP_NAME, NFT_TABLE_NODE, VXLAN_DEVICE } from '../../model/model.ts'
import { type Clock, ReconcileLoop } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { type AddressFamily, addressFamily } from '../world/world.ts'
import {
  type FactsReader,
  LOOP_TIMING,
  type NodeRouteWorld,
  RESYNC_MS,
  type RouteAgentCaches,
  type RouteAgentConfig,
  type RouteAgentMetrics,
  changesSpec,
  loopDeps,
  ownCluster,
  readWorld,
  withFacts,
} from '../world/world.ts'
import { AccessReader, type PlannedAccess } from '../access/access.ts'
import { changesRoutes, clustersetRange } from '../routes/routes.ts'
import { BalancePlanner, type PortChange } from './plan-balancing.ts'
import {
  type NodeNftWorld,
  type Reporters,
  accessSite,
  endedProbe,
  nodeNftWorld,
  reporters,
  serviceContext,
} from './plan-node-table.ts'
import { overlayContext } from './plan-overlay-guard.ts'
import { NodeTable, type WantedTable } from './node-table.ts'
import { PassiveHealthLoop } from './passive-health.ts'
import { TrafficReader } from './read-traffic.ts'
import { StaleFlowLoop } from './stale-flows.ts'

export interface BalanceLoopDeps {
  readonly caches: RouteAgentCaches
  /** Its family is the one that is balanced. */
  readonly nft: Nft
  /** Absent: UDP flows to endpoints that have gone stay. */
  readonly flows?: FlowTable
  /** Absent: endpoints that refuse connections are not seen. */
  readonly packetLog?: PacketLog
  readonly facts: FactsReader
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: RouteAgentMetrics
  /** Whether a part of this process reads the samples of refused packets. */
  readonly samples?: { isFollowing(): boolean }
  /** Called when the table was created or removed, is not to be, or cannot be created for another reason than before. */
  readonly onGuarding?: () => void
  /** Called when endpoints have changed and the table has them. */
  readonly onBackends?: () => void
}

export class BalanceLoop {
  readonly #deps: BalanceLoopDeps
  readonly #config: Pick<RouteAgentConfig, 'node' | 'openPorts' | 'overlayPort' | 'failClosed'>
  readonly #family: AddressFamily
  readonly #table: NodeTable
  readonly #loop: ReconcileLoop
  readonly #staleFlows: StaleFlowLoop | undefined
  readonly #passiveHealth: PassiveHealthLoop | undefined
  /** The table has been applied in the life of this process. */
  #hasApplied = false
  #planner: BalancePlanner | undefined
  /** The planner that gets the changes: also a new one that is still being filled, and is not planned by yet. */
  #newest: BalancePlanner | undefined
  readonly #traffic: TrafficReader
  #world: NodeNftWorld | undefined
  /** Who may report unreachable hosts, in the world with these origins. */
  #reporters: { readonly origins: NodeNftWorld['origins']; readonly of: Reporters } | undefined
  readonly #accessReader: AccessReader
  #lastCheckMs = 0
  #worldChanged = true
  #answersChanged = true
  readonly #ending: EndingCheck
  /** There are no pods of the family, and no table. */
  #resting = false
  /** Cancels the run that takes changes which are held. */
  #stopHolding: (() => void) | undefined
  notReady: string | undefined = 'nothing applied yet'
  /** What the kernel refused in the last run. Undefined if nothing. */
  failure: string | undefined
  /** The kernel refused the table in the last run because it lacks what the table consists of. */
  #isLacking = false

  constructor(
    deps: BalanceLoopDeps,
    init: Pick<RouteAgentConfig, 'node' | 'openPorts' | 'overlayPort' | 'failClosed'>,
  ) {
    this.#deps = deps
    this.#config = init
    this.#table = new NodeTable(deps)
    this.#ending = new EndingCheck(deps)
    this.#family = addressFamily(deps.nft.family === 'ip' ? 4 : 6)
    this.#traffic = new TrafficReader(deps.caches, deps.clock)
    this.#accessReader = new AccessReader(deps.caches, this.#family, deps.logger)
    const name = this.#family.family === 4 ? 'balance' : 'balance-ipv6'
    this.#loop = new ReconcileLoop(loopDeps(deps, name), LOOP_TIMING, (signal) => this.#round(signal))
    const { flows } = deps
    const flowLoop = this.#family.family === 4 ? 'stale-flows' : 'stale-flows-ipv6'
    this.#staleFlows =
      flows === undefined ? undefined : new StaleFlowLoop({ ...deps, flows }, flowLoop, () => this.#flowPlan())
    this.#passiveHealth =
      flows === undefined
        ? undefined
        : new PassiveHealthLoop(
            { ...deps, flows },
            {
              family: this.#family.family,
              name: this.#family.family === 4 ? 'passive-health' : 'passive-health-ipv6',
              plan: () => this.#flowPlan(),
              reporters: () => this.#reportersNow(),
              onChange: () => this.poke(),
              onFollowing: () => this.factsChanged(),
            },
          )
  }

  poke(): void {
    this.#loop.poke()
  }

  async run(signal: AbortSignal): Promise<void> {
    const loops = [this.#loop, this.#staleFlows, this.#passiveHealth].filter((loop) => loop !== undefined)
    await Promise.all(loops.map((loop) => loop.run(signal)))
    this.#stopHolding?.()
  }

  // What could not be read must not count as gone.
  #flowPlan(): BalancePlanner | undefined {
    return this.#hasApplied && readWorld(this.#deps.caches, this.#config).ok ? this.#planner : undefined
  }

  /** The table of this family is in the kernel, as far as is known. */
  isGuarding(): boolean {
    return this.#table.world !== undefined
  }

  /**
   * It is not known yet whether this kernel takes the table of this family, or whether there is to be one. A failure
   * that may pass decides nothing.
   */
  isUndecided(): boolean {
    return !this.isGuarding() && !this.#resting && !this.#isLacking
  }

  /** The prefixes of each other cluster, of the family. */
  callers(): NodeNftWorld['callers'] | undefined {
    return this.#world?.callers
  }

  #reportersNow(): Reporters | undefined {
    const origins = this.#world?.origins
    if (origins === undefined) return undefined
    if (this.#reporters?.origins !== origins) this.#reporters = { origins, of: reporters(origins) }
    return this.#reporters.of
  }

  /** The addresses of backends on this node, as the kernel's table has them. Undefined while there is none. */
  localBackends(): ReadonlySet<string> | undefined {
    return this.#table.localBackends
  }

  /** Watches the caches: each change pokes the loop. Returns the function that ends this. */
  follow(): () => void {
    const { caches } = this.#deps
    const poked = (act: () => void): void => {
      act()
      this.poke()
    }
    const onWorld = (): void => poked(() => (this.#worldChanged = true))
    const stops = [
      caches.imports.onChange((change) => {
        const meta = change?.object.metadata
        if (change?.type === 'set') this.#pokeIf(this.#newest?.setImport(change.object))
        else this.#pokeIf(meta && this.#newest?.removeImport(meta.namespace ?? '', meta.name))
      }),
      caches.slices.onChange((change) => {
        const meta = change?.object.metadata
        if (change?.type === 'set') this.#pokeIf(this.#newest?.setSlice(change.object))
        else this.#pokeIf(meta && this.#newest?.removeSlice(meta.namespace ?? '', meta.name))
      }),
      this.#accessReader.follow(() => this.#pokeIf(true)),
      this.#traffic.follow(() => this.poke()),
      ...[caches.memberships, caches.nodes].map((c) => c.onChange(onWorld)),
      caches.clusters.onChange((change) => {
        if (changesSpec(change)) onWorld()
      }),
      // The table depends on which nodes have Endpoints.
      caches.endpoints.onChange((change) => {
        if (change?.type !== 'set' || change.previous === undefined) onWorld()
      }),
      caches.gateways.onChange((change) => {
        if (changesRoutes(change)) onWorld()
        // Shares change at once: nothing of this node is read for that.
        if (changesAnswers(change)) poked(() => (this.#answersChanged = true))
      }),
    ]
    return () => stops.forEach((stop) => stop())
  }

  /**
   * Pokes the loop unless the plan is the same all the same. Undefined: it is not known whether it is. While there is no
   * table, and none is to be, only another world changes that.
   */
  #pokeIf(differs: boolean | undefined): void {
    if (differs === false || (this.#resting && !this.#worldChanged)) return
    this.poke()
  }

  /** Watches the table for changes by other programs. Returns the function that ends this. */
  followTable(): () => void {
    return this.#table.follow(() => this.poke())
  }

  /** A device or an address of this machine has changed. */
  factsChanged(): void {
    this.#worldChanged = true
    this.poke()
  }

  async #round(signal: AbortSignal): Promise<void> {
    const state = (): string | undefined => (this.isGuarding() ? 'guarding' : this.#resting ? 'resting' : this.failure)
    const before = state()
    try {
      await this.reconcile(signal)
    } finally {
      if (state() !== before) this.#deps.onGuarding?.()
    }
  }

  /** One run. Throws KernelError; the next run then assumes nothing about the table. */
  async reconcile(signal: AbortSignal): Promise<void> {
    const started = this.#deps.clock.monotonic()
    // The loop's own interval begins before this one's, so a run that is slightly early checks too.
    const checking = started - this.#lastCheckMs >= 0.9 * RESYNC_MS
    if (this.#worldChanged || checking || (this.#planner === undefined && !this.#resting)) {
      if (!(await this.#readWorld(checking, signal))) return
    }
    const planner = this.#planner
    const world = this.#world
    if (planner === undefined || world === undefined) {
      if (!this.#resting) await this.#rest(signal)
      // This also applies after earlier rests, because the world may have been unreadable meanwhile.
      this.notReady = undefined
      if (checking) this.#lastCheckMs = started
      return
    }
    this.#resting = false
    const access = this.#planAccess(world, checking)
    if (this.#answersChanged) this.#takeAnswers()
    this.#traffic.update(planner)
    const changes = this.#takeChanges(planner)
    this.#staleFlows?.planned(changes)
    this.#passiveHealth?.planned()
    try {
      await this.#apply({ world, planner, changes, access }, checking, signal)
    } catch (error) {
      this.#staleFlows?.notApplied()
      this.failure = messageOf(error)
      this.#isLacking = isLacking(error)
      this.notReady &&= this.failure
      throw error
    }
    this.failure = undefined
    this.#isLacking = false
    this.#hasApplied = true
    this.#staleFlows?.applied(this.#table.world?.endsConnections === true)
    this.#passiveHealth?.applied(planner)
    if (changes.length > 0) this.#deps.onBackends?.()
    if (checking) this.#lastCheckMs = started
    this.notReady = this.#waitingForAccess(world.exposure)
    if (changes.length > 0) this.#deps.metrics.servicePorts.set(this.#family.family, planner.counts)
  }

  /**
   * A cluster whose link went down while the machine was read counts as reachable in this world still. As it is none of
   * those that do not answer any more, calls would go there for a moment, so in such a round none is taken off them.
   */
  #takeAnswers(): void {
    const now = unansweredClusters(this.#deps.caches.gateways.list())
    this.#traffic.setUnanswered(this.#worldChanged ? new Set([...now, ...this.#traffic.unanswered]) : now)
    this.#answersChanged = this.#worldChanged
  }

  async #apply(wanted: WantedTable, checking: boolean, signal: AbortSignal): Promise<void> {
    try {
      await this.#table.apply(wanted, checking, signal)
      if (wanted.world.endsConnections === true) this.#ending.accepted()
    } catch (error) {
      if (wanted.world.endsConnections !== true || !this.#ending.mayBeRefused(error)) throw error
      const { endsConnections: _, ...world } = wanted.world
      await this.#table.apply({ ...wanted, world }, checking, signal)
      this.#ending.refused(error)
      this.#world = world
    }
  }

  #takeChanges(planner: BalancePlanner): readonly PortChange[] {
    const { clock } = this.#deps
    const now = clock.monotonic()
    const changes = planner.takeChanges(now)
    this.#stopHolding?.()
    this.#stopHolding = planner.dueMs === undefined ? undefined : clock.setTimer(planner.dueMs - now, () => this.poke())
    return changes
  }

  async #readWorld(checking: boolean, signal: AbortSignal): Promise<boolean> {
    const { caches, facts } = this.#deps
    const reading = readWorld(caches, this.#config)
    if (!reading.ok) {
      if (!this.isGuarding()) this.notReady = `waiting for ${reading.waitingFor}`
      return false
    }
    this.#worldChanged = false
    try {
      const { family } = this.#family
      const waiting = this.isGuarding() ? undefined : await this.#waitingAtStart(reading.world.exposure, signal)
      if (waiting !== undefined) {
        // The table of an earlier process stays: a new one would admit nothing, or divide calls in another way.
        this.#worldChanged = true
        this.notReady = waiting
        return false
      }
      const world = withFacts(reading.world, await facts.read(signal))
      const isPlanned = plannedFamilies(ownCluster(world)).includes(family)
      if (isPlanned && (await this.#wouldCloseOverlay(world, signal))) {
        this.#worldChanged = true
        this.notReady = `waiting until Node ${this.#config.node} has an InternalIP of this machine`
        return false
      }
      // The kernel answers while the services are read.
      const checked = isPlanned
        ? this.#ending.check(endedProbe(family, clustersetRange(world, family)), signal)
        : undefined
      const updated = Promise.resolve().then(() => (isPlanned ? this.#updatePlanner(world, checking) : undefined))
      this.#planner = (await Promise.all([updated, checked]))[0]
      this.#newest = this.#planner
      this.#world = isPlanned ? this.#nftWorld(world) : undefined
    } catch (error) {
      // Otherwise the next run would use the old world, or none, until the next full check.
      this.#worldChanged = true
      throw error
    }
    return true
  }

  // After a restart the content of an existing table is not known. A new table without this node's Node would stop all
  // traffic of a working overlay.
  async #wouldCloseOverlay(world: NodeRouteWorld, signal: AbortSignal): Promise<boolean> {
    if (this.#family.family !== 4 || this.isGuarding() || overlayContext(world) !== undefined) return false
    if (!world.facts.links.some(({ name }) => name === VXLAN_DEVICE)) return false
    return this.#hasTable(signal)
  }

  async #hasTable(signal: AbortSignal): Promise<boolean> {
    return (await this.#deps.nft.tables(NFT_TABLE_NODE, signal)).includes(NFT_TABLE_NODE)
  }

  /** What is to be read before there is a first table. Without an old one, all rules of access are closed at first. */
  async #waitingAtStart(exposure: NodeNftWorld['exposure'], signal: AbortSignal): Promise<string | undefined> {
    const access = this.#waitingForAccess(exposure)
    if (access === undefined && !this.#traffic.isUnread) return undefined
    const hasTable = await this.#hasTable(signal)
    return (hasTable ? access : undefined) ?? this.#traffic.waitingFor(hasTable)
  }

  #waitingForAccess(exposure: NodeNftWorld['exposure']): string | undefined {
    const unread = this.#accessReader.waitingFor(exposure)
    return unread === undefined ? undefined : `waiting for ${unread}`
  }

  #planAccess(world: NodeNftWorld, checking: boolean): PlannedAccess {
    const self = this.#deps.caches.memberships.get(MEMBERSHIP_NAME)?.spec.clusterId ?? ''
    return this.#accessReader.plan(accessSite(world, { self, node: this.#config.node }), checking)
  }

  // While this node's Node is not usable, the overlay and its guard stay as they are, because the Node may exist all
  // the same.
  #nftWorld(world: NodeRouteWorld): NodeNftWorld {
    const now: NodeNftWorld = {
      ...nodeNftWorld(world, this.#family.family, this.#config.openPorts, this.#deps.samples?.isFollowing()),
      ...(this.#passiveHealth?.isFollowing === true ? { logsRefusals: true } : {}),
      ...(this.#ending.isPossible ? { endsConnections: true } : {}),
    }
    const before = this.#table.world
    if (now.overlay !== undefined || before?.overlay === undefined) return now
    return { ...now, overlay: before.overlay, overlayNodes: before.overlayNodes }
  }

  // Events keep the planner up to date. Reading the whole lists at intervals makes up for a missed event.
  #updatePlanner(world: NodeRouteWorld, checking: boolean): BalancePlanner {
    const context = serviceContext(world, this.#family.family)
    const known = this.#planner
    const planner = known ?? new BalancePlanner(context, (name) => namespaceStays(this.#deps.caches, name))
    planner.setContext(context)
    // From here on no change may be missed: the lists are read once, and the kernel may still be asked.
    this.#newest = planner
    if (known === undefined || checking) {
      planner.replaceAll(this.#deps.caches.imports.list(), this.#deps.caches.slices.list())
    }
    return planner
  }

  /** The pods of the family are gone, or there never were any. An earlier run may have left a table. */
  async #rest(signal: AbortSignal): Promise<void> {
    this.#staleFlows?.unplanned()
    await this.#table.remove(signal)
    this.#deps.metrics.servicePorts.set(this.#family.family, { served: 0, refused: 0, dropped: 0 })
    this.#resting = true
  }
}

/** What the kernel says where it does not have a rule. Other errors may pass. */
const LACKING: ReadonlySet<string> = new Set(['EOPNOTSUPP', 'EINVAL', 'ENOENT'])

function isLacking(error: unknown): error is KernelError {
  return error instanceof KernelError && LACKING.has(error.code)
}

/**
 * Whether the kernel has the rules that end open connections (Linux 5.9). If not, it would refuse the whole table. A
 * check finds that out; before 5.10 it does not look at hooks (commit c0391b6ab810), so from 5.6 on only the first table
 * with the rules does.
 */
class EndingCheck {
  readonly #deps: Pick<BalanceLoopDeps, 'nft' | 'clock' | 'logger'>
  #state: 'unknown' | 'checked' | 'accepted' | 'lacking' = 'unknown'
  #againMs = -Infinity
  #why: string | undefined

  constructor(deps: Pick<BalanceLoopDeps, 'nft' | 'clock' | 'logger'>) {
    this.#deps = deps
  }

  get isPossible(): boolean {
    return this.#state === 'checked' || this.#state === 'accepted'
  }

  /** Asks the kernel, if its answer is not known. After an error that may pass, once in RESYNC_MS. */
  async check(probe: readonly NftStatement[], signal: AbortSignal): Promise<void> {
    const { nft, clock } = this.#deps
    if (this.#state !== 'unknown' || clock.monotonic() < this.#againMs) return
    try {
      await nft.check(probe, signal)
      this.#state = 'checked'
    } catch (error) {
      signal.throwIfAborted()
      // The loop's own interval may be slightly early.
      this.#againMs = clock.monotonic() + 0.9 * RESYNC_MS
      if (isLacking(error)) this.#state = 'lacking'
      this.#say(error)
    }
  }

  /** The kernel has taken a table with the rules. */
  accepted(): void {
    this.#state = 'accepted'
  }

  /** Whether a table may have been refused for the rules. */
  mayBeRefused(error: unknown): boolean {
    return this.#state === 'checked' && isLacking(error)
  }

  /** The kernel has refused a table with the rules, and taken one without them. */
  refused(error: unknown): void {
    this.#state = 'lacking'
    this.#say(error)
  }

  #say(error: unknown): void {
    const why = messageOf(error)
    if (why !== this.#why) this.#deps.logger.info('a drain with --now ends no open TCP connections', { why })
    this.#why = why
  }
}

/** Namespaces are read from the first question on, so that only nodes that have seen a withdrawal read them. */
function namespaceStays({ callers }: RouteAgentCaches, name: string): boolean | undefined {
  const cache = callers.namespaces.open()
  if (!cache.synced) return undefined
  const found = cache.get(name)
  return found !== undefined && found.metadata.deletionTimestamp === undefined && found.status?.phase !== 'Terminating'
}
