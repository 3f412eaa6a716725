/** The DNS component on a free loopback port, and clients for it. */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Test } from 'tap'
import type { ClusterApi } from '../../kubeapi/cluster-api.ts'
import { type DnsConfigInput, dnsConfig } from '../../dns/config/dns-config.ts'
import { runDns } from '../../dns/main.ts'
import { type Clock, SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/component.ts'
import { type WireMessage, decode, uint16s } from './wire.ts'

export interface RunningDns {
  readonly port: number
  readonly logger: CapturingLogger
  readonly status: StatusBoard
  readonly metrics: ReturnType<typeof createMetrics>
  stop(): Promise<void>
}

export async function startDns(
  t: Test,
  api: Pick<ClusterApi, 'cache' | 'read'>,
  input: Partial<DnsConfigInput> = {},
  clock: Clock = new SystemClock(),
): Promise<RunningDns> {
  const stopping = new AbortController()
  const logger = new CapturingLogger()
  const metrics = createMetrics('dns')
  const status = new StatusBoard()
  let onListening = (_address: string): void => undefined
  const listening = new Promise<string>((resolve) => {
    onListening = resolve
  })
  const running = runDns(
    { api, clock, logger, metrics, status, onListening },
    dnsConfig({ clusterId: 'west', listen: ['127.0.0.1:0'], syncWaitMs: 50, lingerMs: 0, ...input }),
    stopping.signal,
  )
  const stop = async (): Promise<void> => {
    stopping.abort()
    await running
  }
  t.teardown(stop)
  const address = await Promise.race([
    listening,
    running.then(() => {
      throw new Error('stopped')
    }),
  ])
  return { port: Number(address.slice(address.lastIndexOf(':') + 1)), logger, status, metrics, stop }
}

/**
 * Waits for an answer with the id of the query. Rejects after `timeoutMs`. `from` is a source address of this machine;
 * each address in 127.0.0.0/8 counts as a separate client.
 */
export async function askUdp(port: number, query: Buffer, timeoutMs = 5000, from?: string): Promise<WireMessage> {
  const socket = createSocket('udp4')
  try {
    if (from !== undefined) {
      socket.bind({ address: from })
      await once(socket, 'listening')
    }
    socket.connect(port, '127.0.0.1')
    await once(socket, 'connect')
    socket.send(query)
    for (;;) {
      const [message] = (await once(socket, 'message', { signal: AbortSignal.timeout(timeoutMs) })) as [Buffer]
      if (message.readUInt16BE(0) === query.readUInt16BE(0)) return decode(message)
    }
  } finally {
    socket.close()
  }
}

/**
 * Sends all queries on one connection in pieces of `chunk` octets, and returns the answers in the order of their
 * arrival.
 */
export async function askTcp(port: number, queries: readonly Buffer[], chunk = 65_536): Promise<WireMessage[]> {
  const socket = connect(port, '127.0.0.1')
  socket.setNoDelay(true)
  await once(socket, 'connect')
  const bytes = Buffer.concat(queries.flatMap((query) => [uint16s(query.length), query]))
  let received = Buffer.alloc(0)
  socket.on('data', (data: Buffer) => {
    received = Buffer.concat([received, data])
  })
  for (let at = 0; at < bytes.length; at += chunk) {
    socket.write(bytes.subarray(at, at + chunk))
    await new Promise((resolve) => setImmediate(resolve))
  }
  socket.end()
  await once(socket, 'close', { signal: AbortSignal.timeout(10_000) })
  const answers: WireMessage[] = []
  for (let at = 0; at < received.length;) {
    const end = at + 2 + received.readUInt16BE(at)
    answers.push(decode(received.subarray(at + 2, end)))
    at = end
  }
  return answers
}
