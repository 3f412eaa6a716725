/** Events about a ServiceExport when its conditions change (KEP-1645 "Headless": conditions and events). Pure. */
import type { ObjectEvent } from '../../kubeapi/cluster-api.ts'
import { CONDITION_IMPORTED, findCondition } from '../../model/conditions.ts'
import type { Condition, ServiceExport } from '../../model/objects.ts'
import { isQuotaReason } from '../../model/quota/member-quota.ts'
import { firstReason } from '../../model/reasons/reasons.ts'

/** Takes the conditions before and after. A restart changes none, so it reports nothing again. */
export function exportEvents(
  object: ServiceExport,
  before: readonly Condition[],
  after: readonly Condition[],
): ObjectEvent[] {
  const { name, namespace, uid } = object.metadata
  const regarding = { kind: 'ServiceExport' as const, name, namespace, uid }
  return TYPES.flatMap((type) => {
    const was = findCondition(before, type)
    const is = findCondition(after, type)
    const words = is === undefined || sameFinding(was, is) ? undefined : wordsFor(was, is)
    return words === undefined ? [] : [{ regarding, ...words }]
  })
}

const TYPES = ['Valid', 'Ready', 'Conflict', CONDITION_IMPORTED] as const

type Words = Pick<ObjectEvent, 'type' | 'reason' | 'note'>

function wordsFor(was: Condition | undefined, is: Condition): Words | undefined {
  if (is.type === 'Valid') {
    return is.status === 'False' ? { type: 'Warning', reason: firstReason(is.reason), note: is.message } : undefined
  }
  if (is.type === 'Ready') {
    if (is.status === 'True' && was?.status !== 'True') return { type: 'Normal', reason: 'Exported', note: is.message }
    if (isQuotaReason(is.reason)) return { type: 'Warning', reason: is.reason, note: is.message }
    return isRefusal(is.reason) ? { type: 'Warning', reason: 'Refused', note: is.message } : undefined
  }
  if (is.type === CONDITION_IMPORTED) {
    // Who imports changes with every cluster that comes or goes; only whether anybody does is worth an event.
    if (is.status === 'False' && was?.status !== 'False')
      return { type: 'Warning', reason: firstReason(is.reason), note: is.message }
    if (is.status !== 'True' || was?.status !== 'False') return undefined
    return { type: 'Normal', reason: firstReason(is.reason), note: is.message }
  }
  if (is.status === 'True') return { type: 'Warning', reason: 'Conflict', note: `${is.reason}: ${is.message}` }
  if (was?.status !== 'True') return undefined
  return { type: 'Normal', reason: 'ConflictCleared', note: 'all exports of this service agree' }
}

/** As the reason of condition Ready: the broker does not take the export. */
export function isRefusal(reason: string): boolean {
  return reason === 'Failed' || reason === 'NamespaceNotAllowed' || isQuotaReason(reason)
}

function sameFinding(was: Condition | undefined, is: Condition): boolean {
  return was?.status === is.status && was.reason === is.reason && was.message === is.message
}
