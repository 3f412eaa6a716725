/** What the routes of a node depend on, read at one moment. Plain data. */
import type {
  InterfaceAddress,
  Link,
  MainRoute,
  NextHopFeatures,
  NextHopTable,
  RouteTable,
  VxlanLink,
} from '../../kernel/route/route.ts'
import type { Exposure } from '../../model/access/access.ts'
import type { Sysctl } from '../../kernel/tuning/tuning.ts'
import {
  type Address,
  type Family,
  type Prefix,
  containsAddress,
  formatAddress,
  parseAddress,
} from '../../model/addresses/addresses.ts'
import {
  type Cluster,
  type Endpoint,
  type Gateway,
  IPV6_FORWARDING,
  type Node,
  type RouteAgent,
} from '../../model/model.ts'
import type { MachineNetwork } from '../../runtime/runtime.ts'

export interface NodeRouteWorld {
  /** This node's name. */
  readonly node: string
  /** This cluster's id. */
  readonly self: string
  readonly nodes: readonly Node[]
  /** All members, including this cluster. */
  readonly clusters: readonly Cluster[]
  /** Endpoints of all clusters. Those of this cluster say which node serves which lane. */
  readonly endpoints: readonly Endpoint[]
  readonly gateways: readonly Gateway[]
  /** What the other nodes report about their pods. Only filled on a node that serves lanes. */
  readonly routeAgents: readonly RouteAgent[]
  readonly globalRange: string
  readonly clustersetIpRange: string
  /** The UDP port of the overlay. */
  readonly overlayPort: number
  readonly facts: KernelFacts
  /** What other clusters may call. Absent: pods. */
  readonly exposure?: Exposure
  /** RouteAgentConfig.failClosed */
  readonly failClosed?: boolean
  /** Nodes that no longer answer this node's probes over the overlay. Absent if none is known. */
  readonly silentNodes?: ReadonlySet<string>
  /** Gateway nodes that have never answered them, while another one answers. Absent if there is none. */
  readonly lateGateways?: ReadonlySet<string>
  /** This cluster has IPv6 pods, but this kernel has no IPv6: `clusters` contains only IPv4 for this cluster. */
  readonly ipv6LeftOut?: true
}

export interface SysctlSetting {
  readonly name: string
  readonly value: string
  /** The value is only changed from this one, so that a different choice of an operator stays. */
  readonly insteadOf?: string
  /** A kernel without this setting is no error. */
  readonly ifPresent?: true
}

/** Lanes that this node serves, according to this cluster's Endpoints. */
export function ownLanes(world: Pick<NodeRouteWorld, 'endpoints' | 'self' | 'node'>): number[] {
  const own = world.endpoints.filter((e) => e.spec.cluster === world.self && e.spec.node === world.node)
  return [...new Set(own.map((e) => e.spec.lane))].sort((a, b) => a - b)
}

interface FactsReaderDeps {
  readonly routes: RouteTable
  /** Absent: routes have next hops of their own. */
  readonly nextHops?: NextHopTable
  readonly sysctl: Sysctl
  /** Absent: default gateways and name servers are not known. */
  readonly machineNetwork?: () => Promise<MachineNetwork>
}

/** Reads the facts about this machine that the plans need, and keeps them until the kernel reports a change. */
export class FactsReader {
  readonly #deps: FactsReaderDeps
  #kept: KernelFacts | undefined
  /** The features of a running kernel do not change. */
  #features: NextHopFeatures | undefined
  /** Counts calls of invalidate(): the result of a read that began before the last one is not kept. */
  #changes = 0
  /** The last facts that were read, even if they are outdated. */
  known: KernelFacts | undefined

  constructor(deps: FactsReaderDeps) {
    this.#deps = deps
  }

  /** Discards the kept facts, so that the next read() reads the kernel. */
  invalidate(): void {
    this.#changes += 1
    this.#kept = undefined
  }

  async read(signal: AbortSignal): Promise<KernelFacts> {
    if (this.#kept !== undefined) return this.#kept
    const { routes, sysctl, machineNetwork } = this.#deps
    const changes = this.#changes
    this.#features ??= await this.#deps.nextHops?.features(signal)
    const [links, addresses, mainRoutes, bridgeNetfilter, bridgeNetfilter6, ipv6, machine] = await Promise.all([
      routes.links(signal),
      routes.addresses(signal),
      routes.mainRoutes(signal),
      sysctl.read('net/bridge/bridge-nf-call-iptables'),
      sysctl.read('net/bridge/bridge-nf-call-ip6tables'),
      sysctl.read(IPV6_FORWARDING),
      machineNetwork?.(),
    ])
    const facts = {
      links,
      addresses,
      mainRoutes,
      bridgeNetfilter: bridgeNetfilter?.trim(),
      bridgeNetfilter6: bridgeNetfilter6?.trim(),
      hasIpv6: ipv6 !== undefined,
      ...(this.#features === undefined ? {} : { nextHopFeatures: this.#features }),
      ...(machine === undefined ? {} : { machine }),
    }
    this.known = facts
    if (changes === this.#changes) this.#kept = facts
    return facts
  }
}

// Facts of this machine's kernel that the plans need. Pure.

export interface KernelFacts {
  readonly links: readonly (Link | VxlanLink)[]
  readonly addresses: readonly InterfaceAddress[]
  /** Routes of other programs in the main table. */
  readonly mainRoutes: readonly MainRoute[]
  /** net/bridge/bridge-nf-call-iptables. Undefined if the module is not loaded. */
  readonly bridgeNetfilter: string | undefined
  /** The same setting for IPv6: net/bridge/bridge-nf-call-ip6tables. */
  readonly bridgeNetfilter6?: string | undefined
  /** False if the kernel has no IPv6 (`ipv6.disable=1`). This does not cover a device on which IPv6 is switched off. */
  readonly hasIpv6?: boolean
  /** What this kernel supports of next-hop objects. Absent: nothing, so routes have next hops of their own. */
  readonly nextHopFeatures?: NextHopFeatures
  /** Default gateways and name servers of this machine. Absent if they are not known. */
  readonly machine?: Pick<MachineNetwork, 'nextHops' | 'nameServers'>
}

/** The device that has the address. Undefined if there is none. */
export function deviceOf(facts: KernelFacts, address: Address): Link | undefined {
  const text = formatAddress(address)
  const carrier = facts.addresses.find((a) => addressText(a) === text)
  return carrier === undefined ? undefined : facts.links.find((link) => link.name === carrier.device)
}

/**
 * True if pods of this node are attached to a bridge whose traffic netfilter does not see. An answer between two of
 * these pods then passes only the bridge, and its source address would not be translated back.
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
