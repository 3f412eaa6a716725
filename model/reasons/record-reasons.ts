/** Reasons about what members state: addresses, records and their limits. The broker judges, and each importer again. */
import type { ReasonTable } from './reason-row.ts'

const BROKER = ['refusal by the broker', 'log of the broker', 'log of the agent'] as const

export const RECORD_REASONS = {
  InvalidValue: {
    status: 'InvalidArgument',
    means:
      'A field has a value that its form does not allow; the message has the field, the value and what was expected.',
    todo: 'Correct the object that the value comes from. If Sealane made the value, compare the releases and report it.',
    shows: BROKER,
  },
  ForeignClaim: {
    status: 'InvalidArgument',
    means: 'A member states something in the name of another cluster, or a record that only the broker may write.',
    todo: 'Compare the releases first. Otherwise the member is broken into or misused: find out by whom.',
    shows: BROKER,
  },
  PublicKeyTaken: {
    status: 'InvalidArgument',
    means: 'A gateway states a public key that another cluster stated first.',
    todo: 'Give each gateway a key of its own: do not copy the state of one machine to another.',
    shows: BROKER,
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
    shows: BROKER,
  },
  HostnameTooLong: {
    status: 'InvalidArgument',
    means: 'The hostname of a pod makes a DNS name that is longer than DNS allows.',
    todo: 'Shorten the hostname, or the name of the service, its namespace or the cluster.',
    shows: BROKER,
  },
  RangeSize: {
    status: 'InvalidArgument',
    means: 'A range of addresses is larger or smaller than a cluster may state.',
    todo: 'State the range that the cluster really has.',
    shows: BROKER,
  },
  RangeReserved: {
    status: 'InvalidArgument',
    means: 'A range overlaps addresses that the clusterset keeps for itself, or that have a special meaning.',
    todo: 'Give the cluster other addresses, or start the broker with other ranges.',
    shows: BROKER,
  },
  RangesOverlap: {
    status: 'InvalidArgument',
    means: 'Two ranges of one cluster overlap each other.',
    todo: 'State ranges that are apart from each other.',
    shows: BROKER,
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
    means: 'The cluster publishes as many records, or as many bytes, as the broker allows it.',
    todo: 'Withdraw exports, or raise the limit of the broker.',
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
    todo: 'Withdraw exports, or configure a larger range at the broker.',
    shows: BROKER,
  },
} as const satisfies ReasonTable
