/**
 * Reasons about what members state: addresses, records and their limits. The broker validates it, and each importer
 * validates it again.
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
    means: 'A field has an invalid value.',
    todo: 'Correct the object. If Sealane made it, compare the releases and report it.',
    shows: [...BROKER, ...NODES, 'event on Node', 'output of the command'],
  },
  NotOffered: {
    means: 'The broker sent a service that its cluster does not offer to this one. It is not imported.',
    todo: 'Upgrade a broker of an earlier release. Any other is compromised.',
    shows: ['log of the agent'],
  },
  OffersReviewed: {
    status: 'FailedPrecondition',
    means: 'Broker replicas of an earlier release came or went: the stream starts again.',
    todo: 'Nothing.',
    shows: BROKER,
  },
  OffersNotSupported: {
    status: 'FailedPrecondition',
    means: 'A broker replica is of a release that gives exports to all members, so restricted ones are not published.',
    todo: 'Upgrade the broker, all replicas of it.',
    shows: ['log of the agent', 'log of the broker', ...EXPORT],
  },
  ForeignClaim: {
    status: 'InvalidArgument',
    means: 'A member publishes for another cluster, or a record that only the broker may write.',
    todo: 'Compare the releases. If they are equal, the member is compromised or misused.',
    shows: [...BROKER, ...NODES],
  },
  PublicKeyTaken: {
    status: 'InvalidArgument',
    means: 'A gateway publishes a public key that another cluster published first.',
    todo: 'Give each gateway its own key: do not copy state between machines.',
    shows: [...BROKER, ...NODES],
  },
  AddressNotReachable: {
    status: 'InvalidArgument',
    means: 'A gateway publishes an address that other clusters cannot call, or one inside the clusterset.',
    todo: 'Correct it at the gateway or on its Node.',
    shows: BROKER,
  },
  AddressOutsidePods: {
    status: 'InvalidArgument',
    means: 'An endpoint of a service is outside the pod CIDRs of the cluster.',
    todo: 'Complete the pod CIDRs with `sealane join`, or remove the endpoint from the Service.',
    shows: [...BROKER, LEFT_OUT],
  },
  HostnameTooLong: {
    status: 'InvalidArgument',
    means: 'The hostname of a pod makes a DNS name that is too long.',
    todo: 'Shorten the hostname, or the name of the service, its namespace or the cluster.',
    shows: [...BROKER, LEFT_OUT],
  },
  RangeSize: {
    status: 'InvalidArgument',
    means: 'An address range is larger or smaller than allowed.',
    todo: 'State the range that the cluster has.',
    shows: [...BROKER, ...NODES],
  },
  RangeReserved: {
    status: 'InvalidArgument',
    means: 'A range overlaps reserved or special addresses.',
    todo: 'Give the cluster other addresses, or start the broker with other ranges.',
    shows: [...BROKER, ...NODES],
  },
  RangesOverlap: {
    status: 'InvalidArgument',
    means: 'Two ranges of one cluster overlap.',
    todo: 'State ranges that do not overlap.',
    shows: [...BROKER, ...NODES],
  },
  PublicSpaceNotAllowed: {
    status: 'InvalidArgument',
    means: 'A member states public addresses that its token does not allow.',
    todo: 'If the addresses belong to it, create a token with `--allow-cidr`.',
    shows: BROKER,
  },
  IPv4Missing: {
    status: 'InvalidArgument',
    means: 'The cluster states no IPv4 pod CIDR, and this release requires one.',
    todo: 'Give the pods IPv4 addresses as well.',
    shows: BROKER,
  },
  RecordLimit: {
    status: 'ResourceExhausted',
    means: 'The cluster publishes too many Endpoints or records.',
    todo: 'Withdraw exports, and remove Endpoints of gateways that are gone.',
    shows: BROKER,
  },
  QuotaRecords: {
    status: 'ResourceExhausted',
    means: 'The cluster has reached its record quota: the broker leaves this export out.',
    todo: 'Withdraw exports, or raise the quota: `sealane cluster quota ID --records N`.',
    shows: [...BROKER, ...EXPORT, 'metric sealane_broker_quota_refused_records_total'],
  },
  QuotaBytes: {
    status: 'ResourceExhausted',
    means: 'The cluster has reached its size quota: the broker leaves this record out or unchanged.',
    todo: 'Withdraw exports, or raise the quota: `sealane cluster quota ID --bytes N`.',
    shows: [...BROKER, ...EXPORT, 'metric sealane_broker_quota_refused_records_total'],
  },
  QuotaChanges: {
    means: 'The cluster changes more records a second than its quota allows: the broker slows it down.',
    todo: 'Find what changes, or raise the quota: `sealane cluster quota ID --changes N`.',
    shows: ['log of the broker', 'log of the agent'],
  },
  QuotaStreams: {
    status: 'ResourceExhausted',
    means: 'The cluster has reached its quota of streams: the broker refuses the newest.',
    todo: 'Check whether several processes use this identity, or raise the quota: `sealane cluster quota ID --streams N`.',
    shows: BROKER,
  },
  RecordChurn: {
    status: 'ResourceExhausted',
    means: 'The cluster exported and withdrew too many services within a day.',
    todo: 'Find what creates and removes ServiceExports. The limit lifts by itself.',
    shows: BROKER,
  },
  RecordTooLarge: {
    status: 'InvalidArgument',
    means: 'A record has too many entries.',
    todo: 'Compare the releases of the member and the broker, and report it.',
    shows: BROKER,
  },
  ClusterSetIPsExhausted: {
    status: 'ResourceExhausted',
    means: 'No clusterset IP is free.',
    todo: 'Withdraw exports, or make services headless: the range is fixed.',
    shows: BROKER,
  },
  OverlapsOwnRange: {
    means: 'Another cluster claims addresses of this cluster.',
    todo: 'Join the later cluster again: the broker then gives it global addresses.',
    shows: IMPORTER,
  },
  OverlapsOtherCluster: {
    means: 'Two other clusters claim the same addresses; Sealane uses the first by name.',
    todo: 'Join the unused cluster again: the broker then gives it global addresses.',
    shows: NODES,
  },
  OverlapsNeeded: {
    means: 'Another cluster claims addresses that this one needs: of its nodes, or the broker.',
    todo: 'Join one of the two again: the broker then gives the other one global addresses.',
    shows: IMPORTER,
  },
  IndexTaken: {
    means: 'Two clusters have the same number in the clusterset.',
    todo: 'Check `sealane cluster list` at the broker, and join the newer of the two again.',
    shows: NODES,
  },
  ClusterUnknown: {
    means: 'A service has endpoints in a cluster whose addresses this cluster does not know.',
    todo: 'If it lasts, find why that cluster is not used.',
    shows: ['log of the agent'],
  },
  NotExported: {
    means: 'The broker lists an export that this cluster does not have.',
    todo: 'If it lasts, check whether another site uses the identity of this one.',
    shows: ['log of the agent'],
  },
  OwnFactsDiffer: {
    means: 'The broker has addresses or a number of this cluster that it does not state.',
    todo: "If it lasts, someone changed the broker's store.",
    shows: ['log of the agent'],
  },
  LaneServedByOther: {
    means: 'Two gateways of another cluster claim one lane, and this one does not serve it.',
    todo: 'If it lasts, give the two nodes there different lanes.',
    shows: ['log of the gateway'],
  },
  NodeNotUsable: {
    means: 'Sealane leaves a node out: it has no Node object, or no usable InternalIP or pod range.',
    todo: 'Correct the Node.',
    shows: ['log of the routeagent', 'status of RouteAgent'],
  },
  UnderlayDeviceMissing: {
    means: 'No network device of this machine has the InternalIP of its Node.',
    todo: 'Correct the addresses of the Node, or start the routeagent with the right node name.',
    shows: ['log of the routeagent', 'status of RouteAgent'],
  },
  PodRangeUnknown: {
    means: 'The pod range of a node is unknown.',
    todo: 'Check that its routeagent runs: it reports the range where the Node does not.',
    shows: ['log of the routeagent'],
  },
  PodRangeContested: {
    means: 'Several nodes claim the same pod range.',
    todo: 'Correct `spec.podCIDR` of these Nodes.',
    shows: ['log of the routeagent'],
  },
  PodRangeForeign: {
    means: 'A node claims pods of another node, which keeps them.',
    todo: 'Check the node that claims them: it is misconfigured or compromised.',
    shows: ['log of the routeagent'],
  },
  MtuTooSmallForIPv6: {
    means: 'The MTU between the nodes is too small for IPv6, so only IPv4 is routed.',
    todo: 'Raise the MTU of the network between the nodes.',
    shows: ['log of the routeagent'],
  },
  IPv6NotInKernel: {
    means: 'The kernel of the node has no IPv6, so only IPv4 is routed.',
    todo: 'Start the node without `ipv6.disable=1`, or leave it as it is.',
    shows: ['log of the gateway', 'log of the routeagent'],
  },
  ServicesOverPods: {
    means: 'Services of one member overlap pods of an earlier member: the two do not reach each other.',
    todo: 'Let the cluster with the pods leave and join again, for global addresses.',
    shows: ['log of the broker'],
  },
  AddressesNotAsStated: {
    means: 'The broker does not use addresses of this cluster as stated.',
    todo: 'Nothing, if the pods have global addresses. Otherwise read the note.',
    shows: ['log of the agent'],
  },
  IPv6NotCarried: {
    means: 'Other clusters reach this one by IPv4 only: its IPv6 overlaps that of another member.',
    todo: 'Change its IPv6 addresses, or leave it so: IPv6 is never translated.',
    shows: ['log of the agent'],
  },
  LinesOmitted: {
    means: 'More was left out at once than the log lists.',
    todo: 'Fix what the preceding lines name; the log then lists the rest.',
    shows: ['log of the agent'],
  },
} as const satisfies ReasonTable
