/** What this machine's kernel says about itself, as far as the plans need it. Pure. */
import type { NextHopFeatures } from '../kernel/route/nexthop/next-hop-table.ts'
import {
  type Address,
  type Family,
  type Prefix,
  containsAddress,
  formatAddress,
  parseAddress,
} from '../model/addresses/ip.ts'
import type { MachineNetwork } from '../runtime/machine-network.ts'
import type { InterfaceAddress, Link, MainRoute } from '../kernel/route/route-table.ts'

export interface KernelFacts {
  readonly links: readonly Link[]
  readonly addresses: readonly InterfaceAddress[]
  /** What others have in the main table. */
  readonly mainRoutes: readonly MainRoute[]
  /** net/bridge/bridge-nf-call-iptables; undefined where the module is not loaded. */
  readonly bridgeNetfilter: string | undefined
  /** The same for IPv6, bridge-nf-call-ip6tables. */
  readonly bridgeNetfilter6?: string | undefined
  /** False where the kernel has no IPv6 (`ipv6.disable=1`). A device where it is switched off is another matter. */
  readonly hasIpv6?: boolean
  /** What this kernel has of next-hop objects. Absent: nothing; then routes have next hops of their own. */
  readonly nextHopFeatures?: NextHopFeatures
  /** Default gateways and name servers of this machine. Absent: not known. */
  readonly machine?: Pick<MachineNetwork, 'nextHops' | 'nameServers'>
}

/** The device that carries the address; undefined when there is none. */
export function deviceOf(facts: KernelFacts, address: Address): Link | undefined {
  const text = formatAddress(address)
  const carrier = facts.addresses.find((a) => addressText(a) === text)
  return carrier === undefined ? undefined : facts.links.find((link) => link.name === carrier.device)
}

/**
 * True when pods of this node hang on a bridge whose traffic netfilter does not see. An answer from one pod to its
 * neighbour then takes the short way over the bridge and would never have its address turned back.
 */
export function bridgeHidesAnswers(facts: KernelFacts, podCidrs: readonly Prefix[], family: Family): boolean {
  if ((family === 4 ? facts.bridgeNetfilter : facts.bridgeNetfilter6) === '1') return false
  const bridges = new Set(facts.links.filter((link) => link.kind === 'bridge').map((link) => link.name))
  return facts.addresses.some(
    (a) => bridges.has(a.device) && podCidrs.some((p) => containsAddress(p, parseAddress(addressText(a)))),
  )
}

function addressText(address: InterfaceAddress): string {
  return address.address.split('/')[0] ?? ''
}
