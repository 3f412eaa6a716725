/** Notes for operators that say why a member's addresses are not used as stated. */
import {
  type Ipv6Clash,
  type Prefix,
  comparePrefixes,
  formatPrefix,
  ipv4Among,
  ipv6Among,
  neededText,
  overlaps,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import { type LogView, type MemberRow, isLive } from '../store/store.ts'
import { type Members, allClaims, neededByAll } from './address-claims.ts'
import { addressOverlaps } from './allocation.ts'
import { rangesNote } from './changed-ranges.ts'
import { type OrderedClaim, isEarlier, orderOf } from './stated-ranges.ts'

/** Findings about the addresses of all members. */
export interface AddressFindings {
  /** See addressOverlaps(). */
  readonly overlapping: ReadonlyMap<string, string>
  /** See ipv6NotCarried(). */
  readonly notCarried: ReadonlyMap<string, Ipv6Clash>
}

const NOTHING: readonly string[] = []

/** The notes of each live member, by id. Empty if there are none. */
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
  if (!translated) return `its pods need global addresses, but the global range has no free block for them: ${overlap}`
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
  return `${kept.join(', ')} is public space that no token allowed; it stays because an earlier release accepted it`
}

// Members that do not reach each other, because one states Service addresses over pods of another that were stated
// earlier. Pure.

interface ServiceClash {
  /** Id of the member that stated Service addresses later. */
  readonly cluster: string
  readonly serviceCIDR: string
  /** Id of the member whose pods have them. */
  readonly other: string
  readonly podCIDR: string
}

interface ServiceOwner extends OrderedClaim {
  readonly id: string
  readonly text: string
  readonly prefix: Prefix
  readonly isPods: boolean
}

/** Translated pods do not clash. In the order of addresses. */
export function serviceClashes(members: Iterable<readonly [id: string, row: MemberRow]>): ServiceClash[] {
  const claims = [...members].flatMap(([id, row]) => (isLive(row) ? claimsOf(id, row) : []))
  claims.sort((a, b) => comparePrefixes(a.prefix, b.prefix) || Number(a.isPods) - Number(b.isPods))
  const found: ServiceClash[] = []
  const open: ServiceOwner[] = []
  for (const claim of claims) {
    for (let last = open.at(-1); last !== undefined && !overlaps(last.prefix, claim.prefix); last = open.at(-1))
      open.pop()
    for (const outer of open) {
      if (outer.id === claim.id || outer.isPods === claim.isPods) continue
      const [services, pods] = outer.isPods ? [claim, outer] : [outer, claim]
      if (!isEarlier(pods, services)) continue
      found.push({ cluster: services.id, serviceCIDR: services.text, other: pods.id, podCIDR: pods.text })
    }
    open.push(claim)
  }
  return found
}

export function clashText({ cluster, serviceCIDR, other, podCIDR }: ServiceClash): string {
  return `service CIDR ${serviceCIDR} of ${cluster} was stated after pods of ${other} used ${podCIDR}: the two clusters do not reach each other`
}

function claimsOf(id: string, { index, claimed, translated, facts }: MemberRow): ServiceOwner[] {
  const claims = (texts: readonly string[], isPods: boolean): ServiceOwner[] =>
    ipv4Among(texts).map((text) => {
      const prefix = parsePrefix(text)
      return { id, text, prefix, isPods, order: orderOf(prefix, claimed), index }
    })
  return [...claims(translated ? [] : facts.podCIDRs, true), ...claims(facts.serviceCIDRs, false)]
}
