/** The agent's own metrics. The sessions with the broker have theirs in protocol/. */
import type { Clock, LoopDeps } from '../../reconcile/reconcile.ts'
import { reportedLoop } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Counter, Gauge, Histogram, Metrics } from '../../runtime/metrics/metrics.ts'

export interface AgentMetrics {
  readonly exports: Gauge
  readonly imports: Gauge
  readonly members: Gauge
  readonly silent: Gauge
  readonly staleGateways: Gauge
  readonly notUsed: Gauge
  readonly notImported: Gauge
  readonly writes: Counter
  readonly writeFailures: Counter
  readonly loopSeconds: Histogram
  readonly loopFailures: Counter
  readonly certificateStart: Gauge
  readonly certificateExpiry: Gauge
  readonly brokerHeard: Gauge
  readonly importDelay: Histogram
}

export function agentMetrics(metrics: Metrics): AgentMetrics {
  return {
    exports: metrics.gauge({
      name: 'sealane_agent_exports',
      help: 'ServiceExports of this cluster by state: exported, pending, failed or invalid.',
      labels: ['state'],
    }),
    imports: metrics.gauge({ name: 'sealane_agent_imports', help: 'Services imported into this cluster.' }),
    members: metrics.gauge({ name: 'sealane_agent_clusters', help: 'Clusters of the clusterset, including this one.' }),
    silent: metrics.gauge({
      name: 'sealane_agent_silent_clusters',
      help: 'Clusters treated as lost: no connection to the broker and no lane for the lease time.',
    }),
    staleGateways: metrics.gauge({
      name: 'sealane_agent_stale_gateways',
      help: 'Gateways of this cluster that have stopped reporting the state of their lanes.',
    }),
    notUsed: metrics.gauge({
      name: 'sealane_agent_records_not_used',
      help: 'Parts of records from the broker that are currently left out because they are malformed or not allowed.',
    }),
    notImported: metrics.gauge({
      name: 'sealane_agent_not_imported',
      help: 'Exports of other clusters that are not imported here, by reason; all exports of a missing namespace count once.',
      labels: ['reason'],
    }),
    writes: metrics.counter({
      name: 'sealane_agent_writes_total',
      help: 'Objects written to the local API.',
      labels: ['verb', 'kind'],
    }),
    writeFailures: metrics.counter({
      name: 'sealane_agent_write_failures_total',
      help: 'Objects that the local API refused.',
      labels: ['verb', 'kind'],
    }),
    loopSeconds: metrics.histogram({
      name: 'sealane_agent_loop_seconds',
      help: 'Duration of one round of a loop.',
      labels: ['loop'],
      buckets: [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10],
    }),
    loopFailures: metrics.counter({
      name: 'sealane_agent_loop_failures_total',
      help: 'Failed rounds of a loop; each is retried.',
      labels: ['loop'],
    }),
    certificateStart: metrics.gauge({
      name: 'sealane_agent_certificate_start_timestamp_seconds',
      help: "Start of validity of this cluster's certificate, in seconds since 1970; 0: no certificate read yet.",
    }),
    certificateExpiry: metrics.gauge({
      name: 'sealane_agent_certificate_expiry_timestamp_seconds',
      help: "Expiry of this cluster's certificate, in seconds since 1970; 0: no certificate read yet.",
    }),
    brokerHeard: metrics.gauge({
      name: 'sealane_agent_broker_heard_timestamp_seconds',
      help: 'Time of the last message from the broker, in seconds since 1970; the replica may be that old. 0: no message yet.',
    }),
    importDelay: metrics.histogram({
      name: 'sealane_agent_import_delay_seconds',
      help: 'Time from receiving a change from the broker until the local API has it, for the first change of each round.',
      buckets: [0.005, 0.02, 0.1, 0.5, 1, 2, 5, 15, 60],
    }),
  }
}

/** Has no value until the cluster DNS has been asked. */
export function clusterDnsGauge(metrics: Metrics): Gauge {
  return metrics.gauge({
    name: 'sealane_agent_cluster_dns_answers',
    help: '1 while the DNS of this cluster forwards clusterset.local to Sealane, 0 while it does not.',
    labels: ['zone'],
  })
}

export interface BackendMetrics {
  readonly backends: Gauge
  readonly checks: Counter
}

/** The metrics of backend checks, at sites without Kubernetes. */
export function backendMetrics(metrics: Metrics): BackendMetrics {
  return {
    backends: metrics.gauge({
      name: 'sealane_agent_backends',
      help: "Backends of this site's own services that have a check, by state: up, down or unchecked.",
      labels: ['state'],
    }),
    checks: metrics.counter({
      name: 'sealane_agent_backend_checks_total',
      help: 'Checks of backends by result: passed, failed, or not_run because this machine could not send one.',
      labels: ['result'],
    }),
  }
}

// Counts and logs the rounds of the agent's loops.

export interface LoopParts {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

/** `loop` is the name of the loop in metrics and log lines. */
export function loopDeps({ clock, logger, metrics }: LoopParts, loop: string): LoopDeps {
  return reportedLoop({
    clock,
    logger,
    loop,
    count: ({ ok, ms }) => {
      if (!ok) metrics.loopFailures.inc({ loop })
      metrics.loopSeconds.observe(ms / 1000, { loop })
    },
  })
}
