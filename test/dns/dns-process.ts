/**
 * The DNS component in a process of its own, which reads its objects late. As a program:
 * `node test/dns/dns-process.ts PORT HELD_MS [HOST]` tells its parent when it listens, and ends by SIGTERM.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { dnsConfig } from '../../dns/config.ts'
import { runDns } from '../../dns/main.ts'
import { formatHostPort } from '../../runtime/host-port.ts'
import { createLogger } from '../../runtime/logging/pino-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/status-board.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { workedExamples } from './zone-fixture.ts'

export interface DnsProcess {
  readonly port: number
  /** SIGTERM. Gives the exit code. */
  stop(): Promise<number>
}

export interface DnsProcessInit {
  readonly host: string
  /** 0: a free one. */
  readonly port: number
  /** How long after its start the objects cannot be read. */
  readonly heldMs: number
}

/** Resolves when it listens. It is ended with the test. */
export async function startDnsProcess(t: Test, { host, port, heldMs }: DnsProcessInit): Promise<DnsProcess> {
  const child = fork(fileURLToPath(import.meta.url), [String(port), String(heldMs), host], {
    execArgv: ['--disable-warning=ExperimentalWarning'],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  const exited = once(child, 'exit') as Promise<[number | null]>
  t.teardown(() => end(child, exited))
  const died = exited.then(([code]) => {
    throw new Error(`dns ended with code ${code}`)
  })
  died.catch(() => undefined)
  const [address] = (await Promise.race([once(child, 'message'), died])) as [string]
  return {
    port: Number(address.slice(address.lastIndexOf(':') + 1)),
    stop: () => end(child, exited),
  }
}

async function end(child: ChildProcess, exited: Promise<[number | null]>): Promise<number> {
  child.kill('SIGTERM')
  const [code] = await exited
  return code ?? -1
}

async function serve(): Promise<void> {
  const [port = '', heldMs = '', host = ''] = process.argv.slice(2)
  const cluster = workedExamples({ hold: true })
  const stop = new AbortController()
  process.on('SIGTERM', () => stop.abort())
  process.on('disconnect', () => stop.abort())
  const running = runDns(
    {
      cluster,
      clock: new SystemClock(),
      logger: createLogger('dns', 'warn'),
      metrics: createMetrics('dns'),
      status: new StatusBoard(),
      onListening: (address) => process.send?.(address),
    },
    dnsConfig({ clusterId: 'west', listen: [formatHostPort({ host, port: Number(port) })] }),
    stop.signal,
  )
  const released = sleep(Number(heldMs), undefined, { signal: stop.signal }).then(
    () => cluster.release(),
    () => undefined,
  )
  await Promise.all([running, released])
  process.disconnect?.()
}

if (import.meta.main) await serve()
