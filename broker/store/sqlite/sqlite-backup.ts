/**
 * A broker's database and the files beside it as one file. It is a consistent copy of the database that SQLite makes,
 * with a table of files and an application_id of its own, so that a backup and a database cannot be confused.
 */
import { randomUUID } from 'node:crypto'
import { closeSync, fsyncSync, openSync, statSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { StateError, type StoreContent, type StoredRow } from '../record-log.ts'
import { SETTINGS_KEY, type SettingsRow } from '../rows.ts'
import {
  type Advice,
  APPLICATION_ID,
  BACKUP_ADVICE,
  SCHEMA_VERSION,
  checkThere,
  classify,
  oneLine,
  openDatabase,
  pragma,
} from './sqlite-file.ts'

// Reads the rows of a database or a backup without changing it, also while a broker writes to it.

interface SqliteKind {
  /** PRAGMA application_id of the file. */
  readonly applicationId: number
  /** Its tables and indexes. SQLite's own indexes for primary keys may exist as well. */
  readonly schema: readonly string[]
  /** Error text for a file of another kind. */
  readonly expected: string
  /** It has no write-ahead log beside it, so the number of its pages gives its size. */
  readonly isOneFile: boolean
  /** Undefined: as for the database that a broker runs with. */
  readonly advice?: Advice
}

const SCHEMA = ['entry', 'entry_revision', 'meta']

const DATABASE_KIND: SqliteKind = {
  applicationId: APPLICATION_ID,
  schema: SCHEMA,
  expected: 'expected the database of a Sealane broker',
  isOneFile: false,
}

/** PRAGMA application_id of a backup: "SLBK". */
const BACKUP_ID = 0x534c424b

const BACKUP_KIND: SqliteKind = {
  applicationId: BACKUP_ID,
  schema: [...SCHEMA, 'backup'],
  expected: 'expected a file that "sealane broker backup" has written',
  isOneFile: true,
  advice: BACKUP_ADVICE,
}

/** Runs `work` on the file in one read transaction. Throws StateError if the file is of another kind or damaged. */
function readingSqlite<T>(file: string, kind: SqliteKind, work: (database: DatabaseSync) => T): T {
  checkThere(file, kind.expected)
  const reading = (): T => {
    const database = new DatabaseSync(file, { readOnly: true })
    try {
      // A file may come from anywhere, so nothing in its schema may run.
      database.exec('PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON')
      database.exec('BEGIN')
      checkKind(database, file, kind)
      return work(database)
    } finally {
      database.close()
    }
  }
  return classify(file, reading, kind.advice)
}

/** Returns all rows of a database. Throws as readingSqlite() does. */
export function readDatabaseContent(file: string): StoreContent {
  return readingSqlite(file, DATABASE_KIND, contentOfSqlite)
}

function contentOfSqlite(database: DatabaseSync): StoreContent {
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
  // This comes before the check of the pages, since VACUUM would copy appended data of any size.
  if (kind.isOneFile && size !== bytes) throw damaged(file, `it has ${size} bytes, and its first page says ${bytes}`)
  const found = database.prepare('PRAGMA quick_check(1)').get()?.['quick_check']
  if (found !== 'ok') throw damaged(file, oneLine(String(found)))
}

/** Refuses views and triggers: SQLite runs them when their tables are read or written. */
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

export interface BackupContent {
  /** Milliseconds since 1970. Later writes are not in the backup. */
  readonly takenAtMs: number
  /** PEM texts by file name. */
  readonly files: Readonly<Record<string, string>>
}

export interface Backup extends BackupContent {
  /** Absent if the backup was taken before the broker's first start had finished. */
  readonly settings: SettingsRow | undefined
}

/** Writes a backup of the database to `target`, which must not exist, with mode 0600. Throws StateError. */
export function writeBackup(database: string, target: string, { takenAtMs, files }: BackupContent): void {
  const source = openDatabase(database, false)
  try {
    copyInto(source, target)
  } finally {
    source.close()
  }
  edit(target, (copy) => {
    copy.exec('CREATE TABLE backup (name TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID')
    const insert = copy.prepare('INSERT INTO backup VALUES (?, ?)')
    insert.run('takenAtMs', String(takenAtMs))
    for (const [name, content] of Object.entries(files)) insert.run(`file:${name}`, content)
    copy.exec(`PRAGMA application_id = ${BACKUP_ID}`)
  })
}

/** Throws StateError if the file is no complete backup, or comes from a later release. */
export function readBackup(file: string): Backup {
  return readingSqlite(file, BACKUP_KIND, (backup) => {
    const rows = backup.prepare('SELECT name, content FROM backup').all() as { name: string; content: string }[]
    const takenAtMs = Number(rows.find(({ name }) => name === 'takenAtMs')?.content)
    const files = rows.flatMap(({ name, content }): [string, string][] =>
      name.startsWith('file:') ? [[name.slice('file:'.length), content]] : [],
    )
    if (!Number.isFinite(takenAtMs)) throw notABackup(file)
    const entry = "SELECT value FROM entry WHERE scope = 'settings' AND key = ?"
    const value = backup.prepare(entry).get(SETTINGS_KEY)?.['value']
    const settings = typeof value === 'string' ? (JSON.parse(value) as SettingsRow) : undefined
    return { takenAtMs, files: Object.fromEntries(files), settings }
  })
}

/** Returns all rows of a backup in their stored form. Throws as readBackup() does. */
export function readBackupContent(file: string): StoreContent {
  return readingSqlite(file, BACKUP_KIND, contentOfSqlite)
}

/** Turns a backup into a broker's database with a new epoch at `target`, which must not exist. Throws StateError. */
export function unpackBackup(file: string, target: string): void {
  readingSqlite(file, BACKUP_KIND, (backup) => {
    // VACUUM cannot run within a transaction.
    backup.exec('COMMIT')
    copyInto(backup, target)
  })
  edit(target, (copy) => {
    copy.exec('DROP TABLE backup')
    // Members may have seen later revisions of the earlier epoch, and this database will assign those again.
    copy.prepare("UPDATE meta SET value = ? WHERE name = 'epoch'").run(randomUUID())
    copy.exec(`PRAGMA application_id = ${APPLICATION_ID}`)
  })
}

function copyInto(source: DatabaseSync, target: string): void {
  classify(target, () => {
    // SQLite would create the file readable for all users, but VACUUM INTO accepts an existing empty file.
    closeSync(openSync(target, 'wx', 0o600))
    source.prepare('VACUUM INTO ?').run(target)
  })
}

function edit(file: string, work: (database: DatabaseSync) => void): void {
  classify(file, () => {
    const database = new DatabaseSync(file)
    try {
      database.exec('PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL')
      database.exec('BEGIN IMMEDIATE')
      work(database)
      database.exec('COMMIT')
    } finally {
      database.close()
    }
    const handle = openSync(file, 'r')
    fsyncSync(handle)
    closeSync(handle)
  })
}

function notABackup(file: string): StateError {
  return new StateError('Foreign', file, `${file}: ${BACKUP_KIND.expected}`)
}
