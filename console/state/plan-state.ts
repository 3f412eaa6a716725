/**
 * What the console shows, from the facts that `sealane status` gathers. Names, labels and messages come from other
 * members: each text is cut and made printable, each list has a limit, and only the fields that are named here get out.
 */
import {
  CONDITION_CONNECTED,
  CONDITION_READY,
  type ClusterAccessPolicy,
  type ClusterTrafficPolicy,
  type EndpointSlice,
  LABEL_SERVICE_NAME,
  PROPERTY_REGION,
  type ServiceImport,
  type TrafficPolicy,
  findCondition,
} from '../../model/model.ts'
import { type ServiceShares, statedShares } from '../../model/services/services.ts'
import { remoteLaneOf } from '../../model/lanes/lanes.ts'
import { type Diagnosis, type LinkOverview, diagnoseWorld } from '../../explain/explain.ts'
import {
  type ImportState,
  type RankedFinding,
  type World,
  hasAllBackends,
  importStates,
  readFacts,
  subjectText,
  worldOf,
} from '../../explain/facts/facts.ts'
import { ofOneFamily, sharesWorld } from '../../explain/path/path.ts'
import type {
  About,
  ClusterCard,
  ConsoleState,
  DeniedRow,
  GatewayRow,
  LinkRow,
  ProblemRow,
  Section,
  ServiceRow,
  ShareCell,
} from './document.ts'
import { type SeenStates, eventsOf, planEvents, seenOf } from './plan-events.ts'
import { type CallsFact, type FlowCommands, type FlowsFacts, planFlows } from './plan-flows.ts'
import {
  type Answer,
  MAX_MESSAGE,
  MOST_ITEMS,
  type PacketEnd,
  clipped,
  compare,
  endText,
  keyOf,
  listed,
  numbers,
  section,
  staleOf,
  withFlags,
} from './plan-rows.ts'

/** Whole objects that divide calls, besides those of the facts. */
export interface SharesFacts {
  /** Slices of imported services. */
  readonly slices: readonly EndpointSlice[]
  readonly policies: readonly TrafficPolicy[]
  readonly clusterPolicies: readonly ClusterTrafficPolicy[]
  readonly accessPolicies: readonly ClusterAccessPolicy[]
}

/** One refused packet, as `sealane show denied` reads it. */
export interface DeniedFact {
  readonly at: string
  readonly node?: string
  readonly reason: string
  readonly from: PacketEnd
  readonly to: PacketEnd
  readonly protocol: string
  readonly port?: number
}

export interface ConsoleFacts {
  /** A FactSet, or the parsed content of a file. */
  readonly facts: unknown
  /** The flags that name the same target in a command: `--context c1`. */
  readonly flags: string
  /** False if the facts are those of a file. */
  readonly live: boolean
  readonly shares: Answer<SharesFacts>
  readonly denied: Answer<readonly DeniedFact[]>
  /** Undefined: no calls are read. */
  readonly flows?: Answer<FlowsFacts>
}

/** The largest number of rows of each section. */
export const MOST = { problems: 100, clusters: 1000, gateways: 500, links: 2000, services: 2000, denied: 200 } as const
export const MOST_LABELS = 8

/** What a look shows, and what the next one has to know of it. */
export interface PlannedState {
  readonly state: ConsoleState
  /** Of the last look that read the links, also of those that the section has no place for. Undefined: none has. */
  readonly links: LinkTimes | undefined
  /** The time of the first look, RFC 3339. */
  readonly startedAt: string
  /** The states from which the next look derives events. */
  readonly seen: SeenStates
}

type LinkTimes = ReadonlyMap<string, LinkTime>

interface LinkTime extends Counted {
  readonly state: LinkRow['state']
  readonly since?: string
}

/** The counters of a link, and the heartbeat of the report that has them. */
interface ByteCount {
  readonly received: number
  readonly sent: number
  readonly atMs: number
}

/**
 * Never throws. From the look `before` follows when a link has changed. Its sections stay, with their age, where the
 * API server did not answer the question for newer ones.
 */
