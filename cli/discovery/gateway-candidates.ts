/** Determines which nodes can be gateways, the best first, and why. Pure. */
import {
  ANNOTATION_CHOSEN_BY,
  ANNOTATION_PUBLIC_ADDRESS,
  ANNOTATION_PUBLIC_PORT,
  LABEL_GATEWAY,
  bestGateways,
  gatewayTraits,
  ipv4Of,
  laneOfLabel,
  removalReason,
} from '../../model/lanes/lanes.ts'
import { LABELLED_BY_JOIN, LABEL_VIRTUAL_NODE, type Node, nodeMachine, nodeSigns } from '../../model/model.ts'
import { type World, annotationOf, at, labelOf, listAt, nameOf, textAt } from './snapshot.ts'

export interface GatewayCandidate {
  readonly node: string
  /** The lane in its label. Undefined without the label. */
  readonly lane: number | 'any' | undefined
  /** The address in the annotation, else the Node's ExternalIP. */
  readonly publicAddress: string | undefined
  /** The address is in the annotation. A gateway does not read the ExternalIP, so a join has to annotate it. */
  readonly annotated: boolean
  /** Those that the Node states. */
  readonly addresses?: readonly string[]
  /** A join or the agent chose it, and the agent replaces it. */
  readonly isChosen?: boolean
  /** An annotation states the first port of the public address. */
  readonly statesPort?: boolean
  readonly zone: string | undefined
  /** What shows that its provider may take the machine away at short notice. */
  readonly transient: string | undefined
  /** The reasons for its rank as text, the strongest first. */
  readonly reasons: readonly string[]
}

/** A node that cannot be a gateway, or cannot become one now. */
export interface UnfitNode {
  readonly node: string
  /** The lane in its label. A labelled node stays a gateway while it is cordoned or unavailable. */
  readonly lane: number | 'any' | undefined
  readonly why: string
  /**
   * The node is cordoned or unavailable now and may become a gateway later. Otherwise it cannot be one, whatever its
   * label is.
   */
  readonly isAway: boolean
  /** A virtual node that no label shows, so no node affinity leaves it out until a join labels it. */
  readonly isUnlabelled?: true
  /** A join labelled it as a virtual node, and nothing else shows for certain that it is one. */
  readonly isMislabelled?: true
  /** As of a candidate. */
  readonly publicAddress?: string | undefined
  readonly addresses?: readonly string[]
  readonly statesPort?: boolean
}

export interface GatewayNodes {
  readonly candidates: readonly GatewayCandidate[]
  readonly unfit: readonly UnfitNode[]
}

/** Nodes reach their gateways over the overlay, which is IPv4. */
export const NO_IPV4 = 'no IPv4 InternalIP'

export function gatewayNodes(world: World): GatewayNodes {
  const validated = world.list('Node', '').map((node) => {
    const never = whyNever(node)
    return { node, why: never ?? whyAway(node), isAway: never === undefined }
  })
  const fit = validated
    .filter((one) => one.why === undefined)
    .map(({ node }) => ({ ...gatewayTraits(node), candidate: candidate(node) }))
  return {
    candidates: bestGateways(fit).map((one) => one.candidate),
    unfit: validated.flatMap(({ node, why, isAway }) =>
      why === undefined
        ? []
        : [{ node: nameOf(node), lane: laneOf(node), why, isAway, ...calledAt(node), ...unlabelled(node) }],
    ),
  }
}

function unlabelled(node: unknown): Pick<UnfitNode, 'isUnlabelled' | 'isMislabelled'> {
  const machine = nodeMachine(node)
  if (machine.is !== 'virtual') return {}
  if (machine.isSure) return machine.isLabelled ? {} : { isUnlabelled: true }
  return nodeSigns(node).labels[LABEL_VIRTUAL_NODE] === LABELLED_BY_JOIN ? { isMislabelled: true } : {}
}

function whyNever(node: unknown): string | undefined {
  const machine = nodeMachine(node)
  if (machine.is === 'other-system') return 'not Linux'
  if (machine.is === 'virtual') return 'no machine of its own'
  return statesNoIpv4(node) ? NO_IPV4 : undefined
}

function whyAway(node: unknown): string | undefined {
  if (at(node, 'spec', 'unschedulable') === true) return 'cordoned'
  if (isBeingRemoved(node)) return 'being removed'
  const ready = listAt(node, 'status', 'conditions').find((one) => textAt(one, 'type') === 'Ready')
  if (textAt(ready, 'status') !== 'True') return 'not Ready'
  return internalIpv4(node) === undefined ? NO_IPV4 : undefined
}

function isBeingRemoved(node: unknown): boolean {
  const { name, taints } = nodeSigns(node)
  const deletionTimestamp = textAt(node, 'metadata', 'deletionTimestamp')
  const metadata = { name, ...(deletionTimestamp === undefined ? {} : { deletionTimestamp }) }
  return removalReason({ apiVersion: 'v1', kind: 'Node', metadata, spec: { taints } } satisfies Node) !== undefined
}

function calledAt(node: unknown): Required<Pick<UnfitNode, 'publicAddress' | 'addresses' | 'statesPort'>> {
  const statesPort = annotationOf(node, ANNOTATION_PUBLIC_PORT) !== undefined
  const addresses = listAt(node, 'status', 'addresses')
    .filter((entry) => ['InternalIP', 'ExternalIP'].includes(textAt(entry, 'type') ?? ''))
    .flatMap((entry) => textAt(entry, 'address') ?? [])
  return { publicAddress: gatewayTraits(node).publicAddress, addresses, statesPort }
}

function candidate(node: unknown): GatewayCandidate {
  const { publicAddress, zone, transient, isControlPlane } = gatewayTraits(node)
  const { addresses, statesPort } = calledAt(node)
  const isChosen = annotationOf(node, ANNOTATION_CHOSEN_BY) !== undefined
  const lane = laneOf(node)
  const reasons = [
    ...(lane === undefined ? [] : [`labelled ${LABEL_GATEWAY}=${labelOf(node, LABEL_GATEWAY) ?? ''}`]),
    ...(transient === undefined ? [] : [`may be taken away (${transient})`]),
    ...(publicAddress === undefined ? [] : [`public address ${publicAddress}`]),
    isControlPlane ? 'control plane' : 'not a control plane node',
    ...(zone === undefined ? [] : [`zone ${zone}`]),
  ]
  const annotated = annotationOf(node, ANNOTATION_PUBLIC_ADDRESS) !== undefined
  return {
    node: nameOf(node),
    lane,
    publicAddress,
    addresses,
    annotated,
    isChosen,
    statesPort,
    zone,
    transient,
    reasons,
  }
}

function laneOf(node: unknown): number | 'any' | undefined {
  const text = labelOf(node, LABEL_GATEWAY)
  return text === undefined ? undefined : laneOfLabel(text)
}

/** False for a node that is still being registered and has no address yet. */
function statesNoIpv4(node: unknown): boolean {
  const internal = listAt(node, 'status', 'addresses').filter((entry) => textAt(entry, 'type') === 'InternalIP')
  return internal.length > 0 && internalIpv4(node) === undefined
}

function internalIpv4(node: unknown): string | undefined {
  return ipv4Of(node, 'InternalIP')
}
