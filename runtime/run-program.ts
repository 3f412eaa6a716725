/**
 * Runs a program to its end: an argument list without a shell, a deadline, and a limit on its output. A result is never
 * lost: a program that ended well before the deadline counts as ended, however late this process reads its output.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'

export interface ProgramInit {
  readonly env: NodeJS.ProcessEnv
  /** Its standard input. */
  readonly input?: string | Uint8Array
  readonly timeoutMs: number
  /** Limit for each of its two outputs. */
  readonly maxOutputBytes: number
  readonly signal?: AbortSignal | undefined
  /**
   * It may talk to the person at the terminal: it has the standard input of this process, and its error output appears
   * there too.
   */
  readonly atTerminal?: boolean
}

export interface ProgramResult {
  readonly code: number
  readonly stdout: Buffer
  readonly stderr: Buffer
}

/**
 * late: it did not end before the deadline. aborted: by the signal. too much: its output exceeded the limit. ended: a
 * signal killed it.
 */
export type ProgramFailure = 'not started' | 'late' | 'aborted' | 'too much' | 'ended'

export class ProgramError extends Error {
  readonly failure: ProgramFailure
  /** The system's error if it was not started: ENOENT, EACCES. */
  readonly code: string | undefined
  readonly stderr: Buffer

  constructor(
    failure: ProgramFailure,
    message: string,
    more: { cause?: unknown; code?: string; stderr?: Buffer } = {},
  ) {
    super(message, { cause: more.cause })
    this.name = 'ProgramError'
    this.failure = failure
    this.code = more.code
    this.stderr = more.stderr ?? Buffer.alloc(0)
  }
}

/** How long to wait for outputs after a program was killed: its child processes may keep them open. */
const LEFT_OPEN_MS = 2000

/** Resolves with any exit status. Rejects with ProgramError. */
export function runProgram(path: string, args: readonly string[], init: ProgramInit): Promise<ProgramResult> {
  const { env, input = '', timeoutMs, maxOutputBytes, signal, atTerminal = false } = init
  if (signal?.aborted === true) return Promise.reject(new ProgramError('aborted', 'stopped before it began'))
  return new Promise((resolve, reject) => {
    let why: ProgramFailure | undefined
    let isCutOff = false
    let over = (): void => undefined
    const outputs: Buffer[][] = [[], []]
    const output = (of: 0 | 1): Buffer => Buffer.concat(outputs[of] ?? [])
    const deadlineMs = Math.max(0, Math.round(timeoutMs))
    const started = start(path, args, { env, atTerminal })
    if (started instanceof Error) {
      reject(notStarted(started))
      return
    }
    const child = started
    child.on('error', (error) => {
      over()
      reject(notStarted(error))
    })
    // Without free file descriptors, Node creates no streams, and reports the error an event-loop iteration later.
    if (!hasStreams(child)) return
    let leftOpen: AbortSignal | undefined
    const cutOff = (): void => {
      isCutOff = true
      child.stdout.destroy()
      child.stderr.destroy()
    }
    const kill = (failure: ProgramFailure): void => {
      why ??= failure
      // The program may ignore other signals.
      child.kill('SIGKILL')
      leftOpen ??= AbortSignal.timeout(LEFT_OPEN_MS)
      leftOpen.addEventListener('abort', cutOff)
    }
    for (const [i, stream] of [child.stdout, child.stderr].entries()) {
      let bytes = 0
      stream.on('data', (chunk: Buffer) => {
        bytes += chunk.length
        if (bytes > maxOutputBytes) kill('too much')
        else outputs[i]?.push(chunk)
        if (i === 1 && atTerminal) process.stderr.write(chunk)
      })
    }
    const late = AbortSignal.timeout(deadlineMs)
    const onLate = (): void => kill('late')
    const onAbort = (): void => kill('aborted')
    late.addEventListener('abort', onLate)
    signal?.addEventListener('abort', onAbort)
    over = (): void => {
      late.removeEventListener('abort', onLate)
      leftOpen?.removeEventListener('abort', cutOff)
      signal?.removeEventListener('abort', onAbort)
    }
    child.on('close', (code, endedBy) => {
      over()
      // It ended by itself: the kill came later, or not at all.
      if (code !== null && !isCutOff && why !== 'too much') resolve({ code, stdout: output(0), stderr: output(1) })
      else reject(new ProgramError(why ?? 'ended', wordsFor(why, init, endedBy), { stderr: output(1) }))
    })
    // A program that ends before it has read all of its input closes the pipe; its exit status tells the reason.
    child.stdin?.on('error', () => undefined)
    child.stdin?.end(input)
  })
}

function start(
  path: string,
  args: readonly string[],
  { env, atTerminal }: { readonly env: NodeJS.ProcessEnv; readonly atTerminal: boolean },
): ChildProcessByStdio<Writable | null, Readable, Readable> | NodeJS.ErrnoException {
  try {
    return atTerminal
      ? spawn(path, args, { env, stdio: ['inherit', 'pipe', 'pipe'] })
      : spawn(path, args, { env, stdio: ['pipe', 'pipe', 'pipe'] })
  } catch (error) {
    return error as NodeJS.ErrnoException
  }
}

type Started = Exclude<ReturnType<typeof start>, Error>

function hasStreams({ stdin, stdout, stderr }: Partial<Started>): boolean {
  return stdin !== undefined && stdout !== undefined && stderr !== undefined
}

function notStarted(error: NodeJS.ErrnoException): ProgramError {
  const { code, message } = error
  return new ProgramError('not started', message, { cause: error, ...(code === undefined ? {} : { code }) })
}

function wordsFor(why: ProgramFailure | undefined, init: ProgramInit, endedBy: NodeJS.Signals | null): string {
  if (why === 'late') return `still running after ${init.timeoutMs} ms`
  if (why === 'aborted') return 'stopped'
  if (why === 'too much') return `it wrote more than ${init.maxOutputBytes} bytes`
  return `terminated by ${endedBy ?? 'a signal'}`
}
