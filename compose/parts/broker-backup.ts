/** Backup and restore of a broker's state; they bring the certificate authority along. */
import { backupBroker } from '../../broker/state/backup.ts'
import { readBackup } from '../../broker/log/sqlite/sqlite-backup.ts'
import { lockDirectory } from '../../broker/log/sqlite/sqlite-file.ts'
import { type Restored, finishRestore, stageRestore } from '../../broker/state/restore.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { withHint } from './broker-store.ts'
import { makeStateDir } from '../../broker/state/state-files.ts'

export type { Restored } from '../../broker/state/restore.ts'

export interface BackupInit {
  /** Where the user finds it. */
  readonly knownAs: string
  readonly warn: (text: string) => void
}

/** Writes a backup of the broker's state into `target`, which must not exist. Throws as backupBroker() does. */
export async function backupState(state: string, target: string, init: BackupInit): Promise<void> {
  await backupBroker(new SystemClock(), state, target, init).catch(withHint)
}

/** When the backup was taken, milliseconds since 1970. Throws StateError for what is none, or not whole. */
export function timeOfBackup(file: string): number {
  return readBackup(file).takenAtMs
}

export interface RestoreInit {
  /** Also where the state there has members. */
  readonly force: boolean
  /** Beside a running broker, which takes it when it starts anew. */
  readonly atNextStart: boolean
  readonly warn: (text: string) => void
}

/** Undefined: it is done at the broker's next start. Throws StateError, also while a broker runs, and RefusedError. */
export async function restoreState(
  state: string,
  file: string,
  { force, atNextStart, warn }: RestoreInit,
): Promise<Restored | undefined> {
  if (atNextStart) {
    await stageRestore(new SystemClock(), state, file, { force, warn })
    return undefined
  }
  await makeStateDir(state)
  const unlock = lockDirectory(state)
  try {
    await stageRestore(new SystemClock(), state, file, { force, warn })
    return await finishRestore(new SystemClock(), state)
  } finally {
    unlock()
  }
}
