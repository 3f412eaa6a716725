/**
 * Keeps the clusterset's objects in the local API equal to the replica, with the status of every ServiceImport, whose
 * changes are reported as Events.
 */
import { isDeepStrictEqual } from 'node:util'
import type { ClusterApi, ClusterApiError, ObjectEvent } from '../../kubeapi/kubeapi.ts'
import {
  APP_MANAGED_BY_SEALANE,
  type Cluster,
  type KubeObject,
  LABEL_APP_MANAGED_BY,
  LABEL_SOURCE_CLUSTER,
  type NotImportedReason,
  type ServiceImport,
  type ServiceKey,
  findCondition,
  objectKeyText,
  setConditions,
} from '../../model/model.ts'
import { firstReason, problemText } from '../../model/reasons/reasons.ts'
import { selectorResults } from '../../model/services/services.ts'
import { type Clock, type LoopInit, ReconcileLoop, Subscriptions } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import {
  type Dropped,
  type ImportMemory,
  type ImportPlan,
  type ImportWorld,
  type MirroredObjects,
  type ServicePlan,
  changeServices,
  newImportMemory,
  objectsOf,
  ownedByMirror,
  planImports,
  planPrune,
  replanServices,
  takesNeeded,
} from '../import/import.ts'
import type { ReplicaView } from '../link/link.ts'
import { type AgentMetrics, type MirrorWriter, type SharedFindings, loopDeps } from '../loop/loop.ts'
import { DirtyServices, type Touched, WorldReader, type WorldReaderInit } from './read-world.ts'

// Logs which of the broker's records are not used: each once, and a limited number in one round.

/** Limits the log lines about bad records in one round, since a member can send any number of them. */
const MAX_LINES = 20
/** The broker and this cluster receive each other's changes within this time. */
const SETTLE_MS = 10_000

export class LeftOut {
  readonly #deps: { readonly logger: Logger; readonly clock: Clock }
  /** By message: since when (monotonic) a record is left out, and whether that is logged. */
  #known = new Map<string, { readonly since: number; readonly isReported: boolean }>()

  constructor(deps: { readonly logger: Logger; readonly clock: Clock }) {
    this.#deps = deps
  }

  /** Takes everything that is left out now. */
  report(dropped: readonly Dropped[]): void {
    const { clock, logger } = this.#deps
    const now = clock.monotonic()
    const before = this.#known
    this.#known = new Map()
    const fresh: Dropped[] = []
    for (const one of dropped) {
      const text = leftOutText(one)
      const { since, isReported } = before.get(text) ?? { since: now, isReported: false }
      const isDue = one.settles !== true || now - since >= SETTLE_MS
      if (isDue && !isReported && this.#known.get(text)?.isReported !== true) fresh.push(one)
      this.#known.set(text, { since, isReported: isReported || isDue })
    }
    for (const one of fresh.slice(0, MAX_LINES)) {
      logger.warn('a record from the broker is left out', { record: one.what, reason: one.reason, why: one.message })
    }
    if (fresh.length > MAX_LINES)
      logger.warn('more records from the broker are left out', {
        reason: 'LinesOmitted',
        count: fresh.length - MAX_LINES,
      })
  }
}

function leftOutText(one: Dropped): string {
  return `${one.what}: ${problemText(one)}`
}

export interface MirrorLoopDeps {
  readonly api: ClusterApi
  readonly replica: ReplicaView
  readonly writer: MirrorWriter
  readonly findings: SharedFindings
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

export interface MirrorLoopInit extends WorldReaderInit {
  readonly allowedNamespaces: readonly string[]
  readonly excludedNamespaces: readonly string[]
  readonly loop: LoopInit
}

interface LastPlan {
  readonly world: ImportWorld
  readonly plan: ImportPlan
}

/** A whole plan, or the changed part of one. */
interface PlanPart {
  readonly objects: ReadonlyMap<string, KubeObject>
  readonly services: ReadonlyMap<string, ServicePlan>
}

interface Round extends LastPlan {
  /** The part of the plan to apply. */
  readonly part: PlanPart
  /** The objects of that part in the local API. */
  readonly mirrored: MirroredObjects
  /** ReplicaView.confirmed at the time of the plan. */
  readonly confirmed: boolean
}

const KINDS = ['Namespace', 'ServiceImport', 'EndpointSlice', 'Cluster', 'Endpoint', 'Membership'] as const

export class MirrorLoop {
  readonly #deps: MirrorLoopDeps
  readonly #own: string
  readonly #reader: WorldReader
  readonly #loop: ReconcileLoop
  readonly #memory: ImportMemory
  readonly #leftOut: LeftOut
  readonly #dirty = new DirtyServices()
  #last: LastPlan | undefined
  #wasConfirmed = false
  /** When the oldest unwritten change arrived, monotonic. */
  #changedAtMs: number | undefined
  /** Why services of existing namespaces are not imported. */
  readonly #problems = new Map<ServiceKey, NotImportedReason>()
  readonly #statuses: ImportStatuses
  readonly #subscriptions = new Subscriptions()

