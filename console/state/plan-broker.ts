/**
 * What the console shows at a broker, from what its admin service answers: all members as each reports itself, and what
 * they publish. What only members know has no rows. Texts come from members: each is cut and made printable.
 */
import { type ReasonCode, knownReason, reasonRow } from '../../model/reasons/reasons.ts'
import type { About, ClusterCard, ConsoleState, GatewayRow, ProblemRow, Section, ServiceRow } from './document.ts'
import { type SeenStates, eventsOf, planEvents, seenOf } from './plan-events.ts'
import { type Answer, MAX_MESSAGE, MOST_ITEMS, clipped, compare, listed, section, staleOf } from './plan-rows.ts'
import { MOST, MOST_LABELS, type PlannedState } from './plan-state.ts'

/** A member, as `sealane cluster list` and `sealane members` show it. Times are milliseconds since 1970. */
export interface MemberFact {
  readonly id: string
  readonly state: 'in contact' | 'silent' | 'left' | 'evicted'
  readonly sinceMs: number
  readonly lastSeenMs: number
  readonly drained?: true
  readonly rekeyedAtMs?: number
  readonly forkedAtMs?: number
  readonly misuse?: { readonly address: string; readonly atMs: number }
  readonly clashes?: readonly string[]
  readonly podCIDRs: readonly string[]
  readonly globalCIDRs: readonly string[]
  readonly notes: readonly string[]
  readonly labels?: Readonly<Record<string, string>>
  readonly reported?: {
    readonly versions: readonly string[]
    readonly lanes: { readonly up: number; readonly of: number }
    readonly exports: { readonly count: number; readonly failed: number }
    readonly problems: readonly {
      readonly code: string
      readonly severity: ProblemRow['severity']
      readonly count: number
    }[]
  }
}

/** What members publish, as `sealane broker gateways` and `sealane broker services` show it. */
export interface PublishedFacts {
  readonly gateways: readonly {
    readonly cluster: string
    readonly node: string
    readonly lane: number
    readonly addresses: readonly string[]
  }[]
  readonly gatewaysCount: number
  readonly services: readonly {
    readonly namespace: string
    readonly name: string
    readonly type: string
    readonly ips: readonly string[]
    readonly exporters: readonly string[]
    readonly exportersCount: number
    readonly drainedAt: readonly string[]
    readonly importers: readonly string[]
    readonly importersCount: number
  }[]
  readonly servicesCount: number
}

export interface BrokerFacts {
  /** RFC 3339. */
  readonly takenAt: string
  readonly clusterset: string
  /** `broker of cluster hub`. */
  readonly target: string
  /** The flags that name the broker in a command, with and without its clusterset. */
  readonly flags: string
  readonly brokerFlags: string
  /** Why these facts are only those of a state that no broker serves. */
  readonly unserved?: string | undefined
  readonly problems: readonly { readonly health: About['health']; readonly text: string }[]
  readonly members: readonly MemberFact[]
  readonly waiting: readonly {
    readonly id: string
    readonly what: 'join' | 'ranges'
    readonly state: string
    readonly sinceMs: number
  }[]
  readonly accessDefault: 'allow' | 'deny'
  readonly topology: {
    readonly topology: { readonly mode: string }
    readonly number: number
    readonly ignoredBy?: readonly string[]
  }
  readonly published: Answer<PublishedFacts>
}

const ELSEWHERE = 'Only members know this: sealane console at a member.'

