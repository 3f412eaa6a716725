/**
 * Which DNS servers of a cluster are asked, one by one: those of the cluster and Sealane's own, each at the address of
 * its Service and at those of the pods that the Service has now. A pod that is not ready is asked by nobody.
 */
import { selectorLabels } from '../../../install/names.ts'
import type { ManifestObject } from '../../../install/manifest-object.ts'
import { formatAddressPort, parseAddressPort } from '../../../model/addresses/address-port.ts'
import { SYSTEM_NAMESPACE } from '../../../model/spec-constants.ts'
import type { ClusterAdmin } from '../../kube/access/admin.ts'
import type { AskedServer } from './machine-command.ts'

export interface DnsPlace {
  readonly role: AskedServer['role']
  readonly namespace: string
  /** Of Services; their EndpointSlices have the same labels. */
  readonly labelSelector: string
}

export const DNS_PLACES: readonly DnsPlace[] = [
  { role: 'cluster', namespace: 'kube-system', labelSelector: 'k8s-app=kube-dns' },
  {
    role: 'ours',
    namespace: SYSTEM_NAMESPACE,
    labelSelector: Object.entries(selectorLabels('dns'))
      .map((pair) => pair.join('='))
      .join(','),
  },
]

/** Objects; there is one Service, with a slice or two. */
const MOST_OBJECTS = 50
/** Of a place. */
export const MOST_OF_PLACE = 24

interface Port {
  readonly port?: unknown
  readonly protocol?: unknown
}

interface Endpoint {
  readonly addresses?: unknown
  readonly conditions?: { readonly ready?: unknown } | null
}

export interface FoundServers {
  readonly servers: readonly AskedServer[]
  /** How many there are beside them. */
  readonly leftOut: number
}

/** The addresses of Services come first. Throws what the API server says. */
export async function findDnsServers(
  admin: Pick<ClusterAdmin, 'list'>,
  { role, namespace, labelSelector }: DnsPlace,
  signal: AbortSignal,
): Promise<FoundServers> {
  const scope = { namespace, labelSelector, limit: MOST_OBJECTS }
  const [services, slices] = await Promise.all([
    admin.list('v1', 'Service', scope, signal),
    admin.list('discovery.k8s.io/v1', 'EndpointSlice', scope, signal),
  ])
  const all = [...new Set([...services.flatMap(ofService), ...slices.flatMap(ofSlice).sort()])]
  const servers = all.slice(0, MOST_OF_PLACE).map((server) => ({ role, server }))
  return { servers, leftOut: all.length - servers.length }
}

function ofService(service: ManifestObject): readonly string[] {
  const { spec } = service as { readonly spec?: { clusterIP?: unknown; clusterIPs?: unknown; ports?: unknown } }
  return serverTexts(Array.isArray(spec?.clusterIPs) ? spec.clusterIPs : [spec?.clusterIP], spec?.ports)
}

function ofSlice(slice: ManifestObject): readonly string[] {
  const { endpoints, ports } = slice as { readonly endpoints?: unknown; readonly ports?: unknown }
  const addresses = objectsIn(endpoints)
    .filter(({ conditions }: Endpoint) => conditions?.ready !== false)
    // All of an endpoint's addresses are the same pod.
    .map(({ addresses: all }: Endpoint): unknown => (Array.isArray(all) ? all[0] : undefined))
  return serverTexts(addresses, ports)
}

/** Only what is an address: `None` of a headless Service is not, nor is the name of a host. */
function serverTexts(addresses: readonly unknown[], ports: unknown): readonly string[] {
  const udp = objectsIn(ports).find(({ protocol }: Port) => protocol === 'UDP') as Port | undefined
  return addresses.flatMap((address) => serverText(address, udp?.port) ?? [])
}

function serverText(address: unknown, port: unknown): string | undefined {
  if (typeof address !== 'string' || typeof port !== 'number') return undefined
  try {
    return formatAddressPort(parseAddressPort(`${address.includes(':') ? `[${address}]` : address}:${port}`))
  } catch {
    return undefined
  }
}

function objectsIn(value: unknown): readonly object[] {
  const all: readonly unknown[] = Array.isArray(value) ? value : []
  return all.filter((one) => typeof one === 'object' && one !== null)
}
