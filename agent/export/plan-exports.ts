/** Plans what this cluster publishes from its own objects, and which of its exports are valid. Pure. */
import { keepsOpenConnections, offerProblem } from '../../model/access/access.ts'
import type { Prefix } from '../../model/addresses/addresses.ts'
import {
  CONDITION_IMPORTED,
  CONDITION_READY,
  type ConditionFinding,
  type Endpoint,
  type EndpointSlice,
  type EndpointSliceBody,
  LABEL_K8S_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  type MemberRecord,
  type PublishedEndpoint,
  type Service,
  type ServiceExport,
  type ServiceExportBody,
  type ServiceKey,
  excludedNamespace,
  findCondition,
  guardedNamespace,
  isDnsLabel,
  nameHash,
  serviceKey,
  unexportedNamespace,
} from '../../model/model.ts'
import { MAX_SLICE_ADDRESSES, RECORD_FORMS, pairBytes } from '../../model/grammar/grammar.ts'
import { type ReasonCode, firstReason, hasReason, joinReasons } from '../../model/reasons/reasons.ts'
import { clusterSelectorsProblem, isDerived, usersReason } from '../../model/services/services.ts'
import { memberRecordBytes } from '../../protocol/codec/codec.ts'
import { MAX_RECORD_BYTES } from '../../protocol/protocol.ts'
import { KeyedMemo } from '../../reconcile/reconcile.ts'
import { type LeftOutNote, type SlicePlace, drainNote, exportBody, exportType, sliceBody } from './member-records.ts'
import { type ExportAccess, type ExportOffer, OfferMemory } from './offers.ts'

// Divides the EndpointSlices of a Service for publishing. A small service becomes one slice for each family and set of
// ports, however its own cluster divides it. A large service keeps its division, so that one pod changes one slice. No
// slice has more endpoints than the EndpointSlice controller's default. Pure.

export interface NamedSlice {
  readonly name: string
  readonly body: EndpointSliceBody
}

export const MAX_ENDPOINTS_PUBLISHED = 100

/** Takes all slices of one service, sorted by name, with sorted endpoints. An unchanged body stays the same object. */
export function packSlices(slices: readonly NamedSlice[]): NamedSlice[] {
  const groups = new Map<string, NamedSlice[]>()
  for (const slice of slices) {
    const key = JSON.stringify([slice.body.addressType, slice.body.ports])
    const group = groups.get(key)
    if (group === undefined) groups.set(key, [slice])
    else group.push(slice)
  }
  const packed = [...groups.values()].flatMap(packGroup)
  // Drops empty slices of a family that has endpoints, such as the placeholder of a service that had no pods.
  const served = new Set(packed.filter(({ body }) => body.endpoints.length > 0).map(({ body }) => body.addressType))
  return packed.filter(({ body }) => body.endpoints.length > 0 || !served.has(body.addressType))
}

function packGroup(group: readonly NamedSlice[]): NamedSlice[] {
  const [first] = group
  if (first === undefined) return []
  if (group.length > 1) {
    const endpoints = unique(group.flatMap(({ body }) => body.endpoints))
    if (endpoints.length <= MAX_ENDPOINTS_PUBLISHED) return [{ ...first, body: { ...first.body, endpoints } }]
  }
  return group.flatMap(chunks)
}

function chunks({ name, body }: NamedSlice): NamedSlice[] {
  if (body.endpoints.length <= MAX_ENDPOINTS_PUBLISHED) return [{ name, body }]
  const parts: NamedSlice[] = []
  for (let i = 0; i < body.endpoints.length; i += MAX_ENDPOINTS_PUBLISHED) {
    const endpoints = body.endpoints.slice(i, i + MAX_ENDPOINTS_PUBLISHED)
    const part = i === 0 ? name : `${body.service}-${nameHash(name, String(i / MAX_ENDPOINTS_PUBLISHED))}`
    parts.push({ name: part, body: { ...body, endpoints } })
  }
  return parts
}

