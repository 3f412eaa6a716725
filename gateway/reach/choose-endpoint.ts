/** Chooses at which underlay address a peer is called, and when it is called again, with a reason. Pure. */
import {
  type Address,
  type AddressPort,
  compareAddresses,
  formatAddress,
  formatAddressPort,
  parseAddress,
  sameAddressPort,
} from '../../model/addresses/addresses.ts'
import type { EndpointCandidate } from '../../model/model.ts'
import type { CallChoice, LinkState } from '../cable/cable.ts'
import { USUAL_ANSWER_MS, slowness } from './plan-slowness.ts'
import { isRelayPlace, isRelayPort } from './relay/plan-relay-use.ts'
import type { PeerHealthView, PunchedPlace, RelayPlace, RoamedLink } from '../world/world.ts'

export interface EndpointChoice extends CallChoice {
  /**
   * Number of this call, from 0, since the connection came into its state. When it changes, the peer is created again on
   * the device: see CallSchedule. Absent: the peer and its session stay as they are.
   */
  readonly attempt?: number
  /** When to choose again, in milliseconds of the monotonic clock. */
  readonly nextAtMs?: number
}

export interface EndpointChoiceInit {
  /** Time on the monotonic clock, by which calls are scheduled. */
  readonly monotonicMs: number
  /** How long one candidate is tried after the first, eager calls. */
  readonly rotateMs: number
  /** A number from 0 to 1, drawn by this process, so that gateways that started together do not stay in step. */
  readonly jitter: number
  /**
   * CableRules.sessionMs: a session younger than this works again once the path is back, if the far end has kept it
   * too.
   */
  readonly sessionMs: number
  /** This end calls at once; the other end waits for a moment. See CALL_FIRST_MS. */
  readonly callsFirst: boolean
  /** The peer can call this node, as far as is known. */
  readonly callable: boolean
  /** Candidates of the peer, best first. */
  readonly candidates: readonly EndpointCandidate[]
  /** The peer announces candidates, but none that can be called from here. */
  readonly noneCallable?: boolean
  /** Where the peer called from, if that is not where it was called. */
  readonly roamed?: RoamedLink | undefined
  /** Where relays take packets for the peer, best first. Absent: nowhere. */
  readonly relays?: readonly RelayPlace[]
  /** The link is relayed, and the peer is called at its own addresses now (ReturnTries). */
  readonly triesDirect?: boolean
  /** Where probes through the NATs of both ends have shown that the peer can be called. Absent: nowhere. */
  readonly punched?: PunchedPlace | undefined
  /** If the link is at a relay, the far end has moved it there, so that it is not set back. Absent: it may be set. */
  readonly followsFar?: boolean
  /** Neither end can be called from outside, as far as is known, so direct calls get less time. Absent: one can. */
  readonly neitherCallable?: boolean
  /** The link is up, and is to go on through the relay that has this place. Absent: it stays where it is. */
  readonly moveTo?: AddressPort | undefined
  /** Relays that are asked for the link, and may answer soon. Absent: none. */
  readonly relaysAsked?: readonly Address[]
  /** Where packets of the link went when it was up last. Absent: not known. */
  readonly upAt?: AddressPort | undefined
  /** Only relays may carry the link, so one is called at once. */
  readonly isTransit?: true
  /** The present state of the link. Undefined if it is new. */
  readonly link: LinkState | undefined
  readonly health: PeerHealthView | undefined
}

/**
 * If both ends send a handshake initiation before they receive the other's, WireGuard answers both and completes
 * neither, and both wait 5 s (REKEY_TIMEOUT) before they try again. Endpoints reach both ends at about the same time,
 * so this would be the normal case. The value is longer than most one-way delays and too short for a user to notice.
 */
const CALL_FIRST_MS = 300

/** A handshake younger than this is given time to show in the probes, which need two answers. */
const SETTLE_MS = 3000

/**
 * A far end that called from a new address has this long to complete a handshake. Until then no other address is
 * called.
 */
const ANSWER_WAIT_MS = 3000
/** Calls at the address from which a far end has just called have numbers from here: see justCalled(). */
const ANSWERING_CALLS = 3_000_000

/**
 * A peer that is up, or has just completed a handshake or called, keeps its address. A peer that became silent but has
 * a session keeps the session: most interruptions end on the same path, and a far gateway that has lost the session
 * calls this node. All other peers are called at their candidates in turn, and so is a peer that cannot call this node.
 * The address from which a peer called last is one more candidate: behind NAT it may be the only one that works.
 */
