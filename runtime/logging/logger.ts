/**
 * The logging interface of components: JSON lines on stderr (runtime/logging/pino-logger.ts), captured lines in tests.
 */
import type { ReasonCode } from '../../model/reasons/reasons.ts'

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const
export type LogThreshold = (typeof LOG_LEVELS)[number]

/** `reason` is the code of a refusal or problem that has one; `why` describes it in words. */
export type LogFields = Readonly<Record<string, unknown>> & { readonly reason?: ReasonCode }

/** The fields of a warning or an error: users look up its reason in docs/troubleshooting.md. */
export type ProblemFields = LogFields & { readonly reason: ReasonCode }

export interface Logger {
  debug(message: string, fields?: LogFields): void
  info(message: string, fields?: LogFields): void
  warn(message: string, fields: ProblemFields): void
  error(message: string, fields: ProblemFields): void
  /** Returns a logger that adds these fields (usually `{ component: 'gateway' }`) to every line. */
  child(fields: LogFields): Logger
}

// The log level: shared by all loggers of a process, and changeable at run time.

const RANK: ReadonlyMap<LogThreshold, number> = new Map(LOG_LEVELS.map((level, i) => [level, i]))

/** Switches between the initial level and debug. */
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

  /** Switches to debug and back. If the initial level is debug, it switches to info. */
  toggle(): void {
    if (this.#level !== 'debug') this.#level = 'debug'
    else this.#level = this.#usual === 'debug' ? 'info' : this.#usual
  }
}

/** Not SIGUSR1, which starts Node's debugger. */
const SIGNAL = 'SIGUSR2'

/** Toggles on SIGUSR2 until the returned function is called. Both messages are written while debug is on. */
export function toggleBySignal(
  log: LogSwitch,
  logger: Logger,
  signals: Pick<NodeJS.EventEmitter, 'on' | 'off'> = process,
): () => void {
  const handler = (): void => {
    if (log.level === 'debug') {
      logger.info('debug logging is off', { signal: SIGNAL })
      log.toggle()
    } else {
      log.toggle()
      logger.info('debug logging is on', { signal: SIGNAL })
    }
  }
  signals.on(SIGNAL, handler)
  return () => void signals.off(SIGNAL, handler)
}

/** Field names whose values must not appear in log lines. */

const SECRET_KEYS = /^(secret|token|private_?key|key|preshared_?key|password|authorization)$/i
const MAX_DEPTH = 6

/**
 * Returns a copy in which the value of every field with such a name is '[redacted]', at any depth. Errors become {type,
 * message, code, cause}; bigints and bytes become text.
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
    // A stack trace helps with programming mistakes; expected failures have error classes of their own.
    ...(PROGRAMMING_ERRORS.has(error.name) ? { stack: error.stack } : {}),
  }
}

const PROGRAMMING_ERRORS: ReadonlySet<string> = new Set(['TypeError', 'ReferenceError', 'RangeError'])
