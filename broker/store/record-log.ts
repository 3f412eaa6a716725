/**
 * The broker's store: rows under (scope, key), each with the revision that last wrote it. The drivers are
 * memory-log.ts, sqlite-log.ts and etcd-log.ts, and one compliance suite runs on all of them.
 */
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { RecordKind } from '../../model/model.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type RecordRow, SCOPES, type Scope, type Scopes } from './rows.ts'

export interface Row<S extends Scope> {
  readonly key: string
  readonly revision: number
  readonly value: Scopes[S]
}

/** One change: the row's value after `revision`, or undefined if the row was removed. */
export interface Change<S extends Scope = Scope> {
  readonly scope: S
  readonly key: string
  readonly revision: number
  readonly value: Scopes[S] | undefined
}

/** Reads. `group` is the part of a key before its first '/'. For records it is the owning cluster. */
export interface LogView {
  get<S extends Scope>(scope: S, key: string): Scopes[S] | undefined
  /** In order of keys. */
  list<S extends Scope>(scope: S, group?: string): { readonly key: string; readonly value: Scopes[S] }[]
  count(scope: Scope, group?: string): number
  /** Sum of `bytes` over the records of a cluster. */
  recordBytes(group: string): number
  /** Number of records of one kind of a cluster. */
  recordCount(group: string, kind: RecordKind): number
}

/** Reads see the transaction's earlier writes. If the function that uses it throws, all its writes are dropped. */
export interface Transaction extends LogView {
  /** The same object in all transactions of one log, until the log is read anew. */
  readonly store: object
  put<S extends Scope>(scope: S, key: string, value: Scopes[S]): void
  remove(scope: Scope, key: string): void
}

/** listing: rows as they are now, after writes that were missed; some of those may be overwritten. */
export type ChangesFrom = 'commit' | 'listing'

export interface RecordLog extends LogView {
  /** Changes when the store is created again or goes back in time. Revisions of different epochs cannot be compared. */
  readonly epoch: string
  /**
   * Other brokers serve the same store, so a row that is not here yet may exist. Absent: beside this process, only
   * commands write to the store.
   */
  readonly isShared?: true
  /** Revision of the last durable write. 0 if the store is empty. */
  readonly revision: number
  /** Removals up to this revision are forgotten: recordsAfter() cannot answer for lower revisions. */
  readonly compactedRevision: number

  /**
   * Runs `decide` after all earlier transactions and writes its puts and removals as one unit. Resolves with its result
   * once that is durable. Rejects with the error that `decide` throws, or with a StateError if the store fails. After a
   * StateError with code Unknown, the write may or may not be in the store: a caller that tries again decides on the
   * current rows. `decide` must be synchronous and free of other effects, since it runs again if another process wrote
   * first. Several transactions share one disk write.
   */
  transact<T>(decide: (transaction: Transaction) => T): Promise<T>

  /** The row with its revision. */
  row<S extends Scope>(scope: S, key: string): Row<S> | undefined

  /**
   * Returns at most `limit` records that were written or removed after `revision`, oldest first. Each record appears
   * once, in its latest state, so a slow reader skips overwritten states.
   */
  recordsAfter(revision: number, limit: number): Change<'record'>[]

  /**
   * Reads writes of other processes on the same store. Afterwards this log has all that was durable before the call.
   * Throws StateError.
   */
  refresh(): Promise<void>

  /** Calls back after each durable write, also of another process. The returned function unsubscribes. */
  onCommit(callback: (changes: readonly Change[], from: ChangesFrom) => void): () => void

  /** Waits for pending writes. */
  close(): Promise<void>
}

const STATE_REASONS = {
  Unwritable: 'StateUnwritable',
  Damaged: 'StateDamaged',
  Locked: 'StateLocked',
  Full: 'StateFull',
  TooNew: 'StateTooNew',
  Foreign: 'StateForeign',
  Absent: 'StateAbsent',
  Stale: 'StateStale',
  Unreachable: 'StateUnreachable',
  Unknown: 'StateWriteUnknown',
  Denied: 'StateAccessDenied',
  TooOld: 'StateTooOld',
  Moved: 'StateMoved',
  HalfMoved: 'StateHalfMoved',
  NotEmpty: 'StateNotEmpty',
  Inconsistent: 'StateInconsistent',
  Failed: 'StateFailed',
} as const satisfies Readonly<Record<string, ReasonCode>>

/** The store cannot be opened, read or written. The message names the file or the store, and says what to do. */
export class StateError extends UserError {
  readonly code: keyof typeof STATE_REASONS
  override readonly reason: ReasonCode
  /** The file, or the address of the store. */
  readonly file: string
  constructor(code: StateError['code'], file: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? {} : { cause })
    this.name = 'StateError'
    this.code = code
    this.reason = STATE_REASONS[code]
    this.file = file
  }
}

/** A command that reads the state beside the broker does not create it. */
export function absentState(file: string): StateError {
  return new StateError('Absent', file, `no broker state in ${file}: start the broker once first`)
}

// A whole store at one moment, row by row in its stored form. Checks and migrations read it.

/** One row in its stored form. */
export interface StoredRow {
  readonly scope: string
  readonly key: string
  readonly revision: number
  /** JSON. Null if the row was removed at this revision. */
  readonly text: string | null
}

export interface StoreContent {
  readonly epoch: string
  readonly revision: number
  readonly compactedRevision: number
  readonly rows: Iterable<StoredRow>
}

/**
 * Returns the content of an open log as of its last refresh. Rows of which only the removal is remembered are left out.
 */
export function contentOfLog(log: RecordLog): StoreContent {
  const { epoch, revision, compactedRevision } = log
  const rows = SCOPES.flatMap((scope) =>
    log.list(scope).map(({ key, value }) => {
      return { scope, key, revision: log.row(scope, key)?.revision ?? 0, text: JSON.stringify(value) }
    }),
  )
  return { epoch, revision, compactedRevision, rows }
}

/**
 * How a log holds record rows in memory. A broker that serves packs them (packed-row.ts). A command reads few rows and
 * exits.
 */
export interface RowPacking {
  /** Returns the same object if there is nothing to pack, since streams compare changes by identity. */
  readonly pack: (change: Change<'record'>) => Change
  /** Parses the stored text of a row. Throws SyntaxError. */
  readonly fromText: (text: string) => RecordRow
}

/** Keeps rows in their stored form, so that a damaged store can be checked. */
export const AS_WRITTEN: RowPacking = {
  pack: (change) => change,
  fromText: (text) => JSON.parse(text) as RecordRow,
}
