/** Files of a state directory: written whole or not at all, read where they are there, moved about. */
import { mkdir, readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf, replaceFile } from '../../runtime/runtime.ts'
import type { EtcdStoreConfig } from '../config/config.ts'
import { StateError } from './record-log.ts'

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

// Which store a broker has, remembered in its state directory for the commands beside it (`store.json`).

const STORE_FILE = 'store.json'

/** Undefined: the store is the database in the directory. Throws StateError. */
export async function readStoreConfig(stateDir: string): Promise<EtcdStoreConfig | undefined> {
  const file = join(stateDir, STORE_FILE)
  let text: string
  try {
    text = await readFile(file, 'utf8')
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    throw new StateError(
      'Unwritable',
      file,
      `${file} cannot be read (${message}): run this as the broker's user`,
      error,
    )
  }
  try {
    const config = JSON.parse(text) as EtcdStoreConfig
    if (typeof config.url === 'string') return config
  } catch {
    // Said below.
  }
  throw new StateError('Damaged', file, `${file} is damaged: start the broker with --store, which writes it anew`)
}

/** The database in the directory is the store again. */
export async function forgetStore(stateDir: string): Promise<void> {
  await rm(join(stateDir, STORE_FILE), { force: true })
}

export async function rememberStore(stateDir: string, config: EtcdStoreConfig): Promise<void> {
  const { url, caFile, certificateFile, keyFile, passwordFile } = config
  const kept = { url, caFile, certificateFile, keyFile, passwordFile }
  await writeSafely(join(stateDir, STORE_FILE), `${JSON.stringify(kept)}\n`)
}

/** Throws StateError where the rows are in an etcd: a file is not all of the state then. */
export async function checkOwnDatabase(stateDir: string): Promise<void> {
  const remembered = await readStoreConfig(stateDir)
  if (remembered === undefined) return
  const text = `the state of this broker is in ${remembered.url}: back it up and restore it with "etcdctl snapshot"`
  throw new StateError('Foreign', join(stateDir, STORE_FILE), text)
}

/** Throws StateError where this state directory is of a broker on an etcd, and none is given. */
export async function checkStoreRemembered(stateDir: string, given: EtcdStoreConfig | undefined): Promise<void> {
  const remembered = given === undefined ? await readStoreConfig(stateDir) : undefined
  if (remembered === undefined) return
  const file = join(stateDir, STORE_FILE)
  const text = `${stateDir} is of a broker whose store is ${remembered.url}: expected --store ${remembered.url}`
  throw new StateError('Foreign', file, text)
}

/** Name of the database in the state directory. */
export const DATABASE_FILE = 'broker.db'
