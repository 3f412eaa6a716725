/**
 * Of what kind the NAT in front of this node is, in the words of the field, by what several observers say: the broker,
 * which saw the cluster when it joined, and relays, which see the ports of its links (RFC 4787 section 4.1). Pure.
 */
import {
  type Prefix,
  UNGRANTED_SPACE,
  containsAddress,
  parseAddress,
  parsePrefix,
} from '../../../model/addresses/addresses.ts'
import { type UdpFinding, type UdpLink, udpBlockedText, udpFinding } from '../../../model/lanes/lanes.ts'
import type { NatMapping } from '../frames/bind-frame.ts'
import type { NatFilter, NatSights } from './sight-caller.ts'

/**
 * Public: those who see this node see an address of its own. Behind: they do not, and how the NAT maps is not known.
 * Unknown: nothing that counts has seen it.
 */
export type NatKind = 'public' | 'behind' | 'endpoint-independent' | 'symmetric' | 'unknown'

/** The values of the label of the metric: kinds, and what may be beside a kind. */
export const NAT_TRAITS = [
  ...(['public', 'behind', 'endpoint-independent', 'symmetric', 'unknown'] as const),
  ...(['filters-none', 'filters-addresses', 'filters-ports'] as const),
  ...(['hairpins', 'no-hairpins', 'cgnat', 'same-nat', 'same-lan', 'udp-rate-limited', 'udp-blocked'] as const),
]
export type NatTrait = (typeof NAT_TRAITS)[number]

export interface NatFacts {
  /** Addresses that this node has itself. */
  readonly ownAddresses: ReadonlySet<string>
  /** The address of this node in the network of its nodes. Absent: it has none. */
  readonly inside?: string
  /** The address that the broker saw, if nothing contradicts it. */
  readonly observed?: string
  /** Addresses at which relays see this node now. */
  readonly seen: readonly string[]
  /** What relays show of its ports. */
  readonly mapping: NatMapping
  /** Other members, each with the addresses at which they are seen, by their own word. */
  readonly others: readonly { readonly cluster: string; readonly address: string }[]
  readonly links: readonly UdpLink[]
  /** Links that are up by UDP without a relay: where their packets go, and whether that is a private candidate. */
  readonly neighbours: readonly { readonly cluster: string; readonly address: string; readonly isPrivate: boolean }[]
  /** What relays have shown of the NAT. */
  readonly sights: NatSights
  /** GatewayWorld.routerOutside. */
  readonly routerOutside?: string
  /** GatewayWorld.natLifeSeconds. */
  readonly lifeSeconds?: number
}

export interface NatView {
  readonly kind: NatKind
  /** Where others see this node, if not at an address of its own. Sorted. */
  readonly outside: readonly string[]
  /**
   * An address of the shared space of carriers is on the way (RFC 6598), or the router has a private address outside, and
   * two observers see this node at another one.
   */
  readonly isCarrier: boolean
  /** Members behind the same NAT, by their own word. Sorted. */
  readonly sameNat: readonly string[]
  /** Those of them that answer at an address of a network that this node shares. Sorted. */
  readonly sameLan: readonly string[]
  /** Whom the NAT lets in at a port that has sent. Absent: it is not known. */
  readonly filter?: NatFilter
  /** Whether the NAT leads packets to its own address outside back inside. Absent: it is not known. */
  readonly hairpins?: boolean
  /** Packets that follow each other closely are dropped. */
  readonly isRateLimited: boolean
  readonly udp: UdpFinding
  readonly lifeSeconds?: number
}

const CARRIER_SPACE: Prefix = parsePrefix('100.64.0.0/10')

