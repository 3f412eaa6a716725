/** The objects of bench:kube, and the code that writes many of them at once. */
import type { Json } from '../../test/kube/support/kube-request.ts'
import { LABEL_K8S_SERVICE_NAME } from '../../model/spec-constants.ts'

export const MCS = '/apis/multicluster.x-k8s.io/v1beta1'
export const DISCOVERY = '/apis/discovery.k8s.io/v1'
export const PROBES = '/apis/bench.sealane.io/v1'

/** The namespaces of single services, of many services, and of objects that are written without agents. */
export const SHOP = 'shop'
export const LOAD = 'load'
export const FLOOR = 'floor'

/** The number of endpoints of each of many services. */
export const ENDPOINTS = 10

/** A kind that only the benchmark watches, for the time that API servers take by themselves. */
export const PROBE_CRD = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'probes.bench.sealane.io' },
  spec: {
    group: 'bench.sealane.io',
    scope: 'Namespaced',
    names: { plural: 'probes', singular: 'probe', kind: 'Probe' },
    versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object' } } }],
  },
} as const

export const PROBE = { apiVersion: 'bench.sealane.io/v1', kind: 'Probe' } as const

const PORT = { name: 'http', protocol: 'TCP' } as const

export function namespaceObject(name: string): Json {
  return { apiVersion: 'v1', kind: 'Namespace', metadata: { name } }
}

/** The Service has no selector, so that the benchmark controls its endpoints. */
export function serviceObject(name: string): Json {
  return { apiVersion: 'v1', kind: 'Service', metadata: { name }, spec: { ports: [{ ...PORT, port: 80 }] } }
}

export function exportObject(name: string): Json {
  return { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', metadata: { name } }
}

/** A slice of `count` endpoints from the `first` address of 10.42.0.0/16 on. */
export function sliceObject(name: string, service: string, { first, count }: { first: number; count: number }): Json {
  const endpoints = Array.from({ length: count }, (_, i) => ({
    addresses: [podAddress(first + i)],
    conditions: { ready: true, serving: true, terminating: false },
    nodeName: `n${(first + i) % 50}`,
    zone: `z${(first + i) % 3}`,
  }))
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name, labels: { [LABEL_K8S_SERVICE_NAME]: service } },
    addressType: 'IPv4',
    ports: [{ ...PORT, port: 8080 }],
    endpoints,
  }
}

export function podAddress(number: number): string {
  return `10.42.${1 + Math.floor(number / 250)}.${1 + (number % 250)}`
}

/** Runs all works, `parallel` at once. */
export async function atOnce(works: readonly (() => Promise<unknown>)[], parallel = 16): Promise<void> {
  let next = 0
  const worker = async (): Promise<void> => {
    for (let work = works[next++]; work !== undefined; work = works[next++]) await work()
  }
  await Promise.all(Array.from({ length: parallel }, worker))
}
