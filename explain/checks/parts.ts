/** Whether the parts of an installation run, belong to a clusterset, and are of one release. */
import type { FactObjects } from '../facts/fact.ts'
import type { Seen } from '../facts/read-facts.ts'
import type { Cause, Finding } from '../finding.ts'
import { LABEL_COMPONENT, MEMBER_PARTS, type MemberPart, PART_WORKLOADS, workloadName } from '../names.ts'
import { type World, absentAt, named, refusalCauses, seenAt, seenSubject, unjoinedCauses } from '../world.ts'

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
