/**
 * The interface between links and their implementation. A link joins this node with a gateway of another cluster. A
 * cable implements it: it owns the devices, the key, and the wire format. There is one device for each lane number of
 * other clusters' gateways, so a device leads to at most one gateway of each cluster. The rest of the gateway names far
 * ends by their Endpoint, and only compares their identities. Drivers: wireguard/. Compliance:
 * test/compliance/cable.ts, on WireGuard and on a cable without keys.
 */
import type { Round } from '../../kernel/apply/apply.ts'
import type { RouteTable } from '../../kernel/route/route.ts'
import type { Address, AddressPort } from '../../model/addresses/addresses.ts'
import { type Endpoint, type EndpointSpec, LANE_DEVICE_PREFIX } from '../../model/model.ts'
import type { Problem } from '../../model/reasons/reasons.ts'
import type { Agreement } from './agreement.ts'

/** A gateway of another cluster. */
export interface FarEnd {
  /** The lane number that it has in its own cluster. */
  readonly remoteLane: number
  /** metadata.name of its Endpoint, which names cluster, node and lane. */
  readonly endpoint: string
  /** CableRules.identityOf() of its Endpoint. Only compared. */
  readonly identity: string
}

/** The key of a link in maps. A gateway with a new identity is a new far end, of which nothing is known. */
export function linkKey({ endpoint, identity }: Pick<FarEnd, 'endpoint' | 'identity'>): string {
  return `${endpoint} ${identity}`
}

/** The present state of a link. */
export interface LinkState {
  /** Where the far end is called, or called from last. Absent if it is not known. */
  readonly at?: AddressPort
  /** The link has prefixes, so traffic is sent over it. */
  readonly carries: boolean
  /** When both ends last agreed on a session, in milliseconds of the monotonic clock. Absent: never. */
  readonly handshakeMs?: number
  /** Bytes since the link was last created. */
  readonly rxBytes: number
  readonly txBytes: number
}

/** The present state of a device of this node's lane. */
export interface LaneState {
  /** Identity of this end: the same on all devices of one lane. Only compared. */
  readonly identity: string
  /** UDP port on which this end listens. Absent if the cable has none. */
  readonly port?: number
  /** The existing links to the far ends that were asked for, by linkKey(). */
  readonly links: ReadonlyMap<string, LinkState>
}

/** Which address the link gets for its far end, and why. */
export interface CallChoice {
  /**
   * `keep`: the cable keeps its address (it follows a far end that roams). `try`: the link gets this address. `wait`:
   * there is no address to call; the far end calls this node.
   */
  readonly how: 'keep' | 'try' | 'wait'
  /**
   * Only with `wait`: the cable forgets the address and session of the far end, which it must not use, and lets nothing
   * pass meanwhile: a far end that calls all the same would bring them back.
   */
  readonly forgets?: true
  /** The address in use or to be tried, if known. */
  readonly at?: AddressPort
  /** Text for logs and status. */
  readonly why: string
}

/** The planned state of a link. */
export interface CableLink extends FarEnd {
  readonly cluster: string
  readonly node: string
  /** The far end's address inside the tunnel: CableRules.probeAddress(). */
  readonly laneAddress: string
  readonly prefixes: readonly string[]
  /** The far end states public addresses alone, and none that a NAT may have. Absent: it may be behind NAT. */
  readonly isPublic?: true
  readonly choice: CallChoice
}

/** The planned state of the device towards the gateways of one remote lane number. */
export interface CableDevice {
  /** The lane number of the gateways to which it leads. */
  readonly remoteLane: number
  readonly device: string
  /** UDP port of this end: linkPort(). */
  readonly port: number
  readonly mtu: number
  /** The lane number of this node. It determines the address and the identity on every device. */
  readonly ownLane: number
  /** address/32: the same on all devices of this node. */
  readonly address: string
  /** A NAT on the path forgets this node unless the node sends at intervals. */
  readonly behindNat: boolean
  /** GatewayWorld.natLifeSeconds. Absent: it is not known. */
  readonly natLifeSeconds?: number
  /** Links that carry traffic. */
  readonly links: readonly CableLink[]
  /** Called beside the links. Only session setup passes until they carry traffic. */
  readonly successors: readonly CableLink[]
}

/** What a cable plans for a device. */
export interface CablePlan {
  /** Text in the language of its tools, without secrets. */
  readonly text: string
}

