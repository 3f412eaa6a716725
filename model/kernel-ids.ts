/**
 * Everything Sealane owns in a node's kernel. Sweeps stay inside this list, and two components never
 * share a row: each can rebuild its own part without looking at the other's.
 */

/**
 * Lane devices are sealane0, sealane1, …, by the number of the far gateways that they lead to; so are the UDP ports that
 * they listen on (gateway/reach/plan-candidates.ts).
 */
export const LANE_DEVICE_PREFIX = 'sealane'
export const LANE_BASE_PORT = 4500
/** Overlay between the nodes of one cluster. */
export const VXLAN_DEVICE = 'sealane-vx'
export const VXLAN_PORT = 4810
export const VXLAN_VNI = 7300
/**
 * On the overlay device of every node, with the scope of a host, so that nothing is ever sent from it and nobody asks for
 * it (RFC 3927; beside LANE_CABLE_ADDRESS). The kernel's loose check of sources (rp_filter 2) drops what comes in by a
 * device without an IPv4 address and from where another device leads: an answer that came in by another gateway.
 */
export const OVERLAY_ADDRESS = '169.254.231.2'

/** nft tables, of family ip and, where a cluster has IPv6 pod CIDRs, of family ip6. */
export const NFT_TABLE_GATEWAY = 'sealane_gateway'
export const NFT_TABLE_NODE = 'sealane_node'

/** rtnetlink protocol number on every route and rule of ours. */
export const ROUTE_PROTOCOL = 173

/**
 * Route tables. In lookup order: out of a lane towards another node's pods (routeagent), remote prefixes over this
 * node's own lanes (gateway), remote prefixes over the gateway nodes, then unreachable so that nothing leaks
 * (routeagent).
 */
export const ROUTE_TABLE_FROM_LANES = 7310
export const ROUTE_TABLE_LANES = 7311
export const ROUTE_TABLE_NODE = 7312
/**
 * The same for prefixes of other clusters in public space (gateway, routeagent), looked at for what pods send and for
 * what the node itself sends from its address among them. All else that starts on the node goes as if they were not
 * there: no member draws the node's own connections to a broker, an API server or a registry into a lane by stating its
 * range.
 */
export const ROUTE_TABLE_LANES_PUBLIC = 7313
export const ROUTE_TABLE_NODE_PUBLIC = 7314

/** What this node's own probes of its gateway nodes go by: over the overlay (routeagent). */
export const ROUTE_TABLE_PROBES = 7315
/**
 * As ROUTE_TABLE_FROM_LANES, for what another gateway node has handed on since it does not reach the node that is meant
 * (routeagent).
 */
export const ROUTE_TABLE_HANDED_ON = 7316

/**
 * Own pod ranges as `unreachable`, looked at after the main table for what comes out of a lane or the overlay
 * (routeagent): an address that no pod has must not leave by the node's default route, in clear.
 */
export const ROUTE_TABLE_NO_POD = 7317
/** The kernel's, where a CNI's own routes are mostly. Only ever looked at, by a rule of ours. */
export const ROUTE_TABLE_MAIN = 254

/** A block of ids of next-hop objects and groups (`ip nexthop`), both ends included. */
export interface NextHopIds {
  readonly first: number
  readonly last: number
}
/**
 * Ours, far above those that the kernel and routing programs give out, which count up from 1. Within it, each component has
 * a block: ways over lanes (gateway), the ways to the gateway nodes (routeagent). What an id means says
 * kernel/apply/plan-next-hops.ts.
 */
export const NEXT_HOP_IDS: NextHopIds = { first: 731_000_000, last: 731_999_999 }
export const NEXT_HOP_IDS_LANES: NextHopIds = { first: 731_100_000, last: 731_399_999 }
export const NEXT_HOP_IDS_NODE: NextHopIds = { first: 731_400_000, last: 731_699_999 }

/**
 * Priorities of the rules that lead to these tables. Below 99 (WireGuard of Calico), 110 (Cilium with addresses of a
 * cloud) and 512 (Amazon VPC CNI), whose rules lead packets of pods out of the node; above 9 to 20, where Cilium leads
 * marked packets to its proxy. Cilium moves the table `local` from 0 to 100: nothing is lost by coming before it,
 * since no table of ours ever holds an address of this node.
 */