export function chooseEndpoint(init: EndpointChoiceInit): EndpointChoice {
  const { candidates, link, health, monotonicMs, roamed, relays = [] } = init
  const current = link?.at
  if (init.triesDirect === true && candidates.length > 0) {
    const turn = Math.floor(monotonicMs / DIRECT_TURN_MS)
    return { ...tryPlace({ ...init, roamed: undefined }, turn), nextAtMs: monotonicMs + DIRECT_AGAIN_MS }
  }
  const punched = punchedPlace(init)
  if (punched !== undefined) return punched
  const target = relays.find(({ at }) => sameAddressPort(at, init.moveTo))
  // The far end draws the link back until it has received a packet through the other relay.
  if (health?.state === 'up' && target !== undefined)
    return { ...throughRelay(target), nextAtMs: monotonicMs + DIRECT_AGAIN_MS }
  const moved = movedPlace(init)
  if (health?.state === 'up' && moved !== undefined) return throughRelay(moved)
  // A device that was created again has forgotten the addresses of its peers, whatever the probes showed before.
  if (health?.state === 'up' && current !== undefined) return keep(current, 'the remote gateway answers')
  if (candidates.length === 0 && relays.length === 0) {
    if (current !== undefined)
      return keep(current, 'the remote gateway connected from there; it publishes no candidates')
    const why =
      init.noneCallable === true
        ? 'none of its addresses is reachable from here'
        : 'the remote gateway publishes no candidates'
    return { how: 'wait', why: `${why}; it must connect to this gateway` }
  }
  const heardMs = roamed === undefined ? Infinity : monotonicMs - roamed.sinceMs
  const slow = slowness(init)
  if (current !== undefined && sameAddressPort(current, roamed?.at) && heardMs < ANSWER_WAIT_MS * slow)
    return justCalled(init, current, heardMs)
  const ageMs = monotonicMs - (link?.handshakeMs ?? -Infinity)
  const relayed = relayTurn(init)
  if (current !== undefined && ageMs < init.sessionMs && staysDirect(init)) {
    const untilMs = (health?.sinceMs ?? monotonicMs) + DIRECT_STAYS_MS
    return { ...keep(current, 'the remote gateway answered there before'), nextAtMs: untilMs }
  }
  // What was agreed before the link went down says nothing about another path.
  if (relayed !== undefined && health?.state === 'down' && (link?.handshakeMs ?? -Infinity) <= health.sinceMs)
    return relayed
  const sinceMs = health === undefined || health.state === 'up' ? monotonicMs : health.sinceMs
  const elapsedMs = Math.max(0, monotonicMs - sinceMs)
  const unheard = link?.handshakeMs === undefined && health?.state !== 'up' && health?.state !== 'down'
  if (!init.callsFirst && unheard && elapsedMs < CALL_FIRST_MS) {
    return { ...OTHER_FIRST, nextAtMs: sinceMs + CALL_FIRST_MS }
  }
  const settleMs = SETTLE_MS * slow
  if (current !== undefined && ageMs < settleMs) {
    return { ...keep(current, 'the handshake has just completed'), nextAtMs: monotonicMs + settleMs - ageMs }
  }
  if (relayed !== undefined) return relayed
  if (candidates.length === 0 && roamed === undefined) {
    const nextAtMs = Math.max(sinceMs + relayAfterMs(init), monotonicMs + DIRECT_AGAIN_MS)
    if (current !== undefined) return { ...keep(current, 'a relay is called next'), nextAtMs }
    return { how: 'wait', why: 'the remote gateway publishes no candidates; a relay is called next', nextAtMs }
  }
  if (current !== undefined && ageMs < init.sessionMs && init.callable) {
    return keepSession(init, current, sinceMs, elapsedMs)
  }
  const { attempt, endsMs } = callTurn(elapsedMs, callSchedule(init))
  const turns = relayTurns(init)
  const untilMs = turns === undefined ? -Infinity : beginsTogetherMs(turns) + secondWaitMs(init)
  if (elapsedMs < untilMs) return { ...tryPlace(init, attempt), nextAtMs: sinceMs + untilMs }
  return { ...tryPlace(init, attempt), attempt, nextAtMs: sinceMs + Math.min(endsMs, relaysAtMs(init, elapsedMs)) }
}

export type TransitChoiceInit = Omit<
  EndpointChoiceInit,
  'isTransit' | 'noneCallable' | 'neitherCallable' | 'roamed' | 'punched' | 'triesDirect'
