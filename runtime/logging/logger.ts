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
