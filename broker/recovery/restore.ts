/**
 * A broker's state from a backup, in two steps. The file is put beside the state (`restore.db`), checked; then it takes
 * the state's place, under the lock: at once, or when the broker starts next. A restore that was broken off is finished
 * by the next of either.
 */
import { randomUUID } from 'node:crypto'
import { chmod, copyFile, mkdir, open, readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { type Warn, keepEvent, localOperator, notedCommand, replaceRows, rowsOfOldStore } from '../audit/audit.ts'
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
import { verifyBackup } from './verify-store.ts'

/** The backup that waits to take the state's place. */
const STAGED = 'restore.db'
const UNPACKED = `${DATABASE_FILE}.restored`
/** Folders of what made way. */
const BEFORE = 'before-restore-'
/** What makes way, the database's own two among it. */
const REPLACED = [DATABASE_FILE, `${DATABASE_FILE}-wal`, `${DATABASE_FILE}-shm`]

export interface Restored {
  readonly takenAtMs: number
  /** Ids of those that are members again. */
  readonly members: readonly string[]
  /** Folder with what was there before; undefined where there was nothing. */
  readonly before: string | undefined
}

/**
 * Checks a backup and puts it where the broker's next start finds it. Throws StateError for what is no backup, and
 * RefusedError where the state there has members, unless `force`, or is of another clusterset.
 */
export async function stageRestore(
  clock: Clock,
  stateDir: string,
  file: string,
  { force, warn = () => undefined }: { readonly force: boolean; readonly warn?: Warn },
): Promise<void> {
  await checkOwnDatabase(stateDir)
  const database = join(stateDir, DATABASE_FILE)
  const stage = (): Promise<void> => stageFile(stateDir, file, { force, nowMs: clock.now() })
  // Into a folder without a state: what is done with it there is in the line of the restored one.
  if (!(await isThere(database))) return stage()
  const command = { act: 'broker.restore', subject: file, details: { step: 'staged', force } } as const
  await notedCommand(clock, database, command, stage, warn)
}

async function stageFile(stateDir: string, file: string, { force, nowMs }: StageInit): Promise<void> {
  checkWhole(file, nowMs)
  await makeStateDir(stateDir)
  await checkPresent(stateDir, file, force)
  const staging = join(stateDir, `${STAGED}.new`)
  await onFile(staging, async () => {
    await rm(staging, { force: true })
    try {
      // Of the mode that it shall have, before anything is in it.
      await (await open(staging, 'wx', 0o600)).close()
      await copyFile(file, staging)
      // The copy takes over the mode of what it is of, and holds the authority's key.
      await chmod(staging, 0o600)
      const copy = await open(staging, 'r+')
      await copy.sync()
      await copy.close()
      await rename(staging, join(stateDir, STAGED))
    } finally {
      // Half a copy, for which there was no room, has the key in it too.
      await rm(staging, { force: true })
    }
  })
}

interface StageInit {
  readonly force: boolean
  readonly nowMs: number
}

/** A broker does not start on rows that it cannot read, and a wrong authority makes strangers of all members. */
const FATAL: ReadonlySet<ReasonCode> = new Set(['StoreRowInvalid', 'StoreAuthorityInvalid'])

/** Throws StateError before anything is written. */
function checkWhole(file: string, nowMs: number): void {
  const { findings } = verifyBackup(file, nowMs)
  const first = findings.find(({ reason }) => FATAL.has(reason))
  if (first === undefined) return
  const text = `${file} is damaged: ${first.subject}: ${first.text} (${first.reason}): take another backup; see "sealane broker verify --backup"`
  throw new StateError('Damaged', file, text)
}

/**
 * Puts what is staged in the place of the state. The caller holds the lock. `who` is in the audit log. Undefined: nothing
 * is staged.
 */
export async function finishRestore(
  clock: Clock,
  stateDir: string,
  who: AuditActor = localOperator(),
): Promise<Restored | undefined> {
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
 * The database that makes way. An attempt that was broken off between putting it aside and putting the new one in its
 * place has left that one, unpacked.
 */
async function oldDatabase(stateDir: string): Promise<string> {
  const database = join(stateDir, DATABASE_FILE)
  if ((await isThere(database)) || !(await isThere(join(stateDir, UNPACKED)))) return database
  // Named by their times.
  const asides = (await readdir(stateDir)).filter((name) => name.startsWith(BEFORE)).sort()
  return join(stateDir, asides.at(-1) ?? '', DATABASE_FILE)
}

interface RestoreInit {
  readonly who: AuditActor
  /** Lines of the audit log that the state before has not written. */
  readonly waiting: readonly AuditRow[]
  readonly nowMs: number
}

/**
 * What the backup says of its own time and is no longer so. Gives the ids of members, and the mark of the new state.
 */
async function adapt(
  database: string,
  takenAtMs: number,
  { who, waiting, nowMs }: RestoreInit,
): Promise<{ readonly members: readonly string[]; readonly mark: Mark }> {
  const log = openSqliteLog({ file: database, create: false })
  try {
    const ids = await log.transact((tx) => {
      const members = beginAnew(tx, takenAtMs, nowMs)
      // Those of the backup were written since.
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

/** Looks at the state that would be replaced, beside its broker or not. */
async function checkPresent(stateDir: string, backup: string, force: boolean): Promise<void> {
  const file = join(stateDir, DATABASE_FILE)
  if (!(await isThere(file))) return
  const wanted = readBackup(backup).settings
  const log = openSqliteLog({ file, create: false })
  try {
    const settings = log.get('settings', SETTINGS_KEY)
    for (const field of FIXED) {
      if (settings === undefined || wanted === undefined || settings[field] === wanted[field]) continue
      const message = `${field}: the backup has "${wanted[field]}", the broker there "${settings[field]}": start it with that of the backup`
      throw new RefusedError('BackupMismatch', field, message)
    }
    const members = log.list('member').filter(({ value }) => isLive(value))
    if (members.length === 0 || force) return
    const ids = members.map(({ key }) => key).join(', ')
    const message = `the broker there has members: ${ids}: what it knows goes, with --force`
    throw new RefusedError('StateHasMembers', 'state', message)
  } finally {
    await log.close()
  }
}

/** Nothing is lost by a restore: what was there goes into a folder of its own. */
async function setAside(stateDir: string, nowMs: number): Promise<string | undefined> {
  const there: string[] = []
  const names = [...REPLACED, ...(await authorityFiles(stateDir)), 'server.crt']
  for (const name of names) if (await isThere(join(stateDir, name))) there.push(name)
  if (!there.includes(DATABASE_FILE)) return undefined
  const folder = join(stateDir, `${BEFORE}${timeText(nowMs).replaceAll(':', '')}`)
  await onFile(folder, async () => {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    // The database last: while it is there, what is broken off here is done again.
    for (const name of there.reverse()) await rename(join(stateDir, name), join(folder, name))
  })
  return folder
}

// An operator has accepted a state that is older than what was given away (`--accept-empty`): a copy of the database, or
// an etcd that was put back from a snapshot. Its revisions would be given out a second time, for other changes; members
// that have seen them would take what they have for the latest. So revisions are of a new epoch from here on.

const BROKER: AuditActor = { kind: 'broker' }

/**
 * `acceptedAtMs`: when the operator said so. Brokers of one store do it once for all of them. Gives the members that are
 * asked; undefined: it was done, or there is nothing that could be older. Throws StateError.
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
    const members = beginAnew(tx, takenAtMs, nowMs)
    tx.put('settings', SETTINGS_KEY, { ...settings, timeline: { id: timeline, acceptedAtMs } })
    const details = { step: 'accepted', takenAt: new Date(takenAtMs).toISOString(), members: members.length }
    keepEvent(tx, { act: 'broker.restore', result: 'ok', who: BROKER, details }, nowMs)
    return members
  })
}

/** The state is of this time or a later one. Contact is noted once a minute. */
function latestTime(view: LogView): number {
  const times = [
    ...view.list('contact').map(({ value }) => value.lastSeenMs),
    ...view.list('member').map(({ value }) => Math.max(value.lastSeenMs, value.joinedAtMs)),
    ...view.list('token').map(({ value }) => value.createdAtMs),
  ]
  return times.reduce((latest, one) => Math.max(latest, one), 0)
}

// A state that is of an earlier time than what members have seen: it was put back from a backup or a snapshot, or an
// operator has accepted it as it is. Members are asked what they hold, before anything of it is taken as gone. Runs
// inside a transaction.

/** What such a state says of its own time and is no longer so. Gives the ids of members. */
function beginAnew(tx: Transaction, takenAtMs: number, nowMs: number): readonly string[] {
  // Some were used since, and nobody here knows which.
  for (const { key, value } of tx.list('token')) {
    if (value.usesLeft > 0 && value.revokedAtMs === undefined) tx.put('token', key, { ...value, revokedAtMs: nowMs })
  }
  const members = tx.list('member').filter(({ value }) => isLive(value))
  for (const { key, value } of members) {
    const { connectedSinceMs: _over, ...row } = value
    tx.put('contact', key, { lastSeenMs: contactOf(tx, key, value).lastSeenMs })
    // What a member published since is not in here: it says what it has, before anything of it is taken as gone.
    tx.put('member', key, { ...row, complete: false, restored: { takenAtMs, atMs: nowMs } })
  }
  tx.put('restore', RESTORE_KEY, { takenAtMs, atMs: nowMs, waiting: members.map(({ key }) => key) })
  // It may be of a store that was on its way to another one then.
  tx.remove('migration', MIGRATION_KEY)
  return members.map(({ key }) => key)
}
