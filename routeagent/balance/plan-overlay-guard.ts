/**
 * Decides which nodes may use the overlay of this node, and which packets may come out of it: chains of table
 * sealane_node. Pure.
 *
 *   its UDP port ─► overlay (input): from a node of this cluster, to our InternalIP, by the underlay? ─► sealane-vx unpacks
 *   sealane-vx ─► from-overlay (forward): other cluster to own pod, or own pod to other cluster?
 *              └► host-from-overlay (input): echo, answers, named ports
 *
 * Without it, the kernel would unpack packets to the port from any sender at any of its addresses, because a VXLAN
 * device has no list of senders. docs/decisions/0036-the-kernels-second-line.md
 */
import {
  LED_ELSEWHERE,
  type NftBaseChain,
  type NftStatement,
  hostMatches,
  ledElsewhereMatches,
  refusingRules,
} from '../../kernel/nft/nft.ts'
import {
  type Family,
  type OpenPort,
  containsAddress,
  formatAddress,
  formatPrefix,
  parseAddress,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import { NFT_TABLE_NODE, OVERLAY_PROBE_PORT, VXLAN_DEVICE } from '../../model/model.ts'
import { type NodeDropReason, nodeDropCounter } from '../world/world.ts'
import { type KernelFacts, type NodeRouteWorld, deviceOf, overlayMac, overlayNodes } from '../world/world.ts'

export const SET_OVERLAY_NODES = 'overlay-nodes'

/** The overlay's own packets are always IPv4. */
export interface OverlayContext {
  /** This node's InternalIP. */
  readonly local: string
  /** Devices on which packets of the other nodes arrive. */
  readonly devices: readonly string[]
}

/** Undefined if none of this node's devices has its InternalIP. Then no node may use the port. */
export function overlayContext(world: Pick<NodeRouteWorld, 'nodes' | 'node' | 'facts'>): OverlayContext | undefined {
  const { nodes } = overlayNodes(world.nodes)
  const self = nodes.get(world.node)
  const device = self === undefined ? undefined : deviceOf(world.facts, self.address)
  if (self === undefined || device === undefined) return undefined
  const others = otherNodes(world)
  const leading = others.flatMap((address) => leadingDevice(world.facts, address) ?? [])
  return { local: formatAddress(self.address), devices: [...new Set([device.name, ...leading])].sort() }
}

/**
 * The UDP ports that are guarded, sorted: that of the plan, and that of the present device, which receives on its own
 * port until it is replaced.
 */
export function guardedPorts({ overlayPort, facts }: Pick<NodeRouteWorld, 'overlayPort' | 'facts'>): number[] {
  const present = facts.links.find(({ name }) => name === VXLAN_DEVICE)
  const ports = present !== undefined && 'port' in present ? [overlayPort, present.port] : [overlayPort]
  return [...new Set(ports)].sort((a, b) => a - b)
}

/** InternalIPs of the other nodes, sorted: elements of SET_OVERLAY_NODES. */
export function otherNodes({ nodes, node }: Pick<NodeRouteWorld, 'nodes' | 'node'>): string[] {
  const others = [...overlayNodes(nodes).nodes.values()].filter(({ name }) => name !== node)
  return others.map(({ address }) => formatAddress(address)).sort()
}

/** NodeNftWorld.otherGateways, from the nodes that have an Endpoint of this cluster. Sorted. */
export function otherGatewayMacs({ nodes, node, endpoints, self }: NodeRouteWorld): string[] | undefined {
  const gateways = new Set(endpoints.filter(({ spec }) => spec.cluster === self).map(({ spec }) => spec.node))
  if (!gateways.has(node)) return undefined
  const others = [...overlayNodes(nodes).nodes.values()].filter(({ name }) => name !== node && gateways.has(name))
  return others.map(({ address }) => overlayMac(address)).sort()
}

/**
 * The device by which the main table routes to that address. Answers arrive on it, even if another device has the
 * InternalIP.
 */
function leadingDevice({ mainRoutes }: KernelFacts, text: string): string | undefined {
  const address = parseAddress(text)
  let best: { readonly length: number; readonly device: string } | undefined
  for (const { destination, type, device } of mainRoutes) {
    if (type !== 'unicast' || device === undefined) continue
    const prefix = parsePrefix(destination)
    if (prefix.family !== 4 || !containsAddress(prefix, address)) continue
    if (best === undefined || prefix.length > best.length) best = { length: prefix.length, device }
  }
  return best?.device
}

export interface OverlayGuardInit {
  /** NodeNftWorld.overlayPorts */
  readonly overlayPorts: readonly number[]
  readonly family: Family
  readonly context: OverlayContext | undefined
  /** Pod networks of this cluster, of the family. */
  readonly podCidrs: readonly string[]
  /** Name of the set of prefixes of other clusters. */
  readonly remote: string
  readonly openPorts: readonly OpenPort[]
}

const INPUT: NftBaseChain = { type: 'filter', hook: 'input', priority: -1 }

/** Chains and rules. For IPv4, the set of nodes must exist. */
export function planOverlayGuard(init: OverlayGuardInit): NftStatement[] {
  const { family, podCidrs, remote, openPorts } = init
  const ip = family === 4 ? 'ip' : 'ip6'
  const pods = set(podCidrs.map((text) => formatPrefix(parsePrefix(text))))
  return [
    ...chain('node-port', undefined, [
      ...ledElsewhereMatches(family, openPorts).map((match) => `${match} return`),
      ...REFUSED,
    ]),
    ...chain('from-overlay', undefined, [
      `${LED_ELSEWHERE} jump node-port`,
      `${ip} saddr @${remote} ${ip} daddr ${pods} accept`,
      `${ip} saddr ${pods} ${ip} daddr @${remote} accept`,
      dropped('overlay-inner'),
    ]),
    ...chain('host-from-overlay', undefined, [
      ...(family === 4 ? probeRules(init.context) : []),
      `${ip} saddr != @${remote} ${dropped('overlay-inner')}`,
      `${ip} daddr != ${pods} ${dropped('overlay-inner')}`,
      ...hostMatches(family, openPorts).map((match) => `${match} accept`),
      ...REFUSED,
    ]),
    ...chain('overlay', INPUT, [
      ...(family === 4 ? strangers(init) : []),
      `iifname "${VXLAN_DEVICE}" goto host-from-overlay`,
    ]),
  ]
}

/** Rules between InternalIPs: probes of other nodes, their answers, and TCP probes of a port without a listener. */
function probeRules(context: OverlayContext | undefined): string[] {
  if (context === undefined) return []
  const port = OVERLAY_PROBE_PORT
  return [`udp sport ${port} udp dport ${port}`, `tcp dport ${port}`, `tcp sport ${port}`].map(
    (what) => `ip saddr @${SET_OVERLAY_NODES} ip daddr ${context.local} ${what} accept`,
  )
}

/** A match for what the overlay itself receives. */
export function overlayInMatch({ devices, local }: OverlayContext, ports: readonly number[]): string {
  const names = set(devices.map((name) => `"${name}"`))
  return `iifname ${names} ip saddr @${SET_OVERLAY_NODES} ip daddr ${local} udp dport ${portSet(ports)}`
}

/** A match for what the overlay itself sends. */
export function overlayOutMatch(ports: readonly number[]): string {
  return `ip daddr @${SET_OVERLAY_NODES} udp dport ${portSet(ports)}`
}

/**
 * A pod's packet to the port of another node would arrive there as a packet of this node after it is masqueraded. The
 * overlay's own packets are created on this node and never forwarded.
 */
export function forwardedToOverlay(ports: readonly number[]): string {
  return `${overlayOutMatch(ports)} ${dropped('overlay-stranger')}`
}

function strangers({ context, overlayPorts }: Pick<OverlayGuardInit, 'context' | 'overlayPorts'>): string[] {
  return [
    ...(context === undefined ? [] : [`${overlayInMatch(context, overlayPorts)} accept`]),
    `udp dport ${portSet(overlayPorts)} ${dropped('overlay-stranger')}`,
  ]
}

/** Refuses at once, so that a caller does not wait for a timeout. */
const REFUSED = refusingRules(nodeDropCounter('host-service'))

function dropped(reason: NodeDropReason): string {
  return `counter name ${nodeDropCounter(reason)} drop`
}

function chain(name: string, base: NftBaseChain | undefined, rules: readonly string[]): NftStatement[] {
  return [
    { verb: 'add-chain', table: NFT_TABLE_NODE, chain: name, ...(base === undefined ? {} : { base }) },
    ...rules.map((rule): NftStatement => ({ verb: 'add-rule', table: NFT_TABLE_NODE, chain: name, rule })),
  ]
}

function portSet(ports: readonly number[]): string {
  return set(ports.map(String))
}

function set(items: readonly string[]): string {
  return items.length === 1 ? (items[0] ?? '') : `{ ${items.join(', ')} }`
}
