/**
 * `node test/demo/interrupt.ts SECONDS DEMO [ARGUMENTS]` starts a demo with --json, and sends Ctrl-C this many seconds
 * after its first output. It exits with 0 only if the demo then ends as an interrupted one (demo/interruption.ts), no
 * check had failed before, and nothing is left behind. A demo that crashes or ends by itself is a failure.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Interruption } from '../../demo/interruption.ts'
import type { CheckResult } from '../../demo/report.ts'
import { eventually } from '../support/eventually.ts'
import { demoTraces } from './traces.ts'

/** The time that a demo has to remove everything; after it, the demo counts as hanging. */
const END_MS = 120_000
/** The time in seconds that killed programs may take to disappear. */
const { SEALANE_GONE_SECONDS: GONE_SECONDS = '30' } = process.env

interface Ending {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly report: string
  readonly account: string
}

async function main([seconds = '', ...demo]: readonly string[]): Promise<void> {
  const delayMs = Number(seconds) * 1000
  if (!(delayMs >= 0) || seconds === '' || demo.length === 0)
    throw new Error('usage: interrupt SECONDS DEMO [ARGUMENTS]')
  const [name, value] = ['SEALANE_INTERRUPTED', randomUUID()]
  const mark = `${name}=${value}`
  const before = new Set(demoTraces(mark))
  const env = { ...process.env, [name]: value }
  // Ctrl-C in a terminal reaches a whole process group, so the demo gets its own group.
  const child = spawn(process.execPath, [...demo, '--json'], { env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  const ending = await interrupt(child, delayMs)
  const problem = problemOf(ending)
  if (problem !== undefined) throw new Error(`${problem}\n${ending.account}${ending.report}`)
  await eventually(() => demoTraces(mark).every((one) => before.has(one)), {
    deadlineMs: Number(GONE_SECONDS) * 1000,
    intervalMs: 500,
  }).catch(() => {
    throw new Error(
      `it left behind:\n${demoTraces(mark)
        .filter((one) => !before.has(one))
        .join('\n')}`,
    )
  })
  process.stdout.write(`interrupted ${seconds} s after its first word, it took all away\n`)
}

async function interrupt(child: ChildProcess, delayMs: number): Promise<Ending> {
  let [report, account] = ['', '']
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (report += text))
  const begun = new Promise<void>((resolve) =>
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      account += text
      resolve()
    }),
  )
  const ended = once(child, 'close') as Promise<[number | null, NodeJS.Signals | null]>
  await Promise.race([begun.then(() => sleep(delayMs, undefined, { ref: false })), ended])
  const send = (signal: NodeJS.Signals): void => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, signal)
  }
  send('SIGINT')
  const late = setTimeout(() => send('SIGKILL'), END_MS)
  const [code, signal] = await ended
  clearTimeout(late)
  return { code, signal, report, account }
}

/** Returns the reason why this is not the end of an interrupted demo. */
function problemOf({ code, signal, report }: Ending): string | undefined {
  const { exitCode, message } = new Interruption('SIGINT')
  if (code === 0) return 'it ended by itself'
  if (code !== exitCode) return `it ended by ${signal ?? `exit code ${code}`}, expected exit code ${exitCode}`
  const { checks, failure } = parsed(report) ?? {}
  if (failure !== message) return `its report says "${failure ?? ''}", expected one that says "${message}"`
  const failed = (checks ?? []).flatMap(({ name, ok }) => (ok ? [] : [name]))
  return failed.length === 0 ? undefined : `these failed before: ${failed.join(', ')}`
}

function parsed(report: string): { readonly checks?: readonly CheckResult[]; readonly failure?: string } | undefined {
  try {
    return JSON.parse(report) as ReturnType<typeof parsed>
  } catch {
    return undefined
  }
}

await main(process.argv.slice(2)).catch((error: unknown) => {
  process.stderr.write(`${(error as Error).message}\n`)
  process.exitCode = 1
})
