/**
 * Which Nodes of a Kubernetes cluster are gateways, and on which lane. The Node itself states it, set by an operator or
 * by join. Most Nodes state no lane number; Leases then decide which node has which lane.
 */
import { type Endpoint, type Node, nodeSigns } from '../model.ts'
import type { ReasonCode } from '../reasons/reasons.ts'
import { MAX_LANE, isLaneNumber } from './lane-number.ts'
import {
  ANNOTATION_LISTEN_PORT,
  ANNOTATION_PORT_MAPPING,
  ANNOTATION_PUBLIC_ADDRESS,
  ANNOTATION_PUBLIC_PORT,
  ANNOTATION_RELAY,
  type CalledAt,
  NO_PORT_MAPPING_VALUE,
  RELAY_VALUE,
  calledAt,
  firstPortProblem,
  parsePort,
  publicAddressProblem,
  relayProblem,
} from './public-address.ts'
import { transientSign } from './transient-machine.ts'

/** Its value is `true`, or the number of the only lane that the node may serve: `sealane.io/gateway=0`. */
export const LABEL_GATEWAY = 'sealane.io/gateway'
/** The value without a lane number; an empty value means the same. */
export const ANY_LANE_VALUE = 'true'
/** The number of simultaneously active gateways of a cluster, if it is not configured. */
export const DEFAULT_ACTIVE_GATEWAYS = 2

/** With any value: traffic is to leave this gateway. A cordon means the same. */
export const LABEL_DRAIN = 'sealane.io/drain'

/** When its value changes, the gateway rotates its key. Any text of up to 64 characters, usually a time. */
export const ANNOTATION_ROTATE_KEYS = 'sealane.io/rotate-keys'

export interface GatewayLane extends CalledAt {
  readonly lane: number
}

