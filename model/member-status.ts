/**
 * What a member says about itself to the others, once per member and not per object. It names what it does not import,
 * so that exporters see it; what is not named here is imported. And it says how many connections its pods have with
 * others, so that a cluster that joins knows what breaks.
 */
import { isDnsLabel } from './ids.ts'
import type { OpenConnections } from './open-connections.ts'
import type { ReasonCode } from './reasons/reasons.ts'

/** Why a member does not import a service. The names travel. */
export const NOT_IMPORTED_REASONS = [
  'NamespaceMissing',
  'NamespaceNotAllowed',
  'NameTaken',
  'IPFamilyNotSupported',
  'ImportRefused',
  'ExportRefused',
  'ClusterNotUsable',
] as const satisfies readonly ReasonCode[]
export type NotImportedReason = (typeof NOT_IMPORTED_REASONS)[number]

/** '' is a wildcard: a namespace without a name is all services in it, a cluster alone is all that it exports. */
export interface NotImported {
  readonly reason: NotImportedReason
  readonly namespace: string
  readonly name: string
  /** The exporter. */
  readonly cluster: string
}

/** Most findings that one member reports; it counts the others. */
export const MAX_NOT_IMPORTED = 1000

export interface MemberStatus {
  /** Sorted, without doubles, at most MAX_NOT_IMPORTED. */
  readonly notImported: readonly NotImported[]
  /** Findings that are not in the list. */
  readonly leftOut: number
  /** Absent: not known. */
  readonly openConnections?: OpenConnections
}

/** What is wrong with a finding: field and problem in words; undefined for nothing. */
export function findingProblem(one: NotImported): { readonly field: string; readonly problem: string } | undefined {
  const field = (['namespace', 'name', 'cluster'] as const).find((part) => one[part] !== '' && !isDnsLabel(one[part]))
  if (field !== undefined) {
    return { field, problem: `${JSON.stringify(one[field].slice(0, 100))}: expected an RFC 1123 label, or nothing` }
  }
  if (one.namespace === '' && one.name !== '') return { field: 'namespace', problem: 'missing beside a name' }
  if (one.namespace === '' && one.cluster === '') return { field: 'namespace', problem: 'missing without a cluster' }
  if (!NOT_IMPORTED_REASONS.includes(one.reason)) {
    const expected = `expected one of ${NOT_IMPORTED_REASONS.join(', ')}`
    return { field: 'reason', problem: `${JSON.stringify(one.reason.slice(0, 100))}: ${expected}` }
  }
  return undefined
}
