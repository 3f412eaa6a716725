/** Makes Gateway.status from the plan, the measurements and the state of the kernel. Pure. */
import { type AddressPort, formatAddress, formatAddressPort, sameAddressPort } from '../../model/addresses/addresses.ts'
import {
  CONDITION_BEHIND_NAT,
  CONDITION_DRAINED,
  CONDITION_KEYS_ROTATED,
  CONDITION_NAT_FILTERS,
  CONDITION_NAT_HAIRPINS,
  CONDITION_NAT_MAPPING,
  CONDITION_PORT_MAPPED,
  CONDITION_PUBLIC_NAME,
  type Condition,
  type ConditionFinding,
  type ConnectionCause,
  type ConnectionState,
  type ConnectionStatus,
  type Gateway,
  HEARS_NOTHING,
  type KnownRelay,
  MAX_CANDIDATE_NOTE,
  MAX_CONNECTION_MESSAGE_LENGTH,
  MAX_DIRECT_CANDIDATES,
  MAX_FAILURE_LENGTH,
  MAX_LINK_CANDIDATES,
  MAX_STATUS_CANDIDATES,
  MAX_STATUS_RELAYS,
  RELAY_PORT,
  fitText,
  printable,
  setCondition,
} from '../../model/model.ts'
import { type ReasonCode, problemText } from '../../model/reasons/reasons.ts'
import { CAUSE_UNANSWERED, MAX_RELAYS, RUNG_TCP_443, isWebRelayName, udpBlockedText } from '../../model/lanes/lanes.ts'
import type { Failure } from '../../runtime/runtime.ts'
import { type LaneState, type LinkState, keepaliveSeconds, linkKey } from '../cable/cable.ts'
import type { LinkHealth } from '../health/health.ts'
import { type LaneSuspicion, type LanePlan, type PlannedLink, linkMtu } from '../links/links.ts'
import {
  type EndpointChoice,
  type NatMapping,
  type NatView,
  type PortMappingView,
  type RelayTrip,
  type WebRelayView,
  type WhyRelayed,
  isWebPlace,
  portMappingText,
  relayOf,
} from '../reach/reach.ts'
import { type PublicNameView, type RelayPlace, healthKey } from '../world/world.ts'
import type { PlaceFigures, PlaceRecord, PlacedLink } from './link-places.ts'
import { UNPUNCHED, type UnpunchedReason, linkCandidates } from './plan-link-candidates.ts'
import { named, narrowProblem, readyFinding, upText } from './plan-conditions.ts'

export interface ConnectionMessageInit {
  readonly state: Exclude<ConnectionState, 'up'>
  /** Milliseconds since the connection came into this state. Absent while its probes have not begun. */
  readonly forMs?: number
  /** Milliseconds since something was received from the peer through its lane. Absent if nothing ever was. */
  readonly heardMs?: number
  /** Milliseconds since the last handshake. Absent if there was none. */
  readonly handshakeAgeMs?: number
  /** How long a session lasts after its handshake: CableRules.sessionMs. */
  readonly sessionMs: number
  readonly choice: EndpointChoice
  /** Why the connection may never come up, if that is known. */
  readonly suspicion?: LaneSuspicion
  /** The present state of the link. Undefined if it is new. */
  readonly link: LinkState | undefined
  /** UDP port of this node's device. */
  readonly listenPort: number
}

/**
 * What was received longer ago than this came before the interruption: a peer sends a probe or a keepalive more often.
 */
const HEARD_COUNTS_MS = 5000

/** What a Gateway's status says about a connection that is not up. */
interface ConnectionTrouble {
  /** One sentence: what is missing since when, what each side receives, and which port to open. */
  readonly message: string
  readonly cause?: ConnectionCause
}

/** The text for a connection that is not up: which end receives what, and which UDP port has to be opened. Pure. */
export function connectionTrouble(init: ConnectionMessageInit): ConnectionTrouble {
  const { state, forMs, choice } = init
  const what = init.handshakeAgeMs !== undefined ? 'no answer to probes' : 'no handshake yet'
  const since = forMs === undefined || state === 'connecting' ? '' : ` since ${seconds(forMs)}`
  const { message, cause = init.suspicion?.cause } = seen(init)
  const suspicion = init.suspicion === undefined ? '' : `; ${init.suspicion.text}`
  return {
    message: `${what}${since}: ${message} (${choice.why})${suspicion}`,
    ...(cause === undefined ? {} : { cause }),
  }
}

