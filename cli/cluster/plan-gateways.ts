/**
 * Decides which nodes become gateways at a join, how many are active at once, and which labels and annotations are
 * written. Pure.
 */
import {
  ANNOTATION_CHOSEN_BY,
  ANNOTATION_PUBLIC_PORT,
  ANY_LANE_VALUE,
  CHOSEN_BY_JOIN,
  DEFAULT_ACTIVE_GATEWAYS,
  LABEL_GATEWAY,
  MAX_LANE,
  type PlannedGateway,
  callAnnotations,
} from '../../model/lanes/lanes.ts'
import { LABELLED_BY_JOIN, LABEL_VIRTUAL_NODE } from '../../model/model.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type Discovery, type GatewayCandidate, NO_IPV4, type UnfitNode, printable } from '../discovery/discovery.ts'
import type { NodeChange } from '../installation/installation.ts'

export interface GatewayOption {
  readonly node: string
  readonly publicAddress?: string
  /** CalledAt.publicPort. */
  readonly publicPort?: number
}

/** The options and answers about gateways. */
export interface GatewayOptions {
  readonly gateways: readonly GatewayOption[]
  /** How many are active at once, 1 to 8. If undefined, the installed number, else two. */
  readonly activeGateways?: number
  /** The gateways offer to relay. Absent: an offer that exists stays. */
  readonly relay?: boolean
}

export interface GatewaysPlan {
  readonly gateways: readonly GatewayOption[]
  /** How many of the gateways are active at once. */
  readonly activeGateways: number
  /** The nodes whose label or annotation has to change. */
  readonly nodes: readonly NodeChange[]
  /** Remarks about settings that could be better and stay as they are, one sentence each. */
  readonly notes: readonly string[]
}

/**
 * `installed` is the current number of active gateways. Undefined if it is not known. Throws UserError for a requested
 * node that cannot be a gateway.
 */
export function planGateways(discovery: Discovery, given: GatewayOptions, installed: number | undefined): GatewaysPlan {
  const activeGateways = activeCount(given, installed)
  refuseImpossible(discovery, given)
  const gateways = chooseGateways(discovery, given, activeGateways)
  const present = labelledLanes(discovery)
  const numbers = given.activeGateways === undefined ? present : onlyUnshared(present)
  const chosen = given.gateways.length > 0 ? [] : gateways.filter(({ node }) => !present.has(node))
  return {
    gateways,
    activeGateways,
    nodes: [
      ...gateways.flatMap((gateway) =>
        nodeChange(discovery, gateway, { present: numbers, chosen, relay: given.relay === true }),
      ),
      ...virtualNodes(discovery),
    ],
    notes: [
      ...gatewayNotes(discovery, { gateways, present, numbers, activeGateways }),
      ...choiceNotes(discovery, chosen),
      ...givenNotes(discovery, given),
    ],
  }
}

/** The gateways with all that is known of where others can call them. */
export function callableGateways(
  { gateways: { candidates, unfit } }: Discovery,
  gateways: readonly GatewayOption[],
): readonly PlannedGateway[] {
  return gateways.map(({ node, publicAddress }) => {
    const fit = candidates.find((one) => one.node === node)
    const known = fit ?? unfit.find((one) => one.node === node)
    // A gateway states an ExternalIP only if it is annotated. Without that it is one of the addresses.
    const stated = publicAddress ?? (fit?.annotated === false ? undefined : known?.publicAddress)
    return { node, publicAddress: stated, addresses: known?.addresses ?? [] }
  })
}

function refuseImpossible({ gateways: { unfit } }: Discovery, { gateways }: GatewayOptions): void {
  const found = unfit.find(({ node, isAway }) => !isAway && gateways.some((one) => one.node === node))
  if (found === undefined) return
  throw new UserError(`--gateway ${printable(found.node)}: this node cannot be a gateway: ${found.why}`, {
    ...(found.why === NO_IPV4 ? { reason: 'GatewayWithoutIPv4' as const } : {}),
  })
}

