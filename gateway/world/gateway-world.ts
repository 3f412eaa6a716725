/** All that the gateway's plans depend on, read at one moment: objects, the node's kernel, health. Plain data. */
import type { Cluster, ConnectionState, Endpoint, Node, RouteAgent } from '../../model/model.ts'
import type { AddressPort, OpenPort } from '../../model/addresses/addresses.ts'
import type { InterfaceAddress, NextHopFeatures } from '../../kernel/route/route.ts'
import type { MachineNetwork } from '../../runtime/runtime.ts'
import type { LaneState } from '../cable/cable.ts'
import type { GatewayLaneConfig } from './config.ts'

/** What the probes say about one peer. */
export interface PeerHealthView {
  readonly state: ConnectionState
  /** When it came into this state, in milliseconds of the monotonic clock. */
  readonly sinceMs: number
  /** It is up, and has been silent for some probes: where there is another way, that is taken. Absent: it is not. */
  readonly doubted?: boolean
  /** It went down again and again: where there is another way, that is taken for some time. Absent: it did not. */
  readonly held?: boolean
  /** Octets of the largest packet that gets there, as far as padded probes found. Absent: not known. */
  readonly sendSize?: number
}

/** Where a far end called from, which is not where it was called. */
export interface RoamedLink {
  readonly at: AddressPort
  /** Since when the device has it, in milliseconds of the monotonic clock; -Infinity: since before this process. */
  readonly sinceMs: number
}

export interface GatewayWorld {
  /** Milliseconds of the clock that never jumps. */
  readonly monotonicMs: number
  /** 0 to 1: EndpointChoiceInit.jitter. */
  readonly callJitter: number
  readonly node: string
  readonly own: Cluster
  /** Of the clusterset; absent: not known. */
  readonly globalRange?: string
  /** This cluster has IPv6 pods, but the kernel of this node has no IPv6: `own` has IPv4 alone. */
  readonly ipv6LeftOut?: true
  /** Every Cluster and Endpoint object there is; our own among them. */
  readonly clusters: readonly Cluster[]
  readonly endpoints: readonly Endpoint[]
  readonly nodes: readonly Node[]
  /** What the nodes report about their pods. */
  readonly routeAgents: readonly RouteAgent[]
  /** One at most: gatewayConfig(). */
  readonly lanes: readonly GatewayLaneConfig[]
  readonly observedAddress?: string
  /** Ports of this node that pods of other clusters may call. Absent: none. */
  readonly openPorts?: readonly OpenPort[]
  readonly rotateMs: number
  readonly addresses: readonly InterfaceAddress[]
  /** What this kernel has of next-hop objects. Absent: nothing; then routes have next hops of their own. */
  readonly nextHopFeatures?: NextHopFeatures
  /** Default gateways and name servers of this machine. Absent: not known. */
  readonly machine?: Pick<MachineNetwork, 'nextHops' | 'nameServers'>
  /** Devices of ours that exist, by remote lane number, with their links: Cable.observe(). */
  readonly laneStates: ReadonlyMap<number, LaneState>
  /** Names of all lane devices that exist, those that are not planned among them. */
  readonly laneDevices: readonly string[]
  /** MTU of the route to an underlay address; absent where there is no route. */
  readonly pathMtu: ReadonlyMap<string, number>
  /** From which address of this node packets to an underlay address go; absent where there is no route. */
  readonly pathSource: ReadonlyMap<string, string>
  /** By healthKey(). */
  readonly health: ReadonlyMap<string, PeerHealthView>
  /** Clusters that other gateways of this cluster report a link to. Absent: none is known. */
  readonly reachedByOthers?: ReadonlySet<string>
  /** Links, by healthKey(), whose far gateway is about to go. Absent: none. */
  readonly draining?: ReadonlySet<string>
  /** This node is about to go, and says so. */
  readonly leaving?: boolean
  /** All had time to learn that: its links carry only where nothing else leads to their cluster. */
  readonly withdrawn?: boolean
  /** Its process was started anew after it had withdrawn (Returning): it still says that it goes. */
  readonly returning?: true
  /** Of reachedByOthers, those that they reach by a link whose far gateway stays. Absent: none is known. */
  readonly reachedWell?: ReadonlySet<string>
  /** By linkKey(): RoamedPeers. Absent: nothing is known. */
  readonly roamed?: ReadonlyMap<string, RoamedLink>
  /** When each far end that is to take over was called first, by linkKey(); monotonic. */
  readonly successorsSince?: ReadonlyMap<string, number>
  /** The identity that this node has announced to take. Absent: none. */
  readonly nextIdentity?: string
  /** Links, by healthKey(), that the node which takes over this node's lane has up. */
  readonly handedOver?: ReadonlySet<string>
}

/** Names the far end of a link, whichever gateway serves it: the lane of its own cluster, and the cluster. */
export function healthKey(remoteLane: number, cluster: string): string {
  return `${remoteLane}/${cluster}`
}

/** The cluster that a healthKey() names. */
export function clusterOfKey(key: string): string {
  return key.slice(key.indexOf('/') + 1)
}
