/** Backups of a broker as files: restores them into a state that no broker serves, and checks them. */
import { operatorActor } from '../../broker/admin/admin.ts'
import { type Restored, finishRestore, stageRestore, verifyBackup } from '../../broker/recovery/recovery.ts'
import { lockDirectory, makeStateDir, readBackup } from '../../broker/store/store.ts'
import { type Verified, localOperator } from '../../protocol/admin/admin.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'

export type { Restored } from '../../broker/recovery/recovery.ts'

/** When the backup was taken, in milliseconds since 1970. Throws StateError if it is not a backup or is incomplete. */
export function timeOfBackup(file: string): number {
  return readBackup(file).takenAtMs
}

/** Throws StateError if it is no backup, or cannot be read at all. */
export function verifyBackupFile(file: string): Verified {
  return verifyBackup(file, new SystemClock().now())
}

export interface RestoreInit {
  /** Whether to replace a state that has members. */
  readonly force: boolean
  readonly warn: (text: string) => void
}

/** Restores a backup into a state directory. Throws RefusedError and StateError, the latter also while a broker runs. */
export async function restoreState(state: string, file: string, init: RestoreInit): Promise<Restored | undefined> {
  const clock = new SystemClock()
  const who = operatorActor(localOperator())
  await makeStateDir(state)
  const unlock = lockDirectory(state)
  try {
    await stageRestore(clock, state, file, { ...init, who })
    return await finishRestore(clock, state, who)
  } finally {
    unlock()
  }
}
