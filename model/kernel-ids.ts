/**
 * Everything that Sealane owns in a node's kernel. Sweeps touch nothing outside this list, and two components never
 * share an entry, so each can rebuild its own part independently.
 */

/**
 * Lane devices are sealane0, sealane1, …, numbered by the lane of the remote gateways that they lead to; so are their
 * UDP listen ports (gateway/reach/plan-candidates.ts).
 */
export const LANE_DEVICE_PREFIX = 'sealane'
/** The first listen port of a gateway that states no other one (model/lanes/public-address.ts). */
export const LANE_BASE_PORT = 4500
/** The overlay between the nodes of one cluster. */
export const VXLAN_DEVICE = 'sealane-vx'
/**
 * The UDP port of the overlay, unless the site file names another one: spec.overlay.port. Every node of a cluster uses
 * the same, because a VXLAN device sends to the port on which it listens.
 */
export const VXLAN_PORT = 4810
export const VXLAN_VNI = 7300
/**
 * Settings for the checksum offload of the overlay device. `auto` switches it off where a fault of the kernel or of the
 * network card is known, and otherwise leaves it as it is.
 */
export const OFFLOAD_SETTINGS = ['auto', 'on', 'off'] as const
export type OffloadSetting = (typeof OFFLOAD_SETTINGS)[number]
/**
 * The address of the overlay device on every node (RFC 3927; next to LANE_CABLE_ADDRESS). Its scope is `host`, so the
 * kernel never uses it as a source address for other hosts. It must exist because loose reverse-path filtering
 * (rp_filter 2) drops packets from a device without an IPv4 address if the route to their source uses another device,
 * as for an answer through another gateway.
 */
export const OVERLAY_ADDRESS = '169.254.231.2'

/** nft tables, of family ip and, if a cluster has IPv6 pod CIDRs, of family ip6. */
export const NFT_TABLE_GATEWAY = 'sealane_gateway'
export const NFT_TABLE_NODE = 'sealane_node'
/** The set of table sealane_node with the backends on this node, as `address . address`. */
export const NFT_SET_HAIRPIN = 'hairpin'

/** The group of nflog to which table sealane_node logs samples of packets that it refuses. */
export const NFLOG_GROUP = 7310

/** The groups to which it logs refusals of endpoints, if a traffic policy asks for passive health, by address family. */
export const NFLOG_GROUPS_REFUSALS = { 4: 7311, 6: 7312 } as const

/** The tables that count the calls of a node, one of each family. Nothing else depends on them. */
export const NFT_TABLE_FLOWS = 'sealane_flows'

/** The tables of `sealane explain --probe`, which follow its packets, begin with this. They exist for seconds. */
export const NFT_TABLE_TRACE = 'sealane_trace'

/** The table of a relay, which forwards packets between gateways of other clusters. */
export const NFT_TABLE_RELAY = 'sealane_relay'
/** The table through which a gateway's questions to relays share the ports of its lane devices. */
export const NFT_TABLE_REACH = 'sealane_reach'
/** The UDP port at which a relay takes questions. The ports of pairs follow it, up to RELAY_LAST_PORT. */
export const RELAY_PORT = 4600
/** Gateways share ports: one has as many pairs as there are ports. The ports after it are those of the overlay. */
export const RELAY_LAST_PORT = 4799
/** Ports that ends share: the most pairs of one gateway at one relay. */
export const PORTS_OF_RELAY = RELAY_LAST_PORT - RELAY_PORT
/** Pairs of gateways that one relay serves. */
export const PAIRS_OF_RELAY = 1024
/** Pairs that a relay of an earlier release serves: it gives two ports to one pair alone. */
export const PAIRS_OF_EARLIER_RELAY = Math.floor(PORTS_OF_RELAY / 2)
/**
 * From this port and those after it, one for each remote lane number, a gateway asks relays. Its packets leave with the
 * port of the lane device.
 */
export const RELAY_CALL_PORT = 4580

/** The group to which these tables log samples of calls and of their answers. */
export const NFLOG_GROUP_FLOWS = 7313

/** The rtnetlink protocol number on all our routes and rules. */
export const ROUTE_PROTOCOL = 173

/**
 * Route tables, in lookup order: packets from a lane to another node's pods (routeagent); remote prefixes over this
 * node's own lanes (gateway); remote prefixes over the gateway nodes, else unreachable, so that nothing leaks
 * (routeagent).
 */
