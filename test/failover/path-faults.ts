/** Faults of a router between two gateways: it carries only small packets, or translates a site to another address. */
import type { Netns } from '../support/netns.ts'
import type { SiteNode } from './sites.ts'

/** Routers that send no ICMP error for a packet that is too long. */
const MUTE = `table ip mute
delete table ip mute
table ip mute {
  chain out { type filter hook output priority filter; icmp type destination-unreachable icmp code frag-needed drop; }
}`

/** A network of the router: `192.0.10` and the router's device there. */
type Network = Pick<SiteNode, 'network' | 'port'>

/** From now on the router silently drops longer packets to these networks. */
export async function narrow(router: Netns, networks: readonly Network[], octets: number): Promise<void> {
  await router.exec('nft', ['-f', '-'], { input: MUTE })
  for (const { network, port } of networks)
    await router.exec('ip', ['route', 'replace', `${network}.0/24`, 'dev', port, 'mtu', String(octets)])
}

export async function widen(router: Netns, networks: readonly Network[]): Promise<void> {
  for (const { network, port } of networks)
    await router.exec('ip', ['route', 'replace', `${network}.0/24`, 'dev', port])
}

/** The address at which a site is seen from outside. */
export interface Mapping {
  readonly address: string
  readonly port: number
}

export interface TranslationInit {
  /** The address of the gateway behind the translation. */
  readonly inside: string
  /** The router's device to the other site. */
  readonly device: string
  readonly mapping: Mapping
}

/**
 * Translates the lane of a gateway to one address, and lets nothing else in. It keeps no state, so that another mapping
 * counts at once, as when a router restarts or gets another address from its provider.
 */
export async function translate(router: Netns, { inside, device, mapping }: TranslationInit): Promise<void> {
  const { address, port } = mapping
  await router.exec('nft', ['-f', '-'], {
    input: `table ip translation
delete table ip translation
table ip translation {
  chain in {
    type filter hook prerouting priority raw;
    iifname ${device} ip daddr ${address} udp dport ${port} ip daddr set ${inside} udp dport set 4500 notrack accept
    iifname ${device} ip daddr ${inside} drop
  }
  chain out {
    type filter hook postrouting priority 300;
    oifname ${device} ip saddr ${inside} udp sport 4500 ip saddr set ${address} udp sport set ${port}
  }
  chain untracked { type filter hook prerouting priority -301; ip saddr ${inside} notrack; }
}`,
  })
}
