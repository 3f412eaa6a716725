/** The names in a PromQL query: each metric must be declared, with the labels that the query uses. */
import { DECLARED, declaredMetrics } from '../../scripts/documents/metrics-document.ts'

/** Metrics of Prometheus itself, and of every process. */
const OTHERS = new Set(['up', 'ALERTS', 'process_resident_memory_bytes', 'process_cpu_seconds_total'])
const ADDED = ['job', 'instance', 'component']
const SUFFIX = /_(bucket|sum|count)$/

const METRICS = new Map(
  Object.values(DECLARED).flatMap((declare) => declaredMetrics(declare).map((row) => [row.name, row])),
)

/** The problems in words; the list is empty if all names are known. */
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

/** The metrics that a query names, without the suffixes of histograms. */
export function metricsOf(query: string): readonly string[] {
  const names = [...query.matchAll(/\b(sealane_[a-z0-9_]+)/g)].map(([name]) => name)
  return [...new Set(names.map((name) => (METRICS.has(name) ? name : name.replace(SUFFIX, ''))))]
}
