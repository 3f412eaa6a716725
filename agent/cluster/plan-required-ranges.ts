/**
 * Plans the ranges that this cluster requires outside the lanes. No member's pods may have such an address here. The
 * broker also gets them, so that it gives no member's pods such an address. Pure.
 */
import {
  MAX_REPORTED_BY_NODE,
  type NeededRange,
  type Prefix,
  containsAddress,
  fewRanges,
  machineRequiredRanges,
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

export interface RequiredRangesWorld {
  readonly own: Pick<ClusterSpec, 'podCIDRs' | 'serviceCIDRs'>
  readonly nodes: readonly Node[]
  readonly routeAgents: readonly RouteAgent[]
  /** EndpointSlices of Service default/kubernetes, which list the addresses of the API servers. */
  readonly apiServers: readonly EndpointSlice[]
  /** The network of the agent's machine or pod. */
  readonly machine: MachineNetwork
  /** Addresses at which the agent connects to the broker. */
  readonly broker: readonly string[]
}

export interface RequiredRangesPlan {
  /** Ranges that no other member's pods may have here. */
  readonly needed: readonly NeededRange[]
  /** Ranges for the broker, as CIDRs. Those inside this cluster's own ranges are left out. */
  readonly reported: readonly string[]
}

export function planRequiredRanges({
  own,
  nodes,
  routeAgents,
  apiServers,
  machine,
  broker,
}: RequiredRangesWorld): RequiredRangesPlan {
  const addresses = nodes.flatMap(nodeAddresses)
  const servers = apiServers.flatMap(({ endpoints }) => (endpoints ?? []).flatMap((one) => one.addresses))
  const needed = [
    ...neededRanges(broker, 'the broker'),
    ...neededRanges(servers, 'the API server'),
    ...machineRequiredRanges({ ...machine, nodes: addresses }),
    ...neededRanges(addresses, 'a node of this cluster'),
  ]
  const ours = [...own.podCIDRs, ...own.serviceCIDRs, ...BROUGHT_ALONG].map((text) => parsePrefix(text))
  const all = [...needed.map(({ prefix }) => prefix), ...reportedByNodes(nodes, routeAgents)]
  const outside = all.filter((prefix) => !ours.some((one) => overlaps(one, prefix)))
  return { needed: needed.slice(0, MAX_HERE), reported: fewRanges(outside) }
}

/**
 * Limits the ranges that are checked here: each costs time for each member. The route agents check the ranges of their
 * own nodes as well, so those of the last of thousands of nodes are left to them.
 */
const MAX_HERE = 256
/** No machine has an address in a range that Sealane itself assigns. */
const BROUGHT_ALONG = [DEFAULT_GLOBAL_RANGE, DEFAULT_CLUSTERSET_IP_RANGE, LANE_ADDRESS_RANGE]

function nodeAddresses({ status }: Node): string[] {
  const counted = (status?.addresses ?? []).filter(({ type }) => type === 'InternalIP' || type === 'ExternalIP')
  return counted.map(({ address }) => address)
}

/**
 * Ranges for the broker alone: a compromised node can write any RouteAgent for itself, and must not cut off other
 * clusters from this one. A network counts if it contains an address of the Node. A single address always counts.
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
