/** Sorts the broker's records by their subject. Pure, except for the cache of validated records. */
import { isDeepStrictEqual } from 'node:util'
import {
  type ClusterSetIpBody,
  type ClusterSpec,
  type EndpointSliceBody,
  type EndpointSpec,
  type RecordKey,
  type ServiceExportBody,
  type ServiceKey,
  type StoredRecord,
  recordKeyText,
  serviceKey,
} from '../../model/model.ts'
import { MAX_ENDPOINTS_PER_CLUSTER } from '../../model/lanes/lanes.ts'
import { type Problem, problem } from '../../model/reasons/reasons.ts'
import type { ReplicaChange } from '../../protocol/replica/replica.ts'
import { ValueMap } from '../../reconcile/reconcile.ts'
import type { OwnExport } from '../export/export.ts'
import { recordProblem } from './check-record.ts'

type Of<B> = StoredRecord & { readonly body: B }
export type ExportRecord = Of<ServiceExportBody>
export type SliceRecord = Of<EndpointSliceBody>
export type ClusterSetIpRecord = Of<ClusterSetIpBody>

export interface ServiceFacts {
  readonly exports: readonly ExportRecord[]
  readonly slices: readonly SliceRecord[]
  readonly ips?: ClusterSetIpRecord
}

/** A ServiceFacts that is still being filled. */
interface OpenFacts {
  exports: ExportRecord[]
  slices: SliceRecord[]
  ips?: ClusterSetIpRecord
}

export interface RemoteEndpoint {
  readonly cluster: string
  readonly recordName: string
  readonly createdAtMs: number
  readonly spec: EndpointSpec
}

/** A received record, or a part of one, that is not used. */
export interface Dropped extends Problem {
  /** Names the record for messages. */
  readonly what: string
  /** The problem may go away by itself within moments, so it is logged only if it persists. */
  readonly settles?: true
}

/** Whether this cluster links with another one, or with itself. True for all if no topology is known. */
export type IsLinked = (cluster: string) => boolean

const LINKED_WITH_ALL: IsLinked = () => true

export interface ClustersetView {
  readonly services: ValueMap<ServiceKey, ServiceFacts>
  readonly clusters: ReadonlyMap<string, ClusterSpec>
  readonly endpoints: readonly RemoteEndpoint[]
  readonly dropped: readonly Dropped[]
  /** The keys of the ServiceExports among `dropped`. */
  readonly refusedExports: readonly RecordKey[]
  readonly isLinked: IsLinked
}

export interface RecordValidatorInit {
  readonly allowedNamespaces: readonly string[]
  /** Default: none. */
  readonly excludedNamespaces?: readonly string[]
  /** Id of this cluster: what is not offered to it is not used. Absent: that is not checked. */
  readonly cluster?: string
  /** Whether a cluster is already in the local API. By default no cluster is. */
  readonly isKnown?: (cluster: string) => boolean
}

/** Validates each record once, since received records never change. */
export class RecordValidator {
  readonly #validation = new WeakMap<StoredRecord, { readonly problem: Problem | undefined }>()
  readonly #init: RecordValidatorInit
  constructor(init: RecordValidatorInit) {
    this.#init = init
  }
  problem(record: StoredRecord): Problem | undefined {
    let validation = this.#validation.get(record)
    if (validation === undefined) {
      const { allowedNamespaces: allowed, excludedNamespaces: excluded, isKnown, cluster } = this.#init
      validation = { problem: recordProblem(record, { allowed, excluded }, isKnown, cluster) }
      this.#validation.set(record, validation)
    }
    return validation.problem
  }
}

/**
 * Sorts records. Their order does not affect the result. Records of clusters with which this one does not link are not
 * used: a broker of this release sends none.
 */
