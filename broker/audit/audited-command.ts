/**
 * Commands beside the broker, on its store: each leaves its line for the broker to write, in the same transaction where
 * it changes the store, and afterwards where it changes files beside it: backup and restore.
 */
import type { Clock } from '../../reconcile/clock.ts'
import { messageOf } from '../../runtime/thrown.ts'
import { type RecordLog, StateError, type Transaction } from '../log/record-log.ts'
import { openSqliteLog } from '../log/sqlite/sqlite-log.ts'
import { checkNotMoved } from '../migrate/check-place.ts'
import type { AuditRow } from '../state/state.ts'
import type { AuditActor, AuditInit } from './audit-event.ts'
import { outcomeOf } from './audit-callers.ts'
import { keepEvent, waitingEvents } from './audit-outbox.ts'
import { localOperator } from './operator.ts'

export interface AuditedCommandDeps {
  readonly log: RecordLog
  readonly clock: Clock
  /** localOperator() */
  readonly who: AuditActor
}

export type AuditedCommand = Pick<AuditInit, 'act' | 'subject' | 'details'>

/**
 * Runs `decide` in a transaction that has the line as well; `done` may complete it with what came of it. A refusal
 * leaves a line of its own. Throws what `decide` throws, and StateError: a store that cannot be written keeps no line.
 */
export async function auditedCommand<T>(
  { log, clock, who }: AuditedCommandDeps,
  command: AuditedCommand,
  decide: (tx: Transaction) => T,
  done: (result: T) => Partial<AuditedCommand> = () => ({}),
): Promise<T> {
  const startedMs = clock.monotonic()
  const keep = (tx: Transaction, more: Partial<AuditInit> & Pick<AuditInit, 'result'>): void =>
    keepEvent(tx, { ...command, who, tookMs: clock.monotonic() - startedMs, ...more }, clock.now())
  try {
    return await log.transact((tx) => {
      // A move may have begun since the store was opened: what is done here would stay behind.
      checkNotMoved(tx, 'the store')
      const result = decide(tx)
      keep(tx, { result: 'ok', ...done(result) })
      return result
    })
  } catch (error) {
    if (error instanceof StateError) throw error
    // The refusal itself is what the caller is to get.
    await log.transact((tx) => keep(tx, outcomeOf(error))).catch(() => undefined)
    throw error
  }
}

/** Puts the line into the store in `database`, for the broker to write. Throws StateError. */
export async function noteCommand(
  clock: Clock,
  database: string,
  command: AuditedCommand,
  failure?: unknown,
): Promise<void> {
  const log = openSqliteLog({ file: database, create: false })
  try {
    const outcome = failure === undefined ? ({ result: 'ok' } as const) : outcomeOf(failure)
    await log.transact((tx) => keepEvent(tx, { ...command, ...outcome, who: localOperator() }, clock.now()))
  } finally {
    await log.close()
  }
}

/** Takes a sentence for who has run a command: it worked, and something about it did not. */
export type Warn = (text: string) => void

/**
 * Runs the command, and notes how it ended. Throws what it throws. What worked and cannot be noted has worked all the
 * same: who is told of a failure would throw the backup away, or restore again.
 */
export async function notedCommand(
  clock: Clock,
  database: string,
  command: AuditedCommand,
  run: () => Promise<void>,
  warn: Warn,
): Promise<void> {
  try {
    await run()
  } catch (error) {
    // Often there is no store that could keep the line; the caller is to get what was wrong first.
    await noteCommand(clock, database, command, error).catch(() => undefined)
    throw error
  }
  await noteCommand(clock, database, command).catch((error: unknown) => {
    warn(`it is done, but the audit log will not have it: ${messageOf(error)}`)
  })
}

/** Rows that wait in a store that is about to make way. Of one that cannot be read: none. */
export async function rowsOfOldStore(database: string): Promise<readonly AuditRow[]> {
  try {
    const log = openSqliteLog({ file: database, create: false })
    try {
      return waitingEvents(log).map(({ row }) => row)
    } finally {
      await log.close()
    }
  } catch {
    return []
  }
}
