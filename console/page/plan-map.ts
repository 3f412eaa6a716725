/**
 * What the map of clusters shows: own gateways, the other clusters, and the links between them. Above MOST_SEPARATE
 * clusters those of one region are one node, until a person opens the region. The table beside the map has the same
 * rows. Pure.
 */
import type { ClusterCard, GatewayRow, LinkRow, OfContext, Traffic } from '../state/state.ts'

/** More clusters than this are drawn by region. */
export const MOST_SEPARATE = 30
/** Of an open region; the rest is one node. */
const MOST_OF_REGION = 30
const MOST_GATEWAYS = 16
/** Links of one pair of nodes that are drawn each on its own; more are one line. */
const MOST_LINES = 4
/** Above this number of lines their texts cover each other: then only those that are not up have one. */
const MOST_TEXTS = 12
const MAX_LABEL = 20
const NO_REGION = 'no region'

type Step = 'up' | 'connecting' | 'down'

export interface MapNode {
  readonly id: string
  readonly what: 'gateway' | 'cluster' | 'region'
  readonly label: string
  /** As in the section of the cluster or gateway; of a region the worst. */
  readonly state: string
}

export interface MapLine {
  readonly id: string
  readonly from: string
  readonly to: string
  readonly state: Step
  /** Empty where there is no place for it. */
  readonly label: string
}

/** A row of the table. Of several links: how many are up, the best RTT, the worst loss, the last change. */
export interface MapRow extends OfContext {
  readonly key: string
  readonly from: string
  readonly to: string
  /** Set where the row is about a region that can be opened or closed. */
  readonly region?: string
  readonly isOpen?: boolean
  readonly state: Step | 'unknown'
  readonly up: number
  readonly links: number
  readonly rttMs?: number
  readonly loss?: number
  /** Of all of them. */
  readonly traffic?: Traffic
  readonly cables: readonly string[]
  readonly since?: string
}

export interface PlannedMap {
  readonly nodes: readonly MapNode[]
  readonly lines: readonly MapLine[]
  readonly rows: readonly MapRow[]
  /** One sentence, for those who do not see the drawing. */
  readonly text: string
}

export interface MapFacts {
  readonly clusters: readonly ClusterCard[]
  readonly gateways: readonly GatewayRow[]
  readonly links: readonly LinkRow[]
  /** False: without a link it is not known whether there is one. */
  readonly areLinksKnown?: boolean
}

/** One end of lines that is not this cluster: a cluster, or several. */
interface FarGroup {
  /** Absent: nothing is drawn for it, as for an open region all of whose clusters are drawn. */
  readonly node?: MapNode
  readonly title: string
  readonly region?: string
  readonly isOpen?: boolean
  /** The clusters that the node stands for. */
  readonly drawn: readonly string[]
  /** The clusters that its rows are about. */
  readonly counted: readonly string[]
}

/** `open` has the regions that a person opened. */
export function planMap(
  { clusters, gateways, links, areLinksKnown = true }: MapFacts,
  open: ReadonlySet<string>,
): PlannedMap {
  const others = worstOfEach(clusters.filter(({ state }) => state !== 'here'))
  const far = others.length > MOST_SEPARATE ? byRegion(others, open) : others.map((card, i) => separate(card, `c${i}`))
  const near = nearGroups(gateways, links)
  const farNodeOf = new Map(far.flatMap(({ node, drawn }) => drawn.map((cluster) => [cluster, node?.id] as const)))
  const nodeOf = new Map(near.flatMap(({ id, names }) => names.map((name) => [name, id] as const)))
  const pairs = Map.groupBy(links, ({ cluster, ...row }) => {
    return `${nodeOf.get(gatewayKey(row)) ?? ''} ${farNodeOf.get(cluster) ?? ''}`
  })
  const drawn = [...pairs].flatMap(([key, all]) => {
    const [from = '', to = ''] = key.split(' ')
    return from === '' || to === '' ? [] : linesOf(from, to, all)
  })
  const hasTexts = drawn.length <= MOST_TEXTS
  const lines = drawn.map((line) => (hasTexts || line.state !== 'up' ? line : { ...line, label: '' }))
  const nodes = [
    ...near.map(({ id, label, state }): MapNode => ({ id, what: 'gateway', label: nodeLabel(label, state), state })),
    ...far.flatMap(({ node }) => node ?? []),
  ]
  const byCluster = Map.groupBy(links, ({ cluster }) => cluster)
  const known = (row: MapRow): MapRow => (areLinksKnown || row.links > 0 ? row : { ...row, state: 'unknown' })
  const rows = far.flatMap((group) => rowsOf(group, byCluster)).map(known)
  const up = links.filter(({ state }) => state === 'up').length
  const text =
    `${near.length} gateways, ${others.length} other clusters` +
    `${others.length > MOST_SEPARATE ? ' by region' : ''}, ${up} of ${links.length} links up`
  return { nodes, lines, rows, text }
}

