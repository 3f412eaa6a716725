/**
 * Counts the calls of this node's pods to services and to other clusters, and the calls of other clusters to these pods.
 * The kernel counts in tables of its own (plan-flows-table.ts), which are read every READ_EACH_MS, and sooner while
 * somebody looks. Nothing depends on these tables: without them calls go on.
 */
import { setImmediate } from 'node:timers/promises'
import {
  type Nft,
  type NftStatement,
  elementDiff,
  elementStatements,
  formatNft,
  removeTable,
} from '../../kernel/nft/nft.ts'
import type { CallLookup, LoggedPacket, PacketLog } from '../../kernel/nfnetlink/nfnetlink.ts'
import { KernelError, type KernelErrorCode, isNotFound } from '../../kernel/kernel.ts'
import {
  type Family,
  type Prefix,
  type RemoteCluster,
  addressBits,
  aggregate,
  formatAddress,
  formatPrefix,
  ofFamily,
  plannedFamilies,
  podPrefixes,
  withoutContained,
} from '../../model/addresses/addresses.ts'
import {
  type FlowCounts,
  type FlowPage,
  type FlowParties,
  MAX_FLOW_ROWS,
  NFLOG_GROUP_FLOWS,
  NFT_TABLE_FLOWS,
  NO_FLOWS,
} from '../../model/model.ts'
import { type Clock, ReconcileLoop } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { clusterValidation, clustersetRange } from '../routes/routes.ts'
import {
  type FactsReader,
  type KernelFacts,
  LOOP_TIMING,
  type NodeRouteWorld,
  RESYNC_MS,
  type RouteAgentCaches,
  type RouteAgentConfig,
  type RouteAgentMetrics,
  addressFamily,
  changesSpec,
  loopDeps,
  ownCluster,
  rangesOfNode,
  readWorld,
  withFacts,
} from '../world/world.ts'
import { CallEnds } from './call-ends.ts'
import { CallParties } from './call-parties.ts'
import { type CallBegun, CallSamples } from './call-samples.ts'
import {
  ALL_SETS,
  type FlowsTable,
  IDLE_MINUTES,
  SAMPLES_A_SECOND,
  fixedStatements,
  flowElements,
  planFlowsTable,
} from './plan-flows-table.ts'
import { FlowReadings, FlowTotals, RECENT_SECONDS } from './plan-totals.ts'

export const READ_EACH_MS = 10_000
/** While somebody looks at the page. */
const READ_SOON_MS = 1000
/** Reading may take one part in so many of the time. */
const REST = 200
/** While somebody looks at the page. */
const REST_AWAITED = 20
/** The longest pause nonetheless: the kernel forgets what is idle, and what was not read by then is lost. */
const MOST_PAUSE_MS = (IDLE_MINUTES * 60_000 * 2) / 3
/** Calls whose ends are looked up without a break. */
const SLICE = 500
/** Errors that come again however often it is tried: the kernel, or the tool, does not know what the rules use. */
const LASTING: readonly KernelErrorCode[] = ['EOPNOTSUPP', 'EINVAL', 'ENOENT']
/** Services, clusters, and calling namespaces, that have labels of their own in metrics. The first that are called get them. */
export const MAX_LABELS = 20
const OTHER = 'other'

export interface FlowLoopDeps {
  readonly caches: RouteAgentCaches
  /** One for each family. */
  readonly nfts: readonly Nft[]
  /** Absent: calls are counted, but not sampled. */
  readonly packetLog?: PacketLog
  /** Absent: how calls end is not counted. */
  readonly lookup?: CallLookup
  readonly facts: FactsReader
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: RouteAgentMetrics
  /** CPUs that the kernel may have, on which the memory of the tables depends. */
  readonly cpus: number
}

/** The table of one family. */
interface Table {
  readonly nft: Nft
  readonly readings: FlowReadings
  /** Undefined: what the kernel has is not known. */
  sent: Sent | undefined
  /** This process has made sure that there is none. */
  isGone: boolean
}

