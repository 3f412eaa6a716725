/** A Logger that keeps its lines, for tests. It redacts like the real one. */
import { type LogFields, type Logger, type ProblemFields, redact } from './logger.ts'

export type LogLevel = 'debug' | 'info' | 'warn' | 'error'

export interface LogLine {
  readonly level: LogLevel
  readonly message: string
  readonly fields: LogFields
}

export class CapturingLogger implements Logger {
  /** Oldest first; shared with all children. */
  readonly lines: LogLine[]
  readonly #fields: LogFields

  constructor(lines: LogLine[] = [], fields: LogFields = {}) {
    this.lines = lines
    this.#fields = fields
  }

  debug(message: string, fields?: LogFields): void {
    this.#add('debug', message, fields)
  }
  info(message: string, fields?: LogFields): void {
    this.#add('info', message, fields)
  }
  warn(message: string, fields: ProblemFields): void {
    this.#add('warn', message, fields)
  }
  error(message: string, fields: ProblemFields): void {
    this.#add('error', message, fields)
  }
  child(fields: LogFields): CapturingLogger {
    return new CapturingLogger(this.lines, { ...this.#fields, ...fields })
  }

  /** Returns the messages of one level or of all. */
  messages(level?: LogLevel): string[] {
    return this.lines.filter((line) => level === undefined || line.level === level).map((line) => line.message)
  }

  #add(level: LogLevel, message: string, fields: LogFields = {}): void {
    this.lines.push({ level, message, fields: redact({ ...this.#fields, ...fields }) as LogFields })
  }
}
