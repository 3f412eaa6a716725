/** Which store a broker has, remembered in its state directory for the commands beside it (`store.json`). */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { writeSafely } from '../members/certificate-authority.ts'
import { StateError } from '../log/record-log.ts'

/** Names of files, never what is in them. */
export interface EtcdStoreConfig {
  /** etcd://[user@]host:port[,host:port…][/prefix] */
  readonly url: string
  /** Certificates that etcd's own is checked against, PEM; absent: what the system trusts. */
  readonly caFile?: string
  /** Client certificate and its key, PEM; both or none. */
  readonly certificateFile?: string
  readonly keyFile?: string
  /** The password of the user in the URL. */
  readonly passwordFile?: string
}

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

export async function rememberStore(stateDir: string, config: EtcdStoreConfig): Promise<void> {
  const { url, caFile, certificateFile, keyFile, passwordFile } = config
  const kept = { url, caFile, certificateFile, keyFile, passwordFile }
  await writeSafely(join(stateDir, STORE_FILE), `${JSON.stringify(kept)}\n`)
}
