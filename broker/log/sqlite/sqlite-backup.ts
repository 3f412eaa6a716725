/**
 * A broker's database and the files beside it as one file: a copy of the database as SQLite itself makes it from one
 * moment, with a table of files added and an application_id of its own, so that neither can be taken for the other.
 */
import { randomUUID } from 'node:crypto'
import { closeSync, fsyncSync, openSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { SETTINGS_KEY, type SettingsRow } from '../../state/state.ts'
import { StateError } from '../record-log.ts'
import type { StoreContent } from '../store-content.ts'
import { BACKUP_ID, BACKUP_KIND, contentOfSqlite, readingSqlite } from './sqlite-content.ts'
import { APPLICATION_ID, classify, openDatabase } from './sqlite-file.ts'

export interface BackupContent {
  /** Milliseconds since 1970: what was written later is not in it. */
  readonly takenAtMs: number
  /** By name; PEM texts. */
  readonly files: Readonly<Record<string, string>>
}

export interface Backup extends BackupContent {
  /** Absent from one that was taken before the broker's first start was over. */
  readonly settings: SettingsRow | undefined
}

/** Writes a backup of the database into `target`, which must not exist; mode 0600. Throws StateError. */
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

/** Throws StateError for what is no whole backup, or one of a later release. */
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

/** All rows of a backup, as they are written. Throws as readBackup() does. */
export function readBackupContent(file: string): StoreContent {
  return readingSqlite(file, BACKUP_KIND, contentOfSqlite)
}

/** Makes a broker's database of a backup, of a new epoch, in `target`, which must not exist. Throws StateError. */
export function unpackBackup(file: string, target: string): void {
  readingSqlite(file, BACKUP_KIND, (backup) => {
    // VACUUM is not for the middle of a transaction.
    backup.exec('COMMIT')
    copyInto(backup, target)
  })
  edit(target, (copy) => {
    copy.exec('DROP TABLE backup')
    // Members may have seen later revisions of the epoch before: those would be given out twice.
    copy.prepare("UPDATE meta SET value = ? WHERE name = 'epoch'").run(randomUUID())
    copy.exec(`PRAGMA application_id = ${APPLICATION_ID}`)
  })
}

function copyInto(source: DatabaseSync, target: string): void {
  classify(target, () => {
    // SQLite would make it readable for all; it writes into an empty one that is there.
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
