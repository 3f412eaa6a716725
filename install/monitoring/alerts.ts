/** Defines the alerts. rule-file.ts turns them into Prometheus rules. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'

/**
 * critical: users notice, or will within hours.
 * warning: needs attention today.
 * info: worth knowing.
 */
export const ALERT_SEVERITIES = ['critical', 'warning', 'info'] as const
export type AlertSeverity = (typeof ALERT_SEVERITIES)[number]

export interface Alert {
  /** The name of the alert and of its runbook: docs/runbooks/NAME.md. */
  readonly name: `Sealane${string}`
  readonly severity: AlertSeverity
  /** A PromQL expression. */
  readonly expr: string
  /** How long the expression must hold, as a Prometheus duration. */
  readonly for: string
  /** One line. `{{ $labels.x }}` gives a label that the expression keeps. */
  readonly summary: string
  /** One sentence that says what is known. */
  readonly says: string
  /** The reason code in conditions, logs and `sealane status`, or the label that has it. */
  readonly code: ReasonCode | LabelledCode
}

/** The code is the value of this label. */
export interface LabelledCode {
  readonly label: 'code' | 'reason'
}

export interface AlertGroup {
  readonly name: string
  /** Whether the alerts concern a cluster of a clusterset, or the broker. */
  readonly about: 'member' | 'broker'
  readonly alerts: readonly Alert[]
}

/** Adds the id of the cluster to series of one process. */
export function ofMember(series: string): string {
  return `${series} * on (job, instance) group_left (member) sealane_member_info`
}

/** Selects the series of the acting agent, since a standby agent may still export old values from its own term. */
export function acting(series: string): string {
  return ofMember(`(${series} and on (job, instance) (time() - sealane_member_looked_timestamp_seconds < 120))`)
}

const LINK =
  'gateway lane {{ $labels.lane }} ({{ $labels.instance }}) to {{ $labels.cluster }} lane {{ $labels.remote_lane }}'

/** Alerts about gateways, their links, and how nodes reach them. */
export const LANE_ALERTS: AlertGroup = {
  name: 'sealane-lanes',
  about: 'member',
  alerts: [
    {
      name: 'SealaneClusterUnreachable',
      severity: 'critical',
      expr: `max by (member, cluster) (${ofMember('sealane_gateway_connection_up')}) == 0`,
      for: '1m',
      summary: '{{ $labels.member }} does not reach {{ $labels.cluster }}',
      says: 'No link of any gateway of {{ $labels.member }} to {{ $labels.cluster }} is up.',
      code: 'ClusterCutOff',
    },
    {
      name: 'SealaneLinkDown',
      severity: 'warning',
      expr: 'sealane_gateway_connection_up == 0',
      for: '2m',
      summary: `Link down: ${LINK}`,
      says: 'The remote gateway does not answer probes over this link. Other links may carry the traffic.',
      code: 'LaneProbeTimeout',
    },
    {
      name: 'SealaneLinkLossy',
      severity: 'warning',
      expr: 'sealane_gateway_connection_loss_ratio > 0.1 and sealane_gateway_connection_up == 1',
      for: '5m',
      summary: `Link loses packets: ${LINK}`,
      says: '{{ $value | humanizePercentage }} of the last probes got no answer.',
      code: 'LinkLossy',
    },
    {
      name: 'SealaneLinkSlow',
      severity: 'warning',
      expr:
        'sealane_gateway_connection_rtt_seconds > ' +
        '2 * avg_over_time(sealane_gateway_connection_rtt_seconds[1d] offset 30m) + 0.02',
      for: '10m',
      summary: `Link slower than it was: ${LINK}`,
      says: 'Its round trip takes {{ $value | humanizeDuration }}, more than twice the average of the last day.',
      code: 'LinkSlow',
    },
    {
      name: 'SealaneLinkFlapping',
      severity: 'warning',
      expr:
        'sum by (job, instance, cluster, lane, remote_lane) ' +
        '(increase(sealane_gateway_transitions_total{state="down"}[15m])) > 3',
      for: '0m',
      summary: `Link goes down repeatedly: ${LINK}`,
      says: 'It went down {{ $value | humanize }} times in 15 minutes.',
      code: 'LinkFlaps',
    },
    {
      name: 'SealaneHandshakeOld',
      severity: 'warning',
      expr: 'sealane_gateway_handshake_age_seconds > 240',
      for: '1m',
      summary: `No handshake: ${LINK}`,
      says: 'The last one is {{ $value | humanizeDuration }} old. Keys are used for three minutes at most.',
      code: 'LaneProbeTimeout',
    },
    {
      name: 'SealaneNodeCutOff',
      severity: 'warning',
      expr: 'sealane_routeagent_path_gateways == 0',
      for: '5m',
      summary: 'A node ({{ $labels.instance }}) has no gateway to {{ $labels.cluster }}',
      says: 'Pods of this node do not reach {{ $labels.cluster }}.',
      code: 'NodesCutOff',
    },
    {
      name: 'SealaneGatewaysNotRedundant',
      severity: 'warning',
      expr:
        'max by (member, code) ' +
        `(${acting('sealane_member_problems{code=~"OneGatewayOnly|GatewaySilent|GatewayCutOff|GatewayNodeSilent|NoGateway"}')}) > 0`,
      for: '10m',
      summary: '{{ $labels.member }} has no second gateway that carries traffic',
      says: 'The cluster is cut off when its last gateway fails.',
      code: { label: 'code' },
    },
    {
      name: 'SealaneGatewayStatusOld',
      severity: 'warning',
      expr: 'sealane_agent_stale_gateways > 0 or sealane_routeagent_stale_gateways > 0',
      for: '2m',
      summary: '{{ $value | humanize }} gateways have stopped reporting ({{ $labels.instance }})',
      says: 'Their Gateway objects are old: the state of their links is unknown.',
      code: 'GatewaySilent',
    },
    {
      name: 'SealanePacketsDropped',
      severity: 'info',
      expr:
        'sum by (job, reason) (rate(sealane_gateway_packets_dropped_total[5m])) > 5 or ' +
        'sum by (job, reason) (rate(sealane_routeagent_packets_dropped_total[5m])) > 5',
      for: '10m',
      summary: 'Packets are dropped: {{ $labels.reason }}',
      says: 'The policy of the nodes drops {{ $value | humanize }} packets a second.',
      code: { label: 'reason' },
    },
  ],
}

