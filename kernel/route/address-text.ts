/** Usual forms of addresses that are text in plans and listings. */
import { familyOf, formatAddress, formatPrefix, parseAddress, parsePrefix } from '../../model/addresses/addresses.ts'

/** The form in which listings give it (RFC 5952); IPv4 has one form only. Throws InvalidAddressError for IPv6. */
export function usualAddress(text: string): string {
  return familyOf(text) === 4 || isSurelyUsual(text) ? text : formatAddress(parseAddress(text))
}

/** The same for a CIDR. */
export function usualPrefix(text: string): string {
  return familyOf(text) === 4 ? text : formatPrefix(parsePrefix(text))
}

/** The same for address/length, where bits of the host may be set. */
export function usualInterfaceAddress(text: string): string {
  const [host = '', length = ''] = text.split('/')
  return `${usualAddress(host)}/${length}`
}

const GROUPS = '[1-9a-f][0-9a-f]{0,3}(?::[1-9a-f][0-9a-f]{0,3}){0,5}'
const SHORTENED = new RegExp(`^${GROUPS}::(?:${GROUPS})?$`)

/** Most are: no group is 0 or begins with it, and `::` replaces two or more. Parsing one takes twenty times as long. */
function isSurelyUsual(text: string): boolean {
  return SHORTENED.test(text) && text.split(':').filter((group) => group !== '').length <= 6
}
