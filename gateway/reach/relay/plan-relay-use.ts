/**
 * Which relays a gateway asks, and for which links: those whose two ends cannot be called from outside. Both ends of a
 * link choose alike without a word between them, among the relays with which each has a link of its own. Pure.
 */
import { createHash } from 'node:crypto'
import { type Address, type AddressPort, compareAddresses } from '../../../model/addresses/addresses.ts'
import { type RelayCosts, costClass, relayCostMs } from '../../../model/lanes/lanes.ts'
import { type ConnectionState, RELAY_LAST_PORT, RELAY_PORT } from '../../../model/model.ts'
import { isWebPlace } from '../web/plan-web-use.ts'

/** A link as it is planned and as the device has it. */
export interface LinkInUse {
  /** linkKey() of its far end. */
  readonly key: string
  readonly remoteLane: number
  readonly cluster: string
  /** metadata.name of the Endpoint of the far end. */
  readonly endpoint: string
  readonly identity: string
  /** The far end cannot be called from outside, as far as is known. */
  readonly hidden: boolean
  /** The far end offers to relay. */
  readonly relays?: true
  /** Members whose relays alone may carry the link. Absent: it may have any way. */
  readonly via?: readonly string[]
  /** What the far end states of relays. Absent: nothing. */
  readonly relayCosts?: RelayCosts
  readonly state: ConnectionState
  /** It has never been up, and is called for less than NEW_LINK_MS. */
  readonly isNew?: true
  /** It is not probed, so its state shows nothing about a new place. */
  readonly asleep?: boolean
  /** Where packets of the link go. */
  readonly at?: AddressPort
}

/** A gateway of a third member that relays, with which this node has a link, or is about to have one. */
export interface UsableRelay {
  readonly cluster: string
  readonly endpoint: string
  readonly identity: string
  /** Where the link with it is: the address that is known to work, or at which it is called. */
  readonly address: Address
  /** The load that it states, from 0 to 1. Absent: none. */
  readonly load?: number
  /** The link with it is not up yet, and it has answered no question either. */
  readonly isSilent?: true
}

/** This node is to be bound at the relay for the link. */
export interface RelayWant {
  readonly key: string
  readonly remoteLane: number
  /** Identity of the far end. */
  readonly identity: string
  readonly relay: UsableRelay
  /** Only relays may carry the link: no other way is looked for. */
  readonly isTransit?: true
  /** RelayPlace.roundTripMs. */
  readonly roundTripMs?: number
}

export interface RelayUseInit {
  readonly links: readonly LinkInUse[]
  /** Name of this node's Endpoint. */
  readonly ownEndpoint: string
  /** This node cannot be called from outside, as far as is known. */
  readonly hidden: boolean
  /** linkKey() of links that keep their relays although their far end can be called now (ReturnTries). */
  readonly keeps: ReadonlySet<string>
  readonly worth: (key: string, relay: UsableRelay) => RelayWorth
  /** Whether the relay has answered questions at this address. Absent: none has. */
  readonly hasAnswered?: (relay: UsableRelay) => boolean
  /**
   * Whether the topology lets gateways of one cluster relay between this one and another. Absent: it does. Links with
   * `via` are not asked about: that names their relays.
   */
  readonly mayRelay?: (relay: string, far: string) => boolean
  /** What this node states of relays. Absent: nothing. */
  readonly ownCosts?: RelayCosts
}

/**
 * How much a relay helps a link. Lonely: this end has been bound there for some time, and the far end has not.
 * Useless: it has bound nothing for some time, or packets through it got no answer.
 */
export type RelayWorth = 'good' | 'lonely' | 'useless'

/**
 * A relay whose link has not come up is asked for so long since that is called: an answer proves its address and its
 * identity as a handshake does, and is there sooner. WireGuard calls the same address meanwhile, and it gets no more
 * questions than a place that a relay names (ProbeBudget).
 */
export const NEW_LINK_MS = 5000
/** A link is bound at so many relays, so that the loss of one is only a change of address. */
const RELAYS_OF_LINK = 2
/** Including those that are lonely or useless now, or are silent yet: the far end may come, and a relay may be well. */
const MOST_RELAYS_OF_LINK = 4
/** Far more than a gateway can get of one relay, which gives an end each of its ports once. */
export const MOST_WANTS = 512