export function viewClusterset(
  records: Iterable<StoredRecord>,
  validate: RecordValidator,
  isLinked: IsLinked = LINKED_WITH_ALL,
): ClustersetView {
  const services = new Map<ServiceKey, OpenFacts>()
  const clusters = new Map<string, ClusterSpec>()
  const endpoints: RemoteEndpoint[] = []
  const dropped: Dropped[] = []
  const refusedExports: RecordKey[] = []
  for (const record of records) {
    const { key, body, createdAtMs } = record
    // report-loop.ts reads the one, and read-world.ts the other. The view has no use for them.
    if (body.kind === 'MemberStatus' || body.kind === 'Topology') continue
    if (key.cluster !== '' && !isLinked(key.cluster)) {
      dropped.push({ what: recordKeyText(key), ...notLinked(key.cluster), settles: true })
      continue
    }
    const found = validate.problem(record)
    if (found !== undefined) {
      dropped.push({ what: recordKeyText(key), ...found })
      if (body.kind === 'ServiceExport') refusedExports.push(key)
    } else if (body.kind === 'Cluster') clusters.set(body.spec.id, body.spec)
    else if (body.kind === 'Endpoint')
      endpoints.push({ cluster: key.cluster, recordName: key.name, createdAtMs, spec: body.spec })
    else addToService(services, record)
  }
  for (const facts of services.values()) sortFacts(facts)
  endpoints.sort((a, b) => compare(a.cluster, b.cluster) || compare(a.recordName, b.recordName))
  dropped.sort((a, b) => compare(a.what, b.what))
  return {
    services: new ValueMap(services),
    clusters,
    endpoints: withinLimit(endpoints, dropped),
    dropped,
    refusedExports,
    isLinked,
  }
}

function notLinked(cluster: string): Problem {
  return problem('NotLinkedByTopology', `the topology does not link this cluster with ${cluster}`)
}

/** Keeps the oldest Endpoints of each member, so that a flood of new ones removes no gateway. Keeps the order. */
function withinLimit(endpoints: readonly RemoteEndpoint[], dropped: Dropped[]): readonly RemoteEndpoint[] {
  const byCluster = [...Map.groupBy(endpoints, ({ cluster }) => cluster)]
  const surplus = new Set<RemoteEndpoint>()
  for (const [cluster, own] of byCluster) {
    const late = own.toSorted((a, b) => a.createdAtMs - b.createdAtMs).slice(MAX_ENDPOINTS_PER_CLUSTER)
    if (late.length === 0) continue
    for (const one of late) surplus.add(one)
    const message = `${late.length} of ${own.length} Endpoints: a member has at most ${MAX_ENDPOINTS_PER_CLUSTER}`
    dropped.push({ what: `${cluster}/Endpoint`, ...problem('RecordLimit', message) })
  }
  return surplus.size === 0 ? endpoints : endpoints.filter((one) => !surplus.has(one))
}

function addToService(services: Map<ServiceKey, OpenFacts>, record: StoredRecord): void {
  const { body } = record
  const at = serviceOf(record)
  let facts = services.get(at)
  if (facts === undefined) services.set(at, (facts = { exports: [], slices: [] }))
  if (body.kind === 'ServiceExport') facts.exports.push(record as ExportRecord)
  else if (body.kind === 'EndpointSlice') facts.slices.push(record as SliceRecord)
  else if (body.kind === 'ClusterSetIP') facts.ips = record as ClusterSetIpRecord
}

function sortFacts(facts: OpenFacts): void {
  facts.exports.sort(byKey)
  facts.slices.sort(byKey)
}

export interface ChangedView {
  readonly view: ClustersetView
  /** Services that have changed, or may have. */
  readonly touched: ReadonlySet<ServiceKey>
}

/**
 * Gives the view with its services updated. The given view stays as it is. Undefined if a change concerns other records
 * than those of services, or a record that is not used. The caller must then make the view again.
 */
export function changeServices(
  view: ClustersetView,
  changes: readonly ReplicaChange[],
  validate: RecordValidator,
): ChangedView | undefined {
  const isPlain = ({ key, body }: StoredRecord): boolean => {
    if (body.kind === 'Cluster' || body.kind === 'Endpoint' || body.kind === 'Topology') return false
    return key.cluster === '' || view.isLinked(key.cluster)
  }
  const isKnown = (record: StoredRecord): boolean => isPlain(record) && validate.problem(record) === undefined
  const known = changes.every((change) => {
    return (
      isKnown(change.record) && (change.t === 'removed' || change.previous === undefined || isKnown(change.previous))
    )
  })
  if (!known) return undefined
  const open = new Map<ServiceKey, OpenFacts>()
  for (const change of changes) {
    const previous = change.t === 'removed' ? change.record : change.previous
    takeFromService(openFacts(open, view, previous ?? change.record), previous ?? change.record)
    if (change.t !== 'put') continue
    openFacts(open, view, change.record)
    addToService(open, change.record)
  }
  const changed = new Map<ServiceKey, ServiceFacts | undefined>()
  for (const [key, facts] of open) {
    sortFacts(facts)
    const isEmpty = facts.exports.length + facts.slices.length === 0 && facts.ips === undefined
    changed.set(key, isEmpty ? undefined : facts)
  }
  return { view: { ...view, services: view.services.with(changed) }, touched: new Set(open.keys()) }
}

