/** Reports the state of each export: its conditions, and Events when they change. */
import { isDeepStrictEqual } from 'node:util'
import type { ClusterApi, ClusterApiError, ObjectEvent } from '../../kubeapi/kubeapi.ts'
import {
  CONDITION_IMPORTED,
  type ConditionFinding,
  type ServiceExport,
  type ServiceKey,
  findCondition,
  setConditions,
  serviceKey,
} from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Publisher } from '../link/link.ts'
import { exportEvents, isRefusal, offeredClusters, planConditions } from './plan-conditions.ts'
import { type ExportPlan, type PlannedExport, importedCondition } from '../export/export.ts'
import type { AgentMetrics, MirrorWriter, SharedFindings } from '../loop/loop.ts'

export interface ExportConditionsDeps {
  readonly api: ClusterApi
  readonly publisher: Publisher
  readonly writer: MirrorWriter
  readonly findings: SharedFindings
  readonly clock: Clock
  readonly metrics: AgentMetrics
}

type State = 'exported' | 'pending' | 'failed' | 'invalid'

interface Change {
  readonly present: ServiceExport
  readonly object: ServiceExport
  readonly wanted: Wanted
}

/** The part of a status that is compared: the conditions without their times. */
interface Wanted {
  readonly findings: readonly ConditionFinding[]
  readonly clusters: ReturnType<typeof offeredClusters>
}

interface Written {
  readonly wanted: Wanted
  /** When it was written, monotonic. */
  readonly at: number
}

/**
 * The number of exports that are planned and written together. Of a thousand new exports, the broker then confirms most
 * before their conditions are planned.
 */
const AT_ONCE = 64
/** The cache shows a write within this time. */
const LAG_MS = 30_000

const LEFT: readonly ConditionFinding[] = [
  { type: 'Valid', status: 'Unknown', reason: 'Pending', message: 'this cluster has left the clusterset' },
  { type: 'Ready', status: 'False', reason: 'Pending', message: 'this cluster has left the clusterset' },
  { type: 'Conflict', status: 'False', reason: 'NoConflicts', message: '' },
  { type: CONDITION_IMPORTED, status: 'Unknown', reason: 'Pending', message: 'this cluster has left the clusterset' },
]

export class ExportConditions {
  readonly #deps: ExportConditionsDeps
  readonly #states = new Map<ServiceKey, State>()
  /** The findings written for an object, since the cache may show them later. */
  readonly #written = new WeakMap<ServiceExport, Written>()
  /** What this process wrote last. */
  readonly #sentClusters = new Map<ServiceKey, Wanted['clusters']>()

  constructor(deps: ExportConditionsDeps) {
    this.#deps = deps
  }

