/** Metrics of the member's two sessions. Nothing is counted without a registry. */
import { QUOTA_FIELDS, type QuotaReport, isQuotaReason } from '../../model/model.ts'
import type { RefusalReason } from '../../model/reasons/reasons.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'

/** The fastest of the last three answers within the last minute counts, because a single late answer proves nothing. */
const LAST = 3
const RECENT_MS = 60_000

interface Answer {
  readonly atMs: number
  readonly tookMs: number
}

/**
 * Measures the time until the broker has stored what this cluster wants published. It measures one change at a time,
 * from the moment that it is wanted until its acknowledgement, including time without a connection.
 */
export class AcknowledgeDelay {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #observe: (seconds: number) => void
  /** Time at which the first change was wanted that is not measured yet. */
  #wantedAtMs: number | undefined
  #followed: { readonly sequence: number; readonly wantedAtMs: number; readonly sentAtMs: number } | undefined
  #answers: readonly Answer[] = []

  constructor(clock: Pick<Clock, 'monotonic'>, observe: (seconds: number) => void) {
    this.#clock = clock
    this.#observe = observe
  }

  wanted(): void {
    this.#wantedAtMs ??= this.#clock.monotonic()
  }

  /** Called when the broker has everything that is wanted. */
  settled(): void {
    this.#wantedAtMs = undefined
  }

  sent(sequence: number): void {
    if (this.#followed !== undefined || this.#wantedAtMs === undefined) return
    this.#followed = { sequence, wantedAtMs: this.#wantedAtMs, sentAtMs: this.#clock.monotonic() }
    this.#wantedAtMs = undefined
  }

  acknowledged(sequence: number): void {
    if (this.#followed === undefined || sequence < this.#followed.sequence) return
    const nowMs = this.#clock.monotonic()
    this.#observe((nowMs - this.#followed.wantedAtMs) / 1000)
    this.#answers = [...this.#answers, { atMs: nowMs, tookMs: nowMs - this.#followed.sentAtMs }].slice(-LAST)
    this.#followed = undefined
  }

  /**
   * Shortest of the last three answer times, in milliseconds. Undefined if there are fewer than three recent answers.
   */
  get answeredMs(): number | undefined {
    const oldest = this.#clock.monotonic() - RECENT_MS
    const recent = this.#answers.filter(({ atMs }) => atMs >= oldest)
    return recent.length < LAST ? undefined : Math.min(...recent.map(({ tookMs }) => tookMs))
  }

  /** The stream has ended: the measured change is sent again. */
  lost(): void {
    this.#wantedAtMs = this.#followed?.wantedAtMs ?? this.#wantedAtMs
    this.#followed = undefined
  }
}

export interface WatchMetrics {
  received(events: readonly Uint8Array[]): void
  invalid(): void
  reset(resumed: boolean): void
  disconnected(): void
  live(live: boolean): void
  records(count: number): void
  /** Undefined for all namespaces. */
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
    help: 'Watch streams started: with a full snapshot, or resumed with the difference.',
    labels: ['start'],
  })
  const lost = metrics?.counter({
    name: 'sealane_watch_disconnects_total',
    help: 'Watch streams that failed or could not start.',
  })
  const live = metrics?.gauge({
    name: 'sealane_watch_live',
    help: '1 while the replica receives changes from the broker.',
  })
  const records = metrics?.gauge({ name: 'sealane_replica_records', help: 'Records in the replica.' })
  const namespaces = metrics?.gauge({
    name: 'sealane_watch_namespaces',
    help: 'Namespaces whose records are requested; -1: all.',
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
  /** Counts one sent message. */
  sent(kind: 'put' | 'remove' | 'facts' | 'status', sequence: number): void
  acknowledged(sequence: number): void
  /** See AcknowledgeDelay.answeredMs. */
  answeredMs(): number | undefined
  declared(answer: 'inSync' | 'sendDigest'): void
  refused(): void
  disconnected(): void
  /** `settled` is true if the broker has everything that is wanted. */
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
    help: 'Declarations of the full record set, by answer: already in sync, or compared record by record.',
    labels: ['answer'],
  })
  const refused = metrics?.counter({ name: 'sealane_publish_refused_total', help: 'Records refused by the broker.' })
  const lost = metrics?.counter({
    name: 'sealane_publish_disconnects_total',
    help: 'Publish streams that failed or could not start.',
  })
  const live = metrics?.gauge({ name: 'sealane_publish_live', help: '1 while the broker accepts changes.' })
  const records = metrics?.gauge({
    name: 'sealane_publish_records',
    help: 'Records that this cluster publishes.',
  })
  const seconds = metrics?.histogram({
    name: 'sealane_publish_delay_seconds',
    help: 'Time from a change until the broker has stored it, including time without a connection; one change is measured at a time.',
    buckets: [0.005, 0.02, 0.1, 0.5, 1, 2, 5, 15, 60],
  })
  const delay = clock === undefined ? undefined : new AcknowledgeDelay(clock, (took) => seconds?.observe(took))
  return {
    sent: (type, sequence) => {
      sent?.inc({ type })
      // The delay is that of records, not of the cluster's facts and status.
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
    help: 'Quota of this cluster at the broker: records, bytes, changes a second, streams.',
    labels: ['resource'],
  })
  const used = metrics?.gauge({
    name: 'sealane_publish_quota_used',
    help: 'Use of the quota at the last report of the broker: records, bytes.',
    labels: ['resource'],
  })
  const slowed = metrics?.gauge({
    name: 'sealane_publish_slowed',
    help: '1 while the broker slows down changes because of the quota.',
  })
  const waiting = metrics?.gauge({
    name: 'sealane_publish_waiting_records',
    help: 'Records that wait because the quota is exhausted.',
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

interface Refused {
  /** Undefined for the facts or the status. */
  readonly key: string | undefined
  readonly field: string
  readonly reason: RefusalReason
  readonly message: string
}

/** Reports the quota in metrics, and in the log once each time that a shortage begins. */
export class QuotaNotes {
  readonly #logger: Logger
  readonly #metrics: QuotaMetrics
  #isSlowed = false
  #isFull = false

  constructor({ logger, metrics }: { readonly logger: Logger; readonly metrics?: Metrics }) {
    this.#logger = logger
    this.#metrics = quotaMetrics(metrics)
  }

  take(report: QuotaReport, waiting: number): void {
    const { limit, used, isSlowed } = report
    this.#metrics.report(report)
    this.#count(waiting)
    if (isSlowed && !this.#isSlowed) {
      const why = `the quota is ${limit.changes} changes a second`
      this.#logger.warn('the broker slows down the changes of this cluster', { reason: 'QuotaChanges', why })
    }
    this.#isSlowed = isSlowed
    if (waiting > 0 || !this.#isFull) return
    this.#isFull = false
    this.#logger.info('the quota allows all records again', { ...used })
  }

  /**
   * Logs the first refusal for lack of quota as a warning, and further ones at debug level, because the conditions of
   * ServiceExports show each of them.
   */
  logRefused({ key = 'cluster facts or status', field, reason, message: why }: Refused, waiting: number): void {
    const isRepeated = isQuotaReason(reason) && this.#isFull
    this.#logger[isRepeated ? 'debug' : 'warn']('the broker refuses a record', { record: key, field, reason, why })
    if (isQuotaReason(reason)) this.#isFull = true
    this.#count(waiting)
  }

  #count(waiting: number): void {
    this.#metrics.waiting(waiting)
  }
}
