/**
 * Restores a broker's state from a backup in two steps. First the file is checked and staged beside the state
 * (`restore.db`). Then, under the lock, it replaces the state, either at once or at the broker's next start. Both of
 * these finish an interrupted restore.
 */
import { randomUUID } from 'node:crypto'
import { chmod, copyFile, mkdir, open, readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { type Warn, keepEvent, notedCommand, replaceRows, rowsOfOldStore } from '../audit/audit.ts'
import { isAuthorityFile } from '../identity/identity.ts'
import { contactOf } from '../members/members.ts'
import {
  type AuditActor,
  type AuditRow,
  DATABASE_FILE,
  type LogView,
  MIGRATION_KEY,
  RESTORE_KEY,
  type RecordLog,
  SETTINGS_KEY,
  type SettingsRow,
  StateError,
  type Transaction,
  checkOwnDatabase,
  isLive,
  isThere,
  makeStateDir,
  onFile,
  openSqliteLog,
  readBackup,
  timeText,
  unpackBackup,
  writeSafely,
} from '../store/store.ts'
import { authorityFiles } from './backup.ts'
import { type Mark, markOf, writeMark } from './state-mark.ts'

/** The staged backup. */
const STAGED = 'restore.db'
const UNPACKED = `${DATABASE_FILE}.restored`
/** Prefix of the folders that keep replaced files. */
const BEFORE = 'before-restore-'
/** Files that are replaced, including the two that SQLite keeps beside the database. */
const REPLACED = [DATABASE_FILE, `${DATABASE_FILE}-wal`, `${DATABASE_FILE}-shm`]

export interface Restored {
  readonly takenAtMs: number
  /** Ids of the restored members. */
  readonly members: readonly string[]
  /** Folder with the replaced files. Undefined if there were none. */
  readonly before: string | undefined
}

export interface StageInit {
  readonly force: boolean
  readonly warn?: Warn
  readonly who: AuditActor
  /** The open database of the state directory, in the process of its broker. */
  readonly log?: RecordLog | undefined
}

/**
 * Checks a backup and stages it for the broker's next start. Throws StateError if the file is no valid backup. Throws
 * RefusedError if the existing state has members and `force` is false, or if it is of another clusterset.
 */
export async function stageRestore(
  clock: Clock,
  stateDir: string,
  file: string,
  { force, warn = () => undefined, who, log }: StageInit,
): Promise<void> {
  await checkOwnDatabase(stateDir)
  const database = join(stateDir, DATABASE_FILE)
  const stage = (): Promise<void> => stageFile(stateDir, file, { force, nowMs: clock.now(), log })
  // Without a state there is no log to note this command in. The restored state notes the restore when it is finished.
  if (!(await isThere(database))) return stage()
  const command = { act: 'broker.restore', subject: file, details: { step: 'staged', force } } as const
  await notedCommand({ clock, who, database, log, warn }, command, stage)
}

async function stageFile(stateDir: string, file: string, { force, nowMs, log }: StageFileInit): Promise<void> {
  await checkWhole(file, nowMs)
  await makeStateDir(stateDir)
  await checkPresent(stateDir, file, { force, log })
  const staging = join(stateDir, `${STAGED}.new`)
  await onFile(staging, async () => {
    await rm(staging, { force: true })
    try {
      // The file gets its mode before it has content.
      await (await open(staging, 'wx', 0o600)).close()
      await copyFile(file, staging)
      // copyFile() applies the mode of the source, but the backup holds the authority's key.
      await chmod(staging, 0o600)
      const copy = await open(staging, 'r+')
      await copy.sync()
      await copy.close()
      await rename(staging, join(stateDir, STAGED))
    } finally {
      // A partial copy, which a full disk leaves, also holds the key.
      await rm(staging, { force: true })
    }
  })
}

interface StageFileInit extends Pick<StageInit, 'force' | 'log'> {
  readonly nowMs: number
}

/**
 * Findings that prevent a restore: a broker does not start on rows that it cannot read, and with a wrong authority it
 * would reject all members.
 */
const FATAL: ReadonlySet<ReasonCode> = new Set(['StoreRowInvalid', 'StoreAuthorityInvalid'])

/** Throws StateError if the backup is damaged. Writes nothing. */
async function checkWhole(file: string, nowMs: number): Promise<void> {
  const { runStateTask } = await import('./state-thread.ts')
  const verified = await runStateTask({ task: 'verify-backup', file, nowMs })
  const first = verified?.findings.find(({ reason }) => FATAL.has(reason))
  if (first === undefined) return
  const text = `${file} is damaged: ${first.subject}: ${first.text} (${first.reason}): use another backup; for details: "sealane broker verify --backup"`
  throw new StateError('Damaged', file, text)
}

/**
 * Replaces the state with the staged backup. The caller holds the lock. `who` goes to the audit log. Returns undefined
 * if nothing is staged.
 */
export async function finishRestore(clock: Clock, stateDir: string, who: AuditActor): Promise<Restored | undefined> {
  const staged = join(stateDir, STAGED)
  if (!(await isThere(staged))) return undefined
  const { takenAtMs, files } = readBackup(staged)
  const unpacked = join(stateDir, UNPACKED)
  const waiting = await rowsOfOldStore(await oldDatabase(stateDir))
  for (const suffix of ['', '-wal', '-shm']) await rm(`${unpacked}${suffix}`, { force: true })
  unpackBackup(staged, unpacked)
  const { members, mark } = await adapt(unpacked, takenAtMs, { who, waiting, nowMs: clock.now() })
  const before = await setAside(stateDir, clock.now())
  for (const [name, text] of Object.entries(files))
    if (isAuthorityFile(name)) await writeSafely(join(stateDir, name), text)
  await onFile(unpacked, () => rename(unpacked, join(stateDir, DATABASE_FILE)))
  await writeMark(stateDir, mark)
  await rm(staged, { force: true })
  return { takenAtMs, members, before }
}

/**
 * The path of the replaced database. If an earlier attempt was interrupted after it moved that database to a folder,
 * the state directory has only the unpacked backup.
 */
async function oldDatabase(stateDir: string): Promise<string> {
  const database = join(stateDir, DATABASE_FILE)
  if ((await isThere(database)) || !(await isThere(join(stateDir, UNPACKED)))) return database
  // The names contain the times, so the last one is the latest.
  const asides = (await readdir(stateDir)).filter((name) => name.startsWith(BEFORE)).sort()
  return join(stateDir, asides.at(-1) ?? '', DATABASE_FILE)
}

interface RestoreInit {
  readonly who: AuditActor
  /** Events that the replaced state had not yet written to the audit log. */
  readonly waiting: readonly AuditRow[]
  readonly nowMs: number
}

/** Updates facts of the backup that no longer hold. Returns the ids of members, and the mark of the new state. */
async function adapt(
  database: string,
  takenAtMs: number,
  { who, waiting, nowMs }: RestoreInit,
): Promise<{ readonly members: readonly string[]; readonly mark: Mark }> {
  const log = openSqliteLog({ file: database, create: false })
  try {
    const ids = await log.transact((tx) => {
      const members = startOver(tx, takenAtMs, nowMs)
      // Events that wait in the backup have been written to the audit log since.
      replaceRows(tx, waiting)
      const details = { step: 'done', takenAt: new Date(takenAtMs).toISOString(), members: members.length }
      keepEvent(tx, { act: 'broker.restore', result: 'ok', who, details }, nowMs)
      return members
    })
    return { members: ids, mark: markOf(log, nowMs) }
  } finally {
    await log.close()
  }
}

const FIXED = ['clusterset', 'globalRange', 'clustersetIpRange'] as const satisfies readonly (keyof SettingsRow)[]

/** Checks the state that would be replaced. Its broker may be running. */
async function checkPresent(
  stateDir: string,
  backup: string,
  { force, log }: Pick<StageInit, 'force' | 'log'>,
): Promise<void> {
  const file = join(stateDir, DATABASE_FILE)
  if (!(await isThere(file))) return
  const wanted = readBackup(backup).settings
  if (log !== undefined) {
    refusePresent(log, wanted, force)
    return
  }
  const opened = openSqliteLog({ file, create: false })
  try {
    refusePresent(opened, wanted, force)
  } finally {
    await opened.close()
  }
}

function refusePresent(log: LogView, wanted: SettingsRow | undefined, force: boolean): void {
  const settings = log.get('settings', SETTINGS_KEY)
  for (const field of FIXED) {
    if (settings === undefined || wanted === undefined || settings[field] === wanted[field]) continue
    const message = `${field}: the backup has "${wanted[field]}", but the broker has "${settings[field]}": start the broker with the value of the backup`
    throw new RefusedError('BackupMismatch', field, message)
  }
  const members = log.list('member').filter(({ value }) => isLive(value))
  if (members.length === 0 || force) return
  const ids = members.map(({ key }) => key).join(', ')
  const message = `the broker has members: ${ids}; to replace its state anyway, use --force`
  throw new RefusedError('StateHasMembers', 'state', message)
}

/** Moves the existing files to a folder of their own, so that a restore loses nothing. */
async function setAside(stateDir: string, nowMs: number): Promise<string | undefined> {
  const there: string[] = []
  const names = [...REPLACED, ...(await authorityFiles(stateDir)), 'server.crt']
  for (const name of names) if (await isThere(join(stateDir, name))) there.push(name)
  if (!there.includes(DATABASE_FILE)) return undefined
  const folder = join(stateDir, `${BEFORE}${timeText(nowMs).replaceAll(':', '')}`)
  await onFile(folder, async () => {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    // The database moves last. If this is interrupted before, the next attempt repeats it.
    for (const name of there.reverse()) await rename(join(stateDir, name), join(folder, name))
  })
  return folder
}

// An operator has accepted a state that is older than what was assigned (`--accept-empty`): a copy of the database, or
// an etcd that was restored from a snapshot. Its revisions would be used again for other changes, and members that have
// seen them would take their own data for the latest. So revisions get a new epoch from here on.

const BROKER: AuditActor = { kind: 'broker' }

/**
 * `acceptedAtMs` is when the operator accepted the state. The brokers of one store do this once for all of them.
 * Returns the members to be asked. Undefined if it was done before, or if nothing can be older. Throws StateError.
 */
export async function acceptOlder(
  log: RecordLog,
  acceptedAtMs: number,
  nowMs: number,
): Promise<readonly string[] | undefined> {
  const timeline = randomUUID()
  return log.transact((tx) => {
    const settings = tx.get('settings', SETTINGS_KEY)
    if (settings === undefined || (settings.timeline?.acceptedAtMs ?? -Infinity) >= acceptedAtMs) return undefined
    const takenAtMs = latestTime(tx)
    const members = startOver(tx, takenAtMs, nowMs)
    tx.put('settings', SETTINGS_KEY, { ...settings, timeline: { id: timeline, acceptedAtMs } })
    const details = { step: 'accepted', takenAt: new Date(takenAtMs).toISOString(), members: members.length }
    keepEvent(tx, { act: 'broker.restore', result: 'ok', who: BROKER, details }, nowMs)
    return members
  })
}

/** The state is of this time or later: the broker notes contact once a minute. */
function latestTime(view: LogView): number {
  const times = [
    ...view.list('contact').map(({ value }) => value.lastSeenMs),
    ...view.list('member').map(({ value }) => Math.max(value.lastSeenMs, value.joinedAtMs)),
    ...view.list('token').map(({ value }) => value.createdAtMs),
  ]
  return times.reduce((latest, one) => Math.max(latest, one), 0)
}

// For a state that is older than what members have seen: it was restored from a backup or a snapshot, or an operator
// has accepted it. Members are asked what they hold before the broker takes anything as gone. Runs inside a
// transaction.

/** Updates facts of such a state that no longer hold. Returns the ids of members. */
function startOver(tx: Transaction, takenAtMs: number, nowMs: number): readonly string[] {
  // Some tokens were used since, and this state does not show which.
  for (const { key, value } of tx.list('token')) {
    if (value.usesLeft > 0 && value.revokedAtMs === undefined) tx.put('token', key, { ...value, revokedAtMs: nowMs })
  }
  const members = tx.list('member').filter(({ value }) => isLive(value))
  for (const { key, value } of members) {
    const { connectedSinceMs: _over, ...row } = value
    tx.put('contact', key, { lastSeenMs: contactOf(tx, key, value).lastSeenMs })
    // The state lacks what the member published since. The member declares its whole set before anything of it is taken
    // as gone.
    tx.put('member', key, { ...row, complete: false, restored: { takenAtMs, atMs: nowMs } })
  }
  tx.put('restore', RESTORE_KEY, { takenAtMs, atMs: nowMs, waiting: members.map(({ key }) => key) })
  // The state may be of a store that was then being migrated.
  tx.remove('migration', MIGRATION_KEY)
  return members.map(({ key }) => key)
}
