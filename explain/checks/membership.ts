/** Whether this cluster belongs to a clusterset. */
import { MEMBERSHIP_NAME } from '../../model/objects.ts'
import type { Cause, Finding } from '../finding.ts'
import { CONTROL_PLANE_CAUSES, type World, absentAt, seenAt } from '../world.ts'
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
  const subject = { kind: 'Membership', name: MEMBERSHIP_NAME }
  const own = memberships.find(({ object }) => object.metadata.name === MEMBERSHIP_NAME)
  if (own === undefined) {
    const at = absentAt(world)
    const seen = 'there is no Membership: this cluster has not joined'
    const because = runs(world, 'agent') ? [] : WHO_JOINS
    return [{ reason: 'NoMembership', severity: 'down', subject, seen, ...at, because }]
  }
  if (own.object.spec.phase === 'leaving') {
    const seen = `this cluster is leaving clusterset ${own.object.spec.clusterset}`
    return [{ reason: 'LeavingClusterset', severity: 'notice', subject, seen, ...seenAt(own) }]
  }
  if (clusters === undefined || clusters.some(({ object }) => object.spec.id === self)) return []
  const seen = `Membership says ${self ?? '-'}, and there is no Cluster of that name`
  const because = CONTROL_PLANE_CAUSES
  return [{ reason: 'OwnClusterMissing', severity: 'degraded', subject: selfSubject, seen, ...seenAt(own), because }]
}
