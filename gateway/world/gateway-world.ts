/**
 * Everything that the gateway's plans depend on, read at one moment: objects, the node's kernel, health. Plain data.
 */
import type { Cluster, ConnectionState, Endpoint, Node, RouteAgent } from '../../model/model.ts'
import type { Problem } from '../../model/reasons/reasons.ts'
import type { Address, AddressPort, OpenPort } from '../../model/addresses/addresses.ts'
import type { RoundTrip } from '../../kernel/probing/probing.ts'
import type { InterfaceAddress, NextHopFeatures } from '../../kernel/route/route.ts'
import type { Exposure } from '../../model/access/access.ts'
import type { MachineNetwork } from '../../runtime/runtime.ts'
import type { LaneState } from '../cable/cable.ts'
import type { GatewayLaneConfig } from './config.ts'

/** What the probes show about one peer. */
export interface PeerHealthView {
  readonly state: ConnectionState
  /** When the peer came into this state, in milliseconds of the monotonic clock. */
  readonly sinceMs: number
  /** The link is up but suspect, because some probes were missed: traffic uses another path if there is one. */
  readonly suspected?: boolean
  /** The link has flapped: traffic uses another path for some time if there is one. */
  readonly held?: boolean
  /** The link is not probed, so its state is that of before. */
  readonly asleep?: boolean
  /** Octets of the largest packet that reaches the peer, according to padded probes. Absent if it is not known. */
  readonly sendSize?: number
  readonly figures?: RoundTrip
}

/** An address from which a far end called, different from the one at which it was called. */
export interface RoamedLink {
  readonly at: AddressPort
  /**
   * Since when the device has this address, in milliseconds of the monotonic clock. -Infinity: since before this
   * process started.
   */
  readonly sinceMs: number
}

/** What is known of the DNS name that is this gateway's public address. */
export interface PublicNameView {
  readonly name: string
  /** The usable IPv4 addresses of the last answer that had some, sorted. Empty before the first one. */
  readonly addresses: readonly string[]
  /** What is wrong with the last answer. Absent: nothing, or there was none yet. */
  readonly problem?: Problem
  /** Whether the name was asked for since this process started. */
  readonly isAsked: boolean
}

/** An address at which a relay takes packets for one far end, from this node alone. */
export interface RelayPlace {
  /** The member whose gateway relays. */
  readonly cluster: string
  readonly at: AddressPort
  /** Packets of the link got no answer there a short time ago. */
  readonly failed?: true
  /** Since when both ends are there, as far as is known here, in milliseconds of the monotonic clock. Absent: for long. */
  readonly sinceMs?: number
  /**
   * Whether the far end was there before this one. The end that came last knows at once that both are there, and the other
   * one only when it asks again. Absent: both hear it at once.
   */
  readonly farWasThere?: boolean
  /**
   * From this end through the relay to the far one and back, in milliseconds, by what both state of their own ways to it.
   * Absent: one of them states nothing.
   */
  readonly roundTripMs?: number
}

/** Where probes through the NATs of both ends pass. */
export interface PunchedPlace extends AddressPort {
  /** When that was proven, in milliseconds of the monotonic clock. Absent: long ago. */
  readonly sinceMs?: number
}

