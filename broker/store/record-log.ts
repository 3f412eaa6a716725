/**
 * The broker's store: rows under (scope, key), each with the revision that last wrote it. Drivers: memory-log.ts,
 * sqlite-log.ts, etcd-log.ts; one compliance suite runs on all.
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

/** What changed: the value after `revision`, or undefined where the row is gone. */
export interface Change<S extends Scope = Scope> {
  readonly scope: S
  readonly key: string
  readonly revision: number
  readonly value: Scopes[S] | undefined
}

/** Reads. `group` is the part of a key before its first '/': for records the owning cluster. */
export interface LogView {
  get<S extends Scope>(scope: S, key: string): Scopes[S] | undefined
  /** In order of keys. */
  list<S extends Scope>(scope: S, group?: string): { readonly key: string; readonly value: Scopes[S] }[]
  count(scope: Scope, group?: string): number
  /** Sum of `bytes` of the records of a cluster. */
  recordBytes(group: string): number
  /** Records of one kind of a cluster. */
  recordCount(group: string, kind: RecordKind): number
}

/** Reads see the writes before them. Nothing is kept when the function that was given it throws. */
export interface Transaction extends LogView {
  put<S extends Scope>(scope: S, key: string, value: Scopes[S]): void
  remove(scope: Scope, key: string): void
}

export interface RecordLog extends LogView {
  /** Changes when the store is made anew, or goes back in time: revisions of different epochs cannot be compared. */
  readonly epoch: string
  /**
   * Other brokers serve the same store: what is not seen here yet may be there all the same. Absent: commands alone write
   * beside this one.
   */
  readonly isShared?: true
  /** Revision of the last durable write; 0 when empty. */
  readonly revision: number
  /** changesAfter() cannot answer for revisions below this one: removals up to here are forgotten. */
  readonly compactedRevision: number

  /**
   * Runs `decide` at once after all earlier ones, and writes what it put and removed as one unit. Resolves with its
   * result when that is durable; rejects with what it threw, or with a StateError when the store failed. Of one with
   * code Unknown nobody could find out whether it was written: who asks again decides on what is there then.
   * `decide` must be synchronous and free of other effects: it is run again where another process was faster. Several
   * share one disk write.
   */
  transact<T>(decide: (transaction: Transaction) => T): Promise<T>

  /** Row with its revision. */
  row<S extends Scope>(scope: S, key: string): Row<S> | undefined

  /**
   * Records written or removed after `revision`, oldest first, at most `limit`: of each record only the latest
   * state. A slow reader therefore skips what has been overwritten meanwhile.
   */
  recordsAfter(revision: number, limit: number): Change<'record'>[]

  /**
   * Looks for writes by other processes on the same store: afterwards all that was durable before the call is seen here.
   * Throws StateError.
   */
  refresh(): Promise<void>

  /** Called after each durable write, also by another process. The function given back stops it. */
  onCommit(callback: (changes: readonly Change[]) => void): () => void

  /** Waits for writes under way. */
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

/** The store cannot be opened, read or written. The message names the file, or the store, and what to do. */
export class StateError extends UserError {
  readonly code: keyof typeof STATE_REASONS
  override readonly reason: ReasonCode
  /** Or the address of the store. */
  readonly file: string
  constructor(code: StateError['code'], file: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? {} : { cause })
    this.name = 'StateError'
    this.code = code
    this.reason = STATE_REASONS[code]
    this.file = file
  }
}

/** A process that reads the state beside the broker makes none. */
export function absentState(file: string): StateError {
  return new StateError('Absent', file, `no broker state in ${file}: start the broker once before`)
}

// A whole store at one moment, row by row as it is written: what is looked through, and what is moved.

/** One row as it is written. */
export interface StoredRow {
  readonly scope: string
  readonly key: string
  readonly revision: number
  /** JSON; null: the row was removed at this revision. */
  readonly text: string | null
}

export interface StoreContent {
  readonly epoch: string
  readonly revision: number
  readonly compactedRevision: number
  readonly rows: Iterable<StoredRow>
}

/** Of a log that is open, as it was refreshed last. Rows of which only the removal is remembered are left out. */
export function contentOfLog(log: RecordLog): StoreContent {
  const { epoch, revision, compactedRevision } = log
  const rows = SCOPES.flatMap((scope) =>
    log.list(scope).map(({ key, value }) => {
      return { scope, key, revision: log.row(scope, key)?.revision ?? 0, text: JSON.stringify(value) }
    }),
  )
  return { epoch, revision, compactedRevision, rows }
}

/** How a log holds the rows of records. A broker that serves packs them (packed-row.ts); a command reads a few and ends. */
export interface RowPacking {
  /** The same change where there is nothing to pack: streams know it by its identity. */
  readonly pack: (change: Change<'record'>) => Change
  /** The row that a store has as this text. Throws SyntaxError. */
  readonly fromText: (text: string) => RecordRow
}

/** As they were written, also where what is looked through may be damaged. */
export const AS_WRITTEN: RowPacking = {
  pack: (change) => change,
  fromText: (text) => JSON.parse(text) as RecordRow,
}
