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
} from '../../model/addresses/addresses.ts'
import { type UdpFinding, type UdpLink, udpBlockedText, udpFinding } from '../../model/lanes/lanes.ts'
import type { NatMapping } from './relay/bind-frame.ts'

/**
 * Public: those who see this node see an address of its own. Behind: they do not, and how the NAT maps is not known.
 * Unknown: nothing that counts has seen it.
 */
export type NatKind = 'public' | 'behind' | 'endpoint-independent' | 'symmetric' | 'unknown'

/** The values of the label of the metric: kinds, and what may be beside a kind. */
export const NAT_TRAITS = [
  ...(['public', 'behind', 'endpoint-independent', 'symmetric', 'unknown'] as const),
  ...(['cgnat', 'same-lan', 'udp-blocked'] as const),
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
  /** GatewayWorld.natLifeSeconds. */
  readonly lifeSeconds?: number
}

export interface NatView {
  readonly kind: NatKind
  /** Where others see this node, if not at an address of its own. Sorted. */
  readonly outside: readonly string[]
  /** An address of the shared space of carriers is on the way (RFC 6598). */
  readonly isCarrier: boolean
  /** Members behind the same NAT, by their own word. Sorted. */
  readonly sameNat: readonly string[]
  readonly udp: UdpFinding
  readonly lifeSeconds?: number
}

const CARRIER_SPACE: Prefix = parsePrefix('100.64.0.0/10')

/** `before`: the view before, which knows the mapping of the same NAT also when no two relays are asked any more. */
export function planNat(facts: NatFacts, before?: NatView): NatView {
  const { ownAddresses, inside, observed, seen, others, links, lifeSeconds } = facts
  // Whoever sees an own private address is in the same network, and shows nothing of the way out of it.
  const sightings = [...new Set([...(observed === undefined ? [] : [observed]), ...seen])].filter((text) => {
    return !(ownAddresses.has(text) && isPrivate(text))
  })
  const outside = sightings.filter((text) => !ownAddresses.has(text)).sort()
  const sameNat = others.filter(({ address }) => outside.includes(address)).map(({ cluster }) => cluster)
  return {
    kind: kindOf(facts.mapping, { sightings, outside }, before),
    outside,
    isCarrier:
      outside.length > 0 && [...outside, ...(inside === undefined ? [] : [inside])].some((text) => isCarriers(text)),
    sameNat: [...new Set(sameNat)].sort(),
    udp: udpFinding(links, seen.length > 0),
    ...(lifeSeconds === undefined ? {} : { lifeSeconds }),
  }
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
export function natTraits({ kind, isCarrier, sameNat, udp }: NatView): readonly NatTrait[] {
  return [
    kind,
    ...(isCarrier ? (['cgnat'] as const) : []),
    ...(sameNat.length > 0 ? (['same-lan'] as const) : []),
    ...(udpBlockedText(udp) === undefined ? [] : (['udp-blocked'] as const)),
  ]
}

function isPrivate(text: string): boolean {
  const address = parseAddress(text)
  return UNGRANTED_SPACE.some((space) => space.family === address.family && containsAddress(space, address))
}

function isCarriers(text: string): boolean {
  const address = parseAddress(text)
  return address.family === 4 && containsAddress(CARRIER_SPACE, address)
}
