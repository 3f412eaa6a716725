/** Reasons about packets that are dropped, and about what others change in the kernel. */
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
const WATCH = 'Find the program on this node that changes routes, rules or nftables of others, and stop it.'
const STRANGER = 'Nothing, if it is rare. Many such packets come from a wrong route or from an attempt to get in.'

export const KERNEL_REASONS = {
  Missing: { means: 'Somebody took away what Sealane had put into the kernel.', todo: WATCH, shows: DRIFT },
  Changed: { means: 'Somebody changed what Sealane had put into the kernel.', todo: WATCH, shows: DRIFT },
  Foreign: { means: "Somebody put something into Sealane's part of the kernel.", todo: WATCH, shows: DRIFT },
  'in-not-ours': {
    means: 'A packet came from a lane and is for no address of this cluster.',
    todo: STRANGER,
    shows: GATEWAY,
  },
  'in-unknown-source': {
    means: 'A packet came from a lane, from an address of no other cluster.',
    todo: STRANGER,
    shows: GATEWAY,
  },
  'in-lane-source': {
    means:
      'A far gateway sent something from its lane address, or from ours, that is neither a probe nor an ICMP error.',
    todo: 'Look at that gateway: a program on its node has to call pods from an address among its own pods.',
    shows: GATEWAY,
  },
  'in-no-pod': {
    means: 'A packet came from a lane and is for no pod of this cluster.',
    todo: STRANGER,
    shows: GATEWAY,
  },
  'lane-to-lane': { means: 'A packet came from one lane and would leave by another.', todo: STRANGER, shows: GATEWAY },
  redirect: { means: 'An ICMP redirect came from a lane.', todo: STRANGER, shows: GATEWAY },
  'out-no-pod': { means: 'A packet to a lane came from no pod of this cluster.', todo: STRANGER, shows: GATEWAY },
  'out-unknown-destination': {
    means: 'A packet to a lane is for an address of no other cluster.',
    todo: 'Nothing, if it is rare. A caller may use an address that its cluster no longer has.',
    shows: GATEWAY,
  },
  'out-unknown-source': {
    means: 'A packet to a lane has a source address that the other clusters do not know.',
    todo: 'Compare `podCIDRs` of the Cluster object of this cluster with the addresses of its pods.',
    shows: GATEWAY,
  },
  'icmp-error': {
    means: 'An ICMP error could not be translated, because its inner packet is not whole.',
    todo: 'Nothing.',
    shows: GATEWAY,
  },
  'lane-address-outside': {
    means: 'A packet for the address of a lane device came from elsewhere than a lane.',
    todo: STRANGER,
    shows: GATEWAY,
  },
  'lane-address-astray': {
    means: 'A packet from the address of a lane device would leave by something else than a lane.',
    todo: 'Nothing.',
    shows: GATEWAY,
  },
  'host-service': {
    means: 'A packet from another cluster is for the node itself, at a port that is not allowed.',
    todo: 'If other clusters are to reach that port of the node, name it in `openPorts` of the gateway and the routeagent.',
    shows: [...GATEWAY, ...NODE],
  },
  'lane-address-no-probe': {
    means: 'A packet for the address of a lane device is not a probe.',
    todo: STRANGER,
    shows: GATEWAY,
  },
  'overlay-stranger': {
    means: 'A packet for the overlay did not come from a node of this cluster by the network of the nodes.',
    todo: STRANGER,
    shows: NODE,
  },
  'overlay-inner': {
    means: 'A packet out of the overlay has a source or a destination that does not belong there.',
    todo: STRANGER,
    shows: NODE,
  },
  'overlay-loop': {
    means: 'A packet came out of the overlay and would go into it again.',
    todo: 'Nothing, if it is rare. Otherwise compare the routes of the nodes: two of them send to each other.',
    shows: NODE,
  },
  not_a_query: { means: 'A DNS packet is no query.', todo: 'Nothing.', shows: DNS },
  no_source_port: { means: 'A DNS packet came from port 0, where no answer can go.', todo: 'Nothing.', shows: DNS },
  socket_error: {
    means: 'The kernel refused to read or to send DNS packets.',
    todo: 'Look whether the node is short of memory or of sockets.',
    shows: DNS,
  },
  connection_limit: {
    means: 'The DNS closed its oldest TCP connection, because a new one came and all places were taken.',
    todo: 'Find the clients that keep many TCP connections open.',
    shows: DNS,
  },
  response_rate: {
    means: 'The DNS had sent one network too many answers that are alike: it may be the victim of forged questions.',
    todo: 'Nothing, if it passes. Clients that are of this site are not limited: name their networks in `dns.forwardFor`.',
    shows: DNS,
  },
  client_not_own: {
    means: 'A client that is not of this site asked the DNS for a name outside the clusterset. The answer is REFUSED.',
    todo: 'If the client is to have such names from here, name its network in `dns.forwardFor` of the site file.',
    shows: FORWARDED,
  },
  client_places: {
    means: 'One client has its share of the questions that may be with the upstreams. The answer is SERVFAIL.',
    todo: 'Find out what that client asks for: most often a zone whose name servers are silent.',
    shows: FORWARDED,
  },
  client_rate: {
    means: 'One client asked for more names outside the clusterset than it may in a second. The answer is SERVFAIL.',
    todo: 'Find out what that client asks for, or let it ask the upstreams itself.',
    shows: FORWARDED,
  },
  overloaded: {
    means: 'All places for questions that are with the upstreams are taken. The answer is SERVFAIL.',
    todo: 'Look whether the upstreams of `dns.upstreams` answer in time.',
    shows: FORWARDED,
  },
  loop: {
    means: 'A question that the DNS had sent to an upstream came back to it. The answer is SERVFAIL.',
    todo: 'Correct `dns.upstreams`: an upstream there forwards to this DNS.',
    shows: FORWARDED,
  },
  LeftInKernel: {
    means: 'Not everything of Sealane could be taken out of the kernel of a node that is no gateway any more.',
    todo: 'Give the node the gateway label and take it away again. A restart of the node clears it as well.',
    shows: ['log of the gateway'],
  },
  KernelNotFollowed: {
    means: 'The kernel does not tell who else changes nftables. Such changes are found by a look every half minute.',
    todo: 'Nothing, if it passes. The message says what the kernel refused.',
    shows: ['log of the gateway', 'log of the routeagent'],
  },
  ConnectionsNotCounted: {
    means: 'The routeagent cannot count the open connections to other clusters, which only warnings are made from.',
    todo: 'Load the kernel module `nf_conntrack_netlink`, or read what the message says.',
    shows: ['log of the routeagent'],
  },
  ListenAddressMissing: {
    means: 'The DNS is to listen on an address that the node does not have. It waits for it.',
    todo: 'Nothing, if the address comes later. Otherwise correct the listen address.',
    shows: ['log of dns'],
  },
  ListenPortTaken: {
    means:
      'Another program of this node has a port of the DNS. The other nodes that run the DNS go on; this one waits.',
    todo: 'End the other program, or name the addresses of the nodes in `dns.listen`.',
    shows: ['log of dns'],
  },
  ServicesNotRead: {
    means: 'The DNS has not read the services yet, so that it answers SERVFAIL.',
    todo: 'Nothing, if it passes. Otherwise look why the API server does not answer.',
    shows: ['log of dns'],
  },
  InternalError: {
    means: 'A fault in Sealane itself; the line says where.',
    todo: 'Report it, with the line.',
    shows: ['log of dns', 'log of the broker'],
  },
} as const satisfies ReasonTable