>

/** The members whose relays may carry a link, and the addresses of those of their gateways that relay. */
export interface TransitRelays {
  readonly names: readonly string[]
  readonly addresses: readonly Address[]
}

/**
 * The same for a link that by the topology only relays of some members may carry: no other address is called, and one
 * that the device has is forgotten, wherever it comes from. A relay that carries the link stays after a restart of this
 * process, before the relay has answered it.
 */
export function chooseTransit(init: TransitChoiceInit, { names, addresses }: TransitRelays): EndpointChoice {
  const { link } = init
  const relays = init.relays?.filter(({ cluster }) => names.includes(cluster)) ?? []
  const current = link?.at
  const isOfRelay = (at: AddressPort): boolean =>
    relays.some((one) => sameAddressPort(one.at, at)) ||
    (isRelayPort(at.port) && addresses.some((address) => compareAddresses(address, at.address) === 0))
  if (current !== undefined && !isOfRelay(current)) {
    const [relay] = relays
    if (relay !== undefined) return throughRelay(relay)
    const why = `only relays of ${names.join(', ')} may carry it, and it was at ${formatAddressPort(current)}`
    return { how: 'wait', forgets: true, why }
  }
  if (relays.length > 0) return chooseEndpoint({ ...init, relays, candidates: [], isTransit: true })
  const why = `no relay of ${names.join(', ')} has both ends yet`
  return current === undefined ? { how: 'wait', forgets: true, why } : keep(current, why)
}

/**
 * How long direct candidates are given to answer before a relay carries a link that has never been up, or is new: the
 * second end calls after CALL_FIRST_MS, and its call takes a round trip. Less where only probes through NATs could find
 * a direct place, which go on beside the relay.
 */
const RELAY_AFTER_MS = 500
const HIDDEN_RELAY_AFTER_MS = CALL_FIRST_MS
/** Relays are asked while the device gets a new link, so both ends may be bound so long before the link is first probed. */
const BOUND_BEFORE_MS = 3000
/** Calls at relays and at punched places have numbers from here, so that the first does not wait for a direct call. */
const RELAYED_CALLS = 1_000_000
const PUNCHED_CALLS = 2_000_000
/**
 * Both ends get to know such a place at about the same moment. One calls at once; the other one waits for so long, which
 * is more than most round trips, and for longer if the far end has called: its next call is then due before.
 */
const SECOND_CALL_MS = 700
const SECOND_HEARD_MS = 1900
/** A link that was up without a relay has this long to come up there again: most interruptions are short. */
const DIRECT_STAYS_MS = 3000
/** How long one relay is tried before the next one. */
const RELAY_TURN_MS = 2000
/** One of so many turns is one of the direct candidates. */
const RELAY_TURNS = 4
/** A peer that still sends through the relay draws the link back there, so the direct address is set again so often. */
const DIRECT_AGAIN_MS = 400
const DIRECT_TURN_MS = 1200

/**
 * The call at the place that probes have proven. A link that went down there does not stay: Relays takes the place back.
 */
function punchedPlace(init: EndpointChoiceInit): EndpointChoice | undefined {
  const { punched, link, health, monotonicMs } = init
  const current = link?.at
  if (punched === undefined) return undefined
  const at = { address: punched.address, port: punched.port }
  const why = 'punched: probes pass through the NATs of both ends'
  if (health?.state === 'up') {
    // The peer may have moved the link first, to another one of its places.
    if (current !== undefined && !mayBeRelay(current, init)) return keep(current, why)
    if (init.followsFar === true) return undefined
    return { how: 'try', at, why, nextAtMs: monotonicMs + DIRECT_AGAIN_MS }
  }
  if (health?.state === 'down' && sameAddressPort(current, punched)) return undefined
  const sinceMs = health?.sinceMs ?? monotonicMs
  const knownMs = Math.max(0, (punched.sinceMs ?? sinceMs) - sinceMs)
  const elapsedMs = Math.max(knownMs, monotonicMs - sinceMs)
  const { attempt, endsMs } = sharedCall(init, elapsedMs, [knownMs, knownMs], PUNCHED_CALLS)
  const hasSession = monotonicMs - (link?.handshakeMs ?? -Infinity) < init.sessionMs
  const nextAtMs = sinceMs + endsMs
  if (attempt === undefined && !hasSession && current === undefined) return { ...OTHER_FIRST, nextAtMs }
  return { how: 'try', at, why, ...(hasSession || attempt === undefined ? {} : { attempt }), nextAtMs }
}

