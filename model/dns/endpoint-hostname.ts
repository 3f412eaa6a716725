/** The DNS label of an endpoint inside a headless service (KEP-1645 specification.md). Pure. */
import { isDnsLabel } from '../ids.ts'
import type { SliceEndpoint } from '../objects.ts'

/**
 * The endpoint's own hostname where it is a DNS label, else its first address with '-' for '.' and ':'. The address
 * must be the one its own cluster uses, so that the name is the same seen from everywhere. Undefined without address.
 */
export function endpointHostname(endpoint: Pick<SliceEndpoint, 'hostname' | 'addresses'>): string | undefined {
  const { hostname, addresses } = endpoint
  if (hostname !== undefined && isDnsLabel(hostname)) return hostname
  return addresses[0] === undefined ? undefined : dashedAddress(addresses[0])
}

/** `10.1.0.8` as `10-1-0-8`. A label neither begins nor ends with '-', so `fd00::` becomes `fd00--0`. */
export function dashedAddress(text: string): string {
  const dashed = text.toLowerCase().replaceAll(/[.:]/g, '-')
  return `${dashed.startsWith('-') ? '0' : ''}${dashed}${dashed.endsWith('-') ? '0' : ''}`
}
