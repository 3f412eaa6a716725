/** The input of checks: the facts, and values derived from them that several checks need. Pure. */
import { HEARTBEAT_OLD_MS, heartbeatAgeMs, isTakenAsSilent } from '../../model/lanes/lanes.ts'
import { type ConnectionStatus, MEMBERSHIP_NAME, notLinkedMembers } from '../../model/model.ts'
import { type ReasonCode, knownReason } from '../../model/reasons/reasons.ts'
import { endpointVia } from '../../model/schemas/schemas.ts'
import type { FactObjects } from './fact.ts'
import type { Cause, Finding, Subject } from './finding.ts'
import type { KnownFacts, Seen } from './read-facts.ts'
import type { BrokerReport, FactKind, PartReport } from './shapes.ts'

/** Names of installed objects (defined in install/values/names.ts). */

export const AGENT_LEASE = 'sealane-agent'
/** The Secret with the cluster's identity. */
export const IDENTITY_SECRET = { kind: 'Secret', namespace: 'sealane-system', name: 'sealane-identity' } as const
/** The label of pods and workloads that names their part. */
export const LABEL_COMPONENT = 'app.kubernetes.io/component'

/** The parts of a member, and the kind of workload that runs each in a Kubernetes cluster. */
export const PART_WORKLOADS = {
  agent: 'Deployment',
  dns: 'Deployment',
  gateway: 'DaemonSet',
  routeagent: 'DaemonSet',
} as const
export type MemberPart = keyof typeof PART_WORKLOADS
export const MEMBER_PARTS = Object.keys(PART_WORKLOADS) as readonly MemberPart[]

/** The subject of a finding about a whole part. */
export function workloadSubject(part: MemberPart): { kind: string; namespace: string; name: string } {
  return { kind: PART_WORKLOADS[part], namespace: 'sealane-system', name: workloadName(part) }
}

export function workloadName(part: MemberPart): string {
  return `sealane-${part}`
}

/** The port of the DNS pods. Their Service has port 53. */
export const DNS_POD_PORT = 5353

/** Gives the problems that it finds. Empty if there is none, or if no fact tells. */
export type Check = (world: World) => readonly Finding[]

/** One link of a gateway that reports. */
export interface Link {
  /** The node of this end. */
  readonly node: string
  readonly connection: ConnectionStatus
  readonly gateway: Seen<FactObjects['Gateway']>
}

export interface World extends KnownFacts {
  /** The facts are of a site without Kubernetes: it has no Deployments, and no collector asks for them. */
  readonly atSite: boolean
  /** How far the cluster's clocks are ahead of the clock of the collection. 0 if no difference is known. */
  readonly clockOffsetMs: number
  /** Whether any part has reported its time. Otherwise ages are by the clock of the collection, which may be wrong. */
  readonly isClockKnown: boolean
  /** The id of this cluster. Undefined before it has joined. */
  readonly self: string | undefined
  /** The subject of findings about the whole cluster: its own Cluster object. */
  readonly selfSubject: Subject
  /** Ids of the other members. Undefined if they could not be read. */
  readonly others: readonly string[] | undefined
  /** Members that the topology does not link with this one: that there is nothing of them here is no fault. */
  readonly notLinked: ReadonlySet<string>
  /** Members whose relays alone may carry the link with a member, by the topology. */
  readonly via: ReadonlyMap<string, readonly string[]>
  /** Gateways that report. */
  readonly fresh: readonly Seen<FactObjects['Gateway']>[]
  readonly silent: readonly Seen<FactObjects['Gateway']>[]
  /** All links of reporting gateways to other members. */
  readonly links: readonly Link[]
  /** Other members with a link that is up. Undefined if no gateway reports. */
  readonly reached: ReadonlySet<string> | undefined
  readonly agentLease: Seen<FactObjects['Lease']> | undefined
  /** The acting agent's report about the broker. The latest if several agents report. */
  readonly broker: Seen<BrokerReport> | undefined
}

