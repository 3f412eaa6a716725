/** Finds which members import what this cluster exports, from their reports. Pure. */
import {
  CONDITION_IMPORTED,
  type Cluster,
  type ConditionFinding,
  type MemberStatus,
  type NotImportedReason,
  type ServiceKey,
  serviceKey,
} from '../../model/model.ts'
import { MAX_IMPORTED_SERVICES, MAX_NAMED_IMPORTERS } from '../../model/values/values.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { ExportOffer } from './offers.ts'

/** The other members and their reports, prepared for a lookup by export. */
export interface Importers {
  /** Members that have reported, sorted. This cluster and dead clusters are left out. */
  readonly reporting: readonly string[]
  /** Members that have not reported yet or that run an earlier release, sorted. */
  readonly silent: readonly string[]
  /** Members with more findings than one report can hold. */
  readonly partial: ReadonlySet<string>
  /** Members without a connection to the broker, with the monotonic time since when: they do not know later records. */
  readonly unheardSince: ReadonlyMap<string, number>
  /**
   * Maps `namespace/name`, `namespace/` or '/' (all exports of this cluster) to the reason by member why it does not
   * import.
   */
  readonly findings: ReadonlyMap<string, ReadonlyMap<string, NotImportedReason>>
}

export interface ImportersInput {
  /** Id of this cluster. */
  readonly own: string
  /** All members of the clusterset. */
  readonly members: Iterable<string>
  /** Members that are treated as dead. */
  readonly expired: ReadonlySet<string>
  readonly statuses: ReadonlyMap<string, MemberStatus>
  readonly unheardSince: ReadonlyMap<string, number>
  /** Namespaces from which this cluster exports. Findings about other namespaces are ignored. */
  readonly namespaces: ReadonlySet<string>
}

export function planImporters(input: ImportersInput): Importers {
  const { own, members, expired, statuses, unheardSince, namespaces } = input
  const others = [...members].filter((id) => id !== own && !expired.has(id)).sort()
  const reporting = others.filter((id) => statuses.has(id))
  const partial = new Set<string>()
  const findings = new Map<string, Map<string, NotImportedReason>>()
  for (const id of reporting) {
    const { notImported = [], leftOut = 0 } = statuses.get(id) ?? {}
    if (leftOut > 0) partial.add(id)
    for (const { reason, namespace, name, cluster } of notImported) {
      if ((cluster !== '' && cluster !== own) || (namespace !== '' && !namespaces.has(namespace))) continue
      const place = `${namespace}/${name}`
      const at = findings.get(place) ?? new Map<string, NotImportedReason>()
      findings.set(place, at.set(id, reason))
    }
  }
  return { reporting, silent: others.filter((id) => !statuses.has(id)), partial, unheardSince, findings }
}

/** Limits the names in one message. The rest is counted, or only mentioned where the number would change often. */
const MAX_NAMES = 5

const WORDS: Record<NotImportedReason, (namespace: string) => string> = {
  NamespaceMissing: (namespace) => `namespace ${namespace} is missing in`,
  NamespaceNotAllowed: (namespace) => `namespace ${namespace} is guarded or excluded in`,
  NameTaken: () => 'a ServiceImport of this name that Sealane did not create exists in',
  IPFamilyNotSupported: () => 'the service has no IP family that pods use in',
  ImportRefused: () => 'the API server refuses the ServiceImport in',
  ExportRefused: () => 'the export is malformed, according to',
  ClusterNotUsable: () => "this cluster's addresses overlap those of",
}

/**
 * The condition Imported of one export that the broker has stored since `storedAt` (monotonic). Only the members that it
 * is offered to count; all if `offered` is undefined.
 */
export function importedCondition(
  key: ServiceKey,
  all: Importers,
  storedAt: number,
  offered?: readonly string[],
): ConditionFinding {
  const { importers, against, isUnsure } = sorted(key, all, storedAt, offered)
  const unsure = [...importers.silent, ...importers.reporting.filter(isUnsure)].sort()
  const names: string[] = []
  for (const id of importers.reporting) {
    if (names.length > MAX_NAMES) break
    if (!against.has(id) && !isUnsure(id)) names.push(id)
  }
  const not = notImporting(against, key.slice(0, key.indexOf('/')))
  const unreported = unsure.length === 0 ? [] : [`no report from ${counted(unsure)}`]
  if (names.length > 0) {
    const by = names.length > MAX_NAMES ? `${names.slice(0, MAX_NAMES).join(', ')} and others` : names.join(', ')
    return finding('True', 'Imported', [`imported by ${by}`, ...not, ...unreported])
  }
  if (unsure.length > 0) return finding('Unknown', 'NotTold', [...unreported, ...not])
  if (against.size === 0) {
    if (all.reporting.length + all.silent.length > 0)
      return finding('Unknown', 'OfferedToNobody', ['access policies offer it to no other member'])
    return finding('Unknown', 'NoOtherMember', ['the clusterset has no other member'])
  }
  return finding('False', 'NotImported', [`no member imports it: ${not.join('; ')}`])
}

