/** Looks through a broker's state, or a backup of one, and changes nothing of it; also beside a running broker. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { StateError } from '../log/record-log.ts'
import { readBackup, readBackupContent } from '../log/sqlite/sqlite-backup.ts'
import { readDatabaseContent } from '../log/sqlite/sqlite-content.ts'
import { type Verified, verifyStore } from '../verify/verify-store.ts'
import { DATABASE_FILE } from './database-file.ts'
import { readStoreConfig } from './store-config.ts'

/** Throws StateError where there is no state, or it cannot be read at all. */
export async function verifyState(stateDir: string, nowMs: number): Promise<Verified> {
  const store = await readStoreConfig(stateDir)
  if (store !== undefined) {
    const text = `the state of this broker is in ${store.url}: verify reads databases and backups`
    throw new StateError('Foreign', store.url, text)
  }
  const content = readDatabaseContent(join(stateDir, DATABASE_FILE))
  const [certificate, key] = [await textOf(join(stateDir, 'ca.crt')), await textOf(join(stateDir, 'ca.key'))]
  return verifyStore(content, { nowMs, authority: { certificate, key } })
}

/** Takes a file that `broker backup` has written. Throws StateError for what is none, or not whole. */
export function verifyBackup(file: string, nowMs: number): Verified {
  const { files } = readBackup(file)
  const authority = { certificate: files['ca.crt'], key: files['ca.key'] }
  return verifyStore(readBackupContent(file), { nowMs, authority })
}

async function textOf(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    throw new StateError('Failed', file, `${file} cannot be read (${message})`, error)
  }
}
