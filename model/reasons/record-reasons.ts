/**
 * Reasons about what members state: addresses, records and their limits. The broker validates, and each importer again.
 */
import type { ReasonTable } from './reason-row.ts'

const BROKER = ['refusal by the broker', 'log of the broker', 'log of the agent'] as const
const EXPORT = ['condition Ready of ServiceExport', 'event on ServiceExport'] as const
const LEFT_OUT = 'condition sealane.io/Complete of ServiceExport'
const NODES = ['log of the gateway', 'log of the routeagent'] as const
const IMPORTER = ['log of the agent', ...NODES] as const

export const RECORD_REASONS = {
  InvalidValue: {
    status: 'InvalidArgument',
    means:
      'A field has a value that its form does not allow; the message has the field, the value and what was expected.',
    todo: 'Correct the object that the value comes from. If Sealane made the value, compare the releases and report it.',
    shows: [...BROKER, ...NODES, 'event on Node', 'output of the command'],
  },
  ForeignClaim: {
    status: 'InvalidArgument',
    means: 'A member states something in the name of another cluster, or a record that only the broker may write.',
    todo: 'Compare the releases first. Otherwise the member is broken into or misused: find out by whom.',
    shows: [...BROKER, ...NODES],
  },
  PublicKeyTaken: {
    status: 'InvalidArgument',
    means: 'A gateway states a public key that another cluster stated first.',
    todo: 'Give each gateway a key of its own: do not copy the state of one machine to another.',
    shows: [...BROKER, ...NODES],
  },
  AddressNotReachable: {
    status: 'InvalidArgument',
    means: 'A gateway states an address that other clusters cannot call, or one inside the clusterset.',
    todo: 'Correct the address in the configuration of the gateway or on its Node.',
    shows: BROKER,
  },
  AddressOutsidePods: {
    status: 'InvalidArgument',
    means: "An endpoint of a service has an address outside the cluster's pod CIDRs.",
    todo: 'Complete the pod CIDRs of the cluster with `sealane join`, or take the endpoint out of the Service.',
    shows: [...BROKER, LEFT_OUT],
  },
  HostnameTooLong: {
    status: 'InvalidArgument',
    means: 'The hostname of a pod makes a DNS name that is longer than DNS allows.',
    todo: 'Shorten the hostname, or the name of the service, its namespace or the cluster.',
    shows: [...BROKER, LEFT_OUT],
  },
  RangeSize: {
    status: 'InvalidArgument',
    means: 'A range of addresses is larger or smaller than a cluster may state.',
    todo: 'State the range that the cluster really has.',
    shows: [...BROKER, ...NODES],
  },
  RangeReserved: {
    status: 'InvalidArgument',
    means: 'A range overlaps addresses that the clusterset keeps for itself, or that have a special meaning.',
    todo: 'Give the cluster other addresses, or start the broker with other ranges.',
    shows: [...BROKER, ...NODES],
  },
  RangesOverlap: {
    status: 'InvalidArgument',
    means: 'Two ranges of one cluster overlap each other.',
    todo: 'State ranges that are apart from each other.',
    shows: [...BROKER, ...NODES],
  },
  PublicSpaceNotAllowed: {
    status: 'InvalidArgument',
    means: 'A member states public addresses that its token does not allow.',
    todo: 'If the addresses are really its own, create a token with `--allow-cidr`.',
    shows: BROKER,
  },
  IPv4Missing: {
    status: 'InvalidArgument',
    means: 'The cluster states no IPv4 pod CIDR, and this release connects no pods without IPv4.',
    todo: 'Give the pods IPv4 addresses as well.',
    shows: BROKER,
  },
  RecordLimit: {
    status: 'ResourceExhausted',
    means:
      'The cluster publishes as many Endpoints as a member may have, or declares more records than a broker looks at. ' +
      'A broker of an earlier release says so of records and bytes too.',
    todo: 'Withdraw exports, and remove Endpoints of gateways that are gone.',
    shows: BROKER,
  },
  QuotaRecords: {
    status: 'ResourceExhausted',
    means: 'The broker holds as many records of this cluster as its quota allows, so this export is left out.',
    todo:
      'Withdraw exports, or raise the quota at the broker: `sealane cluster quota ID --records N`. ' +
      'What is left out is then taken by itself.',
    shows: [...BROKER, ...EXPORT, 'metric sealane_broker_quota_refused_records_total'],
  },
  QuotaBytes: {
    status: 'ResourceExhausted',
    means: 'The records of this cluster are as large as its quota allows, so this one is left out, or stays as it was.',
    todo:
      'Withdraw exports, or raise the quota at the broker: `sealane cluster quota ID --bytes N`. ' +
      'What is left out is then taken by itself.',
    shows: [...BROKER, ...EXPORT, 'metric sealane_broker_quota_refused_records_total'],
  },
  QuotaChanges: {
    means: 'A cluster changes more records a second than its quota allows: the broker takes them more slowly.',
    todo:
      'Nothing is lost. Find what changes all the time, or raise the quota at the broker: ' +
      '`sealane cluster quota ID --changes N`.',
    shows: ['log of the broker', 'log of the agent'],
  },
  QuotaStreams: {
    status: 'ResourceExhausted',
    means: 'The cluster has as many streams open at this broker as its quota allows: the newest is refused.',
    todo:
      'Look whether several processes use the identity of this cluster. ' +
      'For other programs of yours raise the quota: `sealane cluster quota ID --streams N`.',
    shows: BROKER,
  },
  RecordChurn: {
    status: 'ResourceExhausted',
    means: 'The cluster has exported and withdrawn too many services within a day.',
    todo: 'Find what creates and removes ServiceExports all the time. The limit is lifted by itself.',
    shows: BROKER,
  },
  RecordTooLarge: {
    status: 'InvalidArgument',
    means: 'One record has more entries than a record may have.',
    todo: 'Compare the releases of the member and the broker, and report it.',
    shows: BROKER,
  },
  ClusterSetIPsExhausted: {
    status: 'ResourceExhausted',
    means: 'The range of clusterset IPs has no free address.',
    todo: 'Withdraw exports, or make services headless. A larger range is given at the first start of a broker: --clusterset-ip-range.',
    shows: BROKER,
  },
  OverlapsOwnRange: {
    means: 'Another cluster claims addresses that this cluster has itself.',
    todo: 'Join the cluster that came later again: the broker then gives it global addresses.',
    shows: IMPORTER,
  },
  OverlapsOtherCluster: {
    means: 'Two other clusters claim the same addresses; the first by name is used.',
    todo: 'Join the cluster that is not used again: the broker then gives it global addresses.',
    shows: NODES,
  },
  OverlapsNeeded: {
    means:
      'Another cluster claims addresses that this one needs outside the lanes, such as those of its nodes or the broker.',
    todo: 'Join one of the two clusters again: the broker then gives the other one global addresses.',
    shows: IMPORTER,
  },
  IndexTaken: {
    means: 'Two clusters have the same number in the clusterset.',
    todo: 'Look at `sealane cluster list` at the broker, and join the younger of the two again.',
    shows: NODES,
  },
  ClusterUnknown: {
    means: 'A service has endpoints in a cluster whose addresses are not known here.',
    todo: 'Wait some seconds. If it stays, look for the reason why that cluster is not used.',
    shows: ['log of the agent'],
  },
  NotExported: {
    means: 'The broker tells an export of this cluster that this cluster does not have.',
    todo: 'Nothing, if it passes. Otherwise look whether another site uses the identity of this one.',
    shows: ['log of the agent'],
  },
  OwnFactsDiffer: {
    means: 'The broker tells addresses or a number of this cluster that this cluster does not state.',
    todo: 'Nothing, if it passes. Otherwise look at the broker: somebody has changed what it holds of this cluster.',
    shows: ['log of the agent'],
  },
  LaneServedByOther: {
    means: 'Two gateways of another cluster claim one lane, and the other one serves it.',
    todo: 'Nothing, if it passes. Otherwise give the two nodes there different lanes.',
    shows: ['log of the gateway'],
  },
  NodeNotUsable: {
    means: 'A node is left out: its Node is missing, or has no InternalIP or no pod range that can be used.',
    todo: 'Correct the Node; the message has the field.',
    shows: ['log of the routeagent', 'status of RouteAgent'],
  },
  UnderlayDeviceMissing: {
    means: 'No network device of this machine has the InternalIP of its Node.',
    todo: 'Correct the addresses of the Node, or start the routeagent with the name of the right node.',
    shows: ['log of the routeagent', 'status of RouteAgent'],
  },
  PodRangeUnknown: {
    means: 'Nothing says where the pods of a node are.',
    todo: 'Look whether the routeagent of that node runs: it tells the range where the Node does not.',
    shows: ['log of the routeagent'],
  },
  PodRangeContested: {
    means: 'Several nodes claim the same range of pods.',
    todo: 'Correct `spec.podCIDR` of the Nodes that the message names.',
    shows: ['log of the routeagent'],
  },
  PodRangeForeign: {
    means: 'A node claims pods of another node, which keeps them.',
    todo: 'Look at the node that claims them: it is misconfigured or broken into.',
    shows: ['log of the routeagent'],
  },
  MtuTooSmallForIPv6: {
    means: 'The overlay between the nodes carries packets that are too small for IPv6, so that only IPv4 is routed.',
    todo: 'Raise the MTU of the network between the nodes; the message has the numbers.',
    shows: ['log of the routeagent'],
  },
  IPv6NotInKernel: {
    means: 'The kernel of the node has no IPv6, so that only IPv4 is routed.',
    todo: 'Start the node without `ipv6.disable=1`, or leave it as it is.',
    shows: ['log of the gateway', 'log of the routeagent'],
  },
  ServicesOverPods: {
    means:
      'Service addresses of one member overlap pods of another that were there before: the two do not reach each other.',
    todo: 'Let the cluster with the pods leave and join again: as the later one it gets global addresses.',
    shows: ['log of the broker'],
  },
  AddressesNotAsStated: {
    means: 'The broker does not use addresses of this cluster as the cluster states them; the note says which and why.',
    todo: 'Nothing, if the pods have global addresses. Otherwise read the note.',
    shows: ['log of the agent'],
  },
  IPv6NotCarried: {
    means: 'Other clusters reach this one by IPv4 only, because its IPv6 addresses overlap those of another member.',
    todo: 'Give the cluster other IPv6 addresses, or leave it as it is: IPv6 is never translated.',
    shows: ['log of the agent'],
  },
  LinesOmitted: {
    means: 'More was left out at once than the log tells line by line.',
    todo: 'Mend what the lines before it tell; what remains is told then.',
    shows: ['log of the agent'],
  },
} as const satisfies ReasonTable
