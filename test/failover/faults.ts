/**
 * Faults of the network between the nodes of two sites (sites.ts). All are rules of nftables in the router between them,
 * so that everything else goes on: the processes, their control, the other packets of the same nodes.
 */
import { LANE_BASE_PORT, VXLAN_PORT } from '../../model/kernel-ids.ts'
import { MAX_LANE, remoteLaneOf } from '../../model/lanes/lane-number.ts'
import type { KubeObject } from '../../model/objects.ts'
import type { Netns } from '../support/netns.ts'
import type { SiteNode, TwoSites } from './sites.ts'

/** Something that can be taken away and given back. */
export interface Cut {
  readonly name: string
  cutOff(): Promise<void>
  bringBack(): Promise<void>
  /** Octets that what is taken away carries, probes among them. */
  carriedBytes(): Promise<number>
}

const TUNNEL = `udp dport ${LANE_BASE_PORT}-${LANE_BASE_PORT + MAX_LANE}`
const OVERLAY = `udp dport ${VXLAN_PORT}`

/** Nothing of any tunnel passes to the gateway or from it. Its overlay, its process and its control go on. */
export function silentGateway(internet: Netns, gateway: SiteNode): Cut {
  const { address } = gateway
  const rules = [`ip saddr ${address} ${TUNNEL} drop`, `ip daddr ${address} ${TUNNEL} drop`]
  return cut(internet, `${gateway.port} forwards nothing`, rules, () => laneBytes(gateway))
}

/** Only what the gateway sends over its tunnels is lost, or only what is sent to it. */
export function oneWayGateway(internet: Netns, gateway: SiteNode, lost: 'sent' | 'received'): Cut {
  const rule = `ip ${lost === 'sent' ? 'saddr' : 'daddr'} ${gateway.address} ${TUNNEL} drop`
  return cut(internet, `${gateway.port}: what is ${lost} is lost`, [rule], () => laneBytes(gateway))
}

/** The link between two gateways, of the four that there are. */
export function oneLink(internet: Netns, a: SiteNode, b: SiteNode): Cut {
  return cut(internet, `the link of ${a.port} and ${b.port}`, between(a, b, TUNNEL), () =>
    receivedBytes(a, `sealane${b.name.slice(2)}`),
  )
}

/** The overlay between a worker and one gateway. What it carries is what the gateway gets from the worker. */
export function oneOverlay(internet: Netns, worker: SiteNode, gateway: SiteNode): Cut {
  return cut(internet, `the overlay of ${worker.port} and ${gateway.port}`, between(worker, gateway, OVERLAY), () =>
    receivedBytes(gateway, 'sealane-vx'),
  )
}

/** Loses that share of what the tunnels carry, each way, in percent. */
export function randomLoss(internet: Netns, percent: number): Cut {
  const rules = [`${TUNNEL} numgen random mod 100 < ${percent} drop`]
  return cut(internet, `${percent} % of loss`, rules, () => Promise.resolve(0))
}

function between(a: SiteNode, b: SiteNode, what: string): string[] {
  return [`ip saddr ${a.address} ip daddr ${b.address} ${what} drop`].concat(
    `ip saddr ${b.address} ip daddr ${a.address} ${what} drop`,
  )
}

let tables = 0

function cut(internet: Netns, name: string, rules: readonly string[], carriedBytes: Cut['carriedBytes']): Cut {
  const table = `fault${(tables += 1)}`
  const chain = ['type filter hook forward priority 0', ...rules].join('; ')
  return {
    name,
    carriedBytes,
    cutOff: () => nft(internet, `table ip ${table} { chain lost { ${chain}; }; }`),
    bringBack: () => nft(internet, `delete table ip ${table}`),
  }
}

async function nft(ns: Netns, text: string): Promise<void> {
  await ns.exec('nft', ['-f', '-'], { input: `${text}\n` })
}

async function laneBytes(gateway: SiteNode): Promise<number> {
  const bytes = await Promise.all([0, 1].map((lane) => receivedBytes(gateway, `sealane${lane}`)))
  return bytes.reduce((sum, one) => sum + one, 0)
}

async function receivedBytes({ netns }: SiteNode, device: string): Promise<number> {
  return Number(await netns.exec('cat', [`/sys/class/net/${device}/statistics/rx_bytes`]))
}

/** How often a link of any gateway went from up to down since it is watched, by what the gateways report. */
export class LinkWatch {
  readonly #states = new Map<string, string>()
  downs = 0

  constructor({ nodes }: TwoSites) {
    for (const one of nodes) one.process?.follow((object) => this.#look(one, object))
  }

  #look({ port, name }: SiteNode, object: KubeObject): void {
    if (object.kind !== 'Gateway' || object.metadata.name !== name) return
    for (const link of object.status?.connections ?? []) {
      const key = `${port} ${remoteLaneOf(link)} ${link.cluster}`
      if (this.#states.get(key) === 'up' && link.state === 'down') this.downs += 1
      this.#states.set(key, link.state)
    }
  }
}
