/** What both ends of a link say of it: who hears whom shows where packets are lost. */
import { remoteLaneOf } from '../../model/lanes/lane-number.ts'
import type { Finding } from '../finding.ts'
import { type Link, type World, named, seenAt } from '../world.ts'

interface Ends {
  readonly here: Link
  /** Undefined: the other member has no such link. */
  readonly there: Link | undefined
}

type Reason = Extract<Finding['reason'], 'UdpOneWay' | 'NeitherEndHears' | 'LinkEndsDiffer'>

/** Of each pair of members once, and one finding for all links that have the same. */
export function linkEnds(a: World, b: World): readonly Finding[] {
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
    return { reason: 'NeitherEndHears', text: `neither ${a} nor ${b} hears the other: ${here.connection.message}` }
  }
  const text = `${a} says ${here.connection.state}, and ${b} says ${there.connection.state}`
  return { reason: 'LinkEndsDiffer', text }
}

function lostText(from: string, to: string, { connection: { message } }: Link): string {
  return `what ${from} sends does not arrive at ${to}, and the other direction passes; ${to} says: ${message}`
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
