/** Records as messages carry them. */
import type { Endpoint, MemberRecord, ServiceExport } from '../../../protocol/gen/broker.ts'

/** An export in the namespace `shop`, with the text in an annotation. */
export function sayingRecord(name: string, says = ''): MemberRecord {
  const exportedAnnotations = says === '' ? [] : [{ key: 'says', value: says }]
  return exportRecord('shop', name, { type: 'Headless', ports: [], exportedAnnotations })
}

/** An export of a Service with port 80. */
export function exportRecord(namespace: string, name: string, change: Partial<ServiceExport> = {}): MemberRecord {
  const value: ServiceExport = {
    uid: `uid-${namespace}-${name}`,
    type: 'ClusterSetIP',
    ports: [{ name: 'http', protocol: 'TCP', port: 80 }],
    sessionAffinity: 'None',
    ipFamilies: ['IPv4'],
    exportedLabels: [],
    exportedAnnotations: [],
    ...change,
  }
  return { namespace, name, body: { body: { $case: 'serviceExport', value } } }
}

/** An endpoint of lane 0 with this WireGuard key. */
export function endpointRecord(
  cluster: string,
  node: string,
  publicKey: string,
  candidates: Endpoint['candidates'] = [],
): MemberRecord {
  const value: Endpoint = { cluster, node, lane: 0, publicKey, candidates, capabilities: [] }
  return { namespace: '', name: `${cluster}.${node}-lane0`, body: { body: { $case: 'endpoint', value } } }
}
