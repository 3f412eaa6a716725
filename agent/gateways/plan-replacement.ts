/**
 * Decides which nodes become gateways: in place of chosen ones that are gone or are being removed, and where the
 * installation says so, also where fewer nodes than wanted are gateways. Pure.
 *
 * Otherwise, the agent replaces only what a join or the agent itself chose (ANNOTATION_CHOSEN_BY), so nodes that a user labelled
 * are left alone. A record of the chosen nodes outlives them: their number, and the uid of each. A node that is
 * cordoned or is merely not seen is not replaced. One that is not ready is, after SILENT_MS without a heartbeat of its
 * gateway. It keeps its label: once it works again, there is one gateway more, and the next loss needs no other. What a user takes back, by removing the label or the
 * annotation, is neither counted nor replaced any more. A node that lost its label is not labelled again by the agent,
 * whoever set the label: it had one by the record, or by the annotation that is still on it. A user who labels it ends
 * that.
 */
import {
  ANNOTATION_CHOSEN_BY,
  ANNOTATION_PUBLIC_ADDRESS,
  CHOSEN_BY_JOIN,
  LABEL_GATEWAY,
  bestGateways,
  gatewayProblem,
  gatewayTraits,
  isChosenGateway,
  mayBecomeGateway,
  removalReason,
} from '../../model/lanes/lanes.ts'
import { CONDITION_GATEWAYS_CHOSEN, type ConditionFinding, type Node } from '../../model/model.ts'

/** The chosen gateways of this cluster. */
export interface ChosenRecord {
  /** How many there are to be: as many as the join chose. */
  readonly count: number
  /** The names of the nodes, by the uid of the Node. Those that are gone stay until another node has replaced them. */
  readonly nodes: ReadonlyMap<string, string>
  /** The uids of the Nodes that a user labelled. */
  readonly given: ReadonlySet<string>
  /** The uids of the Nodes that had a label and lost it. */
  readonly released: ReadonlySet<string>
}

export interface ReplacementWorld {
  /** All Nodes. */
  readonly nodes: readonly Node[]
  /** The names of the nodes that have a RouteAgent, on which parts of Sealane run. */
  readonly running: ReadonlySet<string>
  /** Undefined if there is none, or if it cannot be read. */
  readonly record: ChosenRecord | undefined
  /** The uids of recorded Nodes that the API server itself says are gone. */
  readonly gone: ReadonlySet<string>
  /** Chosen Nodes that do not work for SILENT_MS, by uid, with the taint that says so. */
  readonly silent: ReadonlyMap<string, string>
  /** The number of active gateways. The agent chooses no more than this. */
  readonly activeGateways: number
  /** The labels that the pods of gateways ask of a node. */
  readonly nodeSelector: Readonly<Record<string, string>>
  /**
   * If the agent chooses nodes wherever fewer than `activeGateways` are gateways: for how long some have been missing,
   * in milliseconds. Undefined if it only replaces what was chosen.
   */
  readonly missingMs: number | undefined
}

/**
 * For this long, a chosen node has been not ready, unreachable or switched off, and its gateway sent no heartbeat. A
 * restart of the machine takes less. Nothing else removes such a Node where no cloud controller does.
 */
export const SILENT_MS = 600_000
/** A gateway may be missing for a moment only, since a kubelet registers its Node again. */
export const MISSING_MS = 10_000
/** By then, the parts run on all nodes on which they can run. Earlier, the best node may not be ready yet. */
export const ALL_RUN_MS = 60_000

/** A node that becomes a gateway. */
export interface Replacement {
  readonly node: string
  readonly uid: string
  /** To be annotated, because a gateway does not read the ExternalIP. Undefined if it has none, or is annotated. */
  readonly publicAddress: string | undefined
  /** Undefined if it takes the place of no node. */
  readonly insteadOf: string | undefined
  /** Why the other one does not count: `it is gone`, `the node has the taint …`. Else how many gateways there were. */
  readonly why: string
  /** What shows that this machine may be taken away, too. */
  readonly transient: string | undefined
}