export const ROUTE_TABLE_FROM_LANES = 7310
export const ROUTE_TABLE_LANES = 7311
export const ROUTE_TABLE_NODE = 7312
/**
 * The same for prefixes of other clusters in public space (gateway, routeagent). They apply to packets from pods, and
 * to those that the node sends from its pod-range address. Other packets of the node ignore them: a member that states
 * the address of a broker, an API server or a registry cannot draw the node's own connections into a lane.
 */
export const ROUTE_TABLE_LANES_PUBLIC = 7313
export const ROUTE_TABLE_NODE_PUBLIC = 7314

/** The table for this node's own probes of its gateway nodes, over the overlay (routeagent). */
export const ROUTE_TABLE_PROBES = 7315
/**
 * Like ROUTE_TABLE_FROM_LANES, for packets that another gateway node has handed on because it cannot reach the
 * destination node (routeagent).
 */
export const ROUTE_TABLE_HANDED_ON = 7316

/**
 * Our own pod ranges as `unreachable`, looked up after the main table for packets from a lane or the overlay
 * (routeagent). Packets to an address without a pod must not leave by the node's default route unencrypted.
 */
export const ROUTE_TABLE_NO_POD = 7317
/**
 * The prefixes of the other clusters as `unreachable`, looked up for packets that the node sends from an address
 * outside the pods (routeagent). No member routes such an address of another, so nothing at it answers through a lane.
 */
export const ROUTE_TABLE_NODE_SENDS = 7318
/** The kernel's table of the node's own addresses. Our rules look it up; we never change it. */
export const ROUTE_TABLE_LOCAL = 255
/** The kernel's main table, which contains the routes of most CNIs. Our rules look it up; we never change it. */
export const ROUTE_TABLE_MAIN = 254

/** A block of ids of next-hop objects and groups (`ip nexthop`), both ends inclusive. */
export interface NextHopIds {
  readonly first: number
  readonly last: number
}
/**
 * Our own block, far above the ids that the kernel and routing daemons allocate, which count up from 1. Each component
 * has a part of it: routes over lanes (gateway) and routes to the gateway nodes (routeagent).
 * kernel/apply/plan-next-hops.ts defines the meaning of each id.
 */
export const NEXT_HOP_IDS: NextHopIds = { first: 731_000_000, last: 731_999_999 }
export const NEXT_HOP_IDS_LANES: NextHopIds = { first: 731_100_000, last: 731_399_999 }
export const NEXT_HOP_IDS_NODE: NextHopIds = { first: 731_400_000, last: 731_699_999 }

/**
 * Priorities of the rules for these tables. They are below 99 (WireGuard of Calico), 110 (Cilium with cloud addresses)
 * and 512 (Amazon VPC CNI), whose rules route pod packets out of the node, and above 9 to 20, where Cilium routes
 * marked packets to its proxy. Cilium moves the table `local` from 0 to 100. Preceding it is safe, since no table of
 * ours ever contains an address of this node.
 */
/** For ROUTE_TABLE_NODE_SENDS. */
export const RULE_NODE_SENDS = 69
/**
 * Drops packets from a lane (gateway), and packets for our own pods from the overlay (routeagent), that have not been
 * admitted (ADMITTED_MARK). Before it, the node's own addresses are looked up for packets from there, as the kernel
 * usually does in the first place: Cilium moves that rule behind ours.
 */
export const RULE_TO_NODE = 70
export const RULE_NOT_ADMITTED = 71
export const RULE_PROBES = 72
export const RULE_FROM_LANES = 73
export const RULE_LANES = 74
export const RULE_NODE = 75
/**
 * After the rules of CNIs and operators, and directly before the kernel's own rule for the main table (32766): first
 * the main table without its default route, then ROUTE_TABLE_NO_POD.
 */
export const RULE_KNOWN_POD = 32_764
export const RULE_NO_POD = 32_765
/**
 * Rules for the tables of public space, for packets that the node sends from its pod-range address. Their priority
 * differs from that of the related rule: the kernel treats two rules with the same priority, table and device as one,
 * even if one of them is an exception.
 */
export const RULE_LANES_OWN_SOURCE = 73
export const RULE_NODE_OWN_SOURCE = 76
/** The input device of packets that originate on the node. */
export const LOOPBACK_DEVICE = 'lo'
/** Priority of the rule for ROUTE_TABLE_NODE in releases up to 0.1; the gateway's rule was one lower. */
export const RULE_NODE_BEFORE = 7312

