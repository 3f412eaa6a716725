/** Files of a state directory: written whole or not at all, read where they are there, moved about. */
import { mkdir, readFile, stat } from 'node:fs/promises'
import { replaceFile } from '../../runtime/atomic-file.ts'
import { messageOf } from '../../runtime/thrown.ts'
import { StateError } from '../log/record-log.ts'

/**
 * Makes the directory with mode 0700. One that is there already keeps its mode: it may serve others too, and each of
 * our files in it is private by itself. Throws StateError.
 */
export async function makeStateDir(stateDir: string): Promise<void> {
  await attempt(stateDir, 'cannot be made', () => mkdir(stateDir, { recursive: true, mode: 0o700 }))
}

/** A crash leaves the old file or the new one; mode 0600. Throws StateError. */
export async function writeSafely(file: string, text: string): Promise<void> {
  await attempt(file, 'cannot be written', () => replaceFile(file, text))
}

/** Undefined where there is no such file. Throws StateError. */
export async function readIfThere(file: string): Promise<string | undefined> {
  return attempt(file, 'cannot be read', async () => {
    try {
      return await readFile(file, 'utf8')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
      throw error
    }
  })
}

/** Throws StateError where it cannot be found out. */
export async function isThere(file: string): Promise<boolean> {
  try {
    await stat(file)
    return true
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return false
    throw new StateError('Failed', file, `${file}: ${message}`, error)
  }
}

/** Runs `work`; what it throws becomes a StateError that names the file. */
export async function onFile<T>(file: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const message = messageOf(error)
    throw new StateError('Unwritable', file, `${file}: ${message}: check the directory and its permissions`, error)
  }
}

/** Runs `work`; what it throws becomes a StateError that says `what` could not be done with the file. */
export async function attempt<T>(file: string, what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof StateError) throw error
    const reason = messageOf(error)
    throw new StateError(
      'Unwritable',
      file,
      `${file} ${what} (${reason}): check the directory and its permissions`,
      error,
    )
  }
}
