/**
 * Plans what keeps other clusters out even if every nft table is lost. Pure.
 *
 * - A packet from the overlay to a pod of this cluster comes from another cluster: nodes of this cluster send each other
 *   nothing else over it. Without the mark of the access rules it is dropped.
 * - The node sends nothing to other clusters from an address outside the pods. With loose reverse-path filtering
 *   (kernel/tuning/device-settings.ts), the kernel then does not even accept an IPv4 packet to such an address, because
 *   it looks up the way back from there.
 */
import type { InterfaceAddress, Route, Rule } from '../../kernel/route/route.ts'
import {
  type Family,
  type Prefix,
  classifyAddress,
  containsAddress,
  formatAddress,
  formatPrefix,
  isAddress,
  parseAddress,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import {
  ADMITTED_MARK,
  LANE_ADDRESS_RANGE,
  LOOPBACK_DEVICE,
  ROUTE_TABLE_LOCAL,
  ROUTE_TABLE_NODE_SENDS,
  RULE_NODE_SENDS,
  RULE_NOT_ADMITTED,
  RULE_TO_NODE,
  VXLAN_DEVICE,
} from '../../model/model.ts'

/** `pods` are the pod CIDRs of this cluster, of the family. */
export function planOverlayGuard(pods: readonly Prefix[], family: Family): Rule[] {
  const base = { ...(family === 6 ? { family } : {}), inputDevice: VXLAN_DEVICE } as const
  return [
    { ...base, priority: RULE_TO_NODE, table: ROUTE_TABLE_LOCAL },
    ...pods.map((prefix): Rule => ({
      ...base,
      priority: RULE_NOT_ADMITTED,
      table: 0,
      action: 'blackhole',
      destination: formatPrefix(prefix),
      withoutMark: ADMITTED_MARK,
    })),
  ]
}

/** Each rule costs every packet a comparison. A node with more addresses has those of services among them. */
const MOST_SOURCES = 32

export interface NodeSendsInit {
  readonly family: Family
  readonly addresses: readonly InterfaceAddress[]
  /** Pod CIDRs of this cluster. */
  readonly pods: readonly Prefix[]
  /** Prefixes of other clusters that are routed for all packets of the node. */
  readonly destinations: readonly string[]
}

export function planNodeSends(init: NodeSendsInit): {
  readonly routes: readonly Route[]
  readonly rules: readonly Rule[]
} {
  const { family, addresses, pods, destinations } = init
  if (destinations.length === 0) return { routes: [], rules: [] }
  const fromPods = family === 4 ? [...pods, parsePrefix(LANE_ADDRESS_RANGE)] : pods
  const texts = addresses.map(({ address }) => address.split('/')[0] ?? '')
  const sources = [...new Set(texts)].filter(isAddress).filter((text) => {
    const address = parseAddress(text)
    if (address.family !== family || classifyAddress(address) !== 'usable') return false
    return !fromPods.some((prefix) => containsAddress(prefix, address))
  })
  return {
    routes: destinations.map((destination) => ({
      table: ROUTE_TABLE_NODE_SENDS,
      destination,
      type: 'unreachable',
      nextHops: [],
    })),
    rules: sources.slice(0, MOST_SOURCES).map((source) => ({
      ...(family === 6 ? { family } : {}),
      priority: RULE_NODE_SENDS,
      table: ROUTE_TABLE_NODE_SENDS,
      inputDevice: LOOPBACK_DEVICE,
      source: formatAddress(parseAddress(source)),
    })),
  }
}
