/** The two ends of a call, as `sealane access check FROM TO` takes them. Pure. */
import { type Address, InvalidAddressError, isAddress, parseAddressPort } from '../../../model/addresses/addresses.ts'
import { InvalidNameError, isDnsLabel, isDnsSubdomain, parseClusterId, parseDnsLabel } from '../../../model/model.ts'

export interface Caller {
  readonly cluster: string
  readonly namespace?: string
  /** Rules end at namespaces: the name of a pod changes nothing. */
  readonly pod?: string
}

export type Called =
  | { readonly what: 'service'; readonly namespace: string; readonly name: string; readonly port?: number }
  | { readonly what: 'address'; readonly address: Address; readonly port: number }

/** Parses `CLUSTER[/NAMESPACE[/POD]]`. Throws InvalidNameError. */
export function parseCaller(text: string): Caller {
  const [id = '', namespace, pod, ...more] = text.split('/')
  if (more.length > 0) throw new InvalidNameError('FROM', text, 'CLUSTER, CLUSTER/NAMESPACE or CLUSTER/NAMESPACE/POD')
  if (pod !== undefined && !isDnsSubdomain(pod)) throw new InvalidNameError('FROM', pod, 'the name of a pod')
  return {
    cluster: parseClusterId(id, 'FROM'),
    ...(namespace === undefined ? {} : { namespace: parseDnsLabel(namespace, 'namespace of FROM') }),
    ...(pod === undefined ? {} : { pod }),
  }
}

const EXPECTED = 'SERVICE.NAMESPACE, SERVICE.NAMESPACE:PORT, or the address of a pod with a port such as 10.42.0.7:80'

/** Throws InvalidNameError or InvalidAddressError. */
export function parseCalled(text: string): Called {
  if (isAddress(text) || isAddress(text.replace(/:\d*$/, '')) || text.startsWith('[')) {
    return { what: 'address', ...parseAddressPort(text, 'TO') }
  }
  const [, name = '', namespace = '', digits] = /^([^.:]+)\.([^.:]+)(?::(.*))?$/s.exec(text) ?? []
  if (!isDnsLabel(name) || !isDnsLabel(namespace)) throw new InvalidNameError('TO', text, EXPECTED)
  if (digits === undefined) return { what: 'service', namespace, name }
  const port = /^\d{1,5}$/.test(digits) ? Number(digits) : 0
  if (port < 1 || port > 65_535) throw new InvalidAddressError('port of TO', digits, '1 to 65535')
  return { what: 'service', namespace, name, port }
}
