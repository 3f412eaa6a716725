/** What is said of a gateway that has stopped to tell. Pure. */
import { CONDITION_READY, REASON_STATUS_STALE, findCondition, setCondition } from '../../model/conditions.ts'
import { isTakenAsSilent } from '../../model/lanes/heartbeat.ts'
import type { Condition, Gateway } from '../../model/objects.ts'

/** The condition to set; undefined where it is set already. Takes milliseconds since 1970. */
export function staleFinding(gateway: Gateway, nowMs: number): Condition | undefined {
  if (isTakenAsSilent(gateway)) return undefined
  const { metadata, status } = gateway
  const since = status?.heartbeatTime === undefined ? '' : ` since ${status.heartbeatTime}`
  const message = `nothing was heard of the gateway on node ${metadata.name}${since}: its connections are not known`
  const finding = { type: CONDITION_READY, status: 'Unknown', reason: REASON_STATUS_STALE, message } as const
  return findCondition(setCondition(status?.conditions ?? [], finding, nowMs), CONDITION_READY)
}

/** The gateway has taken back what was said of it while it was silent. */
export function heardAgain(before: Gateway | undefined, after: Gateway): boolean {
  return before !== undefined && isTakenAsSilent(before) && !isTakenAsSilent(after)
}
