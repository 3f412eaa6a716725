/** Whether the parts of an installation run, belong to a clusterset, and are of one release. */
import { MEMBERSHIP_NAME } from '../../model/model.ts'
import { reasonRow } from '../../model/reasons/reasons.ts'
import {
  CONTROL_PLANE_CAUSES,
  type Cause,
  type FactObjects,
  type Finding,
  IDENTITY_MISSING,
  LABEL_COMPONENT,
  MEMBER_PARTS,
  type MemberPart,
  OWN_MEMBERSHIP,
  PART_WORKLOADS,
  type Seen,
  type World,
  absentAt,
  durationText,
  joinRefusal,
  named,
  partVersions,
  refusalCauses,
  seenAt,
  seenSubject,
  unjoinedCauses,
  workloadName,
} from '../facts/facts.ts'

type Workload = Seen<FactObjects['Deployment']>
type Pod = Seen<FactObjects['Pod']>

/** Whether the pods of each part run, in a Kubernetes cluster. */
export function parts(world: World): readonly Finding[] {
  return MEMBER_PARTS.flatMap((part) => partFindings(world, part))
}

function partFindings(world: World, part: MemberPart): readonly Finding[] {
  const kind = PART_WORKLOADS[part]
  const workloads: readonly Workload[] | undefined = world.objects[kind]
  if (workloads === undefined) return []
  const workload = workloads.find(({ object }) => object.metadata.name === workloadName(part))
  if (workload === undefined) {
    const at = absentAt(world)
    const subject = { kind, namespace: 'sealane-system', name: workloadName(part) }
    return [{ reason: 'PartMissing', severity: 'degraded', subject, seen: `there is no ${kind} of the ${part}`, ...at }]
  }
  const { status, spec } = workload.object
  const wanted = (kind === 'Deployment' ? (spec?.replicas ?? 1) : status?.desiredNumberScheduled) ?? 0
  const ready = (kind === 'Deployment' ? status?.readyReplicas : status?.numberReady) ?? 0
  const waiting = podsOf(world, part).filter((pod) => !isReady(pod))
  // While a new release cannot start, pods of the old one stay.
  const pods = ready >= wanted ? waiting.filter(cannotStart) : waiting
  if (ready >= wanted && pods.length === 0) return []
  const beside = ready >= wanted ? ', and a new one cannot start' : ''
  const troubles = pods.map((pod) => `${pod.object.metadata.name}: ${troubleOf(pod)}`)
  const why = troubles.length === 0 ? workloadTrouble(workload) : named(troubles, 3)
  const subject = seenSubject(kind, workload)
  const finding: Finding = {
    reason: 'PartNotReady',
    // Without DNS no name is answered. What the kernel carries goes on without the other parts.
    severity: part === 'dns' && ready === 0 ? 'down' : 'degraded',
    subject,
    seen: `${ready} of ${wanted} pods of the ${part} are ready${beside}${why === '' ? '' : `: ${why}`}`,
    ...seenAt(workload),
    because: [
      ...nodesOf(pods),
      { reason: 'PolicyStopsPart', subject },
      ...refusalCauses(part),
      ...(runs(world, part) ? [...unjoinedCauses(world), { reason: 'KindMissing' as const }] : []),
    ],
  }
  return [finding]
}

function podsOf({ objects }: World, part: MemberPart): readonly Pod[] {
  return (objects.Pod ?? []).filter(({ object }) => object.metadata.labels?.[LABEL_COMPONENT] === part)
}

/** Some pod of the part has begun, ready or not. */
export function runs(world: World, part: MemberPart): boolean {
  return podsOf(world, part).some((pod) => pod.object.status?.phase === 'Running' && !cannotStart(pod))
}

function isReady({ object }: Pod): boolean {
  return object.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') === true
}

/** What Kubernetes says of a container that will not start by waiting. */
const STUCK = new Set([
  'ImagePullBackOff',
  'ErrImagePull',
  'InvalidImageName',
  'ErrImageNeverPull',
  'CrashLoopBackOff',
  'CreateContainerConfigError',
])

function cannotStart({ object: { status } }: Pod): boolean {
  return (status?.containerStatuses ?? []).some(({ state }) => STUCK.has(state?.waiting?.reason ?? ''))
}

/** In the words of who knows it best: the container's state, else the scheduler's. */
function troubleOf({ object: { status } }: Pod): string {
  for (const { state } of status?.containerStatuses ?? []) {
    const { reason, message } = state?.waiting ?? state?.terminated ?? {}
    if (reason !== undefined) return [reason, message].filter((part) => part !== undefined && part !== '').join(' ')
  }
  const unmet = status?.conditions?.find(({ type, status }) => type === 'PodScheduled' && status === 'False')
  return unmet?.message ?? status?.phase ?? 'nothing is known of it'
}

/** Where no pod could be made: a quota, or an admission policy. */
function workloadTrouble({ object }: Workload): string {
  const failed = object.status?.conditions?.find(({ type, status }) => type === 'ReplicaFailure' && status === 'True')
  return failed?.message ?? ''
}

function nodesOf(pods: readonly Pod[]): readonly Cause[] {
  const nodes = pods.flatMap(({ object }) => object.spec?.nodeName ?? [])
  return [...new Set(nodes)].sort().map((name) => ({ reason: 'NodeNotReady', subject: { kind: 'Node', name } }))
}

const AGENT = { kind: 'Deployment', namespace: 'sealane-system', name: 'sealane-agent' }
/** The agent joins; one that runs and is not ready waits for that. */
const WHO_JOINS: readonly Cause[] = [
  { reason: 'PartMissing', subject: AGENT },
  { reason: 'PartNotReady', subject: AGENT },
]

