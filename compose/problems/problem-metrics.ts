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
      help: 'Problems of this cluster, as sealane status has them, by code (docs/troubleshooting.md) and severity: down, degraded, notice. What follows from another one is not counted.',
      labels: ['code', 'severity'],
    }),
    subjects: metrics.gauge({
      name: 'sealane_member_problem_subject',
      help: 'What the worst problems are about, at most 20: the export, the service, the gateway or the cluster. Always 1.',
      labels: ['code', 'severity', 'kind', 'namespace', 'subject'],
    }),
    looked: metrics.gauge({
      name: 'sealane_member_looked_timestamp_seconds',
      help: 'When this cluster was looked at last for problems, seconds since 1970.',
    }),
  }
}

/** The metric of every process of a member, set once the member has joined. */
export function memberInfo(metrics: Metrics): Gauge {
  return metrics.gauge({
    name: 'sealane_member_info',
    help: 'Which cluster of the clusterset this process belongs to, and its release. Always 1; to be joined on instance.',
    labels: ['member', 'version'],
  })
}
