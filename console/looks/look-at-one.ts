/** Looks at one member. */
import { explainPath } from '../../explain/path/path.ts'
import { type Clock, unlessAborted } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { type PlannedState, planLook, planPath, withFailure } from '../state/state.ts'
import type { ConsoleSource, Looks } from './source.ts'

const LONG_MS = 3_600_000

/** The first look comes before it resolves. Throws what that look throws. */
export async function lookAtOne(source: ConsoleSource, clock: Clock, signal: AbortSignal): Promise<Looks> {
  let lookedAt = clock.monotonic()
  const first = await source.facts(signal)
  let look = planLook(first)
  const { pathSide } = source
  return {
    state: () => look.state,
    run: async ({ publish, isSeen, isRead }, signal) => {
      const { everyMs, idleMs = 0 } = source
      // A file never changes: then the server alone goes on.
      while (await unlessAborted(clock.sleep(everyMs ?? LONG_MS, signal), signal)) {
        const now = clock.monotonic()
        if (everyMs === undefined || (!isRead() && now - lookedAt < idleMs)) continue
        lookedAt = now
        look = await looked({ source, isSeen: isSeen(), clock }, look, signal)
        publish(look.state)
      }
    },
    // By the function that `sealane explain` calls.
    explain:
      pathSide === undefined
        ? undefined
        : async (question, signal) =>
            planPath(explainPath(question, { here: await pathSide(question, signal) }), first.flags),
  }
}

export interface Looking {
  readonly source: ConsoleSource
  readonly isSeen: boolean
  readonly clock: Clock
}

/** The next look, or the last one with since when there is none. */
export async function looked(
  { source, isSeen, clock }: Looking,
  before: PlannedState,
  signal: AbortSignal,
): Promise<PlannedState> {
  try {
    return planLook(await source.facts(signal, isSeen), before)
  } catch (error) {
    if (signal.aborted) return before
    const since = before.state.about.failing?.since ?? new Date(clock.now()).toISOString()
    return { ...before, state: withFailure(before.state, since, messageOf(error)) }
  }
}