export function planMember(input: ConsoleFacts, before?: PlannedState): PlannedState {
  const world = worldOf(readFacts(input.facts))
  const diagnosis = diagnoseWorld(world)
  const commands = commandsFor(input)
  const earlier = before?.state
  const planned = servicesOf(world, input, commands.services)
  const { rows, times } = linkRows(world, diagnosis, before?.links)
  const clusters = renewed(clustersOf(world, diagnosis, rows, commands.clusters), 'clusters', world, earlier)
  const gateways = renewed(gatewaysOf(world, diagnosis, commands.gateways), 'gateways', world, earlier)
  const links = renewed(linksOf(rows, commands.links), 'links', world, earlier)
  const services = renewed(planned.services, 'services', world, earlier)
  const about = aboutOf(input, diagnosis, planned.all)
  const now = statesOf(world, diagnosis, rows, before?.seen)
  const startedAt = before?.startedAt ?? world.takenAt
  const events = eventsOf(planEvents(before?.seen, now, world.takenAt), earlier?.events, {
    ...{ command: commands.events, since: input.live ? startedAt : undefined },
  })
  const state: ConsoleState = {
    format: 1,
    about: earlier === undefined ? about : aboutKept(about, earlier.about, { clusters, links, services }),
    times: {
      facts: clipped(world.takenAt),
      ...(input.shares.t === 'known' ? { shares: clipped(input.shares.at) } : {}),
      ...(input.flows?.t === 'known' ? { flows: clipped(input.flows.at) } : {}),
      ...(input.denied.t === 'known' ? { denied: clipped(input.denied.at) } : {}),
    },
    problems: section(commands.problems, diagnosis.problems, MOST.problems, (one) => problemRow(one, input)),
    ...{ clusters, gateways, links, services, ...planFlows(input.flows, commands) },
    denied: deniedOf(input.denied, commands.denied),
    events,
  }
  return {
    ...{ state, startedAt, seen: seenOf(now, before?.seen) },
    links: links.stale === undefined ? times : before?.links,
  }
}

/** Of those that are kept while kinds are not answered. */
const MOST_PROBLEMS = 10_000

/** States for which a kind was not read are absent. */
function statesOf(
  world: World,
  { overview, problems }: Diagnosis,
  links: readonly LinkRow[],
  before: SeenStates | undefined,
): SeenStates {
  const isRead = (...kinds: readonly string[]): boolean =>
    !world.unanswered.some(({ what, reason }) => reason === 'NotAnswered' && kinds.includes(what))
  const gateways = (): ReadonlyMap<string, string> =>
    new Map(overview.gateways.map(({ node, state, lane }) => [clipped(node), gatewayState(state, lane)]))
  const imports = (): ReadonlyMap<string, string> =>
    new Map(world.objects.ServiceImport?.map(({ object }) => [clipped(keyOf(object.metadata), MAX_MESSAGE), '']))
  const found = problems.map(
    ({ reason, subject, source }) =>
      [clipped(`${reason}: ${subjectText(subject)}`, MAX_MESSAGE), clipped(source)] as const,
  )
  // Problems that could not be seen this time have not ended.
  const silent = world.unanswered.flatMap(({ what, reason }) => (reason === 'NotAnswered' ? [what] : []))
  const hidden = [...(before?.problems ?? [])].filter(([, source]) => silent.some((what) => isSeenBy(what, source)))
  const states = links.map((row) => {
    return [`${row.node} lane ${row.lane} to ${row.cluster} lane ${row.remoteLane}`, row.state] as const
  })
  return {
    ...(isRead(...READ_FROM.gateways) ? { gateways: gateways() } : {}),
    ...(isRead(...READ_FROM.links) ? { links: new Map(states) } : {}),
    ...(isRead('ServiceImport') ? { imports: imports() } : {}),
    problems: new Map([...hidden, ...found].slice(-MOST_PROBLEMS)),
  }
}

/** Whether a problem of this source can come from the answer to this question. The page of a part is about it alone. */
function isSeenBy(what: string, source: string): boolean {
  const [, page] = /^(?:Pod|Page) (.+)$/.exec(what) ?? []
  if (page === undefined) return true
  const isOther = /^(pod |http:|API server|state of )/.test(source)
  return !isOther || source === clipped(`pod ${page}`) || source === clipped(`http://${page}/status`)
}

/** A gateway without a lane waits for the end of another one. */
function gatewayState(state: GatewayRow['state'], lane: number | undefined): string {
  if (state !== 'reporting') return state
  return lane === undefined ? 'standby' : 'active'
}

/** The kinds from which the rows of a section follow. */
const READ_FROM = {
  clusters: ['Membership', 'Cluster', 'Gateway'],
  gateways: ['Gateway'],
  links: ['Membership', 'Gateway'],
  services: ['ServiceImport', 'ServiceExport', 'EndpointSlice'],
} as const

