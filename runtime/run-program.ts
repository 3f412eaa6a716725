/**
 * Runs a program to its end: an argument list and no shell, a deadline, and a limit on what it may print. What a program
 * has said is never lost: one that ended well before the deadline counts as that, however late this process reads it.
 */
import { spawn } from 'node:child_process'

export interface ProgramInit {
  readonly env: NodeJS.ProcessEnv
  /** What it reads on its standard input. */
  readonly input?: string | Uint8Array
  readonly timeoutMs: number
  /** Of each of its two outputs. */
  readonly maxOutputBytes: number
  readonly signal?: AbortSignal | undefined
}

export interface ProgramResult {
  /** Exit status. */
  readonly code: number
  readonly stdout: Buffer
  readonly stderr: Buffer
}

/** late: no end before the deadline. aborted: by the signal. tooMuch: more output than allowed. ended: by a signal. */
export type ProgramFailure = 'not started' | 'late' | 'aborted' | 'too much' | 'ended'

export class ProgramError extends Error {
  readonly failure: ProgramFailure
  /** Of the system, where it was not started: ENOENT, EACCES. */
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

/** After a program was killed: what it had started may keep its outputs open. */
const LEFT_OPEN_MS = 2000

/** Resolves with whatever exit status it gave. Rejects with ProgramError. */
export function runProgram(path: string, args: readonly string[], init: ProgramInit): Promise<ProgramResult> {
  const { env, input = '', timeoutMs, maxOutputBytes, signal } = init
  if (signal?.aborted === true) return Promise.reject(new ProgramError('aborted', 'stopped before it began'))
  return new Promise((resolve, reject) => {
    let why: ProgramFailure | undefined
    let isCutOff = false
    let over = (): void => undefined
    const outputs: Buffer[][] = [[], []]
    const output = (of: 0 | 1): Buffer => Buffer.concat(outputs[of] ?? [])
    const deadlineMs = Math.max(0, Math.round(timeoutMs))
    const started = start(path, args, env)
    if (started instanceof Error) {
      reject(notStarted(started))
      return
    }
    const child = started
    child.on('error', (error) => {
      over()
      reject(notStarted(error))
    })
    // Node makes none where file descriptors have run out, and says so a turn later.
    if (!hasStreams(child)) return
    let leftOpen: AbortSignal | undefined
    const cutOff = (): void => {
      isCutOff = true
      child.stdout.destroy()
      child.stderr.destroy()
    }
    const kill = (failure: ProgramFailure): void => {
      why ??= failure
      // It may not listen to anything else.
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
      // It ended by itself: the kill came later, or never.
      if (code !== null && !isCutOff && why !== 'too much') resolve({ code, stdout: output(0), stderr: output(1) })
      else reject(new ProgramError(why ?? 'ended', wordsFor(why, init, endedBy), { stderr: output(1) }))
    })
    // One that ends before it has read everything closes the pipe; its exit status says why.
    child.stdin.on('error', () => undefined)
    child.stdin.end(input)
  })
}

function start(path: string, args: readonly string[], env: NodeJS.ProcessEnv) {
  try {
    return spawn(path, args, { env, stdio: ['pipe', 'pipe', 'pipe'] })
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
  if (why === 'late') return `no end after ${init.timeoutMs} ms`
  if (why === 'aborted') return 'stopped'
  if (why === 'too much') return `it wrote more than ${init.maxOutputBytes} bytes`
  return `it was ended by ${endedBy ?? 'something'}`
}
