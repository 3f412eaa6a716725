/** A log in one SQLite file (WAL): the default store of a broker. */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { Scope, Scopes } from '../rows.ts'
import { GroupedLog, type GroupedLogInit, type Journal, type JournalContent } from '../grouped-log.ts'
import { AS_WRITTEN, type Change, type RowPacking } from '../record-log.ts'
import { classify, openDatabase } from './sqlite-file.ts'

export interface SqliteLogInit extends Partial<GroupedLogInit> {
  readonly file: string
  /** False: the file must exist. Default true. */
  readonly create?: boolean
}

/** Throws StateError if the file cannot be used. The message names it. */
export function openSqliteLog(init: SqliteLogInit): GroupedLog {
  const journal = new SqliteJournal(init.file, openDatabase(init.file, init.create ?? true), init.packing)
  try {
    return new GroupedLog(journal, { keepRemoved: 10_000, ...init })
  } catch (error) {
    journal.close()
    throw error
  }
}

interface EntryRow {
  readonly scope: string
  readonly key: string
  readonly revision: number
  readonly value: string | null
}

class SqliteJournal implements Journal {
  readonly #file: string
  readonly #database: DatabaseSync
  readonly #packing: RowPacking
  readonly #upsert: StatementSync
  readonly #after: StatementSync
  readonly #forget: StatementSync
  readonly #setMeta: StatementSync
  readonly #dataVersion: StatementSync
  #seenVersion: unknown
  #open = false

  constructor(file: string, database: DatabaseSync, packing = AS_WRITTEN) {
    this.#file = file
    this.#database = database
    this.#packing = packing
    this.#upsert = database.prepare(
      'INSERT INTO entry (scope, key, revision, value) VALUES (?, ?, ?, ?) ' +
        'ON CONFLICT (scope, key) DO UPDATE SET revision = excluded.revision, value = excluded.value',
    )
    this.#after = database.prepare('SELECT scope, key, revision, value FROM entry WHERE revision > ? ORDER BY revision')
    this.#forget = database.prepare('DELETE FROM entry WHERE value IS NULL AND revision <= ?')
    this.#setMeta = database.prepare('UPDATE meta SET value = ? WHERE name = ?')
    this.#dataVersion = database.prepare('PRAGMA data_version')
  }

  load(): JournalContent {
    return this.#run(() => {
      this.#database.exec('BEGIN')
      const content = this.#head()
      this.#seenVersion = this.#version()
      return { ...content, changes: this.#loaded() }
    })
  }

  begin(
    revision: number,
  ): (JournalContent & { readonly whole: boolean; readonly changes: readonly Change[] }) | undefined {
    return this.#run(() => {
      this.#database.exec('BEGIN IMMEDIATE')
      this.#open = true
      const version = this.#version()
      if (version === this.#seenVersion) return undefined
      const compacted = Number(this.#meta('compacted'))
      const whole = compacted > revision
      const content = { ...this.#read(whole ? 0 : revision), whole }
      // This comes last: if the read fails, the next group must read the same changes again.
      this.#seenVersion = version
      return content
    })
  }

  write(changes: readonly Change[]): void {
    this.#run(() => {
      for (const change of changes) {
        const value = change.value === undefined ? null : JSON.stringify(change.value)
        this.#upsert.run(change.scope, change.key, change.revision, value)
      }
      this.#setMeta.run(String(changes.at(-1)?.revision ?? 0), 'revision')
    })
  }

  compact(upTo: number): void {
    this.#run(() => {
      this.#forget.run(upTo)
      this.#setMeta.run(String(upTo), 'compacted')
    })
  }

  commit(): void {
    this.#run(() => {
      this.#database.exec('COMMIT')
      this.#open = false
    })
  }

  rollback(): void {
    if (!this.#open) return
    this.#open = false
    try {
      this.#database.exec('ROLLBACK')
    } catch {
      // SQLite rolls back by itself after some errors; then there is nothing left to do.
    }
  }

  close(): void {
    this.#run(() => this.#database.close())
  }

  #read(after: number): JournalContent & { readonly changes: readonly Change[] } {
    const rows = this.#after.all(after) as unknown as EntryRow[]
    return { ...this.#head(), changes: rows.map((row) => this.#changeOf(row)) }
  }

  #head(): Omit<JournalContent, 'changes'> {
    return {
      epoch: this.#meta('epoch'),
      revision: Number(this.#meta('revision')),
      compactedRevision: Number(this.#meta('compacted')),
    }
  }

  /**
   * Reads row by row, since all rows at once as text and objects take several times the final memory. Ends the
   * transaction.
   */
  *#loaded(): Generator<Change> {
    const rows = this.#after.iterate(0)
    for (;;) {
      const row = this.#run(() => rows.next())
      if (row.done === true) break
      yield this.#run(() => this.#changeOf(row.value as unknown as EntryRow))
    }
    this.#run(() => this.#database.exec('COMMIT'))
  }

  #meta(name: string): string {
    const row = this.#database.prepare('SELECT value FROM meta WHERE name = ?').get(name)
    return String(row?.['value'])
  }

  /** Changes when another connection has written. */
  #version(): unknown {
    return this.#dataVersion.get()?.['data_version']
  }

  #run<T>(work: () => T): T {
    return classify(this.#file, work)
  }

  #changeOf({ scope, key, revision, value }: EntryRow): Change {
    return { scope: scope as Scope, key, revision, value: value === null ? undefined : this.#rowOf(scope, value) }
  }

  #rowOf(scope: string, text: string): Scopes[Scope] {
    return scope === 'record' ? this.#packing.fromText(text) : (JSON.parse(text) as Scopes[Scope])
  }
}
