/** What WireGuard says of a peer, as text, in the forms that states have. */
import { type AddressPort, parseAddressPort } from '../../model/addresses/address-port.ts'
import { formatPrefix, parsePrefix } from '../../model/addresses/ip.ts'

/**
 * The zone of a link-local address is left out: such a peer is reported, and never called from here. Throws
 * InvalidAddressError.
 */
export function readEndpoint(text: string): AddressPort {
  return parseAddressPort(text.replace(/%[^\]]*/, ''), 'endpoint', { allowZero: true })
}

/** Sorted. Throws InvalidAddressError. */
export function readPrefixes(texts: readonly string[]): readonly string[] {
  return texts.map((text) => formatPrefix(parsePrefix(text))).sort()
}
