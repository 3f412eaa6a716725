/** The public interface of this room: log levels, redaction, JSON lines. */
export {
  LOG_LEVELS,
  type LogFields,
  LogSwitch,
  type LogThreshold,
  type Logger,
  type ProblemFields,
  toggleBySignal,
} from './logger.ts'
export { createLogger } from './pino-logger.ts'