export interface ReplacementPlan {
  /** The record before any replacement. It is written first, so that no gateway is counted twice. */
  readonly base: ChosenRecord
  /** The record after all replacements. */
  readonly record: ChosenRecord
  readonly replacements: readonly Replacement[]
  /** The nodes for which no other node was found, with the reason why each does not count. */
  readonly lacking: readonly { readonly node: string; readonly why: string }[]
  /** How many gateways are still missing that take the place of no node. */
  readonly missing: number
}

export function planReplacement(world: ReplacementWorld): ReplacementPlan {
  const { nodes, record, gone, silent, activeGateways, missingMs } = world
  const before = record?.nodes ?? new Map<string, string>()
  const released = releasedNodes(world)
  const given = new Set(nodes.flatMap((node) => (isLabelled(node) && !isChosenGateway(node) ? uidOf(node) : [])))
  const chosen = nodes.flatMap((node) => {
    const { uid, name } = node.metadata
    return uid === undefined || !isChosenGateway(node) ? [] : [{ uid, name, node, why: lossReason(node, silent) }]
  })
  const present = new Set(nodes.map(({ metadata }) => metadata.uid))
  const absent = [...before].flatMap(([uid, name]) => (present.has(uid) ? [] : [{ uid, name }]))
  const lost = absent.filter(({ uid }) => gone.has(uid)).map((one) => ({ ...one, why: 'it is gone' }))
  const unseen = absent.filter(({ uid }) => !gone.has(uid))
  const leaving = chosen.flatMap(({ uid, name, why }) => (why === undefined ? [] : [{ uid, name, why }]))
  const staying = chosen.filter(({ why }) => why === undefined)

  const fresh = chosen.filter(({ uid }) => !before.has(uid))
  const added = record === undefined ? fresh : fresh.filter(({ node }) => isOfJoin(node))
  const most = chosen.length + absent.length
  const kept = Math.min((record?.count ?? 0) + added.length, most, activeGateways)
  // The nodes that a user labelled are enough if they are as many as are active.
  const ofUser = nodes.filter((node) => isOfUser(node) && removalReason(node) === undefined).length
  const count = missingMs === undefined ? kept : Math.max(0, activeGateways - ofUser)
  const open = Math.max(0, count - staying.length - unseen.length)
  const replaceable = [...lost, ...leaving].slice(0, open)
  const isDue = missingMs !== undefined && (missingMs >= ALL_RUN_MS || (missingMs >= MISSING_MS && allRun(world)))
  const had = `${staying.length + ofUser} of ${activeGateways} gateways were there`
  const more = Array.from({ length: open - replaceable.length }, () => ({ uid: '', name: undefined, why: had }))
  const vacant: readonly Vacancy[] = [...replaceable, ...(isDue ? more : [])]

  const best = bestNodes(world, released).slice(0, vacant.length)
  const replacements = best.flatMap(({ metadata: { name, uid }, traits }, i): Replacement[] => {
    const instead = vacant[i]
    if (uid === undefined || instead === undefined) return []
    const { publicAddress, isAnnotated, transient } = traits
    return [
      {
        ...{ node: name, uid, insteadOf: instead.name, why: instead.why, transient },
        publicAddress: isAnnotated ? undefined : publicAddress,
      },
    ]
  })
  const lacking = vacant
    .slice(replacements.length)
    .flatMap(({ uid, name, why }) => (name === undefined ? [] : [{ uid, name, why }]))
  const filled = replacements.filter(({ insteadOf }) => insteadOf === undefined).length
  // A lost node that needs no replacement any more is forgotten.
  const named = (all: readonly { readonly uid: string; readonly name: string }[]) =>
    all.map(({ uid, name }) => [uid, name] as const)
  const remembered = named([...chosen, ...unseen, ...lacking])
  const later = replacements.map(({ uid, node }) => [uid, node] as const)
  return {
    base: { count, nodes: new Map(named([...chosen, ...absent])), given, released },
    record: { count, nodes: new Map([...remembered, ...later]), given, released },
    replacements,
    lacking: lacking.map(({ name, why }) => ({ node: name, why })),
    missing: more.length - filled,
  }
}

