/** Reads a database or a backup as it is written, changing nothing; also beside a broker that writes. */
import { statSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { StateError } from '../record-log.ts'
import type { StoreContent, StoredRow } from '../store-content.ts'
import { APPLICATION_ID, SCHEMA_VERSION, checkThere, classify, oneLine, pragma } from './sqlite-file.ts'

export interface SqliteKind {
  /** PRAGMA application_id of it. */
  readonly applicationId: number
  /** Its tables and indexes; SQLite's own for a primary key may be there besides. */
  readonly schema: readonly string[]
  /** Sentence for a file that is something else. */
  readonly expected: string
  /** It has no log beside it, so its size follows from its pages. */
  readonly isOneFile: boolean
}

const SCHEMA = ['entry', 'entry_revision', 'meta']

export const DATABASE_KIND: SqliteKind = {
  applicationId: APPLICATION_ID,
  schema: SCHEMA,
  expected: 'expected the database of a Sealane broker',
  isOneFile: false,
}

/** PRAGMA application_id of a backup: "SLBK". */
export const BACKUP_ID = 0x534c424b

export const BACKUP_KIND: SqliteKind = {
  applicationId: BACKUP_ID,
  schema: [...SCHEMA, 'backup'],
  expected: 'expected a file that "sealane broker backup" has written',
  isOneFile: true,
}

/** Runs `work` on the file as of one moment. Throws StateError for what is no such file, or not whole. */
export function readingSqlite<T>(file: string, kind: SqliteKind, work: (database: DatabaseSync) => T): T {
  checkThere(file)
  return classify(file, () => {
    const database = new DatabaseSync(file, { readOnly: true })
    try {
      // A file may come from anywhere: nothing in its schema is to run.
      database.exec('PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON')
      database.exec('BEGIN')
      checkKind(database, file, kind)
      return work(database)
    } finally {
      database.close()
    }
  })
}

/** All rows of a database. Throws as readingSqlite() does. */
export function readDatabaseContent(file: string): StoreContent {
  return readingSqlite(file, DATABASE_KIND, contentOfSqlite)
}

export function contentOfSqlite(database: DatabaseSync): StoreContent {
  const meta = (name: string): string =>
    String(database.prepare('SELECT value FROM meta WHERE name = ?').get(name)?.['value'])
  const rows = database.prepare('SELECT scope, key, revision, value AS text FROM entry ORDER BY revision').all()
  return {
    epoch: meta('epoch'),
    revision: Number(meta('revision')),
    compactedRevision: Number(meta('compacted')),
    rows: rows as unknown as StoredRow[],
  }
}

function checkKind(database: DatabaseSync, file: string, kind: SqliteKind): void {
  if (pragma(database, 'application_id') !== kind.applicationId)
    throw new StateError('Foreign', file, `${file}: ${kind.expected}`)
  const version = pragma(database, 'user_version')
  if (version > SCHEMA_VERSION) {
    const text = `${file} is of a later release (format ${version}, this one knows up to ${SCHEMA_VERSION}): use the newer version of Sealane`
    throw new StateError('TooNew', file, text)
  }
  checkSchema(database, file, kind)
  const bytes = pragma(database, 'page_count') * pragma(database, 'page_size')
  const { size } = statSync(file)
  // Before the pages are looked through: what was appended would be copied along, however much it is.
  if (kind.isOneFile && size !== bytes) throw damaged(file, `it has ${size} bytes, and its first page says ${bytes}`)
  const found = database.prepare('PRAGMA quick_check(1)').get()?.['quick_check']
  if (found !== 'ok') throw damaged(file, oneLine(String(found)))
}

/** Views and triggers would be run by who reads or writes what they hang on. */
function checkSchema(database: DatabaseSync, file: string, { schema, expected }: SqliteKind): void {
  const there = database.prepare('SELECT type, name FROM sqlite_schema').all() as { type: string; name: string }[]
  const known = new Set(schema)
  const own = there.filter(({ name }) => !name.startsWith('sqlite_autoindex_'))
  const strange = own.find(({ type, name }) => !known.has(name) || !['table', 'index'].includes(type))
  if (strange === undefined && own.length === known.size) return
  const what = strange === undefined ? 'something is missing in it' : `it has a ${strange.type} "${strange.name}"`
  throw new StateError('Foreign', file, `${file}: ${expected}: ${what}`)
}

function damaged(file: string, why: string): StateError {
  return new StateError('Damaged', file, `${file} is damaged (${why}): take another backup`)
}
