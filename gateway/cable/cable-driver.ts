/**
 * The seam between links and what makes them. A link joins this node with a gateway of another cluster; a cable makes
 * it: it has the devices, the key, and what is sent on the wire. There is one device for each lane number that gateways
 * of other clusters have, so it leads to one gateway of each cluster at most. The rest of the gateway knows far ends by
 * their Endpoint, and of their keys only whether they are the same. Drivers: wireguard/. Compliance:
 * test/compliance/cable.ts, on WireGuard and on a cable without keys.
 */
import type { Round } from '../../kernel/apply/apply.ts'
import type { RouteTable } from '../../kernel/route/route.ts'
import type { Address, AddressPort } from '../../model/addresses/addresses.ts'
import { type Endpoint, type EndpointSpec, LANE_DEVICE_PREFIX } from '../../model/model.ts'
import type { Problem } from '../../model/reasons/reasons.ts'

/** A gateway of another cluster. */
export interface FarEnd {
  /** The lane number that it has in its own cluster. */
  readonly remoteLane: number
  /** metadata.name of its Endpoint, which says cluster, node and lane. */
  readonly endpoint: string
  /** Cable.identityOf() of its Endpoint. Only ever compared. */
  readonly identity: string
}

/** Names a link in maps. A gateway that comes back with another identity is another far end: nothing of it is known. */
export function linkKey({ endpoint, identity }: Pick<FarEnd, 'endpoint' | 'identity'>): string {
  return `${endpoint} ${identity}`
}

/** A link as it is now. */
export interface LinkState {
  /** Where the far end is called, or called from last; absent: nobody knows. */
  readonly at?: AddressPort
  /** Prefixes are sent to it. */
  readonly carries: boolean
  /** When both ends agreed on a session last, in milliseconds of the monotonic clock; absent: never. */
  readonly handshakeMs?: number
  /** Since the link was last made. */
  readonly rxBytes: number
  readonly txBytes: number
}

/** A device of this node's lane as it is now. */
export interface LaneState {
  /** Of this end: the same on all devices of one lane. Only ever compared. */
  readonly identity: string
  /** UDP, where this end listens. Absent: that is none of this cable's. */
  readonly port?: number
  /** By linkKey(), of the far ends that were asked for and are there. */
  readonly links: ReadonlyMap<string, LinkState>
}

/** What a link is given as its far end's address, and why. */
export interface CallChoice {
  /**
   * keep: the cable's own knowledge stays (it follows a far end that roams). try: it is given this address.
   * wait: there is nothing to call; the far end calls us.
   */
  readonly how: 'keep' | 'try' | 'wait'
  /** In use or to be tried, where known. */
  readonly at?: AddressPort
  /** In words, for logs and status. */
  readonly why: string
}

/** A link as it is to be. */
export interface CableLink extends FarEnd {
  readonly cluster: string
  readonly node: string
  /** The far end's address inside the tunnel: Cable.probeAddress(). */
  readonly laneAddress: string
  readonly prefixes: readonly string[]
  readonly choice: CallChoice
}

/** The device towards the gateways of one remote lane number, as it is to be. */
export interface CableDevice {
  /** The lane number of the gateways that it leads to. */
  readonly remoteLane: number
  readonly device: string
  /** UDP, of this end: linkPort(). */
  readonly port: number
  readonly mtu: number
  /** The lane number of this node: its address and its identity go with that, whatever device they are on. */
  readonly ownLane: number
  /** address/32: the same on all devices of this node. */
  readonly address: string
  /** Something on the way forgets this node unless it sends now and then. */
  readonly behindNat: boolean
  /** Those that are sent to. */
  readonly links: readonly CableLink[]
  /** Called beside them; nothing is sent to them or taken from them yet but what makes a session. */
  readonly successors: readonly CableLink[]
}

/** What a cable makes of a device. */
export interface CablePlan {
  /** In the words of its tools, without secrets. */
  readonly text: string
}

/** What a cable says of itself, and what it reads from others' Endpoints. Pure. */
export interface CableRules {
  /** Octets that it adds to a packet on the underlay. */
  readonly overhead: number
  /** How long after a handshake a link carries without another, in milliseconds. */
  readonly sessionMs: number
  /**
   * Why the lanes of a driver of this name (CableDriver.name) end with its process; undefined: they go on without it.
   */
  endsWithProcess(driver: string): string | undefined
  /** Where a gateway answers probes inside the tunnel. */
  probeAddress(clusterIndex: number, lane: number): Address
  /**
   * What distinguishes the far end of this Endpoint from others: two with the same identity would be one to the device.
   */
  identityOf(endpoint: Endpoint): string
  /** The identity that this far end has announced to take instead; undefined: none that could be one. */
  nextIdentityOf(endpoint: Endpoint): string | undefined
  /** Why the Endpoint cannot be a far end, naming the field; undefined: it can. */
  endpointProblem(endpoint: Endpoint): string | undefined
  /**
   * Why an Endpoint is not used whose identity is that of `owner` (`this node`, `Endpoint paris.gw-lane0`), or why the
   * next one is not that it announces.
   */
  identityTaken(owner: string, which?: 'next'): Problem
  /** What the other clusters learn of this end, besides where it is. */
  endpointFields(
    state: LaneState,
    next: string | undefined,
  ): Pick<EndpointSpec, 'publicKey' | 'nextPublicKey' | 'capabilities'>
  plan(device: CableDevice): CablePlan
}

