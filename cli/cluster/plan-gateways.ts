/** Which nodes a join makes gateways, how many are active at once, and what is written to them. Pure. */
import {
  ANNOTATION_PUBLIC_ADDRESS,
  ANY_LANE_VALUE,
  DEFAULT_ACTIVE_GATEWAYS,
  LABEL_GATEWAY,
  MAX_LANE,
} from '../../model/lanes/lanes.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type Discovery, type GatewayCandidate, NO_IPV4, type UnfitNode, printable } from '../discovery/discovery.ts'
import type { NodeChange } from '../installation/installation.ts'

export interface GatewayOption {
  readonly node: string
  readonly publicAddress?: string
}

/** What flags and answers say of gateways. */
export interface GatewayOptions {
  readonly gateways: readonly GatewayOption[]
  /** How many are to be active at once, 1 to 8; absent: as it is installed, else two. */
  readonly activeGateways?: number
}

export interface GatewaysPlan {
  readonly gateways: readonly GatewayOption[]
  /** How many of the gateways are active at once. */
  readonly activeGateways: number
  /** Nodes whose label or annotation differs from what is wanted. */
  readonly nodes: readonly NodeChange[]
  /** What is not as it could be and stays so, one sentence each. */
  readonly notes: readonly string[]
}

/**
 * `installed`: how many are active now; undefined where nothing says so. Throws UserError for a node that is asked for
 * and cannot be a gateway.
 */
export function planGateways(discovery: Discovery, given: GatewayOptions, installed: number | undefined): GatewaysPlan {
  const activeGateways = activeCount(given, installed)
  refuseImpossible(discovery, given)
  const gateways = chooseGateways(discovery, given, activeGateways)
  const present = labelledLanes(discovery)
  const numbers = given.activeGateways === undefined ? present : onlyUnshared(present)
  return {
    gateways,
    activeGateways,
    nodes: gateways.flatMap((gateway) => nodeChange(discovery, gateway, numbers)),
    notes: gatewayNotes(discovery, { gateways, present, numbers, activeGateways }),
  }
}

function refuseImpossible({ gateways: { unfit } }: Discovery, { gateways }: GatewayOptions): void {
  const found = unfit.find(({ node, isAway }) => !isAway && gateways.some((one) => one.node === node))
  if (found === undefined) return
  throw new UserError(`--gateway ${printable(found.node)}: this node cannot be a gateway: ${found.why}`, {
    ...(found.why === NO_IPV4 ? { reason: 'GatewayWithoutIPv4' as const } : {}),
  })
}

/** Three gateways that were asked for by name are three at once. */
function activeCount(given: GatewayOptions, installed: number | undefined): number {
  if (given.activeGateways !== undefined) return given.activeGateways
  const before = installed ?? DEFAULT_ACTIVE_GATEWAYS
  return Math.min(MAX_LANE + 1, Math.max(before, given.gateways.length))
}

/**
 * What was asked for; else the Nodes that are labelled, without those that are cordoned or away as long as there are
 * others; else the best candidates. Where a number was asked for, the best candidates fill up to it.
 */
function chooseGateways(
  { gateways: { candidates, unfit } }: Discovery,
  { gateways: named, activeGateways: asked }: GatewayOptions,
  active: number,
): readonly GatewayOption[] {
  if (named.length > 0) return named
  const labelled = candidates.filter(isLabelled)
  const fill = candidates.filter((one) => !isLabelled(one)).slice(0, Math.max(0, active - labelled.length))
  if (labelled.length > 0) return [...labelled, ...(asked === undefined ? [] : fill)].map(asFound)
  const away = unfit.filter((one) => one.isAway && isLabelled(one))
  if (away.length > 0) return [...away.map(({ node }) => ({ node })), ...(asked === undefined ? [] : fill.map(asFound))]
  return fill.map(asFound)
}

function isLabelled({ lane }: Pick<GatewayCandidate, 'lane'>): boolean {
  return lane !== undefined
}