/** Why a chosen Node does not count, in words; undefined if it does. */
function lossReason(node: Node, silent: ReplacementWorld['silent']): string | undefined {
  const taint = silent.get(node.metadata.uid ?? '')
  const minutes = SILENT_MS / 60_000
  const silence = `for ${minutes} minutes it has the taint ${taint ?? ''}, and no gateway reports from it`
  return removalReason(node) ?? (taint === undefined ? undefined : silence)
}

/** `name` is undefined for a place that no node had. */
interface Vacancy {
  readonly uid: string
  readonly name: string | undefined
  readonly why: string
}

/** The Nodes that had the label and have none now, by uid. */
function releasedNodes({ nodes, record }: ReplacementWorld): ReadonlySet<string> {
  const had = (uid: string): boolean =>
    record !== undefined && (record.nodes.has(uid) || record.given.has(uid) || record.released.has(uid))
  return new Set(
    nodes
      .filter((node) => !isLabelled(node))
      .flatMap((node) => uidOf(node).filter((uid) => had(uid) || isAnnotatedAsChosen(node))),
  )
}

function isLabelled({ metadata }: Node): boolean {
  return metadata.labels?.[LABEL_GATEWAY] !== undefined
}

function isAnnotatedAsChosen({ metadata }: Node): boolean {
  return metadata.annotations?.[ANNOTATION_CHOSEN_BY] !== undefined
}

function uidOf({ metadata: { uid } }: Node): string[] {
  return uid === undefined ? [] : [uid]
}

/** Whether this Node is a gateway by a user's label. A label with an impossible value makes no gateway. */
function isOfUser(node: Node): boolean {
  return gatewayTraits(node).isLabelled && !isChosenGateway(node) && gatewayProblem(node) === undefined
}

/** Whether the parts of Sealane run on each node that may become a gateway. */
function allRun({ nodes, running, nodeSelector }: ReplacementWorld): boolean {
  return nodes.every(
    (node) => running.has(node.metadata.name) || !mayBecomeGateway(node) || !isSelected(node, nodeSelector),
  )
}

function isSelected({ metadata }: Node, selector: Readonly<Record<string, string>>): boolean {
  return Object.entries(selector).every(([key, value]) => metadata.labels?.[key] === value)
}

function isOfJoin({ metadata }: Node): boolean {
  return metadata.annotations?.[ANNOTATION_CHOSEN_BY] === CHOSEN_BY_JOIN
}

/** The nodes that may become gateways, the best one first. The zones of present gateways count as taken. */
function bestNodes({ nodes, running, silent, nodeSelector }: ReplacementWorld, released: ReadonlySet<string>) {
  const all = nodes
    .filter((node) => !uidOf(node).some((uid) => released.has(uid)))
    .map((node) => ({ node, traits: gatewayTraits(node) }))
    .filter(({ node, traits }) =>
      traits.isLabelled
        ? lossReason(node, silent) === undefined
        : running.has(traits.node) && mayBecomeGateway(node) && isSelected(node, nodeSelector),
    )
    .map(({ node, traits }) => ({ ...traits, object: node }))
  return bestGateways(all)
    .filter(({ isLabelled }) => !isLabelled)
    .map(({ object, publicAddress, transient }) => {
      const isAnnotated = object.metadata.annotations?.[ANNOTATION_PUBLIC_ADDRESS] !== undefined
      return { metadata: object.metadata, traits: { publicAddress, transient, isAnnotated } }
    })
}

