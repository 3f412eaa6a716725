/**
 * The records of a simulated cluster: exports with one slice each, similar in every cluster, as where a platform team
 * runs them. Clusters are in groups of a hundred that export the same services.
 */
import { createHash } from 'node:crypto'
import type { EndpointSliceBody, MemberRecord, PublishedEndpoint } from '../../../model/records.ts'

export interface Site {
  readonly cluster: string
  readonly index: number
  readonly services: number
  /** The number of namespaces over which its services are spread. */
  readonly namespaces: number
}

/** The number of groups of clusters that export the same services. */
const GROUPS = 10

/** Each cluster has a range of its own, so no address is translated. */
export function podCIDR(index: number): string {
  return `10.${(index >> 4) & 0xff}.${(index & 0x0f) << 4}.0/20`
}

/**
 * The namespaces that a cluster requests: one of the shared ones, and one of its own that is empty, so that no two
 * clusters request the same set. Undefined: all of them.
 */
export function interestOf({ index, namespaces }: Site): ReadonlySet<string> | undefined {
  return namespaces === 1 ? undefined : new Set([namespaceOf(index, namespaces), `own-${index}`].sort())
}

export function siteRecords(site: Site): MemberRecord[] {
  const { cluster, index, services } = site
  const records: MemberRecord[] = [gateway(cluster, index)]
  for (let i = 0; i < services; i += 1) {
    const name = serviceName(index, i)
    const namespace = namespaceOf(i, site.namespaces)
    records.push(serviceExport(namespace, name, `${cluster}-${i}`))
    records.push(slice(namespace, name, `${name}-${i}`, [endpoint(index, i)]))
  }
  return records
}

/** One of its exports with a changed text. */
export function changedExport({ index, namespaces }: Site, i: number, says: string): MemberRecord {
  return serviceExport(namespaceOf(i, namespaces), serviceName(index, i), says)
}

/** A slice of 100 endpoints, spread over ten nodes of three zones. */
export function largeSlice({ index }: Site, i: number): MemberRecord {
  const endpoints = Array.from({ length: 100 }, (_, n) => endpoint(index, n * 37 + i * 7, n))
  return slice('shop', `wide-${i}`, `wide-${i}-1`, endpoints)
}

function namespaceOf(i: number, namespaces: number): string {
  return namespaces === 1 ? 'shop' : `shop-${i % namespaces}`
}

function serviceName(index: number, i: number): string {
  return `service-${index % GROUPS}-${i}`
}

function serviceExport(namespace: string, name: string, uid: string): MemberRecord {
  return {
    namespace,
    name,
    body: {
      kind: 'ServiceExport',
      uid,
      type: 'ClusterSetIP',
      ports: [{ name: 'http', protocol: 'TCP', port: 80, appProtocol: 'http' }],
      sessionAffinity: 'None',
      ipFamilies: ['IPv4'],
      exportedLabels: { 'app.kubernetes.io/name': name },
      exportedAnnotations: {},
    },
  }
}

function slice(
  namespace: string,
  service: string,
  name: string,
  endpoints: readonly PublishedEndpoint[],
): MemberRecord {
  const ports = [{ name: 'http', protocol: 'TCP' as const, port: 8080, appProtocol: 'http' }]
  const body: EndpointSliceBody = {
    kind: 'EndpointSlice',
    service,
    addressType: 'IPv4',
    ports,
    endpoints: [...endpoints],
  }
  return { namespace, name, body }
}

function endpoint(index: number, i: number, n = i): PublishedEndpoint {
  const [third, fourth] = [((index & 0x0f) << 4) + ((i >> 8) & 0x0f), i & 0xff]
  return {
    addresses: [`10.${(index >> 4) & 0xff}.${third}.${fourth}`],
    nodeName: `node-${n % 10}.cluster.example`,
    zone: `zone-${n % 3}`,
    conditions: { ready: true, serving: true, terminating: false },
  }
}

function gateway(cluster: string, index: number): MemberRecord {
  const publicKey = createHash('sha256').update(`gateway ${cluster}`).digest('base64')
  const address = `198.${18 + (index >> 15)}.${(index >> 8) & 0xff}.${index & 0xff}`
  const spec = {
    ...{ cluster, node: 'gw0', lane: 0, publicKey, capabilities: ['wireguard', 'all-pairs'] },
    candidates: [{ kind: 'public' as const, address, port: 4500 }],
  }
  return { namespace: '', name: `${cluster}.gw0-lane0`, body: { kind: 'Endpoint', spec } }
}
