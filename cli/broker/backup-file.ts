/**
 * The file of a backup: written completely or not at all, readable by its owner only, and never overwritten without
 * --force.
 */
import { randomBytes } from 'node:crypto'
import { link, open, rename, rm, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { UserError } from '../../runtime/runtime.ts'

/** The beginning of a line on stderr that reports a secondary problem of a command that has otherwise succeeded. */
export const WARNING = 'warning: '

export interface BackupFileInit {
  readonly file: string
  /** Replaces an existing file. */
  readonly force: boolean
  /** Writes the backup into a file that does not exist yet. */
  readonly write: (target: string) => Promise<void>
  /** Throws if the file is not a complete backup. */
  readonly check: (target: string) => void
}

/** Throws UserError if the file exists or cannot be written. Also throws what `write` and `check` throw. */
export async function writeBackupFile({ file, force, write, check }: BackupFileInit): Promise<void> {
  await refuseExisting({ file, force })
  const part = join(dirname(file), `.${basename(file).slice(0, 100)}.${randomBytes(6).toString('hex')}.part`)
  try {
    await write(part)
    check(part)
    const handle = await open(part, 'r+')
    await handle.chmod(0o600)
    await handle.sync()
    await handle.close()
    if (force) await rename(part, file)
    else await link(part, file)
  } catch (error) {
    const { code, syscall } = error as NodeJS.ErrnoException
    if (code === 'EEXIST') throw exists(file)
    if (syscall === undefined) throw error
    throw new UserError(`--output ${file}: ${(error as Error).message}`, { cause: error })
  } finally {
    await rm(part, { force: true })
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
