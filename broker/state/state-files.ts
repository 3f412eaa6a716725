/** Files of a state directory that are moved about. */
import { stat } from 'node:fs/promises'
import { messageOf } from '../../runtime/thrown.ts'
import { StateError } from '../log/record-log.ts'

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
