/** Alerts about the control plane of a cluster, its services and names. */
import { type AlertGroup, acting } from './alert.ts'

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
      says: 'Something that users rely on does not work. `sealane status` says more.',
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
      says: 'Its copy of what the others export grows old. Lanes and names go on as they were.',
      code: 'BrokerUnreached',
    },
    {
      name: 'SealanePublishNotLive',
      severity: 'warning',
      expr: `max by (member) (${acting('sealane_publish_live')}) == 0`,
      for: '5m',
      summary: 'The broker takes no changes from {{ $labels.member }}',
      says: 'What it exports from now on reaches nobody.',
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
      says: 'None has looked at the cluster for {{ $value | humanizeDuration }}.',
      code: 'AgentSilent',
    },
    {
      name: 'SealaneCertificateEndsSoon',
      severity: 'critical',
      expr: `min by (member) (${acting('sealane_agent_certificate_expiry_timestamp_seconds > 0')}) - time() < 6 * 3600`,
      for: '5m',
      summary: 'The certificate of {{ $labels.member }} ends in {{ $value | humanizeDuration }}',
      says: 'It was to be renewed after two thirds of its time. After its end the cluster has to join anew.',
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
      says: 'Calls to them are refused. sealane_member_problem_subject names a single one.',
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
      says: 'It cannot bring about what it plans, and tries again.',
      code: 'RoundFailed',
    },
    {
      name: 'SealaneObjectsNotWritten',
      severity: 'warning',
      expr: 'sum by (job, instance, kind) (increase(sealane_agent_write_failures_total[10m])) > 2',
      for: '5m',
      summary: 'The API server does not take {{ $labels.kind }} objects of the agent',
      says: 'What other clusters export is not complete here.',
      code: 'ObjectNotWritten',
    },
  ],
}