function asFound({ node, publicAddress }: GatewayCandidate): GatewayOption {
  return { node, ...(publicAddress === undefined ? {} : { publicAddress }) }
}

/** The lanes that labels say, by the names of their Nodes. */
type Labels = ReadonlyMap<string, number | 'any'>

/** Of all Nodes that are labelled, also those that are cordoned or away, by name. */
function labelledLanes({ gateways }: Discovery): Labels {
  const nodes = [...gateways.candidates, ...gateways.unfit.filter(({ isAway }) => isAway)]
  return new Map(
    nodes.flatMap(({ node, lane }): [string, number | 'any'][] => (lane === undefined ? [] : [[node, lane]])),
  )
}

/** Nodes of one number are active one after the other: they are no gateways at once. */
function onlyUnshared(present: Labels): Labels {
  const lanes = [...present.values()]
  return new Map([...present].filter(([, lane]) => lane === 'any' || lanes.indexOf(lane) === lanes.lastIndexOf(lane)))
}

interface ChosenGateways {
  readonly gateways: readonly GatewayOption[]
  readonly present: Labels
  /** Of these, what stays. */
  readonly numbers: Labels
  readonly activeGateways: number
}

function gatewayNotes(discovery: Discovery, chosen: ChosenGateways): string[] {
  const impossible = discovery.gateways.unfit.filter((one) => !one.isAway && isLabelled(one))
  const takesNone = ({ node, why }: UnfitNode): string =>
    `node ${printable(node)} has the label ${LABEL_GATEWAY} and takes no lane: ${why}`
  return [...impossible.map(takesNone), ...countNotes(discovery, chosen)]
}

/** Where more gateways are wanted than there will be, and what would change that. */
function countNotes({ gateways: { candidates } }: Discovery, chosen: ChosenGateways): string[] {
  const { gateways, present, numbers, activeGateways } = chosen
  const nodes = new Set([...present.keys(), ...gateways.map(({ node }) => node)])
  const [node, ...more] = nodes
  if (node === undefined) return []
  const other = candidates.find((one) => !nodes.has(one.node))?.node
  const label =
    other === undefined ? undefined : `kubectl label node ${printable(other)} ${LABEL_GATEWAY}=${ANY_LANE_VALUE}`
  if (more.length === 0 && label !== undefined) {
    return [`only ${printable(node)} is a gateway: the cluster is cut off when it goes; ${label}`]
  }
  const lanes = [...nodes].map((name) => numbers.get(name))
  const [shared] = lanes.filter((lane) => typeof lane === 'number')
  if (more.length > 0 && shared !== undefined && lanes.every((lane) => lane === shared)) {
    const mend = `sealane join --gateways ${DEFAULT_ACTIVE_GATEWAYS} makes them active at once`
    return [`all gateways have lane ${shared}: one is active, and the others stand by; ${mend}`]
  }
  if (nodes.size >= activeGateways || activeGateways <= DEFAULT_ACTIVE_GATEWAYS) return []
  const rest = label === undefined ? 'no other node can be one' : label
  return [`${activeGateways} gateways are to be active, and there are ${nodes.size}: ${rest}`]
}

/** New gateways leave the number of their lane open. A Node whose label says one keeps it. */
function nodeChange(discovery: Discovery, { node, publicAddress }: GatewayOption, present: Labels): NodeChange[] {
  const known = discovery.gateways.candidates.find((candidate) => candidate.node === node)
  const labels = present.has(node) ? {} : { [LABEL_GATEWAY]: ANY_LANE_VALUE }
  // An ExternalIP that was found is not stated yet: the gateway reads the annotation alone.
  const same = publicAddress === undefined || (known?.annotated === true && publicAddress === known.publicAddress)
  const annotations = same ? {} : { [ANNOTATION_PUBLIC_ADDRESS]: publicAddress }
  const nothing = Object.keys(labels).length + Object.keys(annotations).length === 0
  return nothing ? [] : [{ node, labels, annotations }]
}
