/** The metrics of the Kubernetes driver. */
import type { Counter, Gauge, Metrics } from '../../runtime/metrics/metrics.ts'

export interface KubeMetrics {
  readonly requests: Counter
  readonly relists: Counter
  readonly events: Counter
  readonly objects: Gauge
  readonly leader: Gauge
}

export function kubeMetrics(metrics: Metrics): KubeMetrics {
  return {
    requests: metrics.counter({
      name: 'sealane_kube_requests_total',
      help: 'Requests to the API server, by verb and HTTP status (none: no answer).',
      labels: ['verb', 'status'],
    }),
    relists: metrics.counter({
      name: 'sealane_kube_lists_total',
      help: 'Complete lists of a kind: the initial one, and one after each failure of a watch.',
      labels: ['kind'],
    }),
    events: metrics.counter({
      name: 'sealane_kube_watch_events_total',
      help: 'Changes received by watches, by kind.',
      labels: ['kind'],
    }),
    objects: metrics.gauge({
      name: 'sealane_kube_cached_objects',
      help: 'Objects kept in memory, by kind.',
      labels: ['kind'],
    }),
    leader: metrics.gauge({
      name: 'sealane_kube_leader',
      help: '1 while this process holds the lease, 0 while another one does.',
      labels: ['lease'],
    }),
  }
}

const nothing = (): void => undefined

/** For callers without metrics. */
export const UNCOUNTED: KubeMetrics = {
  requests: { inc: nothing },
  relists: { inc: nothing },
  events: { inc: nothing },
  objects: { set: nothing, reset: nothing },
  leader: { set: nothing, reset: nothing },
}
