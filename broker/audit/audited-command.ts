/**
 * Commands beside the broker, on its store. Each adds its line for the broker to write: in the transaction that changes
 * the store, or afterwards if it changes files beside the store (backup and restore).
 */
import { userInfo } from 'node:os'
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
  /** See localOperator(). */
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

/** Adds the line to the store in `database`, for the broker to write. Throws StateError. */
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

/** Takes a sentence for the caller of a command: the command succeeded, but something about it did not. */
export type Warn = (text: string) => void

/**
 * Runs the command and stores its outcome. Throws what the command throws. A command that succeeded does not fail if
 * its line cannot be stored: the caller would discard the backup, or restore again.
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
    // Often there is no store that could keep the line. The caller must get the error of the command.
    await noteCommand(clock, database, command, error).catch(() => undefined)
    throw error
  }
  await noteCommand(clock, database, command).catch((error: unknown) => {
    warn(`it is done, but the audit log will not have it: ${messageOf(error)}`)
  })
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

// The user of a command beside the broker, according to the operating system.

/**
 * Takes the environment, in which sudo leaves the name of the calling user. In a container, the uid may have no name.
 * For a command in the broker's pod, the user is that of the pod: the audit log of the API server has the caller.
 */
export function localOperator(env: Readonly<Record<string, string | undefined>> = process.env): AuditActor {
  const uid = process.getuid?.()
  const user = userName()
  const sudoUser = env['SUDO_USER']
  return {
    kind: 'operator',
    ...(uid === undefined ? {} : { uid }),
    ...(user === undefined ? {} : { user }),
    ...(sudoUser === undefined || sudoUser === '' ? {} : { sudoUser }),
  }
}

function userName(): string | undefined {
  try {
    return userInfo().username
  } catch {
    // uv_os_get_passwd fails if the uid is in no passwd file.
    return undefined
  }
}
