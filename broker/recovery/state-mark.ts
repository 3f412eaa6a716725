/**
 * Records how far this state has come, in a file beside the key (`state.mark`). A broker that finds its key but an
 * empty or older database then does not start as new and assign addresses that are in use. The mark advances when an
 * address, a block or a number is assigned, at most once in ten seconds, so the mark of a killed broker may lag by
 * that.
 */
import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import {
  type Change,
  DATABASE_FILE,
  type MemberRow,
  type RecordLog,
  StateError,
  isLive,
  timeText,
  writeSafely,
} from '../store/store.ts'

export const MARK_FILE = 'state.mark'
/** File that records when a backup of this state was last taken, and where it is. */
const BACKUP_FILE = 'last-backup.json'
const MOVE_EVERY_MS = 10_000

export interface Mark {
  readonly epoch: string
  readonly revision: number
  readonly members: number
  readonly atMs: number
}

type Counted = Pick<RecordLog, 'epoch' | 'revision' | 'list'>

/** Returns what is wrong with a database beside this mark. Undefined if it is the marked one or a later one. Pure. */
export function markProblem(mark: Mark, log: Counted): string | undefined {
  const rows = log.list('member').map(({ value }) => value)
  const known = `${mark.members} members at ${timeText(mark.atMs)}`
  if (rows.length === 0) return mark.members > 0 ? `it has no members, but had ${known}` : undefined
  if (log.epoch !== mark.epoch) {
    // An earlier release, which writes no marks, has restored a backup.
    if (rows.some(({ restored }) => restored !== undefined && restored.atMs > mark.atMs)) return undefined
    return `it is not the same database: that one had ${known}`
  }
  if (log.revision >= mark.revision) return undefined
  return `it is older: it has revision ${log.revision}, but had reached revision ${mark.revision} with ${known}`
}

export interface Acceptance {
  /**
   * A state whose mark is not later than this is accepted as it is. That works once, since the mark then gets a later
   * time.
   */
  readonly acceptedAtMs: number | undefined
  readonly nowMs: number
  /** The store of the rows, if they are not in the database beside the mark. An etcd has backups of its own. */
  readonly store?: string | undefined
  /** Called before a state is accepted that is, or may be, older than what members have seen. */
  readonly onOlder?: (acceptedAtMs: number) => Promise<unknown>
}

/**
 * Call it when the database is open, before any member is served. Throws StateError if the database is empty or older
 * than what this broker has assigned. Returns the problem of a database that is accepted.
 */
export async function checkMark(
  stateDir: string,
  log: Counted,
  { acceptedAtMs, nowMs, store, onOlder }: Acceptance,
): Promise<string | undefined> {
  const mark = await readMark(stateDir)
  const problem = mark === undefined ? undefined : markProblem(mark, log)
  const accepted = isAccepted(mark, acceptedAtMs)
  if (problem !== undefined && !accepted)
    throw store === undefined ? await staleState(stateDir, problem) : staleStore(store, problem)
  if (acceptedAtMs !== undefined && accepted && mayBeOlder(mark, log, store)) await onOlder?.(acceptedAtMs)
  if (accepted) await writeMark(stateDir, markOf(log, nowMs))
  return problem
}

/** A replica on an etcd may have no persistent directory. Without a mark it relies on the operator alone. */
function mayBeOlder(mark: Mark | undefined, log: Counted, store: string | undefined): boolean {
  if (mark === undefined) return store !== undefined
  return mark.epoch === log.epoch && log.revision < mark.revision
}

function isAccepted(mark: Mark | undefined, acceptedAtMs: number | undefined): boolean {
  return acceptedAtMs !== undefined && (mark === undefined || mark.atMs <= acceptedAtMs)
}

/**
 * Call it before the database is opened, which would create it. Throws StateError if there is an authority but no
 * database. A first start creates the database first, so this cannot be an interrupted first start.
 */
export async function checkDatabaseThere(stateDir: string, acceptedAtMs: number | undefined): Promise<void> {
  if (isAccepted(await readMark(stateDir), acceptedAtMs)) return
  const [certificate, database] = await Promise.all(['ca.crt', DATABASE_FILE].map((name) => isThere(stateDir, name)))
  if (certificate === true && database !== true)
    throw await staleState(stateDir, 'it is missing, although ca.crt exists')
}

export interface StateMarkInit {
  readonly stateDir: string
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
}

/** Advances the mark with the log. `close` writes a mark that is due. */
export class StateMark {
  readonly #init: StateMarkInit
  /** What was assigned to each member, as givenTo() formats it. */
  readonly #given = new Map<string, string>()
  #dirty: boolean
  #writing: Promise<void> = Promise.resolve()
  #cancel: (() => void) | undefined
  readonly #stop: () => void

