/**
 * The audit log as a file: append-only, mode 0600, rotated by size. If another process (logrotate) moves it away, a new
 * file is created at the next line, since the name is resolved before each write.
 */
import { constants } from 'node:fs'
import { type FileHandle, open, rename, stat } from 'node:fs/promises'
import { messageOf } from '../../runtime/runtime.ts'
import type { AuditSink } from './audit-sink.ts'

export interface AuditFileInit {
  readonly file: string
  /** A file that would grow beyond this is rotated. With 0, only another process rotates it. */
  readonly maxBytes: number
  /** Number of old files that are kept. FILE.1 is the latest. */
  readonly keep: number
}

/**
 * The flags refuse a symbolic link, which another user may have created, and do not wait for the reader of a FIFO. The
 * file is also read, to check whether the last line is complete.
 */
const FLAGS = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK
const MODE = 0o600
const NEWLINE = 0x0a

export class AuditFile implements AuditSink {
  readonly #init: AuditFileInit
  #handle: FileHandle | undefined
  /** Whether the file ends within a line. */
  #isTorn = false

  constructor(init: AuditFileInit) {
    this.#init = init
  }

  /** Closes the open file, and creates a new one if there is none. Throws as write() does. */
  async reopen(): Promise<void> {
    await this.close()
    await this.write([])
  }

  /**
   * Resolves when the lines are on the disk. Throws an Error that names the file. In that case, none of `lines` counts
   * as written.
   */
  async write(lines: readonly string[]): Promise<void> {
    const { file } = this.#init
    try {
      for (const batch of await this.#batches(lines)) await this.#append(batch)
      await this.#handle?.datasync()
    } catch (error) {
      await this.close()
      throw new Error(`${file}: ${messageOf(error)}: check the folder, its permissions and the disk`, { cause: error })
    }
  }

  async close(): Promise<void> {
    const handle = this.#handle
    this.#handle = undefined
    await handle?.close().catch(() => undefined)
  }

  /** The part that fits into the current file, then one part for each new file. */
  async #batches(lines: readonly string[]): Promise<readonly { readonly text: string; readonly fresh: boolean }[]> {
    const { maxBytes } = this.#init
    let { size } = await (await this.#current()).stat()
    const batches = [{ text: '', fresh: false }]
    for (const line of lines) {
      const isFull = maxBytes > 0 && size > 0 && size + line.length > maxBytes
      if (isFull) {
        batches.push({ text: '', fresh: true })
        size = 0
      }
      size += line.length
      const last = batches.at(-1)
      if (last !== undefined) last.text += line
    }
    return batches
  }

  async #append({ text, fresh }: { readonly text: string; readonly fresh: boolean }): Promise<void> {
    if (fresh) await this.#rotate()
    if (text === '') return
    const handle = await this.#current()
    const before = (await handle.stat()).size
    const bytes = Buffer.from(this.#isTorn ? `\n${text}` : text)
    let written = 0
    try {
      while (written < bytes.length) {
        const { bytesWritten } = await handle.write(bytes, written)
        written += bytesWritten
      }
      this.#isTorn = false
    } catch (error) {
      if (written > 0) await this.#takeBack(handle, before, written)
      throw error
    }
  }

  /** Removes a partly written batch, so that the next attempt neither duplicates lines nor joins two halves. */
  async #takeBack(handle: FileHandle, before: number, written: number): Promise<void> {
    try {
      const { size } = await handle.stat()
      if (size !== before + written) return
      await handle.truncate(before)
    } catch {
      // The next process that opens the file detects that it ends within a line.
    }
  }

  async #current(): Promise<FileHandle> {
    if (this.#handle !== undefined && (await this.#isStillThere(this.#handle))) return this.#handle
    await this.close()
    const { file } = this.#init
    const handle = await open(file, FLAGS, MODE)
    this.#handle = handle
    const found = await handle.stat()
    if (!found.isFile()) throw new Error('expected a regular file, or - for standard output')
    // The umask may have removed permissions, and an existing file may be accessible to other users.
    if ((found.mode & 0o777) !== MODE) await handle.chmod(MODE)
    this.#isTorn = found.size > 0 && (await lastByte(handle, found.size)) !== NEWLINE
    return handle
  }

  async #isStillThere(handle: FileHandle): Promise<boolean> {
    const mine = await handle.stat()
    try {
      const { ino, dev } = await stat(this.#init.file)
      return ino === mine.ino && dev === mine.dev
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false
      throw error
    }
  }

  async #rotate(): Promise<void> {
    const { file, keep } = this.#init
    await this.#handle?.datasync()
    await this.close()
    for (let i = keep - 1; i >= 1; i -= 1) await renameIfThere(`${file}.${i}`, `${file}.${i + 1}`)
    await renameIfThere(file, `${file}.1`)
  }
}

async function lastByte(handle: FileHandle, size: number): Promise<number | undefined> {
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(1), 0, 1, size - 1)
  return bytesRead === 1 ? buffer[0] : undefined
}

async function renameIfThere(from: string, to: string): Promise<void> {
  try {
    await rename(from, to)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}
