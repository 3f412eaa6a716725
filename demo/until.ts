/** Waits for a condition by asking again, with a deadline: nothing in the demo sleeps and hopes. */
import { setTimeout as pause } from 'node:timers/promises'

/**
 * Asks until the answer is true. Any other answer is kept for the error text. An error thrown by the question ends
 * the wait at once. Gives the milliseconds it took.
 */
export async function until(
  what: string,
  deadlineMs: number,
  ask: () => Promise<unknown>,
  everyMs = 50,
): Promise<number> {
  const started = performance.now()
  for (;;) {
    const answer = await ask()
    const elapsed = performance.now() - started
    if (answer === true) return elapsed
    if (elapsed > deadlineMs) {
      const last = typeof answer === 'string' ? answer : JSON.stringify(answer)
      throw new Error(`waited ${Math.round(elapsed)} ms for ${what}; last answer: ${last}`)
    }
    await pause(everyMs)
  }
}
