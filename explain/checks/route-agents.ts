/** Checks whether the pods of every node can reach the other clusters. */
import {
  CONDITION_CHECKSUM_OFFLOAD,
  CONDITION_CLOSED_WITHOUT_TABLES,
  CONDITION_NODES_ANSWER,
  ROUTE_AGENT_BEAT_MS,
  VXLAN_PORT,
  findCondition,
  isMachine,
} from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import {
  type Cause,
  type FactObjects,
  type Finding,
  NOTHING_RUNS,
  type Seen,
  type World,
  absentAt,
  named,
  refusalCauses,
  seenAt,
  seenSubject,
} from '../facts/facts.ts'

type SeenAgent = Seen<FactObjects['RouteAgent']>

export function routeAgents(world: World): readonly Finding[] {
  const { objects, self } = world
  const { RouteAgent: agents } = objects
  if (agents === undefined || self === undefined) return []
  return [
    ...missing(world, agents),
    ...silent(world, agents),
    ...agents.flatMap(failure),
    ...agents.flatMap(offload),
    ...agents.flatMap(openWithoutTables),
    ...otherPorts(agents),
    ...overlay(world, agents),
  ]
}

const ROUTE_AGENTS = { kind: 'DaemonSet', namespace: 'sealane-system', name: 'sealane-routeagent' } as const

function missing(world: World, agents: readonly SeenAgent[]): readonly Finding[] {
  const { objects, selfSubject } = world
  const reporting = new Set(agents.filter(({ object }) => object.status).map(({ object }) => object.metadata.name))
  const machines = (objects.Node ?? []).filter(({ object }) => isMachine(object))
  const silent = machines.map(({ object }) => object.metadata.name).filter((name) => !reporting.has(name))
  if (silent.length === 0) return []
  const because: readonly Cause[] = [
    NOTHING_RUNS,
    { reason: 'PartNotReady', subject: ROUTE_AGENTS },
    { reason: 'PartMissing', subject: ROUTE_AGENTS },
    ...silent.map((name): Cause => ({ reason: 'NodeNotReady', subject: { kind: 'Node', name } })),
    ...refusalCauses('routeagent'),
  ]
  return [
    {
      reason: 'RouteAgentMissing',
      severity: 'degraded',
      subject: selfSubject,
      seen: `${silent.length} of ${machines.length} nodes: ${named(silent)}`,
      ...absentAt(world),
      because,
    },
  ]
}

/** Three writes are missed then. An earlier release writes no time. */
const SILENT_MS = 3 * ROUTE_AGENT_BEAT_MS

function silent(world: World, agents: readonly SeenAgent[]): readonly Finding[] {
  const { atSite, objects } = world
  const nowMs = knownTime(world)
  const nodes = new Set((objects.Node ?? []).map(({ object }) => object.metadata.name))
  return agents.flatMap((agent): Finding[] => {
    const { metadata, status } = agent.object
    const writtenMs = Date.parse(status?.heartbeatTime ?? '')
    // Of a node that is no more, another finding tells, if any.
    if (!nodes.has(metadata.name) || !(nowMs - writtenMs >= SILENT_MS)) return []
    const because: readonly Cause[] = [
      NOTHING_RUNS,
      ...(atSite ? [] : [{ reason: 'PartNotReady', subject: ROUTE_AGENTS } as const]),
      { reason: 'NodeNotReady', subject: { kind: 'Node', name: metadata.name } },
      ...refusalCauses('routeagent'),
    ]
    const subject = seenSubject('RouteAgent', agent)
    const seen = `last update at ${status?.heartbeatTime ?? '-'}`
    return [{ reason: 'RouteAgentSilent', severity: 'degraded', subject, seen, ...seenAt(agent), because }]
  })
}

/**
 * If no part has reported its time, the clock here may be ahead. Then no time counts that is later than the latest write
 * of any node: a routeagent that is old by both is silent. If nothing writes, that is not known.
 */
