/**
 * The relays of one gateway: those that it asks, for links whose ends cannot be called, and the one that it is if its
 * node offers that. It takes each plan of the lane loop, and gives the next one the addresses at which relays take
 * packets.
 */
import { randomBytes, randomInt } from 'node:crypto'
import { ReconcileLoop, WakeTimer } from '../../../reconcile/reconcile.ts'
import { removeTable } from '../../../kernel/nft/nft.ts'
import type { OpenProbeSocket } from '../../../kernel/probing/probing.ts'
import {
  type Address,
  type AddressPort,
  formatAddress,
  ipv4Among,
  parseAddress,
  sameAddressPort,
} from '../../../model/addresses/addresses.ts'
import {
  type EndpointCandidate,
  MEMBERSHIP_NAME,
  NFT_TABLE_RELAY,
  RELAY_LAST_PORT,
  RELAY_PORT,
  endpointName,
} from '../../../model/model.ts'
import {
  RELAYS_ANNOTATION,
  type RelayCosts,
  UDP_SETTLES_MS,
  type UdpLink,
  decodeRelayCosts,
  relayMark,
} from '../../../model/lanes/lanes.ts'
import { transitOf } from '../../../model/schemas/schemas.ts'
import type { ProxyChoice } from '../../../runtime/proxy/proxy.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import { type Agreement, type CallChoice, type FarEnd, type LinkState, linkKey } from '../../cable/cable.ts'
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
  ownObservedAddress,
  placeValidator,
  planCandidates,
  seeksRelays,
} from '../plan-candidates.ts'
import { slowness } from '../plan-slowness.ts'
import { type NatFacts, type NatView, planNat } from '../plan-nat.ts'
import type { NatMapping } from './bind-frame.ts'
import { DEFAULT_LIMITS } from './bindings.ts'
import { SUSPECT_ENDS, type SuspectLink, Suspects } from './suspects.ts'
import { planRelayEnds } from './plan-relay-ends.ts'
import { NatMeasures } from './nat-watch.ts'
import {
  type LinkInUse,
  MOST_WANTS,
  NEW_LINK_MS,
  type RelayWant,
  type UsableRelay,
  isRelayPlace,
  planRelayUse,
  relayOf,
  usableRelays,
} from './plan-relay-use.ts'
import { type OwnEnd, type ProbedLink, RelayCalls, type RelayTrip, type WhyRelayed } from './relay-calls.ts'
import { RelayFlaps } from './relay-flaps.ts'
import { RelayMoves, movingLinks } from './relay-moves.ts'
import { StatedCosts } from './stated-costs.ts'
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
import { type WebRelayView, WebRelays } from '../web/web-relays.ts'
import type { UsedPlace } from './port-tries.ts'
import { triesSince } from './punch.ts'
import { RelayServer } from './relay-server.ts'

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

type PlannedFarEnd = FarEnd & {
  readonly cluster: string
  readonly hidden: boolean
  readonly relays?: true
  readonly via?: readonly string[]
  readonly portMapped?: true
  readonly relayCosts?: RelayCosts
  readonly candidates: readonly EndpointCandidate[]
  /** Where the plan calls it. Absent: nowhere. */
  readonly choice?: Pick<CallChoice, 'at'>
}

/** A device as the lane loop plans it. */
interface PlannedLane {
  readonly remoteLane: number
  readonly port: number
  readonly links: readonly PlannedFarEnd[]
  /** LanePlan.successors. */
  readonly successors: readonly PlannedFarEnd[]
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

/** The relay that this gateway is. */
interface Serving {
  /** What it would have to begin again for. */
  readonly name: string
  readonly server: RelayServer
  readonly stop: AbortController
  readonly ended: Promise<void>
}

const ROUNDS = { minMs: 2, resyncMs: 25_000, retryMinMs: 200, retryMaxMs: 5000, pokedRetryMs: 200 }
/** How often round trips to relays, and the own load, are looked at while there is something to state. */
const COSTS_EVERY_MS = 10_000
/** A move that is due is looked at by the next plan, which may be late. */
const MOVE_AGAIN_MS = 200
/** The same while no plan comes: the lane loop cannot read the world, and tries again by itself. */
const UNPLANNED_AGAIN_MS = 2000
/** What one end, and all ends of one member, may send: a link of one gigabit, and two of them. */
const RATES = { bytesPerSecond: 125_000_000, memberBytesPerSecond: 250_000_000 }

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
  #serving: Serving | undefined
  /** At first, one of an earlier run of the process may be there. */
  #mayHaveTable = true
  #trouble = ''
  #noted = ''