const CARD_RANK = { 'cut off': 0, silent: 0, unknown: 1, reached: 2, 'in contact': 2, here: 3 } as const

/** A cluster that several contexts see is one node, which says the worst. */
function worstOfEach(cards: readonly ClusterCard[]): readonly ClusterCard[] {
  if (cards.every(({ context }) => context === undefined)) return cards
  const worst = new Map<string, ClusterCard>()
  for (const card of cards) {
    const known = worst.get(card.cluster)
    if (known === undefined || CARD_RANK[card.state] < CARD_RANK[known.state]) worst.set(card.cluster, card)
  }
  return [...worst.values()]
}

/** Gateways of two contexts may have the same name. */
function gatewayKey({ context = '', node }: OfContext & { readonly node: string }): string {
  return `${context}/${node}`
}

interface NearGroup {
  readonly id: string
  readonly names: readonly string[]
  readonly label: string
  readonly state: string
}

/** Gateways that the list of gateways does not have may have links all the same. */
function nearGroups(gateways: readonly GatewayRow[], links: readonly LinkRow[]): readonly NearGroup[] {
  const states = new Map<string, { readonly row: Pick<LinkRow, 'context' | 'node'>; readonly state: string }>()
  for (const row of gateways) states.set(gatewayKey(row), { row, state: row.state })
  for (const row of links) {
    if (!states.has(gatewayKey(row))) states.set(gatewayKey(row), { row, state: 'reporting' })
  }
  const all = [...states].map(([key, { row, state }]) => ({ key, state, label: gatewayLabel(row) }))
  const shown = all.slice(0, all.length > MOST_GATEWAYS ? MOST_GATEWAYS - 1 : MOST_GATEWAYS)
  const rest = all.slice(shown.length)
  return [
    ...shown.map(({ key, label, state }, i) => ({ id: `g${i}`, names: [key], label, state })),
    ...(rest.length === 0
      ? []
      : [
          {
            ...{ id: 'g-rest', names: rest.map(({ key }) => key), label: `${rest.length} more gateways` },
            state: rest.every(({ state }) => state === 'reporting') ? 'reporting' : 'silent',
          },
        ]),
  ]
}

function gatewayLabel({ context, node }: OfContext & { readonly node: string }): string {
  return context === undefined ? node : `${node} ${context}`
}

function separate({ cluster, state }: ClusterCard, id: string): FarGroup {
  const node: MapNode = { id, what: 'cluster', label: nodeLabel(cluster, state), state }
  return { node, title: cluster, drawn: [cluster], counted: [cluster] }
}

function byRegion(others: readonly ClusterCard[], open: ReadonlySet<string>): readonly FarGroup[] {
  const regions = [...Map.groupBy(others, ({ region }) => region ?? NO_REGION)].sort(([a], [b]) => (a < b ? -1 : 1))
  const own = regions.slice(0, MOST_SEPARATE)
  const rest = regions.slice(MOST_SEPARATE)
  const groups = own.flatMap(([region, cards], i): readonly FarGroup[] => {
    const whole = { title: region, region, counted: cards.map(({ cluster }) => cluster) }
    if (!open.has(region)) {
      return [{ ...whole, isOpen: false, node: regionNode(`r${i}`, region, cards), drawn: whole.counted }]
    }
    const [shown, more] = [cards.slice(0, MOST_OF_REGION), cards.slice(MOST_OF_REGION)]
    const node = more.length === 0 ? {} : { node: regionNode(`r${i}`, `${region}, ${more.length} more`, more) }
    const group: FarGroup = { ...whole, ...node, isOpen: true, drawn: more.map(({ cluster }) => cluster) }
    return [group, ...shown.map((card, j) => separate(card, `r${i}c${j}`))]
  })
  if (rest.length === 0) return groups
  const cards = rest.flatMap(([, some]) => some)
  const title = `${rest.length} more regions`
  const names = cards.map(({ cluster }) => cluster)
  return [...groups, { title, region: title, node: regionNode('r-rest', title, cards), drawn: names, counted: names }]
}

function regionNode(id: string, title: string, cards: readonly ClusterCard[]): MapNode {
  const reached = cards.filter(({ state }) => state === 'reached').length
  const isUnknown = cards.every(({ state }) => state === 'unknown')
  const state = isUnknown ? 'unknown' : reached === cards.length ? 'reached' : reached === 0 ? 'cut off' : 'degraded'
  return { id, what: 'region', label: `${short(title)}\n${signOf(state)} ${reached} of ${cards.length} reached`, state }
}

