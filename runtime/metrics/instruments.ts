/**
 * What components count with; prom-client behind it, in prometheus-metrics.ts only, with a private registry.
 * Names start with `sealane_`, counters end in `_total`, units are base units (`_seconds`, `_bytes`).
 */

export interface Counter {
  inc(labels?: Readonly<Record<string, string>>, by?: number): void
}
export interface LabelledCounter extends Counter {
  /** Forgets what was counted with these labels: of something that is gone. */
  remove(labels: Readonly<Record<string, string>>): void
}
export interface Gauge {
  set(value: number, labels?: Readonly<Record<string, string>>): void
  /** Forgets every labelled value, so that what is gone does not linger. */
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
