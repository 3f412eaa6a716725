/** Whether a call to an imported service finds a pod. */
import { CONDITION_COMPLETE, findCondition } from '../../model/conditions.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { Cause, Finding } from '../finding.ts'
import { type ImportState, importStates } from '../overview/import-states.ts'
import { type World, named, seenAt, seenSubject } from '../world.ts'

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
