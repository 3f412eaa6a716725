/**
 * From facts to what is wrong with a member, ordered by cause. Whoever says something about health calls this, so that
 * all say the same by the same codes. Pure.
 */
import { broker } from './checks/broker.ts'
import { clusterDns } from './checks/cluster-dns.ts'
import { contact } from './checks/contact.ts'
import { exports_ } from './checks/exports.ts'
import { gateways } from './checks/gateways.ts'
import { imports } from './checks/imports.ts'
import { linkQuality } from './checks/link-quality.ts'
import { links } from './checks/links.ts'
import { membership } from './checks/membership.ts'
import { nodes } from './checks/nodes.ts'
import { parts } from './checks/parts.ts'
import { callersKeptOut } from './checks/policies/callers-kept-out.ts'
import { callsKeptIn } from './checks/policies/calls-kept-in.ts'
import { partsClosed } from './checks/policies/parts-closed.ts'
import { brokerCalls } from './checks/probes/broker-calls.ts'
import { definitions } from './checks/probes/definitions.ts'
import { dnsServers } from './checks/probes/dns-servers.ts'
import { firewalls } from './checks/probes/firewalls.ts'
import { hosts } from './checks/probes/hosts.ts'
import { routeAgents } from './checks/route-agents.ts'
import { refusals } from './checks/access/refusals.ts'
import { unanswered } from './checks/access/unanswered.ts'
import { versions } from './checks/versions.ts'
import { readFacts } from './facts/read-facts.ts'
import { type Area, type Finding, type RankedFinding, type Severity, worst } from './finding.ts'
import { type Overview, overviewOf } from './overview/overview.ts'
import { rankFindings } from './rank-findings.ts'
import { whileStarting } from './while-starting.ts'
import { type Check, type World, worldOf } from './world.ts'

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
