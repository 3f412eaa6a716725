/**
 * The routes of the probes between the gateway nodes and all nodes: over the overlay, like the packets of pods, and
 * between the nodes' InternalIPs. The rules match only the port, so no other traffic between nodes is affected. Pure.
 *
 *   worker 192.168.7.11:4498 ── sealane-vx ──► gateway node 192.168.7.1:4498
 */
import { formatAddress } from '../../model/addresses/addresses.ts'
import { type Endpoint, OVERLAY_PROBE_PORT, ROUTE_TABLE_PROBES, RULE_PROBES } from '../../model/model.ts'
import type { Route, Rule } from '../../kernel/route/route.ts'
import { type OverlayNode, hopTo } from '../world/world.ts'

export interface ProbedNode {
  readonly node: string
  /** InternalIP of the node. */
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
 * A node probes the gateway nodes, which are those with an Endpoint of this cluster. A gateway node probes all nodes,
 * because only it can find that its packets to one of them do not arrive.
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
 * The TCP rules are for TCP probes and the resets that answer them. The rules are not limited to this node's own
 * packets: with rp_filter, the kernel accepts a packet only if the route back, looked up by the packet's own ports,
 * uses the device on which it arrived.
 */
const RULES: readonly Rule[] = [
  { ...BASE, protocol: 'udp', destinationPort: OVERLAY_PROBE_PORT },
  { ...BASE, protocol: 'tcp', destinationPort: OVERLAY_PROBE_PORT },
  { ...BASE, protocol: 'tcp', sourcePort: OVERLAY_PROBE_PORT },
]
