/** What a PromQL query names: each metric must be one that is declared, with the labels that it is given. */
import { DECLARED, declaredMetrics } from '../../scripts/documents/metrics-document.ts'

/** Of Prometheus itself, and of every process. */
const OTHERS = new Set(['up', 'ALERTS', 'process_resident_memory_bytes', 'process_cpu_seconds_total'])
const ADDED = ['job', 'instance', 'component']
const SUFFIX = /_(bucket|sum|count)$/

const METRICS = new Map(
  Object.values(DECLARED).flatMap((declare) => declaredMetrics(declare).map((row) => [row.name, row])),
)

/** In words; empty: all of it is known. */
export function queryProblems(query: string): readonly string[] {
  const named = [...query.matchAll(/\b(sealane_[a-z0-9_]+)(?:\{([^}]*)\})?/g)]
  return named.flatMap(([, name = '', matchers = '']) => {
    if (OTHERS.has(name)) return []
    const base = METRICS.has(name) ? name : name.replace(SUFFIX, '')
    const row = METRICS.get(base)
    if (row === undefined) return [`${name}: no such metric`]
    if ((row.type === 'histogram') !== (base !== name)) return [`${name}: a histogram has _bucket, _sum and _count`]
    const labels = [...(row.labels ?? []), ...ADDED, ...(row.type === 'histogram' ? ['le'] : [])]
    const asked = [...matchers.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)].map(([, label = '']) => label)
    return asked.filter((label) => !labels.includes(label)).map((label) => `${name}: no label ${label}`)
  })
}

/** Metrics that a query names, without the endings of histograms. */
export function metricsOf(query: string): readonly string[] {
  const names = [...query.matchAll(/\b(sealane_[a-z0-9_]+)/g)].map(([name]) => name)
  return [...new Set(names.map((name) => (METRICS.has(name) ? name : name.replace(SUFFIX, ''))))]
}
