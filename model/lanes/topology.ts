/**
 * Which clusters of a clusterset link with which. The broker, each member and `sealane topology plan` decide by the same
 * function. It is symmetric, and answers for every pair, also of clusters that the topology does not name:
 *
 * - full: all clusters link.
 * - groups: clusters of a common group link. A cluster in no group links with none.
 * - hub-and-spoke: a hub links with all, hubs included. A cluster that is no hub is a spoke, and links with hubs only.
 * - pairs: each cluster of one side links with each of the other. A cluster on no side links with none.
 *
 * Pure.
 */
import { matchesLabels } from '../access/access.ts'
import type { Topology } from '../model.ts'

export type TopologyMode = Topology['mode']

/** What a topology looks at. Without labels, a selector of labels matches nothing. */
export interface LinkEnd {
  readonly id: string
  /** Undefined: not known. */
  readonly labels?: Readonly<Record<string, string>> | undefined
}

/** Why two clusters link, or do not. The words after `no-` and `both-` go with NotLinkedByTopology. */
export type LinkCause =
  'self' | 'full' | 'common-group' | 'hub' | 'pair' | 'no-group' | 'no-common-group' | 'both-spokes' | 'no-pair'

export type LinkAnswer =
  | { readonly linked: true; readonly by: LinkCause }
  | { readonly linked: false; readonly by: LinkCause; readonly reason: 'NotLinkedByTopology' }

/** What counts as long as nobody has set a topology. */
export const FULL_TOPOLOGY: Topology = { mode: 'full' }

const SELF: LinkAnswer = { linked: true, by: 'self' }
const FULL: LinkAnswer = { linked: true, by: 'full' }

/** Whether the two clusters link. A cluster links with itself. */
export function links(topology: Topology, a: LinkEnd, b: LinkEnd): LinkAnswer {
  if (a.id === b.id) return SELF
  if (topology.mode === 'full') return FULL
  const known = PREPARED.get(topology) ?? prepare(topology)
  PREPARED.set(topology, known)
  return known(a, b)
}

/** Whether the labels of clusters count, so that a change of labels may change links. */
export function looksAtLabels({ pairs = [] }: Topology): boolean {
  return pairs.some((pair) => pair.between.selector !== undefined || pair.and.selector !== undefined)
}

/**
 * Which sides of pairs the labels of a cluster fulfil. It links with the same clusters as long as that is the same text,
 * whatever else is among its labels.
 */
export function labelOutcome(topology: Topology, end: LinkEnd): string {
  return sidesOf(topology)
    .flat()
    .map((isOf) => (isOf(end) ? '1' : '0'))
    .join('')
}

/** The ids that the topology names, each once, sorted. */
export function namedClusters({ groups = [], hubs = [], pairs = [] }: Topology): readonly string[] {
  const inPairs = pairs.flatMap(({ between, and }) => [...(between.clusters ?? []), ...(and.clusters ?? [])])
  return [...new Set([...groups.flatMap(({ clusters }) => clusters), ...hubs, ...inPairs])].sort()
}

type LinkRule = (a: LinkEnd, b: LinkEnd) => LinkAnswer

/** Topologies are never changed in place, and one decides about up to half a million pairs. */
const PREPARED = new WeakMap<Topology, LinkRule>()

function prepare(topology: Topology): LinkRule {
  switch (topology.mode) {
    case 'full':
      return () => FULL
    case 'groups':
      return byGroups(topology)
    case 'hub-and-spoke':
      return byHubs(topology)
    case 'pairs':
      return byPairs(topology)
  }
}

function byGroups({ groups = [] }: Topology): LinkRule {
  const of = new Map<string, Set<string>>()
  for (const { name, clusters } of groups)
    for (const id of clusters) of.set(id, (of.get(id) ?? new Set<string>()).add(name))
  return (a, b) => {
    const [one, other] = [of.get(a.id), of.get(b.id)]
    if (one === undefined || other === undefined) return notLinked('no-group')
    for (const name of one) if (other.has(name)) return { linked: true, by: 'common-group' }
    return notLinked('no-common-group')
  }
}

function byHubs({ hubs = [] }: Topology): LinkRule {
  const known = new Set(hubs)
  return (a, b) => (known.has(a.id) || known.has(b.id) ? { linked: true, by: 'hub' } : notLinked('both-spokes'))
}

type PairSide = NonNullable<Topology['pairs']>[number]['and']

type Side = (end: LinkEnd) => boolean

const SIDES = new WeakMap<Topology, readonly (readonly [Side, Side])[]>()

function sidesOf(topology: Topology): readonly (readonly [Side, Side])[] {
  const known =
    SIDES.get(topology) ?? (topology.pairs ?? []).map(({ between, and }) => [sideOf(between), sideOf(and)] as const)
  SIDES.set(topology, known)
  return known
}

function byPairs(topology: Topology): LinkRule {
  const prepared = sidesOf(topology)
  return (a, b) =>
    prepared.some(([one, other]) => (one(a) && other(b)) || (one(b) && other(a)))
      ? { linked: true, by: 'pair' }
      : notLinked('no-pair')
}

function sideOf({ clusters, selector }: PairSide): Side {
  const named = clusters === undefined ? undefined : new Set(clusters)
  return ({ id, labels }) => {
    if (named?.has(id) === false) return false
    return selector === undefined || (labels !== undefined && matchesLabels(selector, labels))
  }
}

function notLinked(by: LinkCause): LinkAnswer {
  return { linked: false, by, reason: 'NotLinkedByTopology' }
}
