/**
 * Which Nodes of a real cluster are gateways, and on which lane: stated on the Node itself, by an operator or by join.
 * Most leave the number open; Leases then decide who has which one.
 */
import { classifyAddress, parseAddress } from '../addresses/addresses.ts'
import type { Node } from '../model.ts'
import type { ReasonCode } from '../reasons/reasons.ts'
import { MAX_LANE, isLaneNumber } from './lane-number.ts'

/** Its value is `true`, or the number of the only lane that the node may serve: `sealane.io/gateway=0`. */
export const LABEL_GATEWAY = 'sealane.io/gateway'
/** The value that leaves the number open; none at all does as well. */
export const ANY_LANE_VALUE = 'true'
/** How many gateways a cluster has at once where nobody says so. */
export const DEFAULT_ACTIVE_GATEWAYS = 2
/** Where other clusters may call this gateway, when that is no address of its own (port forwarding, 1:1 NAT). */
export const ANNOTATION_PUBLIC_ADDRESS = 'sealane.io/public-address'

/** Whatever its value: traffic is to leave this gateway. A cordon says so as well. */
export const LABEL_DRAIN = 'sealane.io/drain'

/** Another value than before: the gateway makes its key anew. Any text, up to 64 characters: mostly a time. */
export const ANNOTATION_ROTATE_KEYS = 'sealane.io/rotate-keys'

export interface GatewayLane {
  readonly lane: number
  readonly publicAddress?: string
}

/** What a Node states. any: a number that no other gateway has. */
export interface GatewayLabel {
  readonly lane: number | 'any'
  readonly publicAddress?: string
}

/** A Node that has the label and cannot be a gateway as it is. */
export class GatewayNodeError extends Error {
  readonly reason: ReasonCode

  constructor(node: string, problem: string, reason: ReasonCode = 'InvalidValue') {
    super(`Node ${node}: ${problem}`)
    this.name = 'GatewayNodeError'
    this.reason = reason
  }
}

/** The lane of a label's value; undefined for a value that says none. */
export function laneOfLabel(value: string): number | 'any' | undefined {
  if (value === '' || value === ANY_LANE_VALUE) return 'any'
  return /^\d{1,3}$/.test(value) && isLaneNumber(Number(value)) ? Number(value) : undefined
}

/**
 * Undefined when the Node is no gateway. Throws GatewayNodeError naming the label or annotation and its value, or the
 * addresses of a node that other nodes cannot reach over the overlay, which is IPv4.
 */
export function gatewayLabel(node: Node): GatewayLabel | undefined {
  const { metadata } = node
  const label = metadata.labels?.[LABEL_GATEWAY]
  if (label === undefined) return undefined
  const lane = laneOfLabel(label)
  if (lane === undefined) {
    const said = `label ${LABEL_GATEWAY} ${JSON.stringify(label)}`
    const expected = `${ANY_LANE_VALUE}, or the number of a lane, 0 to ${MAX_LANE}`
    throw new GatewayNodeError(metadata.name, `${said}: expected ${expected}`)
  }
  const internal = addressesWithoutIpv4(node)
  if (internal.length > 0) {
    const problem = `InternalIP ${internal.join(', ')}: a gateway needs an IPv4 address among its nodes`
    throw new GatewayNodeError(metadata.name, problem, 'GatewayWithoutIPv4')
  }
  const publicAddress = metadata.annotations?.[ANNOTATION_PUBLIC_ADDRESS]
  if (publicAddress === undefined) return { lane }
  return { lane, publicAddress: checkedAddress(metadata.name, publicAddress) }
}

/** Why a Node with the label cannot be a gateway as it is; undefined where it can, or has no label. */
export function gatewayProblem(node: Node): GatewayNodeError | undefined {
  try {
    gatewayLabel(node)
    return undefined
  } catch (error) {
    if (error instanceof GatewayNodeError) return error
    throw error
  }
}

/** Its InternalIPs where it states some and none is IPv4. A Node that states none is being registered. */
function addressesWithoutIpv4({ status }: Node): readonly string[] {
  const internal = (status?.addresses ?? []).filter(({ type }) => type === 'InternalIP').map(({ address }) => address)
  return internal.some((address) => !address.includes(':')) ? [] : internal
}

