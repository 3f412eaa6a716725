/** What components log with: JSON lines on stderr (pino-logger.ts), captured ones in tests. */

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const
export type LogThreshold = (typeof LOG_LEVELS)[number]

export type LogFields = Readonly<Record<string, unknown>>

export interface Logger {
  debug(message: string, fields?: LogFields): void
  info(message: string, fields?: LogFields): void
  warn(message: string, fields?: LogFields): void
  error(message: string, fields?: LogFields): void
  /** A logger that adds these fields (usually `{ component: 'gateway' }`) to every line. */
  child(fields: LogFields): Logger
}
