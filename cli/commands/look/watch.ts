/** Looking again and again, as `--watch` does. */
import { type Clock, SystemClock } from '../../../reconcile/clock.ts'
import { messageOf } from '../../../runtime/thrown.ts'
import type { CommandContext } from '../../context.ts'
import { CLEAR_SCREEN } from '../../output.ts'

const WATCH_MS = 2000

/**
 * Looks every two seconds until it is interrupted, which is how a watch ends. A look that fails is named, and the next
 * one comes all the same: who watches wants to see when it works again.
 */
export async function lookAgain(
  { signal, output }: Pick<CommandContext, 'signal' | 'output'>,
  look: () => Promise<void>,
  clock: Clock = new SystemClock(),
): Promise<void> {
  while (await pause(signal, clock)) {
    try {
      await look()
    } catch (error) {
      // An interrupted look throws too.
      if (!signal.aborted) output.remark(`${messageOf(error)}\n`)
    }
  }
}

/** False: it was interrupted. */
function pause(signal: AbortSignal, clock: Clock): Promise<boolean> {
  return clock.sleep(WATCH_MS, signal).then(
    () => true,
    () => false,
  )
}

/** What comes before each look, for people. */
export function screenStart({ env }: Pick<CommandContext, 'env'>): string {
  return env === undefined && process.stdout.isTTY ? CLEAR_SCREEN : '\n'
}
