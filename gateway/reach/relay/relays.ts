/**
 * The relays of one gateway: those that it asks, for links whose ends cannot be called, and the one that it is if its
 * node offers that. It takes each plan of the lane loop, and gives the next one the addresses at which relays take
 * packets.
 */
import { randomInt } from 'node:crypto'
import { ReconcileLoop, WakeTimer } from '../../../reconcile/reconcile.ts'
import type { OpenProbeSocket } from '../../../kernel/probing/probing.ts'
import { type AddressPort, parseAddress } from '../../../model/addresses/addresses.ts'
import { MEMBERSHIP_NAME, endpointName } from '../../../model/model.ts'
import { RELAYS_ANNOTATION, decodeRelayCosts } from '../../../model/lanes/lanes.ts'
import { transitOf } from '../../../model/schemas/schemas.ts'
import type { ProxyChoice } from '../../../runtime/proxy/proxy.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import { type Agreement, linkKey } from '../../cable/cable.ts'
import {
  type GatewayConfig,
  type GatewayDeps,
  type GatewayLaneConfig,
  type GatewayMetrics,
  type GatewayWorld,
  type RelayPlace,
  healthKey,
  loopDeps,
} from '../../world/world.ts'
import {
  isBehindNat,
  isOwnLaneHidden,
  isPortMapped,
  ownAddresses,
  placeValidator,
  planCandidates,
  seeksRelays,
} from '../plan-candidates.ts'
import { slowness } from '../plan-slowness.ts'
import { natFacts } from './nat-facts.ts'
import { type NatView, planNat } from '../nat/plan-nat.ts'
import type { NatMapping, OwnEnd } from '../frames/bind-frame.ts'
import { type PlannedFarEnd, type PlannedLane, linksOf } from './links-in-use.ts'
import { SUSPECT_ENDS, type SuspectLink, Suspects } from './suspects.ts'
import { OwnRelay } from './own-relay.ts'
import { NatMeasures } from '../nat/nat-watch.ts'
import {
  type LinkInUse,
  MOST_WANTS,
  type RelayWant,
  type UsableRelay,
  planRelayUse,
  relayOf,
  usableRelays,
} from './plan-relay-use.ts'
import { type ProbedLink, RelayCalls, type RelayTrip, type WhyRelayed } from './relay-calls.ts'
import { RelayFlaps, RelayTurns } from './relay-failures.ts'
import { RelayMoves, movingLinks } from './relay-moves.ts'
import { ReturnTries } from './return-tries.ts'
import { StatedCosts, relayTrips } from './stated-costs.ts'
import {
  type WebLink,
  type WebSince,
  type WebUse,
  isWebPlace,
  planWebUse,
  webDueMs,
  webSince,
  webWants,
} from '../web/plan-web-use.ts'
import type { WebRelayView } from '../web/web-relay.ts'
import { WebRelays } from '../web/web-relays.ts'
import type { UsedPlace } from '../punch/port-tries.ts'
import { triesSince } from '../punch/punch.ts'
import { PunchedLinks } from './punched-links.ts'

export interface RelaysInit {
  readonly config: Pick<GatewayConfig, 'node' | 'lanes'>
  readonly openSocket: OpenProbeSocket
  readonly metrics: Pick<GatewayMetrics, 'webDropped' | 'twoWays'>
  /** What probes say of links at present, by healthKey(): GatewayWorld.health is older. */
  readonly health: () => GatewayWorld['health']
  /** The proxy of this network, by the environment: for relays on port 443. */
  readonly proxies: ProxyChoice
  /** known has changed. */
  readonly onChange: () => void
}

/** The first observed candidate of an end to which a router leads calls (planCandidates()). */
function ledPlace({ candidates }: Pick<PlannedFarEnd, 'candidates'>): AddressPort | undefined {
  const led = candidates.find(({ kind }) => kind === 'observed')
  return led === undefined ? undefined : { address: parseAddress(led.address), port: led.port }
}

interface PlannedLanes {
  readonly lanes: readonly PlannedLane[]
  /** The clusters with which this one may have links. */
  readonly clusters: readonly { readonly id: string }[]
}

