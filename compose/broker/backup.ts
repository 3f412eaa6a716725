/** Backup and restore of a broker's state. A separate module, since it loads the certificate authority. */
import {
  type Restored,
  type Verified,
  backupBroker,
  finishRestore,
  stageRestore,
  verifyBackup,
  verifyState,
} from '../../broker/recovery/recovery.ts'
import { lockDirectory, makeStateDir, readBackup } from '../../broker/store/store.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { withHint } from './store.ts'

export type { Restored } from '../../broker/recovery/recovery.ts'

export interface BackupInit {
  /** The name of the state in messages to the user. */
  readonly knownAs: string
  readonly warn: (text: string) => void
}

/** Writes a backup of the broker's state to `target`, which must not exist. Throws the errors of backupBroker(). */
export async function backupState(state: string, target: string, init: BackupInit): Promise<void> {
  await backupBroker(new SystemClock(), state, target, init).catch(withHint)
}

/** When the backup was taken, in milliseconds since 1970. Throws StateError if it is not a backup or is incomplete. */
export function timeOfBackup(file: string): number {
  return readBackup(file).takenAtMs
}

export interface RestoreInit {
  /** Whether to replace a state that has members. */
  readonly force: boolean
  /** Whether to leave the restore to the next start of the broker, which may be running. */
  readonly atNextStart: boolean
  readonly warn: (text: string) => void
}

/**
 * Restores a backup. Undefined if the broker does it at its next start. Throws RefusedError and StateError, the latter
 * also while a broker runs.
 */
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

// Verifies a broker's state or a backup. Separate from the broker, which would load a server.

export type { Finding } from '../../broker/recovery/recovery.ts'
export type { Verified } from '../../broker/recovery/recovery.ts'

/** Throws StateError if there is no state or backup, or if it cannot be read at all. */
export async function verifyWhat(what: { readonly state: string; readonly backup?: string }): Promise<Verified> {
  const nowMs = new SystemClock().now()
  if (what.backup !== undefined) return verifyBackup(what.backup, nowMs)
  return verifyState(what.state, nowMs).catch(withHint)
}