/** The count grows to the number of gateways that the user names: three named gateways are all active. */
function activeCount(given: GatewayOptions, installed: number | undefined): number {
  if (given.activeGateways !== undefined) return given.activeGateways
  const before = installed ?? DEFAULT_ACTIVE_GATEWAYS
  return Math.min(MAX_LANE + 1, Math.max(before, given.gateways.length))
}

/**
 * The gateways that the user names. Else the labelled Nodes, where cordoned or unavailable Nodes count only if there
 * are no others. Else the best candidates. If the user asks for a number, the best candidates fill up to it.
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

/** The lanes in the labels of the Nodes, by Node name. */
type Labels = ReadonlyMap<string, number | 'any'>

/** The lanes of all labelled Nodes, cordoned and unavailable ones included. */
function labelledLanes({ gateways }: Discovery): Labels {
  const nodes = [...gateways.candidates, ...gateways.unfit.filter(({ isAway }) => isAway)]
  return new Map(
    nodes.flatMap(({ node, lane }): [string, number | 'any'][] => (lane === undefined ? [] : [[node, lane]])),
  )
}

/** Without the Nodes that share a lane number, because only one of them is active at a time. */
function onlyUnshared(present: Labels): Labels {
  const lanes = [...present.values()]
  return new Map([...present].filter(([, lane]) => lane === 'any' || lanes.indexOf(lane) === lanes.lastIndexOf(lane)))
}

interface ChosenGateways {
  readonly gateways: readonly GatewayOption[]
  readonly present: Labels
  /** The labels that stay as they are. */
  readonly numbers: Labels
  readonly activeGateways: number
}

function gatewayNotes(discovery: Discovery, chosen: ChosenGateways): string[] {
  const impossible = discovery.gateways.unfit.filter((one) => !one.isAway && isLabelled(one))
  const takesNone = ({ node, why }: UnfitNode): string =>
    `node ${printable(node)} has the label ${LABEL_GATEWAY} but cannot serve a lane: ${why}`
  return [...impossible.map(takesNone), ...countNotes(discovery, chosen)]
}

/** Remarks if there will be fewer gateways than wanted, and what would change that. */
function countNotes({ gateways: { candidates } }: Discovery, chosen: ChosenGateways): string[] {
  const { gateways, present, numbers, activeGateways } = chosen
  const nodes = new Set([...present.keys(), ...gateways.map(({ node }) => node)])
  const [node, ...more] = nodes
  if (node === undefined) return []
  const other = candidates.find((one) => !nodes.has(one.node))?.node
  const label =
    other === undefined ? undefined : `kubectl label node ${printable(other)} ${LABEL_GATEWAY}=${ANY_LANE_VALUE}`
  if (more.length === 0 && label !== undefined) {
    return [`only ${printable(node)} is a gateway: the cluster is cut off when it fails; to add another one: ${label}`]
  }
  const lanes = [...nodes].map((name) => numbers.get(name))
  const [shared] = lanes.filter((lane) => typeof lane === 'number')
  if (more.length > 0 && shared !== undefined && lanes.every((lane) => lane === shared)) {
    const mend = `sealane join --gateways ${DEFAULT_ACTIVE_GATEWAYS} makes them active at once`
    return [`all gateways have lane ${shared}: one is active, and the others are on standby; ${mend}`]
  }
  if (nodes.size >= activeGateways || activeGateways <= DEFAULT_ACTIVE_GATEWAYS) return []
  const rest = label === undefined ? 'no other node can be a gateway' : label
  return [`${activeGateways} gateways should be active, but there are only ${nodes.size}: ${rest}`]
}

