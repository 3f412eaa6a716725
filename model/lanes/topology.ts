/**
 * Which clusters of a clusterset link with which. The broker, each member and `sealane topology plan` decide by the same
 * function. It is symmetric, and answers for every pair, also of clusters that the topology does not name:
 *
 * - full: all clusters link.
 * - groups: clusters of a common group link. A cluster in no group links with none.
 * - hub-and-spoke: a hub links with all, hubs included. A cluster that is no hub is a spoke, and links with hubs only.
 *   With `via`, spokes link with each other through the relays of these hubs.
 * - pairs: each cluster of one side links with each of the other. A cluster on no side links with none. With `via`, they
 *   link through the relays of these members, unless another pair links them, or one of the two is such a member itself.
 *
 * Transit is a link whose packets only the relays of the named members forward. They see nothing of its contents. A
 * relay reaches both ends by links of its own that are not transit, so no packet passes two relays.
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
  | 'self'
  | 'full'
  | 'common-group'
  | 'hub'
  | 'pair'
  | 'transit'
  | 'no-group'
  | 'no-common-group'
  | 'both-spokes'
  | 'no-pair'

export type LinkAnswer =
  /** `via`: ids of the members whose relays alone forward the packets of the link, sorted. Absent: it needs none. */
  | { readonly linked: true; readonly by: LinkCause; readonly via?: readonly string[] }
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

/** Whether a relay of the third cluster may forward packets between the two others. */
export function mayRelay(topology: Topology, relay: LinkEnd, [a, b]: readonly [LinkEnd, LinkEnd]): boolean {
  if (a.id === b.id || relay.id === a.id || relay.id === b.id) return false
  const answer = links(topology, a, b)
  if (!answer.linked || answer.via?.includes(relay.id) === false) return false
  return reachesItself(topology, relay, a) && reachesItself(topology, relay, b)
}

/** A relay reaches its ends without another relay. */
function reachesItself(topology: Topology, relay: LinkEnd, end: LinkEnd): boolean {
  const answer = links(topology, relay, end)
  return answer.linked && answer.via === undefined
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
export function namedClusters(topology: Topology): readonly string[] {
  const { groups = [], hubs = [], pairs = [] } = topology
  const inPairs = pairs.flatMap(({ between, and, via = [] }) => {
    return [...(between.clusters ?? []), ...(and.clusters ?? []), ...via]
  })
  return [...new Set([...groups.flatMap(({ clusters }) => clusters), ...hubs, ...inPairs])].sort()
}

/** The ids of members through which the topology lets others link, each once, sorted. */
export function transitClusters({ via = [], pairs = [] }: Topology): readonly string[] {
  return [...new Set([...via, ...pairs.flatMap((pair) => pair.via ?? [])])].sort()
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

function byHubs({ hubs = [], via }: Topology): LinkRule {
  const known = new Set(hubs)
  const spokes: LinkAnswer = via === undefined ? notLinked('both-spokes') : { linked: true, by: 'transit', via }
  return (a, b) => (known.has(a.id) || known.has(b.id) ? { linked: true, by: 'hub' } : spokes)
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

/** Answers that are kept. A topology with more begins again. */
const MOST_ANSWERS = 1000

const PAIR: LinkAnswer = { linked: true, by: 'pair' }

function byPairs(topology: Topology): LinkRule {
  const sides = sidesOf(topology)
  const pairs = (topology.pairs ?? []).map(({ via }, i) => ({ via, sides: sides[i] }))
  /** Pairs of clusters that fulfil the same pairs of the topology share one answer, and so one list. */
  const answers = new Map<string, LinkAnswer>()
  return (a, b) => {
    const fulfilled: number[] = []
    for (const [i, { via, sides: pair }] of pairs.entries()) {
      if (pair === undefined) continue
      const [one, other] = pair
      if (!(one(a) && other(b)) && !(one(b) && other(a))) continue
      if (via === undefined || via.includes(a.id) || via.includes(b.id)) return PAIR
      fulfilled.push(i)
    }
    if (fulfilled.length === 0) return notLinked('no-pair')
    const key = fulfilled.join()
    const through = new Set(answers.has(key) ? [] : fulfilled.flatMap((i) => pairs[i]?.via ?? []))
    const answer: LinkAnswer = answers.get(key) ?? { linked: true, by: 'transit', via: [...through].sort() }
    if (answers.size >= MOST_ANSWERS) answers.clear()
    answers.set(key, answer)
    return answer
  }
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
