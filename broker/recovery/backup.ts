/** One file with all that a broker has to keep: its database at one moment, and its certificate authority. */
import { join } from 'node:path'
import type { Clock } from '../../reconcile/reconcile.ts'
import { type Warn, notedCommand } from '../audit/audit.ts'
import { CA_CERTIFICATE, CA_KEY, secondFiles } from '../identity/identity.ts'
import { DATABASE_FILE, StateError, checkOwnDatabase, readIfThere, writeBackup } from '../store/store.ts'
import { noteBackup } from './state-mark.ts'

/**
 * What belongs to the database: without them no member would know the broker again. Its server's key is made anew.
 * During a rotation there is a second pair; where the key is elsewhere there may be none.
 */
export async function authorityFiles(stateDir: string): Promise<readonly string[]> {
  return [CA_CERTIFICATE, CA_KEY, ...(await secondFiles(stateDir))]
}

/**
 * Writes a backup of the state in `stateDir` into `target`, which must not exist, mode 0600; beside a running broker or
 * not. `knownAs` is where the user finds it, for the message that says to restore it. `warn` hears of an audit log that
 * will not have it. Throws StateError when there is no broker state, or a file cannot be read or written.
 */
export async function backupBroker(
  clock: Clock,
  stateDir: string,
  target: string,
  { knownAs = target, warn = () => undefined }: { readonly knownAs?: string; readonly warn?: Warn } = {},
): Promise<void> {
  await checkOwnDatabase(stateDir)
  // Who has a backup can let any cluster in.
  const copy = (): Promise<void> => copyState(clock, stateDir, target, knownAs)
  await notedCommand(clock, join(stateDir, DATABASE_FILE), { act: 'broker.backup', subject: knownAs }, copy, warn)
}

async function copyState(clock: Clock, stateDir: string, target: string, knownAs: string): Promise<void> {
  // Before the copy: what is written while it is made may be in it, and is taken for later.
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
      `${file} is missing, but ${CA_CERTIFICATE} is there: a backup would be of no use`,
    )
  }
  writeBackup(join(stateDir, DATABASE_FILE), target, { takenAtMs, files })
  await noteBackup(stateDir, { takenAtMs, file: knownAs })
}
