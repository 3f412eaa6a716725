/** Whether a call to an imported service finds a pod. */
import type { Cause, Finding } from '../finding.ts'
import { type ImportState, importStates } from '../overview/import-states.ts'
import { type World, named, seenAt, seenSubject } from '../world.ts'

export function imports(world: World): readonly Finding[] {
  const lost = importStates(world).filter(({ usable }) => usable === 0)
  const own = lost.filter(({ isReached }) => isReached)
  return [...lost.map((state) => lostFinding(world, state, own.length > 1)), ...together(world, own)]
}

function lostFinding(
  { selfSubject }: World,
  { service, ready, clusters, isReached }: ImportState,
  many: boolean,
): Finding {
  const from = named(clusters)
  const seen = isReached
    ? `none of its pods in ${from} is ready`
    : `its ${ready} ready pods are in ${from}, which is not reached`
  const subject = seenSubject('ServiceImport', service)
  const leftOut: Cause = { reason: 'AddressOutsidePods', subject: { ...subject, kind: 'ServiceExport' } }
  const because: readonly Cause[] = isReached
    ? [leftOut, ...(many ? [{ reason: 'ImportsWithoutBackends' as const, subject: selfSubject }] : [])]
    : clusters.flatMap((name) =>
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
    severity: isReached ? 'degraded' : 'down',
    subject,
    seen,
    ...seenAt(service),
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
