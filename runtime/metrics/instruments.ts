/**
 * The metrics interface of components. Only runtime/metrics/prometheus-metrics.ts uses prom-client, with a private
 * registry. Names start with `sealane_`, counters end in `_total`, units are base units (`_seconds`, `_bytes`).
 */

export interface Counter {
  inc(labels?: Readonly<Record<string, string>>, by?: number): void
}
export interface LabelledCounter extends Counter {
  /** Removes the series with these labels, when their subject is gone. */
  remove(labels: Readonly<Record<string, string>>): void
}
export interface Gauge {
  set(value: number, labels?: Readonly<Record<string, string>>): void
  /** Removes all labelled series, so that those of removed subjects disappear. */
  reset(): void
}
export interface Histogram {
  observe(value: number, labels?: Readonly<Record<string, string>>): void
}

export interface MetricInit {
  readonly name: string
  readonly help: string
  readonly labels?: readonly string[]
}

export interface Metrics {
  counter(init: MetricInit): LabelledCounter
  gauge(init: MetricInit): Gauge
  histogram(init: MetricInit & { readonly buckets: readonly number[] }): Histogram
  /** Prometheus text exposition format 0.0.4. */
  text(): Promise<string>
}