/**
 * The relay has given the pair another port, for example because one end has another identity. Or it relays no longer,
 * for example because its gateway is about to leave, and there is another one.
 */
function movedPlace({ relays = [], relaysAsked = [], candidates, link }: EndpointChoiceInit): RelayPlace | undefined {
  const current = link?.at
  if (current === undefined || !mayBeRelay(current, { candidates })) return undefined
  if (relays.some(({ at }) => sameAddressPort(at, current))) return undefined
  const address = formatAddress(current.address)
  const same = relays.find(({ at }) => formatAddress(at.address) === address)
  // After a restart of this process another relay may answer before the one that carries the link.
  const isAsked = relaysAsked.some((one) => compareAddresses(one, current.address) === 0)
  return same ?? (isAsked ? undefined : relays[0])
}

const OTHER_FIRST = { how: 'wait', why: 'the remote gateway connects first' } as const

function throughRelay({ at, cluster }: RelayPlace): EndpointChoice {
  return { how: 'try', at, why: `relayed by ${cluster}` }
}

/** Turns of the relays of a link that is not up, counted from 0. All times are since it is not up. */
interface RelayTurn {
  readonly turn: number
  /** How long each lasts. */
  readonly turnMs: number
  readonly elapsedMs: number
  /** When the first one began: no relay had both ends before, or direct candidates had their time. */
  readonly firstMs: number
  /** This one is of the direct candidates. */
  readonly isDirect: boolean
}

function relayTurns(init: EndpointChoiceInit): RelayTurn | undefined {
  const { relays = [], health, monotonicMs } = init
  if (relays.length === 0 || health === undefined || health.state === 'up') return undefined
  const elapsedMs = Math.max(0, monotonicMs - health.sinceMs)
  const afterMs = relayAfterMs(init)
  if (elapsedMs < afterMs) return undefined
  const knownMs = Math.min(...relays.map(({ sinceMs = -Infinity }) => sinceMs)) - health.sinceMs
  const firstMs = Math.max(afterMs, Math.min(knownMs, elapsedMs))
  const turnMs = RELAY_TURN_MS * slowness(init)
  const turn = Math.floor((elapsedMs - firstMs) / turnMs)
  return {
    turn,
    turnMs,
    elapsedMs,
    firstMs,
    isDirect: turn % RELAY_TURNS === RELAY_TURNS - 1 && init.candidates.length > 0,
  }
}

/**
 * When both ends begin to call at the same moment in this turn: they get to know the first relay together, and change
 * between relays and direct candidates together, and none calls in a first turn that keeps the session.
 */
function beginsTogetherMs({ turn, turnMs, firstMs, isDirect }: RelayTurn): number {
  const isChange = isDirect || turn === 1 || turn % RELAY_TURNS === 0
  return isChange ? firstMs + turn * turnMs : -Infinity
}

/**
 * The call through a relay that is due, undefined if none is. The first turn of a link that went down keeps the
 * session, which works over the next relay at once, and is not that of the relay which it used, unless all others have
 * failed.
 */
function relayTurn(init: EndpointChoiceInit): EndpointChoice | undefined {
  const { relays = [], health, monotonicMs, link } = init
  const turns = relayTurns(init)
  if (turns === undefined || health === undefined || turns.isDirect) return undefined
  const { turn, elapsedMs, firstMs } = turns
  // A move may just have shown that nothing comes through the other relay.
  const usable = turn === 0 ? relays.filter(({ failed }) => failed === undefined) : []
  // Where a link that is new is called says nothing against that relay.
  const lost = health.state === 'down' ? (init.upAt ?? link?.at) : undefined
  const other = usable.find(({ at }) => !sameAddressPort(at, lost)) ?? usable[0]
  // Turns of direct candidates do not count, or the last of RELAY_TURNS relays would never have one.
  const directTurns = init.candidates.length > 0 ? Math.floor(turn / RELAY_TURNS) : 0
  const place = other ?? relays[(turn - directTurns) % relays.length]
  if (place === undefined) return undefined
  const keepsSession = turn === 0 && monotonicMs - (link?.handshakeMs ?? -Infinity) < init.sessionMs
  const callsFirst = callsFirstAtRelay(init, turn, place)
  const called = { ...init, callsFirst }
  const { attempt, endsMs } = sharedCall(called, elapsedMs, [firstMs, beginsTogetherMs(turns)], RELAYED_CALLS)
  const nextAtMs = health.sinceMs + Math.min(endsMs, turnEndsMs(turns))
  if (attempt === undefined && !keepsSession && link?.at === undefined) return { ...OTHER_FIRST, nextAtMs }
  return { ...throughRelay(place), ...(keepsSession || attempt === undefined ? {} : { attempt }), nextAtMs }
}

