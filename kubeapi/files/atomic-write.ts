/** Files of a site: written whole, in folders that are made where they are missing (runtime/atomic-file.ts). */
import { linkSync, mkdirSync, readdirSync, rmSync, statSync, unlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { TEMPORARY_NAME, replaceFile, temporaryPath, writeTemporary } from '../../runtime/runtime.ts'

/** Makes the folder and those above it where they are missing. Throws the system's error. */
export function makeFolder(path: string): void {
  try {
    mkdirSync(path, { recursive: true })
  } catch (error) {
    const parent = dirname(path)
    if (!isMissing(error) || parent === path) throw error
    // Node says ENOENT of a file system that is read-only, too.
    if (statSync(parent, { throwIfNoEntry: false }) === undefined) makeFolder(parent)
    mkdirSync(path)
  }
}

/** Makes the folder where needed. Throws the system's error, for the caller to classify. */
export async function writeFileAtomic(path: string, text: string, mode = 0o644): Promise<void> {
  await inFolder(path, () => replaceFile(path, text, mode))
}

/** The same, but the file is not yet in its place: gives its path, which is the caller's to move or to remove. */
export function writeAside(path: string, text: string, mode = 0o644): Promise<string> {
  return inFolder(path, () => writeTemporary(path, text, mode))
}

async function inFolder<T>(path: string, write: () => Promise<T>): Promise<T> {
  try {
    return await write()
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error
    makeFolder(dirname(path))
    return await write()
  }
}

/**
 * Writes the file only if there is none: false where another process was first. Synchronous, as it decides
 * which of several processes names an object. Not synced to disk: what is lost is decided anew.
 */
export function createFileOnce(path: string, text: string): boolean {
  const temporary = temporaryPath(path)
  makeFolder(dirname(path))
  writeFileSync(temporary, text)
  try {
    linkSync(temporary, path)
    return true
  } catch (error) {
    if (errorCode(error) === 'EEXIST') return false
    throw error
  } finally {
    unlinkSync(temporary)
  }
}

const STALE_MS = 3_600_000

/** Removes what killed processes left half-written in a folder and the folders below it, an hour ago or earlier. */
export function removeStaleTemporaries(folder: string, now: number): void {
  try {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name)
      const isTemporary = TEMPORARY_NAME.test(entry.name)
      if (isTemporary && now - statSync(path).mtimeMs > STALE_MS) rmSync(path, { recursive: true, force: true })
      else if (!isTemporary && entry.isDirectory()) removeStaleTemporaries(path, now)
    }
  } catch {
    // Tidiness only: another process may be doing the same, or the folder is not ours to tidy.
  }
}

export function errorCode(error: unknown): string | undefined {
  const code = error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined
  return typeof code === 'string' ? code : undefined
}

/** The path or a part of it does not exist. */
export function isMissing(error: unknown): boolean {
  const code = errorCode(error)
  return code === 'ENOENT' || code === 'ENOTDIR'
}

const DISK_REASONS: Readonly<Record<string, 'DiskFull' | 'DiskReadOnly'>> = {
  ENOSPC: 'DiskFull',
  EDQUOT: 'DiskFull',
  EROFS: 'DiskReadOnly',
}

/** The disk is why a write failed, and not what is on it; undefined for anything else. */
export function diskReason(error: unknown): 'DiskFull' | 'DiskReadOnly' | undefined {
  return (
    DISK_REASONS[errorCode(error) ?? ''] ??
    (error instanceof Error && error.cause !== undefined ? diskReason(error.cause) : undefined)
  )
}