  constructor(deps: MirrorLoopDeps, init: MirrorLoopInit) {
    this.#deps = deps
    this.#own = init.own
    this.#reader = new WorldReader(deps, init)
    this.#statuses = new ImportStatuses(deps)
    this.#leftOut = new LeftOut(deps)
    const isKnown = (id: string): boolean => id === init.own || deps.api.cache('Cluster').get(id) !== undefined
    const { own: cluster, allowedNamespaces, excludedNamespaces } = init
    this.#memory = newImportMemory({ allowedNamespaces, excludedNamespaces, cluster, isKnown })
    this.#loop = new ReconcileLoop(loopDeps(deps, 'mirror'), init.loop, (signal) => this.#round(signal))
    for (const kind of KINDS) this.#follow(kind)
    const stop = deps.replica.onChange((changes) => {
      // The status that members report about themselves is not mirrored.
      const mirrored = changes.filter(({ record }) => record.body.kind !== 'MemberStatus')
      const isNews = mirrored.length > 0 || changes.length === 0 || deps.replica.confirmed !== this.#wasConfirmed
      if (!isNews) return
      this.#wasConfirmed = deps.replica.confirmed
      this.#changedAtMs ??= deps.clock.monotonic()
      this.#dirty.noteRecords(mirrored)
      this.#loop.poke()
    })
    this.#subscriptions.add(stop)
    deps.findings.onExports((keys) => {
      this.#dirty.noteServices(keys)
      this.#loop.poke()
    })
    deps.findings.onNeeded(() => {
      this.#dirty.noteAll()
      this.#loop.poke()
    })
    deps.findings.onExpired(() => {
      this.#dirty.noteAll()
      this.#loop.poke()
    })
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#loop.run(signal)
    this.#subscriptions.end()
  }

