/**
 * Turns facts into the problems of a member, ordered by cause. Every command that reports health calls this, so that
 * all use the same codes. Pure.
 */
import { LABEL_GATEWAY } from '../model/lanes/lanes.ts'
import { CONDITION_READY, findCondition } from '../model/model.ts'
import type { ReasonCode } from '../model/reasons/reasons.ts'
import {
  backends,
  broker,
  brokerCalls,
  callersKeptOut,
  callsKeptIn,
  clusterDns,
  contact,
  definitions,
  dnsServers,
  drained,
  exports_,
  firewalls,
  gateways,
  hosts,
  imports,
  linkQuality,
  links,
  membership,
  nodes,
  parts,
  partsClosed,
  podAddresses,
  refusals,
  resolvers,
  routeAgents,
  trafficPolicies,
  unanswered,
  versions,
} from './checks/checks.ts'
import {
  type Area,
  type Check,
  type Finding,
  type RankedFinding,
  type Severity,
  type World,
  durationText,
  rankFindings,
  readFacts,
  worldOf,
  worst,
} from './facts/facts.ts'
import { type Overview, overviewOf } from './overview.ts'

// Handles a cluster whose parts have all just started. It has no gateway, route or link for some seconds, which is not
// a fault and is reported as one notice. Pure.

/** Links come up within 10 s on an idle machine. On a busy one, six sites that started together took 80 s. */
const START_MS = 120_000

/**
 * A DNS server listens once its zone is there, and routes follow the objects that were read. Neither waits for links,
 * so both have less time.
 */
const SERVES_MS = 30_000
const NOT_SERVED_YET: ReadonlySet<ReasonCode> = new Set<ReasonCode>(['DnsServerSilent', 'KernelRoutesMissing'])

/** Reasons that a part that has just started explains. */
const NOT_YET: ReadonlySet<ReasonCode> = new Set<ReasonCode>(['NoGateway', 'RouteAgentMissing', 'NodesCutOff'])
/** The same for links, unless a link is down. */
const NO_LINK_YET: ReadonlySet<ReasonCode> = new Set<ReasonCode>([
  'NoLane',
  'AllClustersCutOff',
  'ClusterCutOff',
  'GatewayCutOff',
  'FarGatewayUnreached',
  'LaneConnecting',
  'UdpOneWay',
])

/**
 * Adds the start as the last cause of the findings that it can explain. rankFindings() turns them into notices, and
 * drops a start that explains no finding.
 */
function whileStarting(world: World, findings: readonly Finding[]): readonly Finding[] {
  const started = lastStart(world)
  if (started === undefined) return findings
  const isLost = world.links.some(({ connection }) => connection.state === 'down')
  const isNotYet = ({ reason }: Finding): boolean =>
    NOT_YET.has(reason) ||
    (!isLost && NO_LINK_YET.has(reason)) ||
    (NOT_SERVED_YET.has(reason) && started.agoMs < SERVES_MS)
  const starting: Finding = {
    reason: 'Starting',
    severity: 'notice',
    subject: world.selfSubject,
    seen: `all parts that report have started less than ${durationText(START_MS)} ago, the last one ${durationText(started.agoMs)} ago`,
    source: started.source,
    at: started.at,
    since: started.startedAt,
    area: 'parts',
  }
  const late = (finding: Finding): Finding => ({
    ...finding,
    because: [...(finding.because ?? []), { reason: 'Starting' }],
  })
  return [starting, ...findings.map((one) => (isNotYet(one) ? late(one) : one))]
}

interface Start {
  readonly startedAt: string
  readonly agoMs: number
  readonly source: string
  readonly at: string
}

/** The start of the part that started last. Undefined if a part has run for longer, or if no part reports its start. */
function lastStart({ reports, nowMs, fresh }: World): Start | undefined {
  // An agent that starts beside running gateways explains nothing about them.
  const isOld = fresh.some(({ object: { status } }) => {
    const ready = findCondition(status?.conditions, CONDITION_READY)
    return nowMs - Date.parse(ready?.lastTransitionTime ?? '') >= START_MS
  })
  if (isOld) return undefined
  const all = reports.flatMap(({ object: { part, startedAt = '' }, source, at }) =>
    // The running command has always just started.
    part === 'cli' ? [] : [{ startedAt, agoMs: nowMs - Date.parse(startedAt), source, at }],
  )
  if (all.length === 0 || all.some(({ agoMs }) => !(Math.abs(agoMs) < START_MS))) return undefined
  return all.reduce((a, b) => (b.agoMs < a.agoMs ? b : a))
}

