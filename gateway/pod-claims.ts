/** What the nodes of this cluster say about where their pods are, as the gateway uses it. Pure. */
import { InvalidAddressError, type Prefix, parsePrefix } from '../model/ip.ts'
import type { Cluster } from '../model/objects.ts'
import { type NodeRanges, claimedRanges, elsewherePrefixes, podPlaces } from '../model/pod-ranges.ts'
import type { GatewayWorld } from './world.ts'

type ClaimWorld = Pick<GatewayWorld, 'own' | 'nodes' | 'node' | 'routeAgents'>

export function podClaims({ own, nodes, routeAgents }: ClaimWorld): NodeRanges[] {
  const podCIDRs = podPrefixes(own)
  const agents = new Map(routeAgents.map((agent) => [agent.metadata.name, agent]))
  return nodes.map((node) => {
    const { name } = node.metadata
    try {
      return { node: name, ranges: claimedRanges(node, agents.get(name), podCIDRs) }
    } catch (error) {
      // Of a Node that cannot be read nothing is known; the routeagent names it.
      if (error instanceof InvalidAddressError) return { node: name, ranges: [] }
      throw error
    }
  })
}

/** Where pods of other nodes are for sure, as disjoint prefixes. */
export function podsElsewhere(world: ClaimWorld): Prefix[] {
  return elsewherePrefixes(podPlaces(world.node, podClaims(world)))
}

/** Pod CIDRs of the cluster, IPv4. Throws InvalidAddressError. */
export function podPrefixes(cluster: Cluster): Prefix[] {
  return cluster.spec.podCIDRs.map((text) => parsePrefix(text)).filter((prefix) => prefix.family === 4)
}
