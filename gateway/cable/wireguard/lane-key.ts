/** The private key of a lane: made on first start, mode 0600 in a directory of mode 0700, never read into a log. */
import { mkdir, readFile, readdir, rename, rm, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { createFile } from '../../../runtime/atomic-file.ts'
import { messageOf } from '../../../runtime/thrown.ts'

/** What the file holds is not looked at further than this; WireGuard keys are 32 bytes in base64. */
const KEY = /^[A-Za-z0-9+/]{43}=\n?$/

/** A key file that cannot be used. Says which file, what is wrong and what to do. */
export class LaneKeyError extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'LaneKeyError'
  }
}

export function laneKeyPath(stateDir: string, lane: number): string {
  return join(stateDir, `lane${lane}.key`)
}

/**
 * Gives the path of the lane's key file; makes the file, and the directory, when they are not there. Throws
 * LaneKeyError. An unusable key is never replaced: it may be all that the other clusters know this gateway by.
 */
export async function ensureLaneKey(stateDir: string, lane: number, newKey: () => string): Promise<string> {
  await ensureDirectory(stateDir)
  const path = laneKeyPath(stateDir, lane)
  try {
    await checkKey(path)
  } catch (error) {
    if (!isCode(error, 'ENOENT')) throw error
    await writeKey(path, newKey())
    await checkKey(path)
  }
  return path
}

/** Of the key that is to be taken next: beside the present one, under the same rules. */
export function nextKeyPath(stateDir: string, lane: number): string {
  return join(stateDir, `lane${lane}.next.key`)
}

/**
 * Gives the path of the next key, which it makes where there is none. One that cannot be used is made anew: nobody needs
 * it. Throws LaneKeyError.
 */
export async function ensureNextKey(stateDir: string, lane: number, newKey: () => string): Promise<string> {
  const path = nextKeyPath(stateDir, lane)
  try {
    await checkKey(path)
  } catch (error) {
    if (!isCode(error, 'ENOENT')) await rm(path, { force: true })
    await writeKey(path, newKey())
    await checkKey(path)
  }
  return path
}

/** The text of a key file that can be used; undefined where there is none, or where it cannot. */
export async function readKey(path: string): Promise<string | undefined> {
  try {
    await checkKey(path)
    return await readFile(path, 'utf8')
  } catch {
    return undefined
  }
}

/** The next key takes the present one's place, in one step: after a crash there is one or the other. Throws LaneKeyError. */
export async function promoteNextKey(stateDir: string, lane: number): Promise<void> {
  const path = nextKeyPath(stateDir, lane)
  try {
    await checkKey(path)
    await rename(path, laneKeyPath(stateDir, lane))
  } catch (error) {
    if (error instanceof LaneKeyError) throw error
    throw new LaneKeyError(`lane key ${path}: ${reason(error)}`, { cause: error })
  }
}

/** When the present key was made, in milliseconds since 1970. Throws LaneKeyError. */
export async function laneKeyMadeMs(stateDir: string, lane: number): Promise<number> {
  const path = laneKeyPath(stateDir, lane)
  try {
    return (await stat(path)).mtimeMs
  } catch (error) {
    throw new LaneKeyError(`lane key ${path}: ${reason(error)}`, { cause: error })
  }
}

/** Takes the keys of all other lanes away: this node serves them no more. None of the files is read. */
export async function removeOtherLaneKeys(stateDir: string, lanes: readonly number[]): Promise<void> {
  const keep = new Set(
    lanes.flatMap((lane) => [laneKeyPath, nextKeyPath].map((path) => basename(path(stateDir, lane)))),
  )
  for (const name of await namesIn(stateDir)) {
    if (/^lane\d+(\.next)?\.key$/.test(name) && !keep.has(name)) await rm(join(stateDir, name), { force: true })
  }
}

async function namesIn(directory: string): Promise<readonly string[]> {
  try {
    return await readdir(directory)
  } catch (error) {
    if (isCode(error, 'ENOENT')) return []
    throw error
  }
}

async function ensureDirectory(stateDir: string): Promise<void> {
  try {
    await mkdir(stateDir, { recursive: true, mode: 0o700 })
    const mode = (await stat(stateDir)).mode & 0o777
    if ((mode & 0o077) !== 0) {
      throw new LaneKeyError(`state directory ${stateDir}: mode ${octal(mode)}, expected 0700 (chmod 700 ${stateDir})`)
    }
  } catch (error) {
    if (error instanceof LaneKeyError) throw error
    throw new LaneKeyError(`state directory ${stateDir}: ${reason(error)}`, { cause: error })
  }
}

async function checkKey(path: string): Promise<void> {
  let text: string
  try {
    const mode = (await stat(path)).mode & 0o777
    if ((mode & 0o077) !== 0)
      throw new LaneKeyError(`lane key ${path}: mode ${octal(mode)}, expected 0600 (chmod 600 ${path})`)
    text = await readFile(path, 'utf8')
  } catch (error) {
    if (error instanceof LaneKeyError || isCode(error, 'ENOENT')) throw error
    throw new LaneKeyError(`lane key ${path}: ${reason(error)}`, { cause: error })
  }
  if (!KEY.test(text)) {
    throw new LaneKeyError(
      `lane key ${path}: not a WireGuard private key (expected 44 characters of base64); restore it, or remove it to get a new one`,
    )
  }
}

/** The first of two writers wins. */
async function writeKey(path: string, key: string): Promise<void> {
  try {
    await createFile(path, `${key}\n`)
  } catch (error) {
    throw new LaneKeyError(`lane key ${path}: ${reason(error)}`, { cause: error })
  }
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}

function reason(error: unknown): string {
  if (isCode(error, 'EACCES')) return 'permission denied'
  if (isCode(error, 'EROFS')) return 'the file system is read-only'
  if (isCode(error, 'ENOSPC')) return 'no space left'
  if (isCode(error, 'EDQUOT')) return 'the quota of the disk is used up'
  if (isCode(error, 'ENOTDIR') || isCode(error, 'EEXIST')) return 'there is a file where a directory is expected'
  if (isCode(error, 'EISDIR')) return 'there is a directory where a file is expected'
  return messageOf(error)
}

function octal(mode: number): string {
  return mode.toString(8).padStart(4, '0')
}