/**
 * Whether this end calls first in a turn: in the first one the end that came last to the relay that is called. Each end
 * gets to know the relays at times of its own, so the two may not agree on which of them was there first. An order from
 * before the link went down says nothing: one of them may be another process since.
 */
function callsFirstAtRelay({ callsFirst, health }: EndpointChoiceInit, turn: number, called: RelayPlace): boolean {
  const { sinceMs = -Infinity, farWasThere } = called
  const beforeMs = health?.state === 'connecting' ? BOUND_BEFORE_MS : 0
  const isNew = turn === 0 && sinceMs >= (health?.sinceMs ?? Infinity) - beforeMs
  return (isNew ? farWasThere : undefined) ?? callsFirst
}

/** When a relay may carry a link, since it is not up. */
function relayAfterMs(init: EndpointChoiceInit): number {
  const isDown = init.health?.state === 'down'
  if (init.isTransit === true || (isDown && !wasDirect(init))) return 0
  if (isDown) return DIRECT_STAYS_MS
  return init.neitherCallable === true ? HIDDEN_RELAY_AFTER_MS : RELAY_AFTER_MS
}

/** When the turn ends. */
function turnEndsMs({ turn, turnMs, firstMs }: RelayTurn): number {
  return firstMs + (turn + 1) * turnMs
}

/**
 * The present call at places that both ends got to know together, and when its turn ends: one end calls at once, and the
 * other one waits for a moment. Undefined: it waits. Calls have been due since the first of `beginMs`, and the two ends
 * may begin to call together at the last one. All are counted as `elapsedMs`.
 */
function sharedCall(
  init: EndpointChoiceInit,
  elapsedMs: number,
  [firstMs, togetherMs]: readonly [number, number],
  firstCall: number,
): { readonly attempt?: number; readonly endsMs: number } {
  const untilMs = togetherMs + secondWaitMs(init)
  if (elapsedMs < untilMs) return { endsMs: untilMs }
  const fromMs = firstMs + (init.callsFirst ? 0 : SECOND_CALL_MS * slowness(init))
  const { attempt, endsMs } = callTurn(elapsedMs - fromMs, callSchedule(init))
  return { attempt: firstCall + attempt, endsMs: fromMs + endsMs }
}

function secondWaitMs(init: EndpointChoiceInit): number {
  const { callsFirst, link } = init
  if (callsFirst) return 0
  // The far end knows the place, and may wait for the answer.
  const hasHeard = link !== undefined && link.handshakeMs === undefined && link.rxBytes > 0
  return (hasHeard ? SECOND_HEARD_MS : SECOND_CALL_MS) * slowness(init)
}

/**
 * The far end has called from where it is called now. If nothing has come of that after the time of a call, the two calls
 * have crossed, or an answer is lost, and WireGuard would wait for REKEY_TIMEOUT: this end calls there, too.
 */
function justCalled(init: EndpointChoiceInit, at: AddressPort, heardMs: number): EndpointChoice {
  const { link, monotonicMs, sessionMs } = init
  const hasSession = monotonicMs - (link?.handshakeMs ?? -Infinity) < sessionMs
  const { eagerMs } = callSchedule(init)
  const waitMs = ANSWER_WAIT_MS * slowness(init)
  const turn = hasSession ? 0 : Math.floor(heardMs / eagerMs)
  const endsMs = hasSession ? waitMs : Math.min(waitMs, (turn + 1) * eagerMs)
  const why = 'the remote gateway has just connected from there'
  const call = { how: 'try', at, why, attempt: ANSWERING_CALLS + turn } as const
  return { ...(turn === 0 ? keep(at, why) : call), nextAtMs: monotonicMs + endsMs - heardMs }
}

/** By where the link was when it was up: the call through a relay changes where it is. */
function wasDirect({ upAt, candidates }: EndpointChoiceInit): boolean {
  return upAt !== undefined && !mayBeRelay(upAt, { candidates })
}

