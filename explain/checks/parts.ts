/** Checks whether the parts of an installation run, belong to a clusterset, and have the same release. */
import { exposureOf } from '../../model/access/access.ts'
import { MEMBERSHIP_NAME, recordedMaxUnavailable } from '../../model/model.ts'
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

/** Checks whether the pods of each part run, in a Kubernetes cluster. */
export function parts(world: World): readonly Finding[] {
  return [...MEMBER_PARTS.flatMap((part) => partFindings(world, part)), ...raisedLimits(world)]
}

/** Whether a join still runs cannot be seen. It records the value from before, and removes the record when it ends. */
function raisedLimits({ objects }: World): readonly Finding[] {
  return (objects.DaemonSet ?? []).flatMap((one): readonly Finding[] => {
    const before = recordedMaxUnavailable(one.object.metadata.annotations)
    if (before === undefined) return []
    const seen = `maxUnavailable is raised, and was ${before}: each roll-out may take down more pods at a time`
    const subject = seenSubject('DaemonSet', one)
    return [{ reason: 'MaxUnavailableRaised', severity: 'notice', subject, seen, ...seenAt(one) }]
  })
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
  // While pods of a new release cannot start, those of the old one stay.
  const pods = ready >= wanted ? waiting.filter(cannotStart) : waiting
  if (ready >= wanted && pods.length === 0) return []
  const beside = ready >= wanted ? ', and a new one cannot start' : ''
  const troubles = pods.map((pod) => `${pod.object.metadata.name}: ${troubleOf(pod)}`)
  const why = troubles.length === 0 ? workloadTrouble(workload) : named(troubles, 3)
  const subject = seenSubject(kind, workload)
  const finding: Finding = {
    reason: 'PartNotReady',
    // Without the DNS part, no name is answered. Without another part, the kernel keeps carrying traffic.
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

/** Whether any pod of the part runs, ready or not. */
export function runs(world: World, part: MemberPart): boolean {
  return podsOf(world, part).some((pod) => pod.object.status?.phase === 'Running' && !cannotStart(pod))
}

function isReady({ object }: Pod): boolean {
  return object.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') === true
}

/** Reasons of containers that do not start by waiting. */
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

/** The cause by the most specific source: the container's state, else the scheduler's condition. */
function troubleOf({ object: { status } }: Pod): string {
  for (const { state } of status?.containerStatuses ?? []) {
    const { reason, message } = state?.waiting ?? state?.terminated ?? {}
    if (reason !== undefined) return [reason, message].filter((part) => part !== undefined && part !== '').join(' ')
  }
  const unmet = status?.conditions?.find(({ type, status }) => type === 'PodScheduled' && status === 'False')
  return unmet?.message ?? status?.phase ?? 'no report of it exists'
}

/** The cause why no pod could be created, such as a quota or an admission policy. */
function workloadTrouble({ object }: Workload): string {
  const failed = object.status?.conditions?.find(({ type, status }) => type === 'ReplicaFailure' && status === 'True')
  return failed?.message ?? ''
}

function nodesOf(pods: readonly Pod[]): readonly Cause[] {
  const nodes = pods.flatMap(({ object }) => object.spec?.nodeName ?? [])
  return [...new Set(nodes)].sort().map((name) => ({ reason: 'NodeNotReady', subject: { kind: 'Node', name } }))
}

const AGENT = { kind: 'Deployment', namespace: 'sealane-system', name: 'sealane-agent' }
/** The agent does the join. An agent that runs but is not ready waits for it. */
const WHO_JOINS: readonly Cause[] = [
  { reason: 'PartMissing', subject: AGENT },
  { reason: 'PartNotReady', subject: AGENT },
]

/** Checks whether this cluster belongs to a clusterset. */
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
    const seen = world.atSite ? 'this site has not joined' : 'this cluster has no Membership: it has not joined'
    const because = world.atSite ? [] : runs(world, 'agent') ? [IDENTITY_MISSING] : WHO_JOINS
    return [{ reason: 'NoMembership', severity: 'down', subject, seen, ...at, because }]
  }
  if (own.object.spec.phase === 'leaving') {
    const seen = `this cluster is leaving clusterset ${own.object.spec.clusterset}`
    return [{ reason: 'LeavingClusterset', severity: 'notice', subject, seen, ...seenAt(own) }]
  }
  const all = [...refused, ...exposure(own)]
  if (clusters === undefined || clusters.some(({ object }) => object.spec.id === self)) return all
  const seen = `the Membership has cluster id ${self ?? '-'}, but no Cluster with that name exists`
  const because = [...CONTROL_PLANE_CAUSES, ...refusalCauses('agent')]
  const missing = { reason: 'OwnClusterMissing', severity: 'degraded', subject: selfSubject, seen } as const
  return [...all, { ...missing, ...seenAt(own), because }]
}

