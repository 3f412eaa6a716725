/** A whole store at one moment, row by row as it is written: what is looked through, and what is moved. */
import { SCOPES } from '../state/state.ts'
import type { RecordLog } from './record-log.ts'

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
