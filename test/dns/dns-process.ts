/**
 * The DNS component in its own process, which can read its objects only after a delay. The program is started as
 * `node test/dns/dns-process.ts PORT HELD_MS [HOST]`. It sends its parent a message when it listens, and ends at
 * SIGTERM.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { formatHostPort } from '../../runtime/flag-values.ts'
import { portOf, serveDns } from './serve-dns.ts'
import { workedExamples } from './zone-fixture.ts'

export interface DnsProcess {
  readonly port: number
  /** Sends SIGTERM, and returns the exit code. */
  stop(): Promise<number>
}

export interface DnsProcessInit {
  readonly host: string
  /** The port; 0 for a free one. */
  readonly port: number
  /** The time after the start until the objects can be read. */
  readonly heldMs: number
}

/** Resolves when the process listens. The process ends with the test. */
export async function startDnsProcess(t: Test, { host, port, heldMs }: DnsProcessInit): Promise<DnsProcess> {
  const child = fork(fileURLToPath(import.meta.url), [String(port), String(heldMs), host], {
    execArgv: ['--disable-warning=ExperimentalWarning'],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  const exited = once(child, 'exit') as Promise<[number | null]>
  t.teardown(() => end(child, exited))
  return { port: await portOf(child), stop: () => end(child, exited) }
}

async function end(child: ChildProcess, exited: Promise<[number | null]>): Promise<number> {
  child.kill('SIGTERM')
  const [code] = await exited
  return code ?? -1
}

async function serve([port = '', heldMs = '', host = '']: readonly string[]): Promise<void> {
  const listen = formatHostPort({ host, port: Number(port) })
  await serveDns({ api: workedExamples({ hold: true }), clusterId: 'west', listen, heldMs: Number(heldMs) })
}

if (import.meta.main) await serve(process.argv.slice(2))
