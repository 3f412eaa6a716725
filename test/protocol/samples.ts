/** Short records to publish. */
import type { MemberRecord } from '../../model/records.ts'
import { memberKey, memberKeyText } from '../../protocol/codec/content-hash.ts'

export function slice(name: string, address = '10.42.0.7', namespace = 'shop'): MemberRecord {
  return {
    namespace,
    name,
    body: {
      kind: 'EndpointSlice',
      service: 'web',
      addressType: 'IPv4',
      ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
      endpoints: [{ addresses: [address], conditions: { ready: true } }],
    },
  }
}

export function byKey(...records: MemberRecord[]): Map<string, MemberRecord> {
  return new Map(records.map((record) => [memberKeyText(memberKey(record)), record]))
}

export const FACTS = {
  podCIDRs: ['10.42.0.0/16'],
  serviceCIDRs: ['10.43.0.0/16'],
  labels: { region: 'eu' },
  version: '0.1.0',
}
