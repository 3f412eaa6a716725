/** What became of this cluster's exports, and of what it imports. */
import { CONDITION_COMPLETE, CONDITION_IMPORTED, type Condition, findCondition } from '../../model/model.ts'
import { type ReasonCode, firstReason, knownReason } from '../../model/reasons/reasons.ts'
import {
  CONTROL_PLANE_CAUSES,
  type Cause,
  type FactObjects,
  type Finding,
  type ImportState,
  type Seen,
  type World,
  importStates,
  named,
  refusalCauses,
  seenAt,
  seenSubject,
} from '../facts/facts.ts'

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

/** Whether a call to an imported service finds a pod. */
export function imports(world: World): readonly Finding[] {
  const lost = importStates(world).filter(({ usable }) => usable === 0)
  const own = lost.filter((state) => !isBlocked(state) && !isLeftOut(world, state))
  return [...lost.map((state) => lostFinding(world, state, own.length > 1)), ...together(world, own)]
}

/** It has pods that are ready, or may have: no link leads there. */
function isBlocked({ ready, isReached }: ImportState): boolean {
  return !isReached || ready > 0
}

/** Exported here too, with pods that this cluster leaves out: that is told of the export. */
function isLeftOut({ objects }: World, { service: { object } }: ImportState): boolean {
  const { name, namespace } = object.metadata
  const own = objects.ServiceExport?.find(
    ({ object: { metadata } }) => metadata.name === name && metadata.namespace === namespace,
  )
  const conditions = own?.object.status?.conditions
  if (findCondition(conditions, 'Ready')?.status !== 'True') return false
  const complete = findCondition(conditions, CONDITION_COMPLETE)
  return complete?.status === 'False' && complete.reason.split(',').includes('AddressOutsidePods' satisfies ReasonCode)
}

function lostFinding({ selfSubject, self, reached }: World, state: ImportState, many: boolean): Finding {
  const { service, ready, clusters } = state
  const blocked = isBlocked(state)
  const unreached = clusters.filter((cluster) => cluster !== self && reached?.has(cluster) !== true)
  const from = named(blocked ? unreached : clusters)
  const seen = blocked
    ? `its ${ready} ready pods are in ${from}, which is not reached`
    : `none of its pods in ${from} is ready`
  const subject = seenSubject('ServiceImport', service)
  const leftOut: Cause = { reason: 'AddressOutsidePods', subject: { ...subject, kind: 'ServiceExport' } }
  const because: readonly Cause[] = !blocked
    ? [leftOut, ...(many ? [{ reason: 'ImportsWithoutBackends' as const, subject: selfSubject }] : [])]
    : unreached.flatMap((name) =>
        (
          [
            'ClusterCutOff',
            'UdpOneWay',
            'NeitherEndCallable',
            'NoLane',
            'FarGatewayAwaited',
            'Silent',
            'GatewayStatusStale',
          ] as const
        ).map((reason) => ({
          reason,
          subject: { kind: 'Cluster', name },
        })),
      )
  return {
    reason: 'ImportsWithoutBackends',
    severity: blocked ? 'down' : 'degraded',
    subject,
    seen,
    ...seenAt(service),
    ...(blocked ? { mend: `Look at the links to ${from} first: what is wrong is on the way, not with the pods.` } : {}),
    because,
  }
}

/** A hundred services without pods are one problem on the screen. */
function together({ selfSubject }: World, own: readonly ImportState[]): readonly Finding[] {
  const [first, ...more] = own
  if (first === undefined || more.length === 0) return []
  const names = own.map(({ service: { object } }) => `${object.metadata.namespace ?? ''}/${object.metadata.name}`)
  const seen = `${own.length} services have no pod that is ready: ${named(names)}`
  return [
    { reason: 'ImportsWithoutBackends', severity: 'degraded', subject: selfSubject, seen, ...seenAt(first.service) },
  ]
}