/** While slices are rearranged, an endpoint may be in two of them. The one that is ready counts. */
function unique(endpoints: readonly PublishedEndpoint[]): PublishedEndpoint[] {
  const found = new Map<string, PublishedEndpoint>()
  for (const endpoint of endpoints) {
    const key = endpoint.addresses.join()
    const known = found.get(key)
    if (known === undefined || (known.conditions?.ready === false && endpoint.conditions?.ready !== false)) {
      found.set(key, endpoint)
    }
  }
  return [...found].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)).map(([, endpoint]) => endpoint)
}

export interface ExportWorld {
  /** Id of this cluster. */
  readonly cluster: string
  /** Pod CIDRs. Other clusters can reach only endpoints inside them. */
  readonly podPrefixes: readonly Prefix[]
  /** Why IPv6 is left out, by ipv6LeftOut(). */
  readonly ipv6LeftOut?: string | undefined
  readonly access: ExportAccess
  /** Whether the broker has a record of this export of ours. Undefined while that is not known. Absent: it has none. */
  readonly isStored?: (key: ServiceKey) => boolean | undefined
  readonly exports: readonly ServiceExport[]
  readonly services: readonly Service[]
  /** All slices of the local API. planExports() ignores imported ones by their label. */
  readonly slices: readonly EndpointSlice[]
  /** All Endpoints of the local API. planExports() ignores those of other clusters. */
  readonly endpoints: readonly Endpoint[]
}

export type PublishedSlice = MemberRecord & { readonly body: EndpointSliceBody }

/** This cluster's own part of a service. */
export interface OwnExport {
  readonly body: ServiceExportBody
  readonly slices: readonly PublishedSlice[]
}

export interface PlannedRecords {
  /** The condition Valid. */
  readonly valid: ConditionFinding
  /** Keys of the records of this export, the ServiceExport's own first. Empty if the export is not valid. */
  readonly recordKeys: readonly string[]
  readonly records: readonly MemberRecord[]
  /** The content of the records. Undefined if the export is not valid. */
  readonly exported: OwnExport | undefined
  /** To whom it is offered. Undefined if the export is not valid. */
  readonly offered: ExportOffer | undefined
  /** Messages about what was left out of the published endpoints and why. */
  readonly notes: readonly LeftOutNote[]
}

export interface PlannedExport extends PlannedRecords {
  readonly object: ServiceExport
}

export interface ExportPlan {
  /** Records by `<kind>/<namespace>/<name>`. */
  readonly records: ReadonlyMap<string, MemberRecord>
  readonly exports: ReadonlyMap<ServiceKey, PlannedExport>
  /**
   * Exports of guarded namespaces of which the broker alone knows whether an earlier release has exported them. They are
   * left out, and until it has answered, nothing may be withdrawn.
   */
  readonly undecided: ReadonlySet<ServiceKey>
}

/** The cached result for a slice. It is valid while the slice and these inputs stay the same. */
interface SliceResult {
  readonly podPrefixes: readonly Prefix[]
  readonly ipv6LeftOut: string | undefined
  readonly cluster: string
  readonly reportsPods: boolean
  readonly body: EndpointSliceBody | undefined
  readonly notes: readonly LeftOutNote[]
}

/** A cache between rounds. It saves work but does not change the result. */
export interface ExportMemory {
  readonly plans: KeyedMemo<PlannedRecords | MemberRecord>
  /** One pod of 5,000 changes one slice. The other slices are not processed again. */
  readonly slices: WeakMap<EndpointSlice, SliceResult>
  readonly records: WeakMap<EndpointSliceBody, { readonly offered: ExportOffer; readonly record: PublishedSlice }>
  readonly offers: OfferMemory
}

export function newExportMemory(): ExportMemory {
  return { plans: new KeyedMemo(), slices: new WeakMap(), records: new WeakMap(), offers: new OfferMemory() }
}

/**
 * Takes the world and, to save work, the cache of the previous round. The records are sorted: gateways, then exports.
 */
