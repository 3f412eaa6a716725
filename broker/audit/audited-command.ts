/**
 * Commands beside the broker, on its store: each leaves its line for the broker to write, in the same transaction where
 * it changes the store, and afterwards where it changes files beside it: backup and restore.
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

// Who runs a command beside the broker, as the operating system says.

/**
 * Takes the environment in which sudo leaves the name of who called it. In a container the uid may have no name. Of a
 * command in the broker's pod it is the pod's user: who ran it there is in the audit log of the API server.
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
    // uv_os_get_passwd fails where the uid is in no passwd file.
    return undefined
  }
}
