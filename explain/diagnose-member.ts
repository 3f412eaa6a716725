/**
 * From facts to what is wrong with a member, ordered by cause. Whoever says something about health calls this, so that
 * all say the same by the same codes. Pure.
 */
import { CONDITION_READY, findCondition } from '../model/model.ts'
import type { ReasonCode } from '../model/reasons/reasons.ts'
import {
  broker,
  brokerCalls,
  callersKeptOut,
  callsKeptIn,
  clusterDns,
  contact,
  definitions,
  dnsServers,
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
  refusals,
  routeAgents,
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

// A cluster whose parts have all just started has no gateway, no route and no link for some seconds: that is no fault,
// and is counted under one notice. Pure.

/** Links come up within 10 s on an idle machine; on a busy one six sites that start at once took 80. */
const START_MS = 120_000

/** A server of DNS listens when its zone is there, and routes follow what was read. What needs no link is there sooner. */
const SERVES_MS = 30_000
const NOT_SERVED_YET: ReadonlySet<ReasonCode> = new Set<ReasonCode>(['DnsServerSilent', 'KernelRoutesMissing'])

/** What a part that has just started has not done yet. */
const NOT_YET: ReadonlySet<ReasonCode> = new Set<ReasonCode>(['NoGateway', 'RouteAgentMissing', 'NodesCutOff'])
/** The same of links, where none has been up and is lost. */
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
 * The same findings, and the start as their last cause: what follows from nothing else that is found follows from it.
 * rankFindings() makes that notices, and leaves a start out that nothing follows from.
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

/** Of the part that started last; undefined where one runs for longer, or none says when it started. */
function lastStart({ reports, nowMs, fresh }: World): Start | undefined {
  // An agent that starts beside gateways that run tells of itself alone.
  const isOld = fresh.some(({ object: { status } }) => {
    const ready = findCondition(status?.conditions, CONDITION_READY)
    return nowMs - Date.parse(ready?.lastTransitionTime ?? '') >= START_MS
  })
  if (isOld) return undefined
  const all = reports.flatMap(({ object: { part, startedAt = '' }, source, at }) =>
    // The command that asks has always just started.
    part === 'cli' ? [] : [{ startedAt, agoMs: nowMs - Date.parse(startedAt), source, at }],
  )
  if (all.length === 0 || all.some(({ agoMs }) => !(Math.abs(agoMs) < START_MS))) return undefined
  return all.reduce((a, b) => (b.agoMs < a.agoMs ? b : a))
}

/** Every check, by what it is about. */
export const CHECKS: Readonly<Record<Area, readonly Check[]>> = {
  access: [unanswered, refusals],
  membership: [membership],
  parts: [parts, partsClosed, nodes, versions, definitions],
  broker: [broker, contact, brokerCalls],
  lanes: [gateways, links, linkQuality, routeAgents],
  dns: [clusterDns, dnsServers],
  services: [exports_, imports, callersKeptOut, callsKeptIn],
  host: [hosts, firewalls],
}

export type Health = 'healthy' | Exclude<Severity, 'notice'>

export interface Diagnosis {
  readonly health: Health
  readonly overview: Overview
  /** The worst first. */
  readonly problems: readonly RankedFinding[]
}

/**
 * Takes a FactSet, or whatever a file has: what cannot be used becomes a finding. Of an area, only problems that it has a
 * part in count. Never throws.
 */
export function diagnoseMember(facts: unknown, only?: Area): Diagnosis {
  const world = worldOf(readFacts(facts))
  const areas = Object.entries(CHECKS) as [Area, readonly Check[]][]
  const findings = areas.flatMap(([area, checks]) =>
    checks.flatMap((check) => findingsOf(check, world).map((finding) => ({ ...finding, area }))),
  )
  const problems = rankFindings(whileStarting(world, findings)).filter(
    ({ areas: parts }) => only === undefined || parts.includes(only),
  )
  const severity = worst(problems.map((problem) => problem.severity)) ?? 'notice'
  return { health: severity === 'notice' ? 'healthy' : severity, overview: overviewOf(world), problems }
}

/** A fault in one check must not hide what the others find. */
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
