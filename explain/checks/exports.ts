/** What became of this cluster's exports, and of what it imports. */
import { CONDITION_COMPLETE, CONDITION_IMPORTED, findCondition } from '../../model/conditions.ts'
import type { Condition } from '../../model/objects.ts'
import { type ReasonCode, firstReason, knownReason } from '../../model/reasons/reasons.ts'
import type { FactObjects } from '../facts/fact.ts'
import type { Seen } from '../facts/read-facts.ts'
import type { Cause, Finding } from '../finding.ts'
import { CONTROL_PLANE_CAUSES, type World, refusalCauses, seenAt, seenSubject } from '../world.ts'

type SeenExport = Seen<FactObjects['ServiceExport']>

/** The broker answers within a second; what takes longer is stuck. */
const PENDING_MS = 30_000

/** What became of this cluster's exports. */
export function exports_(world: World): readonly Finding[] {
  return (world.objects.ServiceExport ?? []).flatMap((one) => [...notExported(world, one), ...remarks(one)])
}

function notExported({ nowMs }: World, one: SeenExport): readonly Finding[] {
  const { status, metadata } = one.object
  const valid = findCondition(status?.conditions, 'Valid')
  if (valid?.status === 'False') return [conditionFinding(one, valid, 'degraded')]
  const ready = findCondition(status?.conditions, 'Ready')
  if (ready?.status === 'True') return []
  if (ready !== undefined && ready.reason !== 'Pending') {
    // A part of its endpoints is refused, or all of it.
    return [conditionFinding(one, ready, 'degraded', CONTROL_PLANE_CAUSES)]
  }
  const since = ready?.lastTransitionTime ?? metadata.creationTimestamp
  const isOld = !(nowMs - Date.parse(since ?? '') < PENDING_MS)
  return [
    {
      reason: 'Pending',
      severity: isOld ? 'degraded' : 'notice',
      subject: seenSubject('ServiceExport', one),
      seen: ready?.message ?? 'no agent has looked at it yet',
      ...seenAt(one, since),
      because: [...CONTROL_PLANE_CAUSES, ...refusalCauses('agent')],
    },
  ]
}

/** Exported all the same. */
function remarks(one: SeenExport): readonly Finding[] {
  const { conditions } = one.object.status ?? {}
  const ready = findCondition(conditions, 'Ready')
  const complete = findCondition(conditions, CONDITION_COMPLETE)
  const leftOut = ready?.status === 'True' && complete?.status === 'False' ? complete.reason.split(',') : []
  const conflict = findCondition(conditions, 'Conflict')
  const imported = findCondition(conditions, CONDITION_IMPORTED)
  return [
    ...leftOut.flatMap((text) => leftOutFinding(one, knownReason(text), complete)),
    ...(conflict?.status === 'True' ? [conditionFinding(one, conflict, 'notice')] : []),
    ...(imported?.status === 'False' ? [conditionFinding(one, imported, 'notice')] : []),
  ]
}

function leftOutFinding(
  one: SeenExport,
  reason: ReasonCode | undefined,
  complete: Condition | undefined,
): readonly Finding[] {
  if (reason === undefined) return []
  const [subject, seen] = [seenSubject('ServiceExport', one), complete?.message ?? '']
  return [{ reason, severity: 'notice', subject, seen, ...seenAt(one, complete?.lastTransitionTime) }]
}

/**
 * Another program may have written the condition, or a later release. What the Service, another export or an importer
 * is the reason of has no cause in the control plane.
 */
function conditionFinding(
  one: SeenExport,
  condition: Condition,
  severity: Finding['severity'],
  causes: readonly Cause[] = [],
): Finding {
  const reason = knownReason(firstReason(condition.reason)) ?? 'Failed'
  return {
    reason,
    severity,
    subject: seenSubject('ServiceExport', one),
    seen: condition.message === '' ? `${condition.type} is ${condition.status}` : condition.message,
    ...seenAt(one, condition.lastTransitionTime),
    because: causes.filter(({ reason: cause }) => cause !== reason),
  }
}
