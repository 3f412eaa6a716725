/** `sealane benchmark`: measures calls between two places, and calls inside the calling cluster in the same run. */
import { type Column, renderTable } from '../../context/context.ts'
import { bitsPerSecond, msText, rateText } from './check-outcome.ts'
import type { FailedCall, ProbeCall, ProbeResult, Target } from './probe-wire.ts'

/** One pair of places. */
export interface BenchmarkWay {
  /** `c1 → c2`, or `inside c1`. */
  readonly way: string
  readonly to: Target
}

export interface Benchmark {
  readonly way: string
  /** Bits per second with one stream, and with eight. */
  readonly oneStream?: number
  readonly eightStreams?: number
  /** Round trips in milliseconds, how many were made, and how many were asked for. */
  readonly latency?: {
    readonly p50: number
    readonly p99: number
    readonly p999: number
    readonly count: number
    readonly asked: number
  }
  /** UDP: lost datagrams as a share from 0 to 1, and the mean difference of round trips. */
  readonly loss?: { readonly share: number; readonly jitterMs: number }
  /** What could not be measured, and why. */
  readonly failed: readonly string[]
}

export interface BenchmarkInit {
  readonly seconds: number
  readonly pings: number
  readonly signal: AbortSignal
  readonly say: (text: string) => void
  readonly call: <Call extends ProbeCall>(call: Call, signal: AbortSignal) => Promise<ProbeResult<Call['op']>>
}

const STREAMS = 8
const INTERVAL_MS = 5

/** Rejects only with the signal's reason. */
export async function runBenchmark({ way, to }: BenchmarkWay, init: BenchmarkInit): Promise<Benchmark> {
  const { seconds, pings, signal, say } = init
  const failed: string[] = []
  const measure = async <Call extends ProbeCall>(what: string, call: Call) => {
    signal.throwIfAborted()
    say(`${way}: ${what}\n`)
    const result = await init.call(call, signal)
    if (result.ok) return result.value
    failed.push(`${what}: ${failureText(result)}`)
    return undefined
  }
  const one = await measure('throughput, 1 stream', { op: 'throughput', to, streams: 1, seconds })
  const eight = await measure(`throughput, ${STREAMS} streams`, { op: 'throughput', to, streams: STREAMS, seconds })
  const latency = await measure(`latency of ${pings} round trips`, { op: 'latency', to, count: pings })
  const lost = await measure('loss and jitter', {
    ...{ op: 'loss', to, intervalMs: INTERVAL_MS },
    count: Math.ceil((1000 * seconds) / INTERVAL_MS),
  } as const)
  return {
    way,
    ...(one === undefined ? {} : { oneStream: Math.round(bitsPerSecond(one)) }),
    ...(eight === undefined ? {} : { eightStreams: Math.round(bitsPerSecond(eight)) }),
    ...(latency === undefined ? {} : { latency: { ...latency, asked: pings } }),
    ...(lost === undefined ? {} : { loss: { share: lost.lost / lost.sent, jitterMs: lost.jitterMs } }),
    failed,
  }
}

function failureText({ failure, message }: FailedCall): string {
  return message === '' ? failure : message
}

// The screen

const NONE = '-'
const COLUMNS: readonly Column<Benchmark>[] = [
  { title: 'WAY', cell: ({ way }) => way },
  { title: '1 STREAM', align: 'right', cell: ({ oneStream: bits }) => (bits === undefined ? NONE : rateText(bits)) },
  {
    title: '8 STREAMS',
    align: 'right',
    cell: ({ eightStreams: bits }) => (bits === undefined ? NONE : rateText(bits)),
  },
  { title: 'P50', align: 'right', cell: ({ latency }) => (latency === undefined ? NONE : msText(latency.p50)) },
  { title: 'P99', align: 'right', cell: ({ latency }) => (latency === undefined ? NONE : msText(latency.p99)) },
  { title: 'P99.9', align: 'right', cell: ({ latency }) => (latency === undefined ? NONE : msText(latency.p999)) },
  { title: 'ROUND TRIPS', align: 'right', cell: ({ latency }) => (latency === undefined ? NONE : tripsText(latency)) },
  {
    title: 'LOSS',
    align: 'right',
    cell: ({ loss }) => (loss === undefined ? NONE : `${(100 * loss.share).toFixed(2)} %`),
  },
  { title: 'JITTER', align: 'right', cell: ({ loss }) => (loss === undefined ? NONE : msText(loss.jitterMs)) },
]

/** Fewer than asked for were made where they take long. */
function tripsText({ count, asked }: NonNullable<Benchmark['latency']>): string {
  return count === asked ? `${count}` : `${count} of ${asked}`
}

/** The table, a plot of throughput and latency, and what could not be measured. */
export function benchmarkText(all: readonly Benchmark[]): string {
  const rates = all.flatMap(({ way, oneStream, eightStreams }) => [
    { label: `${way}, 1 stream`, value: oneStream ?? 0, shown: oneStream === undefined ? NONE : rateText(oneStream) },
    {
      label: `${way}, 8 streams`,
      value: eightStreams ?? 0,
      shown: eightStreams === undefined ? NONE : rateText(eightStreams),
    },
  ])
  const delays = all.flatMap(({ way, latency }) =>
    latency === undefined
      ? []
      : [
          { label: `${way}, p50`, value: latency.p50, shown: msText(latency.p50) },
          { label: `${way}, p99`, value: latency.p99, shown: msText(latency.p99) },
        ],
  )
  const failed = all.flatMap((one) => one.failed.map((text) => `not measured: ${one.way}: ${text}\n`)).join('')
  return `${renderTable(COLUMNS, all)}\n${plot(rates)}\n${plot(delays)}${failed}`
}

export interface Bar {
  readonly label: string
  readonly value: number
  readonly shown: string
}

const WIDTH = 40

/** One line for each bar, the longest one WIDTH characters wide. */
export function plot(bars: readonly Bar[]): string {
  const most = Math.max(...bars.map(({ value }) => value), 0)
  const pad = Math.max(0, ...bars.map(({ label }) => label.length))
  return bars
    .map(({ label, value, shown }) => {
      const length = most === 0 ? 0 : Math.round((WIDTH * value) / most)
      return `${label.padEnd(pad)}  ${'█'.repeat(length)}${length === 0 ? '' : ' '}${shown}\n`
    })
    .join('')
}
