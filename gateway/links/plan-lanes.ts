/** Plans the devices of the lane that this node serves, and the links over them, independent of the cable. Pure. */
import { SIZE_STEP, type SizeBounds } from '../../kernel/probing/probing.ts'
import {
  type Address,
  type RemoteCluster,
  UNGRANTED_SPACE,
  containsAddress,
  formatAddress,
  parseAddress,
  prefixOf,
} from '../../model/addresses/addresses.ts'
import {
  type ConnectionCause,
  type EndpointCandidate,
  IPV6_MIN_MTU,
  NEITHER_CALLABLE,
  type Node,
  laneDevice,
} from '../../model/model.ts'
import {
  ANNOTATION_PUBLIC_ADDRESS,
  ANNOTATION_RELAY,
  CAPABILITY_RELAY,
  type CalledAt,
  firstPublicPort,
  gatewayLabel,
  gatewayProblem,
  isCalledAlike,
  portRange,
  remoteLanes,
} from '../../model/lanes/lanes.ts'
import { problemText } from '../../model/reasons/reasons.ts'
import { type CableDevice, type CableRules, type LaneState, type LinkState, linkKey } from '../cable/cable.ts'
import {
  type EndpointChoice,
  chooseEndpoint,
  chooseTransit,
  isBehindNat,
  isOwnLaneHidden,
  isPortMapped,
  isWebPlace,
  linkPort,
  ownAddresses,
  planCandidates,
} from '../reach/reach.ts'
import {
  type GatewayLaneConfig,
  type GatewayWorld,
  type PeerHealthView,
  type RelayPlace,
  healthKey,
} from '../world/world.ts'
import { type Refusal, type RemoteLink, checkClusters, checkEndpoints } from './check-remotes.ts'
import { nextLookMs } from './choose-server.ts'

// Between which sizes a link is probed, and how large its packets may be. Pure.

/** IPv4 needs no more (RFC 791: 576). A smaller value means that the path is broken. */
const SMALLEST_MTU = 576

/** Undefined if there is no size to probe. `overhead` is that of CableRules. */
function sizeBounds(deviceMtu: number, overhead: number): SizeBounds | undefined {
  if (deviceMtu <= SMALLEST_MTU) return undefined
  // The size that every network with IPv6 carries.
  const base = Math.floor((IPV6_MIN_MTU - overhead) / SIZE_STEP) * SIZE_STEP
  return { floor: SMALLEST_MTU, base, most: deviceMtu }
}

/**
 * The MTU of one link. The routes of this node decide the MTU of the device, and the path beyond may be narrower. Uses
 * the size that probes found, and at least SMALLEST_MTU.
 */
export function linkMtu(deviceMtu: number, health: { readonly sendSize?: number } | undefined): number {
  return Math.min(deviceMtu, Math.max(SMALLEST_MTU, health?.sendSize ?? deviceMtu))
}

export interface PlannedLink extends RemoteLink {
  readonly choice: EndpointChoice
  /** Why the link may never come up, as text. */
  readonly suspicion?: LaneSuspicion
  /** Where relays take packets for the far end. Absent: nowhere. */
  readonly relayPlaces?: readonly RelayPlace[]
  /** Sizes between which the link is probed. Absent: it is not probed. */
  readonly sizes?: SizeBounds
  /** The size that was known when this was planned, in octets. Absent if it was not known. */
  readonly sizeBefore?: number
}

/** A device of the lane with its links. */
export interface LanePlan extends CableDevice {
  readonly links: readonly PlannedLink[]
  /** Called beside the links. They receive traffic once they have completed a handshake (chooseServer()). */
  readonly successors: readonly PlannedLink[]
}

export interface LanesPlan {
  /** One plan for each remote lane number. */
  readonly lanes: readonly LanePlan[]
  readonly clusters: readonly RemoteCluster[]
  readonly refusals: readonly Refusal[]
  /** When to plan again, because a call is due or a candidate's turn ends. Milliseconds of the monotonic clock. */
  readonly nextAtMs?: number
}

/** Underlay MTU while no peer's path is known. */
const DEFAULT_PATH_MTU = 1500

/**
 * Makes one plan per device from the world: one device for each lane number of other clusters' gateways, if this node
 * serves a lane.
 */
