/** Whether the names of the clusterset are answered where pods ask. Plain sites have no such DNS. */
import { CONDITION_CLUSTER_DNS, findCondition } from '../../model/conditions.ts'
import type { Finding } from '../finding.ts'
import { type World, seenAt } from '../world.ts'

export function clusterDns({ objects, self, selfSubject }: World): readonly Finding[] {
  const own = objects.Cluster?.find(({ object }) => object.spec.id === self)
  const found = findCondition(own?.object.status?.conditions, CONDITION_CLUSTER_DNS)
  if (own === undefined || found?.status !== 'False') return []
  const dns = { kind: 'Deployment', namespace: 'sealane-system', name: 'sealane-dns' }
  return [
    {
      reason: 'DoesNotAnswer',
      severity: 'down',
      subject: selfSubject,
      seen: found.message,
      ...seenAt(own, found.lastTransitionTime),
      because: [
        { reason: 'PartNotReady', subject: dns },
        { reason: 'PartMissing', subject: dns },
      ],
    },
  ]
}
