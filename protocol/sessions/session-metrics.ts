/** What the member's two sessions count. Without a registry nothing is counted. */
import { QUOTA_FIELDS, type QuotaReport } from '../../model/quota/member-quota.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import { AcknowledgeDelay } from './acknowledge-delay.ts'

export interface WatchMetrics {
  received(events: readonly Uint8Array[]): void
  invalid(): void
  reset(resumed: boolean): void
  disconnected(): void
  live(live: boolean): void
  records(count: number): void
  /** Undefined: all. */
  interest(namespaces: number | undefined): void
}

export function watchMetrics(metrics: Metrics | undefined): WatchMetrics {
  const events = metrics?.counter({
    name: 'sealane_watch_events_total',
    help: 'Record events received from the broker.',
  })
  const bytes = metrics?.counter({ name: 'sealane_watch_bytes_total', help: 'Bytes of record events received.' })
  const invalid = metrics?.counter({
    name: 'sealane_watch_invalid_events_total',
    help: 'Record events that could not be decoded and were skipped.',
  })
  const streams = metrics?.counter({
    name: 'sealane_watch_streams_total',
    help: 'Watch streams begun: with a whole snapshot, or resumed with the difference.',
    labels: ['start'],
  })
  const lost = metrics?.counter({
    name: 'sealane_watch_disconnects_total',
    help: 'Watch streams that broke or could not begin.',
  })
  const live = metrics?.gauge({ name: 'sealane_watch_live', help: '1 while the replica follows the broker.' })
  const records = metrics?.gauge({ name: 'sealane_replica_records', help: 'Records in the replica.' })
  const namespaces = metrics?.gauge({
    name: 'sealane_watch_namespaces',
    help: 'Namespaces whose records are asked for; -1: all.',
  })
  return {
    received: (batch) => {
      events?.inc({}, batch.length)
      bytes?.inc(
        {},
        batch.reduce((sum, event) => sum + event.length, 0),
      )
    },
    invalid: () => invalid?.inc(),
    reset: (resumed) => streams?.inc({ start: resumed ? 'resumed' : 'snapshot' }),
    disconnected: () => lost?.inc(),
    live: (is) => live?.set(is ? 1 : 0),
    records: (count) => records?.set(count),
    interest: (count = -1) => namespaces?.set(count),
  }
}

export interface PublishMetrics {
  /** One put, remove or facts. */
  sent(kind: 'put' | 'remove' | 'facts' | 'status', sequence: number): void
  acknowledged(sequence: number): void
  /** AcknowledgeDelay.answeredMs */
  answeredMs(): number | undefined
  declared(answer: 'inSync' | 'sendDigest'): void
  refused(): void
  disconnected(): void
  /** `settled`: the broker has all that is wanted. */
  live(live: boolean, settled: boolean): void
  records(count: number, settled: boolean): void
}

export function publishMetrics(metrics: Metrics | undefined, clock?: Pick<Clock, 'monotonic'>): PublishMetrics {
  const sent = metrics?.counter({
    name: 'sealane_publish_messages_total',
    help: 'Changes sent to the broker.',
    labels: ['type'],
  })
  const declared = metrics?.counter({
    name: 'sealane_publish_declares_total',
    help: 'Declarations of the whole set, by the answer: already in sync, or compared record by record.',
    labels: ['answer'],
  })
  const refused = metrics?.counter({ name: 'sealane_publish_refused_total', help: 'Records refused by the broker.' })
  const lost = metrics?.counter({
    name: 'sealane_publish_disconnects_total',
    help: 'Publish streams that broke or could not begin.',
  })
  const live = metrics?.gauge({ name: 'sealane_publish_live', help: '1 while the broker takes changes.' })
  const records = metrics?.gauge({
    name: 'sealane_publish_records',
    help: 'Records that this cluster wants published.',
  })
  const seconds = metrics?.histogram({
    name: 'sealane_publish_delay_seconds',
    help: 'Time from when a change was wanted published until the broker had it, without a connection too; of one change at a time.',
    buckets: [0.005, 0.02, 0.1, 0.5, 1, 2, 5, 15, 60],
  })
  const delay = clock === undefined ? undefined : new AcknowledgeDelay(clock, (took) => seconds?.observe(took))
  return {
    sent: (type, sequence) => {
      sent?.inc({ type })
      // What this cluster says about itself is no export.
      if (type === 'put' || type === 'remove') delay?.sent(sequence)
    },
    acknowledged: (sequence) => delay?.acknowledged(sequence),
    answeredMs: () => delay?.answeredMs,
    declared: (answer) => declared?.inc({ answer: answer === 'inSync' ? 'in_sync' : 'digest' }),
    refused: () => refused?.inc(),
    disconnected: () => {
      lost?.inc()
      delay?.lost()
    },
    live: (is, settled) => {
      live?.set(is ? 1 : 0)
      if (is && settled) delay?.settled()
    },
    records: (count, settled) => {
      records?.set(count)
      if (!settled) delay?.wanted()
    },
  }
}

export interface QuotaMetrics {
  report(report: QuotaReport): void
  waiting(count: number): void
}

export function quotaMetrics(metrics: Metrics | undefined): QuotaMetrics {
  const limit = metrics?.gauge({
    name: 'sealane_publish_quota',
    help: 'What the broker allows this cluster: records, bytes, changes a second, streams.',
    labels: ['resource'],
  })
  const used = metrics?.gauge({
    name: 'sealane_publish_quota_used',
    help: 'What the broker held of this cluster when it reported last: records, bytes.',
    labels: ['resource'],
  })
  const slowed = metrics?.gauge({
    name: 'sealane_publish_slowed',
    help: '1 while the broker takes changes more slowly than they come, because of the quota.',
  })
  const waiting = metrics?.gauge({
    name: 'sealane_publish_waiting_records',
    help: 'Records that wait until the quota has room for them.',
  })
  return {
    report: (report) => {
      for (const resource of QUOTA_FIELDS) limit?.set(report.limit[resource], { resource })
      for (const resource of ['records', 'bytes'] as const) used?.set(report.used[resource], { resource })
      slowed?.set(report.isSlowed ? 1 : 0)
    },
    waiting: (count) => waiting?.set(count),
  }
}
