/** Which store a broker has, remembered in its state directory for the commands beside it (`store.json`). */
import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { EtcdStoreConfig } from '../config.ts'
import { StateError } from '../log/record-log.ts'
import { writeSafely } from './state-files.ts'

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
