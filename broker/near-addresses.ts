/** Addresses from which nobody calls who is not this machine, or has been handed on by a neighbour in its own name. */
import { readFile } from 'node:fs/promises'
import { networkInterfaces } from 'node:os'

/** The kernel's IPv4 routes of the main table: addresses are little-endian hexadecimal numbers (proc(5)). */
const ROUTES = '/proc/net/route'

/** IPv4 addresses of the interfaces, and of the next hops of the routes. */
export async function nearAddresses(): Promise<readonly string[]> {
  const own = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? [])
  // No such file where the kernel is not Linux: then only the own ones are known.
  const routes = await readFile(ROUTES, 'utf8').catch(() => '')
  const all = [...own.filter(({ family }) => family === 'IPv4').map(({ address }) => address), ...nextHops(routes)]
  return [...new Set(all)]
}

/** Takes the text of /proc/net/route. */
export function nextHops(text: string): string[] {
  const fields = text.split('\n').map((line) => line.split(/\s+/)[2] ?? '')
  return fields.filter((hex) => /^[0-9A-F]{8}$/.test(hex) && hex !== '00000000').map(dotted)
}

function dotted(hex: string): string {
  const octets = [6, 4, 2, 0].map((at) => parseInt(hex.slice(at, at + 2), 16))
  return octets.join('.')
}
