/** Keeps the status of every ServiceImport correct and reports changes as Events. */
import { isDeepStrictEqual } from 'node:util'
import type { ClusterApi, ClusterApiError, ObjectEvent } from '../../kubeapi/kubeapi.ts'
import { type KubeObject, type ServiceImport, findCondition, objectKeyText, setConditions } from '../../model/model.ts'
import { firstReason } from '../../model/reasons/reasons.ts'
import { selectorResults } from '../../model/services/services.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { MirrorWriter } from '../loop/loop.ts'
import type { ServicePlan } from '../import/import.ts'

export interface ImportStatusesDeps {
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

export class ImportStatuses {
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
