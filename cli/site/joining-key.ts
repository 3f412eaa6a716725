/**
 * The key of a join under way, `<identity>/joining.key`. Written before the broker is asked: a folder that cannot be
 * written shows before the token is spent, and where the answer is lost, the broker takes the spent token once more
 * from the same key.
 */
import type { KeyObject } from 'node:crypto'
import { chmod, mkdir, readFile, rm, rmdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createKey, keyFromPem, keyToPem } from '../../protocol/identity/keys.ts'
import { UserError } from '../../runtime/user-error.ts'

export interface JoiningKey {
  readonly key: KeyObject
  /** Removes the file, and the folder if nothing else is in it. */
  forget(): Promise<void>
}

/** Throws UserError naming the folder when it cannot be written. */
export async function openJoiningKey(directory: string): Promise<JoiningKey> {
  const file = join(directory, 'joining.key')
  const forget = async (): Promise<void> => {
    await rm(file, { force: true })
    await rmdir(directory).catch(() => undefined)
  }
  const before = await readFile(file, 'utf8').then(keyFromPem, () => undefined)
  if (before !== undefined) return { key: before, forget }
  const key = createKey()
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 })
    await chmod(directory, 0o700)
    await rm(file, { force: true })
    await writeFile(file, keyToPem(key), { mode: 0o600, flag: 'wx', flush: true })
  } catch (cause) {
    throw new UserError(`${directory}: cannot be written: ${(cause as Error).message}`, { cause })
  }
  return { key, forget }
}