function seen(init: ConnectionMessageInit): ConnectionTrouble {
  const { heardMs, choice, link, listenPort } = init
  const here = `UDP ${listenPort}`
  const from = link?.at === undefined ? 'it' : `UDP ${formatAddressPort(link.at)}`
  const at = choice.at ?? link?.at
  const there = at === undefined ? 'UDP' : `UDP ${at.port}`
  if (heardMs !== undefined && heardMs <= HEARD_COUNTS_MS) {
    if (hasSession(init)) {
      const mend = `allow ${here} in here and ${there} in at the other gateway, or check whether that gateway hangs`
      return { message: `packets arrive from ${from}, but no answers to ours: ${mend}`, cause: 'NoneAnswers' }
    }
    const mend = `allow ${here} out of this node and ${there} into the other node`
    return {
      message: `packets arrive from ${from}, but our answers do not arrive there: ${mend}`,
      cause: 'AnswersLost',
    }
  }
  if (choice.how === 'wait' || at === undefined) {
    const last = heardMs === undefined ? 'nothing received' : `nothing received for ${seconds(heardMs)}`
    return {
      message: `this gateway has no address to send to, and ${last}: open ${here} here, so that the remote gateway can connect`,
    }
  }
  const sent = (link?.txBytes ?? 0) > 0 ? 'this gateway sends' : 'this gateway starts to send'
  const nothing = `${HEARS_NOTHING}${lastHeard(init)}`
  return { message: `${sent} to UDP ${formatAddressPort(at)} ${nothing}: open UDP ${at.port} at the other gateway` }
}

/** Both ends took part in a handshake. While its session is valid, packets passed in both directions. */
function hasSession({ handshakeAgeMs = Infinity, sessionMs }: ConnectionMessageInit): boolean {
  return handshakeAgeMs < sessionMs
}

function lastHeard({ heardMs, handshakeAgeMs }: ConnectionMessageInit): string {
  const facts = [
    ...(heardMs === undefined ? [] : [`last packet ${seconds(heardMs)} ago`]),
    ...(handshakeAgeMs === undefined ? [] : [`last handshake ${seconds(handshakeAgeMs)} ago`]),
  ]
  return facts.length === 0 ? '' : ` (${facts.join(', ')})`
}

function seconds(ms: number): string {
  return `${Math.max(0, Math.floor(ms / 1000))} s`
}

export interface StatusInit {
  readonly node: string
  readonly version: string
  readonly driver: string
  /** How long a session lasts after its handshake: CableRules.sessionMs. */
  readonly sessionMs: number
  readonly nowMs: number
  /** The present time on the monotonic clock. */
  readonly monotonicMs: number
  /** Milliseconds since something was received over a link, by linkKey(). Undefined if nothing was. */
  readonly heardMs: (key: string) => number | undefined
  readonly lanes: readonly LanePlan[]
  /** Present states of the devices: Cable.observe(). */
  readonly laneStates: ReadonlyMap<number, LaneState>
  readonly health: ReadonlyMap<string, LinkHealth>
  /** Connections, by healthKey(), whose routes are in place. */
  readonly routed: ReadonlySet<string>
  /** Why the last round failed. Undefined if it succeeded. */
  readonly failure: Failure | undefined
  /** For a gateway that is about to leave: clusters with recent traffic over it. Absent if it is not about to leave. */
  readonly flowsWith?: readonly string[]
  /** The state of a key rotation. Absent if there is none to report. */
  readonly rotation?: ConditionFinding
  /** Absent if the public address is no DNS name. */
  readonly publicName?: PublicNameView
  /** What relays show of the NAT in front of this node. Absent: nothing. */
  readonly natMapping?: NatMapping
  /** Of what kind that NAT is, by all who see this node. Absent: nothing is known. */
  readonly nat?: NatView
  /** What is known of the router in front of this node. Absent: none is asked. */
  readonly portMapping?: PortMappingView
  /** Why a relayed link is relayed, by linkKey(). Absent: it is not known. */
  readonly whyRelayed?: (key: string) => WhyRelayed
  /** What relays of members answer, by linkKey(). Absent: none is asked. */
  readonly trips?: ReadonlyMap<string, readonly RelayTrip[]>
  /** Where far ends can be called without a relay, by linkKey(), proven by probes. Absent: nowhere. */
  readonly punched?: ReadonlyMap<string, AddressPort>
  /** The relays on port 443. Absent: none. */
  readonly webRelays?: readonly WebRelayView[]
  /** What was seen at the places of a link, by linkKey(): LinkPlaces.of(). Absent: the status lists no candidates. */
  readonly placesOf?: (key: string) => ReadonlyMap<string, PlaceRecord>
  /** Conditions of the status so far. */
  readonly conditions: readonly Condition[]
}