/** A copy of the facts about the record's service, made at the service's first change. */
function openFacts(open: Map<ServiceKey, OpenFacts>, view: ClustersetView, record: StoredRecord): OpenFacts {
  const at = serviceOf(record)
  const known = open.get(at)
  if (known !== undefined) return known
  const { exports = [], slices = [], ips } = view.services.get(at) ?? {}
  const facts: OpenFacts = { exports: [...exports], slices: [...slices], ...(ips === undefined ? {} : { ips }) }
  open.set(at, facts)
  return facts
}

function takeFromService(facts: OpenFacts, record: StoredRecord): void {
  const text = recordKeyText(record.key)
  const isOther = (one: StoredRecord): boolean => recordKeyText(one.key) !== text
  facts.exports = facts.exports.filter(isOther)
  facts.slices = facts.slices.filter(isOther)
  if (facts.ips !== undefined && !isOther(facts.ips)) delete facts.ips
}

function serviceOf({ key, body }: StoredRecord): ServiceKey {
  return serviceKey(key.namespace, body.kind === 'EndpointSlice' ? body.service : key.name)
}

function byKey(a: StoredRecord, b: StoredRecord): number {
  return compare(a.key.cluster, b.key.cluster) || compare(a.key.name, b.key.name)
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

// Corrects what this cluster exports by its own API. From the broker's records of it, only the time stamps are used.
// Pure, except for a cache of corrected records.

export interface OwnExports {
  /** Id of this cluster. */
  readonly own: string
  /** False until the own exports have been read. Until then, the broker's records are used. */
  readonly ownKnown: boolean
  /** Undefined if this cluster does not export the service, or if the export is not valid. */
  readonly ownExport: (key: ServiceKey) => OwnExport | undefined
}

/** The broker's record with this cluster's own body. The cache keeps it the same object between plans. */
const WITH_OWN_BODY = new WeakMap<ExportRecord, ExportRecord>()

/** The facts of one service with this cluster's own part corrected, and what was left out for that. */
export function withOwnExport(
  key: ServiceKey,
  facts: ServiceFacts,
  { own, ownKnown, ownExport }: OwnExports,
): { readonly facts: ServiceFacts; readonly dropped: readonly Dropped[] } {
  const isOwn = (record: { readonly key: { readonly cluster: string } }): boolean => record.key.cluster === own
  if (!ownKnown || !(facts.exports.some(isOwn) || facts.slices.some(isOwn))) return { facts, dropped: [] }
  const body = ownExport(key)?.body
  if (body !== undefined) {
    const exports = facts.exports.map((record) => (isOwn(record) ? withBody(record, body) : record))
    return { facts: { ...facts, exports }, dropped: [] }
  }
  const others = {
    exports: facts.exports.filter((one) => !isOwn(one)),
    slices: facts.slices.filter((one) => !isOwn(one)),
  }
  // The export may have been withdrawn a moment ago, so that the broker still has it.
  const why = { reason: 'NotExported', message: 'this cluster does not export it', settles: true } as const
  return { facts: { ...facts, ...others }, dropped: [{ what: `${own}/ServiceExport/${key}`, ...why }] }
}

function withBody(record: ExportRecord, body: ExportRecord['body']): ExportRecord {
  if (record.body === body || isDeepStrictEqual(record.body, body)) return record
  const known = WITH_OWN_BODY.get(record)
  if (known?.body === body) return known
  const own = { ...record, body }
  WITH_OWN_BODY.set(record, own)
  return own
}
