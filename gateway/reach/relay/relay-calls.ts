/**
 * The questions of this node to relays: a caller for each binding that is wanted, a socket for each lane device, and the
 * table through which both have one port outside.
 */
import { isNotFound } from '../../../kernel/kernel.ts'
import { type Nft, TableApplier, elementsOf, formatNft, removeTable } from '../../../kernel/nft/nft.ts'
import { type OpenProbeSocket, type ProbeSocket, answerWaitMs } from '../../../kernel/probing/probing.ts'
import {
  type Address,
  type AddressPort,
  compareAddresses,
  formatAddress,
  parseAddress,
  sameAddressPort,
} from '../../../model/addresses/addresses.ts'
import { NFT_TABLE_REACH, RELAY_CALL_PORT, RELAY_PORT } from '../../../model/model.ts'
import type { Clock } from '../../../reconcile/reconcile.ts'
import type { PunchedPlace, RelayPlace } from '../../world/world.ts'
import { BindCaller, type CallerState } from './bind-caller.ts'
import { type NatMapping, type OwnEnd, bindKey, endId, namedQuestion } from '../frames/bind-frame.ts'
import type { TwoWays } from './suspects.ts'
import type { RelayWorth, RelayWant, UsableRelay } from './plan-relay-use.ts'
import { MAP_OTHER_PORTS, type SharedPort, otherPortsOf, planSharedPorts } from './plan-shared-port.ts'
import { type Random, portRole } from '../punch/plan-port-tries.ts'
import { type OtherPort, PortTries, type RelayedWay, type TriedLink, type UsedPlace } from '../punch/port-tries.ts'
import { namedProbe, probeKey } from '../frames/punch-frame.ts'
import { ProbeBudget, Punch, type PunchPacket, isHopeless, observedMapping, placesToTry } from '../punch/punch.ts'

export interface RelayCallsDeps {
  /** Of family ip. */
  readonly nft: Nft
  readonly clock: Clock
  readonly openSocket: OpenProbeSocket
  readonly onError: (error: unknown) => void
  /** A binding has changed. */
  readonly onChange: () => void
  /** Something is to be sent, or the table is to change: call apply() and send(). */
  readonly onDue: () => void
  /** Called the first time that the kernel refuses to send packets two ways. */
  readonly onOneWay?: (error: unknown) => void
  /** Draws ports. Absent: this end does not guess any, and opens none. */
  readonly random?: Random
}

interface Call {
  want: RelayWant
  readonly caller: BindCaller
  /** endId() of this end and of the far one. */
  readonly from: string
  readonly to: string
  /**
   * Since when not both ends are bound, in milliseconds of the monotonic clock. Undefined: they are, or this end waits for
   * its first question, while the relay answers others.
   */
  idleSinceMs: number | undefined
  /** Since when both ends are bound. Undefined: they are not. */
  sharedSinceMs: number | undefined
}

/** The search for a place at which the far end of one link can be called without a relay. */
interface LinkPunch {
  readonly key: string
  readonly remoteLane: number
  /** endId() of this end and of the far one. */
  readonly from: string
  readonly to: string
  /** probeKey(). */
  readonly probeKey: Buffer
  readonly punch: Punch
  /** ProbedLink.sinceMs, for a link over port 443. */
  sinceMs: number | undefined
}

export interface WantedInit {
  readonly own: OwnEnd | undefined
  /** Ports of the lane devices, by remote lane. */
  readonly ports: ReadonlyMap<number, number>
  /** Where the far ends of links say that they can be called, by linkKey(). Absent: nowhere. */
  readonly places?: ReadonlyMap<string, readonly AddressPort[]>
  /** Links, by linkKey(), with an end to which a router leads calls, and the place if that is the far end. Absent: none. */
  readonly mapped?: ReadonlyMap<string, AddressPort | undefined>
  /** Whether a probe may go to a place. Absent: to none. */
  readonly mayProbe?: (at: AddressPort) => boolean
  /** Links over port 443, for which probes look for a better way. Absent: none. */
  readonly webLinks?: readonly ProbedLink[]
  /** Where packets of links go, if hasOtherPorts. Absent: nowhere. */
  readonly used?: readonly UsedPlace[]
  /** Places whose packets go to a second one, too. Absent: none. */
  readonly twoWays?: readonly TwoWays[]
}

/** A link that no relay of a member carries, and that is probed all the same. */
export interface ProbedLink {
  /** linkKey(). */
  readonly key: string
  readonly remoteLane: number
  /** Identity of the far end. */
  readonly identity: string
  /** Since when it is over port 443, in milliseconds of the monotonic clock: about the same at both ends. */
  readonly sinceMs: number
}

