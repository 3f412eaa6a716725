/**
 * The file of a backup: written completely or not at all, readable by its owner only, and never overwritten without
 * --force.
 */
import { randomBytes } from 'node:crypto'
import { accessSync, constants } from 'node:fs'
import { link, lstat, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'

/** The beginning of a line on stderr that reports a secondary problem of a command that has otherwise succeeded. */
export const WARNING = 'warning: '

/** A process that writes the file changes it all the time; one that was killed leaves it with keys in it. */
const STALE_MS = 3_600_000
const PART = /^\.(.+)\.[0-9a-f]{12}\.part$/
/** How the names of files begin that the user did not name. */
const OWN = 'sealane-'

/** Long names are truncated, so that the temporary name stays within the limit for names. */
function shortName(file: string): string {
  return basename(file).slice(0, 100)
}

export interface BackupFileInit {
  readonly file: string
  /** Replaces an existing file. */
  readonly force: boolean
  /** Writes the backup into a file that does not exist yet. */
  readonly write: (target: string) => Promise<void>
  /** Throws if the file is not a complete backup. */
  readonly check: (target: string) => void
  /** Makes a hard link; that of the system by default. */
  readonly hardLink?: (from: string, to: string) => Promise<void>
}

/** Throws UserError if the file exists or cannot be written. Also throws what `write` and `check` throw. */
export async function writeBackupFile(init: BackupFileInit): Promise<void> {
  const { file, force, write, check, hardLink = link } = init
  await refuseExisting({ file, force })
  await removeStaleParts(file)
  const part = join(dirname(file), `.${shortName(file)}.${randomBytes(6).toString('hex')}.part`)
  try {
    await write(part)
    check(part)
    await keepToOwner(part)
    if (force) await rename(part, file)
    else await putInFreePlace(part, file, hardLink)
  } catch (error) {
    const { code, syscall } = error as NodeJS.ErrnoException
    if (code === 'EEXIST') throw exists(file)
    if (syscall === undefined) throw error
    throw new UserError(`--output ${file}: ${(error as Error).message}`, { cause: error })
  } finally {
    await rm(part, { force: true })
  }
}

/**
 * For a backup that is read. Throws UserError with the reason codes of the store: SQLite would only report that it cannot
 * open a file.
 */
export function checkBackup(file: string): void {
  try {
    accessSync(file, constants.R_OK)
  } catch (cause) {
    const { code = '', message } = cause as NodeJS.ErrnoException
    const expected = 'expected a file written by "sealane broker backup"'
    if (ABSENT.has(code)) throw new UserError(`${file}: no such file`, { hint: expected, cause })
    const reason = code === 'EACCES' || code === 'EPERM' ? 'StateUnwritable' : 'StateFailed'
    throw new UserError(`${file}: ${message}`, { reason, hint: `${expected} that this user can read`, cause })
  }
}

const ABSENT: ReadonlySet<string> = new Set(['ENOENT', 'ENOTDIR'])

/** Removes what killed processes have left. Best effort: the backup itself is not affected. */
async function removeStaleParts(file: string): Promise<void> {
  const folder = dirname(file)
  const uid = process.geteuid?.()
  const now = new SystemClock().now()
  for (const name of await readdir(folder).catch(() => [])) {
    const made = PART.exec(name)?.[1]
    if (made === undefined || !(made.startsWith(OWN) || made === shortName(file))) continue
    const part = join(folder, name)
    const found = await lstat(part).catch(() => undefined)
    if (found?.isFile() !== true || found.uid !== uid || now - found.mtimeMs < STALE_MS) continue
    await rm(part, { force: true }).catch(() => undefined)
  }
}

/** Makes the file readable by its owner only, and syncs it. A file system without permissions refuses to change them. */
async function keepToOwner(part: string): Promise<void> {
  await using handle = await open(part, 'r+')
  const { mode } = await handle.stat()
  if ((mode & 0o077) !== 0) await handle.chmod(0o600)
  await handle.sync()
}

/** What file systems without hard links answer, such as those of USB sticks and of some network shares. */
const NO_HARD_LINKS: ReadonlySet<string | undefined> = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS', 'EMLINK'])

/**
 * Rejects with EEXIST if there is a file. Without hard links an empty file holds the place: a process that is killed
 * before the rename leaves it, and it is no backup.
 */
async function putInFreePlace(
  part: string,
  file: string,
  hardLink: (from: string, to: string) => Promise<void>,
): Promise<void> {
  try {
    await hardLink(part, file)
    return
  } catch (error) {
    if (!NO_HARD_LINKS.has((error as NodeJS.ErrnoException).code)) throw error
  }
  await (await open(file, 'wx', 0o600)).close()
  try {
    await rename(part, file)
  } catch (error) {
    await rm(file, { force: true })
    throw error
  }
}

/** Throws UserError if the file exists. For a check before a long operation. */
export async function refuseExisting({ file, force }: Pick<BackupFileInit, 'file' | 'force'>): Promise<void> {
  if (!force && (await isThere(file))) throw exists(file)
}

function exists(file: string): UserError {
  return new UserError(`--output ${file}: the file already exists`, {
    hint: 'choose another name, or overwrite it with --force',
  })
}

async function isThere(file: string): Promise<boolean> {
  try {
    await stat(file)
    return true
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return false
    throw new UserError(`--output ${file}: ${message}`, { cause: error })
  }
}
