/** Keeps what the broker is told equal to this cluster's exports, and tells each export what became of it. */
import type { ClusterApi } from '../cluster/cluster-api.ts'
import { type ConditionFinding, setConditions } from '../model/conditions.ts'
import { parsePrefix, type Prefix } from '../model/ip.ts'
import type { ServiceExport } from '../model/objects.ts'
import type { Clock } from '../reconcile/clock.ts'
import { ReconcileLoop, type LoopInit } from '../reconcile/loop.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Publisher } from './broker-link.ts'
import { KeyedMemo } from './keyed-memo.ts'
import { loopDeps } from './loop-deps.ts'
import type { AgentMetrics } from './metrics.ts'
import { planConditions } from './plan-conditions.ts'
import { type ExportMemo, type ExportPlan, type ExportWorld, type PlannedExport, planExports } from './plan-exports.ts'
import type { MirrorWriter } from './mirror-writer.ts'
import type { SharedFindings } from './shared-findings.ts'

export interface PublishLoopDeps {
  readonly cluster: ClusterApi
  readonly publisher: Publisher
  readonly writer: MirrorWriter
  readonly findings: SharedFindings
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

export interface PublishLoopInit {
  /** Id of this cluster. */
  readonly own: string
  readonly loop: LoopInit
}

const LEFT: readonly ConditionFinding[] = [
  { type: 'Ready', status: 'False', reason: 'Pending', message: 'this cluster has left the clusterset' },
  { type: 'Conflict', status: 'False', reason: 'NoConflicts', message: '' },
]

export class PublishLoop {
  readonly #deps: PublishLoopDeps
  readonly #own: string
  readonly #loop: ReconcileLoop
  readonly #memo: ExportMemo = new KeyedMemo()
  #podPrefixes: { readonly text: string; readonly prefixes: readonly Prefix[] } | undefined

  constructor(deps: PublishLoopDeps, init: PublishLoopInit) {
    this.#deps = deps
    this.#own = init.own
    this.#loop = new ReconcileLoop(loopDeps(deps, 'publish'), init.loop, (signal) => this.#round(signal))
    for (const kind of ['ServiceExport', 'Service', 'EndpointSlice', 'Endpoint', 'Cluster'] as const) {
      deps.cluster.cache(kind).onChange(() => this.#loop.poke())
    }
    deps.publisher.onChange(() => this.#loop.poke())
    deps.findings.onVerdicts(() => this.#loop.poke())
  }

  run(signal: AbortSignal): Promise<void> {
    return this.#loop.run(signal)
  }

  /** Why nothing can be published yet; undefined once it can. */
  notReady(): string | undefined {
    const { cluster } = this.#deps
    for (const kind of ['ServiceExport', 'Service', 'EndpointSlice', 'Endpoint', 'Cluster'] as const) {
      if (!cluster.cache(kind).synced) return `${kind} objects are not read yet`
    }
    return cluster.cache('Cluster').get(this.#own) === undefined ? `Cluster ${this.#own} does not exist` : undefined
  }

  /** Says on every export that it is no longer one: this cluster has left. */
  async tellLeft(signal: AbortSignal): Promise<void> {
    const { cluster, clock } = this.#deps
    const changed = cluster
      .cache('ServiceExport')
      .list()
      .flatMap((object): ServiceExport[] => {
        const present = object.status?.conditions
        if (present === undefined) return []
        const conditions = setConditions(present, LEFT, clock.now())
        return conditions === present ? [] : [{ ...object, status: { ...object.status, conditions } }]
      })
    await this.#writeStatuses(changed, signal)
  }

  async #round(signal: AbortSignal): Promise<void> {
    const world = this.#world()
    // Publishing half of the exports would withdraw the other half.
    if (world === undefined) return
    const plan = planExports(world, this.#memo)
    this.#deps.publisher.setDesired(plan.records)
    this.#deps.findings.setExportPlan(plan)
    await this.#tellExports(plan, signal)
  }

  #world(): ExportWorld | undefined {
    const { cluster } = this.#deps
    const own = cluster.cache('Cluster').get(this.#own)
    if (this.notReady() !== undefined || own === undefined) return undefined
    return {
      cluster: this.#own,
      podPrefixes: this.#parsePodPrefixes(own.spec.podCIDRs),
      exports: cluster.cache('ServiceExport').list(),
      services: cluster.cache('Service').list(),
      slices: cluster.cache('EndpointSlice').list(),
      endpoints: cluster.cache('Endpoint').list(),
    }
  }

  /** The same object while the CIDRs are the same: the plan's memory goes by identity. */
  #parsePodPrefixes(texts: readonly string[]): readonly Prefix[] {
    const text = texts.join()
    if (this.#podPrefixes?.text === text) return this.#podPrefixes.prefixes
    const prefixes = texts.map((one) => parsePrefix(one, 'podCIDRs'))
    this.#podPrefixes = { text, prefixes }
    return prefixes
  }

  async #tellExports(plan: ExportPlan, signal: AbortSignal): Promise<void> {
    const { publisher, findings, clock, metrics } = this.#deps
    const counts = { exported: 0, pending: 0, failed: 0, invalid: 0 }
    const changed: ServiceExport[] = []
    for (const [key, planned] of plan.exports) {
      const present = planned.object.status?.conditions ?? []
      const wanted = planConditions(planned, publisher, findings.ownVerdicts.get(key))
      const conditions = setConditions(present, wanted, clock.now())
      counts[stateOf(planned, wanted.find(({ type }) => type === 'Ready')?.reason)] += 1
      if (conditions !== present) changed.push({ ...planned.object, status: { ...planned.object.status, conditions } })
    }
    for (const [state, count] of Object.entries(counts)) metrics.exports.set(count, { state })
    await this.#writeStatuses(changed, signal)
  }

  async #writeStatuses(changed: readonly ServiceExport[], signal: AbortSignal): Promise<void> {
    const failures = await this.#deps.writer.applyStatuses(changed, signal)
    // Deleted in the meantime: the cache will say so.
    const failure = failures.find(({ code }) => code !== 'NotFound')
    if (failure !== undefined) throw failure
  }
}

function stateOf(planned: PlannedExport, ready: string | undefined): 'exported' | 'pending' | 'failed' | 'invalid' {
  if (planned.valid.status !== 'True') return 'invalid'
  if (ready === 'Failed') return 'failed'
  return ready === 'Pending' ? 'pending' : 'exported'
}
