/** What is said of a gateway that has stopped to tell. Pure. */
import { CONDITION_READY, REASON_STATUS_STALE, findCondition, setCondition } from '../model/conditions.ts'
import type { Condition, Gateway } from '../model/objects.ts'

/** The condition to set; undefined where it is set already. Takes milliseconds since 1970. */
export function staleFinding({ metadata, status }: Gateway, nowMs: number): Condition | undefined {
  if (isStale(status?.conditions)) return undefined
  const since = status?.heartbeatTime === undefined ? '' : ` since ${status.heartbeatTime}`
  const message = `nothing was heard of the gateway on node ${metadata.name}${since}: its connections are not known`
  const finding = { type: CONDITION_READY, status: 'Unknown', reason: REASON_STATUS_STALE, message } as const
  return findCondition(setCondition(status?.conditions ?? [], finding, nowMs), CONDITION_READY)
}

/** The gateway has taken back what was said of it while it was silent. */
export function heardAgain(before: Gateway | undefined, after: Gateway): boolean {
  return isStale(before?.status?.conditions) && !isStale(after.status?.conditions)
}

function isStale(conditions: readonly Condition[] | undefined): boolean {
  const ready = findCondition(conditions, CONDITION_READY)
  return ready?.status === 'Unknown' && ready.reason === REASON_STATUS_STALE
}