// Handles a site that has joined and on which nothing has been started yet: that is the cause of all that is missing.

/** Findings of these areas do not follow from parts that never ran, except that their status page does not answer. */
const NOT_BY_PARTS: ReadonlySet<Area | undefined> = new Set<Area>(['access', 'membership', 'host'])

/** Adds the missing start as the last cause of what follows from it. */
function whileNotStarted(world: World, findings: readonly Finding[]): readonly Finding[] {
  const cause = siteNotStarted(world)
  if (cause === undefined) return findings
  const follows = ({ area, reason }: Finding): boolean => reason === 'NothingRuns' || !NOT_BY_PARTS.has(area)
  const late = (finding: Finding): Finding => ({
    ...finding,
    because: [...(finding.because ?? []), { reason: cause.reason }],
  })
  return [cause, ...findings.map((one) => (follows(one) ? late(one) : one))]
}

/** Undefined once any part has written an object or answers, because the other checks name what is missing then. */
function siteNotStarted({ atSite, objects, reports, self, agentLease, selfSubject }: World): Finding | undefined {
  const { Gateway: gateways, RouteAgent: routeAgents, Node: nodes = [], Membership: memberships = [] } = objects
  const { Cluster: clusters = [], ServiceImport: imports = [] } = objects
  const ran =
    agentLease !== undefined ||
    reports.some(({ object: { part } }) => part !== 'cli') ||
    imports.length > 0 ||
    clusters.some(({ object: { spec, status } }) => spec.id !== self || (status?.conditions ?? []).length > 0)
  if (!atSite || self === undefined || ran || gateways?.length !== 0 || routeAgents?.length !== 0) return undefined
  const [own] = memberships
  if (own === undefined || own.object.spec.phase === 'leaving') return undefined
  const names = nodes.map(({ object: { metadata } }) => metadata)
  const first = names.find(({ labels }) => labels?.[LABEL_GATEWAY] !== undefined)?.name ?? 'a gateway node'
  const seen = `no part of this site has run since it joined: start \`sealane up\` on ${first}, then on the other nodes`
  return {
    reason: 'SiteNotStarted',
    severity: 'down',
    subject: selfSubject,
    seen,
    source: own.source,
    at: own.at,
    area: 'parts',
  }
}

/** All checks by area. */
export const CHECKS: Readonly<Record<Area, readonly Check[]>> = {
  access: [unanswered, refusals],
  membership: [membership],
  parts: [parts, partsClosed, nodes, versions, definitions],
  broker: [broker, contact, brokerCalls],
  lanes: [gateways, links, linkQuality, routeAgents],
  dns: [clusterDns, dnsServers, resolvers],
  services: [podAddresses, backends, exports_, imports, callersKeptOut, callsKeptIn, drained, trafficPolicies],
  host: [hosts, firewalls],
}

export type Health = 'healthy' | Exclude<Severity, 'notice'>

export interface Diagnosis {
  readonly health: Health
  readonly overview: Overview
  /** The worst problem comes first. */
  readonly problems: readonly RankedFinding[]
}

/**
 * Takes a FactSet, or the parsed content of a file: unusable content becomes a finding. With `only`, problems that do
 * not concern this area are left out. Never throws.
 */
export function diagnoseMember(facts: unknown, only?: Area): Diagnosis {
  return diagnoseWorld(worldOf(readFacts(facts)), only)
}

/** The same for facts that were read already. */
export function diagnoseWorld(world: World, only?: Area): Diagnosis {
  const findings = memberFindings(world)
  const problems = rankFindings(whileStarting(world, whileNotStarted(world, findings)), world.atSite).filter(
    ({ areas: parts }) => only === undefined || parts.includes(only),
  )
  const severity = worst(problems.map((problem) => problem.severity)) ?? 'notice'
  return { health: severity === 'notice' ? 'healthy' : severity, overview: overviewOf(world), problems }
}

/** What all checks find, before causes are known. Never throws. */
export function memberFindings(world: World): readonly Finding[] {
  const areas = Object.entries(CHECKS) as [Area, readonly Check[]][]
  return areas.flatMap(([area, checks]) =>
    checks.flatMap((check) => findingsOf(check, world).map((finding) => ({ ...finding, area }))),
  )
}

/** Runs one check. A bug in it must not hide the findings of the others. */
function findingsOf(check: Check, world: World): readonly Finding[] {
  try {
    return check(world)
  } catch (error) {
    return [
      {
        reason: 'InternalError',
        severity: 'degraded',
        subject: { kind: 'Check', name: check.name },
        seen: String(error),
        source: 'this command',
        at: world.takenAt,
      },
    ]
  }
}
