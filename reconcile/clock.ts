/** Time and randomness, injected everywhere. No other file uses Date.now, timers or Math.random. */

export interface Clock {
  /** Milliseconds since 1970. */
  now(): number
  /** Milliseconds from an arbitrary start; never goes back. */
  monotonic(): number
  /** Resolves after `ms`; rejects with the signal's reason if it is aborted first. */
  sleep(ms: number, signal: AbortSignal): Promise<void>
  /**
   * Calls back once after `ms`; the returned function cancels. It does not keep the process alive. If the process was
   * blocked in the meantime, answers that have arrived are read first: most timers are deadlines for an answer.
   */
  setTimer(ms: number, callback: () => void): () => void
  /** 0 inclusive to 1 exclusive. */
  random(): number
}

export class SystemClock implements Clock {
  now(): number {
    return Date.now()
  }
  monotonic(): number {
    return performance.now()
  }
  sleep(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(abortReason(signal))
        return
      }
      const timer = setTimeout(() => {
        signal.removeEventListener('abort', onAbort)
        resolve()
      }, timerMs(ms))
      const onAbort = (): void => {
        clearTimeout(timer)
        reject(abortReason(signal))
      }
      signal.addEventListener('abort', onAbort, { once: true })
    })
  }
  setTimer(ms: number, callback: () => void): () => void {
    const due = performance.now() + ms
    let afterReading: NodeJS.Immediate | undefined
    const timer = setTimeout(() => {
      // Node runs timers before it reads sockets and pipes.
      if (performance.now() < due + HELD_UP_MS) callback()
      // Not unref'd, because an unref'd immediate would wait for another event.
      else afterReading = setImmediate(callback)
    }, timerMs(ms))
    timer.unref()
    return () => {
      clearTimeout(timer)
      clearImmediate(afterReading)
    }
  }
  random(): number {
    return Math.random()
  }
}

/** If a timer is this late, the process has not read sockets in the meantime, either. */
const HELD_UP_MS = 20

/** Node fires longer timers at once; a single wait lasts at most 24.8 days. */
const MAX_TIMER_MS = 2 ** 31 - 1

function timerMs(ms: number): number {
  return Math.min(ms, MAX_TIMER_MS)
}

/** Returns the reason as an Error, whatever was passed to abort(). */
export function abortReason(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new Error('aborted')
}