/** Derives the world from the facts. Ages are relative to the clocks of the cluster, if any part reports its time. */
export function worldOf(known: KnownFacts): World {
  const offsets = offsetsOf(known)
  const clockOffsetMs = offsetOf(offsets)
  const facts = { ...known, nowMs: known.nowMs + clockOffsetMs }
  const { objects, nowMs } = facts
  const membership = objects.Membership?.find(({ object }) => object.metadata.name === MEMBERSHIP_NAME)
  const self = membership?.object.spec.clusterId
  const others = objects.Cluster?.map(({ object }) => object.spec.id).filter((id) => id !== self)
  const gateways = objects.Gateway ?? []
  const isSilent = ({ object }: Seen<FactObjects['Gateway']>): boolean =>
    isTakenAsSilent(object) || (heartbeatAgeMs(object, nowMs) ?? 0) >= HEARTBEAT_OLD_MS
  // A gateway that has not reported yet counts as neither fresh nor silent.
  const fresh = gateways.filter((gateway) => gateway.object.status !== undefined && !isSilent(gateway))
  const isOther = new Set(others ?? [])
  const links = fresh.flatMap((gateway) =>
    (gateway.object.status?.connections ?? [])
      .filter(({ cluster }) => others === undefined || isOther.has(cluster))
      .map((connection): Link => ({ node: gateway.object.metadata.name, connection, gateway })),
  )
  const up = links.filter(({ connection }) => connection.state === 'up')
  return {
    ...facts,
    atSite: objects.Deployment === undefined && !facts.unanswered.some(({ what }) => what === 'Deployment'),
    clockOffsetMs,
    isClockKnown: offsets.length > 0,
    self,
    selfSubject: { kind: 'Cluster', name: self ?? '-' },
    others,
    notLinked: new Set(
      objects.Cluster?.flatMap(({ object }) => (object.spec.id === self ? notLinkedMembers(object) : [])),
    ),
    via: viaOf(objects.Endpoint ?? []),
    fresh,
    silent: gateways.filter(isSilent),
    links,
    reached: fresh.length === 0 ? undefined : new Set(up.map(({ connection }) => connection.cluster)),
    agentLease: objects.Lease?.find(({ object }) => object.metadata.name === AGENT_LEASE),
    broker: brokerOf(facts),
  }
}

/** Smaller differences may come from the transmission of the answer. */
const CLOCKS_DIFFER_MS = 3000

function offsetsOf({ reports }: KnownFacts): readonly number[] {
  return reports.flatMap(({ object: { now }, at }) => {
    const ms = Date.parse(now ?? '') - Date.parse(at)
    return Number.isNaN(ms) ? [] : [ms]
  })
}

/** The median of the reported differences, since one machine may have a wrong clock. */
function offsetOf(offsets: readonly number[]): number {
  const median = [...offsets].sort((a, b) => a - b)[Math.floor((offsets.length - 1) / 2)] ?? 0
  return Math.abs(median) < CLOCKS_DIFFER_MS ? 0 : median
}

/** `site` is one process with several parts, including the agent. */
const SPEAKS_OF_BROKER: readonly string[] = ['agent', 'site']

/** Only one agent acts. An earlier report comes from an agent that has just handed over. */
function brokerOf({ reports }: KnownFacts): Seen<BrokerReport> | undefined {
  const said = reports.flatMap(({ object: { broker, ...report }, source, at }) =>
    broker === undefined || !SPEAKS_OF_BROKER.includes(report.part)
      ? []
      : [{ object: broker, source: source === '' ? report.name : source, at }],
  )
  return said.sort(
    (a, b) => Date.parse(b.object.since) - Date.parse(a.object.since) || (a.source < b.source ? -1 : 1),
  )[0]
}

export function subjectOf({ kind, metadata: { name, namespace } }: Named): Subject {
  return { kind, name, ...(namespace === undefined ? {} : { namespace }) }
}

interface Named {
  readonly kind: string
  readonly metadata: { readonly name: string; readonly namespace?: string | undefined }
}

/** The subject of a fact, whose object may lack its kind. */
export function seenSubject(kind: FactKind, { object }: Seen<Omit<Named, 'kind'>>): Subject {
  return subjectOf({ kind, metadata: object.metadata })
}

/** Source and time of an observation, and since when the state lasts. */
export function seenAt({ source, at }: Seen<unknown>, since?: string | null): Pick<Finding, 'source' | 'at' | 'since'> {
  return { source, at, ...(since === undefined || since === null || since === '' ? {} : { since }) }
}

/** Source and time for something that is missing: the list of all objects shows it. */
export function absentAt({ takenAt }: World): Pick<Finding, 'source' | 'at'> {
  return { source: 'the objects of this cluster', at: takenAt }
}

/** Reasons of refusals by the API server that concern a single part. */
export const REFUSED_PART = ['PartForbidden', 'AdmissionRefuses', 'ObjectNotWritten'] as const
/** Without its identity, a starting agent has no certificate, and a running one cannot store a renewed certificate. */
export const IDENTITY_MISSING: Cause = { reason: 'IdentityMissing', subject: IDENTITY_SECRET }
export const API_SERVER = { kind: 'ApiServer', name: '-' } as const

