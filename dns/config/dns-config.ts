/** Configuration of the DNS server. compose/site/dns.ts fills it from site.yaml. */
import {
  type AddressPort,
  formatAddressPort,
  isListenPlace,
  parseAddressPort,
  parsePrefix,
  sameAddressPort,
} from '../../model/addresses/addresses.ts'
import { HEARTBEAT_MS } from '../../model/lanes/lanes.ts'
import { UserError } from '../../runtime/runtime.ts'

export const DNS_PORT = 53

export type SocketAddress = AddressPort

export interface DnsConfig {
  /** Id of the cluster that this server runs in. */
  readonly clusterId: string
  /** Addresses to listen on, each over UDP and TCP. Port 0 selects a free port. */
  readonly listen: readonly SocketAddress[]
  /** Servers to query for names outside clusterset.local, in order of preference. If empty, such names are REFUSED. */
  readonly upstreams: readonly SocketAddress[]
  /**
   * CIDRs of this site. Queries are forwarded for clients in them, for this machine, and for the networks of its
   * interfaces and the nodes.
   */
  readonly forwardFor: readonly string[]
  /** Timeout of one upstream. */
  readonly upstreamTimeoutMs: number
  /** Maximum number of concurrent queries to the upstreams. Further ones get SERVFAIL. */
  readonly maxForwards: number
  /** Forwarded queries that one client may send per second; twice as many after a pause. */
  readonly clientForwardsPerSecond: number
  /** Maximum number of open TCP connections. A new one closes the one that has been idle for longest. */
  readonly maxConnections: number
  /** How long a TCP connection may be idle. RFC 7766 section 6.2.3. */
  readonly idleTimeoutMs: number
  /**
   * True if several nodes run this server, and each listens where it can. A missing address or a port that is taken
   * then neither ends the server nor makes it unready.
   */
  readonly spread: boolean
  /** Pause before retrying a listen address that the node does not have yet. */
  readonly listenRetryMs: number
  /**
   * How long a process that has not read its objects delays listening if no other process serves the port. If one does,
   * it waits until the objects are read.
   */
  readonly syncWaitMs: number
  /** Maximum time for preparing answers before the server listens; 0 prepares none. */
  readonly warmUpMs: number
  /** How long a process serves after its SIGTERM; with 0 it closes at once. */
  readonly lingerMs: number
  /** SO_REUSEPORT: a new process can take over before the old one has ended. */
  readonly reusePort: boolean
  /**
   * Reads and sends many datagrams with one system call, if this Node supports it. False: one datagram for each call.
   */
  readonly batch: boolean
  /** The longest interval at which gateways of this cluster write their status. */
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

/** The form that people write: `dns.listen` and `dns.upstreams` of site.yaml, and overrides of the other settings. */
export interface DnsConfigInput extends Partial<Omit<DnsConfig, 'listen' | 'upstreams'>> {
  readonly clusterId: string
  readonly listen: readonly string[]
  readonly upstreams?: readonly string[]
}

/** Throws UserError or InvalidAddressError. The message names the field, the value and what was expected. */
export function dnsConfig(input: DnsConfigInput): DnsConfig {
  const listen = input.listen.map((text, i) =>
    parseAddressPort(text, `dns.listen[${i}]`, { defaultPort: DNS_PORT, allowZero: true }),
  )
  for (const [i, text] of (input.forwardFor ?? []).entries()) parsePrefix(text, `dns.forwardFor[${i}]`)
  const upstreams = (input.upstreams ?? []).map((text, i) =>
    parseAddressPort(text, `dns.upstreams[${i}]`, { defaultPort: DNS_PORT }),
  )
  if (listen.length === 0) throw new UserError('dns.listen: expected at least one address:port', { exitCode: 2 })
  // 0.0.0.0:53 beside 10.42.0.1:53 works, so a site that has both starts. The check of a site refuses it.
  for (const [i, own] of listen.entries()) {
    const first = listen.findIndex((other) => own.port !== 0 && sameAddressPort(other, own))
    if (first < 0 || first >= i) continue
    const taken = `dns.listen[${first}] ${formatSocketAddress(listen[first] ?? own)}`
    const text = `dns.listen[${i}] ${formatSocketAddress(own)}: expected an address:port of its own, beside ${taken}`
    throw new UserError(text, { exitCode: 2 })
  }
  for (const [i, upstream] of upstreams.entries()) {
    if (listen.some((own) => isListenPlace(own, upstream))) {
      throw new UserError(`dns.upstreams[${i}] ${formatSocketAddress(upstream)}: this server listens there itself`)
    }
  }
  return { ...DNS_DEFAULTS, ...input, listen, upstreams }
}

export const formatSocketAddress = formatAddressPort