// The record as text, in the annotation of the Membership.

/** On the Membership: the chosen gateways, so that one whose Node is gone is known after a restart of the agent. */
export const ANNOTATION_CHOSEN_GATEWAYS = 'sealane.io/chosen-gateways'

/** A cluster has at most eight active gateways; during a change of nodes, those that leave are recorded, too. */
const MAX_RECORDED = 64
const MAX_TEXT = 32_768

/** The same text for equal records: `{"count":1,"nodes":{"<uid>":"n1"},"given":["<uid>"],"released":["<uid>"]}`. */
export function formatRecord({ count, nodes, given, released }: ChosenRecord): string {
  const sorted = [...nodes].sort(([a], [b]) => (a < b ? -1 : 1)).slice(0, MAX_RECORDED)
  const uids = (all: ReadonlySet<string>): string[] => [...all].sort().slice(0, MAX_RECORDED)
  return JSON.stringify({
    ...{ count, nodes: Object.fromEntries(sorted) },
    ...(given.size === 0 ? {} : { given: uids(given) }),
    ...(released.size === 0 ? {} : { released: uids(released) }),
  })
}

/** Undefined for anything that formatRecord() did not write. */
export function parseRecord(text: string | undefined): ChosenRecord | undefined {
  if (text === undefined || text.length > MAX_TEXT) return undefined
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return undefined
  }
  if (typeof value !== 'object' || value === null) return undefined
  const { count, nodes, ...others } = value as { readonly count?: unknown; readonly nodes?: unknown }
  const { given = [], released = [] } = others as { readonly given?: unknown; readonly released?: unknown }
  if (!areUids(given) || !areUids(released)) return undefined
  if (typeof count !== 'number' || !Number.isInteger(count) || count < 0 || count > MAX_RECORDED) return undefined
  if (typeof nodes !== 'object' || nodes === null || Array.isArray(nodes)) return undefined
  const pairs: [string, unknown][] = Object.entries(nodes)
  if (pairs.length > MAX_RECORDED) return undefined
  const named = pairs.filter((pair): pair is [string, string] => typeof pair[1] === 'string' && pair[1] !== '')
  if (named.length < pairs.length) return undefined
  return { count, nodes: new Map(named), given: new Set(given), released: new Set(released) }
}

function areUids(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.length <= MAX_RECORDED && value.every((uid) => typeof uid === 'string')
}

/** The condition of this cluster's own Cluster. */
export function replacementFinding({ record, replacements, lacking }: ReplacementPlan): ConditionFinding {
  const type = CONDITION_GATEWAYS_CHOSEN
  const [first] = lacking
  if (first !== undefined) {
    const each = lacking.map(({ node, why }) => `${node} (${why})`).join(', ')
    const message = `no node can become a gateway in place of ${each}`
    return { type, status: 'False', reason: 'GatewayNotReplaced', message }
  }
  if (replacements.length === 0) {
    const names = [...new Set(record.nodes.values())].sort().join(', ')
    const message =
      names === '' ? 'neither a join nor the agent chose a gateway' : `the chosen gateways are there: ${names}`
    return { type, status: 'True', reason: 'GatewaysThere', message }
  }
  const message = replacements.map(replacementText).join('; ')
  const isReplaced = replacements.some(({ insteadOf }) => insteadOf !== undefined)
  return { type, status: 'True', reason: isReplaced ? 'GatewayReplaced' : 'GatewayChosen', message }
}

/** `n3 is a gateway in place of n1: it is gone`, or `n3 is a gateway: 1 of 2 gateways were there` */
export function replacementText({ node, insteadOf, why, transient }: Replacement): string {
  const also = transient === undefined ? '' : `; its provider may take ${node} away as well (${transient})`
  return `${node} is a gateway${insteadOf === undefined ? '' : ` in place of ${insteadOf}`}: ${why}${also}`
}