/** Never throws. */
export function planBroker(facts: BrokerFacts, before?: PlannedState): PlannedState {
  const { takenAt, flags, brokerFlags, published } = facts
  const of = (words: string, by = flags): string => clipped(`sealane ${words} ${by}`, MAX_MESSAGE)
  const members = facts.members
    .filter(({ state }) => state === 'in contact' || state === 'silent')
    .map((one): MemberFact => (facts.unserved === undefined ? one : { ...one, state: 'silent' }))
  const silent = new Set(members.flatMap(({ id, state }) => (state === 'silent' ? [id] : [])))
  const problems = problemsOf(facts, members, of).sort((a, b) => RANK[a.severity] - RANK[b.severity])
  const { gateways, services } = publishedSections(published, silent, of)
  const now = seenAt(problems, members, published)
  const startedAt = before?.startedAt ?? takenAt
  const events = eventsOf(planEvents(before?.seen, now, takenAt), before?.state.events, {
    ...{ command: of('members --watch'), since: startedAt },
  })
  const nowhere = <T>(): Section<T> => ({ command: of('members'), rows: [], more: 0, note: ELSEWHERE })
  const state: ConsoleState = {
    format: 1,
    about: aboutOf(facts, { members, problems, of }),
    times: { facts: clipped(takenAt) },
    problems: {
      ...section(of('broker status', brokerFlags), problems, MOST.problems, (row) => row),
      commands: [of('members'), of('cluster list'), of('cluster waiting')],
    },
    clusters: {
      ...section(of('members'), members.toSorted(bySilence), MOST.clusters, memberCard),
      commands: [of('cluster list -o wide')],
    },
    ...{ gateways, services, links: nowhere(), refusals: nowhere() },
    ...{ calls: nowhere(), flows: nowhere(), denied: nowhere(), events },
  }
  return { state, startedAt, seen: seenOf(now, before?.seen), links: undefined }
}

type CommandOf = (words: string, flags?: string) => string

const RANK = { down: 0, degraded: 1, notice: 2 } as const

interface Problem extends Pick<ProblemRow, 'severity' | 'subject' | 'seen' | 'commands'> {
  readonly reason: string
  readonly sinceMs?: number
}

function problemsOf(facts: BrokerFacts, members: readonly MemberFact[], of: CommandOf): ProblemRow[] {
  const { unserved, brokerFlags, topology } = facts
  const status = of('broker status', brokerFlags)
  const own = facts.problems.flatMap(({ health, text }): Problem[] => {
    // What a healthy broker remarks is no problem.
    if (health === 'healthy') return []
    return [{ severity: health, reason: 'BrokerImpaired', subject: 'broker', seen: text, commands: [status] }]
  })
  const stopped: Problem[] =
    unserved === undefined
      ? []
      : [{ severity: 'down', reason: 'BrokerSilent', subject: 'broker', seen: unserved, commands: [status] }]
  const waiting = facts.waiting
    .filter(({ state }) => state === 'waiting')
    .map(({ id, what, sinceMs }): Problem => {
      const reason = what === 'join' ? 'JoinAwaitsApproval' : 'RangesAwaitApproval'
      const commands = [of('cluster waiting')]
      return { severity: 'notice', reason, subject: `cluster ${id}`, seen: 'it waits', sinceMs, commands }
    })
  const ignored: Problem[] =
    (topology.ignoredBy ?? []).length === 0
      ? []
      : [
          {
            ...{ severity: 'degraded', reason: 'TopologyNotSupported', subject: 'topology' },
            seen: `ignored by replicas ${listed(topology.ignoredBy).join(', ')}`,
            commands: [of('topology show')],
          },
        ]
  return [...stopped, ...own, ...ignored, ...members.flatMap((one) => memberProblems(one, of)), ...waiting].map(rowOf)
}