/** Alerts about the control plane of a cluster, its services and names. */
export const MEMBER_ALERTS: AlertGroup = {
  name: 'sealane-member',
  about: 'member',
  alerts: [
    {
      name: 'SealaneMemberDown',
      severity: 'critical',
      expr: `max by (member, code) (${acting('sealane_member_problems{severity="down"}')}) > 0`,
      for: '2m',
      summary: '{{ $labels.member }} is down: {{ $labels.code }}',
      says: 'Something that users rely on does not work. `sealane status` shows the details.',
      code: { label: 'code' },
    },
    {
      name: 'SealanePartDown',
      severity: 'warning',
      expr: 'up{job=~"(.*/)?sealane(-[a-z]+)?"} == 0',
      for: '5m',
      summary: 'A part of Sealane does not answer: {{ $labels.job }} at {{ $labels.instance }}',
      says: 'Prometheus cannot read its metrics.',
      code: 'PartNotReady',
    },
    {
      name: 'SealaneReplicaNotLive',
      severity: 'warning',
      expr: `max by (member) (${acting('sealane_watch_live')}) == 0`,
      for: '5m',
      summary: '{{ $labels.member }} does not follow the broker',
      says: 'Its copy of the exports of other clusters becomes outdated. Lanes and names continue to work.',
      code: 'BrokerUnreached',
    },
    {
      name: 'SealanePublishNotLive',
      severity: 'warning',
      expr: `max by (member) (${acting('sealane_publish_live')}) == 0`,
      for: '5m',
      summary: 'The broker accepts no changes from {{ $labels.member }}',
      says: 'New exports of this cluster do not reach other clusters.',
      code: 'BrokerUnreached',
    },
    {
      name: 'SealaneAgentNotActing',
      severity: 'critical',
      expr:
        'time() - max by (member) ' +
        '(sealane_member_looked_timestamp_seconds * on (job, instance) group_left (member) sealane_member_info) > 120',
      for: '1m',
      summary: 'No agent of {{ $labels.member }} acts',
      says: 'No agent has checked the cluster for {{ $value | humanizeDuration }}.',
      code: 'AgentSilent',
    },
    {
      name: 'SealaneCertificateEndsSoon',
      severity: 'critical',
      expr: `min by (member) (${acting('sealane_agent_certificate_expiry_timestamp_seconds > 0')}) - time() < 6 * 3600`,
      for: '5m',
      summary: 'The certificate of {{ $labels.member }} ends in {{ $value | humanizeDuration }}',
      says: 'It should have been renewed after two thirds of its lifetime. After it expires, the broker refuses the cluster until it is renewed; after the grace time of the broker (30 days) the cluster has to join again.',
      code: 'CertificateEndsSoon',
    },
    {
      name: 'SealaneExportsFailed',
      severity: 'warning',
      expr: `max by (member, state) (${acting('sealane_agent_exports{state=~"failed|invalid"}')}) > 0`,
      for: '5m',
      summary: '{{ $value | humanize }} exports of {{ $labels.member }} are {{ $labels.state }}',
      says: 'Other clusters do not get these services. sealane_member_problem_subject names them.',
      code: 'Failed',
    },
    {
      name: 'SealaneImportsWithoutBackends',
      severity: 'warning',
      expr: `max by (member) (${acting('sealane_member_problems{code="ImportsWithoutBackends"}')}) > 0`,
      for: '5m',
      summary: 'Services that {{ $labels.member }} imports have no ready pod',
      says: 'Calls to them are refused. If it is a single service, sealane_member_problem_subject names it.',
      code: 'ImportsWithoutBackends',
    },
    {
      name: 'SealaneClusterDnsNotAnswering',
      severity: 'critical',
      expr: `min by (member, zone) (${acting('sealane_agent_cluster_dns_answers')}) == 0`,
      for: '2m',
      summary: 'The cluster DNS of {{ $labels.member }} does not answer for {{ $labels.zone }}',
      says: 'Pods do not find services of other clusters by name.',
      code: 'DoesNotAnswer',
    },
    {
      name: 'SealaneDnsFailing',
      severity: 'warning',
      expr:
        'sum by (job, instance) (rate(sealane_dns_queries_total{rcode="SERVFAIL"}[5m])) / ' +
        'sum by (job, instance) (rate(sealane_dns_queries_total[5m])) > 0.05',
      for: '5m',
      summary: 'Sealane DNS at {{ $labels.instance }} answers SERVFAIL',
      says: '{{ $value | humanizePercentage }} of its answers are failures.',
      code: 'ServicesNotRead',
    },
    {
      name: 'SealaneRoundsFailing',
      severity: 'warning',
      expr:
        'sum by (job, instance) (increase(sealane_gateway_rounds_total{result="failed"}[10m])) > 2 or ' +
        'sum by (job, instance) (increase(sealane_routeagent_runs_total{result="failed"}[10m])) > 2 or ' +
        'sum by (job, instance) (increase(sealane_agent_loop_failures_total[10m])) > 2',
      for: '5m',
      summary: 'Rounds fail: {{ $labels.job }} at {{ $labels.instance }}',
      says: 'It cannot apply its plan, and retries.',
      code: 'RoundFailed',
    },
    {
      name: 'SealaneObjectsNotWritten',
      severity: 'warning',
      expr: 'sum by (job, instance, kind) (increase(sealane_agent_write_failures_total[10m])) > 2',
      for: '5m',
      summary: 'The API server does not accept {{ $labels.kind }} objects of the agent',
      says: 'The imports from other clusters are incomplete here.',
      code: 'ObjectNotWritten',
    },
  ],
}

