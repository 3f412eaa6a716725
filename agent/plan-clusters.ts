/** Clusters and gateways of the clusterset as objects of this cluster. Pure. */
import { classifyAddress, parseAddress } from '../model/ip.ts'
import {
  type Cluster,
  type ClusterSpec,
  type Endpoint,
  type EndpointCandidate,
  endpointName,
} from '../model/objects.ts'
import type { Dropped, RemoteEndpoint } from './clusterset-view.ts'

export function clusterObject(spec: ClusterSpec): Cluster {
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'Cluster', metadata: { name: spec.id }, spec }
}

export interface EndpointWorld {
  readonly own: string
  readonly endpointOwner: (name: string) => string | undefined
}

/**
 * Endpoint objects of the other clusters. Two clusters can have gateways whose object names are equal (`a-b` with
 * node `c`, `a` with node `b-c`): who has the name keeps it, then the smaller cluster id.
 */
export function planEndpoints(
  world: EndpointWorld,
  endpoints: readonly RemoteEndpoint[],
  dropped: Dropped[],
): Endpoint[] {
  const planned = new Map<string, Endpoint>()
  const remote = endpoints.filter(({ cluster }) => cluster !== world.own)
  const sittingFirst = (one: RemoteEndpoint): number => (world.endpointOwner(nameOf(one)) === one.cluster ? 0 : 1)
  for (const one of [...remote].sort((a, b) => sittingFirst(a) - sittingFirst(b))) {
    const name = nameOf(one)
    const taken = planned.has(name) || world.endpointOwner(name) === world.own
    if (taken) {
      dropped.push({ what: `${one.cluster}/Endpoint/${one.recordName}`, reason: `the name ${name} is taken` })
      continue
    }
    const candidates = one.spec.candidates.filter((candidate) => isUsable(candidate, one, dropped))
    const spec = candidates.length === one.spec.candidates.length ? one.spec : { ...one.spec, candidates }
    planned.set(name, { apiVersion: 'sealane.io/v1alpha1', kind: 'Endpoint', metadata: { name }, spec })
  }
  return [...planned.values()].sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))
}

function nameOf({ spec }: RemoteEndpoint): string {
  return endpointName(spec.cluster, spec.node, spec.lane)
}

/** A bad address costs that candidate, not the gateway. */
function isUsable(candidate: EndpointCandidate, one: RemoteEndpoint, dropped: Dropped[]): boolean {
  let kind = 'malformed'
  try {
    kind = classifyAddress(parseAddress(candidate.address))
  } catch {
    // Said below.
  }
  if (kind === 'usable') return true
  const reason = `candidate ${JSON.stringify(candidate.address)} is a ${kind} address`
  dropped.push({ what: `${one.cluster}/Endpoint/${one.recordName}`, reason })
  return false
}
