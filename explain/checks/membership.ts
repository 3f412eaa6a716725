/** Whether this cluster belongs to a clusterset. */
import { MEMBERSHIP_NAME } from '../../model/objects.ts'
import { reasonRow } from '../../model/reasons/reasons.ts'
import type { Cause, Finding } from '../finding.ts'
import {
  CONTROL_PLANE_CAUSES,
  IDENTITY_MISSING,
  OWN_MEMBERSHIP,
  type World,
  absentAt,
  joinRefusal,
  refusalCauses,
  seenAt,
} from '../world.ts'
import { runs } from './parts.ts'

const AGENT = { kind: 'Deployment', namespace: 'sealane-system', name: 'sealane-agent' }
/** The agent joins; one that runs and is not ready waits for that. */
const WHO_JOINS: readonly Cause[] = [
  { reason: 'PartMissing', subject: AGENT },
  { reason: 'PartNotReady', subject: AGENT },
]

export function membership(world: World): readonly Finding[] {
  const { objects, self, selfSubject } = world
  const { Membership: memberships, Cluster: clusters } = objects
  if (memberships === undefined) return []
  const subject = OWN_MEMBERSHIP
  const own = memberships.find(({ object }) => object.metadata.name === MEMBERSHIP_NAME)
  const refused = refusedJoin(world, own === undefined)
  if (own === undefined) {
    if (refused.length > 0) return refused
    const at = absentAt(world)
    const seen = 'there is no Membership: this cluster has not joined'
    const because = runs(world, 'agent') ? [IDENTITY_MISSING] : WHO_JOINS
    return [{ reason: 'NoMembership', severity: 'down', subject, seen, ...at, because }]
  }
  if (own.object.spec.phase === 'leaving') {
    const seen = `this cluster is leaving clusterset ${own.object.spec.clusterset}`
    return [{ reason: 'LeavingClusterset', severity: 'notice', subject, seen, ...seenAt(own) }]
  }
  if (clusters === undefined || clusters.some(({ object }) => object.spec.id === self)) return refused
  const seen = `Membership says ${self ?? '-'}, and there is no Cluster of that name`
  const because = [...CONTROL_PLANE_CAUSES, ...refusalCauses('agent')]
  const missing = { reason: 'OwnClusterMissing', severity: 'degraded', subject: selfSubject, seen } as const
  return [...refused, { ...missing, ...seenAt(own), because }]
}

/** By the code of the refusal: a token that was used is mended otherwise than an id that is taken. */
function refusedJoin(world: World, isFirst: boolean): readonly Finding[] {
  const refusal = joinRefusal(world)
  if (refusal === undefined) return []
  const { reason } = refusal
  const what = isFirst ? 'this cluster has not joined' : 'this cluster could not join anew'
  const seen = `${what}: the last try ended with ${reason}. ${reasonRow(reason).means}`
  // Lanes go on for a while where nobody acts.
  return [{ reason, severity: isFirst ? 'down' : 'degraded', subject: OWN_MEMBERSHIP, seen, ...seenAt(refusal) }]
}
