/** The outermost function of every process: signals, exit code, and the error output. */
import { forTerminal } from '../model/model.ts'
import { ExitWith, UserError, isPrinted, reasonOf } from './errors.ts'

export interface RunProcessInit {
  /** Receives error messages; stderr by default. */
  readonly complain?: (text: string) => void
  /** Exits at once, on a second signal; process.exit by default. */
  readonly exitNow?: (code: number) => void
  /** The source of signals; the process by default. */
  readonly signals?: Pick<NodeJS.EventEmitter, 'on' | 'off' | 'listenerCount'>
}

const SIGNALS = { SIGTERM: 15, SIGINT: 2, SIGHUP: 1 } as const

/**
 * Runs `build` until it resolves. SIGTERM, SIGINT and SIGHUP abort its signal; a second SIGTERM or SIGINT exits at once
 * with 128 + number. SIGHUP does nothing while `build` itself listens for it, as a server does that opens its logs again.
 * Sets and returns process.exitCode: 0 done or stopped by a signal, 1 failed, 2 wrong usage, or the code of ExitWith.
 */
export async function runProcess(
  name: string,
  build: (signal: AbortSignal) => Promise<void>,
  init: RunProcessInit = {},
): Promise<number> {
  const { complain = toStderr, exitNow = (code: number) => process.exit(code), signals = process } = init
  const stop = new AbortController()
  const handlers = Object.entries(SIGNALS).map(([signal, number]) => {
    const handler = (): void => {
      if (signal === 'SIGHUP' && (stop.signal.aborted || signals.listenerCount(signal) > 1)) {
        // A closed terminal sends several: the kernel sends one, and the shell another.
        return
      }
      if (stop.signal.aborted) exitNow(128 + number)
      else stop.abort(new StoppedError(signal))
    }
    signals.on(signal, handler)
    return { signal, handler }
  })
  let code = 0
  try {
    await build(stop.signal)
  } catch (error) {
    code = isStop(error, stop.signal) ? 0 : report(name, error, complain)
  } finally {
    for (const { signal, handler } of handlers) signals.off(signal, handler)
  }
  process.exitCode = code
  return code
}

/**
 * Ends the process, with the exit code that is set, once stdout is written. For a process that work which cannot be
 * interrupted (getaddrinfo) would keep alive.
 */
export function exitOnceWritten(): void {
  process.stdout.write('', () => process.exit())
}

/** The abort reason of the signal that runProcess() passes to `build`. */
export class StoppedError extends Error {
  constructor(signal: string) {
    super(`stopped by ${signal}`)
    this.name = 'StoppedError'
  }
}

/**
 * Formats an error. Expected failures have a message, and some have a hint and a reason code, each on its own line;
 * only programming mistakes have a stack trace.
 */
export function describeFailure(name: string, error: unknown): string {
  if (!(error instanceof Error)) return `${name}: ${String(error)}\n`
  const hint = error instanceof UserError && error.hint !== undefined ? `${error.hint}\n` : ''
  const code = reasonOf(error)
  const reason = code !== undefined && isPrinted(code) ? `reason: ${code}\n` : ''
  if (isExpected(error)) return `${name}: ${error.message}\n${hint}${reason}`
  return `${name}: ${error.message}\nThis is a bug in Sealane; please report it with the lines below.\n${error.stack ?? ''}\n`
}

function report(name: string, error: unknown, complain: (text: string) => void): number {
  if (error instanceof ExitWith) return error.exitCode
  complain(forTerminal(describeFailure(name, error)))
  return error instanceof UserError ? error.exitCode : 1
}

function isExpected(error: Error): boolean {
  return error instanceof UserError || !BUILT_IN.has(error.constructor) || 'syscall' in error
}

/** Thrown by JavaScript itself and not by code that recognised the problem. */
const BUILT_IN: ReadonlySet<unknown> = new Set([TypeError, ReferenceError, RangeError, SyntaxError, Error])

function isStop(error: unknown, signal: AbortSignal): boolean {
  if (!signal.aborted) return false
  return (
    error === signal.reason ||
    (error instanceof Error && (error.name === 'AbortError' || error.cause === signal.reason))
  )
}

function toStderr(text: string): void {
  process.stderr.write(text)
}