export const RULE_PROBES = 72
export const RULE_FROM_LANES = 73
export const RULE_LANES = 74
export const RULE_NODE = 75
/**
 * After the rules of CNIs and of operators, and right before the kernel's own rule to the main table (32766): first what
 * that table knows but by its default route, and then ROUTE_TABLE_NO_POD.
 */
export const RULE_KNOWN_POD = 32_764
export const RULE_NO_POD = 32_765
/**
 * To the tables of public space, for what the node sends from its address among the pods. Not of the priority of the
 * rule beside it: the kernel takes two rules of one priority, table and device for the same, also where one is an
 * exception.
 */
export const RULE_LANES_OWN_SOURCE = 73
export const RULE_NODE_OWN_SOURCE = 76
/** The device by which the kernel says that a packet starts on the node. */
export const LOOPBACK_DEVICE = 'lo'
/** Priority of the rule to ROUTE_TABLE_NODE in releases up to 0.1; that of the gateway's was one less. */
export const RULE_NODE_BEFORE = 7312

/**
 * On what WireGuard itself sends: the rules of tables 7311 and 7312 leave such packets alone. Else a gateway whose
 * address lies in its cluster's pod CIDR would be called through the lane to it. Compared as a whole number; its bits
 * are none that kube-proxy (0xc000), Cilium (0x0f00), the Amazon VPC CNI (0x80) or Calico (the upper 16) look at.
 */
export const LANE_MARK = 0x1073

/** Address ranges that Sealane brings along (class E, so that no real network has them). */
export const DEFAULT_GLOBAL_RANGE = '244.0.0.0/8'
export const DEFAULT_CLUSTERSET_IP_RANGE = '245.0.0.0/16'
/** Clusterset IPs of family IPv6 (RFC 4193): this prefix and the IPv4 one in the low 32 bits, see clustersetIpv6(). */
export const CLUSTERSET_IPV6_PREFIX = 'fd53:ea1a:4e00::/96'
/** Lane device addresses: see laneAddress() in addressing.ts. */
export const LANE_ADDRESS_RANGE = '246.0.0.0/8'

/**
 * Of the receiving end of a lane's cable, for that cable alone (RFC 3927). Above 169.254.128.0, since OVN-Kubernetes
 * takes what is below, and none of those where clouds and node caches answer.
 */
export const LANE_CABLE_ADDRESS = '169.254.231.1'

/** UDP port, on the lane address, that answers health probes inside the tunnel. */
export const LANE_PROBE_PORT = 4499

/**
 * UDP port, on the InternalIP, at which nodes of one cluster probe each other over the overlay. TCP of that number is for
 * knocks: nobody listens there.
 */
export const OVERLAY_PROBE_PORT = 4498

export function laneDevice(lane: number): string {
  return `${LANE_DEVICE_PREFIX}${lane}`
}

/**
 * The ends of the cable over which TCP of a user-space lane device is led to be joined:
 * kernel/tuning/segment-joining.ts. The rule that leads it is in a table of family netdev that is called like the
 * device.
 */
export function laneCable(device: string): { readonly tx: string; readonly rx: string } {
  return { tx: `${device}-tx`, rx: `${device}-rx` }
}

export function lanePort(lane: number): number {
  return LANE_BASE_PORT + lane
}

/** The kernel's switch for forwarding IPv4 between devices, by its name below /proc/sys. */
export const IP_FORWARDING = 'net/ipv4/ip_forward'
/** The same for IPv6. Switching it on makes the kernel ignore router advertisements where accept_ra is 1. */
export const IPV6_FORWARDING = 'net/ipv6/conf/all/forwarding'

/**
 * By what flows are spread over several ways: 0 addresses alone, 1 addresses and ports (Linux 4.12, IPv6 4.18). Absent
 * where the kernel has no multipath routes.
 */
export const HASH_POLICY = 'net/ipv4/fib_multipath_hash_policy'
export const IPV6_HASH_POLICY = 'net/ipv6/fib_multipath_hash_policy'