/** Without an answer for one of its kinds, a section keeps the rows that were read last. */
function renewed<K extends keyof typeof READ_FROM>(
  planned: ConsoleState[K],
  name: K,
  { unanswered }: World,
  before: ConsoleState | undefined,
): ConsoleState[K] {
  const kinds: readonly string[] = READ_FROM[name]
  const silent = unanswered.find(({ what, reason }) => reason === 'NotAnswered' && kinds.includes(what))
  if (silent === undefined) return planned
  const why = clipped(`${silent.what}: ${silent.message}`, MAX_MESSAGE)
  const earlier = before?.[name]
  const at = earlier?.stale === undefined ? before?.times.facts : earlier.stale.at
  return earlier === undefined || at === undefined ? { ...planned, stale: { why } } : { ...earlier, stale: { at, why } }
}

/** The counts agree with the sections. */
function aboutKept(
  about: About,
  before: About,
  { clusters, links, services }: Pick<ConsoleState, 'clusters' | 'links' | 'services'>,
): About {
  const isKept = ({ stale }: Section<unknown>): boolean => stale?.at !== undefined
  const { cluster, clusterset, notLinked, counts } = before
  return {
    ...(isKept(clusters) && cluster !== undefined ? { cluster } : {}),
    ...(isKept(clusters) && clusterset !== undefined ? { clusterset } : {}),
    ...(isKept(clusters) && notLinked !== undefined ? { notLinked } : {}),
    ...about,
    counts: {
      ...about.counts,
      ...(isKept(clusters) ? { clustersReached: counts.clustersReached, clusters: counts.clusters } : {}),
      ...(isKept(links) ? { linksUp: counts.linksUp, links: counts.links } : {}),
      ...(isKept(services) ? { services: counts.services } : {}),
    },
  }
}

/** The last state, while no facts can be had. `since` is an RFC 3339 time. */
export function withFailure(state: ConsoleState, since: string, why: string): ConsoleState {
  return { ...state, about: { ...state.about, failing: { since: clipped(since), why: clipped(why, MAX_MESSAGE) } } }
}

type Commands = Readonly<Record<keyof typeof MOST, string>> & FlowCommands & { readonly events: string }

/** A bundle is shown by `status` and `diagnose` alone. */
function commandsFor({ flags, live }: ConsoleFacts): Commands {
  const of = (words: string): string => clipped(`sealane ${words} ${flags}`, MAX_MESSAGE)
  const wide = of('status -o wide')
  if (!live) {
    const services = of('diagnose services')
    const calls = { refusals: services, calls: services, flows: services, denied: services, events: of('status') }
    return { problems: of('status'), clusters: wide, gateways: wide, links: wide, services, ...calls }
  }
  return {
    problems: of('status'),
    clusters: wide,
    gateways: of('show gateways'),
    links: of('show connections'),
    services: of('show traffic'),
    refusals: of('flows --denied'),
    calls: of('top services'),
    flows: of('flows'),
    denied: of('show denied'),
    events: of('status --watch'),
  }
}

function aboutOf({ flags, live }: ConsoleFacts, { health, overview, problems }: Diagnosis, services: number): About {
  const { cluster, clusterset, clusters, links, notLinked } = overview
  return {
    target: clipped(overview.target),
    ...(cluster === undefined ? {} : { cluster: clipped(cluster) }),
    ...(clusterset === undefined ? {} : { clusterset: clipped(clusterset) }),
    ...(notLinked === undefined ? {} : { notLinked: notLinkedText(notLinked) }),
    health,
    live,
    command: clipped(`sealane status ${flags}`, MAX_MESSAGE),
    counts: {
      problems: problems.length,
      clustersReached: clusters.filter(({ state }) => state === 'reached').length,
      clusters: clusters.length,
      linksUp: links.filter(({ state }) => state === 'up').length,
      links: links.length,
      services,
    },
  }
}

function notLinkedText({
  reason,
  clusters,
}: NonNullable<Diagnosis['overview']['notLinked']>): NonNullable<About['notLinked']> {
  return { reason: clipped(reason), clusters: listed(clusters), more: Math.max(0, clusters.length - MOST_ITEMS) }
}

