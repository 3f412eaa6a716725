/**
 * Which nodes make the best gateways. One function for a join, which chooses the first ones, and for the agent, which
 * replaces a chosen one that is gone. Pure.
 *
 * The order: nodes that a user labelled; then machines that stay, before spot and preemptible ones; then nodes with a
 * public address; then nodes that are not control plane nodes. From the second one on, an unused zone counts for more
 * than a public address: one end that can be called is enough, and one zone may fail as a whole. A machine that the
 * provider may take away within two minutes comes after everything else, also if it has a public address: links need
 * only one end that can be called, and a gateway that goes takes all its links with it. So it is chosen only where there
 * is nothing else.
 */
import { LABEL_ZONE, type Node, isMachine, nodeSigns } from '../model.ts'
import { ANY_LANE_VALUE, LABEL_GATEWAY, laneOfLabel, leavingReason } from './gateway-node.ts'
import { ANNOTATION_PUBLIC_ADDRESS } from './public-address.ts'
import { transientSign } from './transient-machine.ts'

/** Beside the label LABEL_GATEWAY: who set it. Absent if it was a user, whose gateways the agent never replaces. */
export const ANNOTATION_CHOSEN_BY = 'sealane.io/gateway-chosen-by'
/** The values of ANNOTATION_CHOSEN_BY. */
export const CHOSEN_BY_JOIN = 'join'
export const CHOSEN_BY_AGENT = 'agent'

/** What counts for the choice. */
export interface GatewayTraits {
  readonly node: string
  readonly isLabelled: boolean
  /** An address at which other clusters can call it, IPv4. */
  readonly publicAddress: string | undefined
  readonly isControlPlane: boolean
  /** What shows that its provider or an autoscaler may take the machine away at short notice. */
  readonly transient: string | undefined
  readonly zone: string | undefined
}

/** Returns all of them, the best one first. Those that differ in nothing but the public address take turns by zone. */
export function bestGateways<T extends GatewayTraits>(all: readonly T[]): readonly T[] {
  const left = [...all].sort((a, b) => rank(b) - rank(a) || (a.node < b.node ? -1 : 1))
  const taken = new Map<string, number>()
  const used = ({ zone = '' }: T): number => taken.get(zone) ?? 0
  const result: T[] = []
  while (left.length > 0) {
    const [first] = left
    if (first === undefined) break
    const rivals = result.length === 0 ? [first] : left.filter((one) => isLike(one, first))
    const next = rivals.reduce((a, b) => (used(b) < used(a) ? b : a))
    left.splice(left.indexOf(next), 1)
    taken.set(next.zone ?? '', used(next) + 1)
    result.push(next)
  }
  return result
}

/** Whether only the public address and the zone tell the two apart. */
function isLike(a: GatewayTraits, b: GatewayTraits): boolean {
  const isTransient = ({ transient }: GatewayTraits): boolean => transient !== undefined
  return a.isLabelled === b.isLabelled && isTransient(a) === isTransient(b) && a.isControlPlane === b.isControlPlane
}

function rank({ isLabelled, transient, publicAddress, isControlPlane }: GatewayTraits): number {
  const bits = [isLabelled, transient === undefined, publicAddress !== undefined, !isControlPlane]
  return bits.reduce((sum, bit) => sum * 2 + (bit ? 1 : 0), 0)
}

/** Takes a Node as the API server sends it, or as a cache keeps it. Never throws. */
export function gatewayTraits(node: unknown): GatewayTraits {
  const signs = nodeSigns(node)
  const { labels, annotations, name } = signs
  return {
    node: name,
    isLabelled: laneOfLabel(labels[LABEL_GATEWAY] ?? 'none') !== undefined,
    publicAddress: nonEmpty(annotations[ANNOTATION_PUBLIC_ADDRESS]) ?? ipv4Of(node, 'ExternalIP'),
    isControlPlane: CONTROL_PLANE.some((label) => labels[label] !== undefined),
    transient: transientSign(signs),
    zone: nonEmpty(labels[LABEL_ZONE]),
  }
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text
}

const CONTROL_PLANE = ['node-role.kubernetes.io/control-plane', 'node-role.kubernetes.io/master']

/** The first IPv4 address of this type in `status.addresses`. Takes any value. */
export function ipv4Of(node: unknown, type: 'InternalIP' | 'ExternalIP'): string | undefined {
  const { status } = (node ?? {}) as { readonly status?: { readonly addresses?: unknown } | null }
  const addresses: readonly unknown[] = Array.isArray(status?.addresses) ? status.addresses : []
  return addresses
    .slice(0, 1000)
    .map((entry) => (entry ?? {}) as { readonly type?: unknown; readonly address?: unknown })
    .filter((entry) => entry.type === type)
    .map(({ address }) => address)
    .find((text): text is string => typeof text === 'string' && /^\d+\.\d+\.\d+\.\d+$/.test(text))
}

/**
 * Whether join or the agent chose this Node as a gateway. A user who removes the annotation, or gives the label another
 * value, such as the number of a lane, takes the choice over.
 */
export function isChosenGateway({ metadata: { labels, annotations } }: Node): boolean {
  const by = annotations?.[ANNOTATION_CHOSEN_BY]
  return labels?.[LABEL_GATEWAY] === ANY_LANE_VALUE && (by === CHOSEN_BY_JOIN || by === CHOSEN_BY_AGENT)
}

/** Taints of machines that cannot take over now. */
const UNUSABLE: ReadonlySet<string> = new Set([
  'node.kubernetes.io/not-ready',
  'node.kubernetes.io/unreachable',
  'node.kubernetes.io/network-unavailable',
  'node.cloudprovider.kubernetes.io/uninitialized',
  'node.cloudprovider.kubernetes.io/shutdown',
])

/** Whether this Node, which has no gateway label, may be made a gateway now. */
export function mayBecomeGateway(node: Node): boolean {
  const { metadata, spec } = node
  return (
    metadata.labels?.[LABEL_GATEWAY] === undefined &&
    isMachine(node) &&
    leavingReason(node) === undefined &&
    ipv4Of(node, 'InternalIP') !== undefined &&
    spec?.taints?.some(({ key }) => UNUSABLE.has(key)) !== true
  )
}