/** On a site, all parts are one process. */
export const NOTHING_RUNS: Cause = { reason: 'NothingRuns' }

/** Refusals by the API server that can explain why these parts do not work. */
export function refusalCauses(...parts: readonly MemberPart[]): readonly Cause[] {
  const ofParts = parts.flatMap((part) => REFUSED_PART.map((reason) => ({ reason, subject: workloadSubject(part) })))
  const identity: readonly Cause[] = parts.includes('agent') ? [IDENTITY_MISSING] : []
  return [{ reason: 'ApiServerReadOnly', subject: API_SERVER }, ...identity, ...ofParts]
}

export const OWN_MEMBERSHIP = { kind: 'Membership', name: MEMBERSHIP_NAME } as const

export interface JoinRefusal extends Seen<PartReport> {
  readonly reason: ReasonCode
}

/**
 * The reason of the broker's last refusal of a join, if it still counts. It does not while another agent acts as a
 * member with a valid certificate: then a standby agent reports an old refusal.
 */
export function joinRefusal({ reports, self, broker, nowMs }: World): JoinRefusal | undefined {
  const isMember = self !== undefined && broker !== undefined
  const hasEnded = Date.parse(broker?.object.certificateEnds ?? '') <= nowMs
  if (isMember && !hasEnded) return undefined
  for (const report of reports) {
    const reason = report.object.part === 'agent' ? knownReason(report.object.joinRefused) : undefined
    if (reason !== undefined) return { ...report, reason }
  }
  return undefined
}

/** Why this cluster is not a member, which explains what its parts do not do. */
export function unjoinedCauses(world: World): readonly Cause[] {
  const reason = joinRefusal(world)?.reason ?? (world.self === undefined ? 'NoMembership' : undefined)
  return reason === undefined ? [] : [{ reason, subject: OWN_MEMBERSHIP }]
}

/** Why the control plane of this cluster may have stopped. */
export const CONTROL_PLANE_CAUSES: readonly Cause[] = [
  { reason: 'NoMembership' },
  { reason: 'AgentSilent' },
  { reason: 'BrokerUnreached' },
  { reason: 'MemberEvicted' },
]

/** Status pages of this machine that do not answer, which explain what their process does not do. */
export function hangingHere({ unanswered }: World): readonly Cause[] {
  return unanswered.flatMap(({ what, reason }): readonly Cause[] => {
    const [, page] = /^Page (.+)$/.exec(what) ?? []
    return page === undefined ? [] : [{ reason, subject: { kind: 'Page', name: page } }]
  })
}

/** For example, `gw1, gw2 and 3 more`. */
export function named(names: Iterable<string>, most = 5): string {
  const sorted = [...new Set(names)].sort()
  const rest = sorted.length - most
  return rest > 0 ? `${sorted.slice(0, most).join(', ')} and ${rest} more` : sorted.join(', ')
}

/** For example, `4m12s`. */
export function durationText(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000))
  const [minutes, hours] = [Math.floor(seconds / 60), Math.floor(seconds / 3600)]
  if (hours >= 48) return `${Math.floor(hours / 24)}d`
  if (hours > 0) return `${hours}h${minutes % 60}m`
  return minutes > 0 ? `${minutes}m${seconds % 60}s` : `${seconds}s`
}

// Lists the versions of the parts, as far as they report them. Pure.

export interface PartVersion {
  readonly part: string
  readonly version: string
  /** The number of instances of the part with this version. */
  readonly count: number
}

/** These parts report their version in an object of their own. */
const IN_OBJECTS = new Set(['gateway', 'routeagent'])

/** Sorted by part, then by version. */
export function partVersions({ objects, reports }: World): readonly PartVersion[] {
  const said = [
    ...(objects.Gateway ?? []).map(({ object }) => ['gateway', object.status?.version] as const),
    ...(objects.RouteAgent ?? []).map(({ object }) => ['routeagent', object.status?.version] as const),
    ...reports.flatMap(({ object: { part, version } }) => (IN_OBJECTS.has(part) ? [] : [[part, version] as const])),
  ]
  const counts = new Map<string, PartVersion>()
  for (const [part, version] of said) {
    if (version === undefined) continue
    const key = `${part} ${version}`
    counts.set(key, { part, version, count: (counts.get(key)?.count ?? 0) + 1 })
  }
  return [...counts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, row]) => row)
}

function viaOf(endpoints: readonly Seen<FactObjects['Endpoint']>[]): World['via'] {
  return new Map(
    endpoints.flatMap(({ object }) => {
      const via = endpointVia(object)
      return typeof via === 'object' ? [[object.spec.cluster, via] as const] : []
    }),
  )
}
