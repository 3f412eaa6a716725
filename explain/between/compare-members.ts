/** Several members of a clusterset looked at together: each by itself, and what one says of another. Pure. */
import { type Diagnosis, type Health, diagnoseMember } from '../diagnose-member.ts'
import { readFacts } from '../facts/read-facts.ts'
import { type Finding, type RankedFinding, worst } from '../finding.ts'
import { partVersions } from '../overview/part-versions.ts'
import { rankFindings } from '../rank-findings.ts'
import { type World, named, worldOf } from '../world.ts'
import { linkEnds } from './link-ends.ts'
import { records } from './records.ts'

export interface Comparison {
  /** Of the worst. */
  readonly health: Health
  /** In the order in which they were given. */
  readonly members: readonly Diagnosis[]
  /** What only two ends together show. */
  readonly between: readonly RankedFinding[]
}

/** Takes FactSets, or whatever files have. Never throws. */
export function compareMembers(sets: readonly unknown[]): Comparison {
  const members = sets.map((set) => diagnoseMember(set))
  const worlds = sets.map((set) => worldOf(readFacts(set)))
  // What is found does not depend on who was named first.
  const joined = worlds.filter(({ self }) => self !== undefined).sort((a, b) => compare(sortKey(a), sortKey(b)))
  const pairs = joined.flatMap((a, i) => joined.slice(i + 1).map((b) => [a, b] as const))
  const findings = pairs.flatMap(([a, b]) => pairFindings(a, b))
  const between = rankFindings([...findings, ...versions(joined)].map((one) => ({ ...one, area: 'lanes' as const })))
  const severities = [...members.flatMap(({ problems }) => problems), ...between].map(({ severity }) => severity)
  const severity = worst(severities) ?? 'notice'
  return { health: severity === 'notice' ? 'healthy' : severity, members, between }
}

function sortKey({ self = '', target }: World): string {
  return `${self} ${target}`
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

function pairFindings(a: World, b: World): readonly Finding[] {
  const [one, other] = [a, b].map(({ objects }) => objects.Membership?.[0]?.object.spec.clusterset)
  if (a.self === b.self) return [differ('MemberTwice', a, b, `both are ${a.self ?? '-'}`)]
  if (one !== other) return [differ('ClustersetsDiffer', a, b, `one is in ${one ?? '-'}, the other in ${other ?? '-'}`)]
  return [...linkEnds(a, b), ...records(a, b), ...records(b, a)]
}

function differ(reason: 'MemberTwice' | 'ClustersetsDiffer', a: World, b: World, seen: string): Finding {
  const subject = { kind: 'Cluster', name: `${a.self ?? '-'} and ${b.self ?? '-'}` }
  return { reason, severity: 'notice', subject, seen, source: `${a.target}; ${b.target}`, at: a.takenAt }
}

/** Releases of members; those of the parts within one are told there. */
function versions(worlds: readonly World[]): readonly Finding[] {
  const byVersion = new Map<string, string[]>()
  for (const world of worlds) {
    const all = partVersions(world).filter(({ part }) => part !== 'cli')
    for (const version of new Set(all.map((one) => one.version))) {
      byVersion.set(version, [...(byVersion.get(version) ?? []), world.self ?? '-'])
    }
  }
  const [first] = worlds
  if (byVersion.size < 2 || first === undefined) return []
  const seen = [...byVersion].map(([version, members]) => `${version}: ${named(members)}`).join('; ')
  const subject = { kind: 'Clusterset', name: first.objects.Membership?.[0]?.object.spec.clusterset ?? '-' }
  return [{ reason: 'VersionSkew', severity: 'notice', subject, seen, source: 'all members', at: first.takenAt }]
}
