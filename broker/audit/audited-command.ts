/**
 * Commands of operators on a store. Each adds its line for the broker to write: in the transaction that changes the
 * store, or afterwards if it changes files beside the store (backup and restore).
 */
import type { Clock } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import {
  type AuditActor,
  type AuditInit,
  type AuditRow,
  type RecordLog,
  StateError,
  type Transaction,
  checkNotMoved,
  openSqliteLog,
} from '../store/store.ts'
import { outcomeOf } from './audit-callers.ts'
import { keepEvent, waitingEvents } from './audit-outbox.ts'

export interface AuditedCommandDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly who: AuditActor
}

export type AuditedCommand = Pick<AuditInit, 'act' | 'subject' | 'details'>

/**
 * Runs `decide` in a transaction that also stores the line. `done` may complete the line with the result. A refusal
 * stores a line of its own. Throws what `decide` throws, and StateError: no line is stored if the store cannot be
 * written.
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
      // A move may have begun since the store was opened: this change would not be moved.
      checkNotMoved(tx, 'the store')
      const result = decide(tx)
      keep(tx, { result: 'ok', ...done(result) })
      return result
    })
  } catch (error) {
    if (error instanceof StateError) throw error
    // The caller must get the refusal itself, so a failure to store the line is ignored.
    await log.transact((tx) => keep(tx, outcomeOf(error))).catch(() => undefined)
    throw error
  }
}

/** Takes a sentence for the caller of a command: the command succeeded, but something about it did not. */
export type Warn = (text: string) => void

export interface NotedCommandInit {
  readonly clock: Clock
  readonly who: AuditActor
  /** The database whose broker writes the line. */
  readonly database: string
  /** The same as this process has it open. If absent, it is opened for the line, which takes long where it is large. */
  readonly log?: RecordLog | undefined
  readonly warn: Warn
}

/**
 * Runs the command and stores its outcome. Throws what the command throws. A command that succeeded does not fail if
 * its line cannot be stored: the caller would discard the backup, or restore again.
 */
export async function notedCommand(
  init: NotedCommandInit,
  command: AuditedCommand,
  run: () => Promise<void>,
): Promise<void> {
  try {
    await run()
  } catch (error) {
    // Often there is no store that could keep the line. The caller must get the error of the command.
    await note(init, { ...command, ...outcomeOf(error) }).catch(() => undefined)
    throw error
  }
  await note(init, { ...command, result: 'ok' }).catch((error: unknown) => {
    init.warn(`the command succeeded, but could not be recorded in the audit log: ${messageOf(error)}`)
  })
}

/** Throws StateError. */
async function note(init: NotedCommandInit, event: Omit<AuditInit, 'who'>): Promise<void> {
  const { clock, who, database } = init
  const keep = (tx: Transaction): void => keepEvent(tx, { ...event, who }, clock.now())
  if (init.log !== undefined) return init.log.transact(keep)
  const log = openSqliteLog({ file: database, create: false })
  try {
    await log.transact(keep)
  } finally {
    await log.close()
  }
}

/** Waiting rows of a store that is about to be replaced. Empty if it cannot be read. */
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
