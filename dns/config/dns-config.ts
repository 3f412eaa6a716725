/** Configuration of the DNS server. compose/site/dns.ts fills it from site.yaml. */
import { type AddressPort, formatAddressPort, parseAddressPort, parsePrefix } from '../../model/addresses/addresses.ts'
import { HEARTBEAT_MS } from '../../model/lanes/lanes.ts'
import { UserError } from '../../runtime/runtime.ts'

export const DNS_PORT = 53

export type SocketAddress = AddressPort

export interface DnsConfig {
  /** Id of the cluster that this server works in. */
  readonly clusterId: string
  /** Where to listen, UDP and TCP on each. Port 0 takes a free one. */
  readonly listen: readonly SocketAddress[]
  /** Who is asked for names outside clusterset.local, first one first. Empty: such names are REFUSED. */
  readonly upstreams: readonly SocketAddress[]
  /** CIDRs of this site: clients from there, this machine, the networks of its interfaces and nodes are forwarded. */
  readonly forwardFor: readonly string[]
  /** How long one upstream may take. */
  readonly upstreamTimeoutMs: number
  /** Questions under way to the upstreams at most; the next ones get SERVFAIL. */
  readonly maxForwards: number
  /** Questions for upstreams that one client may ask in a second; twice as many after a pause. */
  readonly clientForwardsPerSecond: number
  /** Open TCP connections at most; a new one ends the one that was quiet longest. */
  readonly maxConnections: number
  /** How long a TCP connection may be quiet. RFC 7766 section 6.2.3. */
  readonly idleTimeoutMs: number
  /**
   * Several nodes run this server, and each listens where it can: neither an address that the node does not have nor a
   * port that is taken ends it, or keeps it from being ready.
   */
  readonly spread: boolean
  /** Pause before a listen address that the node does not have yet is tried again. */
  readonly listenRetryMs: number
  /**
   * How long a process that has not read its objects waits for them before it listens, where nobody else is on the
   * port; where somebody is, it waits until they are read.
   */
  readonly syncWaitMs: number
  /** How long before it listens answers are made ready at most; 0: none. */
  readonly warmUpMs: number
  /** How long a process goes on serving after its SIGTERM; 0: it closes at once. */
  readonly lingerMs: number
  /** SO_REUSEPORT: a new process may take over before the old one has gone. */
  readonly reusePort: boolean
  /** Many datagrams by one system call, where this Node can. False: one by one. */
  readonly batch: boolean
  /** How often gateways of this cluster write their status at least. */
  readonly heartbeatMs: number
}

export const DNS_DEFAULTS = {
  upstreams: [],
  forwardFor: [],
  upstreamTimeoutMs: 1500,
  maxForwards: 512,
  clientForwardsPerSecond: 5000,
  maxConnections: 256,
  idleTimeoutMs: 10_000,
  spread: false,
  listenRetryMs: 1000,
  syncWaitMs: 1000,
  warmUpMs: 300,
  lingerMs: 100,
  reusePort: true,
  batch: true,
  heartbeatMs: HEARTBEAT_MS,
} as const satisfies Partial<DnsConfig>

/** What people write: `dns.listen` and `dns.upstreams` of site.yaml, and overrides of the other settings. */
export interface DnsConfigInput extends Partial<Omit<DnsConfig, 'listen' | 'upstreams'>> {
  readonly clusterId: string
  readonly listen: readonly string[]
  readonly upstreams?: readonly string[]
}

/** Throws UserError or InvalidAddressError; the message names the field, the value and what was expected. */
export function dnsConfig(input: DnsConfigInput): DnsConfig {
  const listen = input.listen.map((text, i) =>
    parseAddressPort(text, `dns.listen[${i}]`, { defaultPort: DNS_PORT, allowZero: true }),
  )
  for (const [i, text] of (input.forwardFor ?? []).entries()) parsePrefix(text, `dns.forwardFor[${i}]`)
  const upstreams = (input.upstreams ?? []).map((text, i) =>
    parseAddressPort(text, `dns.upstreams[${i}]`, { defaultPort: DNS_PORT }),
  )
  if (listen.length === 0) throw new UserError('dns.listen: expected at least one address:port', { exitCode: 2 })
  for (const [i, upstream] of upstreams.entries()) {
    if (listen.some((own) => isSamePlace(own, upstream))) {
      throw new UserError(`dns.upstreams[${i}] ${formatSocketAddress(upstream)}: this server listens there itself`)
    }
  }
  return { ...DNS_DEFAULTS, ...input, listen, upstreams }
}

export const formatSocketAddress = formatAddressPort

function isSamePlace(own: SocketAddress, other: SocketAddress): boolean {
  if (own.port !== other.port || own.address.family !== other.address.family) return false
  // A server on the unspecified address also answers on every address of this node; loopback is the one known here.
  const isLoopback = other.address.family === 4 ? other.address.value >> 24n === 127n : other.address.value === 1n
  return own.address.value === other.address.value || (own.address.value === 0n && isLoopback)
}
