/**
 * The audit log. Acts that change the store arrive through the store itself (audit-outbox.ts), refusals through a
 * bounded queue in memory. A single loop writes both in batches: a log that cannot be written delays nothing else.
 */
import { type Clock, type LoopInit, ReconcileLoop, orAborted } from '../../reconcile/reconcile.ts'
import { messageOf, sealaneVersion } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { AUDIT_STDOUT, type AuditConfig, type BrokerConfig, type BrokerMetrics } from '../config/config.ts'
import {
  type AuditEvent,
  type AuditInit,
  type AuditRow,
  type Change,
  type RecordLog,
  type Transaction,
  auditEvent,
} from '../store/store.ts'
import { AuditFile } from './audit-file.ts'
import { auditLine } from './audit-line.ts'
import { keepEvent, removeEvents, waitingEvents } from './audit-outbox.ts'
import { AuditOutput, type AuditSink } from './audit-sink.ts'
import { RefusalRateLimiter, type Source } from './refusal-rate-limiter.ts'

/** Limit of lines that wait in memory. */
export const MAX_QUEUED = 1000
const MAX_BATCH = 200
/** Interval of reports on suppressed lines: an evicted member that is not stopped may send requests for months. */
const REPORT_MS = 300_000
const LOOP: LoopInit = { minMs: 10, resyncMs: REPORT_MS, retryMinMs: 200, retryMaxMs: 10_000 }
/** A write that takes longer is reported as failing: the reader of a pipe or a disk stalls. */
const STALLED_MS = 10_000
/** When the broker stops, the remaining lines are written within this time. */
const LAST_WRITE_MS = 2000

const BROKER = { kind: 'broker' } as const

export interface AuditTrailDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Pick<BrokerMetrics, 'auditLines' | 'auditLost' | 'auditSuppressed' | 'auditWaiting'>
  /** Absent if there is no audit log. Nothing is kept for one then. */
  readonly sink?: AuditSink | undefined
  /** Whether this broker writes the lines of acts, if several share a store. Absent if it is the only one. */
  readonly isWriter?: () => boolean
  /** The clusterset of all lines. Absent for the broker's own. */
  readonly clusterset?: string | undefined
}

/** The methods that the acting parts of the broker use. */
export type Audit = Pick<AuditTrail, 'isOn' | 'keep' | 'report' | 'allows'>

/** A line in its final form, so that a caller's text of 60 KB is not kept until it is written. */
interface Line {
  readonly id: string
  readonly text: string
  /** The event could not be converted: this line reports that. */
  readonly isStub?: true
}

interface Batch {
  readonly lines: readonly Line[]
  /** Number of lines that are from the queue. */
  readonly queued: number
  readonly rows: ReturnType<typeof waitingEvents>
  /** Number of lost lines of the queue that this batch reports. */
  readonly ofQueue: number
}

export class AuditTrail {
  readonly #deps: AuditTrailDeps
  readonly #refusals: RefusalRateLimiter
  readonly #loop: ReconcileLoop
  readonly #stopCommits: () => void
  #queue: Line[] = []
  /** Ids of rows whose lines are written and that are not removed from the store yet. */
  #written = new Set<string>()
  /** Lost lines of the queue that the log does not report yet. */
  #lost = 0
  /** The last known number of lost events of each row of the store. */
  readonly #counted = new Map<string, number>()
  /** Lost events that a line has reported, by row, if the row got another event during the write of that line. */
  readonly #reported = new Map<string, number>()
  #lookedAtMs: number
  /** What was logged already since the last successful write. */
  readonly #said = { failing: false, losing: false }
  #writing: Promise<void> | undefined
  /** Whether reopen() was called. */
  #isMoved = false
  #isStopping = false

