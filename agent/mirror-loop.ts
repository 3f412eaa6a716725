/** Keeps the local API's view of the clusterset equal to the replica. */
import { isDeepStrictEqual } from 'node:util'
import type { ClusterApi } from '../cluster/cluster-api.ts'
import { setConditions } from '../model/conditions.ts'
import type { ServiceKey } from '../model/ids.ts'
import { parsePrefix, type Prefix } from '../model/ip.ts'
import { type KubeObject, MEMBERSHIP_NAME, type ServiceImport } from '../model/objects.ts'
import type { Clock } from '../reconcile/clock.ts'
import { ReconcileLoop, type LoopInit } from '../reconcile/loop.ts'
import type { Logger } from '../runtime/logger.ts'
import type { ReplicaView } from './broker-link.ts'
import type { Dropped } from './clusterset-view.ts'
import { loopDeps } from './loop-deps.ts'
import type { AgentMetrics } from './metrics.ts'
import type { MirrorWriter } from './mirror-writer.ts'
import { type ImportMemory, type ImportPlan, type ImportWorld, newImportMemory, planImports } from './plan-imports.ts'
import { type MirroredObjects, ownedByMirror, planPrune } from './plan-prune.ts'
import type { ServicePlan } from './plan-service.ts'
import type { SharedFindings } from './shared-findings.ts'

export interface MirrorLoopDeps {
  readonly cluster: ClusterApi
  readonly replica: ReplicaView
  readonly writer: MirrorWriter
  readonly findings: SharedFindings
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

export interface MirrorLoopInit {
  /** Id of this cluster. */
  readonly own: string
  readonly allowedNamespaces: readonly string[]
  readonly loop: LoopInit
}

/** Log lines about bad records in one round; a member could send any number of them. */
const MAX_LINES = 20

const KINDS = ['Namespace', 'ServiceImport', 'EndpointSlice', 'Cluster', 'Endpoint', 'Membership'] as const

export class MirrorLoop {
  readonly #deps: MirrorLoopDeps
  readonly #own: string
  readonly #loop: ReconcileLoop
  readonly #memory: ImportMemory
  #told: ReadonlySet<string> = new Set()
  #plan: ImportPlan | undefined
  #range: { readonly text: string; readonly prefix: Prefix } | undefined
  /** The status that was last found right for a plan. */
  readonly #rightStatus = new WeakMap<ServicePlan, ServiceImport['status']>()