/** The Gateway with its status, except for the heartbeat, which is added when the status is written. */
export function planStatus(init: StatusInit): Gateway {
  // The message names everything that failed in a round, which may be hundreds of routes.
  const failure = init.failure === undefined ? undefined : fitted(init.failure)
  const relays = relaysInUse(init)
  const connections = withinBudget(
    init.lanes.flatMap((lane) => lane.links.map((link) => connection(init, lane, link, relays))),
  )
  const known = knownRelays(init)
  const ready = readyFinding({ lanes: init.lanes.length, connections, failure: failure?.message })
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Gateway',
    metadata: { name: init.node },
    status: {
      version: init.version,
      lanes: init.lanes.map(({ ownLane: lane, remoteLane, device, mtu }) => {
        return { lane, remoteLane, device, mtu, driver: init.driver }
      }),
      connections,
      ...(known.length === 0 ? {} : { relays: known }),
      up: upText(connections),
      conditions: CONDITIONS_BESIDE_READY.reduce(
        (list, next) => next(init, list),
        setCondition(init.conditions, ready, init.nowMs),
      ),
      ...(failure === undefined ? {} : { failure: failureText(failure.message), failureReason: failure.reason }),
    },
  }
}

function drainedCondition({ flowsWith, nowMs }: StatusInit, list: readonly Condition[]): readonly Condition[] {
  const type = CONDITION_DRAINED
  if (flowsWith === undefined) return list.filter((one) => one.type !== type)
  const finding: ConditionFinding =
    flowsWith.length === 0
      ? { type, status: 'True', reason: 'NothingFlows' satisfies ReasonCode, message: 'no traffic in the last 10 s' }
      : {
          type,
          status: 'False',
          reason: 'StillCarries' satisfies ReasonCode,
          message: `traffic with ${named(flowsWith)} in the last 10 s`,
        }
  return setCondition(list, finding, nowMs)
}

function rotationCondition({ rotation, nowMs }: StatusInit, list: readonly Condition[]): readonly Condition[] {
  if (rotation !== undefined) return setCondition(list, rotation, nowMs)
  // A finding of an earlier process: what it waited for is no longer known.
  return list.filter(({ type, status }) => type !== CONDITION_KEYS_ROTATED || status === 'True')
}

function nameCondition({ publicName, nowMs }: StatusInit, list: readonly Condition[]): readonly Condition[] {
  const type = CONDITION_PUBLIC_NAME
  if (publicName === undefined) return list.filter((one) => one.type !== type)
  const { name, addresses, problem, isAsked } = publicName
  if (!isAsked) return list
  const known = addresses.join(', ')
  if (problem === undefined) {
    const reason = 'PublicNameResolved' satisfies ReasonCode
    return setCondition(list, { type, status: 'True', reason, message: `${name}: ${known}` }, nowMs)
  }
  const rest = known === '' ? 'no address of the name is published' : `published: ${known}`
  const message = `${problem.message}; ${rest}`
  return setCondition(list, { type, status: 'False', reason: problem.reason, message }, nowMs)
}

function natCondition({ natMapping, nat, nowMs }: StatusInit, list: readonly Condition[]): readonly Condition[] {
  const type = CONDITION_NAT_MAPPING
  // One that asks two relays no longer still has the same NAT; a process that has just started asks soon.
  if (natMapping === undefined || natMapping === 'unknown') {
    // It would contradict the condition BehindNat.
    return nat?.kind === 'public' || nat?.kind === 'behind' ? list.filter((one) => one.type !== type) : list
  }
  const finding: ConditionFinding =
    natMapping === 'endpointIndependent'
      ? {
          ...{ type, status: 'True', reason: 'NatMappingKept' satisfies ReasonCode },
          message: 'all destinations see this gateway at one address and port',
        }
      : {
          ...{ type, status: 'False', reason: 'NatMappingVaries' satisfies ReasonCode },
          message: 'the NAT gives each destination another port (symmetric NAT)',
        }
  return setCondition(list, finding, nowMs)
}