/** Which members the export is offered to, which of them do not import it, and of which it is not known. */
function sorted(key: ServiceKey, all: Importers, storedAt: number, offered: readonly string[] | undefined) {
  const named = offered === undefined ? undefined : new Set(offered)
  const isOffered = (id: string): boolean => named?.has(id) ?? true
  const importers = named === undefined ? all : offeredAmong(all, isOffered)
  const namespace = key.slice(0, key.indexOf('/'))
  const against = new Map<string, NotImportedReason>()
  for (const place of [key, `${namespace}/`, '/']) {
    for (const [id, reason] of importers.findings.get(place) ?? [])
      if (!against.has(id) && isOffered(id)) against.set(id, reason)
  }
  const isUnsure = (id: string): boolean =>
    !against.has(id) && (importers.partial.has(id) || (importers.unheardSince.get(id) ?? Infinity) <= storedAt)
  return { importers, against, isUnsure }
}

export type ImportedBy = NonNullable<NonNullable<Cluster['status']>['importedBy']>

export interface ImportedByInput {
  readonly importers: Importers
  /** When the broker has stored each export, monotonic. One that is stored for a moment only is not in it. */
  readonly settled: ReadonlyMap<ServiceKey, number>
  /** All exports, with the members that each is offered to; all members if undefined. */
  readonly exports: ReadonlyMap<ServiceKey, { readonly offered?: Pick<ExportOffer, 'clusters'> | undefined }>
  /** The rows so far. They stay for exports that are not settled yet, as after a start of the agent. */
  readonly before: ImportedBy
}

/** The ids of the members that are known to import each export, by service; at most MAX_IMPORTED_SERVICES services. */
export function planImportedBy({ importers: all, settled, exports, before }: ImportedByInput): ImportedBy {
  const known = new Map(before.map((row) => [serviceKey(row.namespace, row.name), row]))
  const rows: ImportedBy[number][] = []
  for (const key of [...exports.keys()].sort()) {
    if (rows.length >= MAX_IMPORTED_SERVICES) break
    const storedAt = settled.get(key)
    const row = storedAt === undefined ? known.get(key) : rowOf(key, all, storedAt, exports.get(key)?.offered?.clusters)
    if (row !== undefined) rows.push(row)
  }
  return rows
}

function rowOf(
  key: ServiceKey,
  all: Importers,
  storedAt: number,
  offered: readonly string[] | undefined,
): ImportedBy[number] | undefined {
  const { importers, against, isUnsure } = sorted(key, all, storedAt, offered)
  const ids = importers.reporting.filter((id) => !against.has(id) && !isUnsure(id))
  const more = ids.length - MAX_NAMED_IMPORTERS
  const [namespace = '', name = ''] = key.split('/')
  const clusters = ids.slice(0, MAX_NAMED_IMPORTERS)
  return ids.length === 0 ? undefined : { namespace, name, clusters, ...(more > 0 ? { more } : {}) }
}

function offeredAmong(importers: Importers, isOffered: (id: string) => boolean): Importers {
  const { reporting, silent } = importers
  return { ...importers, reporting: reporting.filter(isOffered), silent: silent.filter(isOffered) }
}

/** Gives one sentence for each reason. */
function notImporting(against: ReadonlyMap<string, NotImportedReason>, namespace: string): string[] {
  const byReason = new Map<NotImportedReason, string[]>()
  for (const [id, reason] of against) byReason.set(reason, [...(byReason.get(reason) ?? []), id])
  return [...byReason]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([reason, ids]) => `${WORDS[reason](namespace)} ${counted(ids.sort())}`)
}

function counted(ids: readonly string[]): string {
  const more = ids.length > MAX_NAMES ? ` and ${ids.length - MAX_NAMES} more` : ''
  return `${ids.slice(0, MAX_NAMES).join(', ')}${more}`
}

function finding(status: 'True' | 'False' | 'Unknown', reason: ReasonCode, parts: readonly string[]): ConditionFinding {
  return { type: CONDITION_IMPORTED, status, reason, message: parts.join('; ') }
}