/** The bindings that this node wants, those of one link in the order in which they are used. */
export function planRelayUse(init: RelayUseInit): readonly RelayWant[] {
  const { links, ownEndpoint, hidden, keeps, worth, mayRelay = () => true, ownCosts = NO_COSTS } = init
  const { hasAnswered = () => false } = init
  const relays = [...usableRelays(links), ...calledRelays(links, hasAnswered)]
  if (relays.length === 0) return []
  const wants = links.flatMap((link) => {
    if (!keeps.has(link.key) && !isWanted(link, { hidden, links })) return []
    const { key, remoteLane, identity, via } = link
    const thirds = relays
      .filter(({ cluster }) => {
        return cluster !== link.cluster && (via?.includes(cluster) ?? mayRelay(cluster, link.cluster))
      })
      .map((relay) => ({ ...relay, costMs: linkCostMs(relay, ownCosts, link) }))
    const sorted = relayOrder(ownEndpoint, link.endpoint, thirds).map(({ costMs: _, ...relay }) => relay)
    // The relay that carries the link stays until the link has moved.
    const carrier = sorted.find(({ address }) => isAt(link, address))
    const isTransit = via === undefined ? {} : ({ isTransit: true } as const)
    return chosen(sorted, (relay) => worth(key, relay), carrier).map((relay, i) => {
      const tripMs = linkCostMs({ identity: relay.identity }, ownCosts, link)
      const trip = tripMs === undefined ? {} : { roundTripMs: tripMs }
      const want: RelayWant = { key, remoteLane, identity, relay, ...isTransit, ...trip }
      return { want, turn: relay === carrier ? 0 : i + 1 }
    })
  })
  return firstTurns(wants)
}

/** At most MOST_WANTS: what carries links now, then the first relay of each link, then the second ones, and so on. */
function firstTurns(wants: readonly { readonly want: RelayWant; readonly turn: number }[]): readonly RelayWant[] {
  if (wants.length <= MOST_WANTS) return wants.map(({ want }) => want)
  const first = new Set([...wants].sort((a, b) => a.turn - b.turn).slice(0, MOST_WANTS))
  return wants.filter((one) => first.has(one)).map(({ want }) => want)
}

const NO_COSTS: RelayCosts = { rttMs: new Map() }

/** What the relay costs the link, in milliseconds. Undefined: the ends have not stated it. */
export function linkCostMs(
  { identity, load }: Pick<UsableRelay, 'identity' | 'load'>,
  own: RelayCosts,
  { relayCosts = NO_COSTS }: Pick<LinkInUse, 'relayCosts'>,
): number | undefined {
  return relayCostMs(identity, own, relayCosts, load)
}

function isAt({ at }: LinkInUse, address: Address): boolean {
  return at !== undefined && isRelayPort(at.port) && compareAddresses(at.address, address) === 0
}

/**
 * A link that works without a relay has none. One whose relay no longer offers that is to move to another one, also if
 * an end can be called from outside: a link that was over port 443 may have no other way.
 */
function isWanted(link: LinkInUse, { hidden, links }: Pick<RelayUseInit, 'hidden' | 'links'>): boolean {
  if (link.via !== undefined) return true
  return isAtOther(link, links) || (hidden && link.hidden && link.state !== 'up')
}

/** The packets of the link go to a port of relays, at the address of another far end. */
function isAtOther({ at, cluster }: LinkInUse, links: readonly LinkInUse[]): boolean {
  if (at === undefined || !isRelayPort(at.port)) return false
  return links.some(
    (one) => one.cluster !== cluster && one.at !== undefined && compareAddresses(one.at.address, at.address) === 0,
  )
}

/** Those that are reached without a relay: the packets of a link pass one relay at most. */
export function usableRelays(links: readonly LinkInUse[]): readonly UsableRelay[] {
  return links.filter(({ state }) => state === 'up').flatMap(usableRelay)
}

