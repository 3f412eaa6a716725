/**
 * Formats records and answers as zone-file text (RFC 1035 section 5), one line for each record, for tests and
 * /debug/plan. Pure.
 */
import type { ZoneName } from '../../model/model.ts'
import { type DnsAnswer, type DnsRecord, type DnsService, type ZoneView, answer } from './answer.ts'
import { TYPE_A, TYPE_AAAA, TYPE_SRV } from '../message/message.ts'

/** Returns `owner ttl IN type rdata`. */
export function formatRecord(record: DnsRecord): string {
  return `${record.owner} ${record.ttl} IN ${record.type} ${rdata(record)}`
}

function rdata(record: DnsRecord): string {
  switch (record.type) {
    case 'A':
    case 'AAAA':
      return record.address
    case 'NS':
      return record.target
    case 'TXT':
      return JSON.stringify(record.text)
    case 'SRV':
      return `${record.priority} ${record.weight} ${record.port} ${record.target}`
    case 'SOA': {
      const { primary, admin, serial, refresh, retry, expire, minimum } = record
      return `${primary} ${admin} ${serial} ${refresh} ${retry} ${expire} ${minimum}`
    }
  }
}

/**
 * Returns the records, or a comment line with the response code and the SOA of the authority section, if there is one.
 */
export function formatAnswer(answer: DnsAnswer): string {
  switch (answer.kind) {
    case 'answer':
      return answer.records.map(formatRecord).join('\n')
    case 'noData':
      return `; NODATA\n${formatRecord(answer.soa)}`
    case 'nxDomain':
      return `; NXDOMAIN\n${formatRecord(answer.soa)}`
    case 'servFail':
      return '; SERVFAIL'
  }
}

/** Returns every record of the given services, one line each. */
export function printZone(zone: ZoneView, services: readonly DnsService[]): string {
  if (!zone.synced) return formatAnswer({ kind: 'servFail' })
  return services
    .flatMap((service) => {
      const { namespace, name } = service
      const hosts = service.hosts.map(({ cluster, hostname }): ZoneName => ({
        kind: 'endpoint',
        namespace,
        service: name,
        cluster,
        hostname,
      }))
      const names: ZoneName[] = [{ kind: 'service', namespace, service: name }, ...hosts]
      return names.flatMap((owner) => PRINTED_TYPES.map((type) => answer(zone, { name: owner, type }, 0)))
    })
    .flatMap((result) => (result.kind === 'answer' ? [formatAnswer(result)] : []))
    .join('\n')
}

const PRINTED_TYPES = [TYPE_A, TYPE_AAAA, TYPE_SRV]
