/** What the nodes of this cluster say about where their pods are, as the gateway uses it. Pure. */
import { type Family, InvalidAddressError, type Prefix } from '../../model/addresses/ip.ts'
import {
  type NodeRanges,
  elsewherePrefixes,
  nodeClaim,
  podPlaces,
  podPrefixes,
} from '../../model/addresses/pod-ranges.ts'
import type { GatewayWorld } from '../world.ts'

type ClaimWorld = Pick<GatewayWorld, 'own' | 'nodes' | 'node' | 'routeAgents'>

/** Of one family: ranges inside the cluster's pod CIDRs of that family. */
export function podClaims({ own, nodes, routeAgents }: ClaimWorld, family: Family): NodeRanges[] {
  const podCIDRs = podPrefixes(own, family)
  const agents = new Map(routeAgents.map((agent) => [agent.metadata.name, agent]))
  return nodes.map((node) => {
    const { name } = node.metadata
    try {
      return nodeClaim(node, agents.get(name), podCIDRs)
    } catch (error) {
      // Of a Node that cannot be read nothing is known; the routeagent names it.
      if (error instanceof InvalidAddressError) return { node: name, ranges: [] }
      throw error
    }
  })
}

/** Where pods of other nodes are for sure, as disjoint prefixes of one family. */
export function podsElsewhere(world: ClaimWorld, family: Family): Prefix[] {
  return elsewherePrefixes(podPlaces(world.node, podClaims(world, family)))
}
