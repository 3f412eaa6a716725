/**
 * Writes files atomically, even across a crash: a temporary file, fsync, then rename. Names of temporary files start
 * with a dot. Errors are the system's, for the caller to classify.
 */
import { randomBytes } from 'node:crypto'
import { closeSync, fsync, open as openFile, writeFile } from 'node:fs'
import { link, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { promisify } from 'node:util'

/** Matches the names that temporaryPath() returns. */
export const TEMPORARY_NAME = /^\..*\.\d+\.[0-9a-f]{12}\.tmp$/
const TEMPORARY_END = /^\d+\.[0-9a-f]{12}\.tmp$/
const MOST_TEMPORARIES = 2 ** 48
/** Random at first, since processes of two containers may have one id, and then counted: chance costs a call each time. */
let last = randomBytes(6).readUIntBE(0, 6)

/** Returns a name that is unique to this process, in the folder of `path` or in `folder`. */
export function temporaryPath(path: string, folder = dirname(path)): string {
  last = (last + 1) % MOST_TEMPORARIES
  const unique = `${process.pid}.${last.toString(16).padStart(12, '0')}`
  // Long names are truncated, so that the temporary name stays within the limit for names.
  return join(folder, `.${basename(path).slice(0, 100)}.${unique}.tmp`)
}

/** Writes a temporary file for `path`. Returns its own path, which the caller has to move or remove. */
export async function writeTemporary(path: string, data: string | Uint8Array, mode: number): Promise<string> {
  const temporary = temporaryPath(path)
  const file = await open(temporary, 'wx', mode)
  try {
    try {
      await file.writeFile(data)
      await file.sync()
    } finally {
      await file.close()
    }
    return temporary
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
}

const openInPool = promisify(openFile) as (path: string, flags: string, mode?: number) => Promise<number>
const writeInPool = promisify(writeFile) as (descriptor: number, text: string) => Promise<void>
const syncInPool = promisify(fsync)

/**
 * Like writeTemporary(), but does not wait for the disk, and writes the temporary file in `folder`, of the same file
 * system. For files that are written often. What a disk that hangs can hold up is left to the thread pool; closing is
 * not, as a job for the pool costs several times as much.
 */
export async function writeTemporaryUnsynced(
  path: string,
  text: string,
  mode: number,
  folder: string,
): Promise<string> {
  const temporary = temporaryPath(path, folder)
  const descriptor = await openInPool(temporary, 'wx', mode)
  try {
    try {
      await writeInPool(descriptor, text)
    } finally {
      closeSync(descriptor)
    }
    return temporary
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
}

/** Moves a temporary file to its place. If that fails, the temporary file is removed. */
export async function putInPlace(temporary: string, path: string): Promise<void> {
  try {
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
}

/**
 * Creates or replaces the file at `path`. Also removes temporary files that killed processes have left of it: they may
 * hold a private key. For files that are written seldom, since it lists the folder.
 */
export async function replaceFile(path: string, data: string | Uint8Array, mode = 0o600): Promise<void> {
  await putInPlace(await writeTemporary(path, data, mode), path)
  await removeLeftovers(path)
}

/** Creates a file at `path`. Returns false if there is one already, which stays unchanged. */
export async function createFile(path: string, data: string | Uint8Array, mode = 0o600): Promise<boolean> {
  const temporary = await writeTemporary(path, data, mode)
  try {
    await link(temporary, path)
    await removeLeftovers(path)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  } finally {
    await rm(temporary, { force: true })
  }
}

/**
 * Waits until the disk has a file or, for a folder, which files are in it. Does nothing if it was removed meanwhile, or
 * if the file system syncs no folders.
 */
export async function syncPath(path: string): Promise<void> {
  try {
    const descriptor = await openInPool(path, 'r')
    try {
      await syncInPool(descriptor)
    } finally {
      closeSync(descriptor)
    }
  } catch (error) {
    if (!['ENOENT', 'ENOTDIR', 'EINVAL'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error
  }
}

/** Nobody takes that long to write one file of a state directory. */
const KILLED_MS = 60_000

/**
 * Removes the temporary files of killed processes from a folder. For the start of a process, with the folder that it
 * keeps its state in. Never throws.
 */
export async function removeTemporaries(folder: string, nowMs: number): Promise<void> {
  const names = await readdir(folder).catch(() => [])
  for (const name of names.filter((one) => TEMPORARY_NAME.test(one))) {
    const path = join(folder, name)
    const mtimeMs = await stat(path).then(
      (found) => found.mtimeMs,
      () => Infinity,
    )
    if (nowMs - mtimeMs > KILLED_MS) await rm(path, { force: true }).catch(() => undefined)
  }
}

const STALE_MS = 3_600_000

/** Another process may be writing one that is younger. */
async function removeLeftovers(path: string): Promise<void> {
  const folder = dirname(path)
  const start = `.${basename(path).slice(0, 100)}.`
  try {
    const { mtimeMs } = await stat(path)
    for (const name of await readdir(folder)) {
      if (!name.startsWith(start) || !TEMPORARY_END.test(name.slice(start.length))) continue
      const leftover = join(folder, name)
      if (mtimeMs - (await stat(leftover)).mtimeMs > STALE_MS) await rm(leftover, { force: true })
    }
  } catch {
    // The file itself is written. Another process may have removed the leftover first.
  }
}