export interface CableDriver {
  /** As in Gateway.status: `wireguard-kernel`. */
  readonly name: string
}

export interface ApplyLaneInit {
  /** The device carries IPv6 too. */
  readonly withIpv6: boolean
  /** The device as it was when the plan was made; undefined when it was not there. */
  readonly seen: LaneState | undefined
  /** linkKey() of the links to make anew, so that the far end is called at once. */
  readonly callAnew: ReadonlySet<string>
  /** GatewayWorld.pathSource. */
  readonly pathSource: ReadonlyMap<string, string>
  /** The policy in force knows the device by which joined segments come in. */
  readonly mayJoin: boolean
  readonly round: Round
  readonly signal: AbortSignal
}

/** A link whose far end takes another identity now. */
export interface FollowedLink {
  readonly remoteLane: number
  readonly from: string
  readonly to: string
}

/** How a cable with keys gives its own end a new identity, and follows far ends that do the same. */
export interface CableRotation {
  /** The identity that is made and not in use yet; undefined: none. Throws as prepare() does. */
  next(ownLane: number): Promise<string | undefined>
  /** Makes it where there is none, so that it is there after a crash too. */
  makeNext(ownLane: number): Promise<string>
  /** Since the present identity was made, by the wall clock. Throws as prepare() does. */
  ageMs(ownLane: number): Promise<number>
  /**
   * Takes the next identity on the devices of these far lanes. `followers` will call: until then nothing is sent to
   * them, for calls that cross are both lost. `sayLast` runs at the last moment at which far ends can be
   * told: what is sent after it waits for a new session. Nothing else changes the devices meanwhile. After a failure
   * the next round goes on with it. Throws KernelError.
   */
  takeNext(
    ownLane: number,
    remoteLanes: readonly number[],
    followers: readonly FarEnd[],
    sayLast: () => Promise<void>,
  ): Promise<void>
  /**
   * In one step, what led to `from` leads to `to` at the same place, and `to` is called: once `after` has come.
   * Nothing happens where `from` carries nothing. Throws KernelError.
   */
  follow(link: FollowedLink, after: Promise<unknown>, signal: AbortSignal): Promise<void>
  /** The far end of such a link has shaken hands as `to`. One that has not is called anew. Throws KernelError. */
  hasFollowed(link: FollowedLink, signal: AbortSignal): Promise<boolean>
}

export interface Cable {
  readonly rules: CableRules
  /** Absent: its ends have no identity that could be made anew. */
  readonly rotation?: CableRotation
  /** Which implementation makes lanes here. Throws KernelError. */
  driver(signal?: AbortSignal): Promise<CableDriver>
  /**
   * Makes what a lane of this node needs before it can be made, its key above all, and takes away that of all other
   * lanes. Throws an error that names what is there and not usable: it is never replaced.
   */
  prepare(ownLanes: readonly number[]): Promise<void>
  /** The devices that are there, by remote lane number, with the links to `ends`. Throws KernelError. */
  observe(
    remoteLanes: readonly number[],
    ends: readonly FarEnd[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<number, LaneState>>
  /**
   * Brings one device to the plan: itself, its address and links. Adds before it removes, and leaves links alone that
   * are as they should be. What fails is in the round. Gives the device as it was before its links were brought to the
   * plan; undefined when there is none.
   */
  apply(device: CableDevice, init: ApplyLaneInit): Promise<LaneState | undefined>
  /** Removes all lane devices but those of the names in `keep`. True when they went; what fails is in the round. */
  remove(keep: readonly string[], round: Round, signal: AbortSignal): Promise<boolean>
}

// The lane devices of this node, whatever cable made them.

const LANE_DEVICE = new RegExp(`^${LANE_DEVICE_PREFIX}\\d+$`)

/** Names of all that exist. Throws KernelError. */
export async function laneDeviceNames(routes: RouteTable, signal: AbortSignal): Promise<string[]> {
  return (await routes.links(signal)).map(({ name }) => name).filter((name) => LANE_DEVICE.test(name))
}