export function planExports(world: ExportWorld, memory: ExportMemory = newExportMemory()): ExportPlan {
  const memo = memory.plans
  const services = new Map(world.services.map((service) => [keyOf(service), service]))
  const slices = groupOwnSlices(world.slices)
  const records = new Map<string, MemberRecord>()
  const exports = new Map<ServiceKey, PlannedExport>()
  const undecided = new Set<ServiceKey>()
  // Gateways are published first, so that no service delays a lane.
  for (const endpoint of sortedByKey(world.endpoints)) {
    if (endpoint.spec.cluster !== world.cluster || endpoint.metadata.deletionTimestamp !== undefined) continue
    const key = `Endpoint//${endpoint.metadata.name}`
    records.set(key, memo.get(key, [endpoint], () => endpointRecord(endpoint)) as MemberRecord)
  }
  const current = sortedByKey(world.exports).filter(({ metadata }) => metadata.deletionTimestamp === undefined)
  const offers = memory.offers.decide(world.cluster, world.access, current.map(keyOf))
  const isClosed = world.access.exposure === 'nothing'
  const keepsOpen = keepsOpenConnections(world.access.clusterPolicies)
  const open: OpenConnections = keepsOpen ? 'kept' : world.access.exposure === 'pods' ? 'not looked at' : 'ended'
  for (const object of current) {
    const key = keyOf(object)
    const offered = offers.get(key)
    if (offered === undefined) continue
    const service = services.get(key)
    const own = slices.get(key) ?? []
    // Compares metadata and spec, not the object: the agent writes the status, which must not look like a changed
    // export.
    const { podPrefixes, ipv6LeftOut, cluster } = world
    const permission = guardPermission(object, world)
    if (permission === 'unknown') {
      undecided.add(key)
      continue
    }
    const others = [offered, isClosed, open, permission]
    const inputs = [object.metadata, object.spec, service, own, podPrefixes, ipv6LeftOut, cluster, ...others]
    const planned = memo.get(key, inputs, () =>
      planExport(world, memory, { object, service, own, offered, open, permission }),
    ) as PlannedRecords
    exports.set(key, { object, ...planned })
    planned.records.forEach((record, i) => records.set(planned.recordKeys[i] ?? '', record))
  }
  memo.endRound()
  return { records, exports, undecided }
}

interface ExportAtHand {
  readonly object: ServiceExport
  readonly service: Service | undefined
  readonly own: readonly EndpointSlice[]
  readonly offered: ExportOffer
  readonly open: OpenConnections
  readonly permission: GuardPermission | undefined
}

/** What this cluster's nodes do with open connections after a withdrawal. They look at none if all pods are exposed. */
type OpenConnections = 'kept' | 'ended' | 'not looked at'

const NOT_PUBLISHED = { recordKeys: [], records: [], exported: undefined, offered: undefined, notes: [] } as const

function planExport(
  world: ExportWorld,
  memory: ExportMemory,
  { object, service, own, offered, open, permission }: ExportAtHand,
): PlannedRecords {
  const valid = withPermission(validateExport(object, service, world.access, permission), permission)
  if (service === undefined || valid.status !== 'True') return { valid, ...NOT_PUBLISHED }
  const namespace = object.metadata.namespace ?? ''
  const { name } = object.metadata
  const drain = drainNote(object)
  const notes: LeftOutNote[] = drain === undefined ? [] : [drain]
  if (offered.cut !== undefined) notes.push({ message: `${offered.cut}; the rest may not call`, reason: 'OfferCut' })
  const { cluster, podPrefixes, ipv6LeftOut } = world
  const reportsPods = new Set(own.map(({ addressType }) => addressType)).size > 1
  const place = { cluster, namespace, service: name, podPrefixes, ipv6LeftOut, reportsPods }
  const slices: NamedSlice[] = []
  for (const slice of sortedByKey(own)) {
    const result = rememberedSlice(memory, slice, place)
    notes.push(...result.notes)
    if (result.body !== undefined) slices.push({ name: slice.metadata.name, body: result.body })
  }
  const published = packSlices(slices).map(({ name: sliceName, body }) => {
    const known = memory.records.get(body)
    if (known?.offered === offered) return known.record
    const record = { namespace, name: sliceName, body: offeredBody(body, offered.clusters) }
    memory.records.set(body, { offered, record })
    return record
  })
  const body = offeredBody(exportBody(object, service, own), offered.offer)
  const exported = { body: openBody(body, open), slices: published }
  const records: MemberRecord[] = [{ namespace, name, body: exported.body }, ...published]
  const excess = describeExcess(exported, records)
  if (excess !== undefined) {
    const message = `Service ${namespace}/${name} is too large to be exported: ${excess}`
    const refused = { ...valid, status: 'False', reason: 'ServiceTooLarge', message } as const
    return { valid: withPermission(refused, permission), ...NOT_PUBLISHED }
  }
  return { valid, records, recordKeys: records.map(keyTextOf), exported, offered, notes: eachOnce(notes) }
}

