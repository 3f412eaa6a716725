/** Checks whether this cluster has gateways, and whether they report. */
import { CONDITION_GATEWAYS_CHOSEN, CONDITION_READY, findCondition, isMachine } from '../../model/model.ts'
import { LABEL_GATEWAY, gatewayProblem, heartbeatAgeMs, leavingReason } from '../../model/lanes/lanes.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import {
  type Cause,
  type FactObjects,
  type Finding,
  NOTHING_RUNS,
  type Seen,
  type World,
  absentAt,
  durationText,
  hangingHere,
  refusalCauses,
  seenAt,
  seenSubject,
} from '../facts/facts.ts'

type SeenGateway = Seen<FactObjects['Gateway']>
type SeenNode = Seen<FactObjects['Node']>

const GATEWAY_PODS: Cause = {
  reason: 'PartNotReady',
  subject: { kind: 'DaemonSet', namespace: 'sealane-system', name: 'sealane-gateway' },
}

export function gateways(world: World): readonly Finding[] {
  const { objects, silent, fresh } = world
  if (world.self === undefined) return []
  const labelled = (objects.Node ?? []).filter(({ object }) => object.metadata.labels?.[LABEL_GATEWAY] !== undefined)
  return [
    ...noGateway(world, labelled),
    ...silent.map((gateway) => silentFinding(world, gateway)),
    ...fresh.flatMap((gateway) => failure(world, gateway)),
    ...labelled.flatMap((node) => labelFindings(world, node)),
    ...oneGateway(world),
    ...notReplaced(world),
  ]
}

function noGateway(world: World, labelled: readonly SeenNode[]): readonly Finding[] {
  const { objects, others = [], selfSubject } = world
  if (objects.Gateway === undefined || objects.Node === undefined) return []
  // Gateways that were present and became silent have findings of their own.
  if (world.fresh.length > 0 || world.silent.length > 0) return []
  const nodes = labelled.map(({ object }) => object.metadata.name)
  const machines = objects.Node.filter(({ object }) => isMachine(object)).length
  const [named, none] = world.atSite
    ? ['in spec.gateways', `spec.gateways of the site file names none of ${objects.Node.length} nodes`]
    : ['labelled', `none of ${machines} nodes has the label ${LABEL_GATEWAY}`]
  const seen = nodes.length === 0 ? none : `${nodes.join(', ')}: ${named}, but no gateway reports`
  return [
    {
      reason: 'NoGateway',
      severity: others.length > 0 ? 'down' : 'degraded',
      subject: selfSubject,
      seen,
      ...absentAt(world),
      because: [
        GATEWAY_PODS,
        NOTHING_RUNS,
        { reason: 'NoMembership' },
        ...nodes.map(nodeCause),
        ...refusalCauses('gateway'),
      ],
    },
  ]
}

function silentFinding(world: World, gateway: SeenGateway): Finding {
  const { nowMs, fresh, others = [] } = world
  const { metadata, status } = gateway.object
  const isHere = isThisMachine(world, metadata.name)
  const ageMs = heartbeatAgeMs(gateway.object, nowMs)
  const isLast = fresh.length === 0 && others.length > 0
  return {
    reason: 'GatewaySilent',
    severity: isLast ? 'down' : 'degraded',
    subject: seenSubject('Gateway', gateway),
    seen: `${ageMs === undefined ? 'it does not report' : `last heard ${durationText(ageMs)} ago`}${isLast ? ', and no other gateway reports' : ''}`,
    ...seenAt(gateway, status?.heartbeatTime),
    because: [
      ...[
        nodeCause(metadata.name),
        GATEWAY_PODS,
        { reason: 'DiskFull' as const },
        { reason: 'DiskReadOnly' as const },
        ...filesCauses(world, metadata.name),
      ],
      ...refusalCauses('gateway'),
      ...(isHere ? hangingHere(world) : []),
    ],
  }
}

function isThisMachine({ probes }: World, node: string): boolean {
  return probes.host?.some(({ object }) => object.node === node) === true
}

/** A process that can open no more files cannot start tools either. */
function filesCauses(world: World, node: string): readonly Cause[] {
  const named: Cause = { reason: 'FilesNearlyOut', subject: { kind: 'Part', name: `gateway ${node}` } }
  // On a site, the status page names no node.
  return isThisMachine(world, node) ? [{ reason: 'FilesNearlyOut' }, named] : [named]
}

/** Problems of single links belong to the check of links. */
function failure(world: World, gateway: SeenGateway): readonly Finding[] {
  const { status, metadata } = gateway.object
  if (status?.failure === undefined) return []
  const since = findCondition(status.conditions, CONDITION_READY)?.lastTransitionTime
  const at = { subject: seenSubject('Gateway', gateway), ...seenAt(gateway, since) }
  const isTaken = status.failureReason === ('PortTaken' satisfies ReasonCode)
  const because = isTaken ? [] : [...filesCauses(world, metadata.name), ...refusalCauses('gateway')]
  return [{ reason: isTaken ? 'PortTaken' : 'RoundFailed', severity: 'degraded', seen: status.failure, because, ...at }]
}

function labelFindings(world: World, node: SeenNode): readonly Finding[] {
  const { fresh } = world
  const subject = seenSubject('Node', node)
  const problem = problemOf(node, world)
  if (problem !== undefined) {
    return [{ ...problem, severity: 'degraded', subject, ...seenAt(node) }]
  }
  const leaving = leavingReason(node.object)
  if (leaving === undefined || !fresh.some(({ object }) => object.metadata.name === subject.name)) return []
  return [{ reason: 'GatewayDraining', severity: 'notice', subject, seen: leaving, ...seenAt(node) }]
}

function problemOf({ object }: SeenNode, { objects }: World): Pick<Finding, 'reason' | 'seen'> | undefined {
  const agent = objects.RouteAgent?.find(({ object: { metadata } }) => metadata.name === object.metadata.name)
  const problem = gatewayProblem(object, agent?.object.status?.overlayPort)
  return problem === undefined ? undefined : { reason: problem.reason, seen: problem.message }
}

/** Reported only if another node could be a gateway. */
function oneGateway({ objects, fresh, silent, selfSubject }: World): readonly Finding[] {
  const [only, ...more] = fresh
  const nodes = (objects.Node ?? []).filter(({ object }) => isMachine(object))
  if (only === undefined || more.length > 0 || silent.length > 0 || nodes.length < 2) return []
  const seen = `${only.object.metadata.name} is the only gateway of ${nodes.length} nodes`
  return [{ reason: 'OneGatewayOnly', severity: 'notice', subject: selfSubject, seen, ...seenAt(only) }]
}

/** The agent found no node that could take the place of a gateway node that is gone. */
function notReplaced({ objects, self, selfSubject }: World): readonly Finding[] {
  const own = (objects.Cluster ?? []).find(({ object }) => object.spec.id === self)
  const found = findCondition(own?.object.status?.conditions, CONDITION_GATEWAYS_CHOSEN)
  if (own === undefined || found?.status !== 'False') return []
  const at = { subject: selfSubject, ...seenAt(own, found.lastTransitionTime) }
  return [{ reason: 'GatewayNotReplaced', severity: 'degraded', seen: found.message, ...at }]
}

function nodeCause(name: string): Cause {
  return { reason: 'NodeNotReady', subject: { kind: 'Node', name } }
}