function exposure(own: Seen<FactObjects['Membership']>): readonly Finding[] {
  if (exposureOf(own.object) !== 'pods') return []
  const seen = 'all members may call all pods of this cluster'
  return [{ reason: 'AllPodsExposed', severity: 'notice', subject: OWN_MEMBERSHIP, seen, ...seenAt(own) }]
}

/** Uses the reason of the refusal: a used token needs another remedy than a taken id. */
function refusedJoin(world: World, isFirst: boolean): readonly Finding[] {
  const refusal = joinRefusal(world)
  if (refusal === undefined) return []
  const { reason } = refusal
  const what = isFirst ? 'this cluster has not joined' : 'this cluster could not join again'
  const seen = `${what}: the last attempt failed with ${reason}. ${reasonRow(reason).means}`
  // Lanes keep working for a while without a new join.
  return [{ reason, severity: isFirst ? 'down' : 'degraded', subject: OWN_MEMBERSHIP, seen, ...seenAt(refusal) }]
}

/** The largest distance of releases that are tested together. */
const TESTED_APART = 1

/** Checks whether all parts have the same release, and whether the command's clock agrees with theirs. */
export function versions(world: World): readonly Finding[] {
  return [...differentVersions(world), ...commandClock(world)]
}

/** Reports the command's clock, since it makes all ages wrong that other programs print. */
function commandClock({ clockOffsetMs, takenAt, selfSubject }: World): readonly Finding[] {
  if (clockOffsetMs === 0) return []
  const how = clockOffsetMs > 0 ? 'behind' : 'ahead of'
  const seen = `the clock here is ${durationText(Math.abs(clockOffsetMs))} ${how} that of the cluster's parts`
  const origin = { source: 'this command', at: takenAt }
  return [{ reason: 'CommandClockDiffers', severity: 'notice', subject: selfSubject, seen, ...origin }]
}

function differentVersions(world: World): readonly Finding[] {
  // The version of this command does not make a cluster unhealthy.
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

/** Major and minor number of a release as one number: `1.4.2` is 1004. */
function minorOf(version: string): number | undefined {
  const found = /^v?(\d{1,4})\.(\d{1,3})\b/.exec(version)
  return found === null ? undefined : Number(found[1]) * 1000 + Number(found[2])
}

/** Checks whether the CustomResourceDefinitions are as new as the command, and which other products they reveal. */
export function definitions(world: World): readonly Finding[] {
  return [...outdated(world), ...products(world)]
}

/** Gives one finding, since one update renews all of them. */
function outdated(world: World): readonly Finding[] {
  const { probes, selfSubject } = world
  const { definition = [] } = probes
  const older = definition.filter(({ object }) => object.isOlder)
  const [first] = older
  if (first === undefined) return []
  const texts = older.map(
    ({ object: { name, found, expected } }) => `${name} is ${found}, but this command has ${expected}`,
  )
  const seen = named(texts, 3)
  // A command that is newer than the whole cluster does not make it unhealthy.
  const severity = isUsed(world) ? 'degraded' : 'notice'
  return [{ reason: 'DefinitionOutdated', severity, subject: selfSubject, seen, ...seenAt(first) }]
}

/** Whether any part of the cluster has the release of this command. */
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
    seen: `its CustomResourceDefinition ${one.object.crd} is installed in this cluster`,
    ...seenAt(one),
  }))
}