export interface GatewayWorld {
  /** The time of this reading, in milliseconds of the monotonic clock. */
  readonly monotonicMs: number
  /** A number from 0 to 1: EndpointChoiceInit.jitter. */
  readonly callJitter: number
  readonly node: string
  readonly own: Cluster
  /** The global range of the clusterset. Absent if it is not known. */
  readonly globalRange?: string
  /** What other members may call. Absent: all pods. */
  readonly exposure?: Exposure
  /** GatewayConfig.failClosed */
  readonly failClosed?: boolean
  /** This cluster has IPv6 pods, but the kernel of this node has no IPv6: `own` has IPv4 alone. */
  readonly ipv6LeftOut?: true
  /** Every Cluster object, including this cluster's own, and the Endpoint objects of all other clusters. */
  readonly clusters: readonly Cluster[]
  readonly endpoints: readonly Endpoint[]
  readonly nodes: readonly Node[]
  /** What the nodes report about their pods. */
  readonly routeAgents: readonly RouteAgent[]
  /** At most one lane (gatewayConfig()). */
  readonly lanes: readonly GatewayLaneConfig[]
  readonly observedAddress?: string
  /** Absent if the public address is no DNS name. */
  readonly publicName?: PublicNameView
  /** Ports of this node that pods of other clusters may call. Absent: none. */
  readonly openPorts?: readonly OpenPort[]
  readonly rotateMs: number
  readonly addresses: readonly InterfaceAddress[]
  /** What this kernel supports of next-hop objects. Absent: nothing, so routes have next hops of their own. */
  readonly nextHopFeatures?: NextHopFeatures
  /** Default gateways and name servers of this machine. Absent if they are not known. */
  readonly machine?: Pick<MachineNetwork, 'nextHops' | 'nameServers'>
  /** Existing devices of the gateway, by remote lane number, with their links: Cable.observe(). */
  readonly laneStates: ReadonlyMap<number, LaneState>
  /** isOnlyGateway(). Absent: the packets of a connection may come by several gateways. */
  readonly isOnlyGateway?: true
  /** Names of all existing lane devices, including those that are not planned. */
  readonly laneDevices: readonly string[]
  /** MTU of the route to an underlay address. Without an entry if there is no route. */
  readonly pathMtu: ReadonlyMap<string, number>
  /** Source address of this node for packets to an underlay address. Without an entry if there is no route. */
  readonly pathSource: ReadonlyMap<string, string>
  /** State of each link, by healthKey(). */
  readonly health: ReadonlyMap<string, PeerHealthView>
  /** Clusters to which other gateways of this cluster report a link. Absent if none is known. */
  readonly reachedByOthers?: ReadonlySet<string>
  /** Links, by healthKey(), whose far gateway is about to leave. Absent: none. */
  readonly draining?: ReadonlySet<string>
  /** This node is about to leave and has announced it. */
  readonly leaving?: boolean
  /**
   * All others had time to learn that this node leaves. Its links carry traffic only if nothing else reaches their
   * cluster.
   */
  readonly withdrawn?: boolean
  /** The process was restarted after it had withdrawn its routes (LanePhases), and still announces that it leaves. */
  readonly returning?: true
  /**
   * Those of reachedByOthers that the other gateways reach by a link whose far gateway stays. Absent if none is known.
   */
  readonly reachedWell?: ReadonlySet<string>
  /** Where far ends called from, by linkKey() (CallHistory). Absent if nothing is known. */
  readonly roamed?: ReadonlyMap<string, RoamedLink>
  /** When each far end that is to take over a lane was first called, by linkKey(). Monotonic milliseconds. */
  readonly successorsSince?: ReadonlyMap<string, number>
  /** The next identity that this node has announced. Absent: none. */
  readonly nextIdentity?: string
  /** Where relays take packets for far ends that are bound there too, by linkKey(), best first. Absent: nowhere. */
  readonly relayPlaces?: ReadonlyMap<string, readonly RelayPlace[]>
  /** What relays say that refuse this node, such as `oslo: full`, by linkKey(). Absent: none does. */
  readonly relayRefusals?: ReadonlyMap<string, readonly string[]>
  /** Links, by linkKey(), that are up through one relay and are to move to another one, with its place. Absent: none. */
  readonly relayMoves?: ReadonlyMap<string, AddressPort>
  /** Relays that have not answered yet, and were first asked a moment ago, by linkKey(). Absent: none. */
  readonly relaysAsked?: ReadonlyMap<string, readonly Address[]>
  /**
   * For how many seconds the NAT in front of this node keeps a mapping without packets, at least: NatMeasures.lifeSeconds.
   * Absent: it is not known, or there is no NAT.
   */
  readonly natLifeSeconds?: number
  /** What this node states of relays: capabilities of its Endpoint. Absent: nothing. */
  readonly statedCosts?: readonly string[]
  /** Where packets of links with such places went when these were up last, by linkKey(). Absent: not known. */
  readonly upAt?: ReadonlyMap<string, AddressPort>
  /** Relayed links, by linkKey(), that are called at the far end's own addresses now (ReturnTries). Absent: none. */
  readonly triesDirect?: ReadonlySet<string>
  /** Where far ends of relayed links can be called without the relay, by linkKey(), proven by probes. Absent: nowhere. */
  readonly punched?: ReadonlyMap<string, PunchedPlace>
  /**
   * Links, by linkKey(), that stay where their far ends have moved them: packets went two ways a moment ago (Suspects), or
   * both ends had them at a punched place. Absent: none.
   */
  readonly followsFar?: ReadonlySet<string>
  /** Where the router in front of this node leads calls for far gateways of this lane's own number. Absent: nowhere. */
  readonly mapped?: AddressPort
  /** The address that this router states as its own outside, whether it is believed or not. Absent: none. */
  readonly routerOutside?: string
  /** Links, by healthKey(), that the node which takes over this node's lane has up. */
  readonly handedOver?: ReadonlySet<string>
}

/**
 * Names the far end of a link by the lane number in its cluster and the cluster, whichever gateway serves that lane.
 */
export function healthKey(remoteLane: number, cluster: string): string {
  return `${remoteLane}/${cluster}`
}

/** The cluster that a healthKey() names. */
export function clusterOfKey(key: string): string {
  return key.slice(key.indexOf('/') + 1)
}
