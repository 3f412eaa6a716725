/**
 * How the gateways of a member reach the others: what others see of them, what NATs, routers and relays do, and for
 * each link its rung and why it has no better one. Pure.
 */
import {
  CONDITION_BEHIND_NAT,
  CONDITION_NAT_FILTERS,
  CONDITION_NAT_HAIRPINS,
  CONDITION_NAT_MAPPING,
  CONDITION_PORT_MAPPED,
  type ConnectionStatus,
  type KnownRelay,
  type LinkCandidate,
  endpointName,
  findCondition,
  fitText,
  printable,
} from '../model/model.ts'
import {
  type BetterRung,
  type LinkRung,
  RUNG_TCP_443,
  type UdpLink,
  isHidden,
  isWebRelayName,
  linkRung,
  remoteLaneOf,
  udpBlockedText,
  udpFinding,
  whyNotBetter,
} from '../model/lanes/lanes.ts'
import { type ReasonCode, knownReason, reasonRow } from '../model/reasons/reasons.ts'
import { type Health, diagnoseWorld } from './diagnose-member.ts'
import { type FactObjects, type Seen, type World, readFacts, worldOf } from './facts/facts.ts'

export interface ReachReport {
  /** That of the lanes: what `sealane diagnose lanes` finds. */
  readonly health: Health
  readonly takenAt: string
  readonly cluster?: string
  /** The address at which the broker saw this cluster when it joined. Absent: it does not count, or is not known. */
  readonly observedAddress?: string
  /** Gateways that report, by name. */
  readonly gateways: readonly GatewayReach[]
  /** Names of gateways that no longer report. */
  readonly silent: readonly string[]
}

export interface GatewayReach {
  readonly node: string
  /** Places at which relays see it, sorted. */
  readonly seenAt: readonly string[]
  /** Whether the NAT in front of it keeps one port for all destinations, if there is one. */
  readonly nat: ReachFact
  /** Whether it is behind NAT, and all that is known of it. Unknown also if nothing shows a NAT. */
  readonly behindNat: ReachFact
  /** Whether the NAT lets in only those to which the gateway has sent. */
  readonly filters: ReachFact
  /** Whether the NAT leads packets to its own address outside back inside. */
  readonly hairpins: ReachFact
  /** Whether a router in front of it maps ports. */
  readonly mapping: ReachFact
  /** Whether UDP passes at all. */
  readonly udp: ReachFact
  readonly relays: readonly KnownRelay[]
  /** The worst first. */
  readonly links: readonly LinkReach[]
}

export interface ReachFact {
  readonly is: 'yes' | 'no' | 'unknown'
  readonly reason?: string
  readonly why: string
}

export interface LinkReach {
  readonly cluster: string
  readonly lane: number
  readonly remoteLane: number
  readonly state: ConnectionStatus['state']
  readonly rung?: LinkRung
  readonly relay?: string
  /** Why it is not up, or where it is. */
  readonly message: string
  readonly notBetter: readonly BetterRung[]
  /** What to do, and the command to run next. Absent for a direct link that is up. */
  readonly next?: { readonly reason?: string; readonly todo?: string; readonly command: string }
  /** Absent: the gateway is of an earlier release, or has too many links. */
  readonly candidates?: readonly LinkCandidate[]
}

/** Takes a FactSet, or the parsed content of a file. Texts of others are made printable. Never throws. */
export function reachReport(facts: unknown): ReachReport {
  const world = worldOf(readFacts(facts))
  const { self, fresh, silent, takenAt, objects } = world
  const ends = new Map((objects.Endpoint ?? []).map(({ object }) => [object.metadata.name, object]))
  const observedAddress = objects.Membership?.[0]?.object.spec.observedAddress
  const byName = (a: { readonly node: string }, b: { readonly node: string }): number => (a.node < b.node ? -1 : 1)
  const report: ReachReport = {
    health: diagnoseWorld(world, 'lanes').health,
    takenAt,
    ...(self === undefined ? {} : { cluster: self }),
    ...(observedAddress === undefined ? {} : { observedAddress }),
    gateways: fresh.map((gateway) => gatewayReach(world, ends, gateway)).sort(byName),
    silent: silent.map(({ object }) => object.metadata.name).sort(),
  }
  return cleaned(report) as ReachReport
}

/** Endpoints by name. */
type Ends = ReadonlyMap<string, FactObjects['Endpoint']>

function gatewayReach(world: World, ends: Ends, { object }: Seen<FactObjects['Gateway']>): GatewayReach {
  const { name: node } = object.metadata
  const { connections = [], relays = [], conditions } = object.status ?? {}
  const links = connections.map((connection) => linkReach({ world, ends, gateway: object }, connection)).sort(byNeed)
  const shown = connections.map((connection): UdpLink => {
    const { cluster, state, endpoint } = connection
    const far = ends.get(endpoint)
    const rung = state === 'up' ? linkRung(connection, undefined, far) : undefined
    return {
      cluster,
      by: rung === undefined ? 'none' : rung === RUNG_TCP_443 ? 'tcp-443' : 'udp',
      isCallable: far !== undefined && !isHidden(far.spec.candidates) && world.via.get(cluster) === undefined,
      isNew: false,
    }
  })
  const seenAt = relays.flatMap((relay) => (relay.seenAt === undefined ? [] : [relay.seenAt]))
  const nat = findCondition(conditions, CONDITION_NAT_MAPPING)
  const behind = findCondition(conditions, CONDITION_BEHIND_NAT)
  const mapped = findCondition(conditions, CONDITION_PORT_MAPPED)
  return {
    node,
    seenAt: [...new Set(seenAt)].sort(),
    nat: natOf(nat, behind),
    behindNat: factOf(behind, 'nothing shows a NAT'),
    filters: factOf(findCondition(conditions, CONDITION_NAT_FILTERS), 'relays have not measured it'),
    hairpins: factOf(findCondition(conditions, CONDITION_NAT_HAIRPINS), 'relays have not measured it'),
    mapping: factOf(mapped, 'no router is asked'),
    udp: udpOf({ links, relays, behind, shown }),
    relays,
    links,
  }
}

