/** The last ten minutes of what the page has seen of links and calls, bounded. Pure. */
import type { CallsRow, LinkRow, OfContext } from '../state/state.ts'

export const KEPT_MS = 600_000
/** One every two seconds, as most consoles look, though some look more often. */
const LEAST_MS = 1900
const MOST_SAMPLES = Math.ceil(KEPT_MS / LEAST_MS) + 1
/** The first ones of their sections: links that are not up, and services that are called most. */
export const MOST_LINES = 200

export interface HistorySample {
  /** Milliseconds since 1970: when the facts were taken. */
  readonly at: number
  readonly links: ReadonlyMap<string, Quality>
  /** Calls a second. Empty where calls were not read since the last sample. */
  readonly calls: ReadonlyMap<string, number>
}

interface Quality {
  readonly rttMs?: number
  /** 0 to 1. */
  readonly loss?: number
}

/** Undefined: the rows were not read at that time. */
export function sampleOf(
  at: number,
  links: readonly LinkRow[] | undefined,
  calls: readonly CallsRow[] | undefined,
): HistorySample {
  const quality = ({ rttMs, loss, state }: LinkRow): Quality => ({
    ...(rttMs === undefined || state !== 'up' ? {} : { rttMs }),
    // Nothing passes over a link that is down, whatever its last probes said.
    ...(state === 'down' ? { loss: 1 } : loss === undefined ? {} : { loss }),
  })
  return {
    at,
    links: new Map(links?.slice(0, MOST_LINES).map((row) => [linkName(row), quality(row)])),
    calls: new Map(calls?.slice(0, MOST_LINES).map((row) => [callName(row), row.callsPerSecond])),
  }
}

/** On a page about several contexts, gateways and services of two may have the same name. */
function named({ context }: OfContext, name: string): string {
  return context === undefined ? name : `${context}: ${name}`
}

export function callName(row: CallsRow): string {
  return named(row, row.service)
}

export function linkName(row: LinkRow): string {
  const { node, lane, cluster, remoteLane } = row
  return named(row, `${node} lane ${lane} to ${cluster} lane ${remoteLane}`)
}

/**
 * Adds a sample. One that comes too soon after the last is left out. A clock that was set back begins a new history.
 */
export function withSample(history: readonly HistorySample[], sample: HistorySample): readonly HistorySample[] {
  const last = history.at(-1)?.at ?? -Infinity
  if (!Number.isFinite(sample.at)) return history
  if (sample.at < last - LEAST_MS) return [sample]
  if (sample.at - last < LEAST_MS) return history
  return [...history, sample].filter(({ at }) => sample.at - at <= KEPT_MS).slice(-MOST_SAMPLES)
}

/** Values over time, as a chart takes them; null where none is known. */
export interface Series {
  /** Seconds since 1970. */
  readonly times: readonly number[]
  readonly values: readonly (readonly (number | null)[])[]
}

/** RTT in milliseconds, and loss in percent. */
export function linkSeries(history: readonly HistorySample[], link: string): Series {
  const of = history.map(({ links }) => links.get(link))
  return {
    times: history.map(({ at }) => at / 1000),
    values: [of.map((one) => one?.rttMs ?? null), of.map((one) => (one?.loss === undefined ? null : one.loss * 100))],
  }
}

/** Calls a second, where they were read. */
export function callSeries(history: readonly HistorySample[], service: string): Series {
  const read = history.filter(({ calls }) => calls.size > 0)
  return {
    times: read.map(({ at }) => at / 1000),
    // A service without calls is not listed; in a list that is full it may only have had no place.
    values: [read.map(({ calls }) => calls.get(service) ?? (calls.size < MOST_LINES ? 0 : null))],
  }
}

/** One minute of a series: the mean and the highest of each of its values. */
export interface Minute {
  /** RFC 3339. */
  readonly at: string
  readonly values: readonly (Extremes | undefined)[]
}

interface Extremes {
  readonly mean: number
  readonly most: number
}

/** The latest first. */
export function minutesOf({ times, values }: Series): readonly Minute[] {
  const places = Map.groupBy(times.keys(), (i) => Math.floor((times[i] ?? 0) / 60))
  const minutes = [...places].map(([minute, at]): Minute => ({
    at: new Date(minute * 60_000).toISOString(),
    values: values.map((line) => extremesOf(at.flatMap((i) => line[i] ?? []))),
  }))
  return minutes.sort((a, b) => (a.at < b.at ? 1 : -1))
}

function extremesOf(values: readonly number[]): Extremes | undefined {
  if (values.length === 0) return undefined
  return { mean: values.reduce((sum, one) => sum + one, 0) / values.length, most: Math.max(...values) }
}
