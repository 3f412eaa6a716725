/**
 * The Logger of running processes: JSON lines with one write each, so that a crash loses none. No other file imports
 * pino.
 */
import { type Logger as Pino, destination, pino, stdTimeFunctions } from 'pino'
import { jsonForTerminal } from '../../model/model.ts'
import { type LogFields, LogSwitch, type LogThreshold, type Logger, type ProblemFields, redact } from './logger.ts'

/** The destination of lines: a WriteStream or a test's array. */
export interface LogSink {
  write(line: string): void
}

/** Writes lines `{"time":"…","level":"info","component":"gateway","msg":"…",…}` to the sink, stderr by default. */
export function createLogger(component: string, level: LogThreshold | LogSwitch = 'info', sink?: LogSink): Logger {
  const options = {
    // A pino child keeps the level that it was created with, so the switch decides instead.
    level: 'debug',
    base: null,
    timestamp: stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  }
  const log = typeof level === 'string' ? new LogSwitch(level) : level
  const written = sink ?? destination({ dest: 2, sync: true })
  // Logs are also read on terminals.
  const guarded: LogSink = {
    write: (line) => {
      written.write(jsonForTerminal(line))
    },
  }
  return new PinoLogger(pino(options, guarded), log, { component })
}

class PinoLogger implements Logger {
  readonly #root: Pino
  readonly #log: LogSwitch
  readonly #fields: LogFields
  readonly #pino: Pino
  constructor(root: Pino, log: LogSwitch, fields: LogFields) {
    this.#root = root
    this.#log = log
    this.#fields = fields
    this.#pino = root.child(fields)
  }
  debug(message: string, fields?: LogFields): void {
    if (this.#log.writes('debug')) this.#pino.debug(redact(fields ?? {}), message)
  }
  info(message: string, fields?: LogFields): void {
    if (this.#log.writes('info')) this.#pino.info(redact(fields ?? {}), message)
  }
  warn(message: string, fields: ProblemFields): void {
    if (this.#log.writes('warn')) this.#pino.warn(redact(fields), message)
  }
  error(message: string, fields: ProblemFields): void {
    if (this.#log.writes('error')) this.#pino.error(redact(fields), message)
  }
  child(fields: LogFields): Logger {
    // Pino writes a child's field in addition to its parent's, so the same name would occur twice.
    return new PinoLogger(this.#root, this.#log, { ...this.#fields, ...(redact(fields) as LogFields) })
  }
}
