/**
 * What this cluster needs outside the lanes: no member's pods may have such an address here. The broker gets it too, so
 * that no member's pods have one anywhere. Pure.
 */
import {
  MAX_REPORTED_BY_NODE,
  type NeededRange,
  type Prefix,
  containsAddress,
  fewRanges,
  machineNeeds,
  neededRanges,
  overlaps,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import {
  type ClusterSpec,
  DEFAULT_CLUSTERSET_IP_RANGE,
  DEFAULT_GLOBAL_RANGE,
  type EndpointSlice,
  LANE_ADDRESS_RANGE,
  type Node,
  type RouteAgent,
} from '../../model/model.ts'
import type { MachineNetwork } from '../../runtime/runtime.ts'

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
  /** What the broker gets: without what lies in this cluster's own ranges. CIDRs. */
  readonly reported: readonly string[]
}

export function planNeeds({ own, nodes, routeAgents, apiServers, machine, broker }: NeedsWorld): Needs {
  const addresses = nodes.flatMap(nodeAddresses)
  const servers = apiServers.flatMap(({ endpoints }) => (endpoints ?? []).flatMap((one) => one.addresses))
  const needed = [
    ...neededRanges(broker, 'the broker'),
    ...neededRanges(servers, 'the API server'),
    ...machineNeeds({ ...machine, nodes: addresses }),
    ...neededRanges(addresses, 'a node of this cluster'),
  ]
  const ours = [...own.podCIDRs, ...own.serviceCIDRs, ...BROUGHT_ALONG].map((text) => parsePrefix(text))
  const all = [...needed.map(({ prefix }) => prefix), ...reportedByNodes(nodes, routeAgents)]
  const outside = all.filter((prefix) => !ours.some((one) => overlaps(one, prefix)))
  return { needed: needed.slice(0, MAX_HERE), reported: fewRanges(outside) }
}

/**
 * Of thousands of nodes the last are left to the parts on the nodes, which look as well: each costs time with each
 * member.
 */
const MAX_HERE = 256
/** Of ranges that Sealane brings along nobody has machines. */
const BROUGHT_ALONG = [DEFAULT_GLOBAL_RANGE, DEFAULT_CLUSTERSET_IP_RANGE, LANE_ADDRESS_RANGE]

function nodeAddresses({ status }: Node): string[] {
  const counted = (status?.addresses ?? []).filter(({ type }) => type === 'InternalIP' || type === 'ExternalIP')
  return counted.map(({ address }) => address)
}

/**
 * For the broker alone: a node that was broken into writes its own RouteAgent, and must not keep other clusters away
 * from this one. Of networks, those count that its Node is in; of the rest, single addresses.
 */
function reportedByNodes(nodes: readonly Node[], routeAgents: readonly RouteAgent[]): Prefix[] {
  const byName = new Map(nodes.map((node) => [node.metadata.name, neededRanges(nodeAddresses(node), '')]))
  return routeAgents.flatMap(({ metadata, status }) => {
    const at = byName.get(metadata.name) ?? []
    const reported = neededRanges((status?.underlay ?? []).slice(0, MAX_REPORTED_BY_NODE), '').map(
      ({ prefix }) => prefix,
    )
    return reported.filter((prefix) => isSingle(prefix) || at.some((one) => containsAddress(prefix, one.prefix)))
  })
}

function isSingle({ family, length }: Prefix): boolean {
  return length === (family === 4 ? 32 : 128)
}