/** Properties of a cable, and how it reads the Endpoints of others. Pure. */
export interface CableRules {
  /** Octets that the cable adds to a packet on the underlay. */
  readonly overhead: number
  /** How long a link works after a handshake without another one, in milliseconds. */
  readonly sessionMs: number
  /**
   * Why the lanes of a driver of this name (CableDriver.name) end with its process. Undefined if they keep working
   * without it.
   */
  endsWithProcess(driver: string): string | undefined
  /** The address at which a gateway answers probes inside the tunnel. */
  probeAddress(clusterIndex: number, lane: number): Address
  /**
   * What distinguishes the far end of this Endpoint from others. A device cannot distinguish two far ends with the same
   * identity.
   */
  identityOf(endpoint: Endpoint): string
  /** The next identity that this far end has announced. Undefined if it has announced none or an invalid one. */
  nextIdentityOf(endpoint: Endpoint): string | undefined
  /** Why the Endpoint cannot be a far end, naming the field. Undefined if it can. */
  endpointProblem(endpoint: Endpoint): string | undefined
  /**
   * Why an Endpoint with the identity of `owner` (`this node`, `Endpoint paris.gw-lane0`) is not used, or why its next
   * identity is not.
   */
  identityTaken(owner: string, which?: 'next'): Problem
  /** Fields that tell the other clusters about this end, except for its addresses. */
  endpointFields(
    state: LaneState,
    next: string | undefined,
  ): Pick<EndpointSpec, 'publicKey' | 'nextPublicKey' | 'capabilities'>
  plan(device: CableDevice): CablePlan
}

export interface CableDriver {
  /** Name of the driver as in Gateway.status: `wireguard-kernel`. */
  readonly name: string
}

export interface ApplyLaneInit {
  /** The device carries IPv6 too. */
  readonly withIpv6: boolean
  /** The device as it was when the plan was made. Undefined if it did not exist. */
  readonly seen: LaneState | undefined
  /** linkKey() of the links to create again, so that the far end is called at once. */
  readonly callAgain: ReadonlySet<string>
  /** Source address for packets to an underlay address: GatewayWorld.pathSource. */
  readonly pathSource: ReadonlyMap<string, string>
  /** The applied policy covers the device on which joined segments arrive. */
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
  /** The identity that exists and is not in use yet. Undefined if there is none. Throws as prepare() does. */
  next(ownLane: number): Promise<string | undefined>
  /** Creates the next identity if there is none, so that it also exists after a crash. */
  makeNext(ownLane: number): Promise<string>
  /** Age of the present identity, by the wall clock. Throws as prepare() does. */
  ageMs(ownLane: number): Promise<number>
  /**
   * Takes the next identity on the devices of these remote lanes. `followers` will call. Until then nothing is sent to
   * them, because calls that cross are both lost. `sayLast` runs at the last moment at which far ends can be notified:
   * what is sent after it waits for a new session. No other change is made to the devices meanwhile. After a failure
   * the next round continues. Throws KernelError.
   */
  takeNext(
    ownLane: number,
    remoteLanes: readonly number[],
    followers: readonly FarEnd[],
    sayLast: () => Promise<void>,
  ): Promise<void>
  /**
   * In one step after `after` has resolved, moves the prefixes and address of `from` to `to`, and calls `to`. Does
   * nothing if `from` carries no traffic. Throws KernelError.
   */
  follow(link: FollowedLink, after: Promise<unknown>, signal: AbortSignal): Promise<void>
  /**
   * True if the far end of such a link has completed a handshake as `to`. Otherwise calls it again. Throws KernelError.
   */
  hasFollowed(link: FollowedLink, signal: AbortSignal): Promise<boolean>
}

export interface Cable {
  readonly rules: CableRules
  /** Absent if the ends have no identity that can be replaced. */
  readonly rotation?: CableRotation
  /** The implementation that creates lanes here. Throws KernelError. */
  driver(signal?: AbortSignal): Promise<CableDriver>
  /**
   * Creates what a lane of this node needs before its devices, such as its key, and removes that of all other lanes. It
   * never replaces a file that exists but is not usable, and throws an error that names it.
   */
  prepare(ownLanes: readonly number[]): Promise<void>
  /**
   * What this identity of the lane and that of another end agree on (agreementOf()). Undefined if this node has no key
   * of this identity. Absent if identities are no keys.
   */
  agreement?(ownLane: number, identity: string): Promise<Agreement | undefined>
  /** The existing devices, by remote lane number, with the links to `ends`. Throws KernelError. */
  observe(
    remoteLanes: readonly number[],
    ends: readonly FarEnd[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<number, LaneState>>
  /**
   * Applies the plan to one device, its address and its links. Adds before it removes, and does not touch links that
   * are as planned. Failures are in the round. Returns the device as it was before its links were changed, or undefined
   * if there is none.
   */
  apply(device: CableDevice, init: ApplyLaneInit): Promise<LaneState | undefined>
  /** Removes all lane devices except those in `keep`. True if they were removed. Failures are in the round. */
  remove(keep: readonly string[], round: Round, signal: AbortSignal): Promise<boolean>
}

// The lane devices of this node, whichever cable created them.

const LANE_DEVICE = new RegExp(`^${LANE_DEVICE_PREFIX}\\d+$`)

/** Names of all existing lane devices. Throws KernelError. */
export async function laneDeviceNames(routes: RouteTable, signal: AbortSignal): Promise<string[]> {
  return (await routes.links(signal)).map(({ name }) => name).filter((name) => LANE_DEVICE.test(name))
}