  constructor(deps: MirrorLoopDeps, init: MirrorLoopInit) {
    this.#deps = deps
    this.#own = init.own
    this.#memory = newImportMemory(init)
    this.#loop = new ReconcileLoop(loopDeps(deps, 'mirror'), init.loop, (signal) => this.#round(signal))
    for (const kind of KINDS) deps.cluster.cache(kind).onChange(() => this.#loop.poke())
    deps.replica.onChange(() => this.#loop.poke())
    deps.findings.onExports(() => this.#loop.poke())
  }

  run(signal: AbortSignal): Promise<void> {
    return this.#loop.run(signal)
  }

  notReady(): string | undefined {
    const missing = KINDS.find((kind) => !this.#deps.cluster.cache(kind).synced)
    return missing === undefined ? undefined : `${missing} objects are not read yet`
  }

  /** Objects of the latest plan, one line each. */
  print(): string {
    if (this.#plan === undefined) return 'nothing received from the broker yet'
    return [...this.#plan.objects.keys(), ...this.#plan.dropped.map((one) => `left out: ${tell(one)}`)].join('\n')
  }

  /** Removes everything that was mirrored: this cluster is leaving. */
  async removeAll(signal: AbortSignal): Promise<void> {
    const owned = ownedByMirror({ ...this.#mirrored(), own: this.#own })
    const all = [...owned.serviceImports, ...owned.slices, ...owned.endpoints, ...owned.clusters]
    const [failure] = await this.#deps.writer.remove(all, signal)
    if (failure !== undefined) throw failure
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { replica, writer, findings } = this.#deps
    // Until a whole snapshot was seen, everything stays as it was before.
    if (!replica.synced || this.notReady() !== undefined) return
    const certain = new Set([...replica.complete, ...replica.departed])
    const world = this.#world(certain)
    if (world === undefined) return
    const plan = planImports(world, this.#memory)
    this.#plan = plan
    findings.setOwnVerdicts(plan.ownVerdicts)
    this.#report(plan)
    // One object that cannot be written now holds nothing else up.
    const failures = await writer.apply(plan.objects, signal)
    failures.push(...(await writer.applyStatuses(this.#statuses(plan), signal)))
    const mirrored = this.#mirrored()
    const gone = planPrune({ ...mirrored, own: this.#own, desired: plan.objects, kept: plan.services, certain })
    failures.push(...(await writer.remove(gone, signal)))
    if (failures[0] !== undefined) throw failures[0]
  }

  #world(certain: ReadonlySet<string>): ImportWorld | undefined {
    const { cluster, replica, findings } = this.#deps
    const clusters = cluster.cache('Cluster')
    const ownSpec = clusters.get(this.#own)?.spec
    if (ownSpec === undefined) return undefined
    const live = cluster
      .cache('Namespace')
      .list()
      .filter(({ metadata, status }) => metadata.deletionTimestamp === undefined && status?.phase !== 'Terminating')
    return {
      own: this.#own,
      ownSpec,
      records: replica.records(),
      certain,
      namespaces: new Set(live.map(({ metadata }) => metadata.name)),
      ownSlices: (key) => findings.exportPlan?.exports.get(key)?.records.slice(1),
      serviceImport: (key) => this.#serviceImport(key),
      clusters: new Map(clusters.list().map(({ spec }) => [spec.id, spec])),
      clustersetIpRange: this.#clustersetIpRange(),
    }
  }

  /** The same object while the text is the same: the plan's memory goes by identity. */
  #clustersetIpRange(): Prefix | undefined {
    const text = this.#deps.cluster.cache('Membership').get(MEMBERSHIP_NAME)?.spec.clustersetIpRange
    if (text === undefined || text === '') return undefined
    if (this.#range?.text !== text) this.#range = { text, prefix: parsePrefix(text, 'clustersetIpRange') }
    return this.#range.prefix
  }

  #statuses(plan: ImportPlan): ServiceImport[] {
    const changed: ServiceImport[] = []
    for (const service of plan.services.values()) {
      if (service.serviceImport === undefined) continue
      const { namespace = '', name } = service.serviceImport.metadata
      const present = this.#serviceImport(`${namespace}/${name}`)?.status
      if (present !== undefined && this.#rightStatus.get(service) === present) continue
      const status = this.#status(service, present)
      if (isDeepStrictEqual(status, present)) this.#rightStatus.set(service, present)
      else changed.push({ ...service.serviceImport, status })
    }
    return changed
  }

  #status(plan: ServicePlan, present: ServiceImport['status']): NonNullable<ServiceImport['status']> {
    return {
      clusters: plan.clusters.map((cluster) => ({ cluster })),
      conditions: setConditions(present?.conditions ?? [], [plan.ready], this.#deps.clock.now()),
      endpointSliceObjects: 'Present',
    }
  }

  #serviceImport(key: ServiceKey): ServiceImport | undefined {
    const slash = key.indexOf('/')
    return this.#deps.cluster.cache('ServiceImport').get(key.slice(slash + 1), key.slice(0, slash))
  }

  #mirrored(): MirroredObjects {
    const { cluster } = this.#deps
    return {
      serviceImports: cluster.cache('ServiceImport').list(),
      slices: cluster.cache('EndpointSlice').list(),
      clusters: cluster.cache('Cluster').list(),
      endpoints: cluster.cache('Endpoint').list(),
    }
  }

  #report(plan: ImportPlan): void {
    const { metrics, logger } = this.#deps
    const members = [...plan.objects.values()].filter((object: KubeObject) => object.kind === 'Cluster').length
    metrics.imports.set(plan.services.size)
    metrics.members.set(members)
    metrics.notUsed.set(plan.dropped.length)
    const fresh = plan.dropped.filter((one) => !this.#told.has(tell(one)))
    for (const one of fresh.slice(0, MAX_LINES)) {
      logger.warn('left out of what the broker sent', { record: one.what, reason: one.reason })
    }
    if (fresh.length > MAX_LINES)
      logger.warn('more left out of what the broker sent', { count: fresh.length - MAX_LINES })
    this.#told = new Set(plan.dropped.map(tell))
  }
}

function tell(one: Dropped): string {
  return `${one.what}: ${one.reason}`
}