export function planLanes(world: GatewayWorld, rules: CableRules): LanesPlan {
  const { clusters, refusals } = checkClusters(world)
  const endpoints = checkEndpoints(world, clusters, rules)
  // A NAT whose mappings were measured is there, also if other members state the same address outside.
  const behindNat = isBehindNat(world) || world.natLifeSeconds !== undefined
  const numbers = remoteLanes([...endpoints.links, ...endpoints.successors].map((link) => link.remoteLane))
  const lanes = world.lanes.flatMap((own) =>
    numbers.map((remoteLane) => {
      const onLane = (links: readonly RemoteLink[]) => links.filter((link) => link.remoteLane === remoteLane)
      const links = { remotes: onLane(endpoints.links), newcomers: onLane(endpoints.successors) }
      return planLane({ world, rules, own, remoteLane, behindNat, ...links })
    }),
  )
  const calls = lanes.flatMap(plannedLinks)
  const looks = endpoints.successors.map((link) => nextLookMs(calledSinceMs(world, link), world.monotonicMs))
  const due = [...calls.flatMap((link) => link.choice.nextAtMs ?? []), ...looks]
  return {
    lanes,
    clusters,
    refusals: [...leftOut(world), ...refusals, ...endpoints.refusals],
    ...(due.length === 0 ? {} : { nextAtMs: Math.min(...due) }),
  }
}

/** Links that carry traffic, and links that are only called. */
export function plannedLinks({ links, successors }: LanePlan): PlannedLink[] {
  return [...links, ...successors]
}

function leftOut(world: GatewayWorld): Refusal[] {
  const { node, ipv6LeftOut, publicName } = world
  const subject = `Node ${node}`
  const message = 'this kernel has no IPv6, so its lanes carry only IPv4'
  return [
    ...(ipv6LeftOut === undefined ? [] : [{ subject, reason: 'IPv6NotInKernel', message } as const]),
    ...(publicName?.problem === undefined ? [] : [{ subject, ...publicName.problem }]),
    ...portsTaken(world),
  ]
}

/**
 * Other gateways of this cluster behind the same public address, on some of the same ports. Without ports they may be
 * on standby for one another, behind an address that moves with them.
 */
function portsTaken({ node, nodes }: GatewayWorld): Refusal[] {
  const stated = nodes.flatMap((one) => statedCallsOf(one) ?? [])
  const own = stated.find((one) => one.node === node)
  const other = stated.find((one) => one !== own && own !== undefined && isCalledAlike(one, own))
  if (own === undefined || other === undefined) return []
  if (own.publicPort === undefined && other.publicPort === undefined) return []
  const message = `the public address ${own.publicAddress ?? ''} leads to node ${other.node} too, on ports ${portRange(firstPublicPort(other))}; this node states ${portRange(firstPublicPort(own))}`
  return [{ subject: `Node ${node}`, reason: 'PublicPortsOverlap', message }]
}

function statedCallsOf(node: Node): (CalledAt & { readonly node: string }) | undefined {
  if (gatewayProblem(node) !== undefined) return undefined
  const label = gatewayLabel(node)
  return label === undefined ? undefined : { node: node.metadata.name, ...label }
}

interface PlanLaneInit {
  readonly world: GatewayWorld
  readonly rules: CableRules
  readonly own: GatewayLaneConfig
  readonly remoteLane: number
  readonly behindNat: boolean
  readonly remotes: readonly RemoteLink[]
  readonly newcomers: readonly RemoteLink[]
}