interface Sent {
  readonly fixed: string
  readonly table: FlowsTable
  /** As the kernel listed it, without elements. Undefined: not listed yet. */
  structure: string | undefined
}

/** What the tables depend on, as it was when they were last planned. */
interface Planned {
  readonly facts: KernelFacts
  readonly tables: readonly { readonly table: Table; readonly wanted: FlowsTable }[]
}

export class FlowLoop {
  readonly #deps: FlowLoopDeps
  readonly #config: Pick<RouteAgentConfig, 'node' | 'overlayPort'>
  readonly #loop: ReconcileLoop
  readonly #tables: readonly Table[]
  readonly #totals = new FlowTotals()
  readonly #parties: CallParties
  readonly #samples: CallSamples
  readonly #ends: CallEnds
  /** Connection tracking is looked at from then on. */
  #lookMs = -Infinity
  readonly #since: string
  readonly #services = new Set<string>()
  readonly #clusters = new Set<string>()
  readonly #callers = new Set<string>()
  #dueMs = -Infinity
  /** Of the last round. */
  #reading = { endMs: -Infinity, tookMs: 0 }
  /** Somebody has looked at the page since then. */
  #isAwaited = false
  #triedMs = -Infinity
  #checkMs = -Infinity
  #planned: Planned | undefined
  #stopFollowing: (() => void) | undefined
  /** Why nothing is sampled, and when that is tried again. */
  #unsampled: { readonly why: string; readonly againMs: number } | undefined
  #uncounted: string | undefined

