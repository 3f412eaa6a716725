/** The two ends of a call, as `sealane explain FROM TO` takes them. Pure. */
import { formatAddress, isAddress, parseAddress } from '../../model/addresses/addresses.ts'
import { CLUSTERSET_ZONE, InvalidNameError, isDnsLabel, isDnsSubdomain, parseDnsName } from '../../model/model.ts'

export type PathFrom =
  | { readonly what: 'pod'; readonly namespace: string; readonly name: string }
  | { readonly what: 'node'; readonly name: string }
  | { readonly what: 'address'; readonly address: string }

export type PathTo = CalledPort &
  (
    | { readonly what: 'service'; readonly namespace: string; readonly name: string; readonly host?: DnsHost }
    | { readonly what: 'address'; readonly address: string }
  )

/** One pod of a headless service. */
export interface DnsHost {
  readonly hostname: string
  readonly cluster: string
}

export interface CalledPort {
  readonly protocol: 'tcp' | 'udp'
  readonly port?: number
}

const FROM_EXPECTED = 'NAMESPACE/POD, the name of a node, or an address'
const TO_EXPECTED =
  'SERVICE.NAMESPACE, HOSTNAME.CLUSTER.SERVICE.NAMESPACE or an address, then :PORT if wanted, then /udp if it is UDP'

/** Parses `NAMESPACE/POD`, `NODE` or an address. Throws InvalidNameError. */
export function parseFrom(text: string): PathFrom {
  if (isAddress(text)) return { what: 'address', address: formatAddress(parseAddress(text)) }
  const [first = '', pod, ...more] = text.split('/')
  if (more.length > 0) throw new InvalidNameError('FROM', text, FROM_EXPECTED)
  if (pod === undefined) {
    if (!isDnsSubdomain(first)) throw new InvalidNameError('FROM', text, FROM_EXPECTED)
    return { what: 'node', name: first }
  }
  if (!isDnsLabel(first) || !isDnsSubdomain(pod)) throw new InvalidNameError('FROM', text, FROM_EXPECTED)
  return { what: 'pod', namespace: first, name: pod }
}

/** Parses `web.shop`, its full name or an address, with `:80` and `/udp`. Throws InvalidNameError. */
export function parseTo(text: string): PathTo {
  const [, rest = '', protocol = 'tcp'] = /^(.*?)(?:\/(tcp|udp))?$/s.exec(text) ?? []
  const of = protocol === 'udp' ? 'udp' : 'tcp'
  if (isAddress(rest)) return { what: 'address', address: formatAddress(parseAddress(rest)), protocol: of }
  const [, place = '', digits] = /^(.*?)(?::(\d{1,5}))?$/s.exec(rest) ?? []
  const port = digits === undefined ? undefined : Number(digits)
  if (port !== undefined && (port < 1 || port > 65_535)) throw new InvalidNameError('port of TO', text, '1 to 65535')
  const called: CalledPort = { protocol: of, ...(port === undefined ? {} : { port }) }
  const address = place.startsWith('[') && place.endsWith(']') ? place.slice(1, -1) : place
  if (isAddress(address)) return { what: 'address', address: formatAddress(parseAddress(address)), ...called }
  return { ...parseName(place, text), ...called }
}

function parseName(place: string, text: string): Extract<PathTo, { what: 'service' }> {
  const short = place.replace(/\.$/, '').toLowerCase()
  const below = short.endsWith(`.${CLUSTERSET_ZONE}`) ? short : `${short.replace(/\.svc$/, '')}.svc.${CLUSTERSET_ZONE}`
  const name = parseDnsName(below)
  if (name.kind !== 'service' && name.kind !== 'endpoint') throw new InvalidNameError('TO', text, TO_EXPECTED)
  const { namespace, service } = name
  if (![namespace, service].every(isDnsLabel)) throw new InvalidNameError('TO', text, TO_EXPECTED)
  const host = name.kind === 'endpoint' ? { host: { hostname: name.hostname, cluster: name.cluster } } : {}
  return { what: 'service', namespace, name: service, ...host, protocol: 'tcp' }
}

export function fromText(from: PathFrom): string {
  if (from.what === 'pod') return `${from.namespace}/${from.name}`
  return from.what === 'node' ? from.name : from.address
}

export function toText(to: PathTo): string {
  const port = to.port === undefined ? '' : `:${to.port}`
  const end = `${port}${to.protocol === 'udp' ? '/udp' : ''}`
  if (to.what === 'address') return to.address.includes(':') && port !== '' ? `[${to.address}]${end}` : to.address + end
  const host = to.host === undefined ? '' : `${to.host.hostname}.${to.host.cluster}.`
  return `${host}${to.name}.${to.namespace}${end}`
}
