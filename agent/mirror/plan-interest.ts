/** Which namespaces' records this cluster asks the broker for: those that exist here. Pure. */
import { type Interest, interestProblem } from '../../model/model.ts'

/** What is asked for, and since when some of it need not be. */
export interface InterestPlan {
  /** Undefined: everything, because so many names cannot be asked for. */
  readonly interest: Interest | undefined
  /** Why everything is asked for. */
  readonly problem?: string
  /** Namespaces that are asked for and do not exist any more, and since when, monotonic. */
  readonly goneSince: ReadonlyMap<string, number>
}

/** A namespace that was removed is asked for so much longer: who makes it again at once gets nothing sent again. */
export const KEEP_MS = 30_000

/** Takes the plan before, if there was one, and the namespaces that exist now. */
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
  // What still exists comes before what may come back.
  const least = interestProblem(existing)
  if (least === undefined) return { interest: existing, goneSince: new Map() }
  return { interest: undefined, problem: least, goneSince: new Map() }
}
