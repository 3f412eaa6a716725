/** Reasons about lanes, gateways and other clusters as a whole. */
import type { ReasonTable } from './reason-row.ts'

export const LANE_REASONS = {
  LaneUp: {
    means: 'A lane to the cluster answers probes.',
    todo: 'Nothing.',
    shows: ['condition Connected of Cluster', 'event on Gateway'],
  },
  SeveralGateways: {
    means: 'More than one gateway of this cluster has a link to the other cluster that is up.',
    todo: 'Nothing.',
    shows: ['condition GatewaysRedundant of Cluster'],
  },
  OneGatewayOnly: {
    means: 'One gateway of this cluster has a link to the other cluster that is up, or none has.',
    todo: 'Label another node with a lane number of its own, or look why links of the other gateways are not up.',
    shows: ['condition GatewaysRedundant of Cluster', 'output of the command'],
  },
  LanesUp: {
    means: 'All links of the gateway answer probes.',
    todo: 'Nothing.',
    shows: ['condition Ready of Gateway'],
  },
  SomeLinksDown: {
    means: 'Every other cluster is reached, but not over every link that the gateway should have.',
    todo: 'Look at the connections that are not up: one more loss may cut a cluster off.',
    shows: ['condition Ready of Gateway'],
  },
  LaneDown: {
    means: 'A lane that was up answers no probes any more.',
    todo: 'Look at the Gateway: the message of the connection says what was seen last.',
    shows: ['event on Gateway'],
  },
  LinkFlaps: {
    means: 'A link went down again and again, and is held out of use for some time where there is another way.',
    todo: 'Look for what cuts the two gateways off from each other time and again. It is used again by itself.',
    shows: ['status of Gateway', 'event on Gateway', 'log of the gateway'],
  },
  LinkSteady: {
    means: 'A link that was held out of use has stayed up, and is used again.',
    todo: 'Nothing.',
    shows: ['event on Gateway'],
  },
  PathMtuReduced: {
    means: 'Large packets do not get through a link, and no router on the way says so.',
    todo:
      'Nothing is needed: TCP and the routes follow. A program that sends larger UDP packets is told by ICMP. To have ' +
      'the old size back, let ICMP type 3 code 4 through, and look for a tunnel or a narrow network on the way.',
    shows: ['event on Gateway', 'status of Gateway'],
  },
  PathMtuRestored: {
    means: 'Packets of the full size get through a link again.',
    todo: 'Nothing.',
    shows: ['event on Gateway'],
  },
  LaneProbeTimeout: {
    means: 'A lane that was up answers no probes.',
    todo: 'Check that UDP passes between the two gateways, and that the gateway at the other end runs.',
    shows: ['condition Connected of Cluster', 'condition Ready of Gateway'],
  },
  LaneConnecting: {
    means: 'The gateways have not completed a handshake yet.',
    todo: 'Check that one of the two gateways can be called by UDP from outside. The message names the far one.',
    shows: ['condition Connected of Cluster', 'condition Ready of Gateway'],
  },
  NothingFlows: {
    means: 'The gateway is about to go, and carried nothing in the last 10 s: its node may be switched off.',
    todo: 'Nothing.',
    shows: ['condition Drained of Gateway', 'event on Gateway'],
  },
  StillCarries: {
    means: 'The gateway is about to go, and carried traffic in the last 10 s.',
    todo: 'Wait. If it stays so, no other gateway of this cluster has a link to the clusters that are named.',
    shows: ['condition Drained of Gateway'],
  },
  KeyAnnounced: {
    means: 'The gateway has a next key, and waits until the gateways of the other clusters have learnt it.',
    todo: 'Nothing. It takes some seconds, and a minute at most.',
    shows: ['condition KeysRotated of Gateway'],
  },
  FarEndsWithoutKey: {
    means:
      'The key is not made anew now: gateways of other clusters have not learnt the next one. It is tried again every ' +
      'five minutes, and done without them after a day.',
    todo: 'Look whether this cluster and those that are named have a connection to the broker.',
    shows: ['condition KeysRotated of Gateway', 'log of the gateway'],
  },
  OtherGatewayRotates: {
    means: 'The key is made anew after that of another gateway of this cluster: not two at once.',
    todo: 'Nothing.',
    shows: ['condition KeysRotated of Gateway'],
  },
  KeyRotated: {
    means: 'The gateway has made its key anew.',
    todo: 'Nothing.',
    shows: ['condition KeysRotated of Gateway'],
  },
  GatewayDraining: {
    means: 'The gateway is about to go, and traffic leaves it.',
    todo: 'Nothing. The condition `Drained` says when nothing flows any more.',
    shows: ['event on Gateway'],
  },
  GatewayUndrained: {
    means: 'The gateway was about to go, and takes traffic again.',
    todo: 'Nothing.',
    shows: ['event on Gateway'],
  },
  LaneTaken: {
    means: 'The node has become the gateway of a lane; the note says why.',
    todo: 'Nothing, or look at the node that had the lane before.',
    shows: ['event on Node'],
  },
  LaneNotMade: {
    means:
      'Nothing of the lane can be made on its node, mostly because another program has its port; the note says which.',
    todo: 'End that program, or let it have another port. A node that stands by takes the lane after ten seconds.',
    shows: ['event on Node', 'log of the gateway'],
  },
  LaneHandedOver: {
    means: 'Another node has the lane of this one, which goes on until that carries.',
    todo: 'Nothing.',
    shows: ['event on Node'],
  },
  ClusterReached: {
    means: 'A link to the cluster is up, after none was.',
    todo: 'Nothing.',
    shows: ['event on Cluster'],
  },
  ClusterCutOff: {
    means: 'No link to the cluster is up any more, by none of the gateways.',
    todo: 'Look at the condition `Connected` of the Cluster, and at `sealane show connections`.',
    shows: ['event on Cluster'],
  },
  NoLane: {
    means: 'No gateway of this cluster has a lane there, or this node serves no lane.',
    todo: 'Check that a node has the gateway label, and that the other cluster has a gateway.',
    shows: ['condition Connected of Cluster', 'condition Ready of Gateway'],
  },
  FarGatewayAwaited: {
    means: 'Another cluster has published no gateway, so that no link to it can be made yet.',
    todo: 'Wait, if it has just joined or begun. If it stays, look there: `sealane status` says why it has no gateway.',
    shows: ['condition Connected of Cluster', 'output of the command'],
  },
  Starting: {
    means: 'All parts of this cluster have just started: gateways, routes and links come within two minutes.',
    todo: 'Wait two minutes. What stays then is named by its own reason.',
    shows: ['output of the command'],
  },
  NoGateway: {
    means: 'No node of this cluster is a gateway, so that it reaches no other cluster.',
    todo: 'Label a node: `kubectl label node NODE sealane.io/gateway=true`. On a plain site name it in `site.yaml`.',
    shows: ['condition Connected of Cluster', 'output of the command'],
  },
  GatewayWithoutIPv4: {
    means: 'A node has the gateway label, but no InternalIP that is IPv4, so that it takes no lane.',
    todo: 'Give the node an IPv4 InternalIP, or label another one and take the label off this one.',
    shows: ['event on Node', 'log of the gateway', 'output of the command'],
  },
  NoOtherCluster: {
    means: 'The gateway runs, and there is no gateway of another cluster that it can have a link with.',
    todo: 'Nothing, or join another cluster. If one has joined, look for `OtherLaneOnly` in the log of the gateway.',
    shows: ['condition Ready of Gateway'],
  },
  OtherLaneOnly: {
    means: 'A gateway of another cluster is of a release that links with gateways of its own lane number alone.',
    todo: 'Update Sealane in that cluster. Until then its traffic takes the gateways of equal numbers.',
    shows: ['log of the gateway'],
  },
  RoundFailed: {
    means: 'A component could not finish a round of its work and tries again; the message says why.',
    todo: 'Read the message. Mostly an API server or the kernel refused a call.',
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
    means: 'The gateway has not renewed its status, so that what it said last may be wrong.',
    todo: 'Look at the gateway pod on the node that the message names.',
    shows: ['condition Ready of Gateway', 'condition Connected of Cluster'],
  },
  GatewaySilent: {
    means: 'A gateway has stopped to report.',
    todo: 'Look at the gateway pod of that node, and at the node.',
    shows: ['event on Gateway'],
  },
  GatewayHeard: {
    means: 'The gateway reports again.',
    todo: 'Nothing.',
    shows: ['event on Gateway'],
  },
  LaneNotHandedOver: {
    means: 'The node that serves the lane is about to go, and no other node takes the lane.',
    todo: 'Give another node the gateway label of the lane; the note has it.',
    shows: ['event on Node', 'log of the gateway'],
  },
  LaneHolderSilent: {
    means:
      'A gateway does not renew its hold on a lane, but its machine answers, so that no other node takes the lane.',
    todo: 'Look at the gateway of that node. A cordon, or the label `sealane.io/drain`, gives the lane to another node.',
    shows: ['event on Node', 'log of the gateway'],
  },
  Heard: {
    means: 'The cluster is connected to the broker.',
    todo: 'Nothing.',
    shows: ['condition InContact of Cluster'],
  },
  Silent: {
    means: 'The cluster has had no connection to the broker for some time.',
    todo: "Look at that cluster's agent. If the cluster is gone for good, evict it at the broker.",
    shows: ['condition InContact of Cluster'],
  },
  ContactLost: {
    means: 'The cluster was silent for so long that its services are taken out.',
    todo: "Look at that cluster's agent and gateway.",
    shows: ['event on Cluster', 'log of the agent'],
  },
  ContactRestored: {
    means: 'The cluster is in contact again, and its services are back.',
    todo: 'Nothing.',
    shows: ['event on Cluster'],
  },
  Answers: {
    means: "The cluster's own DNS hands clusterset.local to Sealane.",
    todo: 'Nothing.',
    shows: ['condition ClusterDNS of Cluster'],
  },
  DoesNotAnswer: {
    means: "The cluster's own DNS does not hand clusterset.local to Sealane; the message has its answer.",
    todo: 'Run `sealane join` again, or add the zone to the configuration of the DNS by hand.',
    shows: ['condition ClusterDNS of Cluster', 'log of the agent'],
  },
  GlobalAddressesGiven: {
    means: 'Pods of this cluster have global addresses from now on, because another member has the same addresses.',
    todo: 'Expect connections by the former addresses to end. Callers by name need nothing.',
    shows: ['event on Membership', 'log of the agent'],
  },
  MembersRenumbered: {
    means: 'Other members got global addresses because this cluster joined.',
    todo: 'Tell the people of those members; connections to their former addresses end.',
    shows: ['event on Membership', 'log of the agent'],
  },
  LaneHolderLost: {
    means: 'The gateway that holds a lane is gone, or its machine is, so that another node may take the lane.',
    todo: 'Look at the node that the line names.',
    shows: ['event on Node', 'log of the gateway'],
  },
  LeaseNotRenewed: {
    means: 'A gateway could not renew its hold on a lane, or an agent its leadership; the message says why.',
    todo: 'Look whether the API server answers, and whether the service account may update Leases. At a site: whether the state directory can be written.',
    shows: ['log of the gateway', 'log of the agent'],
  },
  ProbeSocketFailed: {
    means: 'The gateway cannot open the socket by which it probes a lane. It tries again by itself.',
    todo: 'Find out who took the address of the lane device from it, or the port that the message names.',
    shows: ['log of the gateway'],
  },
  ContactUnknown: {
    means: 'The agent could not read in time when each cluster was heard last, so that it takes none as dead.',
    todo: 'Nothing, if it passes. Otherwise look why the API server does not answer.',
    shows: ['log of the agent'],
  },
} as const satisfies ReasonTable
