/** `sealane diagnose`: what it prints of one member or of several, which are looked at at once. */
import type { Comparison } from '../../explain/between/compare-members.ts'
import type { Diagnosis } from '../../explain/diagnose-member.ts'
import type { Area } from '../../explain/finding.ts'
import { STATUS_FORMAT } from '../status/status-document.ts'
import { problemsText } from '../status/status-screen.ts'
import type { Several } from './several-members.ts'

/** One document whose fields do not change their meaning; those of `sealane status` mean the same. */
export function diagnosisDocument(
  { health, overview, problems }: Diagnosis,
  area: Area | undefined,
): Record<string, unknown> {
  const { takenAt, target, cluster, clusterset } = overview
  return { format: STATUS_FORMAT, health, area: area ?? 'all', takenAt, target, cluster, clusterset, problems }
}

export function diagnosisText(
  { health, overview, problems }: Diagnosis,
  area: Area | undefined,
  wide: boolean,
): string {
  const { cluster, clusterset } = overview
  const title = cluster === undefined ? overview.target : `${cluster} in clusterset ${clusterset ?? '-'}`
  const of = area === undefined ? '' : ` (${area})`
  return `${title}: ${health}${of}\n${problemsText(overview, problems, wide)}`
}

/** Of several: each as it is of one, and what only both ends show. */
export function comparisonDocument(
  { health, members, between }: Comparison,
  missing: Several['missing'],
): Record<string, unknown> {
  const documents = members.map((one) => diagnosisDocument(one, undefined))
  return { format: STATUS_FORMAT, health, between, members: documents, notLookedAt: missing }
}

export function comparisonText(
  { health, members, between }: Comparison,
  missing: Several['missing'],
  wide: boolean,
): string {
  const [first] = members
  const title = `${members.length} member${members.length === 1 ? '' : 's'} looked at: ${health}\n`
  const ends =
    first === undefined || between.length === 0 ? [] : [`between them:\n${problemsText(first.overview, between, wide)}`]
  const each = members.map((one) => diagnosisText(one, undefined, wide))
  const others = missing.map(({ target, why }) => `not looked at: ${target}: ${why}\n`)
  return [title, ...ends, ...each, ...others].join('\n')
}
