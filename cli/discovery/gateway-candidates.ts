/** Determines which nodes can be gateways, the best first, and why. Pure. */
import { ANNOTATION_PUBLIC_ADDRESS, LABEL_GATEWAY, laneOfLabel } from '../../model/lanes/lanes.ts'
import { LABEL_ZONE } from '../../model/model.ts'
import { type World, annotationOf, at, keysAt, labelOf, listAt, nameOf, textAt } from './snapshot.ts'
import { isLinux } from './platform.ts'

export interface GatewayCandidate {
  readonly node: string
  /** The lane in its label. Undefined without the label. */
  readonly lane: number | 'any' | undefined
  /** The address in the annotation, else the Node's ExternalIP. */
  readonly publicAddress: string | undefined
  /** The address is in the annotation. A gateway does not read the ExternalIP, so a join has to annotate it. */
  readonly annotated: boolean
  readonly zone: string | undefined
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
}

export interface GatewayNodes {
  readonly candidates: readonly GatewayCandidate[]
  readonly unfit: readonly UnfitNode[]
}

/** Nodes reach their gateways over the overlay, which is IPv4. */
export const NO_IPV4 = 'no IPv4 InternalIP'

export function gatewayNodes(world: World): GatewayNodes {
  const nodes = world.list('Node', '')
  const validated = nodes.map((node) => {
    const never = whyNever(node)
    return { node, why: never ?? whyAway(node), isAway: never === undefined }
  })
  const fit = validated
    .filter((one) => one.why === undefined)
    .map(({ node }) => ({ candidate: candidate(node), score: score(node) }))
  return {
    candidates: acrossZones(fit.sort((a, b) => b.score - a.score || (a.candidate.node < b.candidate.node ? -1 : 1))),
    unfit: validated.flatMap(({ node, why, isAway }) =>
      why === undefined ? [] : [{ node: nameOf(node), lane: laneOf(node), why, isAway }],
    ),
  }
}

const CONTROL_PLANE = ['node-role.kubernetes.io/control-plane', 'node-role.kubernetes.io/master']

function whyNever(node: unknown): string | undefined {
  if (!isLinux(node)) return 'not Linux'
  if (labelOf(node, 'type') === 'virtual-kubelet' || labelOf(node, 'eks.amazonaws.com/compute-type') === 'fargate') {
    return 'no machine of its own'
  }
  return statesNoIpv4(node) ? NO_IPV4 : undefined
}

function whyAway(node: unknown): string | undefined {
  if (at(node, 'spec', 'unschedulable') === true) return 'cordoned'
  const ready = listAt(node, 'status', 'conditions').find((one) => textAt(one, 'type') === 'Ready')
  if (textAt(ready, 'status') !== 'True') return 'not Ready'
  return internalIpv4(node) === undefined ? NO_IPV4 : undefined
}

function candidate(node: unknown): GatewayCandidate {
  const annotation = annotationOf(node, ANNOTATION_PUBLIC_ADDRESS)
  const publicAddress = annotation ?? externalIpv4(node)
  const lane = laneOf(node)
  const zone = labelOf(node, LABEL_ZONE)
  const reasons = [
    ...(lane === undefined ? [] : [`labelled ${LABEL_GATEWAY}=${labelOf(node, LABEL_GATEWAY) ?? ''}`]),
    ...(publicAddress === undefined ? [] : [`public address ${publicAddress}`]),
    isControlPlane(node) ? 'control plane' : 'not a control plane node',
    ...(zone === undefined ? [] : [`zone ${zone}`]),
  ]
  return { node: nameOf(node), lane, publicAddress, annotated: annotation !== undefined, zone, reasons }
}

function score(node: unknown): number {
  const { lane, publicAddress } = candidate(node)
  return (lane === undefined ? 0 : 4) + (publicAddress === undefined ? 0 : 2) + (isControlPlane(node) ? 0 : 1)
}

/**
 * Nodes with equal scores are taken from different zones in turn, so that the first two are in different zones if
 * possible.
 */
function acrossZones(
  sorted: readonly { readonly candidate: GatewayCandidate; readonly score: number }[],
): GatewayCandidate[] {
  const left = [...sorted]
  const taken = new Map<string, number>()
  const result: GatewayCandidate[] = []
  while (left.length > 0) {
    const best = left.filter((one) => one.score === left[0]?.score)
    const used = (one: (typeof best)[number]): number => taken.get(one.candidate.zone ?? '') ?? 0
    const next = best.reduce((a, b) => (used(b) < used(a) ? b : a))
    left.splice(left.indexOf(next), 1)
    taken.set(next.candidate.zone ?? '', used(next) + 1)
    result.push(next.candidate)
  }
  return result
}

function laneOf(node: unknown): number | 'any' | undefined {
  const text = labelOf(node, LABEL_GATEWAY)
  return text === undefined ? undefined : laneOfLabel(text)
}

function isControlPlane(node: unknown): boolean {
  const labels = keysAt(node, 'metadata', 'labels')
  return CONTROL_PLANE.some((label) => labels.includes(label))
}

/** False for a node that is still being registered and has no address yet. */
function statesNoIpv4(node: unknown): boolean {
  const internal = listAt(node, 'status', 'addresses').filter((entry) => textAt(entry, 'type') === 'InternalIP')
  return internal.length > 0 && internalIpv4(node) === undefined
}

function internalIpv4(node: unknown): string | undefined {
  return addressOf(node, 'InternalIP')
}

function externalIpv4(node: unknown): string | undefined {
  return addressOf(node, 'ExternalIP')
}

function addressOf(node: unknown, type: string): string | undefined {
  return listAt(node, 'status', 'addresses')
    .filter((entry) => textAt(entry, 'type') === type)
    .map((entry) => textAt(entry, 'address'))
    .find((text) => text !== undefined && /^\d+\.\d+\.\d+\.\d+$/.test(text))
}
