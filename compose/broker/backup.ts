/** Backup and restore of a broker's state; they bring the certificate authority along. */
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

// A look through a broker's state or a backup, apart from the broker itself, which brings a server along.

export type { Finding } from '../../broker/recovery/recovery.ts'
export type { Verified } from '../../broker/recovery/recovery.ts'

/** Throws StateError where there is nothing, or it cannot be read at all. */
export async function verifyWhat(what: { readonly state: string; readonly backup?: string }): Promise<Verified> {
  const nowMs = new SystemClock().now()
  if (what.backup !== undefined) return verifyBackup(what.backup, nowMs)
  return verifyState(what.state, nowMs).catch(withHint)
}
