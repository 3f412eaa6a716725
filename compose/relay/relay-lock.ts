/** Keeps two relays from serving with the key of one folder: to gateways they would look like one. */
import { chmodSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { UserError } from '../../runtime/runtime.ts'

const LOCK_FILE = 'relay.lock'
/** A relay that stops has this time. */
const STOPS_MS = 2000
/** Codes of SQLite: busy. */
const SQLITE_BUSY = 5

/**
 * Holds `<folder>/relay.lock` until disposed, or until the process ends for any reason. Undefined for a folder that
 * cannot be locked, such as one that is mounted read-only. Throws UserError if another process holds it.
 */
export async function lockRelayFolder(folder: string): Promise<Disposable | undefined> {
  const { DatabaseSync } = await import('node:sqlite')
  const file = join(folder, LOCK_FILE)
  let lock: InstanceType<typeof DatabaseSync> | undefined
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    lock = new DatabaseSync(file, { timeout: STOPS_MS })
    // No other user may open the file and take the lock.
    chmodSync(file, 0o600)
    lock.exec('BEGIN EXCLUSIVE')
    const held = lock
    return { [Symbol.dispose]: () => held.close() }
  } catch (cause) {
    lock?.close()
    if ((cause as { errcode?: number }).errcode !== SQLITE_BUSY) return undefined
    const expected = 'expected a folder of its own for each relay (--state), or the other one stopped'
    throw new UserError(`${folder}: another relay serves with the key in this folder: ${expected}`, { cause })
  }
}
