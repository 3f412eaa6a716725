/**
 * Opens the database file and turns errors of SQLite into messages that say what to do. Only this folder uses
 * node:sqlite.
 */
import { randomUUID } from 'node:crypto'
import { chmodSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { messageOf } from '../../../runtime/runtime.ts'
import { StateError, absentState } from '../record-log.ts'

/** PRAGMA application_id of a broker's database: "SLBR". */
export const APPLICATION_ID = 0x534c4252
export const SCHEMA_VERSION = 1

/** How long to wait for another process that writes (a command beside a running broker). */
const BUSY_MS = 2000

const SCHEMA = `
  CREATE TABLE entry (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    value TEXT,
    PRIMARY KEY (scope, key)
  ) WITHOUT ROWID;
  CREATE INDEX entry_revision ON entry (revision);
  CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
`

/** Opens the database at a path. With `create`, makes the file if it does not exist. Throws StateError. */
export function openDatabase(file: string, create: boolean): DatabaseSync {
  if (!create) checkThere(file)
  return classify(file, () => {
    const database = new DatabaseSync(file, { timeout: BUSY_MS })
    try {
      // The file holds addresses and keys of members, so only the broker's user may read it.
      chmodSync(file, 0o600)
      prepare(database, file)
      return database
    } catch (error) {
      database.close()
      throw error
    }
  })
}

const EXPECTED_DATABASE = 'expected the database of a Sealane broker'

/**
 * Throws StateError if there is no such file, if it is a folder or a device, or if its existence cannot be checked. To
 * open a named pipe would wait for its writer, deaf to signals.
 */
export function checkThere(file: string, expected = EXPECTED_DATABASE): void {
  try {
    const found = statSync(file)
    if (found.isFile()) return
    const what = found.isDirectory() ? 'a folder' : 'what is no file'
    throw new StateError('Foreign', file, `${file}: ${expected}, got ${what}`)
  } catch (error) {
    if (error instanceof StateError) throw error
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') throw absentState(file)
    if (code === 'EACCES') {
      throw new StateError('Unwritable', file, `${file}: not permitted: run this command as the broker's user`, error)
    }
    throw new StateError('Failed', file, `${file}: ${message}`, error)
  }
}

/**
 * Holds `<directory>/broker.lock` until released, or until the process ends for any reason. Throws StateError (Locked) if
 * another process holds it for longer than `waitMs`.
 */
export function lockDirectory(directory: string, waitMs = 0): () => void {
  const file = join(directory, 'broker.lock')
  return classify(file, () => {
    const lock = new DatabaseSync(file, { timeout: waitMs })
    try {
      // No other user may open the file and take the lock.
      chmodSync(file, 0o600)
      lock.exec('BEGIN EXCLUSIVE')
    } catch (error) {
      lock.close()
      if ((error as { errcode?: number }).errcode !== SQLITE_BUSY) throw error
      throw new StateError(
        'Locked',
        file,
        `${directory} is in use by another broker: stop it, or choose another state directory`,
      )
    }
    return () => lock.close()
  })
}

function prepare(database: DatabaseSync, file: string): void {
  // FULL: an acknowledged write survives a loss of power. A commit was measured to take under 1 ms.
  database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 1000')
  const version = pragma(database, 'user_version')
  const application = pragma(database, 'application_id')
  const empty = database.prepare('SELECT count(*) AS n FROM sqlite_schema').get()?.['n'] === 0
  if (!empty && application !== APPLICATION_ID) {
    throw new StateError('Foreign', file, `${file} is not a Sealane broker database: choose another state directory`)
  }
  if (version > SCHEMA_VERSION) {
    throw new StateError(
      'TooNew',
      file,
      `${file} has schema version ${version}, this broker knows up to ${SCHEMA_VERSION}: use the newer version of Sealane`,
    )
  }
  if (empty) create(database)
  const check = database.prepare('PRAGMA quick_check(1)').get()?.['quick_check']
  if (check !== 'ok') throw new StateError('Damaged', file, damaged(file, oneLine(String(check))))
}

function create(database: DatabaseSync): void {
  database.exec('BEGIN IMMEDIATE')
  // Another process may have created the schema first.
  if (pragma(database, 'user_version') === 0) {
    database.exec(SCHEMA)
    database.exec(`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${SCHEMA_VERSION}`)
    database.prepare("INSERT INTO meta VALUES ('epoch', ?), ('revision', '0'), ('compacted', '0')").run(randomUUID())
  }
  database.exec('COMMIT')
}

/** Reads a number from the file's header, or another numeric pragma. */
export function pragma(database: DatabaseSync, name: string): number {
  return Number(database.prepare(`PRAGMA ${name}`).get()?.[name])
}

/** What to do about a file that cannot be used. */
export interface Advice {
  /** What was tried with a file that may not be used so. */
  readonly act: 'read' | 'written'
  readonly damaged: string
}

const DATABASE_ADVICE: Advice = {
  act: 'written',
  damaged: 'restore it from a backup, or move it away to start empty (members then publish again)',
}

/** For a backup that is read: no broker runs with it. */
export const BACKUP_ADVICE: Advice = { act: 'read', damaged: 'take another backup' }

/** Runs `work` and turns errors of SQLite or the file system into a StateError that names the file. */
export function classify<T>(file: string, work: () => T, advice: Advice = DATABASE_ADVICE): T {
  try {
    return work()
  } catch (error) {
    throw toStateError(file, error, advice)
  }
}

/** Primary result codes: https://sqlite.org/rescode.html */
const SQLITE_PERM = 3
const SQLITE_BUSY = 5
const SQLITE_LOCKED = 6
const SQLITE_READONLY = 8
const SQLITE_IOERR = 10
const SQLITE_CORRUPT = 11
const SQLITE_FULL = 13
const SQLITE_CANTOPEN = 14
const SQLITE_NOTADB = 26

function toStateError(file: string, error: unknown, advice: Advice): StateError {
  if (error instanceof StateError) return error
  const reason = messageOf(error)
  const code = (error as { errcode?: number }).errcode
  switch (code === undefined ? undefined : code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return new StateError('Locked', file, `${file} is locked by another process (${reason}): stop it or wait`, error)
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return new StateError('Damaged', file, damaged(file, reason, advice), error)
    case SQLITE_FULL:
      return new StateError(
        'Full',
        file,
        `${file} cannot grow because the disk is full: the broker accepts no changes until there is space`,
        error,
      )
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
      return new StateError(
        'Unwritable',
        file,
        `${file} cannot be ${advice.act} (${reason}): check the directory and its permissions`,
        error,
      )
    case undefined:
    default:
      return new StateError('Failed', file, `${file}: ${reason}`, error)
  }
}

/** Joins SQLite's report into one line, without its heading. */
export function oneLine(report: string): string {
  return report.replace(/^\*\*\*.*\*\*\*\n/, '').replaceAll('\n', '; ')
}

function damaged(file: string, reason: string, advice: Advice = DATABASE_ADVICE): string {
  return `${file} is damaged (${reason}): ${advice.damaged}`
}
