/** Plans which namespaces' records this cluster requests from the broker: those that exist here. Pure. */
import { type Interest, interestProblem } from '../../model/model.ts'

/** The requested namespaces, and since when some of them do not exist any more. */
export interface InterestPlan {
  /** Undefined for all namespaces, because a request cannot hold that many names. */
  readonly interest: Interest | undefined
  /** Why all namespaces are requested. */
  readonly problem?: string
  /** Requested namespaces that do not exist any more, with the monotonic time since when. */
  readonly goneSince: ReadonlyMap<string, number>
}

/** A removed namespace stays requested for this time, so that nothing is sent again if it is created again at once. */
export const KEEP_MS = 30_000

/** Takes the previous plan, or undefined, and the existing namespaces. */
export function planInterest(
  before: InterestPlan | undefined,
  existing: ReadonlySet<string>,
  nowMs: number,
): InterestPlan {
  const goneSince = new Map<string, number>()
  for (const name of [...(before?.interest ?? []), ...(before?.goneSince.keys() ?? [])]) {
    const since = before?.goneSince.get(name) ?? nowMs
    if (!existing.has(name) && nowMs - since < KEEP_MS) goneSince.set(name, since)
  }
  const wanted = new Set([...existing, ...goneSince.keys()])
  const problem = interestProblem(wanted)
  if (problem === undefined) return { interest: wanted, goneSince }
  // Existing namespaces take precedence over removed ones.
  const least = interestProblem(existing)
  if (least === undefined) return { interest: existing, goneSince: new Map() }
  return { interest: undefined, problem: least, goneSince: new Map() }
}
