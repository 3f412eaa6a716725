/** Metrics of the broker. The transport adds calls, streams, connections and bytes. */
import type { Counter, Gauge, Histogram, LabelledCounter, MetricInit, Metrics } from '../../runtime/metrics/metrics.ts'

export interface BrokerMetrics {
  readonly clustersets: Gauge
  readonly members: Gauge
  readonly records: Gauge
  readonly replicas: Gauge
  readonly connectedHere: Gauge
  readonly storeUsable: Gauge
  readonly revision: Gauge
  readonly storeProblem: Gauge
  readonly commits: Histogram
  readonly commitSeconds: Histogram
  readonly commitFailures: Counter
  readonly refused: Counter
  readonly joins: Counter
  readonly waiting: Gauge
  readonly superseded: Counter
  readonly unknownCertificates: Counter
  readonly resyncs: Counter
  readonly snapshots: Counter
  readonly encoded: Counter
  readonly delivered: Counter
  readonly deliveredByInterest: Counter
  readonly interests: Gauge
  readonly quotaRefused: Counter
  readonly quotaSlowed: Counter
  readonly quotaMembers: Gauge
  readonly quotaMost: Gauge
  readonly rangeUsed: Gauge
  readonly auditLines: Counter
  readonly auditLost: Counter
  readonly auditSuppressed: Counter
  readonly auditWaiting: Gauge
  readonly authorityCreated: Gauge
  readonly authorityExpiry: Gauge
  readonly certificateExpiry: Gauge
  readonly authorityUsable: Gauge
  readonly authorityWaiting: Gauge
  readonly signatures: Counter
}

