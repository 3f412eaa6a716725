/** Which other clusters have lost their connection to the broker. */
import { CONDITION_IN_CONTACT, findCondition } from '../../model/conditions.ts'
import type { Finding } from '../finding.ts'
import { type World, seenAt } from '../world.ts'

/** While this cluster has no connection itself, what the broker said last is old. */
export function contact({ objects, self, reached }: World): readonly Finding[] {
  return (objects.Cluster ?? []).flatMap((cluster): readonly Finding[] => {
    const { spec, status } = cluster.object
    const found = findCondition(status?.conditions, CONDITION_IN_CONTACT)
    if (spec.id === self || found?.status !== 'False') return []
    return [
      {
        reason: 'Silent',
        // What it has exported goes on working.
        severity: reached?.has(spec.id) === true ? 'notice' : 'degraded',
        subject: { kind: 'Cluster', name: spec.id },
        seen: found.message,
        ...seenAt(cluster, found.lastTransitionTime),
      },
    ]
  })
}