/** The expected number of replicas: the highest that any replica has seen within the last hour. */
const REPLICAS_LATELY = 'max by (job) (max_over_time(sealane_broker_replicas[1h]))'

/** Alerts about the broker: its replicas, its store, and what it promises. */
export const BROKER_ALERTS: AlertGroup = {
  name: 'sealane-broker',
  about: 'broker',
  alerts: [
    {
      name: 'SealaneBrokerDown',
      severity: 'critical',
      // If no replica is left, there is no series that could be low.
      expr:
        'group by (job) (max_over_time(sealane_broker_store_usable[1h])) unless ' +
        'group by (job) (sealane_broker_store_usable)',
      for: '2m',
      summary: 'No broker of {{ $labels.job }} answers',
      says: 'No cluster can publish or receive changes. Lanes and names continue to work.',
      code: 'BrokerUnreached',
    },
    {
      name: 'SealaneBrokerReplicaDown',
      severity: 'warning',
      expr: `max by (job) (sealane_broker_replicas) < ${REPLICAS_LATELY}`,
      for: '5m',
      summary: 'A replica of the broker is missing: {{ $value | humanize }} are left',
      says: 'Its members use the other replicas. If one more is lost, none may be left.',
      code: 'BrokerAddressFailing',
    },
    {
      name: 'SealaneBrokerTooFewReplicas',
      severity: 'critical',
      expr: `sum by (job) (sealane_broker_store_usable{kind="etcd", clusterset=""}) < 2 and ${REPLICAS_LATELY} > 1`,
      for: '2m',
      summary: 'Fewer than two replicas of the broker are ready: {{ $value | humanize }}',
      says: 'If one more is lost, no cluster can publish or receive changes.',
      code: 'BrokerAddressFailing',
    },
    {
      name: 'SealaneBrokerStoreNotAnswering',
      severity: 'critical',
      expr: 'sealane_broker_store_usable == 0',
      for: '1m',
      summary: 'The store ({{ $labels.kind }}) of the broker at {{ $labels.instance }} does not answer',
      says: 'The broker acknowledges no changes until it does. Lanes and names continue to work.',
      code: 'StateUnreachable',
    },
    {
      name: 'SealaneBrokerStoreSlow',
      severity: 'warning',
      expr: 'histogram_quantile(0.9, sum by (job, instance, le) (rate(sealane_broker_commit_seconds_bucket[5m]))) > 0.5',
      for: '5m',
      summary: 'The store of the broker at {{ $labels.instance }} is slow',
      says: 'One commit in ten takes {{ $value | humanizeDuration }} or more.',
      code: 'StoreSlow',
    },
    {
      name: 'SealaneBrokerReplicaBehind',
      severity: 'warning',
      expr:
        'max by (job, clusterset) (sealane_broker_revision) - ' +
        'min by (job, clusterset) (sealane_broker_revision) > 1000',
      for: '2m',
      summary: 'A replica of {{ $labels.job }} is {{ $value | humanize }} changes behind another one',
      says: 'Its members receive changes late.',
      code: 'ReplicaBehind',
    },
    {
      name: 'SealaneBrokerStoreReadOnly',
      severity: 'critical',
      expr: 'sealane_broker_store_problem{code=~"StateFull|StateUnwritable"} == 1',
      for: '1m',
      summary: 'The store of the broker at {{ $labels.instance }} accepts no writes',
      says: 'Changes of all clusters wait.',
      code: { label: 'code' },
    },
    {
      name: 'SealaneBrokerCommitsFailing',
      severity: 'critical',
      expr: 'increase(sealane_broker_commit_failures_total[5m]) > 0',
      for: '2m',
      summary: 'Commits of the broker at {{ $labels.instance }} fail',
      says: 'None of them was acknowledged; members send them again.',
      code: 'StateFailed',
    },
    {
      name: 'SealaneBrokerRangeNearlyFull',
      severity: 'warning',
      expr: 'sealane_broker_range_used_ratio > 0.9',
      for: '10m',
      summary: '{{ $value | humanizePercentage }} of {{ $labels.range }} are used',
      says: 'When it is full, the broker allocates no more from it.',
      code: 'RangeNearlyFull',
    },
    {
      name: 'SealaneBrokerAuditNotWritten',
      severity: 'critical',
      expr:
        'min_over_time(sealane_broker_audit_waiting_lines[5m]) > 0 or ' +
        'increase(sealane_broker_audit_lost_lines_total[15m]) > 0',
      for: '1m',
      summary: 'The audit log of the broker at {{ $labels.instance }} is not written',
      says: 'Lines are waiting or were lost. The broker continues.',
      code: 'AuditLogUnwritable',
    },
    {
      name: 'SealaneBrokerAuthorityUnusable',
      severity: 'critical',
      expr: 'sealane_broker_authority_usable == 0',
      for: '5m',
      summary: 'The broker at {{ $labels.instance }} cannot sign certificates',
      says: 'No cluster can join, and certificates of members are not renewed.',
      code: 'AuthorityUnusable',
    },
    {
      name: 'SealaneBrokerAuthorityEndsSoon',
      severity: 'warning',
      expr: '(sealane_broker_authority_expiry_timestamp_seconds{role="current"} > 0) - time() < 30 * 86400',
      for: '1h',
      summary: 'The certificate authority of the clusterset ends in {{ $value | humanizeDuration }}',
      says: 'Rotate it before members lose contact.',
      code: 'AuthorityExpires',
    },
    {
      name: 'SealaneBrokerCertificateEndsSoon',
      severity: 'critical',
      expr: '(sealane_broker_certificate_expiry_timestamp_seconds > 0) - time() < 6 * 3600',
      for: '5m',
      summary: 'The certificate of the broker at {{ $labels.instance }} ends in {{ $value | humanizeDuration }}',
      says: 'The broker should have renewed it.',
      code: 'CertificateEndsSoon',
    },
  ],
}