  constructor(deps: FlowLoopDeps, config: Pick<RouteAgentConfig, 'node' | 'overlayPort'>) {
    this.#deps = deps
    this.#config = config
    this.#tables = deps.nfts.map((nft) => ({ nft, readings: new FlowReadings(), sent: undefined, isGone: false }))
    this.#parties = new CallParties(deps.caches, config.node)
    this.#samples = new CallSamples(deps.clock, this.#parties, {
      onTime: (parties, ms) => this.#timed(parties, ms),
      onBegun: (call) => {
        if (deps.lookup !== undefined) this.#ends.begun(call)
      },
    })
    this.#ends = new CallEnds(deps.clock, (begun, end, wasAnswered) => {
      const call = { ...begun, names: this.#parties.namesOf(begun.call, begun.names) }
      this.#ended(call, end === 'timed-out')
      if (end === 'timed-out' && wasAnswered) this.#samples.timedOut(call)
    })
    this.#since = new Date(deps.clock.now()).toISOString()
    const timing = { ...LOOP_TIMING, resyncMs: READ_EACH_MS }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'flows'), timing, (signal) => this.#round(signal))
  }

  async run(signal: AbortSignal): Promise<void> {
    const { memberships, nodes, clusters, imports } = this.#deps.caches
    const stops = [
      this.#parties.follow(),
      ...[memberships, nodes].map((cache) => cache.onChange(() => (this.#planned = undefined))),
      clusters.onChange((change) => {
        if (changesSpec(change)) this.#planned = undefined
      }),
      // The first and the last one decide whether there are tables.
      imports.onChange(() => {
        if (imports.list().length < 2) this.#planned = undefined
      }),
    ]
    await this.#loop.run(signal)
    for (const stop of stops) stop()
    this.#stopFollowing?.()
    this.#stopFollowing = undefined
  }

  /** The pod of this node that has the address. */
  podAt(address: string): ReturnType<CallParties['podAt']> {
    return this.#parties.podAt(address)
  }

  /** What is known now. Makes the next reading come soon, for whoever looks again. */
  page(): FlowPage {
    const { clock } = this.#deps
    const nowMs = clock.monotonic()
    this.#isAwaited = true
    if (nowMs - this.#triedMs >= READ_SOON_MS) this.#loop.poke()
    this.#samples.expire()
    const problem = this.#uncounted ?? this.#unsampled?.why
    const { rows, rest } = this.#totals.rows(nowMs)
    return {
      since: this.#since,
      recentSeconds: RECENT_SECONDS,
      rows: rows.slice(0, MAX_FLOW_ROWS),
      rest,
      lines: this.#samples.lines,
      sampled: SAMPLES_A_SECOND,
      ...(problem === undefined ? {} : { problem }),
    }
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps
    // However rarely tables are read: entries of UDP last half a minute.
    this.#samples.expire()
    await this.#lookUp(signal)
    const startedMs = clock.monotonic()
    const { endMs, tookMs } = this.#reading
    const restMs = Math.min((this.#isAwaited ? REST_AWAITED : REST) * tookMs, MOST_PAUSE_MS)
    if (startedMs < Math.max(this.#dueMs, endMs + restMs)) return
    const tables = await this.#plan(signal)
    if (tables === undefined) return
    this.#triedMs = startedMs
    this.#isAwaited = false
    try {
      if (tables.length > 0) await this.#follow(signal)
      const isChecked = startedMs >= this.#checkMs
      const took = { reading: 0, checking: 0 }
      for (const { table, wanted } of tables) {
        const beganMs = clock.monotonic()
        if (table.sent !== undefined) await this.#read(table, signal)
        const readByMs = clock.monotonic()
        took.reading += readByMs - beganMs
        if (isChecked) await this.#check(table, signal)
        took.checking += clock.monotonic() - readByMs
        await this.#apply(table, { ...wanted, isSampled: this.#stopFollowing !== undefined }, signal)
      }
      for (const table of this.#tables.filter((one) => tables.every((other) => other.table !== one)))
        await this.#remove(table, signal)
      if (isChecked) this.#checkMs = startedMs + Math.max(RESYNC_MS, REST * took.checking)
      this.#uncounted = undefined
      if (this.#stopFollowing !== undefined) this.#unsampled = undefined
      this.#totals.trim(startedMs)
      this.#reading = { endMs: clock.monotonic(), tookMs: took.reading }
    } catch (error) {
      this.#failed(error, signal)
      this.#dueMs = clock.monotonic() + RESYNC_MS
    }
  }

  /** The tables that are wanted now. Undefined while not everything has been read: what there is stays. */
  async #plan(
    signal: AbortSignal,
  ): Promise<readonly { readonly table: Table; readonly wanted: FlowsTable }[] | undefined> {
    const { caches, facts } = this.#deps
    const reading = readWorld(caches, this.#config)
    if (!reading.ok) return undefined
    const known = await facts.read(signal)
    if (this.#planned?.facts === known) return this.#planned.tables
    const world = withFacts(reading.world, known)
    const { clusters } = clusterValidation(world)
    const isWanted = clusters.length > 0 || caches.imports.list().length > 0
    const planned = isWanted ? plannedFamilies(ownCluster(world)) : []
    const tables = this.#tables.flatMap((table) => {
      const family = table.nft.family === 'ip' ? 4 : 6
      return planned.includes(family) ? [{ table, wanted: this.#wanted(world, family, clusters) }] : []
    })
    this.#planned = { facts: known, tables }
    return tables
  }

  #wanted(world: NodeRouteWorld, family: Family, clusters: readonly RemoteCluster[]): FlowsTable {
    const { networks, ranges } = rangesOfNode(world, family, Infinity)
    const range = clustersetRange(world, family)
    this.#parties.setRanges({
      family: addressFamily(family),
      self: world.self,
      clustersetIpRange: range,
      podCidrs: podPrefixes(ownCluster(world), family),
      clusters: new Map(clusters.map(({ id, prefixes }) => [id, ofFamily(prefixes, family).map(formatPrefix)])),
    })
    return {
      family: addressFamily(family),
      clustersetIpRange: formatPrefix(range),
      ownPods: elementTexts(aggregate([...networks, ...ranges])),
      remote: elementTexts(
        aggregate(clusters.flatMap(({ prefixes }) => prefixes).filter((one) => one.family === family)),
      ),
      isSampled: false,
      cpus: this.#deps.cpus,
    }
  }

  async #apply(table: Table, wanted: FlowsTable, signal: AbortSignal): Promise<void> {
    const { sent, nft } = table
    const fixed = formatNft(fixedStatements(wanted), nft.family)
    let statements: readonly NftStatement[]
    if (sent?.fixed === fixed) {
      statements = elementStatements(NFT_TABLE_FLOWS, elementDiff(flowElements(sent.table), flowElements(wanted)))
    } else {
      statements = planFlowsTable(wanted)
    }
    if (statements.length === 0) return
    table.sent = undefined
    table.isGone = false
    try {
      await nft.run(statements, signal)
    } catch (error) {
      signal.throwIfAborted()
      if (!wanted.isSampled) throw error
      // The kernel may be without logs.
      this.#stopFollowing?.()
      this.#stopFollowing = undefined
      this.#notSampled(error)
      await this.#apply(table, { ...wanted, isSampled: false }, signal)
      return
    }
    if (sent?.fixed !== fixed) {
      table.readings.replaced()
      this.#ends.clear()
    }
    table.sent = { fixed, table: wanted, structure: sent?.fixed === fixed ? sent.structure : undefined }
    if (table.sent.structure === undefined) await this.#check(table, signal)
  }

  /** Another program may have emptied or changed the table. It is then made again by #apply(). */
  async #check(table: Table, signal: AbortSignal): Promise<void> {
    const { sent } = table
    if (sent === undefined) return
    try {
      if (await this.#isAsSent(table, sent, signal)) return
    } catch (error) {
      signal.throwIfAborted()
      // Other programs may have so many tables that they cannot be listed. Calls are counted all the same.
      this.#deps.logger.debug('the table that counts calls cannot be checked', { why: messageOf(error) })
      return
    }
    this.#deps.logger.info('another program changed the table that counts calls; it is made again')
    table.sent = undefined
  }

  async #isAsSent({ nft }: Table, sent: Sent, signal: AbortSignal): Promise<boolean> {
    const structure = await nft.structure(NFT_TABLE_FLOWS, signal)
    if (structure === undefined || (sent.structure ?? structure) !== structure) return false
    sent.structure = structure
    for (const [set, wanted] of flowElements(sent.table)) {
      const found = await nft.elements(NFT_TABLE_FLOWS, set, signal)
      if (found.length !== wanted.size || found.some(({ key }) => !wanted.has(key))) return false
    }
    return true
  }

  async #read(table: Table, signal: AbortSignal): Promise<void> {
    const { nft, readings } = table
    const { clock, metrics } = this.#deps
    let counts
    try {
      counts = await nft.counts(NFT_TABLE_FLOWS, ALL_SETS, signal)
    } catch (error) {
      table.sent = undefined
      if (!isNotFound(error)) throw error
      return
    }
    const atMs = clock.monotonic()
    const steps = readings.takeInSlices(counts, (call) => this.#parties.hasNoEndpoint(call))
    let step = steps.next()
    while (step.done !== true) {
      await setImmediate()
      step = steps.next()
    }
    const { calls, uncounted } = step.value
    for (const [i, { counts: part, ...call }] of calls.entries()) {
      if (i % SLICE === SLICE - 1) await setImmediate()
      const parties = this.#parties.of(call)
      this.#totals.add(parties, part, atMs)
      this.#count(parties, part)
    }
    if (uncounted === 0) return
    metrics.callsUncounted.inc({}, uncounted)
    this.#totals.addRest({ ...NO_FLOWS, opened: uncounted }, atMs)
  }

  async #remove(table: Table, signal: AbortSignal): Promise<void> {
    // An earlier process may have left one.
    if (table.isGone) return
    await removeTable(table.nft, NFT_TABLE_FLOWS, signal)
    table.sent = undefined
    table.isGone = true
    table.readings.replaced()
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const { packetLog } = this.#deps
    if (packetLog === undefined || this.#stopFollowing !== undefined) return
    if (this.#deps.clock.monotonic() < (this.#unsampled?.againMs ?? -Infinity)) return
    try {
      this.#stopFollowing = await packetLog.follow(NFLOG_GROUP_FLOWS, (packet) => this.#logged(packet), signal)
    } catch (error) {
      signal.throwIfAborted()
      this.#notSampled(error)
    }
  }

  #logged(packet: LoggedPacket): void {
    this.#samples.take(packet)
    this.#ends.take(packet)
  }

  async #lookUp(signal: AbortSignal): Promise<void> {
    const { lookup, clock, logger } = this.#deps
    if (lookup === undefined || clock.monotonic() < this.#lookMs) return
    try {
      await this.#ends.look(lookup, signal)
    } catch (error) {
      signal.throwIfAborted()
      logger.debug('how calls end is not counted', { why: messageOf(error) })
      this.#ends.clear()
      this.#lookMs = clock.monotonic() + RESYNC_MS
    }
  }

  #ended({ names: { parties } }: CallBegun, isTimeOut: boolean): void {
    this.#totals.add(parties, { ...NO_FLOWS, ended: 1, timedOut: isTimeOut ? 1 : 0 }, this.#deps.clock.monotonic())
    if (parties.way === 'in') return
    const { service, cluster, caller } = this.#labels(parties)
    const end = isTimeOut ? 'timed_out' : 'other'
    this.#deps.metrics.callEnds.inc({ service, cluster, end })
    this.#deps.metrics.callerCallEnds.inc({ caller, end })
  }

  #notSampled(error: unknown): void {
    const isLasting = error instanceof KernelError && LASTING.includes(error.code)
    const why = messageOf(error)
    if (why !== this.#unsampled?.why) this.#deps.logger.info('calls are counted, but not sampled', { why })
    this.#unsampled = { why, againMs: isLasting ? Infinity : this.#deps.clock.monotonic() + RESYNC_MS }
  }

  #count(parties: FlowParties, counts: FlowCounts): void {
    if (parties.way === 'in') return
    const { service, cluster, caller } = this.#labels(parties)
    const { calls, callBytes, callerCalls, callerBytes } = this.#deps.metrics
    for (const outcome of ['opened', 'answered', 'refused', 'unanswered'] as const) {
      if (counts[outcome] === 0) continue
      calls.inc({ service, cluster, outcome }, counts[outcome])
      callerCalls.inc({ caller, outcome }, counts[outcome])
    }
    for (const way of ['sent', 'received'] as const) {
      const bytes = counts[`${way}Bytes`]
      if (bytes === 0) continue
      callBytes.inc({ service, cluster, way }, bytes)
      callerBytes.inc({ caller, way }, bytes)
    }
  }

  #timed(parties: FlowParties, ms: number): void {
    this.#totals.addTime(parties, ms)
    if (parties.way === 'in') return
    const { service, cluster, caller } = this.#labels(parties)
    const { connectSeconds, serviceConnectSeconds, callerConnectSeconds } = this.#deps.metrics
    connectSeconds.observe(ms / 1000, { cluster })
    serviceConnectSeconds.observe(ms / 1000, { service })
    callerConnectSeconds.observe(ms / 1000, { caller })
  }

  #labels({ service, cluster, namespace }: FlowParties): Readonly<Record<'service' | 'cluster' | 'caller', string>> {
    return {
      service: label(this.#services, service),
      cluster: label(this.#clusters, cluster),
      caller: label(this.#callers, namespace),
    }
  }

  #failed(error: unknown, signal: AbortSignal): void {
    signal.throwIfAborted()
    for (const table of this.#tables) table.sent = undefined
    const why = messageOf(error)
    if (why !== this.#uncounted) this.#deps.logger.warn('calls are not counted', { reason: 'CallsNotCounted', why })
    this.#uncounted = why
  }
}

/** A label stays with who has it: the counts of a label that others took over would fall. */
function label(taken: Set<string>, name: string | undefined): string {
  if (name === undefined) return 'unknown'
  if (!taken.has(name) && taken.size >= MAX_LABELS) return OTHER
  taken.add(name)
  return name
}

/** In the form that nft prints: a single address has no prefix length. */
function elementTexts(prefixes: readonly Prefix[]): string[] {
  return withoutContained(prefixes).map((prefix) =>
    prefix.length === addressBits(prefix.family) ? formatAddress(prefix) : formatPrefix(prefix),
  )
}