  notReady(): string | undefined {
    const missing = KINDS.find((kind) => !this.#deps.api.cache(kind).synced)
    return missing === undefined ? undefined : `${missing} objects are not read yet`
  }

  /** The objects of the latest plan, one line each. */
  print(): string {
    const plan = this.#last?.plan
    if (plan === undefined) return 'nothing received from the broker yet'
    return [...plan.objects.keys(), ...plan.dropped.map((one) => `left out: ${leftOutText(one)}`)].join('\n')
  }

  /** Removes everything that was mirrored. Called when this cluster leaves. */
  async removeAll(signal: AbortSignal): Promise<void> {
    const owned = ownedByMirror({ ...this.#reader.mirrored(), own: this.#own })
    const all = [...owned.serviceImports, ...owned.slices, ...owned.endpoints, ...owned.clusters]
    const [failure] = await this.#deps.writer.remove(all, signal)
    if (failure !== undefined) throw failure
  }

  #follow(kind: (typeof KINDS)[number]): void {
    const { api, writer } = this.#deps
    const stop = api.cache(kind).onChange((change) => {
      if (change?.type === 'removed') {
        writer.forget(change.object)
        if (kind === 'ServiceImport') this.#statuses.forget(change.object)
      }
      if (this.#dirty.noteObject(change)) this.#loop.poke()
    })
    this.#subscriptions.add(stop)
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { replica, findings } = this.#deps
    // Until a whole snapshot has been received, everything stays as it was.
    const { expired } = findings
    if (!replica.synced || expired === undefined || this.notReady() !== undefined) return this.#endHarm(signal)
    // The exports of this cluster have become known, which concerns all services.
    if (this.#last?.world.ownKnown === false && findings.exportPlan !== undefined) this.#dirty.noteAll()
    const changedAtMs = this.#changedAtMs
    const taken = this.#dirty.take(replica)
    this.#changedAtMs = undefined
    try {
      const last = this.#last
      if (taken === undefined || last === undefined) await this.#all(expired, signal)
      else await this.#some(last, taken, signal)
    } catch (error) {
      this.#changedAtMs = changedAtMs ?? this.#changedAtMs
      // The next round processes everything, and so finds what this one left undone.
      this.#dirty.noteAll()
      throw error
    }
    if (changedAtMs === undefined) return
    this.#deps.metrics.importDelay.observe((this.#deps.clock.monotonic() - changedAtMs) / 1000)
  }

  /**
   * Removes harmful routes before anything is received from the broker: a route into a lane may be what makes the
   * broker unreachable.
   */
  async #endHarm(signal: AbortSignal): Promise<void> {
    const { api, findings, logger, writer } = this.#deps
    const own = api.cache('Cluster').get(this.#own)?.spec
    if (!api.cache('Cluster').synced || own === undefined) return
    const harmful = api
      .cache('Cluster')
      .list()
      .filter(({ spec }) => spec.id !== this.#own)
      .flatMap((object) => {
        const found = takesNeeded(object.spec, own, findings.needed)
        return found === undefined ? [] : [{ object, found }]
      })
    if (harmful.length === 0) return
    for (const { object, found } of harmful.slice(0, MAX_LINES)) {
      const { reason, message: why } = found
      logger.warn('cluster removed', { cluster: object.metadata.name, reason, why })
    }
    const [failure] = await writer.remove(
      harmful.map(({ object }) => object),
      signal,
    )
    if (failure !== undefined) throw failure
  }

  async #all(expired: ReadonlySet<string>, signal: AbortSignal): Promise<void> {
    const { confirmed, complete, departed } = this.#deps.replica
    // A route to another cluster may be what makes the broker unreachable.
    if (!confirmed) await this.#endHarm(signal)
    const world = this.#reader.world(new Set(confirmed ? [...complete, ...departed] : []), expired)
    if (world === undefined) return
    const plan = planImports(world, this.#memory)
    this.#last = { world, plan }
    await this.#apply({ world, plan, part: plan, mirrored: this.#reader.mirrored(), confirmed }, signal)
  }

  /** The cost is that of the changes, not of all objects. */
  async #some({ world, plan: before }: LastPlan, { keys, changes }: Touched, signal: AbortSignal): Promise<void> {
    const changed = changeServices(before.basis.view, changes, this.#memory.validate)
    if (changed === undefined) return this.#all(world.expired, signal)
    const touched = [...new Set([...keys.keys(), ...changed.touched])].sort()
    const old = touched.flatMap((key) => objectsOf(before.services.get(`ServiceImport/${key}`)))
    const plan = replanServices(world, this.#memory, before, { view: changed.view, touched })
    this.#last = { world, plan }
    const services = new Map<string, ServicePlan>()
    for (const key of touched) {
      const service = plan.services.get(`ServiceImport/${key}`)
      if (service !== undefined) services.set(`ServiceImport/${key}`, service)
    }
    const objects = new Map([...services.values()].flatMap(objectsOf).map((object) => [objectKeyText(object), object]))
    const mirrored = this.#reader.mirroredOf(touched, [...old, ...[...keys.values()].flat()])
    const { confirmed } = this.#deps.replica
    await this.#apply({ world, plan, part: { objects, services }, mirrored, confirmed }, signal)
  }

  /**
   * Applies a plan. A saved replica may be older than what another agent of this cluster has written since. Until the
   * broker has confirmed it, only what this cluster knows by itself is written or removed.
   */
  async #apply({ world, plan, part, mirrored, confirmed }: Round, signal: AbortSignal): Promise<void> {
    const { writer, findings } = this.#deps
    if (confirmed) findings.setOwnFindings(plan.ownFindings)
    this.#report(plan)
    // An object that cannot be written does not delay the others.
    const failures = await writer.apply(confirmed ? part.objects : this.#ownSlices(part.objects), signal)
    if (confirmed) failures.push(...(await this.#statuses.write(part.services.values(), signal)))
    this.#noteProblems(part, part === plan)
    findings.setImports({ plan, namespaces: world.namespaces, problems: this.#problems })
    const { own, holds, expired, namespaces } = world
    // For its own exports, this cluster is authoritative.
    const certain = confirmed || !world.ownKnown ? world.certain : new Set([own])
    const gone = planPrune({
      ...mirrored,
      ...(confirmed ? {} : { serviceImports: [], endpoints: [], clusters: [] }),
      own,
      desired: plan.objects,
      kept: plan.services,
      certain,
      holds,
      expired,
      harmful: harmfulAmong(mirrored.clusters, world),
      namespaces,
    })
    failures.push(...(await writer.remove(gone, signal)))
    if (failures[0] !== undefined) throw failures[0]
  }

  /** The slices of this cluster's own exports, which do not depend on the broker. */
  #ownSlices(objects: ReadonlyMap<string, KubeObject>): ReadonlyMap<string, KubeObject> {
    const isOwn = ({ metadata }: KubeObject): boolean => metadata.labels?.[LABEL_SOURCE_CLUSTER] === this.#own
    return new Map([...objects].filter(([, object]) => isOwn(object)))
  }

  /**
   * Runs right after the write: a refusal expires later, and an object that is due for another try counts as neither.
   */
  #noteProblems({ services }: Pick<PlanPart, 'services'>, isWhole: boolean): void {
    if (isWhole) this.#problems.clear()
    for (const [at, service] of services) {
      const key = at.slice('ServiceImport/'.length) as ServiceKey
      const problem = this.#importProblem(key, service)
      if (problem === undefined) this.#problems.delete(key)
      else this.#problems.set(key, problem)
    }
  }

  #importProblem(key: ServiceKey, { ready, serviceImport }: ServicePlan): NotImportedReason | undefined {
    if (ready.reason === 'IPFamilyNotSupported') return 'IPFamilyNotSupported'
    if (serviceImport === undefined || !this.#deps.writer.isRefused(serviceImport)) return undefined
    const present = this.#reader.serviceImport(key)
    const isOurs = present?.metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE
    return present === undefined || isOurs ? 'ImportRefused' : 'NameTaken'
  }

  #report(plan: ImportPlan): void {
    const { metrics } = this.#deps
    metrics.imports.set(plan.services.size)
    metrics.members.set(plan.basis.clusters.size)
    metrics.notUsed.set(plan.dropped.length)
    this.#leftOut.report(plan.dropped)
  }
}

function harmfulAmong(clusters: readonly Cluster[], { own, ownSpec, needed }: ImportWorld): ReadonlySet<string> {
  const others = clusters.filter(({ spec }) => spec.id !== own)
  return new Set(
    others.filter(({ spec }) => takesNeeded(spec, ownSpec, needed) !== undefined).map(({ spec }) => spec.id),
  )
}

// The statuses of ServiceImports.

interface ImportStatusesDeps {
  readonly api: ClusterApi
  readonly writer: MirrorWriter
  readonly clock: Clock
}

interface WrittenStatus {
  readonly key: string
  /** The object in the cache before the write. */
  readonly present: ServiceImport | undefined
  readonly object: ServiceImport
  /** When the status was written, monotonic. */
  readonly at: number
}

/** The cache shows a write within this time. */
const LAG_MS = 30_000

class ImportStatuses {
  readonly #deps: ImportStatusesDeps
  /** The object that was last found correct for a plan. */
  readonly #right = new WeakMap<ServicePlan, ServiceImport>()
  /** The written statuses by objectKeyText(), since the cache may show them later. */
  readonly #written = new Map<string, WrittenStatus>()

  constructor(deps: ImportStatusesDeps) {
    this.#deps = deps
  }

  /** Must be called when an object is removed from the cache. */
  forget(object: KubeObject): void {
    this.#written.delete(objectKeyText(object))
  }

  /** Gives the failures that a later try may resolve. */
  async write(services: Iterable<ServicePlan>, signal: AbortSignal): Promise<ClusterApiError[]> {
    const { api, writer } = this.#deps
    const changes = [...services].flatMap((service) => this.#change(service) ?? [])
    const failures = await writer.applyStatuses(
      changes.map(({ object }) => object),
      signal,
    )
    if (failures.length === 0) for (const change of changes) this.#written.set(change.key, change)
    for (const change of changes) for (const event of importEvents(change.object, change.present)) api.report(event)
    // The object was deleted meanwhile, and the cache will show that.
    return failures.filter(({ code }) => code !== 'NotFound')
  }

  /** The ServiceImport with its new status. Undefined if there is nothing to write. */
  #change(service: ServicePlan): WrittenStatus | undefined {
    const { api, writer, clock } = this.#deps
    const { serviceImport } = service
    if (serviceImport === undefined) return undefined
    const { namespace, name } = serviceImport.metadata
    const present = api.cache('ServiceImport').get(name, namespace)
    if (present !== undefined && this.#right.get(service) === present) return undefined
    if (present === undefined && writer.isRefused(serviceImport)) return undefined
    const status = importStatus(service, present, clock.now())
    if (present !== undefined && isDeepStrictEqual(status, present.status)) {
      this.#right.set(service, present)
      return undefined
    }
    const key = objectKeyText(serviceImport)
    const now = clock.monotonic()
    const written = this.#written.get(key)
    if (written !== undefined && isDeepStrictEqual(written.object.status, status)) {
      // The cache does not show the write yet.
      if (written.present === present && now - written.at < LAG_MS) return undefined
      if (present !== undefined && isPruned(present.status, status)) return undefined
    }
    return { key, present, object: { ...serviceImport, status }, at: now }
  }
}

/** Whether an API server with another schema has dropped these fields, as it does at each write. */
function isPruned(found: ServiceImport['status'], written: NonNullable<ServiceImport['status']>): boolean {
  const { endpointSliceObjects, clusterSelectorResults } = written
  const results = found?.clusterSelectorResults ?? clusterSelectorResults
  const whole = {
    ...{ ...found, endpointSliceObjects },
    ...(results === undefined ? {} : { clusterSelectorResults: results }),
  }
  return isDeepStrictEqual(whole, written)
}

/** The status by the plan. Takes the ServiceImport that the local API has now. */
function importStatus(
  plan: Pick<ServicePlan, 'ready' | 'clusters' | 'selection' | 'serviceImport'>,
  present: ServiceImport | undefined,
  nowMs: number,
): NonNullable<ServiceImport['status']> {
  const generation = present?.metadata.generation
  const results = resultsOf(plan, present)
  const ready = generation === undefined ? plan.ready : { ...plan.ready, observedGeneration: generation }
  return {
    clusters: plan.clusters.map((cluster) => ({ cluster })),
    conditions: setConditions(present?.status?.conditions ?? [], [ready], nowMs),
    endpointSliceObjects: 'Present',
    ...(results === undefined ? {} : { clusterSelectorResults: results }),
  }
}

/** Without selectors undefined; as they were if the selectors cannot be evaluated (KEP-5939). */
function resultsOf(
  { selection, serviceImport }: Pick<ServicePlan, 'selection' | 'serviceImport'>,
  present: ServiceImport | undefined,
): NonNullable<ServiceImport['status']>['clusterSelectorResults'] {
  if (selection === undefined) return undefined
  const { importer, candidates } = selection
  const selectors = serviceImport?.spec.clusterSelectors ?? []
  return selectorResults(selectors, importer, candidates, present?.status?.clusterSelectorResults)
}

/** Events about the new status. Takes the object with its new status, and the object before. */
function importEvents(object: ServiceImport, before: ServiceImport | undefined): ObjectEvent[] {
  const { name, namespace } = object.metadata
  const regarding = { kind: 'ServiceImport' as const, name, namespace, uid: before?.metadata.uid }
  const is = findCondition(object.status?.conditions, 'Ready')
  const was = findCondition(before?.status?.conditions, 'Ready')
  const clusters = (object.status?.clusters ?? []).map(({ cluster }) => cluster).join(', ')
  const events: ObjectEvent[] = []
  if (before?.status === undefined) {
    events.push({ regarding, type: 'Normal', reason: 'Imported', note: `imported from ${clusters}` })
  }
  // A clusterset IP that is still pending needs no warning.
  if (is?.status === 'False' && is.reason !== 'Pending' && was?.reason !== is.reason) {
    events.push({ regarding, type: 'Warning', reason: firstReason(is.reason), note: is.message })
  }
  return events
}