function memberProblems(member: MemberFact, of: CommandOf): readonly Problem[] {
  const { id, state, lastSeenMs, misuse, rekeyedAtMs, forkedAtMs, clashes = [], notes, reported } = member
  const subject = `cluster ${id}`
  const list = [of('cluster list')]
  const found = (reason: ReasonCode, severity: Problem['severity'], seen: string, sinceMs?: number): Problem => ({
    ...{ severity, reason, subject, seen, commands: list },
    ...(sinceMs === undefined ? {} : { sinceMs }),
  })
  const rekey = of(`cluster rekey ${id}`)
  return [
    ...(state === 'silent' ? [found('Silent', 'degraded', 'no connection to the broker', lastSeenMs)] : []),
    ...(misuse === undefined
      ? []
      : [
          {
            ...found('CertificateCopied', 'down', `a replaced certificate was used from ${misuse.address}`),
            ...{ sinceMs: misuse.atMs, commands: [rekey] },
          },
        ]),
    ...(forkedAtMs === undefined || rekeyedAtMs !== undefined
      ? []
      : [
          {
            ...found('IdentityForked', 'down', 'two parties use its identity', forkedAtMs),
            ...{ commands: [rekey] },
          },
        ]),
    ...(rekeyedAtMs === undefined
      ? []
      : [found('MemberRekeyed', 'degraded', 'it has to join with the token that was made for it', rekeyedAtMs)]),
    ...clashes.slice(0, MOST_ITEMS).map((text) => found('ServicesOverPods', 'degraded', text)),
    ...notes.slice(0, MOST_ITEMS).map((text) => found('AddressesNotAsStated', 'notice', text)),
    ...(reported?.problems ?? []).map(({ code, severity, count }): Problem => {
      const seen = `${count} of it, by its own report`
      return { ...{ severity, reason: code, subject, seen, commands: [of('members')] } }
    }),
  ]
}

/** The code may be one of a later release. */
function rowOf({ reason, severity, subject, seen, commands, sinceMs }: Problem): ProblemRow {
  const code = knownReason(reason)
  const mend = code === undefined ? 'Run `sealane status` at that member.' : reasonRow(code).todo
  return {
    ...{ severity, reason: clipped(reason), subject: clipped(subject, MAX_MESSAGE) },
    ...{ seen: clipped(seen, MAX_MESSAGE), source: 'broker' },
    ...(sinceMs === undefined ? {} : { since: timeText(sinceMs) }),
    ...{ mend: clipped(mend, MAX_MESSAGE), consequences: [], commands },
  }
}

/** Times come from the broker, which has checked none of them as a date. */
function timeText(ms: number): string {
  const date = new Date(ms)
  return Number.isNaN(date.getTime()) ? '-' : date.toISOString()
}

function bySilence(a: MemberFact, b: MemberFact): number {
  return Number(b.state === 'silent') - Number(a.state === 'silent') || compare(a.id, b.id)
}

function memberCard(member: MemberFact): ClusterCard {
  const { id, state, sinceMs, lastSeenMs, drained, podCIDRs, globalCIDRs, labels = {}, reported } = member
  return {
    ...{ cluster: clipped(id), state: state === 'silent' ? 'silent' : 'in contact', since: timeText(sinceMs) },
    contact: state === 'silent' ? 'silent' : 'heard',
    lastSeen: timeText(lastSeenMs),
    ...(drained === true ? { drained } : {}),
    ...(reported === undefined ? {} : { versions: listed(reported.versions), exports: { ...reported.exports } }),
    ...{ linksUp: reported?.lanes.up ?? 0, links: reported?.lanes.of ?? 0 },
    ...{ podCIDRs: listed(podCIDRs), globalCIDRs: listed(globalCIDRs) },
    labels: Object.entries(labels)
      .slice(0, MOST_LABELS)
      .map(([key, value]) => `${clipped(key)}=${clipped(value)}`),
  }
}

type PublishedSections = Pick<ConsoleState, 'gateways' | 'services'>

