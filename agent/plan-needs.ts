/**
 * What this cluster needs outside the lanes: no member's pods may have such an address here, and the broker is told, so
 * that nobody's have one anywhere. Pure.
 */
import { type Prefix, containsAddress, formatPrefix, overlaps, parsePrefix } from '../model/ip.ts'
import { DEFAULT_CLUSTERSET_IP_RANGE, DEFAULT_GLOBAL_RANGE, LANE_ADDRESS_RANGE } from '../model/kernel-ids.ts'
import { MAX_TOLD_BY_NODE, type NeededRange, fewRanges, machineNeeds, neededRanges } from '../model/needed-ranges.ts'
import type { ClusterSpec, EndpointSlice, Node, RouteAgent } from '../model/objects.ts'
import { isInside } from '../model/prefix-set.ts'
import type { MachineNetwork } from '../runtime/machine-network.ts'

export interface NeedsWorld {
  readonly own: Pick<ClusterSpec, 'podCIDRs' | 'serviceCIDRs'>
  readonly nodes: readonly Node[]
  readonly routeAgents: readonly RouteAgent[]
  /** Of Service default/kubernetes: where the API server is. */
  readonly apiServers: readonly EndpointSlice[]
  /** Of the agent's machine or pod. */
  readonly machine: MachineNetwork
  /** Addresses that the broker is called at. */
  readonly broker: readonly string[]
}

export interface Needs {
  /** What no other member's pods may have here. */
  readonly needed: readonly NeededRange[]
  /** What the broker is told: without what lies in this cluster's own ranges. CIDRs. */
  readonly told: readonly string[]
}

export function planNeeds({ own, nodes, routeAgents, apiServers, machine, broker }: NeedsWorld): Needs {
  const addresses = nodes.flatMap(nodeAddresses)
  const servers = apiServers.flatMap(({ endpoints }) => (endpoints ?? []).flatMap((one) => one.addresses))
  const needed = [
    ...neededRanges(broker, 'the broker'),
    ...neededRanges(servers, 'the API server'),
    ...machineNeeds({ ...machine, nodes: addresses }),
    ...toldByNodes(nodes, routeAgents),
  ]
  const ours = [...own.podCIDRs, ...own.serviceCIDRs, ...BROUGHT_ALONG].map((text) => parsePrefix(text))
  const outside = needed.map(({ prefix }) => prefix).filter((prefix) => !ours.some((one) => overlaps(one, prefix)))
  return { needed: once(needed), told: fewRanges(outside) }
}

/** Of ranges that Sealane brings along nobody has machines. */
const BROUGHT_ALONG = [DEFAULT_GLOBAL_RANGE, DEFAULT_CLUSTERSET_IP_RANGE, LANE_ADDRESS_RANGE]

function nodeAddresses({ status }: Node): string[] {
  const counted = (status?.addresses ?? []).filter(({ type }) => type === 'InternalIP' || type === 'ExternalIP')
  return counted.map(({ address }) => address)
}

/**
 * A node that was broken into writes its own RouteAgent, and must not keep all other clusters away: of networks, those
 * count that its Node is in; of the rest, single addresses.
 */
function toldByNodes(nodes: readonly Node[], routeAgents: readonly RouteAgent[]): NeededRange[] {
  const byName = new Map(nodes.map((node) => [node.metadata.name, neededRanges(nodeAddresses(node), '')]))
  return routeAgents.flatMap(({ metadata, status }) => {
    const at = byName.get(metadata.name) ?? []
    const told = neededRanges((status?.underlay ?? []).slice(0, MAX_TOLD_BY_NODE), `in use by node ${metadata.name}`)
    return told.filter(({ prefix }) => isSingle(prefix) || at.some((one) => containsAddress(prefix, one.prefix)))
  })
}

function isSingle({ family, length }: Prefix): boolean {
  return length === (family === 4 ? 32 : 128)
}

/** Without those that another holds whole: the first that says a range says why. */
function once(needed: readonly NeededRange[]): NeededRange[] {
  const found = new Map<string, NeededRange>()
  for (const one of needed) {
    const text = formatPrefix(one.prefix)
    if (!found.has(text)) found.set(text, one)
  }
  const wide = [...found.values()].filter(({ prefix }) => !isSingle(prefix)).map(({ prefix }) => prefix)
  // Thousands of nodes are in few networks; of these, the network says enough.
  if (found.size <= MAX_SINGLE) return [...found.values()]
  return [...found.values()].filter(({ prefix }) => !isSingle(prefix) || !isInside(prefix, wide))
}

const MAX_SINGLE = 256
