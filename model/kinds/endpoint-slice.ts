/** The description of EndpointSlice. */
import type { z } from 'zod'
import { PROTOCOLS, addressIn, isDnsSubdomain } from '../values/values.ts'
import {
  byDefault,
  choice,
  dnsLabel,
  dnsSubdomain,
  flag,
  list,
  map,
  nameOrNone,
  portNumber,
  relied,
  text,
} from './fields.ts'

const PORT = map({
  name: text().optional(),
  protocol: byDefault(relied(choice(PROTOCOLS)), 'TCP'),
  /** The target port, on which the pod listens. */
  port: relied(portNumber()).optional(),
  appProtocol: text().optional(),
})

const ENDPOINT = map({
  addresses: list(text()),
  hostname: nameOrNone(dnsLabel()).optional(),
  nodeName: dnsSubdomain().optional(),
  zone: text().optional(),
  /** The zones that the endpoint is meant for; if absent, it is meant for its own zone. */
  hints: map({ forZones: list(map({ name: text() })).optional() }).optional(),
  /** The object that has this address. Imported slices have none: it would name an object of another cluster. */
  targetRef: map({ kind: text().optional(), name: text().optional(), uid: text().optional() }).optional(),
  conditions: map({
    ready: flag().optional(),
    serving: flag().optional(),
    terminating: flag().optional(),
  }).optional(),
})

/** discovery.k8s.io/v1. Imported slices carry LABEL_SERVICE_NAME and LABEL_SOURCE_CLUSTER. */
export const ENDPOINT_SLICE_FIELDS = map({
  addressType: relied(choice(['IPv4', 'IPv6', 'FQDN'])),
  endpoints: list(ENDPOINT).optional(),
  ports: list(PORT).optional(),
})

/** The rule of discovery.k8s.io/v1 about the slice as a whole: 1 to 100 addresses, all of the slice's own type. */
export function checkSlice(slice: z.output<typeof ENDPOINT_SLICE_FIELDS>, context: z.RefinementCtx): void {
  for (const [i, { addresses }] of (slice.endpoints ?? []).entries()) {
    const path = ['endpoints', i, 'addresses']
    if (addresses.length < 1 || addresses.length > 100)
      context.addIssue({ code: 'custom', path, message: '1 to 100 addresses' })
    for (const [j, address] of addresses.entries()) {
      if (fitsType(slice.addressType, address)) continue
      const message = slice.addressType === 'FQDN' ? 'a DNS name' : `an ${slice.addressType} address`
      context.addIssue({ code: 'custom', path: [...path, j], message })
    }
  }
}

function fitsType(type: 'IPv4' | 'IPv6' | 'FQDN', address: string): boolean {
  return type === 'FQDN' ? isDnsSubdomain(address) : addressIn(address, type) !== undefined
}