/** Without the field, a record is for all members. */
function offeredBody<T extends ServiceExportBody | EndpointSliceBody>(
  body: T,
  offeredTo: NonNullable<T['offeredTo']> | undefined,
): T {
  return offeredTo === undefined ? body : { ...body, offeredTo }
}

/**
 * The nodes of the caller decide by namespaces, and no others have to know that open connections go on. All may end
 * what gets no answer after a withdrawal.
 */
function openBody(body: ServiceExportBody, open: OpenConnections): ServiceExportBody {
  if (open === 'ended') return { ...body, endsOpen: true }
  const isLimited = body.offeredTo?.some(({ namespaces }) => namespaces !== undefined) === true
  return isLimited && open === 'kept' ? { ...body, keepsOpen: true } : body
}

/**
 * The condition Valid (KEP-1645 "Service Types"). Takes the export and the Service of the same namespace and name, or
 * undefined if there is none.
 */
function validateExport(
  object: ServiceExport,
  service: Service | undefined,
  { exposure, namespaces = {} }: ExportAccess,
  permission: GuardPermission | undefined,
): ConditionFinding {
  const { namespace = '', name } = object.metadata
  const title = `Service ${namespace}/${name}`
  const finding = (status: 'True' | 'False', reason: ReasonCode, message: string): ConditionFinding => ({
    type: 'Valid',
    status,
    reason,
    message,
  })
  // No client can resolve a name that is not a DNS label.
  const wrong = [namespace, name].find((part) => !isDnsLabel(part))
  if (wrong !== undefined) {
    const limit = 'expected 1 to 63 of a-z, 0-9 and -'
    return finding('False', 'NoService', `${title} cannot have a DNS name: ${JSON.stringify(wrong)}: ${limit}`)
  }
  if (service === undefined || service.metadata.deletionTimestamp !== undefined) {
    return finding('False', 'NoService', `${title} does not exist`)
  }
  if (isDerived(service) && usersReason(service) === undefined) {
    const why = 'is derived from an import, whose clusters export it themselves'
    return finding('False', 'DerivedServiceNotExported', `${title} ${why}`)
  }
  if (service.spec?.type === 'ExternalName') {
    return finding('False', 'InvalidServiceType', `${title} is of type ExternalName, which cannot be exported`)
  }
  const selectors = clusterSelectorsProblem(object.spec?.clusterSelectors, exportType(service))
  if (selectors !== undefined) return finding('False', selectors.reason, selectors.message)
  const why = excludedNamespace(namespace, namespaces)
  const lists = 'allowedNamespaces of the site file, or --allow-namespace of sealane join'
  const hint = `namespace ${namespace} ${why}; ${lists}, may name it`
  if (why !== undefined && permission === undefined)
    return finding('False', 'NamespaceNotAllowed', `${title} is not exported: ${hint}`)
  if (exposure === 'nothing') {
    // A broker of an earlier release would give a record that is offered to nobody to all members.
    return finding('False', 'ExposesNothing', `${title} is not exported: Membership self has spec.exposure "nothing"`)
  }
  const remark = why === undefined ? '' : `, because it was before: ${hint}`
  return finding('True', 'Valid', `${title} can be exported${remark}`)
}