/**
 * The mark on packets that WireGuard itself sends: the rules for tables 7311 and 7312 skip them. Otherwise packets to a
 * gateway whose address lies in its cluster's pod CIDR would go into the lane to it. It is compared as a whole number.
 * It uses none of the bits of kube-proxy (0xc000), Cilium (0x0f00), the Amazon VPC CNI (0x80) or Calico (the upper 16).
 * Only within one chain of NFT_TABLE_REACH, before those of all others, has the upper half a number.
 */
export const LANE_MARK = 0x1073

/**
 * The bit of the mark that says that the access rules have admitted a packet from another cluster. It is set before the
 * routing decision and cleared after it, so that no other program sees it. Rule RULE_NOT_ADMITTED drops packets without
 * it: if the table is lost, nothing is let in. It is none of the bits named at LANE_MARK.
 */
export const ADMITTED_MARK = 0x2000

/**
 * Priorities of our XFRM policies, which drop packets of other clusters that ADMITTED_MARK does not admit, also while
 * our nft tables are missing: what is admitted, and after it everything else
 * (routeagent/routes/plan-forward-policies.ts). Among the policies that match a packet, the kernel takes the one with
 * the lowest number. Those of IPsec software have much lower ones: strongSwan's are below 400,000, Libreswan's below
 * 4,000,000, and Cilium's are 50 and 2,975. So a policy of theirs for the same packets always counts, and ours never
 * shadows it. Ours are in the direction `fwd` only, without templates, and between prefixes of other clusters and our
 * pod CIDRs only. We never change a policy of another priority.
 */
export const XFRM_PRIORITY_ADMITTED = 4_294_007_310
export const XFRM_PRIORITY_REFUSED = 4_294_007_311

/** Default address ranges of Sealane (class E, so that no real network uses them). */
export const DEFAULT_GLOBAL_RANGE = '244.0.0.0/8'
export const DEFAULT_CLUSTERSET_IP_RANGE = '245.0.0.0/16'
/** IPv6 clusterset IPs (RFC 4193): this prefix with the IPv4 address in the low 32 bits, see clustersetIpv6(). */
export const CLUSTERSET_IPV6_PREFIX = 'fd53:ea1a:4e00::/96'
/** Lane device addresses: see laneAddress() in model/addresses/addressing.ts. */
export const LANE_ADDRESS_RANGE = '246.0.0.0/8'

/**
 * The address of the receiving end of a lane's veth cable, used on that cable only (RFC 3927). It is above
 * 169.254.128.0, since OVN-Kubernetes uses the range below, and is not a metadata or node-cache address.
 */
export const LANE_CABLE_ADDRESS = '169.254.231.1'

/** The UDP port on the lane address that answers health probes inside the tunnel. */
export const LANE_PROBE_PORT = 4499

/**
 * The UDP port on the InternalIP at which nodes of one cluster probe each other over the overlay. TCP probes use the
 * same number; no process listens there.
 */
export const OVERLAY_PROBE_PORT = 4498

export function laneDevice(lane: number): string {
  return `${LANE_DEVICE_PREFIX}${lane}`
}

/**
 * The ends of the veth cable through which TCP of a user-space lane device passes for segment joining:
 * kernel/tuning/segment-joining.ts. The rule for it is in a table of family netdev with the name of the device.
 */
export function laneCable(device: string): { readonly tx: string; readonly rx: string } {
  return { tx: `${device}-tx`, rx: `${device}-rx` }
}

export function lanePort(lane: number, firstPort = LANE_BASE_PORT): number {
  return firstPort + lane
}

/** The sysctl for IPv4 forwarding between devices, by its name below /proc/sys. */
export const IP_FORWARDING = 'net/ipv4/ip_forward'
/** The same for IPv6. Enabling it makes the kernel ignore router advertisements where accept_ra is 1. */
export const IPV6_FORWARDING = 'net/ipv6/conf/all/forwarding'

/**
 * Whether the reverse-path filter looks up the way back with the mark of the packet. It does so as if the answer came
 * from the device to which the packet goes, so RULE_NOT_ADMITTED would refuse the packets of our own pods.
 */
export const SOURCE_VALID_MARK = 'net/ipv4/conf/all/src_valid_mark'

/**
 * How multipath routes distribute flows: 0 by addresses alone, 1 by addresses and ports (Linux 4.12, IPv6 4.18). Absent
 * if the kernel has no multipath routes.
 */
export const HASH_POLICY = 'net/ipv4/fib_multipath_hash_policy'
export const IPV6_HASH_POLICY = 'net/ipv6/fib_multipath_hash_policy'
