/**
 * The way of the probes between the gateway nodes and all nodes: over the overlay, where the packets of pods go too, and
 * between the nodes' InternalIPs. Rules name the port alone, so nothing else between nodes changes its way. Pure.
 *
 *   worker 192.168.7.11:4498 ── sealane-vx ──► gateway node 192.168.7.1:4498
 */
import { formatAddress } from '../../model/addresses/addresses.ts'
import { type Endpoint, OVERLAY_PROBE_PORT, ROUTE_TABLE_PROBES, RULE_PROBES } from '../../model/model.ts'
import type { Route, Rule } from '../../kernel/route/route.ts'
import { type OverlayNode, hopTo } from '../world/world.ts'

export interface ProbedNode {
  readonly node: string
  /** InternalIP. */
  readonly address: string
  readonly isGateway: boolean
}

export interface ProbeRoutes {
  readonly nodes: readonly ProbedNode[]
  readonly routes: readonly Route[]
  readonly rules: readonly Rule[]
}

export interface ProbeRoutesInit {
  readonly self: OverlayNode
  readonly others: readonly OverlayNode[]
  readonly ownEndpoints: readonly Endpoint[]
}

/**
 * A node asks the gateway nodes: those with an Endpoint of this cluster. A gateway node asks all nodes: only it can know
 * that what it sends to one of them does not arrive.
 */
export function planProbeRoutes({ self, others, ownEndpoints }: ProbeRoutesInit): ProbeRoutes {
  const gateways = new Set(ownEndpoints.map(({ spec }) => spec.node))
  const probed = gateways.has(self.name) ? others : others.filter(({ name }) => gateways.has(name))
  return {
    nodes: probed.map((node) => ({
      node: node.name,
      address: formatAddress(node.address),
      isGateway: gateways.has(node.name),
    })),
    routes: probed.map((node) => ({
      table: ROUTE_TABLE_PROBES,
      destination: `${formatAddress(node.address)}/32`,
      type: 'unicast',
      nextHops: [hopTo(node, 4)],
    })),
    rules: probed.length === 0 ? [] : RULES,
  }
}

const BASE = { priority: RULE_PROBES, table: ROUTE_TABLE_PROBES } as const

/**
 * TCP is for knocks: what asks, and the reset that answers. Not for this node's own packets alone: what comes in is
 * taken only if the way back, by its own ports, leads to the device that it came in by (rp_filter).
 */
const RULES: readonly Rule[] = [
  { ...BASE, protocol: 'udp', destinationPort: OVERLAY_PROBE_PORT },
  { ...BASE, protocol: 'tcp', destinationPort: OVERLAY_PROBE_PORT },
  { ...BASE, protocol: 'tcp', sourcePort: OVERLAY_PROBE_PORT },
]