/** Why an export of a guarded namespace may be valid. The condition Valid has it as a further reason. */
type GuardPermission = 'NamespaceAllowed' | 'ExportedBefore'

/** Undefined if the namespace is not guarded, and if nothing permits the export. */
function guardPermission(
  object: ServiceExport,
  { access: { namespaces: lists = {} }, isStored = () => false }: Pick<ExportWorld, 'access' | 'isStored'>,
): GuardPermission | 'unknown' | undefined {
  const { namespace = '' } = object.metadata
  if (guardedNamespace(namespace) === undefined) return undefined
  if (excludedNamespace(namespace, lists) === undefined) return 'NamespaceAllowed'
  if (unexportedNamespace(namespace, lists) !== undefined) return undefined
  const was = wasExported(object) ?? isStored(keyOf(object)) ?? 'unknown'
  return was === 'unknown' ? was : was ? 'ExportedBefore' : undefined
}

/**
 * A release that did not look at the own list has exported it, and the broker has not refused the namespace since. Such
 * a release has written `Valid` as the only reason. It has also left that reason on exports after a leave, whose Ready is
 * Pending. A leave also resets Imported. So an export whose Ready is Pending but whose Imported is known was exported,
 * and waits for the broker to store a change. Undefined if Imported is not known either: the export may never have been
 * stored, or others may not have had time to report it before a change, or a release without Imported wrote all this.
 * The further reason outlasts a time in which the export is not valid.
 */
function wasExported({ status }: ServiceExport): boolean | undefined {
  const [valid, ready] = ['Valid', CONDITION_READY].map((type) => findCondition(status?.conditions, type))
  if (valid === undefined || ready === undefined || ready.reason === 'NamespaceNotAllowed') return false
  if (hasReason(valid.reason, 'ExportedBefore')) return true
  if (valid.status !== 'True' || valid.reason !== 'Valid') return false
  if (ready.reason !== 'Pending') return true
  const imported = findCondition(status?.conditions, CONDITION_IMPORTED)
  return imported !== undefined && imported.reason !== 'Pending' ? true : undefined
}

/** A permission by the own list ends with the list, so an export that is not valid does not keep it. */
function withPermission(finding: ConditionFinding, permission: GuardPermission | undefined): ConditionFinding {
  const isKept = permission === 'ExportedBefore' || finding.status === 'True'
  if (permission === undefined || !isKept) return finding
  return { ...finding, reason: joinReasons([firstReason(finding.reason), permission]) }
}

const EXPORT = RECORD_FORMS.ServiceExport.fields

/** What an export has too much of, with both numbers. Undefined if it fits. The broker has the same limits. */
function describeExcess({ body, slices }: OwnExport, records: readonly MemberRecord[]): string | undefined {
  const counts: readonly (readonly [what: string, is: number, most: number])[] = [
    ['ports', body.ports.length, EXPORT.ports.most],
    ['exported labels', Object.keys(body.exportedLabels).length, EXPORT.exportedLabels.most],
    ['exported annotations', Object.keys(body.exportedAnnotations).length, EXPORT.exportedAnnotations.most],
    ['bytes of exported annotations', pairBytes(body.exportedAnnotations), EXPORT.exportedAnnotations.mostTogether],
    ...slices.flatMap(({ name, body: { ports, endpoints } }) => {
      const addresses = endpoints.reduce((sum, one) => sum + one.addresses.length, 0)
      return [
        [`ports in EndpointSlice ${name}`, ports.length, EXPORT.ports.most],
        [`addresses in EndpointSlice ${name}`, addresses, MAX_SLICE_ADDRESSES],
      ] as const
    }),
  ]
  const offer = offerProblem(body.offeredTo)
  if (offer !== undefined) return `its AccessPolicies offer it to too many: ${offer}`
  const found = counts.find(([, is, most]) => is > most)
  if (found !== undefined) return `it has ${found[1]} ${found[0]}, and an export carries at most ${found[2]}`
  for (const record of records) {
    const bytes = memberRecordBytes(record)
    if (bytes <= MAX_RECORD_BYTES) continue
    const what = record.body.kind === 'EndpointSlice' ? `its EndpointSlice ${record.name}` : 'its export'
    const { length } = record.body.kind === 'Endpoint' ? [] : record.body.ports
    return `${what} takes ${bytes} bytes with ${length} ports, and a record has at most ${MAX_RECORD_BYTES}`
  }
  return undefined
}

