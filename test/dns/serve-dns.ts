/**
 * Runs the DNS component in a child process: the code of the child, and the function with which its parent waits for
 * it.
 */
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
  /** The address as `HOST:PORT`; port 0 stands for a free one. */
  readonly listen: string
  /** The time until the objects can be read, if the cluster holds them back. */
  readonly heldMs: number
}

/** Serves until SIGTERM, or until the parent is gone. Sends its address to the parent. */
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

/** Resolves with the port once a child of serveDns() listens. Rejects when the child ends before. */
export async function portOf(child: ChildProcess): Promise<number> {
  const died = once(child, 'exit').then(([code]) => {
    throw new Error(`dns ended with code ${String(code)}`)
  })
  died.catch(() => undefined)
  const [address] = (await Promise.race([once(child, 'message'), died])) as [string]
  return Number(address.slice(address.lastIndexOf(':') + 1))
}