/** Its label leaves it this lane, or all. */
export function mayServe(node: Node, lane: number): boolean {
  const stated = statedLane(node)
  return stated === lane || stated === 'any'
}

/** Set by those who take nodes away: kubectl and people after a power loss, and the two autoscalers. */
const TAINTS_OF_LEAVING = [
  'node.kubernetes.io/out-of-service',
  'ToBeDeletedByClusterAutoscaler',
  'karpenter.sh/disrupted',
  'karpenter.sh/disruption',
]

/** Why this Node is about to go, in words; undefined when it is not. A drain begins with a cordon. */
export function leavingReason({ metadata, spec }: Node): string | undefined {
  if (metadata.labels?.[LABEL_DRAIN] !== undefined) return `the node has the label ${LABEL_DRAIN}`
  if (spec?.unschedulable === true) return 'the node is cordoned'
  const taint = spec?.taints?.find(({ key }) => TAINTS_OF_LEAVING.includes(key))
  return taint === undefined ? undefined : `the node has the taint ${taint.key}`
}

/** Its kubelet says so when the machine shuts down, before it ends the pods of the system. */
export function isNotReady({ spec }: Node): boolean {
  return spec?.taints?.some(({ key }) => key === 'node.kubernetes.io/not-ready') === true
}

/**
 * Nodes whose label says this lane, the best one to take it first: with a public address of their own, then those that
 * are no control plane, then by name. Those that are about to go, or cannot be gateways as they are, are left out.
 */
export function laneCandidates(nodes: readonly Node[], lane: number): readonly string[] {
  return bestFirst(nodes.filter((node) => statedLane(node) === lane))
}

/** The same of those that leave the number open and have none. Takes who holds any lane. */
export function standbys(nodes: readonly Node[], holders: ReadonlySet<string>): readonly string[] {
  return bestFirst(nodes.filter((node) => statedLane(node) === 'any' && !holders.has(node.metadata.name)))
}

function bestFirst(nodes: readonly Node[]): readonly string[] {
  const rank = ({ metadata }: Node): number =>
    (metadata.annotations?.[ANNOTATION_PUBLIC_ADDRESS] === undefined ? 2 : 0) +
    (metadata.labels?.[LABEL_CONTROL_PLANE] === undefined ? 0 : 1)
  return nodes
    .filter((node) => leavingReason(node) === undefined && gatewayProblem(node) === undefined)
    .sort((a, b) => rank(a) - rank(b) || (a.metadata.name < b.metadata.name ? -1 : 1))
    .map(({ metadata }) => metadata.name)
}

function statedLane({ metadata }: Node): number | 'any' | undefined {
  const label = metadata.labels?.[LABEL_GATEWAY]
  return label === undefined ? undefined : laneOfLabel(label)
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

// On a site the site file says which nodes are gateways. What reads Nodes finds it there as on a cluster. Pure.

export interface NodeGateway {
  readonly node: string
  /** Absent: any that no other gateway has. */
  readonly lane?: number
  readonly publicAddress?: string
}

/** The Node with the label and the address that `gateways` has for it, and with no other ones. */
export function withGatewayLabels(node: Node, gateways: readonly NodeGateway[]): Node {
  const { labels = {}, annotations = {}, ...metadata } = node.metadata
  const row = gateways.find((gateway) => gateway.node === metadata.name)
  const { [LABEL_GATEWAY]: _label, ...otherLabels } = labels
  const { [ANNOTATION_PUBLIC_ADDRESS]: _address, ...otherAnnotations } = annotations
  const label = row === undefined ? {} : { [LABEL_GATEWAY]: row.lane?.toString() ?? ANY_LANE_VALUE }
  const address = row?.publicAddress === undefined ? {} : { [ANNOTATION_PUBLIC_ADDRESS]: row.publicAddress }
  return {
    ...node,
    metadata: { ...metadata, labels: { ...otherLabels, ...label }, annotations: { ...otherAnnotations, ...address } },
  }
}