function planLane({ world, rules, own, remoteLane, behindNat, remotes, newcomers }: PlanLaneInit): LanePlan {
  const states = world.laneStates.get(remoteLane)?.links
  const hidden = isOwnLaneHidden(world, own)
  const port = linkPort({ stated: own.port, of: own.lane, from: remoteLane })
  const ours = ownAddresses(world)
  const relaysAt = relayAddresses(world)
  const planned = (remote: RemoteLink, health: PeerHealthView | undefined): PlannedLink => {
    const { monotonicMs, rotateMs, callJitter: jitter } = world
    const link = states?.get(linkKey(remote))
    const { candidates, noneCallable, hidden: isRemoteHidden, countsItselfHidden } = remote
    const isTransit = remote.via !== undefined
    // An end that cannot be called must call. Otherwise the order of the ids decides, so that both ends agree.
    const callsFirst = isTransit || hidden === countsItselfHidden ? world.own.spec.id < remote.cluster : hidden
    const callable = !hidden && !isTransit
    const turn = { monotonicMs, rotateMs, jitter, sessionMs: rules.sessionMs, callsFirst, callable }
    const called = world.roamed?.get(linkKey(remote))
    // The address may have become one of this node's since the peer called from it.
    const roamed = called !== undefined && ours.has(formatAddress(called.at.address)) ? undefined : called
    const relayPlaces = world.relayPlaces?.get(linkKey(remote))
    const triesDirect = world.triesDirect?.has(linkKey(remote)) === true
    const [upAt, punched] = [world.upAt?.get(linkKey(remote)), world.punched?.get(linkKey(remote))]
    const moveTo = world.relayMoves?.get(linkKey(remote))
    const followsFar = world.followsFar?.has(linkKey(remote)) === true
    const relaysAsked = world.relaysAsked?.get(linkKey(remote)) ?? []
    const relays = { relays: relayPlaces ?? [], upAt, moveTo, relaysAsked }
    const choice =
      remote.via === undefined
        ? chooseEndpoint({
            ...{ ...turn, ...relays, triesDirect, punched, followsFar },
            ...{ candidates, noneCallable, neitherCallable: hidden && isRemoteHidden, roamed, link, health },
          })
        : chooseTransit(
            { ...turn, ...relays, candidates, link, health },
            { names: remote.via, addresses: relaysAt(remote.via) },
          )
    const suspicion = laneSuspicion({ world, own, port, remote, hidden })
    return {
      ...remote,
      choice,
      ...(suspicion === undefined ? {} : { suspicion }),
      ...(relayPlaces === undefined ? {} : { relayPlaces }),
    }
  }
  const links = remotes.map((remote) => planned(remote, world.health.get(healthKey(remoteLane, remote.cluster))))
  const successors = newcomers.map((remote) =>
    planned(remote, { state: 'connecting', sinceMs: calledSinceMs(world, remote) }),
  )
  const mtu = planMtu([...links, ...successors], world.pathMtu, rules.overhead)
  const sizes = sizeBounds(mtu, rules.overhead)
  return {
    remoteLane,
    device: laneDevice(remoteLane),
    port,
    ownLane: own.lane,
    mtu,
    address: `${formatAddress(rules.probeAddress(world.own.spec.index, own.lane))}/32`,
    behindNat,
    ...(world.natLifeSeconds === undefined ? {} : { natLifeSeconds: world.natLifeSeconds }),
    links: links.map((link) => {
      if (!link.answersSizes || sizes === undefined) return link
      const sizeBefore = world.health.get(healthKey(remoteLane, link.cluster))?.sendSize
      return { ...link, sizes, ...(sizeBefore === undefined ? {} : { sizeBefore }) }
    }),
    successors,
  }
}

/** Where gateways of clusters are that relay, by the links with them. */
function relayAddresses({ laneStates, endpoints }: GatewayWorld) {
  const at = endpoints.flatMap(({ metadata, spec }) => {
    if (!spec.capabilities.includes(CAPABILITY_RELAY)) return []
    const links = laneStates.get(spec.lane)?.links ?? new Map<string, LinkState>()
    const places = [...links].flatMap(([key, link]) => (key.startsWith(`${metadata.name} `) ? (link.at ?? []) : []))
    return places.map(({ address }) => ({ cluster: spec.cluster, address }))
  })
  return (clusters: readonly string[]): Address[] =>
    at.flatMap(({ cluster, address }) => (clusters.includes(cluster) ? [address] : []))
}

function calledSinceMs({ successorsSince, monotonicMs }: GatewayWorld, link: RemoteLink): number {
  return successorsSince?.get(linkKey(link)) ?? monotonicMs
}

/**
 * MTU of a lane device: the smallest path MTU to an address in use on it, less the overhead of the cable. One device
 * serves a link to each cluster, so the narrowest path decides for all. Addresses that are only being tried decide if
 * none is in use: candidates change every second, and must not change the MTU of other links.
 */