/** A place of relays, unless the peer itself announces it: gateways may use the ports of relays, too. */
function mayBeRelay(at: AddressPort, { candidates }: Pick<EndpointChoiceInit, 'candidates'>): boolean {
  const address = formatAddress(at.address)
  return isRelayPlace(at) && !candidates.some((one) => one.address === address && one.port === at.port)
}

function staysDirect(init: EndpointChoiceInit): boolean {
  const { relays = [], health, monotonicMs } = init
  if (relays.length === 0 || health?.state !== 'down' || !wasDirect(init)) return false
  return monotonicMs - health.sinceMs < DIRECT_STAYS_MS
}

function keep(at: AddressPort, why: string): EndpointChoice {
  return { how: 'keep', at, why }
}

/** The address of the peer may have changed, so the candidates are tried in turn, but the session is kept. */
function keepSession(
  init: EndpointChoiceInit,
  current: AddressPort,
  sinceMs: number,
  elapsedMs: number,
): EndpointChoice {
  const { rotateMs } = init
  const turn = Math.floor(elapsedMs / rotateMs)
  const choice = turn === 0 ? keep(current, 'the remote gateway answered there before') : tryPlace(init, turn - 1)
  return { ...choice, nextAtMs: sinceMs + Math.min((turn + 1) * rotateMs, relaysAtMs(init, elapsedMs)) }
}

/**
 * When a relay may be called while a direct candidate is, counted as `elapsedMs`: for the first time, or again after the
 * turn of direct candidates, however long their call lasts. Infinity: there is no relay.
 */
function relaysAtMs(init: EndpointChoiceInit, elapsedMs: number): number {
  if ((init.relays ?? []).length === 0) return Infinity
  const turns = relayTurns(init)
  if (turns !== undefined) return turnEndsMs(turns)
  const afterMs = relayAfterMs(init)
  return elapsedMs < afterMs ? afterMs : Infinity
}

function tryPlace({ candidates, roamed }: EndpointChoiceInit, turn: number): EndpointChoice {
  const reported = candidates.map(({ kind, address, port }): CallTarget => {
    return { at: { address: parseAddress(address), port }, what: `${kind} address` }
  })
  const isReported = roamed === undefined || reported.some(({ at }) => sameAddressPort(at, roamed.at))
  const places = isReported ? reported : [...reported, { at: roamed.at, what: 'observed address' }]
  const index = turn % places.length
  const place = places[index]
  const why = `${place?.what ?? ''}, candidate ${index + 1} of ${places.length}`
  return { how: 'try', ...(place === undefined ? {} : { at: place.at }), why }
}

interface CallTarget {
  readonly at: AddressPort
  readonly what: string
}

/**
 * WireGuard drops the call of a key that it does not know yet, and repeats an unanswered call only after 5 s. That is
 * long for a user who has just joined a site, so a peer is called every `eagerMs` at first: it is created again on the
 * device, which sends a handshake at once. After EAGER_FOR_MS the other end is considered dead and is called every
 * `calmMs`, about as often as WireGuard itself does.
 */
interface CallSchedule {
  readonly eagerMs: number
  readonly calmMs: number
}

const EAGER_MS = USUAL_ANSWER_MS
const EAGER_FOR_MS = 15_000
/** The two ends use different intervals, so that calls that crossed once do not cross again. */
const SECOND_END = 1.7
const JITTER = 0.2

function callSchedule(init: EndpointChoiceInit): CallSchedule {
  const { callsFirst, jitter, rotateMs } = init
  const stretch = (callsFirst ? 1 : SECOND_END) * (1 + JITTER * jitter)
  const eagerMs = Math.round(EAGER_MS * slowness(init) * stretch)
  return { eagerMs, calmMs: Math.max(eagerMs, Math.round(rotateMs * stretch)) }
}

/** The current call, and when its turn ends, both counted from the beginning. */
function callTurn(elapsedMs: number, { eagerMs, calmMs }: CallSchedule): { attempt: number; endsMs: number } {
  const eagerCalls = Math.ceil(EAGER_FOR_MS / eagerMs)
  const calmFromMs = eagerCalls * eagerMs
  if (elapsedMs < calmFromMs) {
    const attempt = Math.floor(elapsedMs / eagerMs)
    return { attempt, endsMs: (attempt + 1) * eagerMs }
  }
  const calmCalls = Math.floor((elapsedMs - calmFromMs) / calmMs)
  return { attempt: eagerCalls + calmCalls, endsMs: calmFromMs + (calmCalls + 1) * calmMs }
}
