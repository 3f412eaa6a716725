/**
 * A key file that a tool may open before it is to have the key: a named pipe (fifo(7)) in the folder of the file. The
 * tool waits at it, and does the rest once the key has come. Its standard input would not do: Node gives it a socket,
 * which cannot be opened by name.
 */
import { randomBytes } from 'node:crypto'
import { type FileHandle, constants, open, readFile, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { RunCommand } from '../run-command.ts'

export interface KeyPipeInit {
  readonly file: string
  readonly after: Promise<unknown>
  /** The tool has all but the key. Called once, unless it has failed before. */
  readonly onWaiting: () => void
}

/** How often it is looked whether the tool has opened the pipe. */
const LOOK_MS = 1

/**
 * Calls `start` at once with the path of a pipe, for the tool to open, and gives what the tool gives. The tool gets what
 * is in `file` when `after` has come. Where that is rejected, the signal is aborted and this rejects with the same; as it
 * does where the tool fails. Where there can be no pipe, `start` is called after `after`, with the file itself.
 */
export async function throughKeyPipe<T>(
  run: RunCommand,
  { file, after, onWaiting }: KeyPipeInit,
  start: (path: string, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  // It is heard below, and must not count as unheard before.
  after.catch(() => undefined)
  const over = new AbortController()
  const pipe = await makePipe(run, dirname(file))
  if (pipe === undefined) {
    onWaiting()
    await after
    return start(file, over.signal)
  }
  let handle: FileHandle | undefined
  try {
    const running = start(pipe, over.signal)
    const end = (): void => over.abort()
    running.then(end, end)
    handle = await openOnceRead(pipe, over.signal)
    if (handle !== undefined) {
      onWaiting()
      await Promise.race([after, running])
      await handle.write(await readFile(file)).catch(unlessReaderIsGone)
      await handle.close()
      handle = undefined
    }
    return await running
  } finally {
    over.abort()
    await handle?.close()
    await rm(pipe, { force: true })
  }
}

/** Undefined: the folder takes none. */
async function makePipe(run: RunCommand, folder: string): Promise<string | undefined> {
  const pipe = join(folder, `.key-pipe-${randomBytes(6).toString('hex')}`)
  const made = await run('mkfifo', ['-m', '600', pipe]).catch(() => undefined)
  return made?.code === 0 ? pipe : undefined
}

/** Undefined once the tool has ended without: it says why itself. */
async function openOnceRead(pipe: string, over: AbortSignal): Promise<FileHandle | undefined> {
  while (!over.aborted) {
    try {
      return await open(pipe, constants.O_WRONLY | constants.O_NONBLOCK)
    } catch (error) {
      // Nobody has it open for reading.
      if ((error as NodeJS.ErrnoException).code !== 'ENXIO') throw error
      await sleep(LOOK_MS)
    }
  }
  return undefined
}

/** The tool has ended, and says why itself. */
function unlessReaderIsGone(error: unknown): undefined {
  if ((error as NodeJS.ErrnoException).code !== 'EPIPE') throw error
  return undefined
}