  /** Reports the exports. Throws ClusterApiError if a write failed, after all other writes are done. */
  async report(plan: ExportPlan, keys: Iterable<ServiceKey>, signal: AbortSignal): Promise<void> {
    const all = [...keys]
    const failures: ClusterApiError[] = []
    for (let i = 0; i < all.length; i += AT_ONCE) {
      failures.push(...(await this.#reportSome(plan, all.slice(i, i + AT_ONCE), signal)))
    }
    this.#count()
    if (failures[0] !== undefined) throw failures[0]
  }

  async #reportSome(plan: ExportPlan, keys: readonly ServiceKey[], signal: AbortSignal): Promise<ClusterApiError[]> {
    const { api, clock } = this.#deps
    const changes = keys.flatMap((key) => this.#change(key, plan.exports.get(key)) ?? [])
    const failures = await this.#write(
      changes.map(({ object }) => object),
      signal,
    )
    if (failures.length > 0) return failures
    for (const { present, object, wanted } of changes) {
      this.#written.set(present, { wanted, at: clock.monotonic() })
      this.#sentClusters.set(serviceKey(present.metadata.namespace ?? '', present.metadata.name), wanted.clusters)
      const events = exportEvents(object, present.status?.conditions ?? [], object.status?.conditions ?? [])
      for (const event of events) api.report(event satisfies ObjectEvent)
    }
    return []
  }

  /** Sets the conditions of every export after this cluster has left. */
  async reportLeft(signal: AbortSignal): Promise<void> {
    const { api, clock } = this.#deps
    const changed = api
      .cache('ServiceExport')
      .list()
      .flatMap((object): ServiceExport[] => {
        const present = object.status?.conditions
        if (present === undefined) return []
        const reported = LEFT.filter(
          ({ type }) => type !== CONDITION_IMPORTED || findCondition(present, type) !== undefined,
        )
        const conditions = setConditions(present, reported, clock.now())
        const { clusters: _left, ...rest } = object.status ?? {}
        return conditions === present ? [] : [{ ...object, status: { ...rest, conditions } }]
      })
    const [failure] = await this.#write(changed, signal)
    if (failure !== undefined) throw failure
  }

  #change(key: ServiceKey, planned: PlannedExport | undefined): Change | undefined {
    const { api, publisher, findings, clock } = this.#deps
    // The object in the plan may have an outdated status.
    const present = api.cache('ServiceExport').get(key.slice(key.indexOf('/') + 1), key.slice(0, key.indexOf('/')))
    if (planned === undefined || present === undefined) {
      this.#states.delete(key)
      this.#sentClusters.delete(key)
      return undefined
    }
    const elsewhere = { finding: findings.ownFindings.get(key), imported: this.#imported(key, planned) }
    const reported = planConditions({ ...planned, object: present }, publisher, elsewhere)
    this.#states.set(key, stateOf(planned, reported.find(({ type }) => type === 'Ready')?.reason))
    const before = present.status?.conditions ?? []
    const conditions = setConditions(before, reported, clock.now())
    const clusters = offeredClusters(planned)
    const wanted = { findings: reported, clusters }
    const isSame =
      conditions === before &&
      (isDeepStrictEqual(present.status?.clusters, clusters) || this.#isPruned(key, present, clusters))
    if (isSame || this.#isWritten(present, wanted)) return undefined
    const { clusters: _before, ...rest } = present.status ?? {}
    const status = { ...rest, ...(clusters === undefined ? {} : { clusters }), conditions }
    return { present, object: { ...present, status }, wanted }
  }

  #imported(key: ServiceKey, { offered }: PlannedExport): ConditionFinding | undefined {
    const found = this.#deps.findings.importers
    const storedAt = found?.settled.get(key)
    if (found === undefined || storedAt === undefined) return undefined
    return importedCondition(key, found.importers, storedAt, offered?.clusters)
  }

  /** The API server dropped `clusters`, which the CRD of another release does not have. */
  #isPruned(key: ServiceKey, { status }: ServiceExport, clusters: Wanted['clusters']): boolean {
    return status?.clusters === undefined && isDeepStrictEqual(this.#sentClusters.get(key), clusters)
  }

  #isWritten(object: ServiceExport, wanted: Wanted): boolean {
    const written = this.#written.get(object)
    if (written === undefined || this.#deps.clock.monotonic() - written.at > LAG_MS) return false
    return isDeepStrictEqual(written.wanted, wanted)
  }

  #count(): void {
    const counts: Record<State, number> = { exported: 0, pending: 0, failed: 0, invalid: 0 }
    for (const state of this.#states.values()) counts[state] += 1
    for (const [state, count] of Object.entries(counts)) this.#deps.metrics.exports.set(count, { state })
  }

  /** Gives the failures that a later try may resolve. */
  async #write(changed: readonly ServiceExport[], signal: AbortSignal): Promise<ClusterApiError[]> {
    const failures = await this.#deps.writer.applyStatuses(changed, signal)
    // The object was deleted meanwhile, and the cache will show that.
    return failures.filter(({ code }) => code !== 'NotFound')
  }
}

function stateOf(planned: PlannedExport, ready: string | undefined): State {
  if (planned.valid.status !== 'True') return 'invalid'
  if (ready !== undefined && isRefusal(ready)) return 'failed'
  return ready === 'Pending' ? 'pending' : 'exported'
}
