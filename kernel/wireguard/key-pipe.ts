/**
 * A key file that a tool may open before it is to have the key: a named pipe (fifo(7)) in the folder of the file. The
 * tool waits at it, and does the rest once the key has come. Its standard input would not do: Node gives it a socket,
 * which cannot be opened by name.
 */
import { constants, open, readFile, rm } from 'node:fs/promises'
import { randomBytes } from 'node:crypto'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { KernelError } from '../errors.ts'
import type { RunCommand } from '../run-command.ts'

/** How often it is looked whether the tool has opened the pipe, where it has not yet. */
const LOOK_MS = 1

/**
 * Calls `start` at once with the path of a pipe, for the tool to open, and gives what the tool gives. The tool gets what
 * is in `file` when `after` has come. Where that is rejected, the signal is aborted and this rejects with the same; as it
 * does where the tool fails. Throws KernelError when there can be no pipe.
 */
export async function throughKeyPipe<T>(
  run: RunCommand,
  { file, after }: { readonly file: string; readonly after: Promise<unknown> },
  start: (pipe: string, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  // It is heard below, and must not count as unheard before.
  after.catch(() => undefined)
  const pipe = join(dirname(file), `.key-pipe-${randomBytes(6).toString('hex')}`)
  const made = await run('mkfifo', ['-m', '600', pipe])
  if (made.code !== 0) throw new KernelError('UNKNOWN', `mkfifo ${pipe}`, made.stderr.trim())
  const over = new AbortController()
  try {
    const running = start(pipe, over.signal)
    running.then(
      () => over.abort(),
      () => over.abort(),
    )
    await Promise.race([after, running])
    await feed(pipe, await readFile(file), over.signal)
    return await running
  } finally {
    over.abort()
    await rm(pipe, { force: true })
  }
}

/** Ends without a word when the tool has ended: it says why. */
async function feed(pipe: string, key: Buffer, over: AbortSignal): Promise<void> {
  while (!over.aborted) {
    try {
      const handle = await open(pipe, constants.O_WRONLY | constants.O_NONBLOCK)
      try {
        await handle.write(key)
      } finally {
        await handle.close()
      }
      return
    } catch (error) {
      // ENXIO: nobody has it open for reading.
      if ((error as NodeJS.ErrnoException).code !== 'ENXIO') throw error
      await sleep(LOOK_MS)
    }
  }
}
