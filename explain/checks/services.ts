/** Checks this cluster's exports and imports. */
import {
  CONDITION_COMPLETE,
  CONDITION_IMPORTED,
  CONDITION_POD_ADDRESSES,
  type Condition,
  type EndpointSlice,
  LABEL_K8S_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  findCondition,
  printable,
} from '../../model/model.ts'
import { type ReasonCode, firstReason, knownReason } from '../../model/reasons/reasons.ts'
import {
  CONTROL_PLANE_CAUSES,
  type Cause,
  type FactObjects,
  type Finding,
  type ImportState,
  type Seen,
  type Subject,
  type World,
  importStates,
  named,
  refusalCauses,
  seenAt,
  seenSubject,
} from '../facts/facts.ts'

type SeenExport = Seen<FactObjects['ServiceExport']>

/** The broker answers within a second, so an export that is pending for longer is stuck. */
const PENDING_MS = 30_000

/** Checks the state of this cluster's exports. */
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
    // The broker refuses all or some of the export's records.
    return [conditionFinding(one, ready, 'degraded', CONTROL_PLANE_CAUSES)]
  }
  const since = ready?.lastTransitionTime ?? metadata.creationTimestamp
  const isOld = !(nowMs - Date.parse(since ?? '') < PENDING_MS)
  return [
    {
      reason: 'Pending',
      severity: isOld ? 'degraded' : 'notice',
      subject: seenSubject('ServiceExport', one),
      seen: ready?.message ?? 'the agent has not processed it yet',
      ...seenAt(one, since),
      because: [...CONTROL_PLANE_CAUSES, ...refusalCauses('agent')],
    },
  ]
}

/** Problems of services that are exported nevertheless. */
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
 * The finding of a condition, which another program or a later release may have written. `causes` is empty if the
 * Service, another export or an importer is the cause.
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

/** Checks whether the pods behind Services have addresses inside the ranges that this cluster states. */
export function podAddresses({ objects, self, selfSubject }: World): readonly Finding[] {
  const own = objects.Cluster?.find(({ object }) => object.spec.id === self)
  const found = findCondition(own?.object.status?.conditions, CONDITION_POD_ADDRESSES)
  if (own === undefined || found?.status !== 'False') return []
  const at = seenAt(own, found.lastTransitionTime)
  return [{ reason: 'PodsOutsideRanges', severity: 'degraded', subject: selfSubject, seen: found.message, ...at }]
}

/** Checks the backends of a site's own services, from the results of the agent's checks. */
export function backends({ objects }: World): readonly Finding[] {
  const services = new Map<string, Seen<EndpointSlice>[]>()
  for (const slice of objects.EndpointSlice ?? []) {
    const { labels = {}, namespace = '' } = slice.object.metadata
    if (slice.object.status === undefined || labels[LABEL_SOURCE_CLUSTER] !== undefined) continue
    const key = `${namespace}/${labels[LABEL_K8S_SERVICE_NAME] ?? ''}`
    services.set(key, [...(services.get(key) ?? []), slice])
  }
  return [...services].flatMap(([key, slices]) => {
    const [namespace = '', name = ''] = key.split('/')
    return name === '' ? [] : backendFinding(slices, { kind: 'Service', namespace, name })
  })
}

function backendFinding(slices: readonly Seen<EndpointSlice>[], subject: Subject): readonly Finding[] {
  const known = slices.flatMap(({ object }) => object.status?.backends ?? [])
  const down = known.filter(({ up }) => !up)
  const [first] = slices
  if (first === undefined || down.length === 0) return []
  const texts = named(down.map(({ address, message = '' }) => `${address} (${message})`))
  const seen = `the check fails for ${down.length} of ${known.length} backends: ${printable(texts)}`
  const [since] = down.map((one) => one.since).sort()
  return [{ reason: 'BackendDown', severity: 'degraded', subject, seen, ...seenAt(first, since) }]
}

/** Checks whether a call to an imported service finds a pod. */
export function imports(world: World): readonly Finding[] {
  const lost = importStates(world).filter(({ usable }) => usable === 0)
  const own = lost.filter((state) => !isBlocked(state) && !isLeftOut(world, state))
  return [...lost.map((state) => lostFinding(world, state, own.length > 1)), ...together(world, own)]
}

/** Whether the service has, or may have, ready pods that no link leads to. */
function isBlocked({ ready, isReached }: ImportState): boolean {
  return !isReached || ready > 0
}

/** Whether this cluster also exports the service, with pods that are left out. The export's finding explains that. */
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
    ? `its ${ready} ready pods are in ${from}, which cannot be reached`
    : `none of its pods in ${from} is ready`
  const subject = seenSubject('ServiceImport', service)
  const leftOut: Cause = { reason: 'AddressOutsidePods', subject: { ...subject, kind: 'ServiceExport' } }
  const checked: Cause = { reason: 'BackendDown', subject: { ...subject, kind: 'Service' } }
  const because: readonly Cause[] = !blocked
    ? [checked, leftOut, ...(many ? [{ reason: 'ImportsWithoutBackends' as const, subject: selfSubject }] : [])]
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
    ...(blocked ? { mend: `Check the links to ${from} first: the fault is in the network, not in the pods.` } : {}),
    because,
  }
}

/** Joins the services without pods in one finding. */
function together({ selfSubject }: World, own: readonly ImportState[]): readonly Finding[] {
  const [first, ...more] = own
  if (first === undefined || more.length === 0) return []
  const names = own.map(({ service: { object } }) => `${object.metadata.namespace ?? ''}/${object.metadata.name}`)
  const seen = `${own.length} services have no ready pod: ${named(names)}`
  return [
    { reason: 'ImportsWithoutBackends', severity: 'degraded', subject: selfSubject, seen, ...seenAt(first.service) },
  ]
}
