/** The broker's records sorted by what they are about. Pure but for the memory of which records were found good. */
import { serviceKey, type ServiceKey } from '../../model/ids.ts'
import type { ClusterSpec, EndpointSpec } from '../../model/objects.ts'
import type {
  ClusterSetIpBody,
  EndpointSliceBody,
  RecordKey,
  ServiceExportBody,
  StoredRecord,
} from '../../model/records.ts'
import { recordKeyText } from '../../model/records.ts'
import type { ReplicaChange } from '../../protocol/replica/replica.ts'
import { recordProblem } from './check-record.ts'
import type { Problem } from '../../model/reasons/problem.ts'

type Of<B> = StoredRecord & { readonly body: B }
export type ExportRecord = Of<ServiceExportBody>
export type SliceRecord = Of<EndpointSliceBody>
export type ClusterSetIpRecord = Of<ClusterSetIpBody>

export interface ServiceFacts {
  readonly exports: ExportRecord[]
  readonly slices: SliceRecord[]
  ips?: ClusterSetIpRecord
}

export interface RemoteEndpoint {
  readonly cluster: string
  readonly recordName: string
  readonly createdAtMs: number
  readonly spec: EndpointSpec
}

/** Something received that is not used. */
export interface Dropped extends Problem {
  /** Which record, in short. */
  readonly what: string
  /** It may be a matter of moments; only what lasts is worth telling. */
  readonly settles?: true
}

export interface ClustersetView {
  readonly services: ReadonlyMap<ServiceKey, ServiceFacts>
  readonly clusters: ReadonlyMap<string, ClusterSpec>
  readonly endpoints: readonly RemoteEndpoint[]
  readonly dropped: readonly Dropped[]
  /** ServiceExports among those. */
  readonly refusedExports: readonly RecordKey[]
}

export interface RecordJudgeInit {
  readonly allowedNamespaces: readonly string[]
  /** Of a cluster: it is in the local API from before. By default none is. */
  readonly isKnown?: (cluster: string) => boolean
}

/** Records never change once received: each is judged once. */
export class RecordJudge {
  readonly #verdicts = new WeakMap<StoredRecord, { readonly problem: Problem | undefined }>()
  readonly #init: RecordJudgeInit
  constructor(init: RecordJudgeInit) {
    this.#init = init
  }
  problem(record: StoredRecord): Problem | undefined {
    let verdict = this.#verdicts.get(record)
    if (verdict === undefined) {
      verdict = { problem: recordProblem(record, this.#init.allowedNamespaces, this.#init.isKnown) }
      this.#verdicts.set(record, verdict)
    }
    return verdict.problem
  }
}

/** Sorts records in whatever order they come; the result does not depend on it. */
export function viewClusterset(records: Iterable<StoredRecord>, judge: RecordJudge): ClustersetView {
  const services = new Map<ServiceKey, ServiceFacts>()
  const clusters = new Map<string, ClusterSpec>()
  const endpoints: RemoteEndpoint[] = []
  const dropped: Dropped[] = []
  const refusedExports: RecordKey[] = []
  for (const record of records) {
    const { key, body, createdAtMs } = record
    // Nothing to mirror: report-loop.ts reads it.
    if (body.kind === 'MemberStatus') continue
    const problem = judge.problem(record)
    if (problem !== undefined) {
      dropped.push({ what: recordKeyText(key), ...problem })
      if (body.kind === 'ServiceExport') refusedExports.push(key)
    } else if (body.kind === 'Cluster') clusters.set(body.spec.id, body.spec)
    else if (body.kind === 'Endpoint')
      endpoints.push({ cluster: key.cluster, recordName: key.name, createdAtMs, spec: body.spec })
    else addToService(services, record)
  }
  for (const facts of services.values()) {
    facts.exports.sort(byKey)
    facts.slices.sort(byKey)
  }
  endpoints.sort((a, b) => compare(a.cluster, b.cluster) || compare(a.recordName, b.recordName))
  return { services, clusters, endpoints, dropped, refusedExports }
}

function addToService(services: Map<ServiceKey, ServiceFacts>, record: StoredRecord): void {
  const { body } = record
  const at = serviceOf(record)
  let facts = services.get(at)
  if (facts === undefined) services.set(at, (facts = { exports: [], slices: [] }))
  if (body.kind === 'ServiceExport') facts.exports.push(record as ExportRecord)
  else if (body.kind === 'EndpointSlice') facts.slices.push(record as SliceRecord)
  else if (body.kind === 'ClusterSetIP') facts.ips = record as ClusterSetIpRecord
}

/**
 * Brings the services of a view up to date and gives the keys of those that changed. Undefined when the change concerns
 * more than single services, or something that is not used: then the view has to be made anew, and is left as it was.
 */
export function changeServices(
  view: ClustersetView,
  changes: readonly ReplicaChange[],
  judge: RecordJudge,
): ReadonlySet<ServiceKey> | undefined {
  const isPlain = ({ body }: StoredRecord): boolean => body.kind !== 'Cluster' && body.kind !== 'Endpoint'
  const isKnown = (record: StoredRecord): boolean => isPlain(record) && judge.problem(record) === undefined
  const known = changes.every((change) => {
    return (
      isKnown(change.record) && (change.t === 'removed' || change.previous === undefined || isKnown(change.previous))
    )
  })
  if (!known) return undefined
  const services = view.services as Map<ServiceKey, ServiceFacts>
  const touched = new Set<ServiceKey>()
  for (const change of changes) {
    const previous = change.t === 'removed' ? change.record : change.previous
    // Also where nothing is taken: this makes lists of its own.
    touched.add(takeFromService(services, previous ?? change.record))
    if (change.t === 'put') {
      addToService(services, change.record)
      touched.add(serviceOf(change.record))
    }
  }
  for (const key of touched) {
    const facts = services.get(key)
    facts?.exports.sort(byKey)
    facts?.slices.sort(byKey)
  }
  return touched
}

/** Lists are made anew: whoever holds the old ones compares them. */
function takeFromService(services: Map<ServiceKey, ServiceFacts>, record: StoredRecord): ServiceKey {
  const at = serviceOf(record)
  const facts = services.get(at)
  if (facts === undefined) return at
  const text = recordKeyText(record.key)
  const isOther = (one: StoredRecord): boolean => recordKeyText(one.key) !== text
  const left: ServiceFacts = { exports: facts.exports.filter(isOther), slices: facts.slices.filter(isOther) }
  if (facts.ips !== undefined && isOther(facts.ips)) left.ips = facts.ips
  if (left.exports.length + left.slices.length === 0 && left.ips === undefined) services.delete(at)
  else services.set(at, left)
  return at
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