export function planMtu(links: readonly PlannedLink[], pathMtu: ReadonlyMap<string, number>, overhead: number): number {
  const pathMtus = (choices: readonly EndpointChoice[]): number[] =>
    choices.flatMap(({ at }) =>
      at === undefined || isWebPlace(at) ? [] : (pathMtu.get(formatAddress(at.address)) ?? []),
    )
  const choices = links.map((link) => link.choice)
  const used = pathMtus(choices.filter((choice) => choice.how === 'keep'))
  const known = used.length > 0 ? used : pathMtus(choices)
  const path = Math.min(...(known.length === 0 ? [DEFAULT_PATH_MTU] : known))
  return Math.max(SMALLEST_MTU, path - overhead)
}

// Why a lane may never come up and what to do about it: neither end can be called. Pure.

interface LaneSuspicionInit {
  readonly world: GatewayWorld
  readonly own: GatewayLaneConfig
  /** UDP port of this end of the link. */
  readonly port: number
  readonly remote: RemoteLink
  /** This end cannot be called from outside, as far as is known. */
  readonly hidden: boolean
}

export interface LaneSuspicion {
  /** One clause for the status. */
  readonly text: string
  readonly cause?: ConnectionCause
}

/** Undefined if nothing prevents the lane. */
function laneSuspicion(init: LaneSuspicionInit): LaneSuspicion | undefined {
  const { world, own, port, remote, hidden } = init
  if (remote.via !== undefined) {
    if (world.relayPlaces?.has(linkKey(remote)) === true) return undefined
    const refusals = world.relayRefusals?.get(linkKey(remote)) ?? []
    const why = refusals.length === 0 ? '' : ` (${refusals.join(', ')})`
    const text = `by the topology only relays of ${remote.via.join(', ')} may carry it, and none has both ends${why}`
    return { text: problemText({ reason: 'TransitRelayMissing', message: text }) }
  }
  if (hidden && remote.hidden) {
    const there = remote.candidates.find(({ kind }) => kind === 'observed')?.address
    const seen = `observed address here ${world.observedAddress ?? 'unknown'}${there === undefined ? '' : `, there ${there}`}`
    // A mapping is only a claim of a router: one that does not pass packets is no reason to be silent.
    const led = [...(isPortMapped(world, own) ? ['here'] : []), ...(remote.portMapped === true ? ['there'] : [])]
    const claim = led.length === 0 ? '' : `; a router is said to lead calls to the gateway ${led.join(' and ')}`
    return { text: `${NEITHER_CALLABLE} (${seen})${claim}: ${whatToDo(port)}`, cause: 'NeitherCallable' }
  }
  if (!isPrivateOnly(planCandidates(world, own)) || !isPrivateOnly(remote.candidates)) return undefined
  if (remote.candidates.some(({ address }) => isNear(world, address))) return undefined
  const text = `both gateways publish only private addresses; if these do not reach each other: ${whatToDo(port)}`
  return { text }
}

function whatToDo(port: number): string {
  return (
    `give one gateway a public address, or forward UDP ${port} to it, and publish that address ` +
    `(annotation ${ANNOTATION_PUBLIC_ADDRESS} of its Node, publicAddress in site.yaml), ` +
    `or let a member that both reach relay (${ANNOTATION_RELAY}, relay in site.yaml)`
  )
}

function isPrivateOnly(candidates: readonly EndpointCandidate[]): boolean {
  const isPrivate = (text: string): boolean =>
    UNGRANTED_SPACE.some((prefix) => containsAddress(prefix, parseAddress(text)))
  return candidates.length > 0 && candidates.every(({ address }) => isPrivate(address))
}

/** True if the address is in a network of this node's interfaces. */
function isNear({ addresses }: GatewayWorld, text: string): boolean {
  return addresses.some(({ address }) => {
    const [own = '', length = '32'] = address.split('/')
    const at = parseAddress(own)
    return at.family === 4 && containsAddress(prefixOf(at, Number(length)), parseAddress(text))
  })
}

// Whether the lane of this node exists.

/**
 * True if, for each cluster that has links, at least one device exists and listens on its port. `states` is by remote
 * lane.
 */
export function isMade(lanes: readonly LanePlan[], states: ReadonlyMap<number, LaneState>): boolean {
  const listens = ({ remoteLane, port }: LanePlan): boolean => {
    const state = states.get(remoteLane)
    return state !== undefined && (state.port === undefined || state.port === port)
  }
  const clusters = (some: readonly LanePlan[]) => some.flatMap(({ links }) => links.map(({ cluster }) => cluster))
  const served = new Set(clusters(lanes.filter(listens)))
  return clusters(lanes).every((cluster) => served.has(cluster))
}
