/**
 * Files that are either the old or the new one, never half, also after a crash: a temporary file in the same folder,
 * fsync, then rename. Names of temporary files start with a dot. Errors are the system's, for the caller to classify.
 */
import { randomBytes } from 'node:crypto'
import { link, open, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'

/** Names that temporaryPath() gives. */
export const TEMPORARY_NAME = /^\..*\.\d+\.[0-9a-f]{12}\.tmp$/

/** A name of this process in the folder of `path`. */
export function temporaryPath(path: string): string {
  // Long names keep only their start: the temporary name must not exceed the limit that the real one just meets.
  return join(dirname(path), `.${basename(path).slice(0, 100)}.${process.pid}.${randomBytes(6).toString('hex')}.tmp`)
}

/** Writes a temporary file beside `path`, to the disk. Gives its path: the caller moves or removes it. */
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

/** Puts a file with this content at `path`, in place of one that is there. */
export async function replaceFile(path: string, data: string | Uint8Array, mode = 0o600): Promise<void> {
  const temporary = await writeTemporary(path, data, mode)
  try {
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
}

/** Puts a file at `path` where there is none: false where there is one, which stays as it is. */
export async function createFile(path: string, data: string | Uint8Array, mode = 0o600): Promise<boolean> {
  const temporary = await writeTemporary(path, data, mode)
  try {
    await link(temporary, path)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  } finally {
    await rm(temporary, { force: true })
  }
}