/** What a Node states. `any` stands for a number that no other gateway has. */
export interface GatewayLabel extends CalledAt {
  readonly lane: number | 'any'
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
 * the addresses of a node that has no IPv4: other nodes cannot reach it over the overlay, which is IPv4. `overlayPort` is
 * the UDP port of the overlay, on which no gateway may listen.
 */
export function gatewayLabel(node: Node, overlayPort?: number): GatewayLabel | undefined {
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
  return { lane, ...statedCalls(node, overlayPort) }
}

/** Returns why a Node with the label cannot be a gateway in its present state; undefined if it can, or has no label. */
export function gatewayProblem(node: Node, overlayPort?: number): GatewayNodeError | undefined {
  try {
    gatewayLabel(node, overlayPort)
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
  'cloud.google.com/impending-node-termination',
]
/** The AWS Node Termination Handler has a taint for each kind of notice. */
const TAINT_PREFIX_OF_LEAVING = 'aws-node-termination-handler/'

/**
 * Returns why this Node is being removed for good, in words; undefined if it is not. A cordon is no removal, and neither
 * is a node that is not ready.
 */
export function removalReason({ metadata, spec }: Node): string | undefined {
  if (metadata.deletionTimestamp !== undefined) return 'the node is being deleted'
  const taint = spec?.taints?.find(
    ({ key }) => TAINTS_OF_LEAVING.includes(key) || key.startsWith(TAINT_PREFIX_OF_LEAVING),
  )
  return taint === undefined ? undefined : `the node has the taint ${taint.key}`
}

/** Returns why this Node is about to leave, in words; undefined if it is not. A drain begins with a cordon. */
export function leavingReason(node: Node): string | undefined {
  const { metadata, spec } = node
  if (metadata.labels?.[LABEL_DRAIN] !== undefined) return `the node has the label ${LABEL_DRAIN}`
  if (spec?.unschedulable === true) return 'the node is cordoned'
  return removalReason(node)
}

/**
 * Whether the Node is not ready. Its kubelet reports this when the machine shuts down, before it stops the system's
 * pods.
 */
export function isNotReady({ spec }: Node): boolean {
  return spec?.taints?.some(({ key }) => key === 'node.kubernetes.io/not-ready') === true
}

/** Taints of machines of which the cluster hears nothing, or whose provider says that they are switched off. */
const TAINTS_OF_SILENCE = [
  'node.cloudprovider.kubernetes.io/shutdown',
  'node.kubernetes.io/unreachable',
  'node.kubernetes.io/not-ready',
]

/**
 * Returns the taint that says that this Node does not work now; undefined if it has none. It may work again at any
 * time, and its pods may work even now: only its kubelet is known not to report.
 */
export function silenceTaint({ spec }: Node): string | undefined {
  return TAINTS_OF_SILENCE.find((taint) => spec?.taints?.some(({ key }) => key === taint))
}

/**
 * Returns the nodes whose label names this lane, the preferred one first: machines that stay before spot ones, then
 * nodes with a public address of their own, then nodes that are not control plane nodes, then by name. Each node waits a
 * turn for each one before it, so a spot machine takes a lane only if none that stays does. Nodes that are about to leave, or cannot be gateways, are
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

/**
 * Whether no other node of the cluster has an Endpoint, so that all packets of a connection come by this node. Both the
 * gateway and the route agent of a node ask, and must agree.
 */
export function isOnlyGateway(cluster: string, node: string, endpoints: readonly Endpoint[]): boolean {
  return endpoints.every(({ spec }) => spec.cluster !== cluster || spec.node === node)
}

function bestFirst(nodes: readonly Node[]): readonly string[] {
  const rank = (node: Node): number => (transientSign(nodeSigns(node)) === undefined ? 0 : 4) + rankAmongAlike(node)
  const rankAmongAlike = ({ metadata }: Node): number =>
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

/** The annotations about calls. Throws GatewayNodeError with the annotation and its value. */
function statedCalls({ metadata: { name, annotations = {} } }: Node, overlayPort?: number): CalledAt {
  const refuse = (key: string, problem: string | undefined): void => {
    if (problem === undefined) return
    throw new GatewayNodeError(name, `annotation ${key} ${JSON.stringify(annotations[key])}: ${problem}`)
  }
  const portOf = (key: string, side: 'public' | 'listen'): number | undefined => {
    const text = annotations[key]
    if (text === undefined) return undefined
    const port = parsePort(text)
    refuse(key, firstPortProblem(port, side, overlayPort))
    return port
  }
  const publicAddress = annotations[ANNOTATION_PUBLIC_ADDRESS]
  if (publicAddress !== undefined) refuse(ANNOTATION_PUBLIC_ADDRESS, publicAddressProblem(publicAddress))
  const publicPort = portOf(ANNOTATION_PUBLIC_PORT, 'public')
  const offer = annotations[ANNOTATION_RELAY]
  if (offer !== undefined && offer !== RELAY_VALUE)
    refuse(ANNOTATION_RELAY, `expected ${RELAY_VALUE}, or no such annotation`)
  const relay = offer === undefined ? undefined : true
  const listenPort = portOf(ANNOTATION_LISTEN_PORT, 'listen')
  if (relay !== undefined) refuse(ANNOTATION_RELAY, relayProblem({ listenPort, publicPort }, overlayPort))
  const mapping = annotations[ANNOTATION_PORT_MAPPING]
  if (mapping !== undefined && mapping !== NO_PORT_MAPPING_VALUE)
    refuse(ANNOTATION_PORT_MAPPING, `expected ${NO_PORT_MAPPING_VALUE}, or no such annotation`)
  const portMapping = mapping === undefined ? undefined : false
  return calledAt({ publicAddress, publicPort, listenPort, relay, portMapping })
}

/** The first port on which the gateway of this Node listens. Undefined if the Node states none that is usable. */
export function statedListenPort({ metadata }: Node): number | undefined {
  const port = parsePort(metadata.annotations?.[ANNOTATION_LISTEN_PORT] ?? '')
  return firstPortProblem(port, 'listen') === undefined ? port : undefined
}

// On a site, the site file defines the gateways. These labels present them to readers of Nodes as on a cluster. Pure.

export interface NodeGateway extends CalledAt {
  readonly node: string
  /** Absent: any lane that no other gateway has. */
  readonly lane?: number
}

/** Returns the Node with exactly the label, the address and the ports that `gateways` has for it. */
export function withGatewayLabels(node: Node, gateways: readonly NodeGateway[]): Node {
  const { labels = {}, annotations = {}, ...metadata } = node.metadata
  const row = gateways.find((gateway) => gateway.node === metadata.name)
  const { [LABEL_GATEWAY]: _label, ...otherLabels } = labels
  const {
    [ANNOTATION_PUBLIC_ADDRESS]: _address,
    [ANNOTATION_PUBLIC_PORT]: _publicPort,
    [ANNOTATION_LISTEN_PORT]: _listenPort,
    [ANNOTATION_RELAY]: _relay,
    [ANNOTATION_PORT_MAPPING]: _portMapping,
    ...otherAnnotations
  } = annotations
  const label = row === undefined ? {} : { [LABEL_GATEWAY]: row.lane?.toString() ?? ANY_LANE_VALUE }
  const stated = row === undefined ? {} : callAnnotations(row)
  return {
    ...node,
    metadata: { ...metadata, labels: { ...otherLabels, ...label }, annotations: { ...otherAnnotations, ...stated } },
  }
}

/** The annotations that state this. */
export function callAnnotations(calls: CalledAt): Record<string, string> {
  const { publicAddress, publicPort, listenPort, relay, portMapping } = calls
  return {
    ...(publicAddress === undefined ? {} : { [ANNOTATION_PUBLIC_ADDRESS]: publicAddress }),
    ...(publicPort === undefined ? {} : { [ANNOTATION_PUBLIC_PORT]: String(publicPort) }),
    ...(listenPort === undefined ? {} : { [ANNOTATION_LISTEN_PORT]: String(listenPort) }),
    ...(relay === undefined ? {} : { [ANNOTATION_RELAY]: RELAY_VALUE }),
    ...(portMapping === undefined ? {} : { [ANNOTATION_PORT_MAPPING]: NO_PORT_MAPPING_VALUE }),
  }
}
