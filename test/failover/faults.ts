/**
 * Faults of the network between the nodes of two sites (sites.ts). All are nftables rules in the router between them,
 * so that everything else works: the processes, their control traffic, and the other packets of the same nodes.
 */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { LANE_BASE_PORT, VXLAN_PORT } from '../../model/kernel-ids.ts'
import { MAX_LANE, remoteLaneOf } from '../../model/lanes/lane-number.ts'
import type { KubeObject } from '../../model/objects.ts'
import type { Netns } from '../support/netns.ts'
import type { SiteNode, TwoSites } from './sites.ts'

/** A fault that can be started and ended. */
export interface Cut {
  readonly name: string
  cutOff(): Promise<void>
  bringBack(): Promise<void>
  /** The octets that the broken path carries, probes among them. */
  carriedBytes(): Promise<number>
}

const RELAY = join(import.meta.dirname, 'delay-relay.ts')
/** The ports of the relay, one for each direction. */
const RELAY_PORT = 20_000

const TUNNEL = `udp dport ${LANE_BASE_PORT}-${LANE_BASE_PORT + MAX_LANE}`
const OVERLAY = `udp dport ${VXLAN_PORT}`

/** Cuts the node off as a power failure does: it sends no packet and ends no connection. */
export function nodeGone(gateway: SiteNode): Cut {
  return {
    name: `${gateway.port} is gone`,
    carriedBytes: () => laneBytes(gateway),
    cutOff: () => gateway.cutOff(),
    bringBack: () => gateway.bringBack(),
  }
}

/** Drops every tunnel packet to and from the gateway. Its overlay, its process and its control traffic still work. */
export function silentGateway(internet: Netns, gateway: SiteNode): Cut {
  const { address } = gateway
  const rules = [`ip saddr ${address} ${TUNNEL} drop`, `ip daddr ${address} ${TUNNEL} drop`]
  return cut(internet, `${gateway.port} forwards nothing`, rules, () => laneBytes(gateway))
}

/** Drops only the packets that the gateway sends over its tunnels, or only those sent to it. */
export function oneWayGateway(internet: Netns, gateway: SiteNode, lost: 'sent' | 'received'): Cut {
  const rule = `ip ${lost === 'sent' ? 'saddr' : 'daddr'} ${gateway.address} ${TUNNEL} drop`
  return cut(internet, `${gateway.port}: what is ${lost} is lost`, [rule], () => laneBytes(gateway))
}

/** Cuts the link between two gateways, one of four links. */
export function oneLink(internet: Netns, a: SiteNode, b: SiteNode): Cut {
  return cut(internet, `the link of ${a.port} and ${b.port}`, between(a, b, TUNNEL), () =>
    receivedBytes(a, `sealane${laneOf(b)}`),
  )
}

/**
 * Cuts the overlay between a worker and one gateway. Its octets are those that the gateway receives from the worker.
 */
export function oneOverlay(internet: Netns, worker: SiteNode, gateway: SiteNode): Cut {
  return cut(internet, `the overlay of ${worker.port} and ${gateway.port}`, between(worker, gateway, OVERLAY), () =>
    receivedBytes(gateway, 'sealane-vx'),
  )
}

/** Drops this percentage of the tunnel packets, in each direction. */
export function randomLoss(internet: Netns, percent: number): Cut {
  const rules = [`${TUNNEL} numgen random mod 100 < ${percent} drop`]
  return cut(internet, `${percent} % of loss`, rules, () => Promise.resolve(0))
}

/**
 * Delays the tunnel packets in each direction, and lets some overtake others. The kernel of the host may have no netem,
 * so a program in the router forwards them (delay-relay.ts): rules lead each direction of a link to a port of the
 * relay, and make its packets look as if the gateway had sent them.
 */
export function delayedTunnels({ internet, gateways }: TwoSites, delayMs: number, jitterMs: number): Cut {
  const links = gateways('milano').flatMap((a) => gateways('paris').map((b) => [a, b] as const))
  const ways = links
    .flatMap(([a, b]) => [{ from: a, to: b }].concat({ from: b, to: a }))
    .map(({ from, to }, i) => ({ from, to, port: RELAY_PORT + i }))
  const into = ways.map(
    ({ from, to, port }) =>
      `ip saddr ${from.address} ip daddr ${to.address} udp dport ${portTowards(from)} ` +
      `notrack ip daddr set ${from.network}.1 udp dport set ${port}`,
  )
  const out = ways.map(
    ({ from, to, port }) =>
      `ip daddr ${to.address} udp sport ${port} notrack ip saddr set ${from.address} udp sport set ${portTowards(to)}`,
  )
  const chains = [
    `chain in { ${['type filter hook prerouting priority -300', ...into].join('; ')}; }`,
    `chain out { ${['type filter hook output priority -300', ...out].join('; ')}; }`,
  ]
  let relay: ChildProcess | undefined
  return {
    name: `${delayMs} ms later, ${jitterMs} ms more or less`,
    carriedBytes: () => Promise.resolve(0),
    async cutOff() {
      const args = ways.map(({ from, to, port }) => `${port}=${to.address}:${portTowards(from)}`)
      relay = internet.spawn(process.execPath, [RELAY, String(delayMs), String(jitterMs), ...args])
      await once(relay.stdout!, 'data')
      await nft(internet, `table ip delayed { ${chains.join('; ')}; }`)
    },
    async bringBack() {
      await nft(internet, 'delete table ip delayed')
      relay?.kill()
    },
  }
}

/** The port of the device that leads to a gateway, at the far end (gateway/reach/plan-candidates.ts). */
function portTowards(gateway: SiteNode): number {
  return LANE_BASE_PORT + laneOf(gateway)
}

const laneOf = ({ name }: SiteNode): number => Number(name.slice(2))

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

/** Counts how often a link of any gateway went from up to down, by the gateways' reports. */
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
