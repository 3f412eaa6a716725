/** Time and chance, injected everywhere. The only file that may touch Date.now, timers and Math.random. */

export interface Clock {
  /** Milliseconds since 1970. */
  now(): number
  /** Milliseconds from an arbitrary start; never goes back. */
  monotonic(): number
  /** Resolves after `ms`; rejects with the signal's reason when aborted first. */
  sleep(ms: number, signal: AbortSignal): Promise<void>
  /**
   * Calls back once after `ms`; the function given back cancels. Does not keep the process alive. Where the process was
   * held up meanwhile, answers that have come are read first: most timers are deadlines for one.
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
      // Node calls timers before it reads sockets and pipes.
      if (performance.now() < due + HELD_UP_MS) callback()
      // Not unref'd: then it would wait for another event.
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

/** A timer that is so late says that nothing was read meanwhile, either. */
const HELD_UP_MS = 20

/** Node fires longer timers at once; 24.8 days are the most that one wait can take. */
const MAX_TIMER_MS = 2 ** 31 - 1

function timerMs(ms: number): number {
  return Math.min(ms, MAX_TIMER_MS)
}

/** The reason as an Error, whatever abort() was given. */
export function abortReason(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new Error('aborted')
}
