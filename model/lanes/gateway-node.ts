/**
 * Which Nodes of a real cluster are gateways, and on which lane: stated on the Node itself, by an operator or by join.
 */
import { classifyAddress, parseAddress } from '../addresses/ip.ts'
import type { Node } from '../objects.ts'
import { MAX_LANE, isLaneNumber } from './lane-number.ts'

/** Its value is the lane's number: `sealane.io/gateway=0`. */
export const LABEL_GATEWAY = 'sealane.io/gateway'
/** Where other clusters may call this gateway, when that is no address of its own (port forwarding, 1:1 NAT). */
export const ANNOTATION_PUBLIC_ADDRESS = 'sealane.io/public-address'

export interface GatewayLane {
  readonly lane: number
  readonly publicAddress?: string
}

export class GatewayNodeError extends Error {
  constructor(node: string, problem: string) {
    super(`Node ${node}: ${problem}`)
    this.name = 'GatewayNodeError'
  }
}

/** Undefined when the Node is no gateway. Throws GatewayNodeError naming the label or annotation and its value. */
export function gatewayLane({ metadata }: Node): GatewayLane | undefined {
  const label = metadata.labels?.[LABEL_GATEWAY]
  if (label === undefined) return undefined
  const lane = Number(label)
  if (!/^\d{1,3}$/.test(label) || !isLaneNumber(lane)) {
    const said = `label ${LABEL_GATEWAY} ${JSON.stringify(label)}`
    throw new GatewayNodeError(metadata.name, `${said}: expected the number of a lane, 0 to ${MAX_LANE}`)
  }
  const publicAddress = metadata.annotations?.[ANNOTATION_PUBLIC_ADDRESS]
  if (publicAddress === undefined) return { lane }
  return { lane, publicAddress: checkedAddress(metadata.name, publicAddress) }
}

/** Set by those who take nodes away: kubectl and people after a power loss, and the two autoscalers. */
const TAINTS_OF_LEAVING = [
  'node.kubernetes.io/out-of-service',
  'ToBeDeletedByClusterAutoscaler',
  'karpenter.sh/disrupted',
  'karpenter.sh/disruption',
]

/** Why this Node is about to go, in words; undefined when it is not. A drain begins with a cordon. */
export function leavingReason({ spec }: Node): string | undefined {
  if (spec?.unschedulable === true) return 'the node is cordoned'
  const taint = spec?.taints?.find(({ key }) => TAINTS_OF_LEAVING.includes(key))
  return taint === undefined ? undefined : `the node has the taint ${taint.key}`
}

/** Its kubelet says so when the machine shuts down, before it ends the pods of the system. */
export function isNotReady({ spec }: Node): boolean {
  return spec?.taints?.some(({ key }) => key === 'node.kubernetes.io/not-ready') === true
}

/**
 * Nodes that may take a lane over, the best one first: with a public address of their own, then those that are no
 * control plane, then by name. Those that are about to go are left out.
 */
export function laneCandidates(nodes: readonly Node[], lane: number): readonly string[] {
  const rank = ({ metadata }: Node): number =>
    (metadata.annotations?.[ANNOTATION_PUBLIC_ADDRESS] === undefined ? 2 : 0) +
    (metadata.labels?.[LABEL_CONTROL_PLANE] === undefined ? 0 : 1)
  return nodes
    .filter((node) => node.metadata.labels?.[LABEL_GATEWAY] === String(lane) && leavingReason(node) === undefined)
    .sort((a, b) => rank(a) - rank(b) || (a.metadata.name < b.metadata.name ? -1 : 1))
    .map(({ metadata }) => metadata.name)
}

const LABEL_CONTROL_PLANE = 'node-role.kubernetes.io/control-plane'

function checkedAddress(node: string, text: string): string {
  const field = `annotation ${ANNOTATION_PUBLIC_ADDRESS}`
  try {
    const kind = classifyAddress(parseAddress(text, field))
    if (kind !== 'usable') throw new Error(`${field} ${JSON.stringify(text)}: it is ${kind}`)
  } catch (error) {
    throw new GatewayNodeError(node, (error as Error).message)
  }
  return text
}