  constructor(init: StateMarkInit) {
    this.#init = init
    const members = init.log.list('member')
    for (const { key, value } of members) this.#given.set(key, givenTo(value))
    // The state may have no mark yet, or may just have been accepted, so a mark is written at the start.
    this.#dirty = members.length > 0
    this.#stop = init.log.onCommit((changes) => this.#onCommit(changes))
    if (this.#dirty) this.#move()
  }

  async close(): Promise<void> {
    this.#stop()
    this.#cancel?.()
    await this.#writing
    if (this.#dirty) await this.#write()
  }

  #onCommit(changes: readonly Change[]): void {
    for (const { scope, key, value } of changes) {
      if (scope === 'address' && value !== undefined) this.#dirty = true
      if (scope !== 'member') continue
      const given = value === undefined ? undefined : givenTo(value as MemberRow)
      if (this.#given.get(key) === given) continue
      if (given === undefined) this.#given.delete(key)
      else this.#given.set(key, given)
      this.#dirty = true
    }
    if (this.#dirty && this.#cancel === undefined) this.#move()
  }

  #move(): void {
    this.#writing = this.#write()
    this.#cancel = this.#init.clock.setTimer(MOVE_EVERY_MS, () => {
      this.#cancel = undefined
      if (this.#dirty) this.#move()
    })
  }

  async #write(): Promise<void> {
    const { stateDir, log, clock, logger } = this.#init
    this.#dirty = false
    try {
      await writeMark(stateDir, markOf(log, clock.now()))
    } catch (error) {
      this.#dirty = true
      logger.warn('cannot update the mark of the state', { reason: 'StateUnwritable', why: String(error) })
    }
  }
}

export function markOf(log: Counted, nowMs: number): Mark {
  const members = log.list('member').filter(({ value }) => isLive(value)).length
  return { epoch: log.epoch, revision: log.revision, members, atMs: nowMs }
}

export async function writeMark(stateDir: string, mark: Mark): Promise<void> {
  await writeSafely(join(stateDir, MARK_FILE), `${JSON.stringify(mark)}\n`)
}

/** Remembers where the last backup is. The message that asks for a restore names it. */
export async function noteBackup(
  stateDir: string,
  backup: { readonly takenAtMs: number; readonly file: string },
): Promise<void> {
  await writeSafely(join(stateDir, BACKUP_FILE), `${JSON.stringify(backup)}\n`)
}

function givenTo({ index, blocks, departure }: MemberRow): string {
  return `${index} ${departure} ${Object.keys(blocks).sort().join()}`
}

async function readMark(stateDir: string): Promise<Mark | undefined> {
  const file = join(stateDir, MARK_FILE)
  const text = await readIfThere(file)
  if (text === undefined) return undefined
  const mark = parsed(text) as Partial<Mark>
  const { epoch, revision, members, atMs } = mark
  if (typeof epoch === 'string' && [revision, members, atMs].every(Number.isSafeInteger)) return mark as Mark
  throw new StateError(
    'Damaged',
    file,
    `${file} is damaged: remove it if you are sure that ${DATABASE_FILE} is up to date`,
  )
}

function staleStore(store: string, problem: string): StateError {
  const text =
    `${store} is older than the state that members have: ${problem}. Addresses in use could be assigned to others. ` +
    'Restore etcd from its latest snapshot; if this already is the latest, start the broker with --accept-empty ' +
    '(the other members report lost members; a member that no other member reports must join again, with a token for its id)'
  return new StateError('Stale', store, text)
}

async function staleState(stateDir: string, problem: string): Promise<StateError> {
  const { takenAtMs, file } = parsed((await readIfThere(join(stateDir, BACKUP_FILE))) ?? '{}')
  const backup =
    typeof takenAtMs === 'number' && typeof file === 'string'
      ? `the backup of ${timeText(takenAtMs)} (${file})`
      : 'the latest backup (no backup of this broker is recorded)'
  const database = join(stateDir, DATABASE_FILE)
  return new StateError(
    'Stale',
    database,
    `${database} is older than the state that members have: ${problem}. Addresses in use could be assigned to others. ` +
      `Restore ${backup} with "sealane broker restore FILE --state ${stateDir}", or start the broker with --accept-empty ` +
      '(members that the database lacks must join again, with tokens for their ids); ' +
      'on a cluster: "sealane broker deploy --accept-empty", then "sealane broker restore FILE"',
  )
}

function parsed(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}

async function isThere(stateDir: string, name: string): Promise<boolean> {
  return stat(join(stateDir, name)).then(
    () => true,
    // The code that opens the file reports why it cannot be read.
    () => false,
  )
}

async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    throw new StateError('Failed', file, `${file} cannot be read (${message})`, error)
  }
}