function mappingCondition({ portMapping, nowMs }: StatusInit, list: readonly Condition[]): readonly Condition[] {
  const type = CONDITION_PORT_MAPPED
  if (portMapping === undefined) return list.filter((one) => one.type !== type)
  const message = fitText(portMappingText(portMapping), MAX_CONNECTION_MESSAGE_LENGTH)
  const set = (status: 'True' | 'False', reason: ReasonCode): readonly Condition[] =>
    setCondition(list, { type, status, reason, message }, nowMs)
  switch (portMapping.is) {
    // The finding of an earlier process stays until there is another one.
    case 'asking':
      return list
    case 'mapped':
      return set('True', 'PortMapped')
    case 'refused':
      return set('False', 'PortMappingRefused')
    case 'unusable':
      return set('False', 'PortMappingNotBelieved')
    case 'silent':
      return set('False', 'RouterMapsNoPorts')
  }
}

function behindNatCondition({ nat, nowMs }: StatusInit, list: readonly Condition[]): readonly Condition[] {
  const type = CONDITION_BEHIND_NAT
  // The finding of an earlier process stays until there is a plan.
  if (nat === undefined) return list
  const isBehind = nat.outside.length > 0
  const isHindered = udpBlockedText(nat.udp) !== undefined || nat.isRateLimited
  if (!isBehind && !isHindered) return list.filter((one) => one.type !== type)
  const message = fitText(natText(nat), MAX_CONNECTION_MESSAGE_LENGTH)
  return setCondition(list, { type, status: isBehind ? 'True' : 'False', reason: natReason(nat), message }, nowMs)
}

/** What hinders links most comes first. */
function natReason({ kind, isCarrier, isRateLimited, udp, lifeSeconds }: NatView): ReasonCode {
  if (udpBlockedText(udp) !== undefined) return 'UdpBlocked'
  if (isRateLimited) return 'UdpRateLimited'
  if (lifeSeconds === 0) return 'NatForgetsSoon'
  if (kind === 'symmetric') return 'BehindSymmetricNat'
  return isCarrier ? 'BehindCarrierNat' : 'BehindNat'
}

const FILTERS = {
  anyone: { reason: 'NatLetsInAnyone', text: 'lets in any sender' },
  address: { reason: 'NatLetsInKnownAddresses', text: 'lets in addresses to which the gateway has sent' },
  port: { reason: 'NatLetsInKnownPorts', text: 'lets in addresses and ports to which the gateway has sent' },
} as const satisfies Record<NonNullable<NatView['filter']>, { readonly reason: ReasonCode; readonly text: string }>

function filterCondition({ nat, nowMs }: StatusInit, list: readonly Condition[]): readonly Condition[] {
  const type = CONDITION_NAT_FILTERS
  // The finding of an earlier process stays until there is a plan.
  if (nat === undefined) return list
  if (nat.filter === undefined) return list.filter((one) => one.type !== type)
  const status = nat.filter === 'anyone' ? 'False' : 'True'
  const { reason, text } = FILTERS[nat.filter]
  return setCondition(list, { type, status, reason, message: `the NAT ${text}` }, nowMs)
}

function hairpinCondition({ nat, nowMs }: StatusInit, list: readonly Condition[]): readonly Condition[] {
  const type = CONDITION_NAT_HAIRPINS
  if (nat === undefined) return list
  if (nat.hairpins === undefined) return list.filter((one) => one.type !== type)
  const finding: ConditionFinding = nat.hairpins
    ? {
        ...{ type, status: 'True', reason: 'NatHairpinWorks' satisfies ReasonCode },
        message: 'the NAT leads packets to its own address outside back inside',
      }
    : {
        ...{ type, status: 'False', reason: 'NatHairpinMissing' satisfies ReasonCode },
        message: 'packets to the address outside of the NAT do not come back inside',
      }
  return setCondition(list, finding, nowMs)
}