/** All links, and the bindings that are wanted for them. */
interface ChosenRelays {
  readonly links: readonly LinkInUse[]
  readonly wants: readonly RelayWant[]
}

interface Planned {
  readonly world: GatewayWorld
  readonly links: readonly LinkInUse[]
  readonly wants: readonly RelayWant[]
  /** Links that are to have a way over port 443. */
  readonly webLinks: readonly WebLink[]
  /** Relays that may measure the NAT in front of this node now. Undefined: there is no NAT, as far as is known. */
  readonly measuring: readonly UsableRelay[] | undefined
  /** Where packets of links go: that costs a look at each, and seldom matters. */
  readonly used: () => readonly UsedPlace[]
  /** Ids of the clusters with which this one may have links. */
  readonly accepted: ReadonlySet<string>
  /** Ports of the lane devices, by remote lane. */
  readonly ports: ReadonlyMap<number, number>
}

const ROUNDS = { minMs: 2, resyncMs: 25_000, retryMinMs: 200, retryMaxMs: 5000, pokedRetryMs: 200 }
/** How often round trips to relays, and the own load, are looked at while there is something to state. */
const COSTS_EVERY_MS = 10_000
/** A move that is due is looked at by the next plan, which may be late. */
const MOVE_AGAIN_MS = 200
/** The same while no plan comes: the lane loop cannot read the world, and tries again by itself. */
const UNPLANNED_AGAIN_MS = 2000

export class Relays {
  readonly #deps: GatewayDeps
  readonly #init: RelaysInit
  readonly #calls: RelayCalls
  readonly #web: WebRelays
  readonly #measures: NatMeasures
  #nat: NatView | undefined
  #webUses: ReadonlyMap<string, WebUse> = new Map()
  #webDueMs = Infinity
  /** Links that are up over port 443, or left it a short time ago, by linkKey(). */
  #webSince: ReadonlyMap<string, WebSince> = new Map()
  readonly #relay: OwnRelay
  readonly #tries = new ReturnTries()
  readonly #turns = new RelayTurns()
  readonly #punched = new PunchedLinks()
  readonly #suspects = new Suspects()
  /** Links, by linkKey(), that answered no probes at the last look. */
  #silent: ReadonlySet<string> = new Set()
  readonly #costs = new StatedCosts()
  #stated: readonly string[] = []
  #statedMs = -Infinity
  readonly #moves = new RelayMoves()
  readonly #flaps = new RelayFlaps()
  #moving: ReadonlyMap<string, AddressPort> = new Map()
  /** Where packets of links went when these were up last, by linkKey(). */
  #upAt: ReadonlyMap<string, AddressPort> = new Map()
  readonly #loop: ReconcileLoop
  readonly #wake: WakeTimer
  #planned: Planned | undefined
  /** The plan after which another one was asked for last. */
  #askedAfter: Planned | undefined
  /** Links, by linkKey(), with an end to which a router leads calls, and the place if that is the far end. */
  #mapped: ReadonlyMap<string, AddressPort | undefined> = new Map()
  /** Where far ends say that they can be called, by linkKey(). */
  #places: ReadonlyMap<string, readonly AddressPort[]> = new Map()
  #triesDirect: ReadonlySet<string> = new Set()
  #own: OwnEnd | undefined
  #trouble = ''
  #noted = ''

