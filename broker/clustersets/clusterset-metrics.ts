/** What a broker counts of one clusterset beside its own: the same series, with its name. */
import type { Counter, Gauge, Histogram } from '../../runtime/metrics/metrics.ts'
import type { BrokerMetrics } from '../metrics.ts'

export interface ClustersetMetrics {
  readonly metrics: BrokerMetrics
  /** Of one that is served no more: what was so is not so. */
  forget(): void
}

type Labels = Readonly<Record<string, string>>

/** Takes the broker's own. As many names come as there may be clustersets: MAX_CLUSTERSETS. */
export function clustersetMetrics(all: BrokerMetrics, clusterset: string): ClustersetMetrics {
  const held = new Map<string, () => void>()
  const withName = (labels: Labels = {}): Labels => ({ ...labels, clusterset })
  const named = (name: string, metric: Counter | Gauge | Histogram): Counter | Gauge | Histogram => {
    if ('inc' in metric) return { inc: (labels, by) => metric.inc(withName(labels), by) }
    if ('observe' in metric) return { observe: (value, labels) => metric.observe(value, withName(labels)) }
    const set = (value: number, labels?: Labels): void => {
      held.set(`${name} ${JSON.stringify(labels)}`, () => metric.set(0, withName(labels)))
      metric.set(value, withName(labels))
    }
    return { set, reset: () => held.forEach((zero) => zero()) }
  }
  const entries = Object.entries(all) as [string, Counter | Gauge | Histogram][]
  const metrics = Object.fromEntries(entries.map(([name, metric]) => [name, named(name, metric)]))
  return { metrics: metrics as unknown as BrokerMetrics, forget: () => held.forEach((zero) => zero()) }
}
