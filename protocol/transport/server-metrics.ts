/** Metrics of the broker's transport. */
import type { Metrics } from '../../runtime/metrics/metrics.ts'

export interface ServerMetrics {
  called(method: string, result: 'ok' | 'refused' | 'failed'): void
  /** `by` is +1 when a stream opens and -1 when it ends. */
  streams(method: string, by: 1 | -1): void
  connections(count: number): void
  /** Counts a connection that the broker closed for lack of slots or because its time was up. */
  dropped(stage: string): void
  sent(bytes: number): void
  received(bytes: number): void
}

/** Counts nothing if `metrics` is undefined. */
export function serverMetrics(metrics: Metrics | undefined): ServerMetrics {
  const calls = metrics?.counter({
    name: 'sealane_broker_calls_total',
    help: 'Calls that the broker has answered; streams count when they end.',
    labels: ['method', 'result'],
  })
  const open = metrics?.gauge({ name: 'sealane_broker_streams', help: 'Open streams.', labels: ['method'] })
  const connections = metrics?.gauge({ name: 'sealane_broker_connections', help: 'Open TLS connections.' })
  const dropped = metrics?.counter({
    name: 'sealane_broker_dropped_connections_total',
    help: 'Connections closed at a limit or timeout, by stage: silent, ready (waiting for the handshake), shaking, stranger, member, shared (waiting for the relay).',
    labels: ['stage'],
  })
  const bytes = metrics?.counter({
    name: 'sealane_broker_stream_bytes_total',
    help: 'Bytes of stream messages: sent by Watch, received by Publish.',
    labels: ['direction'],
  })
  const counts = new Map<string, number>()
  return {
    called: (method, result) => calls?.inc({ method, result }),
    streams: (method, by) => {
      const now = (counts.get(method) ?? 0) + by
      counts.set(method, now)
      open?.set(now, { method })
    },
    connections: (count) => connections?.set(count),
    dropped: (stage) => dropped?.inc({ stage }),
    sent: (count) => bytes?.inc({ direction: 'sent' }, count),
    received: (count) => bytes?.inc({ direction: 'received' }, count),
  }
}
