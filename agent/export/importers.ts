/** Finds which members import what this cluster exports, from their reports. Pure. */
import {
  CONDITION_IMPORTED,
  type ConditionFinding,
  type MemberStatus,
  type NotImportedReason,
  type ServiceKey,
} from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'

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
  NamespaceNotAllowed: (namespace) => `namespace ${namespace} is a system namespace, not allowed in`,
  NameTaken: () => 'a ServiceImport of this name that Sealane did not create exists in',
  IPFamilyNotSupported: () => 'the service has no IP family that pods use in',
  ImportRefused: () => 'the API server refuses the ServiceImport in',
  ExportRefused: () => 'the export is malformed, according to',
  ClusterNotUsable: () => "this cluster's addresses overlap those of",
}

/** The condition Imported of one export that the broker has stored since `storedAt` (monotonic). */
export function importedCondition(key: ServiceKey, importers: Importers, storedAt: number): ConditionFinding {
  const namespace = key.slice(0, key.indexOf('/'))
  const against = new Map<string, NotImportedReason>()
  for (const place of [key, `${namespace}/`, '/']) {
    for (const [id, reason] of importers.findings.get(place) ?? []) if (!against.has(id)) against.set(id, reason)
  }
  const isUnsure = (id: string): boolean =>
    !against.has(id) && (importers.partial.has(id) || (importers.unheardSince.get(id) ?? Infinity) <= storedAt)
  const unsure = [...importers.silent, ...importers.reporting.filter(isUnsure)].sort()
  const names: string[] = []
  for (const id of importers.reporting) {
    if (names.length > MAX_NAMES) break
    if (!against.has(id) && !isUnsure(id)) names.push(id)
  }
  const not = notImporting(against, namespace)
  const unreported = unsure.length === 0 ? [] : [`no report from ${counted(unsure)}`]
  if (names.length > 0) {
    const by = names.length > MAX_NAMES ? `${names.slice(0, MAX_NAMES).join(', ')} and others` : names.join(', ')
    return finding('True', 'Imported', [`imported by ${by}`, ...not, ...unreported])
  }
  if (unsure.length > 0) return finding('Unknown', 'NotTold', [...unreported, ...not])
  if (against.size === 0) return finding('Unknown', 'NoOtherMember', ['the clusterset has no other member'])
  return finding('False', 'NotImported', [`no member imports it: ${not.join('; ')}`])
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