  constructor(deps: GatewayDeps, init: RelaysInit) {
    this.#deps = deps
    this.#init = init
    const { nft, clock } = deps
    const { openSocket, onChange } = init
    const poke = (): void => this.#loop.poke()
    const onError = (error: unknown): void => this.#failed(error)
    const random = (below: number): number => randomInt(below)
    for (const ended of SUSPECT_ENDS) init.metrics.twoWays.inc({ ended }, 0)
    const onOneWay = (error: unknown): void => {
      const why = messageOf(error)
      deps.logger.info('packets of links in doubt go one way, as the kernel refuses to copy them', { why })
    }
    this.#calls = new RelayCalls({ nft, clock, openSocket, onError, onChange, onDue: poke, onOneWay, random })
    this.#web = new WebRelays({
      ...{ clock, logger: deps.logger, proxies: init.proxies, onChange, onDue: poke },
      onDropped: (count) => init.metrics.webDropped.inc({}, count),
    })
    const mayProbe = (at: AddressPort): boolean => {
      return this.#planned !== undefined && placeValidator(this.#planned.world)(at)
    }
    this.#measures = new NatMeasures({ clock, openSocket, onChange, mayProbe, logger: deps.logger })
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
    this.#nat = planNat({ ...this.#natFacts(world, own, links), neighbours: neighboursOf(inUse, lanes) }, this.#nat)
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

  #natFacts(
    world: GatewayWorld,
    own: GatewayLaneConfig,
    links: readonly LinkInUse[],
  ): Omit<Parameters<typeof planNat>[0], 'neighbours'> {
    const observed = ownObservedAddress(world)
    const inside = planCandidates(world, own).find(({ kind }) => kind === 'private')?.address
    const { lifeSeconds, sights } = this.#measures
    return {
      ownAddresses: ownAddresses(world),
      ...(inside === undefined ? {} : { inside }),
      ...(observed === undefined ? {} : { observed }),
      ...(lifeSeconds === undefined ? {} : { lifeSeconds }),
      ...(world.routerOutside === undefined ? {} : { routerOutside: world.routerOutside }),
      ...{ sights, seen: this.seen, mapping: this.mapping },
      others: world.endpoints.flatMap(({ spec: { cluster, candidates } }) =>
        candidates.flatMap(({ kind, address }) => (kind === 'observed' ? [{ cluster, address }] : [])),
      ),
      links: links.map((link): UdpLink => {
        const { remoteLane, cluster, hidden, via, state, at } = link
        const sinceMs = world.health.get(healthKey(remoteLane, cluster))?.sinceMs ?? world.monotonicMs
        return {
          cluster,
          by: state !== 'up' ? 'none' : isWebPlace(at) ? 'tcp-443' : 'udp',
          isCallable: !hidden && via === undefined,
          isNew: world.monotonicMs - sinceMs < UDP_SETTLES_MS,
        }
      }),
    }
  }

  /** What this node states of relays from now on: how far those are that it may ask, and its load if it is one. */
  #stateCosts(world: GatewayWorld, own: GatewayLaneConfig, lanes: readonly PlannedLane[]): void {
    const load = this.#serving?.server.load()
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
    const silent = links.filter((one) => known.get(healthKey(one.remoteLane, one.cluster))?.suspected === true)
    // A NAT that gave this node another port cuts the link off from all its relays, too.
    for (const { key } of silent) if (!this.#silent.has(key)) this.#calls.suspected(key)
    this.#silent = new Set(silent.map(({ key }) => key))
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
      await this.#stopServing()
    }
  }

  async #round(signal: AbortSignal): Promise<void> {
    if (this.#planned === undefined) return
    const { world, wants, webLinks, ports, accepted, measuring, used: usedOf } = this.#planned
    this.#calls.expire()
    this.#lookAtSuspects(this.#planned)
    await this.#serve(world, accepted, signal)
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

  async #serve(world: GatewayWorld, accepted: ReadonlySet<string>, signal: AbortSignal): Promise<void> {
    const [lane] = world.lanes
    const offers = lane?.relay === true && !isOwnLaneHidden(world, lane)
    if (!offers) {
      await this.#stopServing()
      if (this.#mayHaveTable) await removeTable(this.#deps.nft, NFT_TABLE_RELAY, signal)
      this.#mayHaveTable = false
      return
    }
    const [own, address] = [await this.#ownEnd(world), addressHere(world)]
    if (own === undefined || address === undefined) {
      await this.#stopServing()
      return
    }
    const name = [own.clusterset, own.identity, formatAddress(address)].join(' ')
    if (this.#serving?.name !== name) {
      await this.#stopServing()
      this.#serving = this.#start(name, own, address)
      // The next plan states the load.
      this.#init.onChange()
    }
    const transit = transitOf(world)
    const mayLink = (a: string, b: string): boolean => transit.mayRelay(world.own.spec.id, [a, b])
    const isTransit = (a: string, b: string): boolean => transit.isTransit([a, b])
    this.#serving.server.setEnds(planRelayEnds(world.endpoints, accepted, this.#deps.cable.rules), mayLink, isTransit)
  }

  #start(name: string, { clusterset, identity, agree }: OwnEnd, address: Address): Serving {
    const { nft, clock, logger } = this.#deps
    const onError = (error: unknown): void => this.#failed(error)
    const server = new RelayServer(
      { nft, clock, openSocket: this.#init.openSocket, onError },
      {
        ...{ clusterset, identity, agree, address, randomBytes, limits: DEFAULT_LIMITS, ...RATES },
        controlPort: RELAY_PORT,
        ports: { first: RELAY_PORT + 1, last: RELAY_LAST_PORT },
      },
    )
    this.#mayHaveTable = true
    const stop = new AbortController()
    const ended = server.run(stop.signal).catch(onError)
    logger.info(`relays between other members at UDP ${RELAY_PORT} to ${RELAY_LAST_PORT}`)
    return { name, server, stop, ended }
  }

  /** The table stays: the packets of bound pairs go on. */
  async #stopServing(): Promise<void> {
    const serving = this.#serving
    this.#serving = undefined
    serving?.stop.abort()
    await serving?.ended
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

/** The links of a device, and those that are only called: a transit link is called at its relays alone. */
export function linksOf(
  world: Pick<GatewayWorld, 'laneStates' | 'health' | 'monotonicMs'>,
  { remoteLane, links, successors }: Pick<PlannedLane, 'remoteLane' | 'links' | 'successors'>,
): LinkInUse[] {
  const served = links.map((link) => linkInUse(world, remoteLane, link))
  // The state by lane and cluster is that of the gateway that serves the lane.
  const called = successors.map((link): LinkInUse => {
    const { isNew: _, ...one } = linkInUse(world, remoteLane, link)
    return { ...one, state: 'connecting', asleep: false }
  })
  return [...served, ...called]
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

function linkInUse(
  { laneStates, health, monotonicMs }: Pick<GatewayWorld, 'laneStates' | 'health' | 'monotonicMs'>,
  remoteLane: number,
  link: PlannedFarEnd,
): LinkInUse {
  const { cluster, endpoint, identity, relays, relayCosts, via, choice } = link
  // Both ends of a link have to ask, so each counts the other as it counts itself.
  const hidden = relays === undefined ? seeksRelays(link) : link.hidden
  const key = linkKey(link)
  const state: LinkState | undefined = laneStates.get(remoteLane)?.links.get(key)
  const {
    state: is = 'connecting',
    asleep = false,
    sinceMs = monotonicMs,
  } = health.get(healthKey(remoteLane, cluster)) ?? {}
  // A relay is asked in the round that calls it first, which gives the device its address only afterwards.
  const at = state === undefined && relays === true ? choice?.at : state?.at
  const isNew = is === 'connecting' && monotonicMs - sinceMs < NEW_LINK_MS
  return {
    ...{ key, remoteLane, cluster, endpoint, identity, hidden },
    ...(relays === undefined ? {} : { relays }),
    ...(via === undefined ? {} : { via }),
    ...(relayCosts === undefined ? {} : { relayCosts }),
    ...{ state: is, asleep },
    ...(isNew ? { isNew } : {}),
    ...(at === undefined ? {} : { at }),
  }
}

/** Links that are up by UDP without a relay, with where their packets go. */
function neighboursOf(inUse: readonly LinkInUse[], lanes: readonly PlannedLane[]): NatFacts['neighbours'] {
  const planned = lanes.flatMap(({ links }) => links)
  const privates = new Map(
    planned.map((link) => [
      linkKey(link),
      new Set(link.candidates.flatMap(({ kind, address }) => (kind === 'private' ? [address] : []))),
    ]),
  )
  return inUse.flatMap(({ key, cluster, state, at }) => {
    if (at === undefined || state !== 'up' || isWebPlace(at) || isRelayPlace(at)) return []
    const address = formatAddress(at.address)
    return [{ cluster, address, isPrivate: privates.get(key)?.has(address) === true }]
  })
}

function isSeeking(world: GatewayWorld, own: GatewayLaneConfig): boolean {
  return seeksRelays({ hidden: isOwnLaneHidden(world, own), candidates: planCandidates(world, own) })
}

/**
 * Round trips to gateways that relay, by relayMark(), in milliseconds: those of the links with them, if they are up.
 * The figures of a link that sleeps are old, so of that only the mark is given.
 */
function relayTrips(
  { health }: GatewayWorld,
  lanes: readonly PlannedLane[],
): { readonly rttMs: ReadonlyMap<string, number>; readonly asleep: readonly string[] } {
  const up = lanes.flatMap(({ remoteLane, links }) =>
    links.flatMap(({ relays, cluster, identity }) => {
      const { state, figures, asleep: isAsleep = false } = health.get(healthKey(remoteLane, cluster)) ?? {}
      if (relays !== true || state !== 'up' || figures?.rttMs === undefined) return []
      return [{ mark: relayMark(identity), rttMs: figures.rttMs, isAsleep }]
    }),
  )
  return {
    rttMs: new Map(up.flatMap(({ mark, rttMs, isAsleep }) => (isAsleep ? [] : [[mark, rttMs] as const]))),
    asleep: up.flatMap(({ mark, isAsleep }) => (isAsleep ? [mark] : [])),
  }
}

/** The address of this node at which packets for the relay arrive: the best candidate that the node has itself. */
function addressHere(world: GatewayWorld): Address | undefined {
  const [lane] = world.lanes
  if (lane === undefined) return undefined
  const ours = ownAddresses({ nodes: [], addresses: world.addresses })
  const own = planCandidates(world, lane).map(({ address }) => address)
  const [found] = ipv4Among(own.filter((text) => ours.has(text)))
  return found === undefined ? undefined : parseAddress(found)
}

// Relays that let nothing through, although both ends are bound there.

/**
 * A call through a relay without an answer for so long, times slowness(), has failed: somewhat less than its turn
 * (choose-endpoint.ts).
 */
export const RELAY_FAILS_MS = 1500

/** Remembers since when links that are not up are called through the relay at which they are. */
export class RelayTurns {
  #turns: ReadonlyMap<string, { readonly at: AddressPort; readonly sinceMs: number }> = new Map()

  /**
   * Takes all links, and slowness() by linkKey(). Returns those whose call has failed, with the place, as long as they
   * are called there.
   */
  look(
    links: readonly Pick<LinkInUse, 'key' | 'state' | 'at'>[],
    nowMs: number,
    slow: (key: string) => number = () => 1,
  ): { readonly key: string; readonly at: AddressPort }[] {
    const turns = new Map<string, { readonly at: AddressPort; readonly sinceMs: number }>()
    for (const { key, state, at } of links) {
      if (state === 'up' || at === undefined || !isRelayPlace(at)) continue
      const before = this.#turns.get(key)
      turns.set(key, before !== undefined && sameAddressPort(before.at, at) ? before : { at, sinceMs: nowMs })
    }
    this.#turns = turns
    return [...turns].flatMap(([key, { at, sinceMs }]) => {
      return nowMs - sinceMs >= RELAY_FAILS_MS * slow(key) ? [{ key, at }] : []
    })
  }
}

// Links that probes have shown another place for, without a relay.

/** A link that is not up at its place after this time, times slowness(), goes on through the relay. */
export const PUNCH_SETTLES_MS = 3000

interface PunchedLook {
  /** slowness() by linkKey(). */
  readonly slow?: (key: string) => number
  readonly suspected?: ReadonlySet<string>
}

/** Remembers which links are up at the places that probes have proven. */
interface PunchedLink {
  readonly at: AddressPort
  /** When it was up there last, or since when the place is known. */
  readonly sinceMs: number
  readonly wasUp: boolean
  /** Since when each look has found it up there. Undefined: the last one has not. */
  readonly upSinceMs: number | undefined
  /** That has been so for PUNCH_SETTLES_MS, times slowness(): the far end sends there, too. */
  readonly isSettled: boolean
}

export class PunchedLinks {
  #links: ReadonlyMap<string, PunchedLink> = new Map()

  /**
   * Takes all links, the proven places and slowness() by linkKey(), and linkKey() of those whose packets went two ways
   * just now. Returns linkKey() of those that do not work there.
   */
  look(
    links: readonly Pick<LinkInUse, 'key' | 'state' | 'at'>[],
    punched: ReadonlyMap<string, AddressPort>,
    nowMs: number,
    { slow = () => 1, suspected = new Set() }: PunchedLook = {},
  ): string[] {
    const next = new Map<string, PunchedLink>()
    const lost: string[] = []
    for (const { key, state, at } of links) {
      const place = punched.get(key)
      if (place === undefined) continue
      const known = this.#links.get(key)
      const before = known !== undefined && sameAddressPort(known.at, place) ? known : undefined
      // The far end may have moved the link to another one of this end's places.
      const isUp = state === 'up' && at !== undefined && !isRelayPlace(at)
      // The place is not tried while the link stays where its far end has it (GatewayWorld.followsFar).
      const isHeld = state === 'up' && suspected.has(key)
      const sinceMs = isUp || isHeld ? nowMs : (before?.sinceMs ?? nowMs)
      const settlesMs = PUNCH_SETTLES_MS * slow(key)
      // Packets of the far end alone may have gone two ways: then this end saw no silence, and has been moved.
      const isMoved = suspected.has(key) || before?.isSettled === true
      const isLeft = before?.wasUp === true && (state !== 'up' || isMoved)
      const isLost = !isUp && (isLeft || nowMs - sinceMs >= settlesMs)
      if (isLost) {
        lost.push(key)
        continue
      }
      const upSinceMs = isUp ? (before?.upSinceMs ?? nowMs) : undefined
      const isSettled = nowMs - (upSinceMs ?? nowMs) >= settlesMs
      next.set(key, { at: place, sinceMs, wasUp: isUp || before?.wasUp === true, upSinceMs, isSettled })
    }
    this.#links = next
    return lost
  }

  /** Links, by linkKey(), that both ends have at their proven places. Elsewhere the far end has moved them. */
  get settled(): ReadonlySet<string> {
    return new Set([...this.#links].flatMap(([key, { isSettled }]) => (isSettled ? [key] : [])))
  }
}

// When relayed links are called at the far ends' own addresses again: at once for each list of addresses, when one of the
// two ends can be called from outside at last, and then after pauses that grow, because the path may have been
// interrupted for a short time only. Ends that nothing can call from outside may reach each other all the same, for
// example by private addresses. A try costs the link packets if nothing answers there.

export interface ReturningLink {
  /** linkKey(). */
  readonly key: string
  /** Its packets go through a relay. */
  readonly isRelayed: boolean
  readonly isUp: boolean
  /** LinkInUse.asleep. */
  readonly isAsleep?: boolean
  /** One of the two ends can be called from outside, as far as is known. */
  readonly isCallable: boolean
  /** The far end has addresses to try. */
  readonly hasPlaces: boolean
  /** Where the far end may be called: any text that differs if that does. */
  readonly where: string
}

/** How long a try lasts: longer than silence that makes a link count as down, so that a failure shows. */
export const RETURN_TRY_MS = 2500
/** A link is tried at most once in this time. */
export const RETURN_APART_MS = 60_000
/** The pause doubles with each try at the same addresses, up to this one. */
export const RETURN_LONGEST_MS = 1_800_000

interface Try {
  readonly where: string
  /** Since when the link waits for its next try. */
  readonly sinceMs: number
  readonly pauseMs: number
  /** When the last try began. -Infinity: there was none. */
  readonly triedMs: number
}

export class ReturnTries {
  readonly #tries = new Map<string, Try>()

  /** Takes all links. Returns those, by linkKey(), that are being tried. */
  look(links: readonly ReturningLink[], nowMs: number): ReadonlySet<string> {
    const known = new Set(links.map(({ key }) => key))
    for (const key of this.#tries.keys()) if (!known.has(key)) this.#tries.delete(key)
    for (const link of links) {
      const next = nextTry(link, this.#tries.get(link.key), nowMs)
      if (next === undefined) this.#tries.delete(link.key)
      else this.#tries.set(link.key, next)
    }
    return this.#within(RETURN_TRY_MS, nowMs)
  }

  /** Links, by linkKey(), that were tried a short time ago: they keep their bindings, to which they may have to return. */
  recent(nowMs: number): ReadonlySet<string> {
    return this.#within(RETURN_APART_MS, nowMs)
  }

  #within(ms: number, nowMs: number): ReadonlySet<string> {
    return new Set([...this.#tries].flatMap(([key, { triedMs }]) => (nowMs - triedMs < ms ? [key] : [])))
  }
}

/** What is remembered of a link after a look at it. Undefined: nothing. */
function nextTry(
  { isRelayed, isUp, isAsleep, isCallable, hasPlaces, where }: ReturningLink,
  last: Try | undefined,
  nowMs: number,
): Try | undefined {
  const waitedMs = nowMs - (last?.sinceMs ?? -Infinity)
  // A link that has been up without a relay for the time of the pause begins with short pauses again.
  if (!isRelayed) return last !== undefined && isUp && waitedMs >= last.pauseMs ? undefined : last
  // One that went down and came back waits for its pause again: a try that was due in the meantime would interrupt it.
  if (!isUp) return last === undefined ? undefined : { ...last, sinceMs: nowMs }
  if (!hasPlaces) return last
  // It would seem to be up at any address. A try that was due would interrupt the traffic that wakes it.
  if (isAsleep === true) return last === undefined ? undefined : { ...last, sinceMs: nowMs }
  // The addresses of an end that cannot be called were tried just before the relay.
  if (last === undefined && !isCallable) {
    return { where, sinceMs: nowMs, pauseMs: RETURN_APART_MS, triedMs: -Infinity }
  }
  const isOther = isCallable && last?.where !== where
  const isDue = isOther ? nowMs - (last?.triedMs ?? -Infinity) >= RETURN_APART_MS : waitedMs >= (last?.pauseMs ?? 0)
  if (!isDue) return last
  const pauseMs = isOther || last === undefined ? RETURN_APART_MS : Math.min(2 * last.pauseMs, RETURN_LONGEST_MS)
  return { where, sinceMs: nowMs, pauseMs, triedMs: nowMs }
}