const NAT_TEXTS = {
  public: 'no NAT',
  unknown: 'nothing that counts has seen this gateway',
  behind: 'NAT; fewer than two relays show how it maps ports',
  'endpoint-independent': 'NAT with one port for all destinations (endpoint-independent mapping)',
  symmetric: 'symmetric NAT: another port for each destination',
} as const satisfies Record<NatView['kind'], string>

function natText(view: NatView): string {
  const { kind, outside, isCarrier, sameNat, sameLan, filter, hairpins, isRateLimited, udp, lifeSeconds } = view
  const blocked = udpBlockedText(udp)
  const others = sameNat.filter((cluster) => !sameLan.includes(cluster))
  return [
    NAT_TEXTS[kind],
    ...(outside.length === 0 ? [] : [`seen at ${named(outside)}`]),
    ...(filter === undefined ? [] : [FILTERS[filter].text]),
    ...(hairpins === undefined ? [] : [hairpins ? 'leads packets back inside' : 'leads no packets back inside']),
    ...(isCarrier ? ['a NAT of a carrier, or a second one, is on the way (CGNAT)'] : []),
    ...(sameLan.length === 0 ? [] : [`in the same LAN as ${named(sameLan)}`]),
    ...(others.length === 0 ? [] : [`behind the same NAT as ${named(others)}`]),
    ...(lifeSeconds === undefined ? [] : [lifeText(lifeSeconds)]),
    ...(isRateLimited ? ['bursts of UDP packets are dropped in part, and single ones are not'] : []),
    ...(blocked === undefined ? [] : [blocked]),
  ].join('; ')
}

function lifeText(lifeSeconds: number): string {
  const [toPublic, toOthers] = [true, false].map((farIsPublic) =>
    keepaliveSeconds({ behindNat: true, natLifeSeconds: lifeSeconds, farIsPublic }),
  )
  const lives = lifeSeconds === 0 ? 'less than 10 s' : `${lifeSeconds} s or more`
  const others = toPublic === toOthers ? '' : `, or ${toOthers ?? 0} s to ends that may be behind NAT`
  return `a mapping without packets lives for ${lives}: keepalives every ${toPublic ?? 0} s${others}`
}

const CONDITIONS_BESIDE_READY = [
  drainedCondition,
  rotationCondition,
  nameCondition,
  natCondition,
  behindNatCondition,
  filterCondition,
  hairpinCondition,
  mappingCondition,
]

function fitted({ message, reason }: Failure): Failure {
  return { message: fitText(message, MAX_FAILURE_LENGTH), reason }
}

function failureText(message: string): string {
  return fitText(problemText({ reason: 'RoundFailed', message }), MAX_FAILURE_LENGTH)
}

/** Message of a link that is up, and that new connections avoid where traffic policies let them. */
const UNANSWERED = 'probes get no answers, or got none a moment ago: traffic policies prefer other clusters'
/** Message of a link that is up although the gateway process at its far end does not answer. */
const PROCESS_SILENT = 'the lane carries traffic, but the remote gateway process does not answer'

function connection(
  init: StatusInit,
  lane: LanePlan,
  planned: PlannedLink,
  relays: readonly RelayInUse[],
): ConnectionStatus {
  const link = init.laneStates.get(lane.remoteLane)?.links.get(linkKey(planned))
  const key = healthKey(lane.remoteLane, planned.cluster)
  const health = init.health.get(key)
  // A sleeping link is not measured, and its last figures would keep alerts firing.
  const { rttMs, loss } = health?.asleep === true ? {} : (health?.figures ?? {})
  const handshakeAge = handshakeAgeMs(init, link)
  const state = reportedState(init, key)
  const relay = usingRelay(relays, link?.at, planned.relayPlaces)
  const usingNat = isBehindNat(planned, link?.at)
  return {
    cluster: planned.cluster,
    lane: lane.ownLane,
    remoteLane: lane.remoteLane,
    endpoint: planned.endpoint,
    state,
    ...(state === 'up'
      ? { message: joinedText(upMessage(lane, health), relayedMessage(init, planned, relay)) }
      : trouble(init, { lane, planned, link, state })),
    ...(state === 'up' && health?.unanswered === true ? { cause: CAUSE_UNANSWERED } : {}),
    ...(state === 'up' && health?.held === true ? { held: true } : {}),
    ...(state === 'up' && health?.asleep === true ? { asleep: true } : {}),
    ...(link?.at === undefined ? {} : { usingAddress: formatAddressPort(link.at) }),
    usingNat,
    ...relay,
    ...(rttMs === undefined ? {} : { rttMs: Math.round(rttMs * 100) / 100 }),
    ...(loss === undefined ? {} : { loss: Math.round(loss * 1000) / 1000 }),
    ...sizes(lane, health),
    ...candidatesOf(init, planned, { state, at: link?.at, usingNat, relay, figures: figuresNow(lane, health) }),
    ...(handshakeAge === undefined ? {} : { handshakeAgeSeconds: Math.floor(handshakeAge / 1000) }),
    rxBytes: link?.rxBytes ?? 0,
    txBytes: link?.txBytes ?? 0,
  }
}

