/**
 * The audit log. Acts that change the store come by the store itself (audit-outbox.ts), refusals by a bounded queue in
 * memory. One loop writes both, in batches, and is the only one that does: a log that cannot be written holds up nobody
 * but itself.
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
import { RefusalPace, type Source } from './refusal-rate-limiter.ts'

/** Lines that wait in memory. */
export const MAX_QUEUED = 1000
const MAX_BATCH = 200
/** Suppressed lines are reported this often: an evicted member that is not stopped goes on to ask, for months. */
const REPORT_MS = 300_000
const LOOP: LoopInit = { minMs: 10, resyncMs: REPORT_MS, retryMinMs: 200, retryMaxMs: 10_000 }
/** A write that takes longer is reported as one that fails: the reader of a pipe stands still, or a disk does. */
const STALLED_MS = 10_000
/** What is left when the broker stops is written within this. */
const LAST_WRITE_MS = 2000

const BROKER = { kind: 'broker' } as const

export interface AuditTrailDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Pick<BrokerMetrics, 'auditLines' | 'auditLost' | 'auditSuppressed' | 'auditWaiting'>
  /** Absent: there is no audit log, and nothing is kept for one. */
  readonly sink?: AuditSink | undefined
  /** Whether this broker writes the lines of acts, of several that share a store. Absent: it is the only one. */
  readonly isWriter?: () => boolean
  /** Of all lines; absent: the broker's own. */
  readonly clusterset?: string | undefined
}

/** What the parts of the broker that act need of it. */
export type Audit = Pick<AuditTrail, 'isOn' | 'keep' | 'report' | 'allows'>

/** A line as it will be written: a caller's text of 60 KB is not kept until then. */
interface Line {
  readonly id: string
  readonly text: string
  /** There is no line of the event: this one says so. */
  readonly isStub?: true
}

interface Batch {
  readonly lines: readonly Line[]
  /** Of them, how many are of the queue. */
  readonly queued: number
  readonly rows: ReturnType<typeof waitingEvents>
  /** Of what a line of this batch says is lost, how many were of the queue. */
  readonly ofQueue: number
}

export class AuditTrail {
  readonly #deps: AuditTrailDeps
  readonly #pace: RefusalPace
  readonly #loop: ReconcileLoop
  readonly #stopCommits: () => void
  #queue: Line[] = []
  /** Ids of rows whose lines are out, and which the store did not let go of yet. */
  #written = new Set<string>()
  /** Not in the log yet. */
  #lost = 0
  /** By row of the store: what it says is lost, as it was counted last. */
  readonly #counted = new Map<string, number>()
  /** The same, where the row has got another event while a line that reports them was on its way. */
  readonly #reported = new Map<string, number>()
  #lookedAtMs: number
  /** Since it was last written, each is logged once. */
  readonly #said = { failing: false, losing: false }
  #writing: Promise<void> | undefined
  /** Somebody said so. */
  #isMoved = false
  #isStopping = false

  constructor(deps: AuditTrailDeps) {
    this.#deps = deps
    this.#pace = new RefusalPace(deps.clock)
    this.#lookedAtMs = deps.clock.monotonic()
    const onError = (error: unknown): void => deps.logger.debug('audit log not written', { why: messageOf(error) })
    this.#loop = new ReconcileLoop({ clock: deps.clock, onError }, LOOP, (signal) => this.#round(signal))
    this.#stopCommits = deps.log.onCommit((changes) => this.#onCommit(changes))
    // Nobody was there to count them; what a broker before this one counted is not in the counters of this process.
    for (const { key, value } of deps.log.list('audit')) this.#countLost(key, value)
  }

  /** False: nothing is kept, and nothing has to be found out for it. */
  get isOn(): boolean {
    return this.#deps.sink !== undefined
  }

