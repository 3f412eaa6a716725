/** Why a member's addresses are not used as it states them, in sentences for people. */
import { formatPrefix, ipv6Among, parsePrefix } from '../../model/addresses/ip.ts'
import type { Ipv6Clash } from '../../model/addresses/ipv6-claims.ts'
import { neededText } from '../../model/addresses/needed-ranges.ts'
import { type Members, allClaims, neededByAll } from './address-claims.ts'
import { rangesNote } from '../approval/changed-ranges.ts'
import { addressOverlaps } from './allocation.ts'
import type { LogView } from '../log/record-log.ts'
import { type MemberRow, isLive } from '../state/state.ts'

/** What was found about all of them. */
export interface AddressFindings {
  /** As addressOverlaps() gives it. */
  readonly overlapping: ReadonlyMap<string, string>
  /** As ipv6NotCarried() gives it. */
  readonly notCarried: ReadonlyMap<string, Ipv6Clash>
}

const NOTHING: readonly string[] = []

/** Of each live one of these members, by id; one of which there is nothing to say has an empty list. */
export function describeAddresses(
  members: Members,
  { overlapping, notCarried }: AddressFindings,
): ReadonlyMap<string, readonly string[]> {
  const described = new Map<string, readonly string[]>()
  for (const [id, row] of members) {
    if (!isLive(row)) continue
    const notes = [
      translatedNote(row, overlapping.get(id)),
      notCarriedNote(row, notCarried.get(id)),
      keptNote(row),
      rangesNote(row),
    ]
    described.set(id, notes.every((note) => note === undefined) ? NOTHING : notes.filter((note) => note !== undefined))
  }
  return described
}

export function overlapsOf(view: LogView, members: Members): ReadonlyMap<string, string> {
  return addressOverlaps(allClaims(view, members), neededByAll(view))
}

function translatedNote({ translated }: MemberRow, overlap: string | undefined): string | undefined {
  if (overlap === undefined) return undefined
  if (!translated)
    return `its pods need global addresses, and there is no room for them in the global range: ${overlap}`
  return `its pods have global addresses: ${overlap}`
}

function notCarriedNote({ facts }: MemberRow, clash: Ipv6Clash | undefined): string | undefined {
  if (clash === undefined || ipv6Among([...facts.podCIDRs, ...facts.serviceCIDRs]).length === 0) return undefined
  const { own, other, cluster, what } = clash
  const whose = cluster === '' ? '' : ` of cluster ${cluster}`
  const prefix = parsePrefix(other)
  const how = what === undefined ? `overlaps ${formatPrefix(prefix)}` : neededText({ prefix, what })
  return `its IPv6 is not carried: ${own} ${how}${whose}`
}

function keptNote({ keptCIDRs, facts }: MemberRow): string | undefined {
  if (keptCIDRs === undefined) return undefined
  const kept = keptCIDRs.filter((cidr) => facts.podCIDRs.includes(cidr) || facts.serviceCIDRs.includes(cidr))
  if (kept.length === 0) return undefined
  return `${kept.join(', ')} is public space that no token allowed: kept as an earlier release took it`
}