/** Those with which there is no link yet: they are called, or have answered a question where they are. */
function calledRelays(
  links: readonly LinkInUse[],
  hasAnswered: (relay: UsableRelay) => boolean,
): readonly UsableRelay[] {
  const called = links.filter(({ state }) => state === 'connecting')
  return called.flatMap((link) => {
    const relays = usableRelay(link)
    const answering = relays.filter(hasAnswered)
    if (answering.length > 0 || link.isNew !== true) return answering
    return relays.map((relay) => ({ ...relay, isSilent: true as const }))
  })
}

function usableRelay(link: LinkInUse): readonly UsableRelay[] {
  const { relays, relayCosts, hidden, via, at, cluster, endpoint, identity } = link
  if (relays === undefined || hidden || via !== undefined) return []
  if (at === undefined || isRelayPlace(at)) return []
  const { load } = relayCosts ?? {}
  return [{ cluster, endpoint, identity, address: at.address, ...(load === undefined ? {} : { load }) }]
}

/**
 * The first good ones, of two members if possible, because the gateways of one member may be lost together. Then those
 * where this end waits, so that the two ends meet, and useless ones only if there is room: they make room for others.
 * Silent ones take the place of no other: they may never answer.
 */
function chosen(
  sorted: readonly UsableRelay[],
  worth: (relay: UsableRelay) => RelayWorth,
  carrier: UsableRelay | undefined,
): readonly UsableRelay[] {
  const heard = sorted.filter(({ isSilent }) => isSilent !== true)
  const those = (of: RelayWorth): UsableRelay[] => heard.filter((relay) => worth(relay) === of)
  const good = those('good')
  const [first] = good
  const others = good.slice(1).filter(({ cluster }) => cluster !== first?.cluster)
  const same = good.slice(1).filter(({ cluster }) => cluster === first?.cluster)
  const wanted = [...(first === undefined ? [] : [first]), ...others, ...same].slice(0, RELAYS_OF_LINK)
  const kept = carrier === undefined || wanted.includes(carrier) ? [] : [carrier]
  const silent = sorted.filter((relay) => relay.isSilent === true && worth(relay) === 'good').slice(0, RELAYS_OF_LINK)
  const rest = [...those('lonely'), ...silent, ...those('useless')].filter((relay) => relay !== carrier)
  return [...wanted, ...kept, ...rest].slice(0, MOST_RELAYS_OF_LINK)
}

/**
 * The same order for both ends, whichever of them is first: cheap relays first, and last those of which no cost is
 * known. Among relays that cost about the same it differs from pair to pair, so that all get some. The loss of one relay
 * leaves the order of the others.
 */
export function relayOrder<R extends { readonly endpoint: string; readonly costMs?: number | undefined }>(
  a: string,
  b: string,
  relays: readonly R[],
): R[] {
  const pair = [a, b].sort().join(' ')
  const rank = ({ endpoint }: R): string => createHash('sha256').update(`${pair} ${endpoint}`).digest('hex')
  const ranked = relays.map((relay) => {
    return { relay, cost: relay.costMs === undefined ? Infinity : costClass(relay.costMs), rank: rank(relay) }
  })
  const sorted = ranked.sort((x, y) => {
    if (x.cost !== y.cost) return x.cost < y.cost ? -1 : 1
    return x.rank < y.rank ? -1 : x.rank > y.rank ? 1 : 0
  })
  return sorted.map(({ relay }) => relay)
}

/** Whether packets that go there are relayed: to a port of a relay, or over port 443. */
export function isRelayPlace(at: AddressPort): boolean {
  return isRelayPort(at.port) || isWebPlace(at)
}

/** Whether a relay may have given this port to a pair. */
export function isRelayPort(port: number): boolean {
  return port > RELAY_PORT && port <= RELAY_LAST_PORT
}

/**
 * The one of these far ends that relays packets to this address. Undefined if none does. The link with it has the same
 * address, and so has every other link that it carries: those may be with gateways that relay, too.
 */
export function relayOf<L extends { readonly relays?: true; readonly at?: AddressPort | undefined }>(
  at: AddressPort | undefined,
  links: readonly L[],
): L | undefined {
  if (at === undefined || !isRelayPort(at.port)) return undefined
  return links.find((one) => {
    if (one.relays !== true || one.at === undefined || isRelayPort(one.at.port)) return false
    return compareAddresses(one.at.address, at.address) === 0
  })
}