/** Why the packets of a relayed link do not go without the relay. Topology: they may not. Searching: not known yet. */
export type WhyRelayed = 'topology' | 'searching' | 'bothDependent' | 'unanswered'

/** What a relay of a member answers for one link. */
export interface RelayTrip {
  /** The member whose gateway relays. */
  readonly relay: string
  /** Where packets of the link go, or questions as long as this end is not bound. */
  readonly at: AddressPort
  readonly is: 'bound' | 'asking' | 'refuses'
  /** The far end is bound there too. */
  readonly hasFar: boolean
  /** Where the relay sees this end. */
  readonly seen?: AddressPort
  /** Why it refuses. */
  readonly why?: string
  /** From this node to the relay alone, in milliseconds. Absent: it has not answered. */
  readonly rttMs?: number
}

/** A link that is well over port 443 leaves it for a place that has answered for so long. */
const WEB_PROVES_MS = 5000
/**
 * A relay at which not both ends are bound after this time makes room for another one, or after three times of an answer
 * if that is longer: each end needs four answers of the relay, whose ways are parts of that of the link.
 */
export const IDLE_RELAY_MS = 5000
/** One that was of no use is not chosen before others for so long. */
export const USELESS_RELAY_MS = 60_000
/** So often in this time, a relay is of use again because it sees this end elsewhere. A NAT moves an end seldom. */
export const MOST_FORGIVEN = 3
const FORGIVEN_MS = 600_000
/**
 * Questions to one relay that it is going to challenge, and has not answered yet. It sends an address few challenges until
 * that is proven (bindings.ts), and drops the others, so that many links at once are bound sooner in turn.
 */
export const MOST_UNPROVEN = 8
/** One without an answer for so long makes room for the next one. */
export const UNPROVEN_MS = 500
/** A kernel that has refused to send packets two ways, for which it needs a module, is not asked again for so long. */
export const ONE_WAY_MS = 600_000
/** How often the table is compared with the plan. */
const VERIFY_MS = 25_000

export class RelayCalls {
  readonly #deps: RelayCallsDeps
  readonly #table: TableApplier
  readonly #sockets = new Map<number, ProbeSocket>()
  #calls: ReadonlyMap<string, Call> = new Map()
  /** The same calls, by endsName(). */
  #byEnds: ReadonlyMap<string, readonly Call[]> = new Map()
  /** Until when relays count as useless for links, by callName(). Milliseconds of the monotonic clock. */
  readonly #useless = new Map<string, number>()
  /** When relays counted as of use again since a NAT had moved this end, by callName(). */
  readonly #forgiven = new Map<string, readonly number[]>()
  /** Since when relays have answered no question, by identity. Milliseconds of the monotonic clock. */
  readonly #silentMs = new Map<string, number>()
  readonly #budget = new ProbeBudget()
  /** Questions to relays that have not answered where they are called. */
  readonly #silentBudget = new ProbeBudget()
  #punches: ReadonlyMap<string, LinkPunch> = new Map()
  #places: ReadonlyMap<string, readonly AddressPort[]> = new Map()
  #mapped: ReadonlyMap<string, AddressPort | undefined> = new Map()
  #mayProbe: (at: AddressPort) => boolean = () => false
  readonly #tries: PortTries | undefined
  #used: readonly UsedPlace[] = []
  /** Until when packets go one way, because the kernel has refused two. Milliseconds of the monotonic clock. */
  #oneWayUntilMs = -Infinity
  /** An earlier run of the process may have given devices other ports. */
  #mayAdopt = true
  /** At first, one of an earlier run of the process may be there. */
  #hasTable = true

  constructor(deps: RelayCallsDeps) {
    const { nft, clock, openSocket, random, onDue } = deps
    this.#deps = deps
    const now = (): { nowMs: number; wallMs: number } => ({ nowMs: clock.monotonic(), wallMs: clock.now() })
    const mayProbe = (at: AddressPort): boolean => this.#mayProbe(at)
    this.#tries = random && new PortTries({ openSocket, random, mayProbe, now, onDue })
    this.#table = new TableApplier({ nft, clock, table: NFT_TABLE_REACH, comparison: 'elements with the plan' })
  }

