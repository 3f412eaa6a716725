/** Checks where calls go: what is drained, and the traffic policies that are not valid. */
import { findCondition } from '../../model/model.ts'
import { firstReason, knownReason } from '../../model/reasons/reasons.ts'
import { drainOf } from '../../model/services/services.ts'
import { type FactObjects, type Finding, type Seen, type World, seenAt, seenSubject } from '../facts/facts.ts'

/** Names the drained members, and the services that this cluster drains. Nobody should forget to end that. */
export function drained({ objects, self }: World): readonly Finding[] {
  const clusters = (objects.Cluster ?? []).filter(({ object }) => object.spec.drained === true)
  const services = (objects.ServiceExport ?? []).filter(({ object }) => drainOf(object) !== undefined)
  const rest = 'gets no new connections while others are ready'
  const ended = (isNow: boolean): string => (isNow ? '; open ones are ended' : '')
  return [
    ...clusters.map((one): Finding => {
      const subject = { kind: 'Cluster', name: one.object.spec.id }
      const seen = `${one.object.spec.id === self ? 'this cluster' : 'the cluster'} is drained: it ${rest}${ended(one.object.spec.drainedNow === true)}`
      return { reason: 'ClusterDrained', severity: 'notice', subject, seen, ...seenAt(one) }
    }),
    ...services.map((one): Finding => {
      const seen = `this cluster drains the service: it ${rest} of them${ended(drainOf(one.object) === 'now')}`
      return {
        reason: 'ServiceDrained',
        severity: 'notice',
        subject: seenSubject('ServiceExport', one),
        seen,
        ...seenAt(one),
      }
    }),
  ]
}

type SeenPolicy = Seen<FactObjects['TrafficPolicy'] | FactObjects['ClusterTrafficPolicy']>

/** Names the traffic policies that the agent has found not valid: what they said before is in force, or nothing of them. */
export function trafficPolicies({ objects }: World): readonly Finding[] {
  return (['TrafficPolicy', 'ClusterTrafficPolicy'] as const).flatMap((kind) => {
    const policies: readonly SeenPolicy[] = objects[kind] ?? []
    return policies.flatMap((one): readonly Finding[] => {
      const valid = findCondition(one.object.status?.conditions, 'Valid')
      if (valid?.status !== 'False') return []
      const reason = knownReason(firstReason(valid.reason)) ?? 'TrafficPolicyInvalid'
      const seen = valid.message === '' ? 'it is not valid' : valid.message
      const at = seenAt(one, valid.lastTransitionTime)
      return [{ reason, severity: 'degraded', subject: seenSubject(kind, one), seen, ...at }]
    })
  })
}