function knownTime({ nowMs, isClockKnown, objects: { Gateway = [], RouteAgent = [] } }: World): number {
  if (isClockKnown) return nowMs
  const writes = [...Gateway, ...RouteAgent].map(({ object }) => Date.parse(object.status?.heartbeatTime ?? ''))
  return Math.min(nowMs, Math.max(...writes.filter((ms) => !Number.isNaN(ms))))
}

function failure(agent: SeenAgent): readonly Finding[] {
  const { failure: seen, failureReason } = agent.object.status ?? {}
  if (seen === undefined) return []
  const reason = failureReason === ('PortTaken' satisfies ReasonCode) ? 'PortTaken' : 'RoundFailed'
  const subject = seenSubject('RouteAgent', agent)
  const because: readonly Cause[] = [{ reason: 'GatewayWithoutIPv4', subject: { kind: 'Node', name: subject.name } }]
  return [{ reason, severity: 'degraded', subject, seen, ...seenAt(agent), because }]
}

/** Finds nodes on which a network card with a known fault still computes checksums of the overlay. */
function offload(agent: SeenAgent): readonly Finding[] {
  const found = findCondition(agent.object.status?.conditions, CONDITION_CHECKSUM_OFFLOAD)
  if (found?.status !== 'Unknown') return []
  const subject = { kind: 'Node', name: agent.object.metadata.name } as const
  const seen = `checksum offload of sealane-vx: ${found.message}`
  return [
    {
      reason: 'ChecksumOffloadNotSwitched',
      severity: 'degraded',
      subject,
      seen,
      ...seenAt(agent, found.lastTransitionTime),
    },
  ]
}

/** Finds nodes whose pods are open while their nft tables are missing. */
function openWithoutTables(agent: SeenAgent): readonly Finding[] {
  const found = findCondition(agent.object.status?.conditions, CONDITION_CLOSED_WITHOUT_TABLES)
  if (found?.status !== 'False') return []
  const subject = { kind: 'Node', name: agent.object.metadata.name } as const
  const isStated = found.reason === ('OpenWithoutTables' satisfies ReasonCode)
  const about = { reason: isStated ? 'OpenWithoutTables' : 'ForwardPoliciesMissing', severity: 'notice' } as const
  return [{ ...about, subject, seen: found.message, ...seenAt(agent, found.lastTransitionTime) }]
}

/**
 * Finds the nodes whose overlay has another UDP port than that of most nodes: a VXLAN device sends to the port on which
 * it listens. If no port has most nodes, it cannot be known which is the intended one, and each node is named.
 */
function otherPorts(agents: readonly SeenAgent[]): readonly Finding[] {
  // A node of an earlier release reports no port, and without a plan nothing is known.
  const known = agents.filter(
    ({ object: { status } }) => status?.overlayPort !== undefined || status?.underlay !== undefined,
  )
  const portOf = ({ object }: SeenAgent): number => object.status?.overlayPort ?? VXLAN_PORT
  const byPort = [...Map.groupBy(known, portOf)].sort(([, a], [, b]) => b.length - a.length)
  const [first, second] = byPort
  if (first === undefined || second === undefined) return []
  const hasMost = first[1].length > second[1].length
  return (hasMost ? byPort.slice(1) : byPort).flatMap(([port, there]) =>
    there.map((agent): Finding => {
      const others = byPort.filter(([other]) => other !== port)
      const elsewhere = others.map(
        ([other, all]) => `UDP ${other} on ${named(all.map(({ object }) => object.metadata.name))}`,
      )
      return {
        reason: 'OverlayPortDiffers',
        severity: 'degraded',
        subject: { kind: 'Node', name: agent.object.metadata.name },
        seen: `its overlay has UDP ${port}, and ${elsewhere.join(', ')}`,
        ...seenAt(agent),
      }
    }),
  )
}

/** Joins the nodes that are cut off in one finding: a closed port between nodes cuts off many at once. */
function overlay(world: World, agents: readonly SeenAgent[]): readonly Finding[] {
  const { reached } = world
  const lost = agents.flatMap((agent) =>
    (agent.object.status?.clusters ?? [])
      .filter(({ cluster, gateways }) => gateways.length === 0 && reached?.has(cluster) === true)
      .map(({ cluster }) => ({ agent, cluster })),
  )
  const isLost = new Set(lost.map(({ agent }) => agent))
  return [...cutOff(world, lost), ...silentNodes(world, agents, isLost), ...unheard(agents)]
}

