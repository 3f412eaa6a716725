/** Records, a world and a readable plan for the tests of imports. */
import { type ImportPlan, type ImportWorld, newImportMemory, planImports } from '../../agent/import/plan-imports.ts'
import type { ClusterId } from '../../model/ids.ts'
import { parsePrefix } from '../../model/values/ip.ts'
import type { ClusterSpec, ServiceImport } from '../../model/objects.ts'
import type { EndpointSliceBody, RecordBody, ServiceExportBody, StoredRecord } from '../../model/records.ts'
import { importObject } from '../support/objects/service-objects.ts'
import { showImport, showSlice } from './site.ts'

export const RANGE = parsePrefix('245.0.0.0/16')
export const PUBLIC_KEY = Buffer.alloc(32, 7).toString('base64')
export const INIT = { allowedNamespaces: [] }
export const OWN: ClusterSpec = {
  id: 'tokyo',
  index: 3,
  podCIDRs: ['10.42.0.0/16'],
  serviceCIDRs: ['10.43.0.0/16'],
  globalCIDRs: ['244.3.0.0/16'],
  labels: {},
}

export function record(cluster: string, name: string, body: RecordBody, createdAtMs = 1): StoredRecord {
  const namespace = body.kind === 'Cluster' || body.kind === 'Endpoint' ? '' : 'shop'
  return { key: { cluster: cluster as ClusterId, kind: body.kind, namespace, name }, revision: 1, createdAtMs, body }
}

export function cluster(id: string, podCIDRs: string[], globalCIDRs: string[]): StoredRecord {
  return record(id, id, { kind: 'Cluster', spec: { ...OWN, id, podCIDRs, globalCIDRs } })
}

export function exported(from: string, change: Partial<ServiceExportBody> = {}, createdAtMs = 1): StoredRecord {
  return record(
    from,
    'web',
    {
      kind: 'ServiceExport',
      uid: 'u',
      type: 'ClusterSetIP',
      ports: [{ name: 'http', protocol: 'TCP', port: 80 }],
      sessionAffinity: 'None',
      ipFamilies: ['IPv4'],
      exportedLabels: {},
      exportedAnnotations: {},
      ...change,
    },
    createdAtMs,
  )
}

export function sliceOf(from: string, addresses: string, change: Partial<EndpointSliceBody> = {}): StoredRecord {
  return record(from, 'web-1', {
    kind: 'EndpointSlice',
    service: 'web',
    addressType: 'IPv4',
    ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
    endpoints: addresses
      .split(' ')
      .filter(Boolean)
      .map((address) => ({ addresses: [address], nodeName: 'n', zone: 'z' })),
    ...change,
  })
}

export const IP = record('', 'web', { kind: 'ClusterSetIP', ips: ['245.0.0.7'] })
export const MILANO = cluster('milano', ['10.42.0.0/16'], ['244.1.0.0/16'])
export const FLAT = cluster('flat', ['10.99.0.0/16'], [])

export function world(records: StoredRecord[], change: Partial<ImportWorld> = {}): ImportWorld {
  return {
    own: 'tokyo',
    ownSpec: OWN,
    records,
    certain: new Set(['', 'tokyo', 'milano', 'flat']),
    holds: () => true,
    namespaces: new Set(['shop']),
    ownFacts: { stated: undefined, local: OWN, globalRange: '244.0.0.0/8' },
    ownKnown: false,
    ownExport: () => undefined,
    serviceImport: () => undefined,
    clusters: new Map([['tokyo', OWN]]),
    clustersetIpRange: RANGE,
    needed: [],
    expired: new Set(),
    ...change,
  }
}

export function plan(records: StoredRecord[], change: Partial<ImportWorld> = {}): ImportPlan {
  return planImports(world(records, change), newImportMemory(INIT))
}

export function show({ objects, services }: ImportPlan): string[] {
  return [...objects.values()].map((object) => {
    if (object.kind === 'ServiceImport') {
      const service = services.get(`ServiceImport/${object.metadata.namespace}/${object.metadata.name}`)!
      const conditions = [{ ...service.ready, lastTransitionTime: '' }]
      return showImport({
        ...object,
        status: { clusters: service.clusters.map((id) => ({ cluster: id })), conditions },
      })
    }
    return object.kind === 'EndpointSlice' ? showSlice(object) : `${object.kind} ${object.metadata.name}`
  })
}

export const PRESENT: ServiceImport = {
  ...importObject(
    { name: 'web', labels: { 'app.kubernetes.io/managed-by': 'sealane' } },
    {
      type: 'ClusterSetIP',
      ports: [{ name: 'old', protocol: 'TCP', port: 80 }],
      ips: ['245.0.0.7'],
      ipFamilies: ['IPv4'],
    },
  ),
  status: { clusters: [{ cluster: 'flat' }, { cluster: 'milano' }] },
}
