/** What the limits of servers count as one source. */
import { isIP } from 'node:net'

/**
 * Takes the remote address of a socket, as Node writes it; undefined for one that has closed. Gives an IPv4 address as it
 * is, also where a socket of both families states it (::ffff:192.0.2.1), and of an IPv6 address its /64: one host has all
 * addresses of such a network (RFC 4291 section 2.5.4). Gives any other text as it is. Never throws.
 */
export function sourceKey(remoteAddress: string | undefined): string {
  const address = (remoteAddress ?? '').replace(/^::ffff:(?=\d+\.)/i, '').replace(/%.*$/, '')
  if (isIP(address) !== 6) return address
  const [head = [], tail] = address.split('::').map(groupsOf)
  const zeros = tail === undefined ? [] : Array.from({ length: GROUPS - head.length - tail.length }, () => '0')
  const network = [...head, ...zeros, ...(tail ?? [])].slice(0, GROUPS / 2)
  return `${network.map((group) => Number.parseInt(group, 16).toString(16)).join(':')}::/64`
}

const GROUPS = 8

/** The last two groups may be written as IPv4. They are no part of a /64. */
function groupsOf(text: string): readonly string[] {
  return text.split(':').flatMap((group) => (group === '' ? [] : group.includes('.') ? ['0', '0'] : [group]))
}
