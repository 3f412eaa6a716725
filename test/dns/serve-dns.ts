/** The DNS component as a program of its own: what a child does that serves, and what its parent waits for. */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { dnsConfig } from '../../dns/config/dns-config.ts'
import { runDns } from '../../dns/main.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { createLogger } from '../../runtime/logging/pino-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/component.ts'

export interface ServeInit {
  readonly api: MemoryApi
  readonly clusterId: string
  /** `HOST:PORT`; port 0: a free one. */
  readonly listen: string
  /** After so long the objects can be read, where the cluster holds them back. */
  readonly heldMs: number
}

/** Serves until SIGTERM, or until the parent is gone. Sends the parent where it listens. */
export async function serveDns({ api, clusterId, listen, heldMs }: ServeInit): Promise<void> {
  const stop = new AbortController()
  process.on('SIGTERM', () => stop.abort())
  process.on('disconnect', () => stop.abort())
  const running = runDns(
    {
      api,
      clock: new SystemClock(),
      logger: createLogger('dns', 'warn'),
      metrics: createMetrics('dns'),
      status: new StatusBoard(),
      onListening: (address) => process.send?.(address),
    },
    dnsConfig({ clusterId, listen: [listen] }),
    stop.signal,
  )
  const released = sleep(heldMs, undefined, { signal: stop.signal }).then(
    () => api.release(),
    () => undefined,
  )
  await Promise.all([running, released])
  process.disconnect?.()
}

/** Resolves with the port once a child of serveDns() listens; rejects when it ends before. */
export async function portOf(child: ChildProcess): Promise<number> {
  const died = once(child, 'exit').then(([code]) => {
    throw new Error(`dns ended with code ${String(code)}`)
  })
  died.catch(() => undefined)
  const [address] = (await Promise.race([once(child, 'message'), died])) as [string]
  return Number(address.slice(address.lastIndexOf(':') + 1))
}
