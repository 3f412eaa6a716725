/** A state directory with an SQLite database. */
import { mkdir, readFile, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { isAuthorityFile } from '../identity/identity.ts'
import {
  DATABASE_FILE,
  type RecordLog,
  forgetStore,
  isThere,
  lockDirectory,
  makeStateDir,
  onFile,
  openSqliteLog,
  writeSafely,
} from '../store/store.ts'
import { authorityFiles } from './backup.ts'
import { markOf, writeMark } from './state-mark.ts'
import type { AuthorityFiles, StorePlace } from './store-location.ts'

const BEFORE = 'before-migrate-'

export class SqlitePlace implements StorePlace {
  readonly name: string
  readonly #directory: string

  constructor(directory: string) {
    this.#directory = directory
    this.name = `sqlite:${directory}`
  }

  get #file(): string {
    return join(this.#directory, DATABASE_FILE)
  }

  async lock(): Promise<() => Promise<void>> {
    await makeStateDir(this.#directory)
    const unlock = lockDirectory(this.#directory)
    return () => {
      unlock()
      return Promise.resolve()
    }
  }

  async open(): Promise<RecordLog | undefined> {
    if (!(await isThere(this.#file))) return undefined
    return openSqliteLog({ file: this.#file, create: false })
  }

  async renew(_clusterset: string, nowMs: number): Promise<RecordLog> {
    const folder = join(this.#directory, `${BEFORE}${new Date(nowMs).toISOString().replaceAll(':', '')}`)
    // The database moves last. If this is interrupted before, the next attempt repeats it.
    for (const suffix of ['-shm', '-wal', '']) {
      const file = `${this.#file}${suffix}`
      if (!(await isThere(file))) continue
      await onFile(folder, async () => {
        await mkdir(folder, { recursive: true, mode: 0o700 })
        await rename(file, join(folder, `${DATABASE_FILE}${suffix}`))
      })
    }
    return openSqliteLog({ file: this.#file })
  }

  async authority(): Promise<AuthorityFiles | undefined> {
    const files: [string, string][] = []
    for (const name of await authorityFiles(this.#directory)) {
      const file = join(this.#directory, name)
      if (await isThere(file)) files.push([name, await onFile(file, () => readFile(file, 'utf8'))])
    }
    return files.length === 0 ? undefined : Object.fromEntries(files)
  }

  async putAuthority(files: AuthorityFiles): Promise<void> {
    // The certificate is written last: a key without it counts as an interrupted first start.
    const names = Object.keys(files).filter(isAuthorityFile)
    const keysFirst = [
      ...names.filter((name) => name.endsWith('.key')),
      ...names.filter((name) => name.endsWith('.crt')),
    ]
    for (const name of keysFirst) await writeSafely(join(this.#directory, name), files[name] ?? '')
  }

  /**
   * Writes the mark of the store that is served from now on. A broker of an earlier release ignores the migration row,
   * but refuses a database whose epoch differs from the mark.
   */
  async settled(log: RecordLog, nowMs: number, isHere: boolean): Promise<void> {
    // The directory may have been that of a broker on an etcd in between.
    if (isHere) await forgetStore(this.#directory)
    await writeMark(this.#directory, markOf(log, nowMs))
  }
}