  /** Puts an act into the transaction that it is part of: both are durable, or neither. */
  keep(tx: Transaction, init: AuditInit): void {
    if (this.isOn) keepEvent(tx, init, this.#deps.clock.now())
  }

  /** True when a line that this source causes may be written. False: it is counted, and is not to be. */
  allows(source: Source): boolean {
    if (!this.isOn) return false
    const allowed = this.#pace.allows(source)
    if (!allowed) this.#deps.metrics.auditSuppressed.inc()
    return allowed
  }

  /** An act that left nothing in the store, mostly a refusal. Where others can cause it, allows() is asked before. */
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

  /** To be called when the file may have been moved: it is opened anew. */
  reopen(): void {
    this.#isMoved = true
    this.#loop.poke()
  }

  /** To be called when isWriter() has become true: what waits is of those who wrote before. */
  takeOver(): void {
    this.#loop.poke()
  }

  /** Writes until the signal; then what is left, for two seconds at most. */
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
      // Acts wait in the store for the next start; refusals are gone.
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

  /** Writes all that waits now. Throws what the sink and the store throw, and the signal's reason. */
  async flush(signal: AbortSignal): Promise<void> {
    do await this.#round(signal)
    while (this.#deps.sink !== undefined && (this.#queue.length > 0 || this.#waiting().length > 0))
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { log, sink } = this.#deps
    if (sink === undefined) return this.#discard()
    // Of a round that did not wait for its end.
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

  /** Also while a write does not end. Gives the number. */
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
    // What this trail takes away needs no round.
    if (rows.some(({ value }) => value !== undefined)) this.#loop.poke()
  }

  /** When it happens, and once: who waits for the log to be written again would learn it too late. */
  #countLost(key: string, row: AuditRow | undefined): void {
    if (!this.isOn) return
    const { lost = 0 } = row ?? {}
    const before = this.#counted.get(key) ?? 0
    // Fewer: the row was taken away meanwhile, and these are of another one.
    const more = lost < before ? lost : lost - before
    if (lost < before) this.#reported.delete(key)
    if (lost === 0) this.#counted.delete(key)
    else this.#counted.set(key, lost)
    if (more === 0) return
    this.#deps.metrics.auditLost.inc({}, more)
    this.#sayLost(more)
  }

  /** Rows of the store that are not written. */
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
      this.#sayFailing(`nothing was taken for ${STALLED_MS / 1000} s: does its reader stand still?`),
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
      // Another event took the place of one whose line was on its way: that one is not lost.
      if (now !== undefined && now.event.id !== row.event.id) this.#reported.set(key, (row.lost ?? 0) + 1)
    }
    metrics.auditLines.inc({}, lines.length)
    const stubs = lines.filter(({ isStub }) => isStub === true)
    if (stubs.length > 0) {
      metrics.auditLost.inc({}, stubs.length)
      const ids = stubs.map(({ id }) => id).join()
      logger.error('lines of the audit log cannot be made', { reason: 'AuditLinesLost', ids })
    }
    if (this.#said.failing) logger.info('the audit log is written again')
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

  /** Without an audit log: what commands beside the broker have put there. */
  async #discard(): Promise<void> {
    const { log } = this.#deps
    const rows = this.#waiting().map(({ key, row }) => ({ key, id: row.event.id }))
    if (rows.length > 0) await log.transact((tx) => removeEvents(tx, rows))
  }

  #reportSuppressed(): void {
    const nowMs = this.#deps.clock.monotonic()
    const isDue = this.#isStopping || nowMs - this.#lookedAtMs >= REPORT_MS
    // Where there is no room the count grows on.
    if (!isDue || this.#queue.length >= MAX_QUEUED) return
    this.#lookedAtMs = nowMs
    const suppressed = this.#pace.take()
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
    this.#deps.logger.error('the audit log cannot be written: lines wait', { reason: 'AuditLogUnwritable', why })
  }

  #sayLost(lines: number): void {
    if (this.#said.losing) return
    this.#said.losing = true
    this.#deps.logger.error('lines of the audit log are lost: more wait than there is room for', {
      reason: 'AuditLinesLost',
      lines,
    })
  }
}

/** One event of which no line can be made must not stop all others: another release may have kept what this one lacks. */
function lineOf(event: AuditEvent, clusterset: string | undefined): Line {
  const { id, atMs } = event
  try {
    return { id, text: auditLine(event, clusterset) }
  } catch {
    const stub = { id, atMs, act: 'audit.lost', result: 'failed', who: BROKER, details: { lines: 1, id } } as const
    return { id, text: auditLine(stub, clusterset), isStub: true }
  }
}

// The audit log of a broker's process: the sink that the configuration names, and the writer from start to stop.

/**
 * Takes BrokerConfig.audit; undefined: there is no audit log. Opens nothing yet: a file that cannot be written is no
 * reason not to start.
 */
export function openAuditSink(config: AuditConfig | undefined): AuditSink | undefined {
  if (config === undefined) return undefined
  const { log, maxBytes, keep } = config
  return log === AUDIT_STDOUT ? new AuditOutput() : new AuditFile({ file: log, maxBytes, keep })
}

/**
 * Writes from now on, with a line that the broker starts and which settings decide who may do what. The function given
 * back ends that, with what is left and a line that says so.
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