function publishedSections(
  published: Answer<PublishedFacts>,
  silent: ReadonlySet<string>,
  of: CommandOf,
): PublishedSections {
  const commands = { gateways: of('broker gateways'), services: of('broker services') }
  if (published.t === 'none') {
    const note = clipped(published.why, MAX_MESSAGE)
    const without = <T>(command: string): Section<T> => ({ command, rows: [], more: 0, note })
    return { gateways: without(commands.gateways), services: without(commands.services) }
  }
  const { value } = published
  const gateways = section(commands.gateways, value.gateways, MOST.gateways, (one): GatewayRow => ({
    ...{ cluster: clipped(one.cluster), node: clipped(one.node), lane: one.lane },
    state: silent.has(one.cluster) ? 'silent' : 'published',
    ...{ addresses: listed(one.addresses), linksUp: 0, links: 0 },
  }))
  const services = section(commands.services, value.services, MOST.services, (one): ServiceRow => ({
    ...{ namespace: clipped(one.namespace), name: clipped(one.name), type: clipped(one.type), ips: listed(one.ips) },
    state: one.exporters.every((id) => silent.has(id)) ? 'silent' : 'exported',
    ...{ exporters: listed(one.exporters), moreExporters: moreThan(one.exporters, one.exportersCount) },
    drainedAt: listed(one.drainedAt),
    ...{ importers: listed(one.importers), moreImporters: moreThan(one.importers, one.importersCount) },
    ...{ shares: [], moreShares: 0 },
  }))
  const left = (all: number, listedCount: number): number => Math.max(0, all - listedCount)
  return {
    gateways: {
      ...{ ...gateways, more: gateways.more + left(value.gatewaysCount, value.gateways.length) },
      ...staleOf(published),
    },
    services: {
      ...{ ...services, more: services.more + left(value.servicesCount, value.services.length) },
      ...staleOf(published),
    },
  }
}

function moreThan(list: readonly string[], count: number): number {
  return Math.max(0, count - Math.min(list.length, MOST_ITEMS))
}

interface Planned {
  readonly members: readonly MemberFact[]
  readonly problems: readonly ProblemRow[]
  readonly of: CommandOf
}

function aboutOf(facts: BrokerFacts, { members, problems, of }: Planned): About {
  const { target, clusterset, accessDefault, topology, published, unserved, brokerFlags } = facts
  const sum = (countOf: (member: MemberFact) => number): number => members.reduce((all, one) => all + countOf(one), 0)
  const isDown = unserved !== undefined || facts.problems.some(({ health }) => health === 'down')
  const isDegraded = problems.some(({ severity }) => severity !== 'notice')
  return {
    ...{ target: clipped(target), clusterset: clipped(clusterset), live: true },
    health: isDown ? 'down' : isDegraded ? 'degraded' : 'healthy',
    command: of('broker status', brokerFlags),
    counts: {
      problems: problems.length,
      clustersReached: members.filter(({ state }) => state === 'in contact').length,
      clusters: members.length,
      linksUp: sum(({ reported }) => reported?.lanes.up ?? 0),
      links: sum(({ reported }) => reported?.lanes.of ?? 0),
      services: published.t === 'known' ? published.value.servicesCount : 0,
    },
    broker: {
      ...{ accessDefault, topology: clipped(topology.topology.mode), topologyChanges: topology.number },
      drained: members.filter(({ drained }) => drained === true).length,
      waiting: facts.waiting.filter(({ state }) => state === 'waiting').length,
      commands: [of('access default'), of('topology show'), of('cluster waiting')],
    },
  }
}

function seenAt(
  problems: readonly ProblemRow[],
  members: readonly MemberFact[],
  published: Answer<PublishedFacts>,
): SeenStates {
  const states = members.map(({ id, state, drained }) => {
    return [clipped(id), drained === true && state === 'in contact' ? 'drained' : state] as const
  })
  // A service that is not in a shortened list may be there all the same.
  const isRead =
    published.t === 'known' &&
    published.why === undefined &&
    published.value.servicesCount <= published.value.services.length
  return {
    members: new Map(states),
    problems: new Map(problems.map(({ reason, subject, source }) => [`${reason}: ${subject}`, source])),
    ...(isRead
      ? {
          services: new Map(
            published.value.services.map(({ namespace, name }) => [clipped(`${namespace}/${name}`, MAX_MESSAGE), '']),
          ),
        }
      : {}),
  }
}
