/**
 * Which Nodes of a Kubernetes cluster are gateways, and on which lane. The Node itself states it, set by an operator or
 * by join. Most Nodes state no lane number; Leases then decide which node has which lane.
 */
import { classifyAddress, parseAddress } from '../addresses/addresses.ts'
import type { Node } from '../model.ts'
import type { ReasonCode } from '../reasons/reasons.ts'
import { MAX_LANE, isLaneNumber } from './lane-number.ts'

/** Its value is `true`, or the number of the only lane that the node may serve: `sealane.io/gateway=0`. */
export const LABEL_GATEWAY = 'sealane.io/gateway'
/** The value without a lane number; an empty value means the same. */
export const ANY_LANE_VALUE = 'true'
/** The number of simultaneously active gateways of a cluster, if it is not configured. */
export const DEFAULT_ACTIVE_GATEWAYS = 2
/** The address at which other clusters reach this gateway if it is not the node's own (port forwarding, 1:1 NAT). */
export const ANNOTATION_PUBLIC_ADDRESS = 'sealane.io/public-address'

/** With any value: traffic is to leave this gateway. A cordon means the same. */
export const LABEL_DRAIN = 'sealane.io/drain'

/** When its value changes, the gateway rotates its key. Any text of up to 64 characters, usually a time. */
export const ANNOTATION_ROTATE_KEYS = 'sealane.io/rotate-keys'

export interface GatewayLane {
  readonly lane: number
  readonly publicAddress?: string
}

/** What a Node states. `any` stands for a number that no other gateway has. */
export interface GatewayLabel {
  readonly lane: number | 'any'
  readonly publicAddress?: string
}

/** Thrown for a Node that has the label but cannot be a gateway in its present state. */
export class GatewayNodeError extends Error {
  readonly reason: ReasonCode

  constructor(node: string, problem: string, reason: ReasonCode = 'InvalidValue') {
    super(`Node ${node}: ${problem}`)
    this.name = 'GatewayNodeError'
    this.reason = reason
  }
}

/** Parses the lane in a label's value; undefined if the value is invalid. */
export function laneOfLabel(value: string): number | 'any' | undefined {
  if (value === '' || value === ANY_LANE_VALUE) return 'any'
  return /^\d{1,3}$/.test(value) && isLaneNumber(Number(value)) ? Number(value) : undefined
}

/**
 * Undefined if the Node is not a gateway. Throws GatewayNodeError with the label or annotation and its value, or with
 * the addresses of a node that has no IPv4: other nodes cannot reach it over the overlay, which is IPv4.
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

/** Returns why a Node with the label cannot be a gateway in its present state; undefined if it can, or has no label. */
export function gatewayProblem(node: Node): GatewayNodeError | undefined {
  try {
    gatewayLabel(node)
    return undefined
  } catch (error) {
    if (error instanceof GatewayNodeError) return error
    throw error
  }
}

/** Returns its InternalIPs if it has some and none is IPv4. A Node without InternalIPs is still being registered. */
function addressesWithoutIpv4({ status }: Node): readonly string[] {
  const internal = (status?.addresses ?? []).filter(({ type }) => type === 'InternalIP').map(({ address }) => address)
  return internal.some((address) => !address.includes(':')) ? [] : internal
}

/** Whether its label permits this lane. */
export function mayServe(node: Node, lane: number): boolean {
  const stated = statedLane(node)
  return stated === lane || stated === 'any'
}

/** Taints of nodes that are being removed: by kubectl or an operator after a power loss, and by the two autoscalers. */
const TAINTS_OF_LEAVING = [
  'node.kubernetes.io/out-of-service',
  'ToBeDeletedByClusterAutoscaler',
  'karpenter.sh/disrupted',
  'karpenter.sh/disruption',
]

/** Returns why this Node is about to leave, in words; undefined if it is not. A drain begins with a cordon. */
export function leavingReason({ metadata, spec }: Node): string | undefined {
  if (metadata.labels?.[LABEL_DRAIN] !== undefined) return `the node has the label ${LABEL_DRAIN}`
  if (spec?.unschedulable === true) return 'the node is cordoned'
  const taint = spec?.taints?.find(({ key }) => TAINTS_OF_LEAVING.includes(key))
  return taint === undefined ? undefined : `the node has the taint ${taint.key}`
}

/**
 * Whether the Node is not ready. Its kubelet reports this when the machine shuts down, before it stops the system's
 * pods.
 */
export function isNotReady({ spec }: Node): boolean {
  return spec?.taints?.some(({ key }) => key === 'node.kubernetes.io/not-ready') === true
}

/**
 * Returns the nodes whose label names this lane, the preferred one first: nodes with a public address of their own,
 * then nodes that are not control plane nodes, then by name. Nodes that are about to leave, or cannot be gateways, are
 * left out.
 */
export function laneCandidates(nodes: readonly Node[], lane: number): readonly string[] {
  return bestFirst(nodes.filter((node) => statedLane(node) === lane))
}

/**
 * Returns the nodes, in the same order, whose label names no lane and that hold none. `holders` are the nodes that hold
 * any lane.
 */
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

// On a site, the site file defines the gateways. These labels present them to readers of Nodes as on a cluster. Pure.

export interface NodeGateway {
  readonly node: string
  /** Absent: any lane that no other gateway has. */
  readonly lane?: number
  readonly publicAddress?: string
}

/** Returns the Node with exactly the label and the address that `gateways` has for it. */
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