function cutOff(
  { selfSubject }: World,
  lost: readonly { readonly agent: SeenAgent; readonly cluster: string }[],
): readonly Finding[] {
  const [first] = lost
  if (first === undefined) return []
  const nodes = lost.map(({ agent }) => agent.object.metadata.name)
  const silent = lost.flatMap(({ agent }) => agent.object.status?.silentNodes ?? [])
  const why = silent.length === 0 ? '' : `; no answer over the overlay from ${named(silent)}`
  return [
    {
      reason: 'NodesCutOff',
      severity: 'down',
      subject: selfSubject,
      seen: `${named(nodes)}: no gateway has a route to ${named(lost.map(({ cluster }) => cluster))}${why}`,
      ...seenAt(first.agent, since(first.agent)),
      because: [...new Set([...nodes, ...silent])].flatMap(overlayCauses),
    },
  ]
}

/** Gives one finding for each node that does not answer others. Nodes that are cut off already have a finding. */
function silentNodes(world: World, agents: readonly SeenAgent[], isLost: ReadonlySet<SeenAgent>): readonly Finding[] {
  const { objects, self, selfSubject } = world
  const own = (objects.Endpoint ?? []).filter(({ object }) => object.spec.cluster === self)
  const gateways = new Set(own.map(({ object }) => object.spec.node))
  const lostNodes = new Set([...isLost].map(({ object }) => object.metadata.name))
  const listed = agents
    .filter((agent) => !isLost.has(agent))
    .flatMap((agent) => (agent.object.status?.silentNodes ?? []).map((node) => ({ agent, node })))
    // A worker that is cut off reports it itself.
    .filter(({ node }) => gateways.has(node) || !lostNodes.has(node))
  return [...Map.groupBy(listed, ({ node }) => node)].flatMap(([node, by]): readonly Finding[] => {
    const [first] = by
    if (first === undefined) return []
    const listeners = by.map(({ agent }) => agent.object.metadata.name)
    return [
      {
        reason: gateways.has(node) ? 'GatewayNodeSilent' : 'WorkerNodeSilent',
        severity: 'degraded',
        subject: { kind: 'Node', name: node },
        seen: `it does not answer ${named(listeners)} over the overlay`,
        ...seenAt(first.agent, since(first.agent)),
        because: [
          { reason: 'GatewaySilent', subject: { kind: 'Gateway', name: node } },
          ...[node, ...listeners].flatMap(overlayCauses),
          { reason: 'NodesCutOff', subject: selfSubject },
        ],
      },
    ]
  })
}

/** Finds gateways that no other node has ever answered, so that it is unknown whether packets arrive. */
function unheard(agents: readonly SeenAgent[]): readonly Finding[] {
  return agents.flatMap((agent): readonly Finding[] => {
    const found = findCondition(agent.object.status?.conditions, CONDITION_NODES_ANSWER)
    if (found?.status !== 'Unknown') return []
    const { name } = agent.object.metadata
    return [
      {
        reason: 'GatewayNodeUnheard',
        severity: 'degraded',
        subject: { kind: 'Node', name },
        seen: found.message,
        ...seenAt(agent, found.lastTransitionTime),
        because: overlayCauses(name),
      },
    ]
  })
}

/** What can keep packets from reaching or leaving a node. */
function overlayCauses(node: string): readonly Cause[] {
  const subject = { kind: 'Node', name: node } as const
  return [
    { reason: 'NodeNotReady', subject },
    { reason: 'FirewallDrops', subject },
    { reason: 'OverlayPortDiffers', subject },
    { reason: 'ChecksumOffloadNotSwitched', subject },
  ]
}

function since({ object }: SeenAgent): string | undefined {
  const found = findCondition(object.status?.conditions, CONDITION_NODES_ANSWER)
  return found?.status === 'False' ? found.lastTransitionTime : undefined
}
