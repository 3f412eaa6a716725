/** Implements Metrics on prom-client, with one registry per process (or per test). */
import { createRequire } from 'node:module'
import type * as prom from 'prom-client'
import type { Gauge, Histogram, LabelledCounter, MetricInit, Metrics } from './instruments.ts'

export interface MetricDescription {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly help: string
  readonly labels: readonly string[]
}

/** Metrics that can also describe themselves: docs/metrics.md is generated from them. */
export interface DescribedMetrics extends Metrics {
  describe(): MetricDescription[]
}

/**
 * Creates a private registry; every series has the label `component`. Declaring a metric with an invalid name throws.
 * Declaring the same metric twice returns the first one.
 */
export function createMetrics(component: string): DescribedMetrics {
  return new PrometheusMetrics(component)
}

/**
 * Loads the modules separately: the whole package also loads OpenTelemetry, 15 MiB and a tenth of a second for each
 * process.
 */
const load = createRequire(import.meta.url)
const PromCounter = load('prom-client/lib/counter.js') as typeof prom.Counter
const PromGauge = load('prom-client/lib/gauge.js') as typeof prom.Gauge
const PromHistogram = load('prom-client/lib/histogram.js') as typeof prom.Histogram
const Registry = load('prom-client/lib/registry.js') as typeof prom.Registry

const NAME = /^sealane_[a-z][a-z0-9]*(_[a-z0-9]+)*$/
const LABEL = /^[a-z][a-z0-9_]*$/
/** Units that are not base units, and their replacements (prometheus.io, "Metric and label naming"). */
const WRONG_UNITS: Readonly<Record<string, string>> = {
  ms: 'seconds',
  milliseconds: 'seconds',
  us: 'seconds',
  microseconds: 'seconds',
  ns: 'seconds',
  minutes: 'seconds',
  hours: 'seconds',
  kb: 'bytes',
  kilobytes: 'bytes',
  mb: 'bytes',
  megabytes: 'bytes',
  bits: 'bytes',
  percent: 'ratio',
}
const TYPE_SUFFIXES = ['_count', '_sum', '_bucket', '_info'] as const

/** Returns what is wrong with a metric's declaration; undefined if nothing is. */
export function lintMetric(type: MetricDescription['type'], init: MetricInit): string | undefined {
  const { name, help, labels = [] } = init
  if (!NAME.test(name)) return 'expected sealane_ and then lower-case words joined by _'
  const wrong = name.split('_').find((word) => word in WRONG_UNITS)
  if (wrong !== undefined) return `expected the base unit ${WRONG_UNITS[wrong] ?? ''} instead of ${wrong}`
  if (type === 'counter' && !name.endsWith('_total')) return 'expected a counter to end in _total'
  if (type !== 'counter' && name.endsWith('_total')) return `expected only counters to end in _total, this is a ${type}`
  const suffix = TYPE_SUFFIXES.find((end) => name.endsWith(end) && !(end === '_info' && type === 'gauge'))
  if (suffix !== undefined) return `expected no ${suffix} at the end: the exposition format uses it`
  if (help.trim() === '') return 'expected a help text'
  const bad = labels.find(
    (label) => !LABEL.test(label) || label === 'le' || label === 'component' || label.startsWith('__'),
  )
  return bad === undefined ? undefined : `label ${bad}: expected lower-case words, not le or component`
}

class PrometheusMetrics implements DescribedMetrics {
  readonly #registry = new Registry()
  readonly #declared = new Map<string, { readonly description: MetricDescription; readonly metric: unknown }>()

  constructor(component: string) {
    this.#registry.setDefaultLabels({ component })
    const registers = [this.#registry]
    new PromGauge({
      name: 'process_resident_memory_bytes',
      help: 'Resident memory size in bytes.',
      registers,
      collect() {
        this.set(process.memoryUsage.rss())
      },
    })
    new PromGauge({
      name: 'process_cpu_seconds_total',
      help: 'Total user and system CPU time spent in seconds.',
      registers,
      collect() {
        const { user, system } = process.cpuUsage()
        this.set((user + system) / 1e6)
      },
    })
  }

  counter(init: MetricInit): LabelledCounter {
    return this.#declare('counter', init, () => {
      const counter = new PromCounter(this.#config(init))
      return {
        inc: (labels, by = 1) => counter.inc({ ...labels }, by),
        remove: (labels) => counter.remove({ ...labels }),
      }
    })
  }

  gauge(init: MetricInit): Gauge {
    return this.#declare('gauge', init, () => {
      const gauge = new PromGauge(this.#config(init))
      return { set: (value, labels) => gauge.set({ ...labels }, value), reset: () => gauge.reset() }
    })
  }

  histogram(init: MetricInit & { readonly buckets: readonly number[] }): Histogram {
    return this.#declare('histogram', init, () => {
      const histogram = new PromHistogram({ ...this.#config(init), buckets: [...init.buckets] })
      return { observe: (value, labels) => histogram.observe({ ...labels }, value) }
    })
  }

  text(): Promise<string> {
    return this.#registry.metrics()
  }

  describe(): MetricDescription[] {
    return [...this.#declared.values()].map(({ description }) => description).sort((a, b) => (a.name < b.name ? -1 : 1))
  }

  #config(init: MetricInit): { name: string; help: string; labelNames: string[]; registers: prom.Registry[] } {
    return { name: init.name, help: init.help, labelNames: [...(init.labels ?? [])], registers: [this.#registry] }
  }

  #declare<T>(type: MetricDescription['type'], init: MetricInit, make: () => T): T {
    const { name, help, labels = [] } = init
    const known = this.#declared.get(name)
    const description: MetricDescription = { name, type, help, labels }
    if (known !== undefined) {
      if (known.description.type === type && known.description.labels.join() === labels.join()) return known.metric as T
      throw new Error(
        `metric ${name}: declared twice, as ${known.description.type} and as ${type} or with other labels`,
      )
    }
    const complaint = lintMetric(type, init)
    if (complaint !== undefined) throw new Error(`metric ${name}: ${complaint}`)
    const metric = make()
    this.#declared.set(name, { description, metric })
    return metric
  }
}
