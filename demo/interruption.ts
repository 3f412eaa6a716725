/**
 * A demo that is stopped takes all away and ends as programs do that a signal stops: with 128 and the signal's number.
 * Its report says by which signal. test/demo/interrupt.ts takes no other end for that of an interrupted demo.
 */
const NUMBERS = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 } as const

export class Interruption extends Error {
  readonly exitCode: number

  constructor(signal: keyof typeof NUMBERS) {
    super(`stopped by ${signal}`)
    this.exitCode = 128 + NUMBERS[signal]
  }
}

/** Calls `stop` at each signal that asks this process to end. */
export function onInterruption(stop: (by: Interruption) => void): void {
  for (const signal of Object.keys(NUMBERS) as (keyof typeof NUMBERS)[])
    process.on(signal, () => stop(new Interruption(signal)))
}
