/** Diagnoses several members of a clusterset together: each by itself, and what they report about each other. Pure. */
import { CONDITION_READY, findCondition } from '../model/model.ts'
import { remoteLaneOf } from '../model/lanes/lanes.ts'
import { type Diagnosis, type Health, diagnoseMember } from './diagnose-member.ts'
import {
  type Finding,
  type Link,
  type RankedFinding,
  type World,
  absentAt,
  named,
  partVersions,
  rankFindings,
  readFacts,
  seenAt,
  worldOf,
  worst,
} from './facts/facts.ts'

// Checks whether one member's records of another agree with what that one states itself. Its records are as old as its
// last message from the broker.

const RANGES = ['podCIDRs', 'serviceCIDRs', 'globalCIDRs'] as const

/** Compares the records that `reader` has of `owner`. */
function records(reader: World, owner: World): readonly Finding[] {
  if (reader.self === undefined || owner.self === undefined) return []
  const known = reader.objects.Cluster?.find(({ object }) => object.spec.id === owner.self)
  if (reader.objects.Cluster !== undefined && known === undefined) {
    const seen = `${reader.self} has no Cluster of ${owner.self}`
    return [
      { reason: 'MemberMissing', severity: 'degraded', subject: pairOf(reader, owner), seen, ...absentAt(reader) },
    ]
  }
  return [...ranges(reader, owner), ...gateways(reader, owner), ...services(reader, owner)]
}

function pairOf(reader: World, owner: World): Finding['subject'] {
  return { kind: 'Cluster', name: `${owner.self ?? '-'} in ${reader.self ?? '-'}` }
}

function ranges(reader: World, owner: World): readonly Finding[] {
  const [theirs, own] = [reader, owner].map(({ objects }) =>
    objects.Cluster?.find(({ object }) => object.spec.id === owner.self),
  )
  if (theirs === undefined || own === undefined) return []
  const differing = RANGES.flatMap((field) => {
    const [known, said] = [theirs, own].map(({ object: { spec } }) => [...spec[field]].sort().join(', '))
    return known === said
      ? []
      : [
          `${field} are ${known === '' ? 'none' : (known ?? '')} in ${reader.self ?? '-'} and ${said === '' ? 'none' : (said ?? '')} in ${owner.self ?? '-'}`,
        ]
  })
  if (differing.length === 0) return []
  const seen = differing.join('; ')
  return [{ reason: 'RecordsDiffer', severity: 'degraded', subject: pairOf(reader, owner), seen, ...seenAt(theirs) }]
}

/** Ignores keys, which bundles replace by numbers. */
function gateways(reader: World, owner: World): readonly Finding[] {
  const [theirs, own] = [reader, owner].map(({ objects }) =>
    objects.Endpoint?.filter(({ object }) => object.spec.cluster === owner.self),
  )
  if (theirs === undefined || own === undefined) return []
  const textOf = ({ object: { spec } }: (typeof own)[number]): string => {
    const places = spec.candidates.map(({ address, port }) => `${address} port ${port}`).sort()
    return `${spec.node} on lane ${spec.lane} at ${places.join(', ') || 'no address'}`
  }
  const [known, said] = [new Set(theirs.map(textOf)), new Set(own.map(textOf))]
  const missing = [...said].filter((one) => !known.has(one))
  const old = [...known].filter((one) => !said.has(one))
  if (missing.length + old.length === 0) return []
  const texts = [
    ...(missing.length === 0 ? [] : [`missing: ${named(missing)}`]),
    ...(old.length === 0 ? [] : [`outdated: ${named(old)}`]),
  ]
  const subject = { kind: 'Endpoint', name: pairOf(reader, owner).name }
  const at = theirs[0] === undefined ? absentAt(reader) : seenAt(theirs[0])
  return [{ reason: 'RecordsDiffer', severity: 'degraded', subject, seen: `gateways: ${texts.join('; ')}`, ...at }]
}

/**
 * The other member's namespaces are not among the facts, so it is unknown whether the service should be imported there.
 */
function services(reader: World, owner: World): readonly Finding[] {
  const imports = reader.objects.ServiceImport
  if (imports === undefined) return []
  const nameOf = ({ namespace = '', name }: { readonly namespace?: string; readonly name: string }): string =>
    `${namespace}/${name}`
  const there = new Set(imports.map(({ object }) => nameOf(object.metadata)))
  const missing = (owner.objects.ServiceExport ?? [])
    .filter(({ object }) => findCondition(object.status?.conditions, CONDITION_READY)?.status === 'True')
    .map(({ object }) => nameOf(object.metadata))
    .filter((name) => !there.has(name))
  if (missing.length === 0) return []
  const seen = `${missing.length} services that ${owner.self ?? '-'} exports are missing in ${reader.self ?? '-'}: ${named(missing)}`
  const subject = { kind: 'ServiceImport', name: pairOf(reader, owner).name }
  return [{ reason: 'ImportsMissing', severity: 'notice', subject, seen, ...absentAt(reader) }]
}

export interface Comparison {
  /** The health of the worst member. */
  readonly health: Health
  /** In the given order. */
  readonly members: readonly Diagnosis[]
  /** Findings that need the facts of both members. */
  readonly between: readonly RankedFinding[]
}

