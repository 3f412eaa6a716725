/** Files of a state directory: atomic writes, reads of files that may be absent, and the remembered store. */
import { mkdir, readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { messageOf, replaceFile } from '../../runtime/runtime.ts'
import type { EtcdStoreConfig } from '../config/config.ts'
import { StateError } from './record-log.ts'

/**
 * Makes the directory with mode 0700. An existing directory keeps its mode: it may serve others too, and each file in
 * it has mode 0600. Throws StateError.
 */
export async function makeStateDir(stateDir: string): Promise<void> {
  await attempt(stateDir, 'cannot be created', () => mkdir(stateDir, { recursive: true, mode: 0o700 }))
}

/** After a crash, either the old or the new content is in place. The file has mode 0600. Throws StateError. */
export async function writeSafely(file: string, text: string): Promise<void> {
  await attempt(file, 'cannot be written', () => replaceFile(file, text))
}

/** Returns undefined if there is no such file. Throws StateError. */
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

/** Throws StateError if it cannot find out. */
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

/** Runs `work` and turns its errors into a StateError that names the file. */
export async function onFile<T>(file: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const message = messageOf(error)
    throw new StateError('Unwritable', file, `${file}: ${message}: check the directory and its permissions`, error)
  }
}

/** Runs `work` and turns its errors into a StateError that says `what` could not be done with the file. */
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

// The store of a broker, remembered in its state directory for commands that run beside it (`store.json`).

const STORE_FILE = 'store.json'

/** Returns undefined if the store is the database in the directory. Throws StateError. */
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
      `${file} cannot be read (${message}): run this command as the broker's user`,
      error,
    )
  }
  try {
    const config = JSON.parse(text) as EtcdStoreConfig
    if (typeof config.url === 'string') return config
  } catch {
    // The error below covers text that is not JSON.
  }
  throw new StateError('Damaged', file, `${file} is damaged: start the broker with --store, which replaces it`)
}

/** Makes the database in the directory the store again. */
export async function forgetStore(stateDir: string): Promise<void> {
  await rm(join(stateDir, STORE_FILE), { force: true })
}

export async function rememberStore(stateDir: string, config: EtcdStoreConfig): Promise<void> {
  const { url, caFile, certificateFile, keyFile, passwordFile } = config
  const kept = { url, caFile, certificateFile, keyFile, passwordFile }
  await writeSafely(join(stateDir, STORE_FILE), `${JSON.stringify(kept)}\n`)
}

/** Throws StateError if the rows are in an etcd: a backup file would not hold all of the state. */
export async function checkOwnDatabase(stateDir: string): Promise<void> {
  const remembered = await readStoreConfig(stateDir)
  if (remembered === undefined) return
  const text = `the state of this broker is in ${remembered.url}: back it up and restore it with "etcdctl snapshot"`
  throw new StateError('Foreign', join(stateDir, STORE_FILE), text)
}

/** Throws StateError if the broker of this directory has its store in an etcd and `given` names none. */
export async function checkStoreRemembered(stateDir: string, given: EtcdStoreConfig | undefined): Promise<void> {
  const remembered = given === undefined ? await readStoreConfig(stateDir) : undefined
  if (remembered === undefined) return
  const file = join(stateDir, STORE_FILE)
  const text = `${stateDir} belongs to a broker whose store is ${remembered.url}: expected --store ${remembered.url}`
  throw new StateError('Foreign', file, text)
}

/** Name of the database in the state directory. */
export const DATABASE_FILE = 'broker.db'
