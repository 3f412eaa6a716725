/** What components log with: JSON lines on stderr (pino-logger.ts), captured ones in tests. */
import type { ReasonCode } from '../../model/reasons/reasons.ts'

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const
export type LogThreshold = (typeof LOG_LEVELS)[number]

/** A refusal or a problem with a name has it as `reason`; what there is to say of it in words is `why`. */
export type LogFields = Readonly<Record<string, unknown>> & { readonly reason?: ReasonCode }

/** Of a warning or an error: people look up by its reason what it means and what to do (docs/troubleshooting.md). */
export type ProblemFields = LogFields & { readonly reason: ReasonCode }

export interface Logger {
  debug(message: string, fields?: LogFields): void
  info(message: string, fields?: LogFields): void
  warn(message: string, fields: ProblemFields): void
  error(message: string, fields: ProblemFields): void
  /** A logger that adds these fields (usually `{ component: 'gateway' }`) to every line. */
  child(fields: LogFields): Logger
}

// From which level on lines are written: one for all loggers of a process, changed while they are used.

const RANK: ReadonlyMap<LogThreshold, number> = new Map(LOG_LEVELS.map((level, i) => [level, i]))

/** Between the level that the process was started with, and debug. */
export class LogSwitch {
  readonly #usual: LogThreshold
  #level: LogThreshold

  constructor(usual: LogThreshold) {
    this.#usual = usual
    this.#level = usual
  }

  get level(): LogThreshold {
    return this.#level
  }

  writes(level: Exclude<LogThreshold, 'silent'>): boolean {
    return (RANK.get(level) ?? 0) >= (RANK.get(this.#level) ?? 0)
  }

  /** To debug, and back. One that was started with debug goes to info. */
  toggle(): void {
    if (this.#level !== 'debug') this.#level = 'debug'
    else this.#level = this.#usual === 'debug' ? 'info' : this.#usual
  }
}

/** SIGUSR1 starts the debugger of Node. */
const SIGNAL = 'SIGUSR2'

/** SIGUSR2 toggles, until the function given back is called. The line about it is written while debug is on. */
export function toggleBySignal(
  log: LogSwitch,
  logger: Logger,
  signals: Pick<NodeJS.EventEmitter, 'on' | 'off'> = process,
): () => void {
  const handler = (): void => {
    if (log.level === 'debug') {
      logger.info('debug lines end', { signal: SIGNAL })
      log.toggle()
    } else {
      log.toggle()
      logger.info('debug lines begin', { signal: SIGNAL })
    }
  }
  signals.on(SIGNAL, handler)
  return () => void signals.off(SIGNAL, handler)
}

/** Keeps secrets out of log lines, whatever is handed to the logger. */

const SECRET_KEYS = /^(secret|token|private_?key|key|preshared_?key|password|authorization)$/i
const MAX_DEPTH = 6

/**
 * A copy in which the value of every field named secret, token, privateKey or key is '[redacted]', at any depth.
 * Errors become {type, message, code, cause}; bigints and bytes become text.
 */
export function redact(value: unknown, depth = 0): unknown {
  if (typeof value === 'bigint') return value.toString()
  if (typeof value !== 'object' || value === null) return value
  if (depth >= MAX_DEPTH) return '[too deep]'
  if (value instanceof Error) return describeError(value, depth)
  if (value instanceof Uint8Array) return `[${value.length} bytes]`
  if (value instanceof Date) return value.toISOString()
  if (value instanceof Set || value instanceof Map) return redact([...(value as Iterable<unknown>)], depth)
  if (Array.isArray(value)) return value.map((item) => redact(item, depth + 1))
  const entries = Object.entries(value)
  return Object.fromEntries(
    entries.map(([key, part]) => [
      key,
      SECRET_KEYS.test(key) && part !== undefined ? '[redacted]' : redact(part, depth + 1),
    ]),
  )
}

function describeError(error: Error, depth: number): Record<string, unknown> {
  const code = (error as { code?: unknown }).code
  return {
    type: error.name,
    message: error.message,
    ...(code === undefined ? {} : { code }),
    ...(error.cause === undefined ? {} : { cause: redact(error.cause, depth + 1) }),
    // A programmer's mistake is found by its stack; an expected failure has a class of its own.
    ...(PROGRAMMING_ERRORS.has(error.name) ? { stack: error.stack } : {}),
  }
}

const PROGRAMMING_ERRORS: ReadonlySet<string> = new Set(['TypeError', 'ReferenceError', 'RangeError'])
