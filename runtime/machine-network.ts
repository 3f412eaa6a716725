/** The network of this machine or pod, read from the kernel and resolv.conf each time. */
import { readFile } from 'node:fs/promises'
import { isIP } from 'node:net'
import { networkInterfaces } from 'node:os'

/** The kernel's IPv4 routes in the main table: addresses are little-endian hexadecimal numbers (proc(5)). */
const ROUTES = '/proc/net/route'
const RESOLVER = '/etc/resolv.conf'

export interface MachineNetwork {
  /** Addresses of its interfaces, with the prefix length. */
  readonly interfaces: readonly string[]
  /** Next hops of its default routes; IPv4 only. */
  readonly nextHops: readonly string[]
  /** Name servers in its resolv.conf. */
  readonly nameServers: readonly string[]
}

/** Never rejects: what cannot be read is left empty, as on a system other than Linux. */
export async function readMachineNetwork(): Promise<MachineNetwork> {
  const [routes, resolver] = await Promise.all([readText(ROUTES), readText(RESOLVER)])
  return {
    interfaces: interfaceNetworks(),
    nextHops: nextHops(routes, isDefault),
    nameServers: nameServers(resolver),
  }
}

/** Returns the addresses of its interfaces with the prefix length: `10.0.0.7/24`. */
export function interfaceNetworks(): string[] {
  const interfaces = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? [])
  return interfaces.flatMap(({ cidr }) => cidr ?? [])
}

/**
 * Returns the source addresses that only this machine uses, or a neighbour that forwards with its own address: the IPv4
 * addresses of the interfaces, and the next hops of the routes. Never rejects.
 */
export async function nearAddresses(): Promise<readonly string[]> {
  const own = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? [])
  const ownIpv4 = own.filter(({ family }) => family === 'IPv4').map(({ address }) => address)
  return [...new Set([...ownIpv4, ...nextHops(await readText(ROUTES))])]
}

/**
 * Returns the IPv4 next hops of all routes, or of those for which `counts` is true. Takes the text of /proc/net/route.
 */
export function nextHops(text: string, counts: (fields: readonly string[]) => boolean = () => true): string[] {
  const rows = text.split('\n').map((line) => line.split(/\s+/))
  const hops = rows.filter(counts).map((fields) => fields[2] ?? '')
  return [...new Set(hops.filter((hex) => /^[0-9A-F]{8}$/.test(hex) && hex !== '00000000').map(dotted))]
}

function isDefault(fields: readonly string[]): boolean {
  return fields[1] === '00000000' && fields[7] === '00000000'
}

/** Takes the text of resolv.conf(5). */
export function nameServers(text: string): string[] {
  const found = text.split('\n').flatMap((line) => /^\s*nameserver\s+(\S+)/.exec(line)?.[1] ?? [])
  return [...new Set(found.map((address) => address.split('%')[0] ?? '').filter((address) => isIP(address) !== 0))]
}

/** Returns '' if the file cannot be read. */
function readText(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => '')
}

function dotted(hex: string): string {
  const octets = [6, 4, 2, 0].map((at) => parseInt(hex.slice(at, at + 2), 16))
  return octets.join('.')
}
