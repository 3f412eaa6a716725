/** Metrics: the instruments, and prom-client behind them. */
export type { Counter, Gauge, Histogram, LabelledCounter, MetricInit, Metrics } from './instruments.ts'
export { createMetrics } from './prometheus-metrics.ts'