function problemRow(found: RankedFinding, { flags }: Pick<ConsoleFacts, 'flags'>): ProblemRow {
  const { severity, reason, subject, seen, source, since, mend, areas, consequences } = found
  const [area = ''] = areas
  const closer = `sealane diagnose ${area} ${flags}`.replace('  ', ' ')
  return {
    severity,
    reason: clipped(reason),
    subject: clipped(subjectText(subject), MAX_MESSAGE),
    seen: clipped(seen, MAX_MESSAGE),
    source: clipped(source),
    ...(since === undefined ? {} : { since: clipped(since) }),
    mend: clipped(mend, MAX_MESSAGE),
    consequences: consequences
      .slice(0, MOST_ITEMS)
      .map((one) =>
        clipped(`${one.reason} ×${one.count} (${one.examples[0] ?? ''}${one.count > 1 ? ', …' : ''})`, MAX_MESSAGE),
      ),
    commands: [...commandsIn(mend).map((command) => withFlags(command, flags)), closer]
      .slice(0, 3)
      .map((command) => clipped(command, MAX_MESSAGE)),
  }
}

/** The commands that the table of reasons names: `sealane broker verify`. */
function commandsIn(mend: string): readonly string[] {
  return [...mend.matchAll(/`((?:sealane|kubectl) [^`]+)`/g)].flatMap(([, command]) => command ?? [])
}

function clustersOf(
  world: World,
  { overview }: Diagnosis,
  links: readonly LinkRow[],
  command: string,
): Section<ClusterCard> {
  const byCluster = Map.groupBy(links, ({ cluster }) => cluster)
  const objects = new Map(world.objects.Cluster?.map(({ object }) => [object.spec.id, object]))
  const facts = (id: string): Pick<ClusterCard, 'since' | 'region' | 'podCIDRs' | 'globalCIDRs' | 'labels'> => {
    const object = objects.get(id)
    const region = object?.spec.properties?.[PROPERTY_REGION]
    const since = findCondition(object?.status?.conditions, CONDITION_CONNECTED)?.lastTransitionTime
    return {
      ...(typeof since === 'string' && since !== '' ? { since: clipped(since) } : {}),
      ...(region === undefined || region === '' ? {} : { region: clipped(region) }),
      podCIDRs: listed(object?.spec.podCIDRs),
      globalCIDRs: listed(object?.spec.globalCIDRs),
      labels: Object.entries(object?.spec.labels ?? {})
        .slice(0, MOST_LABELS)
        .map(([key, value]) => `${clipped(key)}=${clipped(value)}`),
    }
  }
  const up = overview.links.filter(({ state }) => state === 'up').length
  const own: readonly ClusterCard[] =
    world.self === undefined
      ? []
      : [
          {
            ...facts(world.self),
            ...{ cluster: clipped(world.self), state: 'here', links: overview.links.length, linksUp: up },
            contact: { connected: 'heard', away: 'silent', unknown: 'unknown' }[overview.broker.state] as 'heard',
          },
        ]
  const others = (world.others ?? []).flatMap((id, i): readonly ClusterCard[] => {
    const row = overview.clusters[i]
    if (row === undefined) return []
    const { state, contact, linksUp, links, rttMs, loss, mtu } = row
    const traffic = trafficOf(byCluster.get(clipped(id)) ?? [])
    return [
      {
        ...{ ...facts(id), cluster: clipped(id), state, contact, linksUp, links, ...numbers({ rttMs, loss, mtu }) },
        ...(traffic === undefined ? {} : { traffic }),
      },
    ]
  })
  return section(command, [...own, ...others.sort(byState)], MOST.clusters, (card) => card)
}

const CLUSTER_RANK = { 'cut off': 0, silent: 0, unknown: 1, reached: 2, 'in contact': 2, here: 3 } as const

/** Clusters that are not reached come first. */
function byState(a: ClusterCard, b: ClusterCard): number {
  return CLUSTER_RANK[a.state] - CLUSTER_RANK[b.state] || compare(a.cluster, b.cluster)
}

function gatewaysOf({ objects }: World, { overview }: Diagnosis, command: string): Section<GatewayRow> {
  return section(command, objects.Gateway ?? [], MOST.gateways, ({ object: { status } }, i) => {
    const { node = '', state = 'starting', lane, linksUp = 0, links = 0 } = overview.gateways[i] ?? {}
    const ready = findCondition(status?.conditions, CONDITION_READY)?.lastTransitionTime
    const since = state === 'silent' ? status?.heartbeatTime : ready
    return {
      node: clipped(node),
      state,
      ...(typeof since === 'string' && since !== '' ? { since: clipped(since) } : {}),
      ...(lane === undefined ? {} : { lane }),
      ...(status === undefined ? {} : { version: clipped(status.version) }),
      ...{ linksUp, links },
    }
  })
}

const LINK_RANK = { down: 0, connecting: 1, up: 2 } as const

interface PlannedLinks {
  readonly rows: readonly LinkRow[]
  /** Of each link: for the next look. */
  readonly times: LinkTimes
}

function linkRows(world: World, diagnosis: Diagnosis, known: LinkTimes | undefined): PlannedLinks {
  const { links } = diagnosis.overview
  const times = new Map<string, LinkTime>()
  const rows = world.links.flatMap(({ gateway, connection }, i): readonly LinkRow[] => {
    const link = links[i]
    if (link === undefined) return []
    const plain = linkRow(link, connection.usingRelay, cableOf(gateway.object.status, connection))
    const earlier = known?.get(linkKey(plain))
    const since = earlier?.state === plain.state ? earlier.since : clipped(world.takenAt)
    const { count, traffic } = countOf(gateway.object.status, connection, earlier)
    const row: LinkRow = {
      ...plain,
      ...(known === undefined || since === undefined ? {} : { since }),
      ...(traffic === undefined ? {} : { traffic }),
    }
    times.set(linkKey(row), {
      ...{ state: row.state, count, traffic },
      ...(row.since === undefined ? {} : { since: row.since }),
    })
    return [row]
  })
  const sorted = rows.sort((a, b) => LINK_RANK[a.state] - LINK_RANK[b.state] || compare(linkKey(a), linkKey(b)))
  return { rows: sorted, times }
}

/** Two reports that are closer say too little. */
const LEAST_COUNTED_MS = 1000

interface Counted {
  readonly count?: ByteCount | undefined
  readonly traffic?: LinkRow['traffic']
}

/**
 * Counters begin again with a device. A report that was seen already says nothing new, and the last rate stays. Without
 * a heartbeat, as with earlier releases, there is no rate.
 */
function countOf(status: GatewayStatus, { rxBytes, txBytes }: CountedLink, earlier: Counted | undefined): Counted {
  const atMs = Date.parse(status?.heartbeatTime ?? '')
  if (Number.isNaN(atMs)) return {}
  const count = { received: rxBytes, sent: txBytes, atMs }
  const before = earlier?.count
  if (before === undefined) return { count }
  const ms = atMs - before.atMs
  if (ms >= 0 && ms < LEAST_COUNTED_MS) return earlier ?? {}
  const [received, sent] = [rxBytes - before.received, txBytes - before.sent]
  if (ms < 0 || received < 0 || sent < 0) return { count }
  const perSecond = (bytes: number): number => Math.round((bytes * 1000) / ms)
  return { count, traffic: { receivedPerSecond: perSecond(received), sentPerSecond: perSecond(sent) } }
}

type CountedLink = Pick<World['links'][number]['connection'], 'rxBytes' | 'txBytes'>

/** Undefined if no link has a rate. */
function trafficOf(links: readonly LinkRow[]): LinkRow['traffic'] {
  const known = links.flatMap(({ traffic }) => traffic ?? [])
  if (known.length === 0) return undefined
  return {
    receivedPerSecond: known.reduce((sum, { receivedPerSecond }) => sum + receivedPerSecond, 0),
    sentPerSecond: known.reduce((sum, { sentPerSecond }) => sum + sentPerSecond, 0),
  }
}

function linksOf(rows: readonly LinkRow[], command: string): Section<LinkRow> {
  return section(command, rows, MOST.links, (row) => row)
}

type GatewayStatus = World['links'][number]['gateway']['object']['status']

function cableOf(status: GatewayStatus, connection: World['links'][number]['connection']): string | undefined {
  const remote = remoteLaneOf(connection)
  const own = status?.lanes.find(({ lane, remoteLane = lane }) => lane === connection.lane && remoteLane === remote)
  return own?.driver
}

function linkRow(link: LinkOverview, relay: string | undefined, cable: string | undefined): LinkRow {
  const { node, lane, cluster, remoteLane, state, usingAddress, usingNat, rttMs, loss, mtu, message } = link
  return {
    ...{ node: clipped(node), lane, cluster: clipped(cluster), remoteLane, state },
    ...(cable === undefined ? {} : { cable: clipped(cable) }),
    ...(usingAddress === undefined ? {} : { way: wayOf(usingNat, relay), address: clipped(usingAddress) }),
    ...(relay === undefined ? {} : { relay: clipped(relay) }),
    ...numbers({ rttMs, loss, mtu }),
    message: clipped(message, MAX_MESSAGE),
  }
}

function wayOf(usingNat: boolean, relay: string | undefined): NonNullable<LinkRow['way']> {
  if (relay !== undefined) return 'relay'
  return usingNat ? 'NAT' : 'direct'
}

function linkKey({ node, lane, cluster, remoteLane }: LinkRow): string {
  return `${cluster} ${remoteLane} ${node} ${lane}`
}

interface PlannedServices {
  readonly services: Section<ServiceRow>
  readonly all: number
}

export const SERVICE_RANK = {
  'cut off': 0,
  silent: 0,
  'without backends': 1,
  unknown: 2,
  usable: 3,
  exported: 3,
  own: 4,
} as const

/** Services that cannot be called come first. */
function servicesOf(
  world: World,
  { shares, flows }: Pick<ConsoleFacts, 'shares' | 'flows'>,
  command: string,
): PlannedServices {
  const states = new Map(importStates(world).map((one) => [keyOf(one.service.object.metadata), one]))
  const own = world.objects.Cluster?.find(({ object }) => object.spec.id === world.self)?.object
  const importers = new Map(own?.status?.importedBy?.map((one) => [`${one.namespace}/${one.name}`, one]))
  const divide = divisionOf(world, shares)
  // Of all services: the section of calls has place for those that are called most.
  const called = new Map(flows?.t === 'known' ? flows.value.calls.map((one) => [one.name, one]) : [])
  const exports_ = new Map(world.objects.ServiceExport?.map(({ object }) => [keyOf(object.metadata), object]))
  const imports = new Map(world.objects.ServiceImport?.map(({ object }) => [keyOf(object.metadata), object]))
  const isAll = hasAllBackends(world)
  const keys = [...new Set([...imports.keys(), ...exports_.keys()])]
  const stateOf = (key: string): ServiceRow['state'] => {
    const service = imports.get(key)
    if (service === undefined) return 'own'
    const state = states.get(key)
    if (state !== undefined) return importStateOf(state)
    return isAll && (service.status?.clusters ?? []).length > 0 ? 'usable' : 'unknown'
  }
  const ranked = keys.map((key) => ({ key, state: stateOf(key) }))
  ranked.sort((a, b) => SERVICE_RANK[a.state] - SERVICE_RANK[b.state] || compare(a.key, b.key))
  const services = section(command, ranked, MOST.services, ({ key, state }): ServiceRow => {
    const service = imports.get(key)
    const exported = exports_.get(key)
    const { namespace = '', name = '' } = (service ?? exported)?.metadata ?? {}
    const exporters = (service?.status?.clusters ?? []).map(({ cluster }) => cluster)
    const by = importers.get(key)
    const { cells: divided, policy } = divide.of(key, service)
    const ready = states.get(key)?.ready
    const calls = called.get(key)
    return {
      ...{ namespace: clipped(namespace), name: clipped(name), state },
      ...(service === undefined ? {} : { type: clipped(service.spec.type) }),
      ips: listed(service?.spec.ips),
      exporters: listed(exporters),
      moreExporters: Math.max(0, exporters.length - MOST_ITEMS),
      ...(exported === undefined ? {} : { exported: exportStateOf(exported.status?.conditions) }),
      importers: listed(by?.clusters),
      moreImporters: Math.max(0, (by?.clusters.length ?? 0) - MOST_ITEMS) + (by?.more ?? 0),
      ...numbers({ ready }),
      ...(policy === undefined ? {} : { policy: `${policy.kind} ${clipped(policy.metadata.name)}` }),
      ...(calls === undefined ? {} : { calls: callsCell(calls) }),
      shares: divided.slice(0, MOST_ITEMS),
      moreShares: Math.max(0, divided.length - MOST_ITEMS),
    }
  })
  const note = divide.why === undefined ? {} : { note: clipped(divide.why, MAX_MESSAGE) }
  return { services: { ...services, ...note }, all: keys.length }
}

interface Divided extends Pick<ServiceShares, 'policy'> {
  readonly cells: readonly ShareCell[]
}

function callsCell({ callsPerSecond, recent }: CallsFact): NonNullable<ServiceRow['calls']> {
  return { perSecond: callsPerSecond, errors: recent.refused + recent.unanswered }
}

interface Division {
  readonly of: (key: string, service: ServiceImport | undefined) => Divided
  /** Why there are no shares. */
  readonly why?: string
}

const UNDIVIDED: Divided = { cells: [], policy: undefined }

/** By the function that balancing asks, as `sealane show traffic` does. */
function divisionOf({ objects }: World, shares: Answer<SharesFacts>): Division {
  if (shares.t === 'none') return { of: () => UNDIVIDED, why: shares.why }
  const list = <T>(all: readonly { readonly object: T }[] | undefined): readonly T[] =>
    (all ?? []).map(({ object }) => object)
  const [membership] = list(objects.Membership)
  if (membership === undefined) return { of: () => UNDIVIDED, why: 'shares: no membership is known' }
  const { slices, ...policies } = shares.value
  try {
    const [clusters, gateways, nodes] = [list(objects.Cluster), list(objects.Gateway), list(objects.Node)]
    const world = sharesWorld({ membership, clusters, gateways, nodes, ...policies })
    const byService = Map.groupBy(slices, ({ metadata: { namespace = '', labels = {} } }) => {
      return keyOf({ namespace, name: labels[LABEL_SERVICE_NAME] ?? '' })
    })
    const divide = (key: string, service: ServiceImport): Divided => {
      const stated = statedShares(service, ofOneFamily(byService.get(key) ?? []), world)
      return { policy: stated.policy, cells: shareCells(stated) }
    }
    return { of: (key, service) => (service === undefined ? UNDIVIDED : orUndivided(() => divide(key, service))) }
  } catch (error) {
    return { of: () => UNDIVIDED, why: `shares: an object cannot be read: ${String(error)}` }
  }
}

/** Whole objects are checked where they are used: a malformed one has no shares, and the others have. */
function orUndivided(divide: () => Divided): Divided {
  try {
    return divide()
  } catch {
    return UNDIVIDED
  }
}

function importStateOf({ usable, isReached }: ImportState): ServiceRow['state'] {
  if (usable > 0) return 'usable'
  return isReached ? 'without backends' : 'cut off'
}

function exportStateOf(conditions: Parameters<typeof findCondition>[0]): NonNullable<ServiceRow['exported']> {
  if (findCondition(conditions, 'Valid')?.status === 'False') return 'failed'
  const ready = findCondition(conditions, CONDITION_READY)
  if (ready?.status === 'True') return 'exported'
  return ready === undefined || ready.reason === 'Pending' ? 'pending' : 'failed'
}

/** Of the service, and then of the ports that have others. More than a page shows are of no use. */
function shareCells({ shares, ports }: ServiceShares): readonly ShareCell[] {
  const ofPorts = ports.flatMap((plan) => {
    const titles = plan.of.slice(0, MOST_ITEMS).map(({ name, protocol, port }) => name ?? `${protocol} ${port}`)
    return plan.shares.map((one) => ({ ...one, ports: titles.join(', ') }))
  })
  return [...shares, ...ofPorts].map(shareCell)
}

function shareCell({ cluster, ports, share, ready, total, tier, weight, reason, message }: ShareCell): ShareCell {
  return {
    cluster: clipped(cluster),
    ...(ports === undefined ? {} : { ports: clipped(ports) }),
    ...{ share, ready, total },
    ...numbers({ tier, weight }),
    reason: clipped(reason),
    message: clipped(message),
  }
}

function deniedOf(denied: Answer<readonly DeniedFact[]>, command: string): Section<DeniedRow> {
  if (denied.t === 'none') return { command, rows: [], more: 0, note: clipped(denied.why, MAX_MESSAGE) }
  const latest = [...denied.value].sort((a, b) => compare(b.at, a.at))
  const rows = section(command, latest, MOST.denied, ({ at, node, from, to, protocol, port, reason }): DeniedRow => ({
    at: clipped(at),
    ...(node === undefined ? {} : { node: clipped(node) }),
    // What no member has sent has no cluster at either end.
    from: endText(to.cluster === undefined ? { cluster: '(no member)', ...from } : from),
    to: endText(to),
    protocol: clipped(protocol),
    ...numbers({ port }),
    reason: clipped(reason),
  }))
  return { ...rows, ...staleOf(denied) }
}
