/** The public interface of this room: the metrics interface, and its implementation on prom-client. */
export type { Counter, Gauge, Histogram, LabelledCounter, MetricInit, Metrics } from './instruments.ts'
export { createMetrics } from './prometheus-metrics.ts'
