/** Addresses from which nobody calls who is not this machine, or has been handed on by a neighbour in its own name. */
import { networkInterfaces } from 'node:os'
import { nextHops, readText } from '../../runtime/machine-network.ts'

/** IPv4 addresses of the interfaces, and of the next hops of the routes. */
export async function nearAddresses(): Promise<readonly string[]> {
  const own = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? [])
  const routes = await readText('/proc/net/route')
  const all = [...own.filter(({ family }) => family === 'IPv4').map(({ address }) => address), ...nextHops(routes)]
  return [...new Set(all)]
}
