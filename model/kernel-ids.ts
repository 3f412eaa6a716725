/**
 * Everything Sealane owns in a node's kernel. Sweeps stay inside this list, and two components never
 * share a row: each can rebuild its own part without looking at the other's.
 */

/** Lane devices are sealane0, sealane1, …; UDP ports follow the lane number. */
export const LANE_DEVICE_PREFIX = 'sealane'
export const LANE_BASE_PORT = 4500
/** Overlay between the nodes of one cluster. */
export const VXLAN_DEVICE = 'sealane-vx'
export const VXLAN_PORT = 4810
export const VXLAN_VNI = 7300

/** nft tables, family ip. */
export const NFT_TABLE_GATEWAY = 'sealane_gateway'
export const NFT_TABLE_NODE = 'sealane_node'

/** rtnetlink protocol number on every route and rule of ours. */
export const ROUTE_PROTOCOL = 173

/**
 * Route tables; the rule that leads to a table has the same number as its priority. In lookup order:
 * out of a lane towards another node's pods (routeagent), remote prefixes over this node's own lanes (gateway),
 * remote prefixes over the gateway nodes, then unreachable so that nothing leaks (routeagent).
 */
export const ROUTE_TABLE_FROM_LANES = 7310
export const ROUTE_TABLE_LANES = 7311
export const ROUTE_TABLE_NODE = 7312

/** Address ranges that Sealane brings along (class E, so that no real network has them). */
export const DEFAULT_GLOBAL_RANGE = '244.0.0.0/8'
export const DEFAULT_CLUSTERSET_IP_RANGE = '245.0.0.0/16'
/** Lane device addresses: see laneAddress() in addressing.ts. */
export const LANE_ADDRESS_RANGE = '246.0.0.0/8'

/** UDP port, on the lane address, that answers health probes inside the tunnel. */
export const LANE_PROBE_PORT = 4499

export function laneDevice(lane: number): string {
  return `${LANE_DEVICE_PREFIX}${lane}`
}

export function lanePort(lane: number): number {
  return LANE_BASE_PORT + lane
}
