/** Reads the facts about this machine that the plans need, and keeps them until the kernel says something changed. */
import type { NextHopFeatures, NextHopTable } from '../kernel/route/nexthop/next-hop-table.ts'
import type { RouteTable } from '../kernel/route/route-table.ts'
import type { Sysctl } from '../kernel/tuning/sysctl.ts'
import { IPV6_FORWARDING } from '../model/kernel-ids.ts'
import type { MachineNetwork } from '../runtime/machine-network.ts'
import type { KernelFacts } from './node-facts.ts'

export interface FactsReaderDeps {
  readonly routes: RouteTable
  /** Absent: routes have next hops of their own. */
  readonly nextHops?: NextHopTable
  readonly sysctl: Sysctl
  /** Absent: default gateways and name servers are not known. */
  readonly machineNetwork?: () => Promise<MachineNetwork>
}

export class FactsReader {
  readonly #deps: FactsReaderDeps
  #kept: KernelFacts | undefined
  /** A kernel's do not change. */
  #features: NextHopFeatures | undefined
  /** Counts invalidate(): what a look found that began before the last one is not kept. */
  #changes = 0
  /** What was read last, even if it may be out of date. */
  known: KernelFacts | undefined

  constructor(deps: FactsReaderDeps) {
    this.#deps = deps
  }

  /** Forgets what is kept: the next read() asks the kernel. */
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
