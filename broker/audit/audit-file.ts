/**
 * The audit log as a file: appended to, mode 0600, rotated by size. Whoever else moves it away (logrotate) gets a new
 * one made at the next line, since the name is looked up before each write.
 */
import { constants } from 'node:fs'
import { type FileHandle, open, rename, stat } from 'node:fs/promises'
import { messageOf } from '../../runtime/runtime.ts'
import type { AuditSink } from './audit-sink.ts'

export interface AuditFileInit {
  readonly file: string
  /** A file that would grow beyond it makes way; 0: never, somebody else rotates. */
  readonly maxBytes: number
  /** Files kept beside it: FILE.1 is the latest. */
  readonly keep: number
}

/**
 * Not through a symbolic link, which somebody else may have put there; not waiting for the reader of a FIFO. Read, to
 * see whether the last line is whole.
 */
const FLAGS = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK
const MODE = 0o600
const NEWLINE = 0x0a

export class AuditFile implements AuditSink {
  readonly #init: AuditFileInit
  #handle: FileHandle | undefined
  /** What is there ends in the middle of a line. */
  #isTorn = false

  constructor(init: AuditFileInit) {
    this.#init = init
  }

  /** Lets go of the file that was open, and makes a new one where there is none. Throws as write(). */
  async reopen(): Promise<void> {
    await this.close()
    await this.write([])
  }

  /** Resolves when the lines are on the disk. Throws an Error that names the file; then none of `lines` counts. */
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

  /** What fits into the present file, then what goes into each new one. */
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

  /** A part of a batch goes again, so that the next attempt does not make lines twice, or one of two halves. */
  async #takeBack(handle: FileHandle, before: number, written: number): Promise<void> {
    try {
      const { size } = await handle.stat()
      if (size !== before + written) return
      await handle.truncate(before)
    } catch {
      // The next one to open it sees that it ends within a line.
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
    // The umask may have taken away what is ours, and who made it before may have let others in.
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