/** A sleeping link is not measured. */
function figuresNow({ mtu: deviceMtu }: LanePlan, health: LinkHealth | undefined): PlaceFigures {
  if (health === undefined || health.asleep) return {}
  const { rttMs, loss } = health.figures
  return {
    ...(rttMs === undefined ? {} : { rttMs }),
    ...(loss === undefined ? {} : { loss }),
    ...(health.sendSize === undefined ? {} : { mtu: linkMtu(deviceMtu, health) }),
  }
}

/** The links of the plan as LinkPlaces takes them. */
export function placedLinks(
  lanes: readonly LanePlan[],
  laneStates: ReadonlyMap<number, LaneState>,
  health: ReadonlyMap<string, LinkHealth>,
): readonly PlacedLink[] {
  const relays = relaysInUse({ lanes, laneStates })
  return lanes.flatMap((lane) =>
    lane.links.map((planned): PlacedLink => {
      const key = linkKey(planned)
      const one = health.get(healthKey(lane.remoteLane, planned.cluster))
      const at = laneStates.get(lane.remoteLane)?.links.get(key)?.at
      const figures = one?.asleep === true ? {} : { figures: figuresNow(lane, one) }
      const { usingRelay: relay } = usingRelay(relays, at, planned.relayPlaces)
      const known = relay === undefined ? {} : { relay }
      return { key, at, ...known, state: one?.state ?? 'connecting', choice: planned.choice, ...figures }
    }),
  )
}

interface NowOfLink {
  readonly state: ConnectionState
  readonly at: AddressPort | undefined
  readonly usingNat: boolean
  readonly relay: Pick<ConnectionStatus, 'usingRelay'>
  readonly figures: PlaceFigures
}

function candidatesOf(
  init: StatusInit,
  planned: PlannedLink,
  { state, at, usingNat, relay, figures }: NowOfLink,
): Pick<ConnectionStatus, 'candidates'> {
  const { placesOf, trips, punched, webRelays = [] } = init
  if (placesOf === undefined) return {}
  const key = linkKey(planned)
  const isDirect = state === 'up' && relay.usingRelay === undefined && !usingNat
  const unpunched = unpunchedReason(init, planned, relay)
  const places = placesOf(key)
  const candidates = linkCandidates({
    ...{ planned, state, at, figures, places, punched: punched?.get(key), trips: trips?.get(key) ?? [] },
    ...{ ...relay, webRelays, most: isDirect ? MAX_DIRECT_CANDIDATES : MAX_LINK_CANDIDATES },
    ...(unpunched === undefined ? {} : { unpunched }),
  })
  return candidates.length === 0 ? {} : { candidates }
}

/** Candidates of the links that have no direct way come first, since these are looked at. */
function withinBudget(connections: readonly ConnectionStatus[]): readonly ConnectionStatus[] {
  const counts = connections.map(({ candidates }) => candidates?.length ?? 0)
  if (counts.reduce((sum, one) => sum + one, 0) <= MAX_STATUS_CANDIDATES) return connections
  const isBad = ({ state, usingRelay: relay }: ConnectionStatus): boolean => state !== 'up' || relay !== undefined
  const order = [...connections.filter(isBad), ...connections.filter((one) => !isBad(one))]
  const kept = new Set<ConnectionStatus>()
  let left = MAX_STATUS_CANDIDATES
  for (const one of order) {
    const count = one.candidates?.length ?? 0
    if (count > left) break
    left -= count
    kept.add(one)
  }
  return connections.map((one) => {
    if (kept.has(one)) return one
    const { candidates: _omitted, ...rest } = one
    return rest
  })
}

