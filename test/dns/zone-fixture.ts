/** The clusterset of the worked examples: clusters east and west, queried in west. */
import type {
  EndpointPort,
  EndpointSlice,
  Gateway,
  ImportPort,
  ServiceImport,
  SliceEndpoint,
} from '../../model/objects.ts'
import { type Family, familyName } from '../../model/values/ip.ts'
import { LABEL_SERVICE_NAME, LABEL_SOURCE_CLUSTER } from '../../model/spec-constants.ts'
import { MemoryApi, type MemoryApiInit } from '../../kubeapi/memory/memory-api.ts'
import { ServiceIndex } from '../../dns/zone/service-index.ts'
import { connectionTo, gatewayObject } from '../support/objects/node-objects.ts'
import { importObject, sliceObject } from '../support/objects/service-objects.ts'

export function clusterSetIp(name: string, ips: readonly string[], ports: readonly ImportPort[]): ServiceImport {
  return importObject({ name }, { type: 'ClusterSetIP', ips, ports })
}

export function headless(name: string, ports: readonly ImportPort[]): ServiceImport {
  return importObject({ name }, { ports })
}

export function slice(
  service: string,
  cluster: string,
  endpoints: readonly SliceEndpoint[],
  ports: readonly EndpointPort[] = [],
  family: Family = 4,
): EndpointSlice {
  const labels = { [LABEL_SERVICE_NAME]: service, [LABEL_SOURCE_CLUSTER]: cluster }
  const name = `${service}-${cluster}-v${family}`
  return sliceObject({ name, labels }, { addressType: familyName(family), endpoints, ports })
}

/** Returns a Gateway object whose lanes to the clusters in `up` are up. */
export function gateway(up: readonly string[], down: readonly string[] = []): Gateway {
  const connections = [...up.map((one) => connectionTo(one, 'up')), ...down.map((one) => connectionTo(one, 'down'))]
  return gatewayObject('gw', { connections })
}

const PG: ImportPort = { name: 'pg', protocol: 'TCP', port: 5432 }

export function workedExamples(init: MemoryApiInit = {}): MemoryApi {
  const api = new MemoryApi(init)
  const objects = [
    clusterSetIp(
      'web',
      ['243.0.0.7'],
      [
        { name: 'http', protocol: 'TCP', port: 80 },
        { name: 'https', protocol: 'TCP', port: 443 },
      ],
    ),
    headless('db', [PG]),
    slice(
      'db',
      'east',
      [
        { addresses: ['10.1.0.5'], hostname: 'db-0', conditions: { ready: true } },
        { addresses: ['10.1.0.6'], hostname: 'db-1' },
      ],
      [PG],
    ),
    slice(
      'db',
      'west',
      [
        { addresses: ['10.2.0.9'], hostname: 'db-0', conditions: { ready: true } },
        { addresses: ['10.2.0.10'], hostname: 'db-1', conditions: { ready: false } },
      ],
      [PG],
    ),
    headless('raw', [{ protocol: 'TCP', port: 9000 }]),
    slice('raw', 'east', [{ addresses: ['10.1.0.8'] }], [{ port: 9000 }]),
    headless('idle', [PG]),
    slice('idle', 'east', [{ addresses: ['10.1.0.9'], hostname: 'idle-0', conditions: { ready: false } }], [PG]),
    headless('dual', [
      PG,
      { name: 'metrics', protocol: 'TCP', port: 5432 },
      { name: 'gone', protocol: 'TCP', port: 1 },
    ]),
    slice('dual', 'east', [{ addresses: ['10.1.0.20'], hostname: 'd' }], [PG, { name: 'metrics', port: 5432 }]),
    slice('dual', 'east', [{ addresses: ['fd00:1::20'], hostname: 'd' }], [PG], 6),
    clusterSetIp('both', ['243.0.0.8', 'fd00:ffff::8'], [{ name: 'dns', protocol: 'UDP', port: 53 }]),
    clusterSetIp('pending', [], []),
  ]
  for (const object of objects) api.put(object)
  return api
}

/** Returns an index that follows the cluster and has synced. */
export async function syncedIndex(api: MemoryApi, clusterId = 'west'): Promise<ServiceIndex> {
  const index = new ServiceIndex({ clusterId, nameServers: { a: ['10.2.0.53'], aaaa: [] }, serial: 100 })
  index.follow(api)
  const signal = AbortSignal.timeout(5000)
  for (const kind of ['ServiceImport', 'EndpointSlice', 'Gateway'] as const) await api.cache(kind).whenSynced(signal)
  return index
}
