/** Reasons about dropped packets, and about changes that other programs make in the kernel. */
import type { ReasonTable } from './reason-row.ts'

const DRIFT = [
  'metric sealane_gateway_drift_repairs_total',
  'metric sealane_routeagent_drift_repairs_total',
  'log of the gateway',
  'log of the routeagent',
] as const
const GATEWAY = ['metric sealane_gateway_packets_dropped_total', 'counter of table sealane_gateway'] as const
const NODE = ['metric sealane_routeagent_packets_dropped_total', 'counter of table sealane_node'] as const
const DNS = ['metric sealane_dns_dropped_total'] as const
const FORWARDED = ['metric sealane_dns_not_forwarded_total'] as const
const WATCH = 'Find what changes routes, rules or nftables of others on this node.'
const STRANGER = 'If frequent, look for a wrong route or an attempt to get in.'
const OFFLOAD = ['condition ChecksumOffload of RouteAgent', 'log of the routeagent'] as const

export const KERNEL_REASONS = {
  Missing: { means: 'Something removed a rule, route or table of Sealane.', todo: WATCH, shows: DRIFT },
  Changed: { means: 'Something changed a rule, route or table of Sealane in the kernel.', todo: WATCH, shows: DRIFT },
  Foreign: { means: 'Something added to the part of the kernel that Sealane manages.', todo: WATCH, shows: DRIFT },
  ChecksumOffloadFault: {
    means:
      'The network card or kernel computes wrong checksums in VXLAN packets: Sealane switched checksum offload of sealane-vx off.',
    todo: 'Nothing. Without such a fault, `spec.overlay.checksumOffload: on` in the site file is faster.',
    shows: OFFLOAD,
  },
  ChecksumOffloadStated: {
    means: 'The site file states whether sealane-vx leaves checksums to the network card.',
    todo: 'Nothing.',
    shows: OFFLOAD,
  },
  ChecksumOffloadNotSwitched: {
    means:
      'Sealane could not switch checksum offload of sealane-vx, so TCP and UDP between nodes may be lost while ping passes.',
    todo: 'Install ethtool on this node.',
    shows: [...OFFLOAD, 'output of the command'],
  },
  ForwardPoliciesMissing: {
    means:
      'XFRM policies of this node are missing or have no effect: its pods are open to other clusters while nft tables are missing, for about a second.',
    todo: 'The message says why. Load `xfrm_user`, or set `spec.failClosed: true` in the site file.',
    shows: ['condition ClosedWithoutTables of RouteAgent', 'log of the routeagent'],
  },
  OpenWithoutTables: {
    means:
      'By `spec.failClosed: false`, the pods of this node are open to other clusters while nft tables are missing.',
    todo: 'Nothing, if intended. Otherwise remove `spec.failClosed` from the site file.',
    shows: ['condition ClosedWithoutTables of RouteAgent', 'output of the command'],
  },
  'in-not-ours': {
    means: 'A packet from a lane has a destination outside this cluster.',
    todo: STRANGER,
    shows: GATEWAY,
  },
  'in-unknown-source': {
    means: 'A packet from a lane has a source in no other cluster.',
    todo: STRANGER,
    shows: GATEWAY,
  },
  'in-lane-source': {
    means: 'A remote gateway used a lane address as source of something other than a probe or ICMP error.',
    todo: 'Programs on that gateway must call pods from an address of its own pods.',
    shows: GATEWAY,
  },
  'in-no-pod': {
    means: 'A packet from a lane has a destination that is no pod of this cluster.',
    todo: STRANGER,
    shows: GATEWAY,
  },
  'in-not-admitted': {
    means: 'A packet from a lane came to a node without table `sealane_node`.',
    todo: 'If it continues, find why the routeagent there is not ready.',
    shows: GATEWAY,
  },
  'lane-to-lane': { means: 'A packet from one lane would leave by another.', todo: STRANGER, shows: GATEWAY },
  redirect: { means: 'An ICMP redirect came from a lane.', todo: STRANGER, shows: GATEWAY },
  'out-no-pod': {
    means: 'A packet to a lane has a source that is no pod of this cluster.',
    todo: STRANGER,
    shows: GATEWAY,
  },
  'out-unknown-destination': {
    means: 'A packet to a lane has a destination in no other cluster.',
    todo: 'If frequent, a caller may use an address that its cluster no longer has.',
    shows: GATEWAY,
  },
  'out-unknown-source': {
    means: 'A packet to a lane has a source that the other clusters do not know.',
    todo: "Compare `podCIDRs` of this cluster's Cluster object with the addresses of its pods.",
    shows: GATEWAY,
  },
  'icmp-error': {
    means: 'An ICMP error could not be translated, because its inner packet is incomplete.',
    todo: 'Nothing.',
    shows: GATEWAY,
  },
  'lane-address-outside': {
    means: 'A packet for a lane address came from outside the lanes.',
    todo: STRANGER,
    shows: GATEWAY,
  },
  'lane-address-astray': {
    means: 'A packet from a lane address would leave outside the lanes.',
    todo: 'Nothing.',
    shows: GATEWAY,
  },
  'host-service': {
    means: 'A packet from another cluster is for a closed port of the node.',
    todo: 'To open the port, name it in `openHostPorts` of the site file.',
    shows: [...GATEWAY, ...NODE],
  },
  'lane-address-no-probe': {
    means: 'A packet for a lane address is no probe.',
    todo: STRANGER,
    shows: GATEWAY,
  },
  'access-not-exported': {
    means: 'A packet from another cluster is for a pod port that this cluster does not export.',
    todo: 'Export the Service if it is for other clusters.',
    shows: NODE,
  },
  'access-not-offered': {
    means: "A packet is for a service that is not offered to the caller's cluster.",
    todo: 'Name the cluster in an AccessPolicy if it may call.',
    shows: NODE,
  },
  'access-node': {
    means: 'A packet from another cluster is for an address of the node.',
    todo: 'To open a port of the node, name it in `openHostPorts` of the site file.',
    shows: NODE,
  },
  'access-no-connection': {
    means: 'A packet from another cluster belongs to no connection that the node knows.',
    todo: 'If frequent, compare `nf_conntrack_count` with `nf_conntrack_max`.',
    shows: NODE,
  },
  'access-namespace': {
    means: 'A pod called a service of another cluster that is not offered to its namespace.',
    todo: 'Name the namespace in the AccessPolicy there. Nodes have none.',
    shows: NODE,
  },
  'access-egress': {
    means: 'A pod called a cluster that `spec.egress` does not let its namespace call.',
    todo: 'Add the namespace to the ClusterAccessPolicy.',
    shows: NODE,
  },
  'access-fragment': {
    means: 'A part of a packet from another cluster came without its first part.',
    todo: STRANGER,
    shows: NODE,
  },
  'access-protocol': {
    means: 'A packet from another cluster has a protocol that no service has.',
    todo: 'Nothing: only TCP, UDP, SCTP and ICMP pass.',
    shows: NODE,
  },
  'overlay-stranger': {
    means: 'A packet for the overlay did not come from a node of this cluster.',
    todo: STRANGER,
    shows: NODE,
  },
  'overlay-inner': {
    means: 'A packet from the overlay has an invalid source or destination.',
    todo: STRANGER,
    shows: NODE,
  },
  'overlay-loop': {
    means: 'A packet from the overlay would enter it again.',
    todo: 'If frequent, compare the routes of the nodes: two send to each other.',
    shows: NODE,
  },
  not_a_query: { means: 'A DNS packet is no query.', todo: 'Nothing.', shows: DNS },
  no_source_port: { means: 'A DNS packet came from port 0, which cannot be answered.', todo: 'Nothing.', shows: DNS },
  socket_error: {
    means: 'The kernel refused to receive or send DNS packets.',
    todo: 'Check whether the node is short of memory or sockets.',
    shows: DNS,
  },
  connection_limit: {
    means: 'The DNS closed its oldest TCP connection to accept a new one at its limit.',
    todo: 'Find the clients that keep many TCP connections open.',
    shows: DNS,
  },
  response_rate: {
    means: 'One network got too many similar DNS answers: it may be the target of forged queries.',
    todo: 'Nothing, if it passes. Networks named in `dns.forwardFor` are not limited.',
    shows: DNS,
  },
  client_not_own: {
    means: 'A client outside this site asked for a name outside the clusterset, and got REFUSED.',
    todo: 'To allow it, name its network in `dns.forwardFor` of the site file.',
    shows: FORWARDED,
  },
  client_places: {
    means: 'One client has its share of pending upstream queries; the answer is SERVFAIL.',
    todo: 'Mostly the name servers of a zone do not answer: find out which.',
    shows: FORWARDED,
  },
  client_rate: {
    means: 'One client exceeds its rate for names outside the clusterset; the answer is SERVFAIL.',
    todo: 'Find what it asks for, or let it ask the upstreams itself.',
    shows: FORWARDED,
  },
  overloaded: {
    means: 'The limit of pending upstream queries is reached; the answer is SERVFAIL.',
    todo: 'Check that the servers in `dns.upstreams` answer in time.',
    shows: FORWARDED,
  },
  loop: {
    means: 'A query that the DNS forwarded came back to it; the answer is SERVFAIL.',
    todo: 'Correct `dns.upstreams`: one of them forwards to this DNS.',
    shows: FORWARDED,
  },
  LeftInKernel: {
    means: 'A former gateway still has parts of Sealane in its kernel.',
    todo: 'Add the gateway label and remove it again, or restart the node.',
    shows: ['log of the gateway'],
  },
  KernelNotFollowed: {
    means: 'The kernel does not report changes to nftables, so Sealane checks every half minute.',
    todo: 'If it lasts, read in the message what the kernel refused.',
    shows: ['log of the gateway', 'log of the routeagent'],
  },
  ConnectionsNotCounted: {
    means: 'The routeagent cannot count open connections to other clusters, for warnings.',
    todo: 'Load the kernel module `nf_conntrack_netlink`, or read the message.',
    shows: ['log of the routeagent'],
  },
  FlowsNotForgotten: {
    means:
      'The routeagent cannot remove tracked UDP flows to endpoints that have gone: clients that never pause still call them.',
    todo: 'Load the kernel module `nf_conntrack_netlink`, or read the message.',
    shows: ['log of the routeagent'],
  },
  ListenAddressMissing: {
    means: 'The node does not have the listen address of the DNS, which waits for it.',
    todo: 'Nothing, if the address comes later. Otherwise correct the listen address.',
    shows: ['log of dns'],
  },
  ListenPortTaken: {
    means: 'Another program on this node uses a port of the DNS. Other nodes are not affected.',
    todo: 'Stop the other program, or name the addresses of the nodes in `dns.listen`.',
    shows: ['log of dns'],
  },
  ServicesNotRead: {
    means: 'The DNS has not read the services yet and answers SERVFAIL.',
    todo: 'If it lasts, find why the API server does not answer.',
    shows: ['log of dns'],
  },
  InternalError: {
    means: 'Sealane has a bug; the line says where.',
    todo: 'Report it, with the line.',
    shows: ['log of dns', 'log of the broker'],
  },
} as const satisfies ReasonTable
