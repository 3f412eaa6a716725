/** From which level on lines are written: one for all loggers of a process, changed while they are used. */
import { LOG_LEVELS, type LogThreshold, type Logger } from './logger.ts'

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