function eachOnce(notes: readonly LeftOutNote[]): readonly LeftOutNote[] {
  return [...new Map(notes.map((note) => [note.message, note])).values()]
}

function rememberedSlice(memory: ExportMemory, slice: EndpointSlice, place: SlicePlace): SliceResult {
  const { podPrefixes, ipv6LeftOut, cluster, reportsPods = false } = place
  const known = memory.slices.get(slice)
  const sameCluster = known?.podPrefixes === podPrefixes && known.cluster === cluster
  if (sameCluster && known.ipv6LeftOut === ipv6LeftOut && known.reportsPods === reportsPods) return known
  const notes: LeftOutNote[] = []
  const result = { podPrefixes, ipv6LeftOut, cluster, reportsPods, body: sliceBody(slice, place, notes), notes }
  memory.slices.set(slice, result)
  return result
}

function endpointRecord({ metadata, spec }: Endpoint): MemberRecord {
  return { namespace: '', name: metadata.name, body: { kind: 'Endpoint', spec } }
}

/**
 * Groups the user's own slices by their Service. Slices that an importer made carry the label of their source cluster.
 */
function groupOwnSlices(slices: readonly EndpointSlice[]): Map<ServiceKey, EndpointSlice[]> {
  const groups = new Map<ServiceKey, EndpointSlice[]>()
  for (const slice of slices) {
    const key = remembered(serviceKeys, slice, ownServiceOf)
    if (key === undefined) continue
    const group = groups.get(key)
    if (group === undefined) groups.set(key, [slice])
    else group.push(slice)
  }
  return groups
}

function ownServiceOf({ metadata }: EndpointSlice): ServiceKey | undefined {
  const service = metadata.labels?.[LABEL_K8S_SERVICE_NAME]
  const isOwn = metadata.labels?.[LABEL_SOURCE_CLUSTER] === undefined && metadata.deletionTimestamp === undefined
  return service === undefined || !isOwn ? undefined : serviceKey(metadata.namespace ?? '', service)
}

interface Named {
  readonly metadata: { readonly namespace?: string; readonly name: string }
}

// Every round needs the keys of all objects, and few of them change from one round to the next.
const objectKeys = new WeakMap<object, ServiceKey>()
const serviceKeys = new WeakMap<object, ServiceKey | undefined>()

function remembered<T extends object, V>(known: WeakMap<object, V>, object: T, compute: (object: T) => V): V {
  const found = known.get(object)
  if (found !== undefined || known.has(object)) return found as V
  const value = compute(object)
  known.set(object, value)
  return value
}

function keyOf(object: Named): ServiceKey {
  return remembered(objectKeys, object, ({ metadata }) => serviceKey(metadata.namespace ?? '', metadata.name))
}

/** Caches list their objects sorted, so there is seldom anything to sort. */
function sortedByKey<T extends Named>(objects: readonly T[]): readonly T[] {
  const keys = objects.map(keyOf)
  if (keys.every((key, i) => i === 0 || (keys[i - 1] ?? '') <= key)) return objects
  const compare = (a: T, b: T): number => (keyOf(a) < keyOf(b) ? -1 : keyOf(a) > keyOf(b) ? 1 : 0)
  return [...objects].sort(compare)
}

function keyTextOf(record: MemberRecord): string {
  return `${record.body.kind}/${record.namespace}/${record.name}`
}
