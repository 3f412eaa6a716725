/** Why a member's addresses are not used as it states them, in sentences for people. */
import { formatPrefix, ipv6Among, parsePrefix } from '../../model/addresses/ip.ts'
import type { Ipv6Clash } from '../../model/addresses/ipv6-claims.ts'
import { neededText } from '../../model/addresses/needed-ranges.ts'
import { type Members, allClaims, ipv6NotCarried, neededByAll } from './address-claims.ts'
import { addressOverlaps } from './allocation.ts'
import type { LogView } from '../log/record-log.ts'
import { type MemberRow, isLive } from '../state/state.ts'

/** Of each live one of these members, by id; one of which there is nothing to say has an empty list. */
export function describeAddresses(
  view: LogView,
  members: Members,
  overlapping = overlapsOf(view, members),
): ReadonlyMap<string, readonly string[]> {
  const live = [...members].filter(([, row]) => isLive(row))
  const notCarried = ipv6NotCarried(view, members)
  return new Map(
    live.map(([id, row]) => {
      const notes = [translatedNote(row, overlapping.get(id)), notCarriedNote(row, notCarried.get(id)), keptNote(row)]
      return [id, notes.filter((note) => note !== undefined)]
    }),
  )
}

function overlapsOf(view: LogView, members: Members): ReadonlyMap<string, string> {
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

function keptNote({ keptCIDRs = [], facts }: MemberRow): string | undefined {
  const kept = keptCIDRs.filter((cidr) => facts.podCIDRs.includes(cidr) || facts.serviceCIDRs.includes(cidr))
  if (kept.length === 0) return undefined
  return `${kept.join(', ')} is public space that no token allowed: kept as an earlier release took it`
}