/** Remarks about the gateways that this join chooses: machines that may be taken away, and the price of avoiding them. */
function choiceNotes({ gateways: { candidates } }: Discovery, chosen: readonly GatewayOption[]): string[] {
  const names = new Set(chosen.map(({ node }) => node))
  const taken = candidates.filter(({ node }) => names.has(node))
  const spot = taken.flatMap(({ node, transient }) =>
    transient === undefined
      ? []
      : [
          `gateway ${printable(node)} may be taken away at short notice (${printable(transient)}): no node that stays ` +
            'is left to be one',
        ],
  )
  const called = candidates.find((one) => one.transient !== undefined && one.publicAddress !== undefined)
  if (called === undefined || taken.length === 0 || taken.some((one) => one.publicAddress !== undefined)) return spot
  return [
    ...spot,
    `node ${printable(called.node)} has a public address, but may be taken away at short notice ` +
      `(${printable(called.transient ?? '')}): if no other cluster can be called, ` +
      `kubectl label node ${printable(called.node)} ${LABEL_GATEWAY}=${ANY_LANE_VALUE}`,
  ]
}

/**
 * A remark about gateways that may be taken away and are not replaced: who labelled them is not known, a user or a join
 * of a release that did not annotate its choice.
 */
function givenNotes({ gateways: { candidates } }: Discovery, { gateways: named }: GatewayOptions): string[] {
  return candidates
    .filter(({ lane, isChosen, transient }) => lane === 'any' && isChosen === false && transient !== undefined)
    .filter(({ node }) => !named.some((one) => one.node === node))
    .map(
      ({ node, transient = '' }) =>
        `gateway ${printable(node)} may be taken away at short notice (${printable(transient)}), and is not replaced ` +
        'then, because a user or an earlier release labelled it; to let the agent replace it: ' +
        `kubectl annotate node ${printable(node)} ${ANNOTATION_CHOSEN_BY}=${CHOSEN_BY_JOIN}`,
    )
}

/**
 * Labels the virtual nodes that only a node affinity by a label of ours leaves out. Without it, a DaemonSet wants a pod
 * there that never runs, and that uses up its maxUnavailable. A label that a join gave to a machine goes, since it
 * keeps the pods away that the machine has to have.
 */
function virtualNodes({ gateways: { unfit } }: Discovery): NodeChange[] {
  return unfit
    .filter(({ isUnlabelled, isMislabelled }) => isUnlabelled === true || isMislabelled === true)
    .map(({ node, isMislabelled }) => ({
      node,
      labels: { [LABEL_VIRTUAL_NODE]: isMislabelled === true ? null : LABELLED_BY_JOIN },
      annotations: {},
    }))
}

/**
 * The label of a new gateway leaves the lane number open. A Node whose label has a number keeps it. A node that the join
 * itself chooses is annotated, so that the agent may replace it.
 */
function nodeChange(
  discovery: Discovery,
  { node, publicAddress, publicPort }: GatewayOption,
  {
    present,
    chosen,
    relay,
  }: { readonly present: Labels; readonly chosen: readonly GatewayOption[]; readonly relay: boolean },
): NodeChange[] {
  const { candidates, unfit } = discovery.gateways
  const fit = candidates.find((candidate) => candidate.node === node)
  const known = fit ?? unfit.find((one) => one.node === node)
  const labels = present.has(node) ? {} : { [LABEL_GATEWAY]: ANY_LANE_VALUE }
  // An ExternalIP that was detected has to be annotated, because the gateway reads only the annotation.
  const same = publicAddress === undefined || (fit?.annotated === true && publicAddress === fit.publicAddress)
  // The port belongs to the address that it was stated with.
  const isOldPort = known?.statesPort === true && publicAddress !== undefined && publicAddress !== known.publicAddress
  const isChosen = chosen.some((one) => one.node === node)
  const annotations = {
    ...callAnnotations({
      ...(same ? {} : { publicAddress }),
      ...(publicPort === undefined ? {} : { publicPort }),
      ...(relay ? { relay } : {}),
    }),
    ...(isOldPort && publicPort === undefined ? { [ANNOTATION_PUBLIC_PORT]: null } : {}),
    ...(isChosen ? { [ANNOTATION_CHOSEN_BY]: CHOSEN_BY_JOIN } : {}),
  }
  const nothing = Object.keys(labels).length + Object.keys(annotations).length === 0
  return nothing ? [] : [{ node, labels, annotations }]
}
