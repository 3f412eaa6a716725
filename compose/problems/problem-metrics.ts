/** The metrics about a member's problems, with the codes and severities of `sealane status`. */
import type { Gauge, Metrics } from '../../runtime/metrics/metrics.ts'

export interface ProblemMetrics {
  readonly problems: Gauge
  readonly subjects: Gauge
  readonly looked: Gauge
}

/** The metrics of the acting agent. */
export function problemMetrics(metrics: Metrics): ProblemMetrics {
  return {
    problems: metrics.gauge({
      name: 'sealane_member_problems',
      help: 'Problems of this cluster, as in sealane status, by code (docs/troubleshooting.md) and severity: down, degraded, notice. Consequences of other problems are not counted.',
      labels: ['code', 'severity'],
    }),
    subjects: metrics.gauge({
      name: 'sealane_member_problem_subject',
      help: 'Subjects of the worst problems, at most 20: the export, the service, the gateway or the cluster. Always 1.',
      labels: ['code', 'severity', 'kind', 'namespace', 'subject'],
    }),
    looked: metrics.gauge({
      name: 'sealane_member_looked_timestamp_seconds',
      help: 'Time of the last check of this cluster for problems, seconds since 1970.',
    }),
  }
}

/** The metric of every process of a member, set once the member has joined. */
export function memberInfo(metrics: Metrics): Gauge {
  return metrics.gauge({
    name: 'sealane_member_info',
    help: 'The cluster of the clusterset to which this process belongs, and its release. Always 1; join it on instance.',
    labels: ['member', 'version'],
  })
}
