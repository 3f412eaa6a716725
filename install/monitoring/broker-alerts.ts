/** Alerts about the broker: its replicas, its store, and what it promises. */
import type { AlertGroup } from './alert.ts'

/** As some replica saw them lately: how many there should be. */
const REPLICAS_LATELY = 'max by (job) (max_over_time(sealane_broker_replicas[1h]))'

export const BROKER_ALERTS: AlertGroup = {
  name: 'sealane-broker',
  about: 'broker',
  alerts: [
    {
      name: 'SealaneBrokerDown',
      severity: 'critical',
      // Where none is left, there is no series either that could be low.
      expr:
        'group by (job) (max_over_time(sealane_broker_store_usable[1h])) unless ' +
        'group by (job) (sealane_broker_store_usable)',
      for: '2m',
      summary: 'No broker of {{ $labels.job }} answers',
      says: 'Nothing is published or learnt in any cluster. Lanes and names go on.',
      code: 'BrokerUnreached',
    },
    {
      name: 'SealaneBrokerReplicaDown',
      severity: 'warning',
      expr: `max by (job) (sealane_broker_replicas) < ${REPLICAS_LATELY}`,
      for: '5m',
      summary: 'A replica of the broker is gone: {{ $value | humanize }} are left',
      says: 'Its members are with the others. One more loss may leave none.',
      code: 'BrokerAddressFailing',
    },
    {
      name: 'SealaneBrokerTooFewReplicas',
      severity: 'critical',
      expr: `sum by (job) (sealane_broker_store_usable{kind="etcd", clusterset=""}) < 2 and ${REPLICAS_LATELY} > 1`,
      for: '2m',
      summary: 'Fewer than two replicas of the broker are ready: {{ $value | humanize }}',
      says: 'With the next loss nothing is published or learnt in any cluster.',
      code: 'BrokerAddressFailing',
    },
    {
      name: 'SealaneBrokerStoreNotAnswering',
      severity: 'critical',
      expr: 'sealane_broker_store_usable == 0',
      for: '1m',
      summary: 'The store ({{ $labels.kind }}) of the broker at {{ $labels.instance }} does not answer',
      says: 'Nothing is acknowledged meanwhile. Lanes and names go on.',
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
      says: 'Members that are served by it learn late.',
      code: 'ReplicaBehind',
    },
    {
      name: 'SealaneBrokerStoreReadOnly',
      severity: 'critical',
      expr: 'sealane_broker_store_problem{code=~"StateFull|StateUnwritable"} == 1',
      for: '1m',
      summary: 'The store of the broker at {{ $labels.instance }} takes no writes',
      says: 'Changes of all clusters wait.',
      code: { label: 'code' },
    },
    {
      name: 'SealaneBrokerCommitsFailing',
      severity: 'critical',
      expr: 'increase(sealane_broker_commit_failures_total[5m]) > 0',
      for: '2m',
      summary: 'Commits of the broker at {{ $labels.instance }} fail',
      says: 'Nothing of them was acknowledged; members offer the same again.',
      code: 'StateFailed',
    },
    {
      name: 'SealaneBrokerRangeNearlyFull',
      severity: 'warning',
      expr: 'sealane_broker_range_used_ratio > 0.9',
      for: '10m',
      summary: 'Of {{ $labels.range }} {{ $value | humanizePercentage }} are used',
      says: 'At all of it, no more is given.',
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
      says: 'Lines wait, or were lost. The broker goes on.',
      code: 'AuditLogUnwritable',
    },
    {
      name: 'SealaneBrokerAuthorityUnusable',
      severity: 'critical',
      expr: 'sealane_broker_authority_usable == 0',
      for: '5m',
      summary: 'The broker at {{ $labels.instance }} cannot sign certificates',
      says: 'Nobody joins, and certificates of members are not renewed.',
      code: 'AuthorityUnusable',
    },
    {
      name: 'SealaneBrokerAuthorityEndsSoon',
      severity: 'warning',
      expr: '(sealane_broker_authority_expiry_timestamp_seconds{role="current"} > 0) - time() < 30 * 86400',
      for: '1h',
      summary: 'The certificate authority of the clusterset ends in {{ $value | humanizeDuration }}',
      says: 'It is to be rotated while members can still follow.',
      code: 'AuthorityExpires',
    },
    {
      name: 'SealaneBrokerCertificateEndsSoon',
      severity: 'critical',
      expr: '(sealane_broker_certificate_expiry_timestamp_seconds > 0) - time() < 6 * 3600',
      for: '5m',
      summary: 'The certificate of the broker at {{ $labels.instance }} ends in {{ $value | humanizeDuration }}',
      says: 'The broker was to renew it by itself.',
      code: 'CertificateEndsSoon',
    },
  ],
}