/** Takes FactSets, or the parsed content of files. Never throws. */
export function compareMembers(sets: readonly unknown[]): Comparison {
  const members = sets.map((set) => diagnoseMember(set))
  const worlds = sets.map((set) => worldOf(readFacts(set)))
  // Sorted, so that the findings do not depend on the order of the members.
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

/** What only the facts of both members show. */
export function pairFindings(a: World, b: World): readonly Finding[] {
  const [one, other] = [a, b].map(({ objects }) => objects.Membership?.[0]?.object.spec.clusterset)
  if (a.self === b.self) return [differ('MemberTwice', a, b, `both are ${a.self ?? '-'}`)]
  if (one !== other)
    return [differ('ClustersetsDiffer', a, b, `one is in clusterset ${one ?? '-'}, the other in ${other ?? '-'}`)]
  // What one of them does not know of the other is meant so.
  if (isApart(a, b) || isApart(b, a)) return []
  return [...linkEnds(a, b), ...records(a, b), ...records(b, a)]
}

function isApart({ notLinked }: World, { self }: World): boolean {
  return self !== undefined && notLinked.has(self)
}

function differ(reason: 'MemberTwice' | 'ClustersetsDiffer', a: World, b: World, seen: string): Finding {
  const subject = { kind: 'Cluster', name: `${a.self ?? '-'} and ${b.self ?? '-'}` }
  return { reason, severity: 'notice', subject, seen, source: `${a.target}; ${b.target}`, at: a.takenAt }
}

/** Compares the releases of members. Differences within a member are findings of that member. */
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

// Compares what both ends of a link report: the end that receives nothing shows where packets are lost.

interface Ends {
  readonly here: Link
  /** Undefined if the other member has no such link. */
  readonly there: Link | undefined
}

type Reason = Extract<Finding['reason'], 'UdpOneWay' | 'NeitherEndHears' | 'LinkEndsDiffer'>

/** Checks each pair of members once, and joins links with the same result in one finding. */
function linkEnds(a: World, b: World): readonly Finding[] {
  if (a.self === undefined || b.self === undefined || a.fresh.length === 0 || b.fresh.length === 0) return []
  const groups = new Map<
    string,
    { readonly reason: Reason; readonly text: string; readonly links: string[]; at: Link }
  >()
  for (const ends of endsOf(a, b)) {
    const found = findingOf(a.self, b.self, ends)
    if (found === undefined) continue
    const key = `${found.reason} ${found.text}`
    const known = groups.get(key)
    if (known === undefined) groups.set(key, { ...found, links: [nameOf(ends.here)], at: ends.here })
    else known.links.push(nameOf(ends.here))
  }
  const pair = `${a.self} and ${b.self}`
  return [...groups.values()].map(({ reason, text, links, at }) => ({
    reason,
    severity: reason === 'LinkEndsDiffer' ? 'degraded' : 'down',
    subject: { kind: 'Link', name: pair },
    seen: `${text} (${named(links)})`,
    ...seenAt(at.gateway),
  }))
}

function endsOf(a: World, b: World): readonly Ends[] {
  const there = new Map(
    b.links.filter(({ connection }) => connection.cluster === a.self).map((one) => [keyOf(one), one]),
  )
  return a.links
    .filter(({ connection }) => connection.cluster === b.self)
    .map((here) => ({ here, there: there.get(mirrored(here)) }))
}

function findingOf(
  a: string,
  b: string,
  { here, there }: Ends,
): { readonly reason: Reason; readonly text: string } | undefined {
  if (there === undefined) return { reason: 'LinkEndsDiffer', text: `${b} has no such link to ${a}` }
  if (isUp(here) && isUp(there)) return undefined
  const [hearsHere, hearsThere] = [hears(here), hears(there)]
  if (hearsHere && !hearsThere) return { reason: 'UdpOneWay', text: lostText(a, b, there) }
  if (!hearsHere && hearsThere) return { reason: 'UdpOneWay', text: lostText(b, a, here) }
  if (!hearsHere) {
    return {
      reason: 'NeitherEndHears',
      text: `neither ${a} nor ${b} receives packets of the other: ${here.connection.message}`,
    }
  }
  const text = `${a} reports ${here.connection.state}, but ${b} reports ${there.connection.state}`
  return { reason: 'LinkEndsDiffer', text }
}

function lostText(from: string, to: string, { connection: { message } }: Link): string {
  return `packets from ${from} do not arrive at ${to}, but those in the other direction do; ${to} reports: ${message}`
}

function isUp({ connection }: Link): boolean {
  return connection.state === 'up'
}

function hears(link: Link): boolean {
  const { cause } = link.connection
  return isUp(link) || cause === 'AnswersLost' || cause === 'NoneAnswers'
}

function keyOf({ connection }: Link): string {
  return `${connection.lane} ${remoteLaneOf(connection)}`
}

function mirrored({ connection }: Link): string {
  return `${remoteLaneOf(connection)} ${connection.lane}`
}

function nameOf({ node, connection }: Link): string {
  return `${node} lane ${connection.lane} to lane ${remoteLaneOf(connection)}`
}