/** Whether this cluster belongs to a clusterset. */
export function membership(world: World): readonly Finding[] {
  const { objects, self, selfSubject } = world
  const { Membership: memberships, Cluster: clusters } = objects
  if (memberships === undefined) return []
  const subject = OWN_MEMBERSHIP
  const own = memberships.find(({ object }) => object.metadata.name === MEMBERSHIP_NAME)
  const refused = refusedJoin(world, own === undefined)
  if (own === undefined) {
    if (refused.length > 0) return refused
    const at = absentAt(world)
    const seen = 'there is no Membership: this cluster has not joined'
    const because = runs(world, 'agent') ? [IDENTITY_MISSING] : WHO_JOINS
    return [{ reason: 'NoMembership', severity: 'down', subject, seen, ...at, because }]
  }
  if (own.object.spec.phase === 'leaving') {
    const seen = `this cluster is leaving clusterset ${own.object.spec.clusterset}`
    return [{ reason: 'LeavingClusterset', severity: 'notice', subject, seen, ...seenAt(own) }]
  }
  if (clusters === undefined || clusters.some(({ object }) => object.spec.id === self)) return refused
  const seen = `Membership says ${self ?? '-'}, and there is no Cluster of that name`
  const because = [...CONTROL_PLANE_CAUSES, ...refusalCauses('agent')]
  const missing = { reason: 'OwnClusterMissing', severity: 'degraded', subject: selfSubject, seen } as const
  return [...refused, { ...missing, ...seenAt(own), because }]
}

/** By the code of the refusal: a token that was used is mended otherwise than an id that is taken. */
function refusedJoin(world: World, isFirst: boolean): readonly Finding[] {
  const refusal = joinRefusal(world)
  if (refusal === undefined) return []
  const { reason } = refusal
  const what = isFirst ? 'this cluster has not joined' : 'this cluster could not join anew'
  const seen = `${what}: the last try ended with ${reason}. ${reasonRow(reason).means}`
  // Lanes go on for a while where nobody acts.
  return [{ reason, severity: isFirst ? 'down' : 'degraded', subject: OWN_MEMBERSHIP, seen, ...seenAt(refusal) }]
}

/** Releases that are further apart than this are not tested together. */
const TESTED_APART = 1

/** Whether all parts are of one release, and whose clock is another one. */
export function versions(world: World): readonly Finding[] {
  return [...differentVersions(world), ...commandClock(world)]
}

/** Said because all ages that other programs print are wrong by it. */
function commandClock({ clockOffsetMs, takenAt, selfSubject }: World): readonly Finding[] {
  if (clockOffsetMs === 0) return []
  const how = clockOffsetMs > 0 ? 'behind' : 'ahead of'
  const seen = `the clock here is ${durationText(Math.abs(clockOffsetMs))} ${how} that of the cluster's parts`
  const origin = { source: 'this command', at: takenAt }
  return [{ reason: 'CommandClockDiffers', severity: 'notice', subject: selfSubject, seen, ...origin }]
}

function differentVersions(world: World): readonly Finding[] {
  // What this command itself is makes no cluster unwell.
  const all = partVersions(world).filter(({ part }) => part !== 'cli')
  const different = new Set(all.map(({ version }) => version))
  if (different.size < 2) return []
  const text = all.map(({ part, version, count }) => `${part} ${version}${count > 1 ? ` (${count})` : ''}`)
  const minors = [...different].flatMap((version) => minorOf(version) ?? [])
  const isFar = Math.max(...minors) - Math.min(...minors) > TESTED_APART
  return [
    {
      reason: 'VersionSkew',
      severity: isFar ? 'degraded' : 'notice',
      subject: world.selfSubject,
      seen: text.join(', '),
      source: 'the parts themselves',
      at: world.takenAt,
    },
  ]
}

/** Of `1.4.2` 1004: releases of two numbers in one. */
function minorOf(version: string): number | undefined {
  const found = /^v?(\d{1,4})\.(\d{1,3})\b/.exec(version)
  return found === null ? undefined : Number(found[1]) * 1000 + Number(found[2])
}

/** Whether the CustomResourceDefinitions are as new as the command, and what other products they show. */
export function definitions(world: World): readonly Finding[] {
  return [...outdated(world), ...products(world)]
}

/** One finding: they are brought up to date together. */
function outdated(world: World): readonly Finding[] {
  const { probes, selfSubject } = world
  const { definition = [] } = probes
  const older = definition.filter(({ object }) => object.isOlder)
  const [first] = older
  if (first === undefined) return []
  const texts = older.map(
    ({ object: { name, found, expected } }) => `${name} is ${found}, and this command has ${expected}`,
  )
  const seen = named(texts, 3)
  // That this command is newer than the whole cluster makes no cluster unwell.
  const severity = isUsed(world) ? 'degraded' : 'notice'
  return [{ reason: 'DefinitionOutdated', severity, subject: selfSubject, seen, ...seenAt(first) }]
}

/** Some part of the cluster is of the release of this command. */
function isUsed(world: World): boolean {
  const all = partVersions(world)
  const own = new Set(all.flatMap(({ part, version }) => (part === 'cli' ? [version] : [])))
  return all.some(({ part, version }) => part !== 'cli' && own.has(version))
}

function products({ probes: { 'other-product': all = [] } }: World): readonly Finding[] {
  return all.map((one) => ({
    reason: 'OtherProduct',
    severity: 'degraded',
    subject: { kind: 'Product', name: one.object.name },
    seen: `its CustomResourceDefinition ${one.object.crd} is in this cluster`,
    ...seenAt(one),
  }))
}