/** Several links between two nodes are several lines, unless they are too many to see each. */
function linesOf(from: string, to: string, links: readonly LinkRow[]): readonly MapLine[] {
  const line = (key: string, some: readonly LinkRow[]): MapLine => {
    const { state, up, rttMs, loss = 0 } = summed(some)
    const count = some.length === 1 ? '' : `${up} of ${some.length}`
    const rtt = rttMs === undefined ? '' : `${rttMs.toFixed(1)} ms`
    const lost = loss === 0 ? '' : `${Math.round(loss * 100)} % lost`
    const quality = state === 'down' ? [] : [rtt, lost]
    const words = [state === 'up' ? '' : state, count, ...quality].filter((one) => one !== '')
    return { id: `${from} ${to} ${key}`, from, to, state, label: `${signOf(state)} ${words.join(' ')}`.trim() }
  }
  return links.length > MOST_LINES ? [line('all', links)] : links.map((link, i) => line(String(i), [link]))
}

function rowsOf(
  { title, region, isOpen, counted }: FarGroup,
  byCluster: ReadonlyMap<string, readonly LinkRow[]>,
): readonly MapRow[] {
  const links = counted.flatMap((cluster) => byCluster.get(cluster) ?? [])
  if (region !== undefined) {
    const more = { region, ...(isOpen === undefined ? {} : { isOpen }) }
    return [{ key: `region ${region}`, from: 'this cluster', to: title, ...more, ...summed(links) }]
  }
  if (links.length === 0) return [{ key: title, from: 'this cluster', to: title, ...summed([]) }]
  return links.map((link) => {
    const { context, node, lane, cluster, remoteLane } = link
    const [from, to] = [`${node} lane ${lane}`, `${cluster} lane ${remoteLane}`]
    const of = context === undefined ? {} : { context }
    return { key: `${from} ${to}`, from, to, ...of, ...summed([link]) }
  })
}

interface Sum extends Omit<MapRow, 'key' | 'from' | 'to' | 'region' | 'isOpen' | 'state'> {
  readonly state: Step
}

/** Without any link it is down. */
function summed(links: readonly LinkRow[]): Sum {
  const up = links.filter(({ state }) => state === 'up')
  const traffics = links.flatMap(({ traffic }) => traffic ?? [])
  const [rtts, losses, times] = [
    up.flatMap(({ rttMs }) => rttMs ?? []),
    up.flatMap(({ loss }) => loss ?? []),
    links.flatMap(({ since }) => since ?? []),
  ]
  const isConnecting = up.length > 0 || links.some(({ state }) => state === 'connecting')
  const since = times.sort().at(-1)
  return {
    state: up.length === links.length && links.length > 0 ? 'up' : isConnecting ? 'connecting' : 'down',
    ...{ up: up.length, links: links.length },
    ...(rtts.length === 0 ? {} : { rttMs: Math.min(...rtts) }),
    ...(losses.length === 0 ? {} : { loss: Math.max(...losses) }),
    ...(traffics.length === 0 ? {} : { traffic: sumOf(traffics) }),
    cables: [...new Set(links.flatMap(({ cable }) => cable ?? []))].sort(),
    ...(since === undefined ? {} : { since }),
  }
}

function sumOf(traffics: readonly Traffic[]): Traffic {
  return {
    receivedPerSecond: traffics.reduce((sum, one) => sum + one.receivedPerSecond, 0),
    sentPerSecond: traffics.reduce((sum, one) => sum + one.sentPerSecond, 0),
  }
}

const SIGN: Readonly<Record<string, string>> = {
  ...{ up: '●', reached: '●', reporting: '●', connecting: '▲', degraded: '▲', starting: '▲' },
  ...{ down: '✕', silent: '✕', 'cut off': '✕' },
}

function signOf(state: string): string {
  return SIGN[state] ?? '?'
}

function nodeLabel(name: string, state: string): string {
  return `${short(name)}\n${signOf(state)} ${state}`
}

function short(text: string): string {
  return text.length <= MAX_LABEL ? text : `${text.slice(0, MAX_LABEL - 1)}…`
}

// Where each node stands. Lines go between columns, so that none passes behind a node.

const [ROW, MARGIN] = [64, 40]
/** A narrower drawing has two columns, a wider one has three: gateways in the middle. */
const WIDE = 700

export interface MapPlaces {
  readonly height: number
  readonly places: ReadonlyMap<string, { readonly x: number; readonly y: number }>
}

/** Gives a place in pixels to each node, in a drawing of this width. */
export function placesOf(nodes: readonly MapNode[], width: number): MapPlaces {
  const near = nodes.filter(({ what }) => what === 'gateway')
  const far = nodes.filter(({ what }) => what !== 'gateway')
  const isWide = width >= WIDE
  const left = isWide ? far.slice(0, Math.ceil(far.length / 2)) : near
  const right = isWide ? far.slice(left.length) : far
  const columns = isWide ? [left, near, right] : [left, right]
  const rows = Math.max(1, ...columns.map((column) => column.length))
  const height = rows * ROW + MARGIN
  const side = Math.min(120, width / 4)
  const places = columns.flatMap((column, i) =>
    column.map(({ id }, j) => {
      const x = side + (i * (width - 2 * side)) / (columns.length - 1)
      return [id, { x, y: (height * (j + 0.5)) / column.length }] as const
    }),
  )
  return { height, places: new Map(places) }
}
