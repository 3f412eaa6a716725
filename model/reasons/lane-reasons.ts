/** Reasons about lanes, gateways and other clusters as a whole. */
import type { ReasonTable } from './reason-row.ts'

export const LANE_REASONS = {
  LaneUp: {
    means: 'A lane to the cluster answers probes.',
    todo: 'Nothing.',
    shows: ['condition Connected of Cluster', 'event on Gateway'],
  },
  SeveralGateways: {
    means: 'Several gateways of this cluster have a link to the other cluster that is up.',
    todo: 'Nothing.',
    shows: ['condition GatewaysRedundant of Cluster'],
  },
  OneGatewayOnly: {
    means: 'At most one gateway of this cluster has a link to the other cluster.',
    todo: 'Label another node, or find why links of other gateways are down.',
    shows: ['condition GatewaysRedundant of Cluster', 'output of the command'],
  },
  LanesUp: {
    means: 'All links of the gateway answer probes.',
    todo: 'Nothing.',
    shows: ['condition Ready of Gateway'],
  },
  SomeLinksDown: {
    means: 'Every other cluster is reached, but some links of the gateway are down.',
    todo: 'Check those: one more loss may cut a cluster off.',
    shows: ['condition Ready of Gateway'],
  },
  NotLinkedByTopology: {
    means: 'The topology of the clusterset does not link the two clusters.',
    todo: 'If they should link, change it at the broker: `sealane topology show`.',
    shows: ['log of the agent', 'output of the command'],
  },
  LaneDown: {
    means: 'A lane that was up no longer answers probes.',
    todo: 'Check the Gateway: the message of the connection says what was seen last.',
    shows: ['event on Gateway'],
  },
  LinkFlaps: {
    means: 'A link went down repeatedly: Sealane avoids it for some time if another exists.',
    todo: 'Find what interrupts the network between the gateways.',
    shows: ['status of Gateway', 'event on Gateway', 'log of the gateway'],
  },
  LinkSteady: {
    means: 'A link that flapped has stayed up, and is used again.',
    todo: 'Nothing.',
    shows: ['event on Gateway'],
  },
  PathMtuReduced: {
    means: 'A link drops large packets, and no router reports it.',
    todo: 'Nothing: TCP and routes adapt. To restore the size, allow ICMP type 3 code 4.',
    shows: ['event on Gateway', 'status of Gateway'],
  },
  PathMtuRestored: {
    means: 'Packets of the full size pass a link again.',
    todo: 'Nothing.',
    shows: ['event on Gateway'],
  },
  LaneProbeTimeout: {
    means: 'A lane that was up answers no probes.',
    todo: 'Check that UDP passes between the two gateways, and that the remote gateway runs.',
    shows: ['condition Connected of Cluster', 'condition Ready of Gateway', 'status of Gateway'],
  },
  NatMappingKept: {
    means: 'Two relays see a gateway at one address and port: its NAT, if any, keeps ports.',
    todo: 'Nothing.',
    shows: ['condition NatMappingKept of Gateway'],
  },
  NatMappingVaries: {
    means: 'A gateway is behind a symmetric NAT: another port for each destination.',
    todo: 'Nothing, if relays suffice. Otherwise set the NAT to keep ports, or forward the UDP ports of the gateway.',
    shows: ['condition NatMappingKept of Gateway'],
  },
  BehindNat: {
    means: 'Others see a gateway at an address that it does not have. The message describes the NAT.',
    todo: 'Nothing, if its links are up.',
    shows: ['condition BehindNat of Gateway'],
  },
  BehindSymmetricNat: {
    means: 'A gateway is behind a symmetric NAT: another port for each destination.',
    todo: 'Nothing, if relays suffice. Otherwise set the NAT to keep ports, or forward the UDP ports of the gateway.',
    shows: ['condition BehindNat of Gateway'],
  },
  BehindCarrierNat: {
    means:
      'A gateway is behind the NAT of a carrier (CGNAT: 100.64.0.0/10), or a second one: ports that its own router opens lead nowhere.',
    todo: 'Nothing, if relays suffice. Otherwise ask the carrier for a public address.',
    shows: ['condition BehindNat of Gateway'],
  },
  NatForgetsSoon: {
    means: 'A NAT forgets UDP mappings within 10 s, so its gateway sends keepalives every 5 s.',
    todo: 'Set its UDP timeout to 120 s or more (RFC 4787).',
    shows: ['condition BehindNat of Gateway'],
  },
  UdpBlocked: {
    means: 'Links of a gateway are up over port 443 only, although some far ends can be called from outside.',
    todo: 'For faster links, let UDP out to the other gateways.',
    shows: ['condition BehindNat of Gateway'],
  },
  UdpRateLimited: {
    means: 'UDP bursts of a gateway to two relays are dropped in part, single packets are not.',
    todo: 'Raise the UDP limit at the router or firewall.',
    shows: ['condition BehindNat of Gateway'],
  },
  NatLetsInAnyone: {
    means: 'The NAT lets in any sender.',
    todo: 'Nothing.',
    shows: ['condition NatFilters of Gateway'],
  },
  NatLetsInKnownAddresses: {
    means: 'The NAT lets in addresses to which the gateway has sent.',
    todo: 'Nothing.',
    shows: ['condition NatFilters of Gateway'],
  },
  NatLetsInKnownPorts: {
    means: 'The NAT lets in ports to which the gateway has sent.',
    todo: 'Nothing.',
    shows: ['condition NatFilters of Gateway'],
  },
  NatHairpinWorks: {
    means: 'The NAT leads packets to its address outside back inside.',
    todo: 'Nothing.',
    shows: ['condition NatHairpins of Gateway'],
  },
  NatHairpinMissing: {
    means: 'The NAT leads no packets back inside: gateways behind it need a common network or a relay.',
    todo: 'Nothing.',
    shows: ['condition NatHairpins of Gateway'],
  },
  PortMapped: {
    means: 'The router in front of a gateway leads calls from outside to it.',
    todo: 'Nothing.',
    shows: ['condition PortMapped of Gateway'],
  },
  PortMappingRefused: {
    means: 'The router refuses to map a port to a gateway that cannot be called (PCP, NAT-PMP).',
    todo: 'Nothing, if relays suffice. Otherwise allow it, or forward the UDP ports of the gateway.',
    shows: ['condition PortMapped of Gateway'],
  },
  PortMappingNotBelieved: {
    means: 'The router in front of a gateway maps a port at another address than the broker sees.',
    todo: 'Nothing, if relays suffice. Mostly another NAT follows: forward the UDP ports there.',
    shows: ['condition PortMapped of Gateway'],
  },
  RouterMapsNoPorts: {
    means: 'The router of a gateway that cannot be called answers neither PCP nor NAT-PMP.',
    todo: 'Nothing, if relays suffice. Otherwise switch one on, or forward the UDP ports of the gateway.',
    shows: ['condition PortMapped of Gateway'],
  },
  BothNatsVary: {
    means: 'A link stays relayed: the NATs of both ends give each destination another port.',
    todo: 'To avoid the relay, set one NAT to keep ports, or forward the UDP ports of one gateway.',
    shows: ['status of Gateway'],
  },
  RelayedByTopology: {
    means: 'The topology lets two clusters link through relays of other members only.',
    todo: 'Nothing. To link them directly, change the topology.',
    shows: ['status of Gateway'],
  },
  TransitRelayMissing: {
    means: 'The topology lets only relays of some members carry a link, and none has both ends.',
    todo: '`sealane topology plan` shows which have no relay, or do not link with both.',
    shows: ['status of Gateway'],
  },
  PunchUnanswered: {
    means: 'A link stays relayed: probes between the outside addresses of its ends get no answer.',
    todo: 'Nothing: it is tried again. To avoid the relay, forward the UDP ports of one gateway.',
    shows: ['status of Gateway'],
  },
  UdpUnanswered: {
    means: 'A link stays on port 443: probes by UDP between the two ends get no answer.',
    todo: 'Nothing: it is tried again. For more throughput, let the UDP ports of the gateways pass.',
    shows: ['status of Gateway'],
  },
  PublicNameResolved: {
    means: 'The public name of a gateway resolves, and the gateway publishes its addresses.',
    todo: 'Nothing.',
    shows: ['condition PublicNameResolved of Gateway'],
  },
  PublicNameUnresolved: {
    means: 'The public name of a gateway does not resolve. Its last addresses stay.',
    todo: 'Check the name, and the system resolver of the gateway node.',
    shows: ['condition PublicNameResolved of Gateway', 'log of the gateway'],
  },
  PublicNameUnusable: {
    means: 'The public name of a gateway has addresses that others cannot call (loopback, IPv6, pods).',
    todo: 'Correct the A records of the name. Gateways are called by IPv4.',
    shows: ['condition PublicNameResolved of Gateway', 'log of the gateway'],
  },
  RelayAddressShared: {
    means: 'Several relays on port 443 answer at one address. Gateways meet only at the same one.',
    todo: 'Give each relay an address of its own, with a key of its own, and name all at the broker.',
    shows: ['status of Gateway', 'log of the gateway'],
  },
  RelayForeignClusterset: {
    means: 'A relay on port 443 does not trust the authority of this clusterset.',
    todo: 'Start `sealane relay serve` with `--ca` and the `ca.crt` of this clusterset.',
    shows: ['status of Gateway', 'log of the gateway'],
  },
  RelayRefused: {
    means: 'A relay on port 443 does not let this gateway in.',
    todo: 'The message says why. If the relay is full, run another one, and name both at the broker.',
    shows: ['status of Gateway', 'log of the gateway'],
  },
  RelayUnreachable: {
    means: 'A relay on port 443 cannot be reached, or is not the one that its address states.',
    todo: 'Check its address and pin (`sealane broker relay list`), the firewall, and `HTTPS_PROXY` of the gateway.',
    shows: ['status of Gateway', 'log of the gateway'],
  },
  RelayWrongClock: {
    means: 'The clocks of this cluster and of a relay on port 443 differ by more than five minutes.',
    todo: 'Set the wrong clock: gateway, agent or relay.',
    shows: ['status of Gateway', 'log of the gateway'],
  },
  PublicPortsOverlap: {
    means: 'Two gateways of this cluster have one public address, and their ports overlap.',
    todo: 'Give each of them eight ports of its own: `sealane.io/public-port`, or `publicPort` in site.yaml.',
    shows: ['log of the gateway'],
  },
  LaneConnecting: {
    means: 'The gateways have not completed a handshake yet.',
    todo: 'Check that one of the two gateways accepts UDP from outside.',
    shows: ['condition Connected of Cluster', 'condition Ready of Gateway', 'status of Gateway'],
  },
  NothingFlows: {
    means: 'The gateway is draining, and carried nothing in the last 10 s: you may switch off its node.',
    todo: 'Nothing.',
    shows: ['condition Drained of Gateway', 'event on Gateway'],
  },
  StillCarries: {
    means: 'The gateway is draining, and carried traffic in the last 10 s.',
    todo: 'Wait. If it lasts, no other gateway has a link there.',
    shows: ['condition Drained of Gateway'],
  },
  KeyAnnounced: {
    means: 'The gateway has a next key, and waits until the remote gateways know it.',
    todo: 'Nothing. It takes a minute at most.',
    shows: ['condition KeysRotated of Gateway'],
  },
  FarEndsWithoutKey: {
    means: 'Key rotation waits for remote gateways that do not know the next key, for a day at most.',
    todo: 'Check that this cluster and theirs reach the broker.',
    shows: ['condition KeysRotated of Gateway', 'log of the gateway'],
  },
  OtherGatewayRotates: {
    means: 'The key rotation waits for another gateway of this cluster to finish.',
    todo: 'Nothing.',
    shows: ['condition KeysRotated of Gateway'],
  },
  KeyRotated: {
    means: 'The gateway has rotated its key.',
    todo: 'Nothing.',
    shows: ['condition KeysRotated of Gateway'],
  },
  GatewayDraining: {
    means: 'The gateway is draining: traffic moves to other gateways.',
    todo: 'Nothing.',
    shows: ['event on Gateway'],
  },
  GatewayUndrained: {
    means: 'The gateway no longer drains, and accepts traffic again.',
    todo: 'Nothing.',
    shows: ['event on Gateway'],
  },
  LaneTaken: {
    means: 'The node became the gateway of a lane; the note has the cause.',
    todo: 'Nothing, or check the node that had the lane before.',
    shows: ['event on Node'],
  },
  LaneNotMade: {
    means: 'The node cannot set up its lane: mostly, another program has its port.',
    todo: 'Stop that program, or change its port. A standby takes the lane after ten seconds.',
    shows: ['event on Node', 'log of the gateway'],
  },
  LaneHandedOver: {
    means: 'Another node took over the lane; this gateway keeps working until that one carries traffic.',
    todo: 'Nothing.',
    shows: ['event on Node'],
  },
  ClusterReached: {
    means: 'A link to the cluster is up again.',
    todo: 'Nothing.',
    shows: ['event on Cluster'],
  },
  ClusterCutOff: {
    means: 'No gateway has a link to the cluster that is up.',
    todo: 'Check the condition `Connected` of the Cluster, and `sealane show connections`.',
    shows: ['event on Cluster'],
  },
  NoLane: {
    means: 'No gateway of this cluster has a lane there, or this node serves no lane.',
    todo: 'Check that a node has the gateway label, and that the other cluster has a gateway.',
    todoAtSite: 'Check that `sealane up` runs on a node of `spec.gateways`, and that the other cluster has a gateway.',
    shows: ['condition Connected of Cluster', 'condition Ready of Gateway'],
  },
  FarGatewayAwaited: {
    means: 'Another cluster has published no gateway, so no link to it is possible yet.',
    todo: 'Wait, if it has just joined. If it lasts, run `sealane status` there.',
    shows: ['condition Connected of Cluster', 'output of the command'],
  },
  Starting: {
    means: 'All parts of this cluster have just started.',
    todo: 'Wait two minutes. What is still wrong then has its own code.',
    shows: ['output of the command'],
  },
  NoGateway: {
    means: 'No node of this cluster is a gateway, so it reaches no other cluster.',
    todo: 'Label a node: `kubectl label node NODE sealane.io/gateway=true`. On a plain site, name it in `site.yaml`.',
    todoAtSite: 'Name a node in `spec.gateways` of the site file, and start `sealane up --node NAME` on it.',
    shows: ['condition Connected of Cluster', 'output of the command'],
  },
  GatewayReplaced: {
    means:
      'A gateway node that `sealane join` chose is gone, goes or was silent for 10 minutes: another took its place.',
    todo: 'Nothing. To choose the gateways yourself, label the nodes.',
    shows: ['event on Node', 'condition GatewaysChosen of Cluster'],
  },
  GatewayChosen: {
    means: 'Fewer nodes than `activeGateways` were gateways: by `gateway.replace: missing` the agent chose one.',
    todo: 'Nothing. To choose the gateways yourself, label the nodes.',
    shows: ['event on Node', 'condition GatewaysChosen of Cluster'],
  },
  GatewayNotReplaced: {
    means: 'A gateway node that `sealane join` chose is gone, and no other can take its place.',
    todo: 'Add a Linux node with IPv4, or uncordon one. The agent labels it within a minute.',
    shows: ['event on Membership', 'condition GatewaysChosen of Cluster', 'log of the agent', 'output of the command'],
  },
  GatewaysThere: {
    means: 'All gateway nodes that `sealane join` chose are there.',
    todo: 'Nothing.',
    shows: ['condition GatewaysChosen of Cluster'],
  },
  GatewayWithoutIPv4: {
    means: 'A node with the gateway label has no IPv4 InternalIP, so it takes no lane.',
    todo: 'Give it one, or move the label to another node.',
    todoAtSite:
      'Give the Node an IPv4 InternalIP in its file, or name another node in `spec.gateways` of the site file.',
    shows: ['event on Node', 'log of the gateway', 'output of the command'],
  },
  NoOtherCluster: {
    means: 'No other cluster has a gateway that this one can link to.',
    todo: "Nothing, or join another cluster. If one has joined, look for `OtherLaneOnly` in the gateway's log.",
    shows: ['condition Ready of Gateway'],
  },
  OtherLaneOnly: {
    means: "A remote gateway's release links only with gateways of its own lane number.",
    todo: 'Update Sealane in that cluster.',
    shows: ['log of the gateway'],
  },
  RoundFailed: {
    means: 'A component could not finish its work, and retries.',
    todo: 'Read the message: mostly an API server or the kernel refused a call.',
    shows: [
      'condition Ready of Gateway',
      'status of Gateway',
      'status of RouteAgent',
      'log of the broker',
      'log of the agent',
      'log of the gateway',
      'log of the routeagent',
    ],
  },
  GatewayStatusStale: {
    means: 'The gateway has not renewed its status, which may be outdated.',
    todo: 'Check the gateway pod on that node.',
    todoAtSite: 'Check that `sealane up` runs on that node.',
    shows: ['condition Ready of Gateway', 'condition Connected of Cluster'],
  },
  GatewaySilent: {
    means: 'A gateway has stopped reporting.',
    todo: 'Check the gateway pod of that node, and the node.',
    todoAtSite: 'Check that `sealane up` runs on that node, and the machine.',
    shows: ['event on Gateway'],
  },
  GatewayHeard: {
    means: 'The gateway reports again.',
    todo: 'Nothing.',
    shows: ['event on Gateway'],
  },
  LaneNotHandedOver: {
    means: 'The node that serves the lane is draining, and no other takes it.',
    todo: 'Give another node the gateway label of the lane.',
    todoAtSite: 'Name another node in `spec.gateways` of the site file, and start `sealane up` on it.',
    shows: ['event on Node', 'log of the gateway'],
  },
  LaneHolderSilent: {
    means: 'A gateway does not renew its lease, but its machine answers: no other takes the lane.',
    todo: 'Check that gateway. A cordon, or the label `sealane.io/drain`, moves the lane.',
    todoAtSite:
      'Check `sealane up` on that node. To move the lane to another node: `sealane gateway drain NODE --site site.yaml`.',
    shows: ['event on Node', 'log of the gateway'],
  },
  Heard: {
    means: 'The cluster is connected to the broker.',
    todo: 'Nothing.',
    shows: ['condition InContact of Cluster'],
  },
  Silent: {
    means: 'The cluster has had no contact with the broker for some time.',
    todo: 'Check its agent. If the cluster is gone for good, evict it at the broker.',
    shows: ['condition InContact of Cluster'],
  },
  ContactLost: {
    means: 'The cluster was out of contact too long: its services are removed.',
    todo: 'Check the agent and gateway of that cluster.',
    shows: ['event on Cluster', 'log of the agent'],
  },
  ContactRestored: {
    means: 'The cluster is in contact again, and its services are back.',
    todo: 'Nothing.',
    shows: ['event on Cluster'],
  },
  Answers: {
    means: "The cluster's DNS forwards clusterset.local to Sealane.",
    todo: 'Nothing.',
    shows: ['condition ClusterDNS of Cluster'],
  },
  DoesNotAnswer: {
    means: "The cluster's DNS does not forward clusterset.local to Sealane.",
    todo: 'Run `sealane join` again, or add the zone to the DNS by hand.',
    shows: ['condition ClusterDNS of Cluster', 'log of the agent'],
  },
  ClusterDnsTaken: {
    means: "Another server answers clusterset.local in the cluster's DNS.",
    todo: 'Remove that server if nothing needs it. Then run `sealane join` again.',
    shows: ['output of the command', 'condition ClusterDNS of Cluster'],
  },
  ClusterDnsUnreadable: {
    means: "The settings of the cluster's DNS cannot be read, so Sealane did not change them.",
    todo: 'Mend them, or add the block by hand (docs/operations.md, "Cluster DNS").',
    shows: ['output of the command', 'condition ClusterDNS of Cluster'],
  },
  ClusterDnsAbsent: {
    means: "An object that should have the settings of the cluster's DNS does not exist.",
    todo: 'Find out which server answers DNS here, and configure it by hand.',
    shows: ['output of the command', 'condition ClusterDNS of Cluster'],
  },
  ClusterDnsOutOfReach: {
    means: "No object of the cluster configures the cluster's DNS.",
    todo: 'As advised, configure the DNS of the provider, or single workloads.',
    shows: ['output of the command', 'condition ClusterDNS of Cluster'],
  },
  ClusterDnsReverted: {
    means: "Another client keeps removing Sealane's block from the settings of the cluster's DNS.",
    todo: 'Add it where that client has its settings from (docs/operations.md, "Cluster DNS").',
    shows: ['condition ClusterDNS of Cluster', 'log of the agent'],
  },
  ClusterDnsNotMended: {
    means: "The cluster's DNS has lost Sealane's block, and the agent cannot put it back.",
    todo: 'Run `sealane join` again.',
    shows: ['condition ClusterDNS of Cluster', 'log of the agent'],
  },
  ClusterDnsMended: {
    means: "Sealane's block was removed from the cluster's DNS, and the agent put it back.",
    todo: 'Nothing.',
    shows: ['event on Cluster', 'log of the agent'],
  },
  DnsCacheOutOfReach: {
    means: "A cache answers pods for the cluster's DNS, and its settings cannot be changed.",
    todo: 'Add the zone where the settings of the cache come from.',
    shows: ['output of the command', 'condition ClusterDNS of Cluster'],
  },
  DnsCacheNotCoreDNS: {
    means: "A cache that is not CoreDNS answers pods in place of the cluster's DNS: Sealane cannot write its settings.",
    todo: 'Make it forward clusterset.local to Service sealane-system/sealane-dns.',
    shows: ['output of the command', 'condition ClusterDNS of Cluster'],
  },
  DnsCacheUnreadable: {
    means: "A cache answers pods for the cluster's DNS, and its Corefile was not found.",
    todo: 'Add the block where its Corefile comes from (docs/operations.md, "Cluster DNS").',
    shows: ['output of the command', 'condition ClusterDNS of Cluster'],
  },
  PodsInsideRanges: {
    means: 'Pods have addresses inside the pod CIDRs of the cluster.',
    todo: 'Nothing.',
    shows: ['condition PodAddresses of Cluster'],
  },
  PodsOutsideRanges: {
    means: 'Other clusters do not reach pods outside the pod CIDRs of the cluster.',
    todo: 'Run `sealane join` with `--pod-cidr` for each network, old and new. On a plain site, complete podCIDRs.',
    shows: ['condition PodAddresses of Cluster', 'log of the agent'],
  },
  GlobalAddressesGiven: {
    means: 'Pods of this cluster now have global addresses: another member has the same ones.',
    todo: 'Connections to the former addresses end. Callers by name are not affected.',
    shows: ['event on Membership', 'log of the agent'],
  },
  MembersRenumbered: {
    means: 'Other members got global addresses because this cluster joined.',
    todo: 'Tell their operators: connections to their former addresses end.',
    shows: ['event on Membership', 'log of the agent'],
  },
  LaneHolderLost: {
    means: 'The gateway that holds a lane is gone, so another node may take it.',
    todo: 'Check the node that the line names.',
    shows: ['event on Node', 'log of the gateway'],
  },
  LeaseNotRenewed: {
    means: 'A gateway could not renew its lease, or an agent its leadership.',
    todo: 'Check the API server and the right to update Leases; at a site, that the state directory is writable.',
    shows: ['log of the gateway', 'log of the agent'],
  },
  ProbeSocketFailed: {
    means: 'The gateway cannot open its probe socket for a lane, and retries.',
    todo: 'Find what uses the address of the lane device, or the port.',
    shows: ['log of the gateway'],
  },
  ContactUnknown: {
    means: 'The agent could not read in time when clusters were in contact: none counts as lost.',
    todo: 'If it lasts, find why the API server does not answer.',
    shows: ['log of the agent'],
  },
} as const satisfies ReasonTable