/** Relays of members by name and place, each once, and then those on port 443. */
function knownRelays({ trips = NO_TRIPS, webRelays = [] }: StatusInit): readonly KnownRelay[] {
  const byName = new Map<string, KnownRelay>()
  for (const trip of [...trips.values()].flat()) {
    const name = `${trip.relay} ${formatAddress(trip.at.address)}`
    const before = byName.get(name)
    // A relay that answers for one link is there, whatever it says of another one.
    const isBetter = before === undefined || (before.state !== 'answers' && trip.is !== 'asking')
    if (isBetter) byName.set(name, memberRelay(trip))
  }
  const members = [...byName].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, relay]) => relay)
  const web = webRelays.map(({ name, is, proxy, sameAs, rttMs, trouble: failure }): KnownRelay => {
    return {
      name: fitText(name, MAX_NAME),
      state: is,
      ...(proxy === undefined ? {} : { proxy: fitText(printable(proxy), MAX_PROXY) }),
      ...(sameAs === undefined ? {} : { note: noteText(`same process as ${sameAs}`) }),
      ...(failure === undefined ? {} : { reason: failure.reason, note: noteText(failure.why) }),
      ...(rttMs === undefined ? {} : { rttMs: roundedMs(rttMs) }),
    }
  })
  return [...members.slice(0, MAX_STATUS_RELAYS - Math.min(web.length, MAX_RELAYS)), ...web.slice(0, MAX_RELAYS)]
}

const NO_TRIPS: ReadonlyMap<string, readonly RelayTrip[]> = new Map()

/** The limits of the fields of a relay in the status. */
const MAX_NAME = 63
const MAX_PROXY = 300

function memberRelay({ relay, at, is, seen: seenAt, why, rttMs }: RelayTrip): KnownRelay {
  return {
    name: fitText(relay, MAX_NAME),
    at: `${formatAddress(at.address)}:${RELAY_PORT}`,
    state: is === 'bound' ? 'answers' : is,
    ...(seenAt === undefined ? {} : { seenAt: formatAddressPort(seenAt) }),
    ...(why === undefined ? {} : { note: noteText(why) }),
    ...(rttMs === undefined ? {} : { rttMs: roundedMs(rttMs) }),
  }
}

function roundedMs(ms: number): number {
  return Math.round(ms * 100) / 100
}

function noteText(text: string): string {
  return fitText(printable(text), MAX_CANDIDATE_NOTE)
}

function upMessage({ mtu: deviceMtu }: LanePlan, health: LinkHealth | undefined): string {
  if (health?.heldUntil !== undefined) {
    const until = new Date(health.heldUntil).toISOString()
    const text = `the link went down repeatedly; until ${until} it is used only if no other link is up`
    return problemText({ reason: 'LinkFlaps', message: text })
  }
  if (health?.unanswered === true) return UNANSWERED
  if (health?.kernelOnly === true) return PROCESS_SILENT
  const mtu = linkMtu(deviceMtu, health)
  return mtu < deviceMtu ? problemText(narrowProblem(mtu, deviceMtu)) : ''
}

/** Why the link has no better way. Empty if it has, or if that is not known yet. */
function relayedMessage(init: StatusInit, planned: PlannedLink, relay: Pick<ConnectionStatus, 'usingRelay'>): string {
  const unpunched = unpunchedReason(init, planned, relay)
  if (unpunched !== undefined) return problemText({ reason: unpunched, message: UNPUNCHED[unpunched] })
  if (relay.usingRelay === undefined || init.whyRelayed?.(linkKey(planned)) !== 'topology') return ''
  return problemText({
    reason: 'RelayedByTopology',
    message: `the topology lets it use relays of ${planned.via?.join(', ') ?? ''} alone`,
  })
}

