/**
 * How many connections the pods of a cluster have with pods of other clusters: those that break when the cluster gets
 * global addresses. Only over IPv4, since IPv6 is never translated. Each node counts those of its own pods, and the sum
 * goes to a cluster that joins. It is sent anew only where it differs much, so a reader says "about". Pure.
 */

export interface OpenConnections {
  /** 0 to MAX_OPEN_CONNECTIONS. */
  readonly count: number
  /** Not all were counted: there may be more. */
  readonly atLeast: boolean
}

/** Fits int32 of a CRD and of every reader of the wire. */
export const MAX_OPEN_CONNECTIONS = 2 ** 31 - 1

/** What is wrong with a figure that others reported, naming the part; undefined for nothing. */
export function openConnectionsProblem({
  count,
  atLeast,
}: Readonly<Record<keyof OpenConnections, unknown>>): string | undefined {
  if (typeof count !== 'number' || !Number.isInteger(count) || count < 0 || count > MAX_OPEN_CONNECTIONS) {
    return `count ${String(count).slice(0, 40)}: expected a whole number from 0 to ${MAX_OPEN_CONNECTIONS}`
  }
  return typeof atLeast === 'boolean' ? undefined : 'atLeast: expected true or false'
}

/** A figure that differs by no more than this, or by no more than a tenth, is sent after STALE_MS. */
const SMALL_CHANGE = 10
const STALE_MS = 600_000

/** Whether a figure is to be sent anew. `ageMs`: since the one before was sent. Undefined: not known. */
export function isWorthReporting(
  reported: OpenConnections | undefined,
  now: OpenConnections | undefined,
  ageMs: number,
): boolean {
  if (reported === undefined || now === undefined) return reported !== now
  if (reported.atLeast !== now.atLeast || (reported.count === 0) !== (now.count === 0)) return true
  const change = Math.abs(now.count - reported.count)
  return change > Math.max(SMALL_CHANGE, reported.count / 10) || (change > 0 && ageMs >= STALE_MS)
}

/** `about 12 open connections`, for the middle of a sentence. */
export function openConnectionsText({ count, atLeast }: OpenConnections): string {
  const noun = count === 1 ? 'open connection' : 'open connections'
  if (atLeast) return `at least ${count} ${noun}`
  return count === 0 ? `no ${noun}` : `about ${count} ${noun}`
}

export interface BrokenConnections {
  readonly cluster: string
  readonly openConnections?: OpenConnections
}

/** What a renumbering does to those that are open: `About 12 open connections with pods of milano break`, of each. */
export function brokenConnectionsText(members: readonly BrokenConnections[], verb: 'break' | 'broke'): string {
  const known = members.flatMap(({ cluster, openConnections: open }) => {
    return open === undefined ? [] : [`${openConnectionsText(open)} with pods of ${cluster}`]
  })
  const unknown = members.flatMap(({ cluster, openConnections }) => (openConnections === undefined ? [cluster] : []))
  const parts = [
    ...(known.length === 0 ? [] : [`${listText(known)} ${verb}`]),
    ...(unknown.length === 0
      ? []
      : [`open connections with pods of ${listText(unknown)} ${verb}, how many is not known`]),
  ]
  const text = parts.join(', and ')
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`
}

const MAX_NAMED = 10

export interface RenumberedMember extends BrokenConnections {
  /** Those that it gets, one for each pod CIDR. */
  readonly globalCIDRs: readonly string[]
}

/** `milano (244.0.0.0/16) and tokyo (244.1.0.0/16) get global addresses by this join: …` */
export function renumberedText(members: readonly RenumberedMember[], verb: 'get' | 'got'): string {
  const listed = members.slice(0, MAX_NAMED)
  const named = listed.map(({ cluster, globalCIDRs }) => `${cluster} (${globalCIDRs.join(', ')})`)
  const more = members.length > MAX_NAMED ? ` and ${members.length - MAX_NAMED} more` : ''
  return (
    `other members ${verb} global addresses by this join, since this cluster's pods or services have addresses of theirs: ` +
    `${named.join(', ')}${more}. ${brokenConnectionsText(listed, verb === 'get' ? 'break' : 'broke')}; names lead to the new ` +
    `addresses within seconds`
  )
}

function listText(items: readonly string[]): string {
  return items.length < 2 ? items.join('') : `${items.slice(0, -1).join(', ')} and ${items.at(-1) ?? ''}`
}
