/** Writes the files of a site as a whole, and creates missing folders (runtime/atomic-file.ts). */
import { linkSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import {
  TEMPORARY_NAME,
  putInPlace,
  syncPath,
  temporaryPath,
  writeTemporary,
  writeTemporaryUnsynced,
} from '../../runtime/runtime.ts'

/** Creates the folder and its parents if they are missing. Throws the system's error. */
export function makeFolder(path: string): void {
  try {
    mkdirSync(path, { recursive: true })
  } catch (error) {
    const parent = dirname(path)
    if (!isMissing(error) || parent === path) throw error
    // Node also reports ENOENT for a read-only file system.
    if (statSync(parent, { throwIfNoEntry: false }) === undefined) makeFolder(parent)
    mkdirSync(path)
  }
}

/** Writes a file, and its folder if needed. Throws the system's error, for the caller to classify. */
export async function writeFileAtomic(path: string, text: string, mode = 0o644): Promise<void> {
  await putInPlace(await writeAside(path, text, mode), path)
}

/** Like writeFileAtomic(), but writes to a temporary file. Returns its path, which the caller has to move or remove. */
export function writeAside(path: string, text: string, mode = 0o644): Promise<string> {
  return inFolders([dirname(path)], () => writeTemporary(path, text, mode))
}

/**
 * Like writeFileAtomic(), but does not wait for the disk (see LaterSyncs). The temporary file is in `aside`: where others
 * watch the folder of the file, each step in it would wake them.
 */
export async function writeFileUnsynced(path: string, text: string, aside = dirname(path)): Promise<void> {
  await inFolders([dirname(path), aside], async () => {
    await putInPlace(await writeTemporaryUnsynced(path, text, 0o644, aside), path)
  })
}

/**
 * Syncs files to disk after writeFileUnsynced(), one at a time: each takes one of the few threads that all work with files
 * shares. A crash of the machine before that may leave a file empty or old.
 */
export class LaterSyncs {
  readonly #sync: (path: string) => Promise<void>
  /** What to do if the disk does not take a file, by its path. */
  readonly #failed = new Map<string, (error: unknown) => void>()
  #running: Promise<void> | undefined

  constructor(sync: (path: string) => Promise<void> = syncPath) {
    this.#sync = sync
  }

  /** `failed`: called if the disk did not take the file. The kernel does not try again: it has to be written again. */
  add(path: string, failed: (error: unknown) => void): void {
    this.#failed.set(path, failed)
    this.#running ??= this.#run()
  }

  /** Waits until the disk has all files. */
  async settled(): Promise<void> {
    await this.#running
  }

  async #run(): Promise<void> {
    for (const [path, failed] of this.#failed) {
      // A file that is written again during its sync is synced again.
      this.#failed.delete(path)
      await this.#sync(path).catch(failed)
    }
    this.#running = undefined
  }
}

/** Makes the folders only if they are missing, which is rare. */
async function inFolders<T>(folders: readonly string[], write: () => Promise<T>): Promise<T> {
  try {
    return await write()
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error
    folders.forEach(makeFolder)
    return await write()
  }
}

/**
 * Creates the file only if it does not exist; returns false if another process created it first. It is synchronous,
 * since it decides which of several processes names an object. It is not synced to disk: if the file is lost, the
 * decision is made again. `aside` is as of writeFileUnsynced().
 */
export function createFileOnce(path: string, text: string, aside = dirname(path)): boolean {
  const temporary = temporaryPath(path, aside)
  for (const folder of new Set([dirname(path), aside])) makeFolder(folder)
  try {
    writeFileSync(temporary, text)
    linkSync(temporary, path)
    return true
  } catch (error) {
    if (errorCode(error) === 'EEXIST') return false
    throw error
  } finally {
    rmSync(temporary, { force: true })
  }
}

const STALE_MS = 3_600_000

/** Removes temporary files of killed processes in a folder and below it, if they are at least an hour old. */
export function removeStaleTemporaries(folder: string, now: number): void {
  try {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name)
      const isTemporary = TEMPORARY_NAME.test(entry.name)
      if (isTemporary && now - statSync(path).mtimeMs > STALE_MS) rmSync(path, { recursive: true, force: true })
      else if (!isTemporary && entry.isDirectory()) removeStaleTemporaries(path, now)
    }
  } catch {
    // The cleanup is optional: another process may be doing the same, or we may lack permission.
  }
}

export function errorCode(error: unknown): string | undefined {
  const code = error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined
  return typeof code === 'string' ? code : undefined
}

/** Whether the path or a part of it does not exist. */
export function isMissing(error: unknown): boolean {
  const code = errorCode(error)
  return code === 'ENOENT' || code === 'ENOTDIR'
}

const DISK_REASONS: Readonly<Record<string, 'DiskFull' | 'DiskReadOnly'>> = {
  ENOSPC: 'DiskFull',
  EDQUOT: 'DiskFull',
  EROFS: 'DiskReadOnly',
}

/**
 * Returns the reason if a write failed because of the disk, and not because of its content; undefined for other errors.
 */
export function diskReason(error: unknown): 'DiskFull' | 'DiskReadOnly' | undefined {
  return (
    DISK_REASONS[errorCode(error) ?? ''] ??
    (error instanceof Error && error.cause !== undefined ? diskReason(error.cause) : undefined)
  )
}
