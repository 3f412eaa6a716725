/** Reasons about where the calls of a service go: cluster selection, traffic policies and shares. */
import type { ReasonTable } from './reason-row.ts'

const OF_NAMESPACE = ['condition Valid of TrafficPolicy'] as const
const POLICY = [...OF_NAMESPACE, 'condition Valid of ClusterTrafficPolicy'] as const
/** `sealane status` and `diagnose` say it too. */
const OUTPUT = 'output of the command'
const SHARE = ['status of TrafficPolicy', 'status of ClusterTrafficPolicy'] as const
const CALLS = [OUTPUT] as const
const LEFT_OUT = [
  'metric sealane_routeagent_endpoints_left_out',
  'metric sealane_routeagent_endpoint_ejections_total',
  'log of the routeagent',
] as const

export const TRAFFIC_REASONS = {
  InvalidClusterSelector: {
    standard: 'KEP-5939',
    means: 'A cluster selector is empty, is no selector of properties, or there are more than 16.',
    todo: 'Correct the field that the message names.',
    shows: ['condition Valid of ServiceExport'],
  },
  TrafficPolicyInForce: {
    means: 'The traffic policy is in force.',
    todo: 'Nothing.',
    shows: POLICY,
  },
  TrafficPolicyInvalid: {
    means:
      'A field of the traffic policy is wrong, or of a later release. Its last version stays in force; if unknown, calls go as without it.',
    todo: 'Correct the field that the message names.',
    shows: POLICY,
  },
  TrafficPolicyConflict: {
    means: 'Several traffic policies of one rank are for the same service. The older one counts.',
    todo: 'Delete one, or name other services in it.',
    shows: OF_NAMESPACE,
  },
  TrafficNamesUnknown: {
    means: 'The traffic policy names clusters that are no members yet.',
    todo: 'Check the ids.',
    shows: POLICY,
  },
  TrafficWeightsZero: {
    means: 'All weights in a tier are 0: it gets nothing new while another cluster is ready.',
    todo: 'If not intended, give one cluster a weight above 0.',
    shows: POLICY,
  },
  TrafficTargetMissing: {
    means: 'The traffic policy names services that are not imported.',
    todo: 'Check the names.',
    shows: OF_NAMESPACE,
  },
  TrafficHeadlessIgnored: {
    means: 'The traffic policy names a headless service, but DNS answers do not follow it.',
    todo: 'Set `spec.headless` to `follow`, or remove the service from the policy.',
    shows: OF_NAMESPACE,
  },
  ByReadyEndpoints: {
    means: 'The cluster gets a share by the number of its ready endpoints.',
    todo: 'Nothing.',
    shows: SHARE,
  },
  ByWeight: {
    means: 'The cluster gets a share by its weight in the traffic policy.',
    todo: 'Nothing.',
    shows: SHARE,
  },
  Spilled: {
    means: 'The cluster gets what earlier tiers do not keep, as too few of their endpoints are ready.',
    todo: 'Check the endpoints that are not ready in earlier tiers.',
    shows: SHARE,
  },
  TierIdle: {
    means: 'An earlier tier keeps all calls.',
    todo: 'Nothing.',
    shows: SHARE,
  },
  NotSelected: {
    means: 'The cluster selectors of the service choose other clusters.',
    todo: 'Nothing.',
    shows: SHARE,
  },
  InNoTier: {
    means: 'No tier of the traffic policy has the cluster.',
    todo: 'If not intended, add it to a tier, or add the tier `any`.',
    shows: SHARE,
  },
  WeightZero: {
    means: 'The weight of the cluster is 0.',
    todo: 'Nothing.',
    shows: SHARE,
  },
  ClusterDrained: {
    means: 'The cluster is drained.',
    todo: 'To end that, at the broker: `sealane cluster undrain ID`.',
    shows: [...SHARE, OUTPUT],
  },
  ServiceDrained: {
    means: 'Its exporter drains the service.',
    todo: 'To end that, in the exporting cluster: `sealane cluster undrain --service NAMESPACE/NAME`.',
    shows: [...SHARE, OUTPUT],
  },
  ClusterNotReached: {
    means: 'No packets reach the cluster.',
    todo: 'Run `sealane diagnose`.',
    shows: SHARE,
  },
  CallsNotAllowed: {
    means: 'Access policies of the exporting cluster, or egress rules of this one, forbid calls to the service.',
    todo: 'If not intended, add an AccessPolicy there, or an entry to `spec.egress` of the ClusterAccessPolicy here.',
    shows: SHARE,
  },
  NoReadyEndpoint: {
    means: 'The cluster has no ready endpoint of the service.',
    todo: 'Look at the pods there.',
    shows: SHARE,
  },
  LastReady: {
    means: 'The cluster is drained or has weight 0, and no other one has a ready endpoint.',
    todo: 'Look at the pods of the other clusters.',
    shows: SHARE,
  },
  NoneReadyAll: {
    means: 'No tier has a ready endpoint, so calls go to all clusters.',
    todo: 'Look at the pods of the clusters in the tiers.',
    shows: SHARE,
  },
  NoneReadyRefused: {
    means: 'No endpoint can be called, so calls are refused.',
    todo: 'Look at the pods of the clusters in the tiers.',
    shows: SHARE,
  },
  EndpointRefuses: {
    means: 'An endpoint refuses connections: by `passiveHealth` it gets no new ones for a while.',
    todo: 'Look at the pod or server at that address.',
    shows: LEFT_OUT,
  },
  EndpointDoesNotAnswer: {
    means: 'An endpoint does not answer: by `passiveHealth` it gets no new connections for a while.',
    todo: 'Look at the node of the endpoint, then at network policies and firewalls on the way.',
    shows: LEFT_OUT,
  },
  CallRefused: {
    means: 'The server refused the call by a reset, or an ICMP error came back.',
    todo: 'Check whether a program listens there, and network policies that reject.',
    shows: CALLS,
  },
  CallUnanswered: {
    means: 'The call had no answer within ten seconds.',
    todo: 'Look at the node of the endpoint, then at network policies and firewalls on the way.',
    shows: CALLS,
  },
  CallTimedOut: {
    means: 'Neither end closed or reset the connection: mostly, data was not acknowledged for five minutes.',
    todo: 'Check the node and the link of the server. Idle ones count only where `nf_conntrack_tcp_timeout_established` is below six hours.',
    shows: CALLS,
  },
  CallWithoutEndpoint: {
    means: 'The service has no endpoint that this node may use, so the node refused the call.',
    todo: 'Run `sealane show traffic` for the service.',
    shows: CALLS,
  },
  CallsNotCounted: {
    means: 'The kernel refuses the table that counts calls. Calls work as before.',
    todo: 'Read the message; `sealane diagnose` says which kernel features are missing.',
    shows: ['log of the routeagent', OUTPUT],
  },
  EndpointHealthNotSeen: {
    means: 'The routeagent cannot read connection tracking, so `passiveHealth` of traffic policies does nothing.',
    todo: 'Load the kernel module `nf_conntrack_netlink`, or read the message.',
    shows: ['log of the routeagent'],
  },
} as const satisfies ReasonTable
