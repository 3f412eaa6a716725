/** The status of a ServiceImport, and what a user is told when it changes. Pure. */
import type { ObjectEvent } from '../../kubeapi/cluster-api.ts'
import { findCondition, setConditions } from '../../model/conditions.ts'
import type { ServiceImport } from '../../model/objects.ts'
import { firstReason } from '../../model/reasons/reasons.ts'
import type { ServicePlan } from '../plan-service.ts'

/** Takes the plan and what the local API holds now. */
export function importStatus(
  plan: Pick<ServicePlan, 'ready' | 'clusters'>,
  present: ServiceImport | undefined,
  nowMs: number,
): NonNullable<ServiceImport['status']> {
  const generation = present?.metadata.generation
  const ready = generation === undefined ? plan.ready : { ...plan.ready, observedGeneration: generation }
  return {
    clusters: plan.clusters.map((cluster) => ({ cluster })),
    conditions: setConditions(present?.status?.conditions ?? [], [ready], nowMs),
    endpointSliceObjects: 'Present',
  }
}

/** Takes the object with its new status, and the one before. */
export function importEvents(object: ServiceImport, before: ServiceImport | undefined): ObjectEvent[] {
  const { name, namespace } = object.metadata
  const regarding = { kind: 'ServiceImport' as const, name, namespace, uid: before?.metadata.uid }
  const is = findCondition(object.status?.conditions, 'Ready')
  const was = findCondition(before?.status?.conditions, 'Ready')
  const clusters = (object.status?.clusters ?? []).map(({ cluster }) => cluster).join(', ')
  const events: ObjectEvent[] = []
  if (before?.status === undefined) {
    events.push({ regarding, type: 'Normal', reason: 'Imported', note: `imported from ${clusters}` })
  }
  // While the address is on its way there is nothing to worry about.
  if (is?.status === 'False' && is.reason !== 'Pending' && was?.reason !== is.reason) {
    events.push({ regarding, type: 'Warning', reason: firstReason(is.reason), note: is.message })
  }
  return events
}
