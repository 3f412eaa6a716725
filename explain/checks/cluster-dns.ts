/** Whether the names of the clusterset are answered where pods ask. Plain sites have no such DNS. */
import { CONDITION_CLUSTER_DNS, findCondition } from '../../model/conditions.ts'
import type { Cause, Finding } from '../finding.ts'
import { type World, refusalCauses, seenAt, unjoinedCauses } from '../world.ts'

export function clusterDns(world: World): readonly Finding[] {
  const { objects, self, selfSubject } = world
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
        { reason: 'PolicyStopsPart', subject: dns },
        { reason: 'PolicyStopsPart', subject: { ...dns, kind: 'Service' } },
        ...(isUnknownThere(world) ? [] : SERVERS),
        ...unjoinedCauses(world),
        ...refusalCauses('dns'),
      ],
    },
  ]
}

/** Of whichever server: that of the cluster, or ours, to which it hands on. */
const SERVERS: readonly Cause[] = [{ reason: 'DnsServerSilent' }, { reason: 'DnsServerFails' }]

/** A server of the cluster denies the zone itself: it hands it on to nobody, whoever else is silent. */
function isUnknownThere({ probes }: World): boolean {
  const denies = new Set(['NXDOMAIN', 'REFUSED'])
  return (probes['dns-answer'] ?? []).some(({ object }) => object.role === 'cluster' && denies.has(object.result))
}
