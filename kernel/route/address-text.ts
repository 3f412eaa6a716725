/** Canonical forms of addresses that are text in plans and listings. */
import { familyOf, formatAddress, formatPrefix, parseAddress, parsePrefix } from '../../model/addresses/addresses.ts'

/**
 * Returns an address in the form of listings (RFC 5952); IPv4 has only one form. Throws InvalidAddressError for invalid
 * IPv6.
 */
export function usualAddress(text: string): string {
  return familyOf(text) === 4 || isSurelyUsual(text) ? text : formatAddress(parseAddress(text))
}

/** Returns the canonical form of a CIDR. */
export function usualPrefix(text: string): string {
  return familyOf(text) === 4 ? text : formatPrefix(parsePrefix(text))
}

/** Returns the canonical form of address/length, in which host bits may be set. */
export function usualInterfaceAddress(text: string): string {
  const [host = '', length = ''] = text.split('/')
  return `${usualAddress(host)}/${length}`
}

const GROUPS = '[1-9a-f][0-9a-f]{0,3}(?::[1-9a-f][0-9a-f]{0,3}){0,5}'
const SHORTENED = new RegExp(`^${GROUPS}::(?:${GROUPS})?$`)

/**
 * True for most addresses: no group has a leading 0, and `::` replaces two or more groups. Parsing an address takes
 * twenty times as long as this test.
 */
function isSurelyUsual(text: string): boolean {
  return SHORTENED.test(text) && text.split(':').filter((group) => group !== '').length <= 6
}