  constructor(deps: GatewayDeps, init: RelaysInit) {
    this.#deps = deps
    this.#init = init
    const { nft, clock, logger, cable } = deps
    const { openSocket, onChange } = init
    const poke = (): void => this.#loop.poke()
    const onError = (error: unknown): void => this.#failed(error)
    const random = (below: number): number => randomInt(below)
    for (const ended of SUSPECT_ENDS) init.metrics.twoWays.inc({ ended }, 0)
    const onOneWay = (error: unknown): void => {
      const why = messageOf(error)
      logger.info('packets of links in doubt go one way, as the kernel refuses to copy them', { why })
    }
    this.#calls = new RelayCalls({ nft, clock, openSocket, onError, onChange, onDue: poke, onOneWay, random })
    this.#web = new WebRelays({
      ...{ clock, logger, proxies: init.proxies, onChange, onDue: poke },
      onDropped: (count) => init.metrics.webDropped.inc({}, count),
    })
    const mayProbe = (at: AddressPort): boolean => {
      return this.#planned !== undefined && placeValidator(this.#planned.world)(at)
    }
    this.#measures = new NatMeasures({ clock, openSocket, onChange, mayProbe, logger })
    // The next plan states the load.
    this.#relay = new OwnRelay({ nft, clock, logger, cable, openSocket, onStart: onChange, onError })
    this.#wake = new WakeTimer(clock, poke)
    this.#loop = new ReconcileLoop(loopDeps(deps, 'relays'), ROUNDS, (signal) => this.#round(signal))
  }

  /** What the next plan takes from here. */
  get known(): Pick<
    GatewayWorld,
    | ('relayPlaces' | 'relayRefusals' | 'relayMoves' | 'relaysAsked' | 'statedCosts' | 'triesDirect' | 'upAt')
    | ('punched' | 'natLifeSeconds' | 'followsFar')
  > {
    const relayRefusals = this.#calls.refusalsOfLinks()
    const relayPlaces = this.#relayPlaces()
    const punched = this.#calls.punched()
    const relaysAsked = this.#calls.asked()
    const followsFar = new Set([...this.#suspects.recent(this.#deps.clock.monotonic()), ...this.#punched.settled])
    const { lifeSeconds } = this.#measures
    return {
      ...(followsFar.size === 0 ? {} : { followsFar }),
      ...(relayPlaces.size === 0 ? {} : { relayPlaces, upAt: this.#upAt }),
      ...(relayRefusals.size === 0 ? {} : { relayRefusals }),
      ...(this.#triesDirect.size === 0 ? {} : { triesDirect: this.#triesDirect }),
      ...(punched.size === 0 ? {} : { punched }),
      ...(this.#moving.size === 0 ? {} : { relayMoves: this.#moving }),
      ...(relaysAsked.size === 0 ? {} : { relaysAsked }),
      ...(this.#stated.length === 0 ? {} : { statedCosts: this.#stated }),
      ...(lifeSeconds === undefined ? {} : { natLifeSeconds: lifeSeconds }),
    }
  }

  #relayPlaces(): ReadonlyMap<string, readonly RelayPlace[]> {
    const places = placesOf(this.#calls.places(), this.#web.places())
    const nowMs = this.#deps.clock.monotonic()
    return new Map([...places].map(([key, ofLink]) => [key, this.#flaps.sorted(key, ofLink, nowMs)]))
  }

  /** What relays show of the NAT in front of this node. */
  get mapping(): NatMapping {
    return this.#calls.mapping()
  }

  /** Of what kind the NAT in front of this node is. Undefined before the first plan. */
  get nat(): NatView | undefined {
    return this.#nat
  }

  /** The addresses at which relays see this node. */
  get seen(): readonly string[] {
    return this.#calls.seen()
  }

  /** Why packets of a relayed link go through the relay, by linkKey(). */
  whyRelayed(key: string): WhyRelayed {
    return this.#calls.whyRelayed(key)
  }

  /** What relays of members answer, by linkKey(). */
  trips(): ReadonlyMap<string, readonly RelayTrip[]> {
    return this.#calls.trips()
  }

  /** Where far ends can be called without a relay, by linkKey(), proven by probes. */
  punched(): ReadonlyMap<string, AddressPort> {
    return this.#calls.punched()
  }

  /** The relays on port 443. */
  get web(): readonly WebRelayView[] {
    return this.#web.views()
  }

  /** Takes the plan of a round, and the world from which it was made. */
  planned(world: GatewayWorld, { lanes, clusters }: PlannedLanes): void {
    const [own] = world.lanes
    if (own === undefined) return
    const ports = new Map(lanes.map(({ remoteLane, port }) => [remoteLane, port]))
    const accepted = new Set(clusters.map(({ id }) => id))
    // Without a relay there is nothing to choose, however many links there are.
    const isOffered = this.#noticed() !== undefined
    const hasRelay = isOffered || lanes.some(({ links }) => links.some(({ relays }) => relays === true))
    this.#stateCosts(world, own, hasRelay ? lanes : [])
    const { links, wants } = hasRelay ? this.#choose(world, own, lanes) : { links: [], wants: [] }
    const inUse = hasRelay || !isBehindNat(world) ? links : lanes.flatMap((lane) => linksOf(world, lane))
    const { seen, mapping } = this
    const { sights, lifeSeconds } = this.#measures
    const facts = natFacts(world, own, { lanes, links, inUse, seen, mapping, sights, lifeSeconds })
    this.#nat = planNat(facts, this.#nat)
    const { kind, outside } = this.#nat
    const measuring = outside.length > 0 ? usableRelays(links) : kind === 'public' ? undefined : []
    this.#webDueMs = Infinity
    const webLinks = isOffered ? this.#chooseWeb(world, lanes) : []
    const used = (): readonly UsedPlace[] => lanes.flatMap((lane) => usedPlaces(world, lane))
    this.#planned = { world, accepted, ports, links, wants, webLinks, measuring, used }
    if (!hasRelay) {
      this.#triesDirect = new Set()
      this.#upAt = new Map()
      this.#flaps.look([], world.monotonicMs)
      // What they remember of a place would count against it when a relay is there again.
      this.#punched.look([], new Map(), world.monotonicMs)
      this.#turns.look([], world.monotonicMs)
      // A move that is due would otherwise ask for one plan after the other.
      this.#moving = this.#moves.look([], world.monotonicMs)
    }
    this.#loop.poke()
  }

  #stateCosts(world: GatewayWorld, own: GatewayLaneConfig, lanes: readonly PlannedLane[]): void {
    const load = this.#relay.load()
    // Relays carry transit links whatever calls this node.
    const isTransit = lanes.some(({ links }) => links.some(({ via }) => via !== undefined))
    const isAsking = lanes.length > 0 && (isTransit || isSeeking(world, own))
    const { rttMs, asleep } = relayTrips(world, isAsking ? lanes : [])
    if (this.#statedMs === -Infinity) {
      // What an earlier run of the process stated holds until something else has been measured.
      const before = this.#deps.api.cache('Endpoint').get(endpointName(world.own.spec.id, world.node, own.lane))
      if (before !== undefined) this.#costs.restore(decodeRelayCosts(before.spec.capabilities), world.monotonicMs)
    }
    const stated = this.#costs.look({ rttMs, asleep, ...(load === undefined ? {} : { load }) }, world.monotonicMs)
    const isIdle = rttMs.size === 0 && load === undefined && stated.length === 0
    this.#statedMs = isIdle ? Infinity : world.monotonicMs
    const isSame = stated.length === this.#stated.length && stated.every((one, i) => one === this.#stated[i])
    if (isSame) return
    this.#stated = stated
    this.#init.onChange()
  }

  /** Takes the links with their present places. Returns those that move from one relay to another one now. */
  #lookAtMoves(links: readonly LinkInUse[], ownEndpoint: string, nowMs: number): void {
    const own = decodeRelayCosts(this.#stated)
    const suspected = this.#suspects.recent(this.#deps.clock.monotonic())
    const moving = movingLinks({ links, places: this.#relayPlaces(), own, ownEndpoint, suspected })
    const before = this.#moving
    this.#moving = this.#moves.look(moving, nowMs)
    const { failed } = this.#moves
    for (const { key, at } of failed) this.#calls.failed(key, at)
    if (failed.length > 0 || [...this.#moving.keys()].some((key) => !before.has(key))) this.#init.onChange()
  }

  #choose(world: GatewayWorld, own: GatewayLaneConfig, lanes: readonly PlannedLane[]): ChosenRelays {
    const hidden = isSeeking(world, own)
    const ownEndpoint = endpointName(world.own.spec.id, world.node, own.lane)
    const transit = transitOf(world)
    const links = lanes.flatMap((lane) => linksOf(world, lane))
    const punched = this.#calls.punched()
    const sentElsewhere = new Set([...this.#triesDirect, ...this.#moving.keys(), ...punched.keys()])
    this.#flaps.look(links, world.monotonicMs, sentElsewhere)
    const relays = links.filter((link) => link.relays === true)
    const candidatesOf = new Map(
      lanes.flatMap((lane) => lane.links.map((link) => [linkKey(link), link.candidates] as const)),
    )
    const returning = links.map(({ key, at, state, asleep: isAsleep = false, hidden: isFarHidden }) => {
      const isRelayed = relayOf(at, relays) !== undefined || isWebPlace(at)
      const isCallable = !(hidden && isFarHidden)
      return {
        ...{ key, isRelayed, isUp: state === 'up', isAsleep, isCallable },
        // Where nothing can be called from outside, and over port 443, probes try all places, and cost the link nothing
        // (punch.ts).
        hasPlaces: isCallable && !isWebPlace(at) && (candidatesOf.get(key) ?? []).length > 0,
        where: isRelayed ? JSON.stringify([hidden, candidatesOf.get(key)]) : '',
      }
    })
    const slow = slownessOf(world, links, this.#relayPlaces())
    const suspected = this.#suspects.recent(this.#deps.clock.monotonic())
    for (const key of this.#punched.look(links, punched, world.monotonicMs, { slow, suspected })) this.#calls.lost(key)
    this.#upAt = new Map(
      links.flatMap(({ key, state, at }) => {
        // During a try the address is not that at which the link is up.
        // From a place between two NATs a link goes back to its relay at once.
        if (punched.has(key)) return []
        const known = state !== 'up' || this.#triesDirect.has(key) ? this.#upAt.get(key) : at
        return known === undefined ? [] : [[key, known] as const]
      }),
    )
    const before = this.#triesDirect
    this.#triesDirect = this.#tries.look(returning, world.monotonicMs)
    for (const { key, at } of this.#turns.look(links, world.monotonicMs, slow)) this.#calls.failed(key, at)
    const relayed = returning.filter(({ isRelayed }) => isRelayed).map(({ key }) => key)
    const wants = planRelayUse({
      ...{ links, ownEndpoint, hidden },
      ownCosts: decodeRelayCosts(this.#stated),
      keeps: new Set([...relayed, ...punched.keys(), ...this.#tries.recent(world.monotonicMs)]),
      worth: (key, relay) => this.#calls.worth(key, relay),
      hasAnswered: (relay) => this.#calls.hasAnswered(relay),
      mayRelay: (relay, far) => transit.mayRelay(relay, [world.own.spec.id, far]),
    })
    this.#lookAtMoves(links, ownEndpoint, world.monotonicMs)
    const isTried = [...this.#triesDirect].some((key) => !before.has(key))
    if (isTried || this.#calls.punched().size < punched.size) this.#init.onChange()
    const isOwnMapped = isPortMapped(world, own)
    const ends = lanes.flatMap((lane) => lane.links)
    this.#mapped = new Map(
      ends
        .filter(({ portMapped = isOwnMapped }) => portMapped)
        .map((link) => [linkKey(link), link.portMapped === true ? ledPlace(link) : undefined]),
    )
    this.#places = new Map(
      [...candidatesOf].map(([key, candidates]) => [
        key,
        candidates.map(({ address, port }) => ({ address: parseAddress(address), port })),
      ]),
    )
    return { links, wants }
  }

  /** What the agent says of relays on port 443. Undefined: nothing. */
  #noticed(): string | undefined {
    return this.#deps.api.cache('Membership').get(MEMBERSHIP_NAME)?.metadata.annotations?.[RELAYS_ANNOTATION]
  }

  #chooseWeb(world: GatewayWorld, lanes: readonly PlannedLane[]): readonly WebLink[] {
    // A relay on port 443 belongs to no member, so the topology cannot name it.
    const served = lanes.flatMap((lane) => linksOf(world, { ...lane, successors: [] }))
    const isHidden = world.lanes[0] !== undefined && isSeeking(world, world.lanes[0])
    const links = served.flatMap(({ via, ...link }) => {
      return via === undefined ? [{ ...link, isCallable: !(isHidden && link.hidden) }] : []
    })
    const nowMs = world.monotonicMs
    this.#webUses = planWebUse(links, this.#webUses, nowMs)
    this.#webDueMs = webDueMs(this.#webUses, nowMs)
    this.#webSince = new Map(
      links.flatMap((link) => {
        const since = webSince(link, this.#webSince.get(link.key), nowMs)
        return since === undefined || !this.#webUses.has(link.key) ? [] : [[link.key, since] as const]
      }),
    )
    return webWants(links, this.#webUses, nowMs)
  }

  /** Links that are over port 443 now, or were a short time ago: their proven places are to stay. */
  #probedWebLinks({ webLinks }: Planned): readonly ProbedLink[] {
    const { clock } = this.#deps
    const [nowMs, wallMs] = [clock.monotonic(), clock.now()]
    return webLinks.flatMap(({ key, remoteLane, identity }) => {
      const { sinceMs } = this.#webSince.get(key) ?? {}
      return sinceMs === undefined ? [] : [{ key, remoteLane, identity, sinceMs: triesSince(sinceMs, nowMs, wallMs) }]
    })
  }

  /** A link became suspect, or no longer is. */
  suspectsChanged(): void {
    this.#loop.poke()
  }

  /** Looks which links are in doubt now. A link that is tried elsewhere must show whether that place works alone. */
  #lookAtSuspects({ links, ports }: Planned): void {
    const { metrics, health } = this.#init
    const [known, places, punched] = [health(), this.#relayPlaces(), this.#calls.punched()]
    const isSilent = (one: LinkInUse): boolean => known.get(healthKey(one.remoteLane, one.cluster))?.suspected === true
    const silent = new Set(links.filter(isSilent).map(({ key }) => key))
    // A NAT that gave this node another port cuts a link off from all its relays, too. It cuts off many links at once.
    const newly = new Set([...silent].filter((key) => !this.#silent.has(key)))
    if (newly.size > 0) this.#calls.suspected(newly)
    this.#silent = silent
    // A second way that the kernel does not take is none.
    const usable = this.#calls.isOneWay ? [] : links
    const sure = usable.filter(({ key }) => !this.#triesDirect.has(key) && !this.#moving.has(key))
    const suspected = sure.flatMap(({ key, remoteLane, cluster, at }): SuspectLink[] => {
      const view = known.get(healthKey(remoteLane, cluster))
      const device = ports.get(remoteLane)
      if (view === undefined || device === undefined) return []
      const { state, suspected: isSuspect = false } = view
      return [{ key, device, state, isSuspect, at, punched: punched.get(key), places: places.get(key) ?? [] }]
    })
    for (const ended of this.#suspects.look(suspected, this.#deps.clock.monotonic())) metrics.twoWays.inc({ ended })
  }

  /** Asks, and serves, until the signal. Bindings end by themselves, and tables stay: leaveNode() removes them. */
  async run(signal: AbortSignal): Promise<void> {
    try {
      await this.#loop.run(signal)
    } finally {
      this.#wake.close()
      this.#calls.close()
      this.#measures.close()
      this.#web.close()
      await this.#relay.stop()
    }
  }

  async #round(signal: AbortSignal): Promise<void> {
    if (this.#planned === undefined) return
    const { world, wants, webLinks, ports, accepted, measuring, used: usedOf } = this.#planned
    this.#calls.expire()
    this.#lookAtSuspects(this.#planned)
    await this.#relay.apply(world, accepted, () => this.#ownEnd(world), signal)
    const asks = wants.length > 0 || webLinks.length > 0
    const own = asks || (measuring ?? []).length > 0 ? await this.#ownEnd(world) : undefined
    const seen = this.#calls.seen()
    this.#measures.look(measuring && { own, relays: measuring, seen, ownAddresses: ownAddresses(world) })
    this.#web.apply({ links: webLinks, own: asks ? own : undefined, notice: this.#noticed(), ports })
    const mayProbe = placeValidator(world)
    const probed = this.#probedWebLinks(this.#planned)
    const used = this.#calls.hasOtherPorts ? usedOf() : []
    const asking = wants.length > 0 || probed.length > 0 ? own : undefined
    const { ways: twoWays } = this.#suspects
    const ofLinks = { places: this.#places, mapped: this.#mapped, webLinks: probed, used, twoWays }
    const wanted = { own: asking, ports, mayProbe, ...ofLinks }
    await this.#calls.apply(wants, wanted, signal)
    const dueMs = this.#calls.send()
    this.#note(wants.length, this.#calls.refusals())
    const nextMs = Math.min(dueMs, this.#suspects.dueMs, this.#lookAgain())
    if (nextMs !== Infinity) this.#wake.at(nextMs)
  }

  /** Asks for a plan if a move or a statement is due. Returns when to look again, on the monotonic clock. */
  #lookAgain(): number {
    const nowMs = this.#deps.clock.monotonic()
    const dueMs = Math.min(this.#moves.dueMs, this.#statedMs + COSTS_EVERY_MS, this.#webDueMs)
    if (nowMs < dueMs) return dueMs
    if (this.#askedAfter === this.#planned) return nowMs + UNPLANNED_AGAIN_MS
    this.#askedAfter = this.#planned
    this.#init.onChange()
    return nowMs + MOVE_AGAIN_MS
  }

  /** Undefined without a key, or before this cluster is a member. */
  async #ownEnd({ laneStates, lanes: [lane] }: GatewayWorld): Promise<OwnEnd | undefined> {
    const { api, cable } = this.#deps
    const clusterset = api.cache('Membership').get(MEMBERSHIP_NAME)?.spec.clusterset
    const identity = [...laneStates.values()][0]?.identity
    if (clusterset === undefined || identity === undefined || lane === undefined) return undefined
    if (this.#own?.identity === identity && this.#own.clusterset === clusterset) return this.#own
    const agree: Agreement | undefined = await cable.agreement?.(lane.lane, identity)
    this.#own = agree === undefined ? undefined : { clusterset, identity, agree }
    return this.#own
  }

  /** Says once what this gateway does not get from relays. */
  #note(wants: number, refusals: readonly string[]): void {
    const most = wants < MOST_WANTS ? [] : [`it asks for at most ${MOST_WANTS} bindings`]
    const why = [...most, ...refusals].join('; ')
    if (why === this.#noted) return
    this.#noted = why
    if (why === '') this.#deps.logger.info('no relay refuses this gateway any more')
    else this.#deps.logger.info('relays do not serve all links of this gateway', { why })
  }

  /** The loops try again; a failure that stays is logged once. */
  #failed(error: unknown): void {
    const why = messageOf(error)
    if (why === this.#trouble) return
    this.#trouble = why
    this.#deps.logger.warn('a relay does not work', { reason: 'RoundFailed', why })
  }
}

/** Relays of members come first: what they carry needs no process. */
function placesOf(
  members: ReadonlyMap<string, readonly RelayPlace[]>,
  web: ReadonlyMap<string, readonly RelayPlace[]>,
): ReadonlyMap<string, readonly RelayPlace[]> {
  if (web.size === 0) return members
  const keys = new Set([...members.keys(), ...web.keys()])
  return new Map([...keys].map((key) => [key, [...(members.get(key) ?? []), ...(web.get(key) ?? [])]]))
}

/** Returns slowness() by linkKey(). */
function slownessOf(
  { health }: Pick<GatewayWorld, 'health'>,
  links: readonly LinkInUse[],
  places: ReadonlyMap<string, readonly RelayPlace[]>,
): (key: string) => number {
  const known = new Map(
    links.map(({ key, remoteLane, cluster }) => {
      const trips = { relays: places.get(key) ?? [], health: health.get(healthKey(remoteLane, cluster)) }
      return [key, slowness(trips)] as const
    }),
  )
  return (key) => known.get(key) ?? 1
}

function usedPlaces(world: GatewayWorld, lane: PlannedLane): UsedPlace[] {
  return linksOf(world, lane).flatMap(({ remoteLane, at }) => (at === undefined ? [] : [{ remoteLane, at }]))
}

function isSeeking(world: GatewayWorld, own: GatewayLaneConfig): boolean {
  return seeksRelays({ hidden: isOwnLaneHidden(world, own), candidates: planCandidates(world, own) })
}
