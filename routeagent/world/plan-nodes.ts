/** The nodes of this cluster as the overlay sees them: underlay address, next hops, MAC. Pure. */
import {
  type Address,
  type Family,
  InvalidAddressError,
  classifyAddress,
  formatAddress,
  parseAddress,
  specRanges,
} from '../../model/addresses/addresses.ts'
import { type Node, VXLAN_DEVICE } from '../../model/model.ts'
import type { NextHop } from '../../kernel/route/route.ts'
import type { Problem } from '../../model/reasons/reasons.ts'

/** An object that is left out of the plan, with a reason on which an operator can act. */
export interface PlanProblem extends Problem {
  /** The object that is left out, such as `Node worker-2` or `Cluster paris`. */
  readonly subject: string
}

export interface OverlayNode {
  readonly name: string
  readonly address: Address
  readonly object: Node
}

export interface OverlayNodes {
  readonly nodes: ReadonlyMap<string, OverlayNode>
  readonly problems: readonly PlanProblem[]
}

/** Reads every Node. A Node that cannot be used is listed in the problems and does not affect the others. */
export function overlayNodes(nodes: readonly Node[]): OverlayNodes {
  const found = new Map<string, OverlayNode>()
  const problems: PlanProblem[] = []
  const owners = new Map<string, string>()
  for (const node of [...nodes].sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))) {
    const subject = `Node ${node.metadata.name}`
    try {
      const address = internalAddress(node)
      const text = formatAddress(address)
      const owner = owners.get(text)
      if (owner !== undefined) throw new Unusable(`InternalIP ${text} already belongs to node ${owner}`)
      owners.set(text, node.metadata.name)
      // This throws for a bad range, so that such a Node is left out here and nowhere else.
      specRanges(node, [])
      found.set(node.metadata.name, { name: node.metadata.name, address, object: node })
    } catch (error) {
      if (!(error instanceof Unusable || error instanceof InvalidAddressError)) throw error
      problems.push({ subject, reason: 'NodeNotUsable', message: error.message })
    }
  }
  return { nodes: found, problems }
}

/** Metric of routes that have a next hop. */
export const METRIC_VIA_GATEWAY = 100

/** The next hop over the overlay to that node, for packets of that family. */
export function hopTo(node: OverlayNode, family: Family): NextHop {
  return { device: VXLAN_DEVICE, via: overlayGateway(node, family), onlink: true }
}

/**
 * The gateway address of a node in routes over the overlay. No device needs to have the address: a permanent neighbour
 * entry maps it to the node's MAC.
 */
export function overlayGateway(node: OverlayNode, family: Family): string {
  return formatAddress(family === 4 ? node.address : overlayLinkLocal(node.address))
}

/** A link-local address made from the node's InternalIP: fe80::5ea1:c0a8:70b. */
export function overlayLinkLocal(address: Address): Address {
  return { family: 6, value: OVERLAY_LINK_LOCAL + address.value }
}

const OVERLAY_LINK_LOCAL = 0xfe80_0000_0000_0000_0000_5ea1_0000_0000n

/** MAC of a node's sealane-vx: locally administered, 0a:5e, then the four bytes of its InternalIP. */
export function overlayMac(address: Address): string {
  const hex = address.value.toString(16).padStart(8, '0')
  return ['0a', '5e', ...(hex.match(/../g) ?? [])].join(':')
}

class Unusable extends Error {}

function internalAddress(node: Node): Address {
  const texts = (node.status?.addresses ?? []).filter((a) => a.type === 'InternalIP').map((a) => a.address)
  if (texts.length === 0) throw new Unusable('status.addresses has no InternalIP')
  const addresses = texts.map((text) => parseAddress(text, 'InternalIP'))
  const found = addresses.find((address) => address.family === 4)
  if (found === undefined) throw new Unusable(`InternalIP ${texts.join(', ')}: expected one IPv4 address`)
  const is = classifyAddress(found)
  if (is !== 'usable') throw new Unusable(`InternalIP ${formatAddress(found)} is a ${is} address`)
  return found
}
