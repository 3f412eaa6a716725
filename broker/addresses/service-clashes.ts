/**
 * Members that do not reach each other, because one states Service addresses over pods that were there before. Pure.
 */
import { type Prefix, ipv4Among, overlaps, parsePrefix } from '../../model/addresses/ip.ts'
import { comparePrefixes } from '../../model/addresses/prefix-set.ts'
import { type OrderedClaim, isEarlier, orderOf } from './claim-order.ts'
import { type MemberRow, isLive } from '../state/state.ts'

export interface ServiceClash {
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

/** Pods that are translated are in nobody's way. In order of the addresses. */
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
  return `service CIDR ${serviceCIDR} of ${cluster} was stated after pods of ${other} had ${podCIDR}: the two do not reach each other`
}

function claimsOf(id: string, { index, claimed, translated, facts }: MemberRow): ServiceOwner[] {
  const claims = (texts: readonly string[], isPods: boolean): ServiceOwner[] =>
    ipv4Among(texts).map((text) => {
      const prefix = parsePrefix(text)
      return { id, text, prefix, isPods, order: orderOf(prefix, claimed), index }
    })
  return [...claims(translated ? [] : facts.podCIDRs, true), ...claims(facts.serviceCIDRs, false)]
}