function unpunchedReason(
  { whyRelayed }: StatusInit,
  planned: PlannedLink,
  { usingRelay: relay }: Pick<ConnectionStatus, 'usingRelay'>,
): UnpunchedReason | undefined {
  const why = relay === undefined ? undefined : whyRelayed?.(linkKey(planned))
  if (why === 'bothDependent') return 'BothNatsVary'
  if (why !== 'unanswered') return undefined
  return relay !== undefined && isWebRelayName(relay) ? 'UdpUnanswered' : 'PunchUnanswered'
}

function joinedText(...parts: readonly string[]): string {
  return fitText(parts.filter((part) => part !== '').join('; '), MAX_CONNECTION_MESSAGE_LENGTH)
}

function handshakeAgeMs({ monotonicMs }: StatusInit, link: LinkState | undefined): number | undefined {
  return link?.handshakeMs === undefined ? undefined : Math.max(0, monotonicMs - link.handshakeMs)
}

/** Reports `up` only once the routes of the connection are in place. `down` is reported at once. */
function reportedState(init: StatusInit, key: string): ConnectionStatus['state'] {
  const state = init.health.get(key)?.state ?? 'connecting'
  return state === 'up' && !init.routed.has(key) ? 'connecting' : state
}

interface ReportedLink {
  readonly lane: LanePlan
  readonly planned: PlannedLink
  readonly link: LinkState | undefined
  readonly state: Exclude<ConnectionStatus['state'], 'up'>
}

function sizes(lane: LanePlan, health: LinkHealth | undefined): Pick<ConnectionStatus, 'mtu' | 'receiveMtu'> {
  if (health?.sendSize === undefined) return {}
  const { receiveSize } = health
  return { mtu: linkMtu(lane.mtu, health), ...(receiveSize === undefined ? {} : { receiveMtu: receiveSize }) }
}

function trouble(init: StatusInit, { lane, planned, link, state }: ReportedLink): ConnectionTrouble {
  const { cluster, choice, suspicion } = planned
  const sinceMs = init.health.get(healthKey(lane.remoteLane, cluster))?.sinceMs
  const heardMs = init.heardMs(linkKey(planned))
  const handshakeAge = handshakeAgeMs(init, link)
  const found = connectionTrouble({
    state,
    choice,
    link,
    listenPort: lane.port,
    sessionMs: init.sessionMs,
    ...(suspicion === undefined ? {} : { suspicion }),
    ...(sinceMs === undefined ? {} : { forMs: init.monotonicMs - sinceMs }),
    ...(heardMs === undefined ? {} : { heardMs }),
    ...(handshakeAge === undefined ? {} : { handshakeAgeMs: handshakeAge }),
  })
  return { ...found, message: fitText(found.message, MAX_CONNECTION_MESSAGE_LENGTH) }
}

interface RelayInUse {
  readonly cluster: string
  readonly relays: true
  readonly at: AddressPort | undefined
}

/** The far ends that relay, once for all connections: there may be very many of these. */
function relaysInUse({ lanes, laneStates }: Pick<StatusInit, 'lanes' | 'laneStates'>): readonly RelayInUse[] {
  return lanes.flatMap(({ remoteLane, links }) => {
    const states = laneStates.get(remoteLane)?.links
    return links.flatMap((link) => {
      if (link.relays === undefined) return []
      return [{ cluster: link.cluster, relays: link.relays, at: states?.get(linkKey(link))?.at }]
    })
  })
}

/** The member that relays, by the address to which packets go: a process that has just started has no binding yet. */
function usingRelay(
  relays: readonly RelayInUse[],
  at: AddressPort | undefined,
  places: readonly RelayPlace[] = [],
): Pick<ConnectionStatus, 'usingRelay'> {
  if (isWebPlace(at)) return { usingRelay: places.find((one) => sameAddressPort(one.at, at))?.cluster ?? RUNG_TCP_443 }
  const relay = relayOf(at, relays)
  return relay === undefined ? {} : { usingRelay: relay.cluster }
}

/**
 * True if the far end is reached at an address that is not its own: one that it does not announce, or the observed one.
 */
function isBehindNat({ candidates }: PlannedLink, at: AddressPort | undefined): boolean {
  if (at === undefined) return false
  const address = formatAddress(at.address)
  const own = candidates.filter(({ kind }) => kind !== 'observed')
  return !own.some((candidate) => candidate.address === address && candidate.port === at.port)
}
