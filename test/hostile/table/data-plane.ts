/** Attacks with packets from lanes and pods. */
import type { AttackRow } from './row.ts'

const OVERLAY = '`routeagent/balance/plan-overlay-guard.ts`, chain `overlay`'
const INNER = '`routeagent/balance/plan-overlay-guard.ts`, chain `from-overlay`'
const HOST = '`routeagent/balance/plan-overlay-guard.ts`, chain `host-from-overlay`'

const LANE_HOST = '`gateway/nft/plan-translation.ts`, chain `into-node`: what is not named does not reach the node.'

const OWN = '`model/kernel-ids.ts`, tables 7313 and 7314: ranges in public space are looked at for pods alone.'

export const DATA_PLANE: readonly AttackRow[] = [
  {
    id: 'lane-address-as-source',
    tried: 'A remote gateway sends packets to pods and to the node from its own lane address.',
    holds: 'None arrives at a pod; each is counted; probes go on.',
    against: '`gateway/nft/plan-translation.ts`, chain `from-lane`: a lane address is for probes and for errors.',
  },
  {
    id: 'overlay-from-own-pod',
    tried: 'A pod sends its node an overlay frame in the name of a third cluster.',
    holds: 'Neither at the bridge nor at the InternalIP is it unpacked.',
    against: `${OVERLAY}: only nodes of the own cluster, to the InternalIP, by the device of the underlay.`,
  },
  {
    id: 'overlay-from-own-pod-ipv6-inside',
    tried: 'The same with an IPv6 packet inside.',
    holds: 'It is not unpacked.',
    against: `${OVERLAY}: the sender is checked before the packet inside is read.`,
  },
  {
    id: 'overlay-from-pod-as-node',
    tried: 'A pod that may forge its source sends such a frame in the name of the gateway node.',
    holds: 'It is not unpacked.',
    against: `${OVERLAY}: the incoming device counts as much as the address.`,
  },
  {
    id: 'overlay-to-another-node',
    tried: 'A pod sends such a frame to another node, under the address of its own node.',
    holds: 'It does not leave its own node; other ports of that node are reached as before.',
    against:
      '`routeagent/balance/plan-overlay-guard.ts`: nothing that is forwarded goes to the overlay port of a node.',
  },
  {
    id: 'overlay-from-stranger',
    tried: 'A machine on the network of the nodes that is no node sends such frames, of both families.',
    holds: 'They are not unpacked.',
    against: `${OVERLAY}: the set \`overlay-nodes\` has the InternalIPs of the cluster's Nodes.`,
  },
  {
    id: 'overlay-inner-source',
    tried: 'A node puts packets into the overlay from node addresses, own pods, and unknown sources.',
    holds: 'Only those from pods of another cluster reach a pod, in both families.',
    against: `${INNER}: out of the overlay only from prefixes of other clusters to own pods, or the other way round.`,
  },
  {
    id: 'overlay-inner-destination',
    tried: 'A node puts packets into the overlay for the node network and for the node itself.',
    holds: 'They go nowhere.',
    against: `${INNER} and \`host-from-overlay\`: destinations are checked as sources are.`,
  },
  {
    id: 'host-tcp-over-overlay',
    tried: 'A remote pod connects to a TCP port of a worker, at its pod-range address, IPv4 and IPv6.',
    holds: 'It is refused; own pods do, and echo is answered.',
    against: `${HOST}: what is not named does not reach the node.`,
  },
  {
    id: 'host-udp-over-overlay',
    tried: 'The same with UDP.',
    holds: 'It is refused; own pods do.',
    against: `${HOST}: what is not named does not reach the node.`,
  },
  {
    id: 'host-tcp-strays-over-overlay',
    tried: 'Resets and stray TCP packets reach a worker through the overlay, for a remote pod.',
    holds:
      'None is answered by a reset, which could end a connection of the node; the first packet of a connection is. Each is counted once.',
    against: '`kernel/nft/host-guard.ts`: a reset answers the first packet of a connection, an ICMP error the rest.',
  },
  {
    id: 'node-port-over-overlay',
    tried: 'A pod of another cluster connects to a NodePort at the address of a worker among the pods.',
    holds: 'It is refused, while the pod behind it is reached by its own address, and the port from the node network.',
    against:
      '`routeagent/balance/plan-overlay-guard.ts`, chain `node-port`: what the node translates to somewhere else counts as the node.',
  },
  {
    id: 'host-tcp-from-lane',
    tried: 'A remote pod connects to TCP ports of the gateway node, at its pod-range address, IPv4 and IPv6.',
    holds: 'It is refused, and that is counted; own pods do, and echo is answered.',
    against: LANE_HOST,
  },
  {
    id: 'host-udp-from-lane',
    tried: "The same with UDP, the overlay's port among others.",
    holds: 'It is refused; own pods do.',
    against: LANE_HOST,
  },
  {
    id: 'node-port-from-lane',
    tried: "A remote pod connects to a NodePort at the gateway node's pod-range address.",
    holds: 'It is refused, while the pod behind it is reached by its own address, and the port by own pods.',
    against:
      '`gateway/nft/plan-translation.ts`, chain `node-port`: what the node translates to somewhere else counts as the node.',
  },
  {
    id: 'status-page-from-lane',
    tried: 'A remote pod opens a hundred connections to the status page of a Sealane pod.',
    holds:
      "It gets no answer and holds no place; the node's probes and our own Prometheus are answered; what a user runs at this port in another pod is reached.",
    against:
      '`model/lanes/lane-callers.ts`: who comes by a lane is cut off before it has a place, by the source that gateways check.',
  },
  {
    id: 'broker-page-from-lane',
    tried: 'The same with a broker that runs in a pod of a member.',
    holds: 'The same.',
    against: '`broker/served-clusterset.ts`: it knows the ranges of all members, and among whose pods it runs.',
  },
  {
    id: 'status-page-of-new-member',
    tried: 'A pod of a new member asks the status page of a running `sealane up`.',
    holds: 'It gets no answer once the agent has heard of that member; own pods, this machine and others do.',
    against: '`compose/site/run-site.ts`: it goes by the Cluster objects of that moment.',
  },
  {
    id: 'host-port-named',
    tried: 'A remote pod tries two ports that the operator opened, by other protocols and families.',
    holds: 'Exactly what is named is open.',
    against: '`kernel/nft/host-guard.ts`: protocol, port and address each count.',
  },
  {
    id: 'own-broker-in-range',
    tried: 'A member states IPv4 and IPv6 ranges that hold the broker, and every check accepts them.',
    holds: "A node's own conversation with the broker goes on, and new ones by TCP and UDP reach it, in both families.",
    against: OWN,
  },
  {
    id: 'own-traffic-pods-as-before',
    tried: 'Pods, and the node by its pod-range address, call a pod in such a range.',
    holds: 'They reach it: the range is routed for pods.',
    against: OWN,
  },
  {
    id: 'own-gateway-in-range',
    tried: 'A member states ranges that hold the broker and its own gateway; a gateway calls both.',
    holds: 'The gateway reaches the broker, and its encrypted packets go by the uplink.',
    against: OWN,
  },
]