  constructor(deps: AuditTrailDeps) {
    this.#deps = deps
    this.#refusals = new RefusalRateLimiter(deps.clock)
    this.#lookedAtMs = deps.clock.monotonic()
    const onError = (error: unknown): void => deps.logger.debug('cannot write the audit log', { why: messageOf(error) })
    this.#loop = new ReconcileLoop({ clock: deps.clock, onError }, LOOP, (signal) => this.#round(signal))
    this.#stopCommits = deps.log.onCommit((changes) => this.#onCommit(changes))
    // Counts events that were lost while no broker ran: the counters of this process start at zero.
    for (const { key, value } of deps.log.list('audit')) this.#countLost(key, value)
  }

  /** Whether there is an audit log. If not, callers need not gather data for it. */
  get isOn(): boolean {
    return this.#deps.sink !== undefined
  }

  /** Adds an act to the transaction that it is part of: either both are durable or neither is. */
  keep(tx: Transaction, init: AuditInit): void {
    if (this.isOn) keepEvent(tx, init, this.#deps.clock.now())
  }

  /** Whether a line that this source causes may be written. If not, it is counted as suppressed. */
  allows(source: Source): boolean {
    if (!this.isOn) return false
    const allowed = this.#refusals.allows(source)
    if (!allowed) this.#deps.metrics.auditSuppressed.inc()
    return allowed
  }

  /**
   * Reports an act that changed nothing in the store, usually a refusal. Callers check allows() first if a client can
   * cause it.
   */
  report(init: AuditInit): void {
    const { sink, clock, metrics } = this.#deps
    if (sink === undefined) return
    if (this.#queue.length < MAX_QUEUED) this.#queue.push(this.#lineOf(auditEvent(init, clock.now())))
    else {
      this.#lost += 1
      metrics.auditLost.inc()
      this.#sayLost(this.#lost)
    }
    this.#showWaiting()
    this.#loop.poke()
  }

  /** Opens the file again. The caller runs it when the file may have been moved. */
  reopen(): void {
    this.#isMoved = true
    this.#loop.poke()
  }

  /** Writes the lines that previous writers left. The caller runs it when isWriter() has become true. */
  takeOver(): void {
    this.#loop.poke()
  }

  /** Writes until the signal, then the remaining lines for at most two seconds. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, sink } = this.#deps
    await this.#loop.run(signal)
    this.#stopCommits()
    this.#isStopping = true
    const late = new AbortController()
    const cancel = clock.setTimer(LAST_WRITE_MS, () => late.abort(new Error('the broker stops')))
    try {
      await this.flush(late.signal)
    } catch (error) {
      // Acts wait in the store for the next start. Refusals are lost.
      const lines = this.#queue.length
      if (lines > 0) {
        this.#deps.metrics.auditLost.inc({}, lines)
        logger.error('lines of the audit log are lost', { reason: 'AuditLinesLost', lines, why: messageOf(error) })
      }
    } finally {
      cancel()
      await sink?.close()
    }
  }

  /** Writes all lines that wait now. Throws what the sink and the store throw, and the signal's reason. */
  async flush(signal: AbortSignal): Promise<void> {
    do await this.#round(signal)
    while (this.#deps.sink !== undefined && (this.#queue.length > 0 || this.#waiting().length > 0))
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { log, sink } = this.#deps
    if (sink === undefined) return this.#discard()
    // A write of an earlier round that did not wait for its end.
    if (this.#writing !== undefined) await orAborted(this.#writing, signal)
    this.#reportSuppressed()
    this.#showWaiting()
    const batch = this.#batch()
    if (batch.lines.length > 0 || this.#isMoved) {
      this.#writing = this.#write(sink, batch).finally(() => (this.#writing = undefined))
      await orAborted(this.#writing, signal)
    }
    await this.#removeWritten(log)
    if (this.#showWaiting() > 0) this.#loop.poke()
  }

  /** Updates the metric, also during a write that does not end. Returns the number of waiting lines. */
  #showWaiting(): number {
    const { log, metrics } = this.#deps
    const rows = this.#written.size === 0 ? log.count('audit') : this.#waiting().length
    const waiting = this.#queue.length + rows
    metrics.auditWaiting.set(waiting)
    return waiting
  }

  #onCommit(changes: readonly Change[]): void {
    const rows = changes.filter(({ scope }) => scope === 'audit') as readonly Change<'audit'>[]
    if (rows.length === 0 || !this.isOn) return
    for (const { key, value } of rows) this.#countLost(key, value)
    this.#showWaiting()
    // Rows that this trail removes need no round.
    if (rows.some(({ value }) => value !== undefined)) this.#loop.poke()
  }

  /** Logged when it happens, and once: after the log is writable again it would be too late. */
  #countLost(key: string, row: AuditRow | undefined): void {
    if (!this.isOn) return
    const { lost = 0 } = row ?? {}
    const before = this.#counted.get(key) ?? 0
    // With fewer lost events, the row was removed in the meantime, and these are of a new row.
    const more = lost < before ? lost : lost - before
    if (lost < before) this.#reported.delete(key)
    if (lost === 0) this.#counted.delete(key)
    else this.#counted.set(key, lost)
    if (more === 0) return
    this.#deps.metrics.auditLost.inc({}, more)
    this.#sayLost(more)
  }

  /** Rows of the store that are not written yet. */
  #waiting(): ReturnType<typeof waitingEvents> {
    if (this.#deps.isWriter?.() === false) return []
    return waitingEvents(this.#deps.log).filter(({ row }) => !this.#written.has(row.event.id))
  }

  #batch(): Batch {
    const rows = this.#waiting().slice(0, MAX_BATCH)
    const queued = this.#queue.slice(0, MAX_BATCH)
    const ofQueue = this.#lost
    const count = rows.reduce((sum, { key, row }) => sum + (row.lost ?? 0) - (this.#reported.get(key) ?? 0), ofQueue)
    const lines = [...rows.map(({ row }) => this.#lineOf(row.event)), ...queued].sort((a, b) => (a.id < b.id ? -1 : 1))
    if (count > 0) lines.unshift(this.#own({ act: 'audit.lost', result: 'failed', details: { lines: count } }))
    return { lines, queued: queued.length, rows, ofQueue }
  }

  async #write(sink: AuditSink, { lines, queued, rows, ofQueue }: Batch): Promise<void> {
    const { clock, log, logger, metrics } = this.#deps
    const cancel = clock.setTimer(STALLED_MS, () =>
      this.#sayFailing(`no line could be written for ${STALLED_MS / 1000} s: check the process that reads it`),
    )
    try {
      if (this.#isMoved) await sink.reopen?.()
      this.#isMoved = false
      if (lines.length > 0) await sink.write(lines.map(({ text }) => text))
    } catch (error) {
      this.#sayFailing(messageOf(error))
      throw error
    } finally {
      cancel()
    }
    this.#queue = this.#queue.slice(queued)
    for (const { id } of lines) this.#written.add(id)
    this.#lost -= ofQueue
    for (const { key, row } of rows) {
      const now = log.get('audit', key)
      // A row replaced during the write counts the event as lost, but its line was written.
      if (now !== undefined && now.event.id !== row.event.id) this.#reported.set(key, (row.lost ?? 0) + 1)
    }
    metrics.auditLines.inc({}, lines.length)
    const stubs = lines.filter(({ isStub }) => isStub === true)
    if (stubs.length > 0) {
      metrics.auditLost.inc({}, stubs.length)
      const ids = stubs.map(({ id }) => id).join()
      logger.error('cannot create lines of the audit log', { reason: 'AuditLinesLost', ids })
    }
    if (this.#said.failing) logger.info('the audit log can be written again')
    this.#said.failing = false
    this.#said.losing = false
  }

  async #removeWritten(log: RecordLog): Promise<void> {
    const done = waitingEvents(log)
      .map(({ key, row }) => ({ key, id: row.event.id }))
      .filter(({ id }) => this.#written.has(id))
    if (done.length > 0) await log.transact((tx) => removeEvents(tx, done))
    this.#written = new Set()
  }

  /** Without an audit log, removes the rows that commands beside the broker have added. */
  async #discard(): Promise<void> {
    const { log } = this.#deps
    const rows = this.#waiting().map(({ key, row }) => ({ key, id: row.event.id }))
    if (rows.length > 0) await log.transact((tx) => removeEvents(tx, rows))
  }

  #reportSuppressed(): void {
    const nowMs = this.#deps.clock.monotonic()
    const isDue = this.#isStopping || nowMs - this.#lookedAtMs >= REPORT_MS
    // Without room in the queue, the count continues.
    if (!isDue || this.#queue.length >= MAX_QUEUED) return
    this.#lookedAtMs = nowMs
    const suppressed = this.#refusals.take()
    if (suppressed === undefined) return
    const { count, sources, most } = suppressed
    this.#queue.push(this.#own({ act: 'audit.suppressed', result: 'ok', details: { lines: count, sources, most } }))
  }

  #own(init: Omit<AuditInit, 'who'>): Line {
    return this.#lineOf(auditEvent({ ...init, who: BROKER }, this.#deps.clock.now()))
  }

  #lineOf(event: AuditEvent): Line {
    return lineOf(event, this.#deps.clusterset)
  }

  #sayFailing(why: string): void {
    if (this.#said.failing) return
    this.#said.failing = true
    this.#deps.logger.error('cannot write the audit log: its lines wait', { reason: 'AuditLogUnwritable', why })
  }

  #sayLost(lines: number): void {
    if (this.#said.losing) return
    this.#said.losing = true
    this.#deps.logger.error('lines of the audit log are lost: the queue is full', {
      reason: 'AuditLinesLost',
      lines,
    })
  }
}

/**
 * An event that cannot be converted must not stop the others: another release may have stored it without a field that
 * this one needs.
 */
function lineOf(event: AuditEvent, clusterset: string | undefined): Line {
  const { id, atMs } = event
  try {
    return { id, text: auditLine(event, clusterset) }
  } catch {
    const stub = { id, atMs, act: 'audit.lost', result: 'failed', who: BROKER, details: { lines: 1, id } } as const
    return { id, text: auditLine(stub, clusterset), isStub: true }
  }
}

// The audit log of a broker process: the sink of the configuration, and the writer from start to stop.

/**
 * Takes BrokerConfig.audit. Undefined if there is no audit log. Opens nothing yet: the broker starts even if the file
 * cannot be written.
 */
export function openAuditSink(config: AuditConfig | undefined): AuditSink | undefined {
  if (config === undefined) return undefined
  const { log, maxBytes, keep } = config
  return log === AUDIT_STDOUT ? new AuditOutput() : new AuditFile({ file: log, maxBytes, keep })
}

/**
 * Writes from now on, beginning with a line on the start of the broker and the settings that determine permissions. The
 * returned function ends this with the remaining lines and a line on the stop.
 */
export function runAudit(audit: AuditTrail, config: BrokerConfig): () => Promise<void> {
  const { clusterset, advertise, globalRange, clustersetIpRange, allowedNamespaces, sourcesKept, approve } = config
  const own = { result: 'ok', who: { kind: 'broker' }, subject: clusterset } as const
  const settings = { advertise, globalRange, clustersetIpRange, allowedNamespaces, sourcesKept, approve }
  const { acceptEmptyAtMs: atMs } = config
  const accepted = atMs === undefined ? {} : { acceptEmpty: new Date(atMs).toISOString() }
  const stop = new AbortController()
  const running = audit.run(stop.signal)
  audit.report({ ...own, act: 'broker.start', details: { release: sealaneVersion(), ...settings, ...accepted } })
  return async () => {
    audit.report({ ...own, act: 'broker.stop' })
    stop.abort()
    await running
  }
}
