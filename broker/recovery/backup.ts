/** Writes all that a broker must keep to one file: its database at one moment, and its certificate authority. */
import { join } from 'node:path'
import type { Clock } from '../../reconcile/reconcile.ts'
import { type Warn, notedCommand } from '../audit/audit.ts'
import { CA_CERTIFICATE, CA_KEY, secondFiles } from '../identity/identity.ts'
import {
  type AuditActor,
  DATABASE_FILE,
  type RecordLog,
  StateError,
  checkOwnDatabase,
  readIfThere,
} from '../store/store.ts'
import { noteBackup } from './state-mark.ts'

/**
 * Files that belong to the database: without them no member would recognize the broker. The server's key is not among
 * them, since a broker creates a new one. During a rotation there is a second pair. If the authority's key is kept
 * elsewhere, the files may not exist.
 */
export async function authorityFiles(stateDir: string): Promise<readonly string[]> {
  return [CA_CERTIFICATE, CA_KEY, ...(await secondFiles(stateDir))]
}

/**
 * Writes a backup of the state in `stateDir` to `target`, which must not exist, with mode 0600. The broker may be
 * running; in its own process, `log` is its open database. `knownAs` is the path as the user knows it, for the message
 * that asks for a restore. `warn` is called if the audit log will not have the backup. Throws StateError if there is no
 * broker state, or if a file cannot be read or written.
 */
export async function backupBroker(
  clock: Clock,
  stateDir: string,
  target: string,
  {
    knownAs = target,
    warn = () => undefined,
    who,
    log,
  }: {
    readonly knownAs?: string
    readonly warn?: Warn
    readonly who: AuditActor
    readonly log?: RecordLog | undefined
  },
): Promise<void> {
  await checkOwnDatabase(stateDir)
  // The command is audited, since a backup lets its owner admit any cluster.
  const copy = (): Promise<void> => copyState(clock, stateDir, target, knownAs)
  const note = { clock, who, database: join(stateDir, DATABASE_FILE), log, warn }
  await notedCommand(note, { act: 'broker.backup', subject: knownAs }, copy)
}

async function copyState(clock: Clock, stateDir: string, target: string, knownAs: string): Promise<void> {
  // The time is taken before the copy. Writes during the copy may be in it, and count as later.
  const takenAtMs = clock.now()
  const files: Record<string, string> = {}
  for (const name of await authorityFiles(stateDir)) {
    const text = await readIfThere(join(stateDir, name))
    if (text !== undefined) files[name] = text
  }
  if (files[CA_CERTIFICATE] !== undefined && files[CA_KEY] === undefined) {
    const file = join(stateDir, CA_KEY)
    throw new StateError(
      'Failed',
      file,
      `${file} is missing, although ${CA_CERTIFICATE} exists: a backup without the key is useless; restore the key first`,
    )
  }
  const { runStateTask } = await import('./state-thread.ts')
  const database = join(stateDir, DATABASE_FILE)
  await runStateTask({ task: 'copy', database, target, content: { takenAtMs, files } })
  await noteBackup(stateDir, { takenAtMs, file: knownAs })
}