function factOf(condition: ReturnType<typeof findCondition>, otherwise: string): ReachFact {
  if (condition === undefined || condition.status === 'Unknown') return { is: 'unknown', why: otherwise }
  return { is: condition.status === 'True' ? 'yes' : 'no', reason: condition.reason, why: condition.message }
}

/** What is known of the NAT beside how it maps ports is in the other condition. */
function natOf(mapping: FoundCondition, behind: FoundCondition): ReachFact {
  const isKnown = mapping !== undefined && mapping.status !== 'Unknown'
  if (isKnown || behind?.status !== 'True')
    return factOf(mapping, 'no two relays see it, so that its NAT is not known, if there is one')
  return { is: behind.reason === 'BehindSymmetricNat' ? 'no' : 'unknown', reason: behind.reason, why: behind.message }
}

type FoundCondition = ReturnType<typeof findCondition>

interface UdpInit {
  readonly links: readonly LinkReach[]
  readonly relays: readonly KnownRelay[]
  readonly behind: FoundCondition
  readonly shown: readonly UdpLink[]
}

/** The gateway knows for how long its links are up, so its own finding comes first. */
function udpOf({ links, relays, behind, shown }: UdpInit): ReachFact {
  const up = links.filter(({ state }) => state === 'up')
  const byUdp = up.find(({ rung }) => rung !== undefined && rung !== RUNG_TCP_443)
  if (byUdp !== undefined) return { is: 'yes', why: `the link to ${byUdp.cluster} is up by UDP` }
  const relay = relays.find(({ state, name }) => state === 'answers' && !isWebRelayName(name))
  if (relay !== undefined) return { is: 'yes', why: `the relay of ${relay.name} answers by UDP` }
  if (behind?.reason === 'UdpBlocked') return { is: 'no', reason: behind.reason, why: behind.message }
  if (up.length === 0) return { is: 'unknown', why: 'no link is up' }
  const why = udpBlockedText(udpFinding(shown, false))
  if (why !== undefined) return { is: 'no', reason: 'UdpBlocked', why }
  return { is: 'unknown', why: 'the links that are up go over port 443, and too few far ends can be called by UDP' }
}

interface Around {
  readonly world: World
  readonly ends: Ends
  readonly gateway: FactObjects['Gateway']
}

function linkReach({ world: { self, via }, ends, gateway }: Around, connection: ConnectionStatus): LinkReach {
  const { cluster, lane, state, message, usingRelay: relay, candidates } = connection
  const own = self === undefined ? undefined : ends.get(endpointName(self, gateway.metadata.name, lane))
  const far = ends.get(connection.endpoint)
  const rung = state === 'up' ? linkRung(connection, own, far) : undefined
  const conditions = gateway.status?.conditions
  const notBetter = whyNotBetter({ connection, rung, own, far, conditions, via: via.get(cluster) })
  const next = nextStep(state, message, notBetter)
  return {
    ...{ cluster, lane, remoteLane: remoteLaneOf(connection), state, message, notBetter },
    ...(rung === undefined ? {} : { rung }),
    ...(relay === undefined ? {} : { relay }),
    ...(next === undefined ? {} : { next }),
    ...(candidates === undefined ? {} : { candidates }),
  }
}

/** By the first cause that has a code: the others follow from it, or nothing is known of them. */
function nextStep(
  state: ConnectionStatus['state'],
  message: string,
  notBetter: readonly BetterRung[],
): LinkReach['next'] {
  if (notBetter.length === 0) return undefined
  const inMessage = state === 'up' ? undefined : knownReason(/^(\w+): /.exec(message)?.[1])
  const found = [inMessage, ...notBetter.map((one) => knownReason(one.reason))].find((one) => one !== undefined)
  if (found === undefined) return { command: state === 'up' ? 'sealane show relays' : 'sealane diagnose lanes' }
  return { reason: found, todo: reasonRow(found).todo, command: COMMANDS[found] ?? 'sealane diagnose host' }
}

/** Where another command shows more than the machine of the gateway. */
const COMMANDS: Readonly<Partial<Record<ReasonCode, string>>> = {
  RelayedByTopology: 'sealane topology show',
  TransitRelayMissing: 'sealane topology show',
  BothNatsVary: 'sealane show relays',
  NatMappingVaries: 'sealane show relays',
  RelayAddressShared: 'sealane broker relay list',
  RelayRefused: 'sealane broker relay list',
  RelayUnreachable: 'sealane broker relay list',
  RelayForeignClusterset: 'sealane broker relay list',
}

/** Links that are not up come first, then those on the worst rung. */
function byNeed(a: LinkReach, b: LinkReach): number {
  const need = ({ state, notBetter }: LinkReach): number => (state === 'up' ? notBetter.length : 100)
  const name = ({ cluster, remoteLane }: LinkReach): string => `${cluster} ${remoteLane}`
  return need(b) - need(a) || (name(a) < name(b) ? -1 : 1)
}

const MAX_TEXT = 600

/** A value with all its texts printable and bounded: names and reasons come from other members, too. */
function cleaned(value: unknown): unknown {
  if (typeof value === 'string') return fitText(printable(value), MAX_TEXT)
  if (Array.isArray(value)) return value.map(cleaned)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, cleaned(one)]))
}
