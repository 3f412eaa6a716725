/**
 * Reports to the other members which of their exports this cluster imports and how many connections it has with them,
 * and finds which of them import this cluster's exports. Does both at most once in `reportMs`, since the input changes
 * much more often.
 */
import { isDeepStrictEqual } from 'node:util'
import type { ClusterApi } from '../../kubeapi/kubeapi.ts'
import {
  type Cluster,
  type MemberReport,
  type MemberStatus,
  NOT_IMPORTED_REASONS,
  type ServiceKey,
  type StoredRecord,
  isConditionTrue,
} from '../../model/model.ts'
import type { ReplicaChange } from '../../protocol/replica/replica.ts'
import { type Clock, type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import { sealaneVersion } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { ContactView, Publisher, ReplicaView } from '../link/link.ts'
import { ReportedConnections, type SilentAgents } from '../cluster/cluster.ts'
import { recordProblem } from '../import/import.ts'
import { type ImportedBy, type PlannedExport, planImportedBy, planImporters } from '../export/export.ts'
import {
  type AgentMetrics,
  type ImportFindings,
  type MirrorWriter,
  type SharedFindings,
  loopDeps,
} from '../loop/loop.ts'
import { planMemberReport, planMemberStatus } from './plan-member-report.ts'

export interface ReportLoopDeps {
  readonly api: Pick<ClusterApi, 'cache'>
  readonly publisher: Publisher
  readonly replica: ReplicaView
  readonly contact: ContactView
  readonly writer: MirrorWriter
  readonly findings: SharedFindings
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
  readonly silentAgents: Pick<SilentAgents, 'nodes' | 'onChange'>
}

export interface ReportLoopInit {
  /** Id of this cluster. */
  readonly own: string
  readonly allowedNamespaces: readonly string[]
  readonly excludedNamespaces: readonly string[]
  readonly reportMs: number
  readonly loop: LoopInit
}

/**
 * A member that does not import a new export has reported it after this many times reportMs: up to one until its
 * report, one until this loop's evaluation, and one for the transmission.
 */
const SETTLE_ROUNDS = 3

/**
 * The shortest time between two writes of the importers. Every component of the cluster watches the Clusters, and the CRD
 * of an earlier release drops the importers each time. A full round of the loop writes what was left.
 */
const IMPORTERS_MS = 60_000

export class ReportLoop {
  readonly #deps: ReportLoopDeps
  readonly #init: ReportLoopInit
  readonly #loop: ReconcileLoop
  readonly #subscriptions = new Subscriptions()
  readonly #connections: ReportedConnections
  readonly #version = sealaneVersion()
  #notImported: Readonly<Record<string, number>> | undefined
  /** Statuses by member. Undefined until all records have been read once. */
  #statuses: Map<string, MemberStatus> | undefined
  /** Since when the broker stores each export, monotonic. */
  #storedSince = new Map<ServiceKey, { readonly uid: string | undefined; readonly at: number }>()

  #unheardSince: ReadonlyMap<string, number> = new Map()
  /** When the importers were written last, monotonic. */
  #writtenAt = -Infinity

  constructor(deps: ReportLoopDeps, init: ReportLoopInit) {
    this.#deps = deps
    this.#init = init
    const timing = { ...init.loop, minMs: init.reportMs }
    this.#loop = new ReconcileLoop(loopDeps(deps, 'report'), timing, (signal) => this.#round(signal))
    const { findings, publisher, replica, api, clock, silentAgents } = deps
    this.#connections = new ReportedConnections(api, clock, silentAgents)
    const poke = (): void => this.#loop.poke()
    this.#subscriptions.add(replica.onChange((changes) => this.#note(changes)))
    this.#subscriptions.add(replica.onExported(poke))
    this.#subscriptions.add(publisher.onChange(poke))
    this.#subscriptions.add(this.#connections.onChange(poke))
    for (const kind of ['Gateway', 'Cluster'] as const) this.#subscriptions.add(api.cache(kind).onChange(poke))
    findings.onImports(poke)
    findings.onExports(poke)
    findings.onExpired(poke)
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#subscriptions.end()
  }

  #note(changes: readonly ReplicaChange[]): void {
    let isOfUse = false
    for (const change of changes) {
      if (change.record.body.kind !== 'MemberStatus') continue
      isOfUse = true
      if (this.#statuses === undefined) continue
      if (change.t === 'removed') this.#statuses.delete(change.record.key.cluster)
      else this.#take(this.#statuses, change.record)
    }
    if (isOfUse) this.#loop.poke()
  }

  /** A malformed report counts as none. */
  #take(statuses: Map<string, MemberStatus>, record: StoredRecord): void {
    const { key, body } = record
    if (body.kind !== 'MemberStatus') return
    // Reserved ids are accepted: whether a member is used is checked elsewhere.
    const found = recordProblem(record, {}, () => true)
    if (found === undefined) statuses.set(key.cluster, body)
    else {
      statuses.delete(key.cluster)
      const { reason, message: why } = found
      const what = { record: `${key.cluster}/MemberStatus`, reason, why }
      this.#deps.logger.warn('a record from the broker is left out', what)
    }
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { findings, replica } = this.#deps
    const { imports, expired } = findings
    // Incomplete findings would look like the complete ones.
    if (imports === undefined || expired === undefined || !replica.confirmed) return
    this.#reportOthers(imports)
    await this.#onOthers(imports, expired, signal)
  }

  /** Exports of other members that are not imported here, by reason. Undefined before the first report. */
  get notImported(): Readonly<Record<string, number>> | undefined {
    return this.#notImported
  }

  #reportOthers({ plan, namespaces, problems }: ImportFindings): void {
    const { own, allowedNamespaces: allowed, excludedNamespaces: excluded } = this.#init
    const lists = { allowed, excluded }
    const { view, clusters } = plan.basis
    const members = view.clusters
    const { exported } = this.#deps.replica
    const world = { own, view, exported, members, clusters, namespaces, lists, problems }
    const status = planMemberStatus(world)
    const openConnections = this.#connections.get()
    const report = this.#report(status)
    this.#deps.publisher.setStatus({ ...status, report, ...(openConnections === undefined ? {} : { openConnections }) })
    const counts: Record<string, number> = {}
    for (const reason of NOT_IMPORTED_REASONS) {
      const count = status.notImported.filter((one) => one.reason === reason).length
      this.#deps.metrics.notImported.set(count, { reason })
      if (count > 0) counts[reason] = count
    }
    this.#notImported = counts
  }

  #report({ notImported }: MemberStatus): MemberReport {
    const { api, findings, silentAgents } = this.#deps
    return planMemberReport({
      own: this.#init.own,
      version: this.#version,
      gateways: api.cache('Gateway').list(),
      routeAgents: api.cache('RouteAgent').list(),
      silent: silentAgents.nodes,
      clusters: api.cache('Cluster').list(),
      exports: findings.exportPlan?.exports ?? new Map(),
      conflicts: findings.ownFindings,
      notImported,
    })
  }

  async #onOthers({ plan }: ImportFindings, expired: ReadonlySet<string>, signal: AbortSignal): Promise<void> {
    const { findings } = this.#deps
    const exports = findings.exportPlan?.exports
    if (exports === undefined) return
    const settled = this.#settled(exports)
    const namespaces = new Set([...exports.keys()].map((key) => key.slice(0, key.indexOf('/'))))
    const members = plan.basis.view.clusters.keys()
    const statuses = this.#allStatuses()
    const unheardSince = this.#unheard()
    const importers = planImporters({ own: this.#init.own, members, expired, statuses, unheardSince, namespaces })
    findings.setImporters({ importers, settled })
    const own = this.#deps.api.cache('Cluster').get(this.#init.own)
    if (own === undefined) return
    const before = own.status?.importedBy ?? []
    await this.#writeImportedBy(own, planImportedBy({ importers, settled, exports, before }), signal)
  }

  /** Unlike a ServiceExport, whose CRD is of another project, the Cluster has a field for it. */
  async #writeImportedBy(own: Cluster, importedBy: ImportedBy, signal: AbortSignal): Promise<void> {
    const { writer, clock } = this.#deps
    const { importedBy: before, ...rest } = own.status ?? {}
    if (isDeepStrictEqual(before ?? [], importedBy)) return
    if (clock.monotonic() - this.#writtenAt < IMPORTERS_MS) return
    const status = importedBy.length === 0 ? rest : { ...rest, importedBy }
    const failures = await writer.applyStatuses([{ ...own, status }], signal)
    const failure = failures.find(({ code }) => code !== 'NotFound')
    if (failure !== undefined) throw failure
    this.#writtenAt = clock.monotonic()
  }

  /** Since when members have no connection to the broker. While the broker is unreachable, its last report counts. */
  #unheard(): ReadonlyMap<string, number> {
    const silent = this.#deps.contact.silent()
    if (silent === undefined) return this.#unheardSince
    const now = this.#deps.clock.monotonic()
    const before = this.#unheardSince
    this.#unheardSince = new Map([...silent].map(([id, ms]) => [id, before.get(id) ?? now - ms]))
    return this.#unheardSince
  }

  #allStatuses(): ReadonlyMap<string, MemberStatus> {
    if (this.#statuses !== undefined) return this.#statuses
    const statuses = new Map<string, MemberStatus>()
    for (const record of this.#deps.replica.records()) this.#take(statuses, record)
    this.#statuses = statuses
    return statuses
  }

  /** Exports that the broker has stored for long enough. Schedules another round while there are others. */
  #settled(exports: ReadonlyMap<ServiceKey, PlannedExport>): ReadonlyMap<ServiceKey, number> {
    const now = this.#deps.clock.monotonic()
    const before = this.#storedSince
    const settled = new Map<ServiceKey, number>()
    this.#storedSince = new Map()
    for (const [key, planned] of exports) {
      if (!this.#isStored(planned)) continue
      const { uid } = planned.object.metadata
      const known = before.get(key)
      const since = known?.uid === uid && known !== undefined ? known : { uid, at: now }
      this.#storedSince.set(key, since)
      if (now - since.at >= SETTLE_ROUNDS * this.#init.reportMs) settled.set(key, since.at)
    }
    if (settled.size < this.#storedSince.size) this.#loop.poke()
    return settled
  }

  #isStored({ object, recordKeys }: PlannedExport): boolean {
    const [first] = recordKeys
    if (first === undefined) return false
    const { publisher } = this.#deps
    // Until the broker has answered this process, the export's condition decides.
    return publisher.answered
      ? publisher.state(first).t === 'stored'
      : isConditionTrue(object.status?.conditions, 'Ready')
  }
}