  /**
   * Takes all bindings that are wanted, and what belongs to them. A binding that was wanted before goes on. Throws
   * KernelError.
   */
  async apply(
    wants: readonly RelayWant[],
    {
      own,
      ports,
      places = new Map(),
      mapped = new Map(),
      mayProbe = () => false,
      webLinks = [],
      used = [],
      twoWays = [],
    }: WantedInit,
    signal: AbortSignal,
  ): Promise<void> {
    this.#places = places
    this.#mapped = mapped
    this.#mayProbe = mayProbe
    this.#used = used
    await this.#adopt(ports, signal)
    const calls = new Map<string, Call>()
    for (const want of own === undefined ? [] : wants) {
      const name = [own?.identity, callName(want.key, want.relay), want.identity].join('|')
      const before = this.#calls.get(name)
      // What the topology says of the link may have changed.
      const call = before === undefined ? newCall(want, own) : Object.assign(before, { want })
      if (call !== undefined && ports.has(want.remoteLane)) calls.set(name, call)
    }
    const ended = [...this.#calls].some(([name, { caller }]) => isBound(caller) && !calls.has(name))
    const nowMs = this.#deps.clock.monotonic()
    for (const [name, { want, idleSinceMs = nowMs }] of this.#calls) {
      const isUseless = !calls.has(name) && nowMs - idleSinceMs >= idleMs(want)
      if (isUseless) this.#useless.set(callName(want.key, want.relay), nowMs + USELESS_RELAY_MS)
    }
    for (const [name, untilMs] of this.#useless) if (nowMs >= untilMs) this.#useless.delete(name)
    for (const [name, times] of this.#forgiven)
      if (nowMs - (times.at(-1) ?? -Infinity) >= FORGIVEN_MS) this.#forgiven.delete(name)
    this.#calls = calls
    const asked = new Set([...calls.values()].map(({ want }) => want.relay.identity))
    for (const identity of this.#silentMs.keys()) if (!asked.has(identity)) this.#silentMs.delete(identity)
    this.#byEnds = Map.groupBy(calls.values(), endsName)
    this.#keepPunches(
      own,
      webLinks.filter(({ remoteLane }) => ports.has(remoteLane)),
    )
    const punched = [...this.#punches.values()]
    const lanes = new Set([
      ...[...calls.values()].map(({ want }) => want.remoteLane),
      ...punched.map(({ remoteLane }) => remoteLane),
      ...(this.#tries?.lanes() ?? []).filter((lane) => ports.has(lane)),
    ])
    const others = this.#tries?.others((lane) => (lanes.has(lane) ? ports.get(lane) : undefined)) ?? []
    const shared = [...lanes].map((lane) => ({ device: ports.get(lane) ?? 0, socket: RELAY_CALL_PORT + lane }))
    const nowTwoWays = this.isOneWay ? [] : twoWays
    await this.#applyWays({ shared, others, twoWays: nowTwoWays }, signal).catch((error: unknown) => {
      // Relayed links need the table, so the next round does without ports that the kernel may not take.
      if (!signal.aborted) this.#tries?.refused()
      throw error
    })
    this.#tries?.applied(others)
    this.#keepSockets(lanes)
    if (ended) this.#deps.onChange()
  }

  /** Sends what is due. Returns when something is due next, in milliseconds of the monotonic clock. */
  send(): number {
    const { clock, onChange } = this.#deps
    const nowMs = clock.monotonic()
    let changed = false
    const mapping = this.mapping()
    const unproven = new UnprovenQuestions(nowMs)
    for (const { caller, want } of this.#calls.values()) {
      const wasBound = isBound(caller)
      caller.look(nowMs)
      changed ||= wasBound && !isBound(caller)
      unproven.count(want.relay, caller)
    }
    for (const call of this.#byNeed()) {
      const { caller, want } = call
      const mayAsk = unproven.mayAsk(want.relay, caller) && this.#mayAskSilent(call, nowMs)
      const question = mayAsk ? caller.next(nowMs, clock.now(), mapping) : undefined
      this.#look(call, nowMs)
      if (question === undefined) continue
      unproven.count(want.relay, caller)
      const { identity } = want.relay
      this.#silentMs.set(identity, this.#silentMs.get(identity) ?? nowMs)
      this.#sockets.get(want.remoteLane)?.send(question.bytes, formatAddress(question.to.address), question.to.port)
    }
    let dueMs = Infinity
    for (const one of this.#punches.values()) one.punch.know(this.#factsOf(one, mapping))
    const tried = [...this.#punches.values()].map((one) => this.#triedLink(one, mapping))
    for (const packet of this.#tries?.look(tried, this.#used) ?? []) this.#sendPackets(packet.remoteLane, [packet])
    for (const one of this.#punches.values()) {
      this.#sendPackets(one.remoteLane, one.punch.next(nowMs, clock.now()))
      dueMs = Math.min(dueMs, one.punch.dueMs(nowMs))
    }
    if (changed) onChange()
    // Those that wait for others do not count: they are due when one of these is answered, or is given up.
    const callerDues = [...this.#calls.values()].map(({ caller }) => (caller.dueMs > nowMs ? caller.dueMs : Infinity))
    return Math.min(dueMs, this.#tries?.dueMs ?? Infinity, unproven.dueMs, ...callerDues)
  }

  /** The address of a relay that is only called may belong to somebody else. */
  #mayAskSilent({ want: { relay }, caller }: Call, nowMs: number): boolean {
    if (relay.isSilent !== true || caller.dueMs > nowMs) return true
    return this.#silentBudget.take({ address: relay.address, port: RELAY_PORT }, nowMs)
  }

  /**
   * First those that are proven, which lets the relay challenge others, then those that have a port, which are soon of
   * use, and of the others those that have waited for longest.
   */
  #byNeed(): readonly Call[] {
    const rank = ({ caller: { isUnproven, state } }: Call): number => {
      return !isUnproven ? 0 : state.is === 'binding' ? 1 : 2
    }
    return [...this.#calls.values()].sort((a, b) => {
      if (rank(a) !== rank(b)) return rank(a) - rank(b)
      return a.caller.dueMs < b.caller.dueMs ? -1 : a.caller.dueMs > b.caller.dueMs ? 1 : 0
    })
  }

  /** Call this in each round, also in one that fails before apply() and send(). */
  expire(): void {
    this.#tries?.expire()
  }

  /** Devices have other ports for some places, or may have. */
  get hasOtherPorts(): boolean {
    return (this.#tries !== undefined && this.#mayAdopt) || (this.#tries?.lanes() ?? []).length > 0
  }

  /** Links go on while a process takes the place of another one. */
  async #adopt(ports: ReadonlyMap<number, number>, signal: AbortSignal): Promise<void> {
    if (!this.#mayAdopt || this.#tries === undefined) return
    const { nft } = this.#deps
    const found = await nft.elements(NFT_TABLE_REACH, MAP_OTHER_PORTS, signal).catch((error: unknown) => {
      if (isNotFound(error)) return []
      throw error
    })
    for (const other of otherPortsOf(found)) {
      const [lane] = [...ports].find(([, port]) => port === other.device) ?? []
      if (lane !== undefined) this.#tries.adopt(lane, other)
    }
    this.#mayAdopt = false
  }

  /** The kernel has refused to send packets two ways a short time ago, so they go one way. */
  get isOneWay(): boolean {
    return this.#deps.clock.monotonic() < this.#oneWayUntilMs
  }

  /** What the relays show of the NAT in front of this node. */
  mapping(): NatMapping {
    return observedMapping(
      [...this.#calls.values()].flatMap(({ want, caller: { state } }) => {
        if (state.is !== 'bound') return []
        return [{ lane: want.remoteLane, relay: want.relay.address, seen: state.seen }]
      }),
    )
  }

  /** The addresses at which relays see this node, sorted. */
  seen(): readonly string[] {
    const addresses = [...this.#calls.values()].flatMap(({ caller: { state } }) =>
      state.is === 'bound' ? [formatAddress(state.seen.address)] : [],
    )
    return [...new Set(addresses)].sort()
  }

  /** Where far ends can be called without a relay, by linkKey(). */
  punched(): ReadonlyMap<string, PunchedPlace> {
    return new Map(
      [...this.#punches.values()].flatMap(({ key, punch: { place } }) =>
        place === undefined ? [] : [[key, place] as const],
      ),
    )
  }

  /** Why packets of the link go through a relay. */
  whyRelayed(key: string): WhyRelayed {
    if ([...this.#calls.values()].some(({ want }) => want.key === key && want.isTransit === true)) return 'topology'
    const one = [...this.#punches.values()].find((punch) => punch.key === key)
    if (one === undefined) return 'searching'
    if (isHopeless(this.#factsOf(one, this.mapping()))) return 'bothDependent'
    return one.punch.hasFailed ? 'unanswered' : 'searching'
  }

  /** The link does not work at the place that punched() gives. */
  lost(key: string): void {
    const nowMs = this.#deps.clock.monotonic()
    for (const one of this.#punches.values()) if (one.key === key) one.punch.lost(nowMs)
  }

  /** Where packets get to far ends, by linkKey(), in the order in which the bindings were wanted. */
  places(): ReadonlyMap<string, readonly RelayPlace[]> {
    const places = new Map<string, RelayPlace[]>()
    for (const { want, caller, sharedSinceMs } of this.#calls.values()) {
      const { state } = caller
      if (state.is !== 'bound' || state.far === undefined) continue
      const failed = this.#isUseless(callName(want.key, want.relay)) ? ({ failed: true } as const) : {}
      const since = sharedSinceMs === undefined ? {} : { sinceMs: sharedSinceMs }
      const { wasThere: farWasThere } = state.far
      const trip = want.roundTripMs === undefined ? {} : { roundTripMs: want.roundTripMs }
      const place = { cluster: want.relay.cluster, at: state.at, farWasThere, ...failed, ...since, ...trip }
      places.set(want.key, [...(places.get(want.key) ?? []), place])
    }
    return places
  }

  /** Relays that have not answered yet, and are asked for less than idleMs(), by linkKey(). */
  asked(): ReadonlyMap<string, readonly Address[]> {
    const nowMs = this.#deps.clock.monotonic()
    const asked = [...this.#calls.values()].filter(({ want, caller: { state }, idleSinceMs = nowMs }) => {
      return (state.is === 'asking' || state.is === 'binding') && nowMs - idleSinceMs < idleMs(want)
    })
    const byLink = Map.groupBy(asked, ({ want }) => want.key)
    return new Map([...byLink].map(([key, calls]) => [key, calls.map(({ want }) => want.relay.address)]))
  }

  /** What relays answer, by linkKey(). */
  trips(): ReadonlyMap<string, readonly RelayTrip[]> {
    const calls = [...this.#calls.values()]
    const byLink = Map.groupBy(calls, ({ want }) => want.key)
    return new Map([...byLink].map(([key, ofLink]) => [key, ofLink.map(tripOf)]))
  }

  /** How much the relay has helped the link, by linkKey(). */
  worth(key: string, relay: UsableRelay): RelayWorth {
    const nowMs = this.#deps.clock.monotonic()
    const name = callName(key, relay)
    if (this.#isUseless(name)) return 'useless'
    for (const { want, caller, idleSinceMs = nowMs } of this.#calls.values()) {
      if (want.key !== key || callName(key, want.relay) !== name) continue
      if (nowMs - idleSinceMs >= idleMs(want)) return isBound(caller) ? 'lonely' : 'useless'
    }
    return 'good'
  }

  /** Whether the relay has answered a question at this address, for whichever link. */
  hasAnswered({ identity, address }: UsableRelay): boolean {
    return [...this.#calls.values()].some(({ want: { relay }, caller: { answers } }) => {
      return answers > 0 && relay.identity === identity && compareAddresses(relay.address, address) === 0
    })
  }

  /** Takes a callName(). */
  #isUseless(name: string): boolean {
    return this.#deps.clock.monotonic() < (this.#useless.get(name) ?? -Infinity)
  }

  /** Relays that refuse this gateway, each with its reasons, sorted. */
  refusals(): readonly string[] {
    return [...new Set([...this.refusalsOfLinks().values()].flat())].sort()
  }

  /** The same for each link that a relay refuses, by linkKey(). */
  refusalsOfLinks(): ReadonlyMap<string, readonly string[]> {
    const refusals = new Map<string, string[]>()
    for (const { want, caller } of this.#calls.values()) {
      if (caller.state.is !== 'refused') continue
      refusals.set(want.key, [...(refusals.get(want.key) ?? []), `${want.relay.cluster}: ${caller.state.why}`].sort())
    }
    return refusals
  }

  /**
   * Packets of the link got no answer at this place, although both ends are bound there. All relays of the link are asked
   * soon: a NAT that gives this node another port cuts the link off from all of them.
   */
  failed(key: string, at: AddressPort): void {
    const nowMs = this.#deps.clock.monotonic()
    const ofLink = [...this.#calls.values()].filter(({ want }) => want.key === key)
    const here = ofLink.filter(({ caller: { state } }) => state.is === 'bound' && sameAddressPort(state.at, at))
    for (const { want } of here) this.#useless.set(callName(key, want.relay), nowMs + USELESS_RELAY_MS)
    if (here.length > 0) for (const { caller } of ofLink) caller.renew(nowMs)
  }

  /** These links, by linkKey(), answer no probes, so far for a moment only. Their relays are asked: see failed(). */
  suspected(keys: ReadonlySet<string>): void {
    const nowMs = this.#deps.clock.monotonic()
    for (const { want, caller } of this.#calls.values()) if (keys.has(want.key)) caller.renew(nowMs)
  }

  close(): void {
    this.#tries?.close()
    for (const socket of this.#sockets.values()) socket.close()
    this.#sockets.clear()
  }

  #look(call: Call, nowMs: number): void {
    const { state } = call.caller
    const isOfUse = state.is === 'bound' && state.far !== undefined
    call.sharedSinceMs = isOfUse ? (call.sharedSinceMs ?? nowMs) : undefined
    if (isOfUse) call.idleSinceMs = undefined
    else if (call.caller.hasAsked) call.idleSinceMs ??= nowMs
    else call.idleSinceMs = this.#silentSince(call.want.relay, nowMs)
  }

  /**
   * One that has to wait for its first question says nothing of the relay, so the others do: since when it has answered
   * none of theirs. Undefined: for less than IDLE_RELAY_MS.
   */
  #silentSince({ identity }: UsableRelay, nowMs: number): number | undefined {
    const sinceMs = this.#silentMs.get(identity) ?? nowMs
    return nowMs - sinceMs < IDLE_RELAY_MS ? undefined : sinceMs
  }

  /** One for each link with a binding, whatever its relays are, and one for each over port 443. */
  #keepPunches(own: OwnEnd | undefined, webLinks: readonly ProbedLink[]): void {
    const punches = new Map<string, LinkPunch>()
    if (own !== undefined) {
      const since = new Map(webLinks.map(({ key, sinceMs }) => [key, sinceMs]))
      const bound = [...this.#calls.values()].flatMap(({ want }) => (want.isTransit === true ? [] : [want]))
      for (const link of [...bound, ...webLinks]) {
        const [from, to] = [endId(own.clusterset, own.identity), endId(own.clusterset, link.identity)]
        const name = [link.key, from, to].join('|')
        const known = punches.get(name) ?? this.#punches.get(name) ?? this.#newPunch(link, { from, to }, own, since)
        if (known === undefined) continue
        known.sinceMs = since.get(link.key)
        punches.set(name, known)
      }
    }
    this.#punches = punches
  }

  #newPunch(
    want: Pick<ProbedLink, 'key' | 'remoteLane' | 'identity'>,
    ends: { readonly from: string; readonly to: string },
    own: OwnEnd,
    since: ReadonlyMap<string, number>,
  ): LinkPunch | undefined {
    const secret = own.agree(want.identity)
    if (secret === undefined) return undefined
    const key = probeKey({ secret, clusterset: own.clusterset, identities: [own.identity, want.identity] })
    const mayProbe = (at: AddressPort): boolean => this.#mayProbe(at)
    const init = { own: ends.from, far: ends.to, key, budget: this.#budget, mayProbe }
    const sinceMs = since.get(want.key)
    const punch = new Punch({ ...init, ...(sinceMs === undefined ? {} : { provesMs: WEB_PROVES_MS }) })
    return { key: want.key, remoteLane: want.remoteLane, ...ends, probeKey: key, punch, sinceMs }
  }

  #factsOf({ key, from, to, sinceMs }: LinkPunch, own: NatMapping): Parameters<Punch['know']>[0] {
    const seen = (this.#byEnds.get(endsName({ from, to })) ?? []).flatMap(({ want, caller: { state } }) => {
      return want.key === key && state.is === 'bound' && state.far !== undefined ? [state.far] : []
    })
    const seenAt = seen.map(({ at }) => at)
    const places = placesToTry({ led: this.#mapped.get(key), seen: seenAt, stated: this.#places.get(key) ?? [] })
    const far = seen.find(({ mapping }) => mapping !== 'unknown')?.mapping ?? 'unknown'
    // Both ends know the same bindings, in whatever order they made them.
    const known = seen.flatMap((one) => (one.sharedSinceMs === undefined ? [] : [one.sharedSinceMs]))
    const sharedSinceMs = known.length === 0 ? sinceMs : Math.min(...known)
    return { places, own, far, sharedSinceMs, isMapped: this.#mapped.has(key) }
  }

  #triedLink(one: LinkPunch, own: NatMapping): TriedLink {
    const { key, remoteLane, from, to, punch } = one
    const { far, isMapped } = this.#factsOf(one, own)
    const role = isMapped === true ? undefined : portRole({ own, far })
    const ways = (this.#byEnds.get(endsName(one)) ?? []).flatMap(({ want, caller: { state } }): RelayedWay[] => {
      if (want.key !== key || state.is !== 'bound' || state.far === undefined) return []
      if (!this.#isSeenByOthers(state.seen, want.relay)) return []
      return [{ at: state.at, seen: state.seen, far: state.far.at }]
    })
    return { name: linkName(one), remoteLane, from, to, key: one.probeKey, punch, role, ways }
  }

  /** The far end sends many packets where this end says that it is, so this end has that from two members. */
  #isSeenByOthers({ address }: AddressPort, { cluster }: UsableRelay): boolean {
    return [...this.#calls.values()].some(({ want: { relay }, caller: { state } }) => {
      return relay.cluster !== cluster && state.is === 'bound' && compareAddresses(state.seen.address, address) === 0
    })
  }

  #sendPackets(lane: number, packets: readonly PunchPacket[]): void {
    for (const { bytes, to } of packets) this.#sockets.get(lane)?.send(bytes, formatAddress(to.address), to.port)
  }

  #keepSockets(lanes: ReadonlySet<number>): void {
    for (const [lane, socket] of this.#sockets) {
      if (lanes.has(lane)) continue
      socket.close()
      this.#sockets.delete(lane)
    }
    const { clock, openSocket, onError, onDue } = this.#deps
    for (const lane of lanes) {
      if (this.#sockets.has(lane)) continue
      const socket = openSocket('0.0.0.0', RELAY_CALL_PORT + lane, {
        onReady: () => {
          const nowMs = clock.monotonic()
          for (const { want, caller } of this.#calls.values()) if (want.remoteLane === lane) caller.notSent(nowMs)
          onDue()
        },
        onMessage: (bytes, from) => this.#take(lane, bytes, from),
        onError: (error) => {
          // The next round opens it again.
          if (this.#sockets.get(lane) === socket) this.#sockets.delete(lane)
          onError(error)
        },
      })
      this.#sockets.set(lane, socket)
    }
  }

  #take(lane: number, bytes: Buffer, from: { readonly address: string; readonly port: number }): void {
    if (this.#takeProbe(lane, bytes, from)) return
    const named = namedQuestion(bytes)
    const calls = named === undefined ? [] : (this.#byEnds.get(endsName(named)) ?? [])
    if (calls.length === 0) return
    const nowMs = this.#deps.clock.monotonic()
    const at = { address: parseAddress(from.address), port: from.port }
    let [isChanged, isDue] = [false, false]
    for (const call of calls) {
      if (call.want.remoteLane !== lane) continue
      const { dueMs, answers, state: before } = call.caller
      if (call.caller.take(bytes, at, nowMs)) isChanged = true
      if (hasMoved(before, call.caller.state)) this.#forgive(callName(call.want.key, call.want.relay), nowMs)
      if (call.caller.answers !== answers) {
        this.#silentMs.delete(call.want.relay.identity)
        this.#silentBudget.answered(at)
      }
      isDue ||= call.caller.dueMs !== dueMs
      this.#look(call, nowMs)
    }
    if (isChanged) this.#deps.onChange()
    if (isDue) this.#deps.onDue()
  }

  /**
   * The relay was of no use because a NAT had given this end another place. One that says so again and again stays
   * useless, or else it would keep a link for which it does nothing from all other relays. Takes a callName().
   */
  #forgive(name: string, nowMs: number): void {
    if (!this.#isUseless(name)) return
    const recent = (this.#forgiven.get(name) ?? []).filter((ms) => nowMs - ms < FORGIVEN_MS)
    if (recent.length >= MOST_FORGIVEN) return
    this.#forgiven.set(name, [...recent, nowMs])
    this.#useless.delete(name)
  }

  /** Returns whether the octets have the form of a probe. */
  #takeProbe(lane: number, bytes: Buffer, from: { readonly address: string; readonly port: number }): boolean {
    const named = namedProbe(bytes)
    if (named === undefined) return false
    const { clock, onChange, onDue } = this.#deps
    const at = { address: parseAddress(from.address), port: from.port }
    const now = { nowMs: clock.monotonic(), wallMs: clock.now() }
    for (const one of this.#punches.values()) {
      const isOf = (named.from === one.from && named.to === one.to) || (named.from === one.to && named.to === one.from)
      if (!isOf || one.remoteLane !== lane) continue
      if (named.isRelayed) {
        const replies = this.#tries?.take(linkName(one), bytes, at) ?? []
        for (const reply of replies) this.#sendPackets(lane, [reply])
        continue
      }
      const dueMs = one.punch.dueMs(now.nowMs)
      const { packets, isChanged } = one.punch.take(bytes, at, now)
      this.#sendPackets(lane, packets)
      // An answer is sent to an authentic probe alone.
      if (packets.length > 0) this.#tries?.heard(linkName(one), at)
      if (isChanged) onChange()
      if (one.punch.dueMs(now.nowMs) !== dueMs) onDue()
    }
    return true
  }

  /** If the kernel refuses the table, but not without second ways, those are left out for some time. */
  async #applyWays(planned: PlannedPorts, signal: AbortSignal): Promise<void> {
    try {
      await this.#applyTable(planned, signal)
    } catch (error) {
      if (signal.aborted || planned.twoWays.length === 0) throw error
      await this.#applyTable({ ...planned, twoWays: [] }, signal)
      if (this.#oneWayUntilMs === -Infinity) this.#deps.onOneWay?.(error)
      this.#oneWayUntilMs = this.#deps.clock.monotonic() + ONE_WAY_MS
    }
  }

  async #applyTable({ shared, others, twoWays }: PlannedPorts, signal: AbortSignal): Promise<void> {
    const { nft, clock } = this.#deps
    if (shared.length === 0) {
      if (this.#hasTable) await removeTable(nft, NFT_TABLE_REACH, signal)
      if (this.#hasTable) this.#table.forget()
      this.#hasTable = false
      return
    }
    this.#hasTable = true
    const statements = planSharedPorts(
      [...shared].sort((a, b) => a.device - b.device),
      [...others].sort((a, b) => a.device - b.device || a.port - b.port),
      twoWays,
    )
    // The table is small, and changes when a device gets its first relayed link or loses its last, or one is in doubt.
    const planned = {
      fixed: formatNft(statements, nft.family),
      replacement: () => statements,
      delta: () => [],
      elements: () => elementsOf(statements),
    }
    const looks = clock.monotonic() - this.#table.lookedAtMs >= VERIFY_MS
    await this.#table.apply(planned, { looks, onSent: () => undefined }, signal)
  }
}

interface PlannedPorts {
  readonly shared: readonly SharedPort[]
  readonly others: readonly OtherPort[]
  readonly twoWays: readonly TwoWays[]
}

/** Counts the questions that relays are going to challenge. */
class UnprovenQuestions {
  readonly #nowMs: number
  /** When each of the open ones is given up, by the relay. */
  readonly #open = new Map<string, number[]>()
  #dueMs = Infinity

  constructor(nowMs: number) {
    this.#nowMs = nowMs
  }

  /** When a question that has to wait may be asked. Infinity: none has to. */
  get dueMs(): number {
    return this.#dueMs
  }

  count(relay: UsableRelay, { unprovenSinceMs }: BindCaller): void {
    const untilMs = (unprovenSinceMs ?? -Infinity) + UNPROVEN_MS
    if (untilMs <= this.#nowMs) return
    this.#open.set(relay.identity, [...(this.#open.get(relay.identity) ?? []), untilMs])
  }

  mayAsk(relay: UsableRelay, { isUnproven, dueMs, unprovenSinceMs }: BindCaller): boolean {
    const open = this.#open.get(relay.identity) ?? []
    // One that is open already and is repeated takes no further place.
    const isOpen = unprovenSinceMs !== undefined && this.#nowMs - unprovenSinceMs < UNPROVEN_MS
    if (!isUnproven || isOpen || open.length < MOST_UNPROVEN) return true
    if (dueMs <= this.#nowMs) this.#dueMs = Math.min(this.#dueMs, ...open)
    return false
  }
}

function tripOf({ want: { relay }, caller: { state, rttMs } }: Call): RelayTrip {
  const asked = { address: relay.address, port: RELAY_PORT }
  return {
    relay: relay.cluster,
    at: state.is === 'bound' ? state.at : asked,
    is: state.is === 'bound' ? 'bound' : state.is === 'refused' ? 'refuses' : 'asking',
    hasFar: state.is === 'bound' && state.far !== undefined,
    ...(state.is === 'bound' ? { seen: state.seen } : {}),
    ...(state.is === 'refused' ? { why: state.why } : {}),
    ...(rttMs === undefined ? {} : { rttMs }),
  }
}

/** How long not both ends of the link are bound until the relay makes room for another one: IDLE_RELAY_MS. */
function idleMs({ roundTripMs }: RelayWant): number {
  return Math.max(IDLE_RELAY_MS, 3 * answerWaitMs(roundTripMs === undefined ? {} : { rttMs: roundTripMs }, 0))
}

function isBound({ state }: BindCaller): boolean {
  return state.is === 'bound'
}

function linkName({ key, from, to }: Pick<LinkPunch, 'key' | 'from' | 'to'>): string {
  return [key, from, to].join('|')
}

function endsName({ from, to }: Pick<Call, 'from' | 'to'>): string {
  return `${from} ${to}`
}

function callName(key: string, { endpoint, identity, address }: UsableRelay): string {
  return [key, endpoint, identity, formatAddress(address)].join('|')
}

/** The relay sees this end elsewhere than before. */
function hasMoved(before: CallerState, now: CallerState): boolean {
  return before.is === 'bound' && now.is === 'bound' && !sameAddressPort(before.seen, now.seen)
}

/** Undefined for a relay with which nothing is agreed. */
function newCall(want: RelayWant, own: OwnEnd | undefined): Call | undefined {
  const secret = own?.agree(want.relay.identity)
  if (own === undefined || secret === undefined) return undefined
  const { clusterset, identity } = own
  const [from, to] = [endId(clusterset, identity), endId(clusterset, want.identity)]
  const caller = new BindCaller({
    ...{ from, to },
    key: bindKey({ secret, clusterset, relay: want.relay.identity, end: identity }),
    relay: { address: want.relay.address, port: RELAY_PORT },
  })
  return { want, caller, from, to, idleSinceMs: undefined, sharedSinceMs: undefined }
}
