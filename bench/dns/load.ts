/**
 * Runs dnsperf against a server of the DNS benchmark, as fast as it answers or at a fixed number of questions a second.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Question } from './zone.ts'
import { pinned } from './servers.ts'
import { percentile, round } from '../figures.ts'

interface LoadInit {
  readonly port: number
  /** The path of the file of questions. */
  readonly file: string
  readonly seconds: number
  readonly pin: boolean
}

const RIGHT: Readonly<Record<Question, string>> = { address: 'NOERROR', absent: 'NXDOMAIN' }

async function dnsperf({ port, file, seconds, pin }: LoadInit, more: readonly string[]): Promise<string> {
  const places = ['-s', '127.0.0.1', '-p', String(port), '-d', file]
  const flags = [...places, '-l', String(seconds), '-T', '1', ...more]
  const [command, args] = pinned(pin, 1, 'dnsperf', flags)
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  let report = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    report += text
  })
  await once(child, 'close')
  return report
}

function number(report: string, pattern: RegExp): number {
  return Number(pattern.exec(report)?.[1] ?? Number.NaN)
}

/** Answers a second. Throws if any answer had the wrong code, or more than one in a thousand was lost. */
export async function throughput(load: LoadInit & { readonly kind: Question }): Promise<number> {
  const report = await dnsperf(load, ['-c', '8', '-q', '200'])
  const completed = number(report, /Queries completed:\s+(\d+)/)
  const right = number(report, new RegExp(`${RIGHT[load.kind]} (\\d+)`))
  if (right !== completed) throw new Error(`wrong answers:\n${report}`)
  if (number(report, /Queries lost:\s+(\d+)/) > completed / 1000) throw new Error(`lost answers:\n${report}`)
  return number(report, /Queries per second:\s+([\d.]+)/)
}

export interface Paced {
  readonly asked: number
  readonly lost: number
  /** From each response code to how often it came. */
  readonly codes: Readonly<Record<string, number>>
  readonly p50Ms: number
  readonly p99Ms: number
}

/** The seconds after which an answer counts as lost. */
const PATIENCE = '2'

/** Sends this many questions a second from 50 sockets. The percentiles are of the answered questions. */
export async function paced(load: LoadInit & { readonly perSecond: number }): Promise<Paced> {
  const pace = ['-Q', String(load.perSecond), '-q', String(load.perSecond)]
  const report = await dnsperf(load, [...pace, '-c', '50', '-t', PATIENCE, '-v'])
  const codes: Record<string, number> = {}
  const tookMs: number[] = []
  for (const [, code = '', seconds = ''] of report.matchAll(/^> (\S+) \S+ \S+ ([\d.]+)$/gm)) {
    codes[code] = (codes[code] ?? 0) + 1
    tookMs.push(Number(seconds) * 1000)
  }
  return {
    asked: number(report, /Queries sent:\s+(\d+)/),
    lost: number(report, /Queries lost:\s+(\d+)/),
    codes,
    p50Ms: round(percentile(tookMs, 0.5), 3),
    p99Ms: round(percentile(tookMs, 0.99), 3),
  }
}