/** `before`: the view before, which knows the mapping of the same NAT also when no two relays are asked any more. */
export function planNat(facts: NatFacts, before?: NatView): NatView {
  const { ownAddresses, observed, seen, others, links, neighbours, sights, lifeSeconds } = facts
  // Whoever sees an own private address is in the same network, and shows nothing of the way out of it.
  const sightings = [...new Set([...(observed === undefined ? [] : [observed]), ...seen])].filter((text) => {
    return !(ownAddresses.has(text) && isPrivate(text))
  })
  const outside = sightings.filter((text) => !ownAddresses.has(text)).sort()
  const isBehind = outside.length > 0
  const kind = kindOf(facts.mapping, { sightings, outside }, before)
  const sameNat = new Set(others.filter(({ address }) => outside.includes(address)).map(({ cluster }) => cluster))
  const near = neighbours.filter(({ cluster, isPrivate: isInside }) => isInside && sameNat.has(cluster))
  const hairpins = hairpinsOf(facts, { kind, outside })
  return {
    ...{ kind, outside, isCarrier: isBehind && isCarrierNat(facts, outside) },
    sameNat: [...sameNat].sort(),
    sameLan: [...new Set(near.map(({ cluster }) => cluster))].sort(),
    ...(isBehind && sights.filter !== undefined ? { filter: sights.filter } : {}),
    ...(hairpins === undefined ? {} : { hairpins }),
    isRateLimited: sights.bursts === 'limited',
    udp: udpFinding(links, seen.length > 0),
    ...(lifeSeconds === undefined ? {} : { lifeSeconds }),
  }
}

function isCarrierNat({ inside, observed, seen, routerOutside }: NatFacts, outside: readonly string[]): boolean {
  const onTheWay = [...outside, inside, routerOutside].filter((text) => text !== undefined)
  if (onTheWay.some((text) => isCarriers(text))) return true
  // With a public address, the router may have several ways out, and this node's packets take another one.
  if (routerOutside === undefined || !isPrivate(routerOutside)) return false
  // The broker may have seen this node before its network changed, so a relay has to agree.
  return observed !== undefined && seen.length > 0 && seen.every((text) => text === observed && text !== routerOutside)
}

/** A packet that does not come back shows nothing of a NAT that gives each destination another port. */
function hairpinsOf(
  { neighbours, sights: { hairpins } }: NatFacts,
  { kind, outside }: Pick<NatView, 'kind' | 'outside'>,
): boolean | undefined {
  if (outside.length === 0) return undefined
  if (hairpins === true || neighbours.some(({ address }) => outside.includes(address))) return true
  return kind === 'endpoint-independent' ? hairpins : undefined
}

function kindOf(
  mapping: NatMapping,
  { sightings, outside }: Record<'sightings' | 'outside', readonly string[]>,
  before: NatView | undefined,
): NatKind {
  if (sightings.length === 0) return 'unknown'
  if (outside.length === 0) return 'public'
  switch (mapping) {
    case 'endpointIndependent':
      return 'endpoint-independent'
    case 'addressDependent':
      return 'symmetric'
    case 'unknown': {
      const isSame = before?.outside.some((text) => outside.includes(text)) === true
      return isSame && (before.kind === 'endpoint-independent' || before.kind === 'symmetric') ? before.kind : 'behind'
    }
  }
}

/** All that the metric shows as 1. */
export function natTraits(view: NatView): readonly NatTrait[] {
  const { kind, filter, hairpins, isCarrier, sameNat, sameLan, isRateLimited, udp } = view
  const beside: readonly (readonly [NatTrait, boolean])[] = [
    ['filters-none', filter === 'anyone'],
    ['filters-addresses', filter === 'address'],
    ['filters-ports', filter === 'port'],
    ['hairpins', hairpins === true],
    ['no-hairpins', hairpins === false],
    ['cgnat', isCarrier],
    ['same-nat', sameNat.length > 0],
    ['same-lan', sameLan.length > 0],
    ['udp-rate-limited', isRateLimited],
    ['udp-blocked', udpBlockedText(udp) !== undefined],
  ]
  return [kind, ...beside.flatMap(([trait, isShown]) => (isShown ? [trait] : []))]
}

function isPrivate(text: string): boolean {
  const address = parseAddress(text)
  return UNGRANTED_SPACE.some((space) => space.family === address.family && containsAddress(space, address))
}

function isCarriers(text: string): boolean {
  const address = parseAddress(text)
  return address.family === 4 && containsAddress(CARRIER_SPACE, address)
}
