/** Clusters and gateways of the clusterset as objects of this cluster. Pure. */
import { classifyAddress, parseAddress } from '../../model/addresses/ip.ts'
import { ANNOTATION_KNOWN_MEMBERS } from '../../model/membership.ts'
import { publishedAt } from '../../model/lanes/lane-servers.ts'
import {
  type Cluster,
  type ClusterSpec,
  type Endpoint,
  type EndpointCandidate,
  endpointName,
} from '../../model/objects.ts'
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../../model/spec-constants.ts'
import type { Dropped, RemoteEndpoint } from '../import/clusterset-view.ts'

const LABELS = { [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE }

/** `knownMembers`: for this cluster's own (ANNOTATION_KNOWN_MEMBERS); '' for the others. */
export function clusterObject(spec: ClusterSpec, knownMembers = ''): Cluster {
  const annotations = knownMembers === '' ? {} : { annotations: { [ANNOTATION_KNOWN_MEMBERS]: knownMembers } }
  const metadata = { name: spec.id, labels: LABELS, ...annotations }
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'Cluster', metadata, spec }
}

export interface EndpointWorld {
  readonly own: string
}

/** Endpoint objects of the other clusters; of two that claim one name, the first record keeps it. */
export function planEndpoints(
  world: EndpointWorld,
  endpoints: readonly RemoteEndpoint[],
  dropped: Dropped[],
): Endpoint[] {
  const planned = new Map<string, Endpoint>()
  const remote = endpoints.filter(({ cluster }) => cluster !== world.own)
  for (const one of remote) {
    const name = nameOf(one)
    if (planned.has(name)) {
      dropped.push({
        what: `${one.cluster}/Endpoint/${one.recordName}`,
        reason: 'NameTaken',
        message: `the name ${name} is taken`,
      })
      continue
    }
    const candidates = one.spec.candidates.filter((candidate) => isUsable(candidate, one, dropped))
    const spec = candidates.length === one.spec.candidates.length ? one.spec : { ...one.spec, candidates }
    const metadata = { name, labels: LABELS, annotations: publishedAt(one.createdAtMs) }
    planned.set(name, { apiVersion: 'sealane.io/v1alpha1', kind: 'Endpoint', metadata, spec })
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
  const message = `candidate ${JSON.stringify(candidate.address)} is a ${kind} address`
  dropped.push({ what: `${one.cluster}/Endpoint/${one.recordName}`, reason: 'AddressNotReachable', message })
  return false
}
