/** Notices two relays that serve with the key of one folder. */
import { chmodSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'

const LOCK_FILE = 'relay.lock'
/** Codes of SQLite: busy. */
const SQLITE_BUSY = 5

export interface FolderLock extends Disposable {
  /** Another process has the lock. */
  readonly isElsewhere: boolean
}

/**
 * Takes `<folder>/relay.lock` until disposed, or until the process ends for any reason, unless another process has it.
 * Never waits for that one. Undefined for a folder that cannot be locked, such as one that is mounted read-only.
 */
export async function lockRelayFolder(folder: string): Promise<FolderLock | undefined> {
  const { DatabaseSync } = await import('node:sqlite')
  const file = join(folder, LOCK_FILE)
  let lock: InstanceType<typeof DatabaseSync> | undefined
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    lock = new DatabaseSync(file, { timeout: 0 })
    // No other user may open the file and take the lock.
    chmodSync(file, 0o600)
    lock.exec('BEGIN EXCLUSIVE')
    const held = lock
    return { isElsewhere: false, [Symbol.dispose]: () => held.close() }
  } catch (cause) {
    lock?.close()
    if ((cause as { errcode?: number }).errcode !== SQLITE_BUSY) return undefined
    return { isElsewhere: true, [Symbol.dispose]: () => undefined }
  }
}