/** Metrics of the broker's own clusterset. broker/other-clustersets.ts labels those of the others. */
export function brokerMetrics(registry: Metrics): BrokerMetrics {
  const metrics = alsoOfOthers(registry)
  return {
    clustersets: registry.gauge({
      name: 'sealane_broker_clusterset_served',
      help: 'Additional clustersets of the broker. 1: served; 0: not served, and the log has the reason.',
      labels: ['clusterset'],
    }),
    members: metrics.gauge({
      name: 'sealane_broker_members',
      help: 'Clusters by state: live, complete (has published its whole set), departed.',
      labels: ['state'],
    }),
    records: metrics.gauge({
      name: 'sealane_broker_records',
      help: 'Records in the store, including those of the broker.',
    }),
    replicas: metrics.gauge({
      name: 'sealane_broker_replicas',
      help: 'Brokers that serve the same store, including this one, as seen by this one. 0: it has lost its session.',
    }),
    connectedHere: metrics.gauge({
      name: 'sealane_broker_connected_members',
      help: 'Members that have a stream open at this replica.',
    }),
    storeUsable: metrics.gauge({
      name: 'sealane_broker_store_usable',
      help: '1 while the store answers, checked each second, 0 otherwise.',
      labels: ['kind'],
    }),
    revision: metrics.gauge({ name: 'sealane_broker_revision', help: 'Revision of the last durable write.' }),
    commits: metrics.histogram({
      name: 'sealane_broker_commit_changes',
      help: 'Rows written together in one durable commit.',
      buckets: [1, 2, 5, 10, 50, 100, 500, 1000],
    }),
    storeProblem: metrics.gauge({
      name: 'sealane_broker_store_problem',
      help: 'Reason why the store cannot be read or written, by code (docs/troubleshooting.md): 1 while it applies, 0 afterwards.',
      labels: ['code'],
    }),
    commitSeconds: metrics.histogram({
      name: 'sealane_broker_commit_seconds',
      help: 'Duration of one durable commit, including attempts that other brokers overtook.',
      buckets: [0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5],
    }),
    commitFailures: metrics.counter({
      name: 'sealane_broker_commit_failures_total',
      help: 'Commits that the store refused; the broker has acknowledged none of their changes.',
    }),
    refused: metrics.counter({
      name: 'sealane_broker_refused_records_total',
      help: 'Records that admission refused, by kind.',
      labels: ['kind'],
    }),
    joins: metrics.counter({
      name: 'sealane_broker_joins_total',
      help: 'Join requests by result: ok, waiting (for approval; counted once), or the refusal code.',
      labels: ['result'],
    }),
    waiting: metrics.gauge({
      name: 'sealane_broker_waiting_joins',
      help: 'Clusters that wait for an operator: to join, or with ranges that differ from the accepted ones.',
    }),
    superseded: metrics.counter({
      name: 'sealane_broker_superseded_certificates_total',
      help: 'Calls with a replaced certificate: a copy of a member identity exists.',
    }),
    unknownCertificates: metrics.counter({
      name: 'sealane_broker_unknown_certificates_total',
      help: 'Calls with a valid certificate that the database does not know: the database is older than the certificate.',
    }),
    resyncs: metrics.counter({
      name: 'sealane_broker_publish_declares_total',
      help: 'Record sets that members declared, by result: same or different.',
      labels: ['result'],
    }),
    snapshots: metrics.counter({
      name: 'sealane_broker_watch_starts_total',
      help: 'Watches by start: resumed, or with a full snapshot.',
      labels: ['from'],
    }),
    encoded: metrics.counter({
      name: 'sealane_broker_encoded_events_total',
      help: 'Record events encoded; each once for all watchers.',
    }),
    delivered: metrics.counter({
      name: 'sealane_broker_delivered_events_total',
      help: 'Record events sent to watchers.',
    }),
    deliveredByInterest: metrics.counter({
      name: 'sealane_broker_watch_interest_events_total',
      help: 'Record events sent to members that request some namespaces only; part of those delivered.',
    }),
    interests: metrics.gauge({
      name: 'sealane_broker_watch_interests',
      help: 'Different sets of namespaces that members request.',
    }),
    quotaRefused: metrics.counter({
      name: 'sealane_broker_quota_refused_records_total',
      help: 'Records refused by the quota of their member, by reason. The broker accepts each as soon as the quota allows.',
      labels: ['reason'],
    }),
    quotaSlowed: metrics.counter({
      name: 'sealane_broker_quota_slowed_total',
      help: 'Times that the broker started to slow down a member because of its quota of changes.',
    }),
    quotaMembers: metrics.gauge({
      name: 'sealane_broker_quota_members',
      help: 'Members that use 80 percent of a quota or more (near), and all of it or more (full).',
      labels: ['resource', 'use'],
    }),
    quotaMost: metrics.gauge({
      name: 'sealane_broker_quota_most_used_ratio',
      help: 'Used part of the quota of the member that uses most of it. Above 1: over the quota.',
      labels: ['resource'],
    }),
    rangeUsed: metrics.gauge({
      name: 'sealane_broker_range_used_ratio',
      help: 'Used part of what all members share: members, tokens, clustersetIPs. At 1 none is left.',
      labels: ['range'],
    }),
    auditLines: metrics.counter({
      name: 'sealane_broker_audit_lines_total',
      help: 'Lines written to the audit log.',
    }),
    auditLost: metrics.counter({
      name: 'sealane_broker_audit_lost_lines_total',
      help: 'Lines of the audit log that were lost because the log was unwritable and the queue was full.',
    }),
    auditSuppressed: metrics.counter({
      name: 'sealane_broker_audit_suppressed_lines_total',
      help: 'Lines that the audit log contains only as a count, because their callers cause too many.',
    }),
    auditWaiting: metrics.gauge({
      name: 'sealane_broker_audit_waiting_lines',
      help: 'Lines that wait to be written to the audit log.',
    }),
    authorityCreated: metrics.gauge({
      name: 'sealane_broker_authority_created_timestamp_seconds',
      help: 'Start of validity of the certificate authority, by role: current, or next during a rotation; 0: none.',
      labels: ['role'],
    }),
    authorityExpiry: metrics.gauge({
      name: 'sealane_broker_authority_expiry_timestamp_seconds',
      help: 'Expiry of the certificate authority, by role: current, or next during a rotation; 0: none.',
      labels: ['role'],
    }),
    certificateExpiry: metrics.gauge({
      name: 'sealane_broker_certificate_expiry_timestamp_seconds',
      help: 'Expiry of the server certificate of this broker, in seconds since 1970.',
    }),
    authorityUsable: metrics.gauge({
      name: 'sealane_broker_authority_usable',
      help: '1: this broker can sign certificates; 0: the key of the authority is missing, or the signer fails.',
    }),
    authorityWaiting: metrics.gauge({
      name: 'sealane_broker_authority_waiting',
      help: 'Members and tokens that the next step of the rotation of the certificate authority waits for.',
      labels: ['what'],
    }),
    signatures: metrics.counter({
      name: 'sealane_broker_signer_calls_total',
      help: 'Calls of the command that signs for the certificate authority, by result: ok, failed, busy.',
      labels: ['result'],
    }),
  }
}

/**
 * Adds the label `clusterset`, which only clustersets beside the broker's own set. Metrics without other labels start
 * at 0 for the broker's own clusterset.
 */
function alsoOfOthers(metrics: Metrics): Pick<Metrics, 'counter' | 'gauge' | 'histogram'> {
  const labelled = <I extends MetricInit>(init: I): I => ({ ...init, labels: [...(init.labels ?? []), 'clusterset'] })
  return {
    counter: (init): LabelledCounter => {
      const counter = metrics.counter(labelled(init))
      if (init.labels === undefined) counter.inc({}, 0)
      return counter
    },
    gauge: (init): Gauge => {
      const gauge = metrics.gauge(labelled(init))
      if (init.labels === undefined) gauge.set(0)
      return gauge
    },
    histogram: (init) => metrics.histogram(labelled(init)),
  }
}
