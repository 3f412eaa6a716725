/** Where the exports of one service disagree, in the words of the MCS API (condition Conflict). Pure. */
import { type ClusterExport, mergedFamilies, reachableFamilies } from './export-precedence.ts'
import type { ImportPort } from '../objects.ts'
import type { ReasonCode } from '../reasons/reasons.ts'
import type { ServiceExportBody } from '../records.ts'

/** In the order of the API's documentation; several are comma-joined in that order. */
export const CONFLICT_REASONS = [
  'PortConflict',
  'TypeConflict',
  'SessionAffinityConflict',
  'SessionAffinityConfigConflict',
  'AnnotationsConflict',
  'LabelsConflict',
  'InternalTrafficPolicyConflict',
  'TrafficDistributionConflict',
  'IPFamilyConflict',
] as const satisfies readonly ReasonCode[]

export type ConflictReason = (typeof CONFLICT_REASONS)[number]

export interface ConflictFinding {
  /** In the order of CONFLICT_REASONS; empty when there is no conflict. */
  readonly reasons: readonly ConflictReason[]
  /** For people: per reason the rule that decided, and who has what. */
  readonly message: string
}

/** Kubernetes' default of sessionAffinityConfig.clientIP.timeoutSeconds. */
const DEFAULT_AFFINITY_SECONDS = 10_800
/** Enough to act on; the rest is counted. A condition's message has a limit of 32768 characters. */
const MAX_CLUSTERS_IN_MESSAGE = 5
const MAX_VALUE_LENGTH = 200

/** One property of an export as text: two exports agree when the texts are equal. */
type Show = (body: ServiceExportBody) => string

const PROPERTIES: readonly { readonly reason: ConflictReason; readonly field: string; readonly show: Show }[] = [
  { reason: 'PortConflict', field: 'ports', show: (body) => body.ports.map(showPort).sort().join(', ') || 'none' },
  { reason: 'TypeConflict', field: 'type', show: (body) => body.type },
  { reason: 'SessionAffinityConflict', field: 'sessionAffinity', show: (body) => body.sessionAffinity },
  { reason: 'AnnotationsConflict', field: 'exportedAnnotations', show: (body) => showMap(body.exportedAnnotations) },
  { reason: 'LabelsConflict', field: 'exportedLabels', show: (body) => showMap(body.exportedLabels) },
  {
    reason: 'InternalTrafficPolicyConflict',
    field: 'internalTrafficPolicy',
    // An API server writes the default out, a plain file need not.
    show: (body) => body.internalTrafficPolicy ?? 'Cluster',
  },
  {
    reason: 'TrafficDistributionConflict',
    field: 'trafficDistribution',
    show: (body) => body.trafficDistribution ?? 'none',
  },
]

/** Takes all exports of one service, by precedence, at least one. */
export function findConflicts(ordered: readonly ClusterExport[]): ConflictFinding {
  const found = new Map<ConflictReason, string>()
  for (const { reason, field, show } of PROPERTIES) note(found, reason, describe(field, ordered, show))
  // With different affinities their settings differ as a matter of course; that is reported once.
  const sticky = ordered.filter(({ body }) => body.sessionAffinity === 'ClientIP')
  note(found, 'SessionAffinityConfigConflict', describe('sessionAffinityConfig timeout', sticky, showTimeout))
  note(found, 'IPFamilyConflict', describeFamilies(ordered))
  const reasons = CONFLICT_REASONS.filter((reason) => found.has(reason))
  const message = reasons.map((reason) => found.get(reason) ?? '').join('. ')
  return { reasons, message }
}

function note(found: Map<ConflictReason, string>, reason: ConflictReason, text: string | undefined): void {
  if (text !== undefined) found.set(reason, text)
}

function describe(field: string, ordered: readonly ClusterExport[], show: Show): string | undefined {
  const oldest = ordered[0]
  if (oldest === undefined) return undefined
  const used = show(oldest.body)
  const others = ordered.filter(({ body }) => show(body) !== used)
  if (others.length === 0) return undefined
  const rule =
    field === 'ports' ? 'all ports are offered, the oldest export wins where they clash' : 'the oldest export wins'
  return `${field}: ${rule}; ${oldest.cluster} has ${clip(used)}; ${reportOthers(others, ({ body }) => show(body))}`
}

/**
 * Only a family that is offered and that some cluster lacks leaves part of the endpoints out of reach (KEP-1645
 * "Exporting Services"); a family that a younger export has in addition harms nobody.
 */
function describeFamilies(ordered: readonly ClusterExport[]): string | undefined {
  const offered = mergedFamilies(ordered)
  const anyReachable = ordered.some((one) => reachableFamilies(one).length > 0)
  const has = (one: ClusterExport): readonly string[] => (anyReachable ? reachableFamilies(one) : one.body.ipFamilies)
  const lacking = ordered.filter(
    (one) => one.body.ipFamilies.length > 0 && !offered.every((family) => has(one).includes(family)),
  )
  if (lacking.length === 0) return undefined
  return `ipFamilies: ${offered.join(' and ')} offered; ${reportOthers(lacking, showFamilies)}`
}

function showFamilies(one: ClusterExport): string {
  const reachable = reachableFamilies(one)
  if (reachable.length > 0) return `${reachable.join(' and ')} only`
  return `${one.body.ipFamilies.join(' and ')}, which its cluster is not reached by`
}

function reportOthers(others: readonly ClusterExport[], show: (one: ClusterExport) => string): string {
  const reported = others.slice(0, MAX_CLUSTERS_IN_MESSAGE).map((one) => `${one.cluster} has ${clip(show(one))}`)
  const more = others.length - reported.length
  return reported.join('; ') + (more > 0 ? `; and ${more} more` : '')
}

function showPort(port: ImportPort): string {
  const name = port.name === undefined || port.name === '' ? 'unnamed' : port.name
  const app = port.appProtocol === undefined || port.appProtocol === '' ? '' : ` (${port.appProtocol})`
  return `${name} ${port.port}/${port.protocol}${app}`
}

function showMap(map: Readonly<Record<string, string>>): string {
  const entries = Object.entries(map).sort(([a], [b]) => (a < b ? -1 : 1))
  return entries.length === 0 ? 'none' : JSON.stringify(Object.fromEntries(entries))
}

function showTimeout(body: ServiceExportBody): string {
  return `${body.sessionAffinityTimeoutSeconds ?? DEFAULT_AFFINITY_SECONDS} s`
}

function clip(text: string): string {
  return text.length <= MAX_VALUE_LENGTH ? text : `${text.slice(0, MAX_VALUE_LENGTH)}…`
}
