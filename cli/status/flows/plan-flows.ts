/** Sums what nodes say about calls for `sealane top`, and chooses the lines of `sealane flows`. Pure. */
import {
  type FlowCounts,
  type FlowLine,
  type FlowRow,
  NO_FLOWS,
  addFlows,
  addTimes,
  connectTimeQuantile,
} from '../../../model/model.ts'
import type { NodeFlows } from './read-flows.ts'

export const FLOW_GROUPS = ['services', 'clusters', 'callers'] as const
export type FlowGroup = (typeof FLOW_GROUPS)[number]
export const FLOW_ORDERS = ['calls', 'refused', 'unanswered', 'timed-out', 'bytes', 'p99', 'name'] as const
export type FlowOrder = (typeof FLOW_ORDERS)[number]

export interface TopRow {
  /** A service, a cluster, or a namespace; for calls into this cluster `cluster ID`. */
  readonly name: string
  readonly callsPerSecond: number
  readonly bytesPerSecond: number
  /** In the last minute, as the node keeps it. */
  readonly recent: FlowCounts
  /** Since the processes began. */
  readonly total: FlowCounts
  /** Connect times of samples in milliseconds, since the processes began. Absent without samples. */
  readonly p50Ms?: number
  readonly p90Ms?: number
  readonly p99Ms?: number
}

const UNKNOWN = '-'
/** The sum of what nodes do not list. */
const OTHERS = '(others)'

export function topRows(pages: readonly NodeFlows[], group: FlowGroup, order: FlowOrder = 'calls'): readonly TopRow[] {
  interface Sum {
    readonly recent: FlowCounts
    readonly total: FlowCounts
    readonly times: readonly number[]
    readonly rates: readonly [calls: number, bytes: number]
  }
  const sums = new Map<string, Sum>()
  const add = (name: string, row: FlowRow, seconds: number): void => {
    const before = sums.get(name)
    const { recent } = row
    const [calls, bytes] = before?.rates ?? [0, 0]
    sums.set(name, {
      recent: addFlows(before?.recent ?? NO_FLOWS, recent),
      total: addFlows(before?.total ?? NO_FLOWS, row.total),
      times: addTimes(before?.times ?? [], row.times),
      rates: [calls + recent.opened / seconds, bytes + (recent.sentBytes + recent.receivedBytes) / seconds],
    })
  }
  for (const { rows, rest, recentSeconds } of pages) {
    for (const row of rows) {
      const name = nameOf(row, group)
      if (name !== undefined) add(name, row, recentSeconds)
    }
    if (rest.total.opened > 0) add(OTHERS, rest, recentSeconds)
  }
  const found = [...sums].map(
    ([
      name,
      {
        recent,
        total,
        times,
        rates: [calls, bytes],
      },
    ]): TopRow => {
      const part = (of: number): number | undefined => rounded(connectTimeQuantile(times, of))
      const [p50Ms, p90Ms, p99Ms] = [part(0.5), part(0.9), part(0.99)]
      return {
        ...{ name, callsPerSecond: rounded(calls) ?? 0, bytesPerSecond: Math.round(bytes), recent, total },
        ...(p50Ms === undefined ? {} : { p50Ms }),
        ...(p90Ms === undefined ? {} : { p90Ms }),
        ...(p99Ms === undefined ? {} : { p99Ms }),
      }
    },
  )
  const byName = (a: TopRow, b: TopRow): number => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0)
  const weight = WEIGHTS[order]
  return found.sort((a, b) => weight(b) - weight(a) || byName(a, b))
}

const WEIGHTS: Readonly<Record<FlowOrder, (row: TopRow) => number>> = {
  calls: ({ callsPerSecond }) => callsPerSecond,
  refused: ({ recent }) => recent.refused,
  unanswered: ({ recent }) => recent.unanswered,
  'timed-out': ({ recent: { ended, timedOut } }) => timedOut / Math.max(1, ended),
  bytes: ({ bytesPerSecond }) => bytesPerSecond,
  p99: ({ p99Ms = 0 }) => p99Ms,
  name: () => 0,
}

/** Undefined: the row says nothing about this. Services and clusters are those that are called from here. */
function nameOf({ way, namespace, service, cluster }: FlowRow, group: FlowGroup): string | undefined {
  if (group === 'callers') return way === 'in' ? `cluster ${cluster ?? UNKNOWN}` : (namespace ?? UNKNOWN)
  if (way === 'in') return undefined
  return (group === 'services' ? service : cluster) ?? UNKNOWN
}

export interface FlowFilter {
  /** The namespace of the caller. */
  readonly from?: string | undefined
  /** `NAME` or `NAMESPACE/NAME` of the service. */
  readonly to?: string | undefined
  /** At either end. */
  readonly cluster?: string | undefined
  readonly denied?: boolean | undefined
}

export type NodeLine = FlowLine & { readonly node?: string }

/** The lines of all nodes, the latest last. */
export function flowLines(pages: readonly NodeFlows[], filter: FlowFilter = {}): readonly NodeLine[] {
  const all = pages.flatMap(({ node, lines }) =>
    lines.map((line): NodeLine => (node === undefined ? line : { ...line, node })),
  )
  return all
    .filter((line) => isWanted(line, filter))
    .sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : (a.number ?? 0) - (b.number ?? 0)))
}

/** The lines that were not among the earlier ones. */
export function newLines(lines: readonly NodeLine[], earlier: readonly NodeLine[]): readonly NodeLine[] {
  const known = new Set(earlier.map((line) => JSON.stringify(line)))
  return lines.filter((line) => !known.has(JSON.stringify(line)))
}

/** Of nodes that give no answer for a time. A cluster may have many nodes that never come back. */
const MOST_OF_SILENT = 20_000

/**
 * What newLines() has to know next time: these lines, and the earlier ones of nodes that did not answer now, which say
 * them again when they answer.
 */
export function linesToKnow(
  pages: readonly NodeFlows[],
  lines: readonly NodeLine[],
  earlier: readonly NodeLine[],
): readonly NodeLine[] {
  const answering = new Set(pages.map(({ node }) => node))
  return [...lines, ...earlier.filter(({ node }) => !answering.has(node)).slice(0, MOST_OF_SILENT)]
}

function isWanted({ outcome, from: caller, to: called }: FlowLine, { from, to, cluster, denied }: FlowFilter): boolean {
  if (denied === true && outcome !== 'denied') return false
  if (from !== undefined && caller.namespace !== from) return false
  if (cluster !== undefined && caller.cluster !== cluster && called.cluster !== cluster) return false
  return to === undefined || called.service === to || called.service?.endsWith(`/${to}`) === true
}

function rounded(value: number | undefined): number | undefined {
  return value === undefined ? undefined : Math.round(value * 1000) / 1000
}
