/** What the agent has noted of the topology at an Endpoint. Commands read it without the schema of topologies. Pure. */
import { ANNOTATION_VIA, type Endpoint } from '../model.ts'
import { MAX_TOPOLOGY_CLUSTERS, isDnsLabel } from '../values/values.ts'

/**
 * Members whose relays alone may carry links with the gateway of an Endpoint, as the agent has noted it there.
 * Undefined: they may have any way. Unreadable: they may have none.
 */
export function endpointVia({ metadata }: Pick<Endpoint, 'metadata'>): readonly string[] | 'unreadable' | undefined {
  const ids = metadata.annotations?.[ANNOTATION_VIA]?.split(',')
  if (ids === undefined) return undefined
  return ids.length <= MAX_TOPOLOGY_CLUSTERS && ids.every(isDnsLabel) ? ids : 'unreadable'
}
