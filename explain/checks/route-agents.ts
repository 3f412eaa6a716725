/** Checks whether the pods of every node can reach the other clusters. */
import { CONDITION_NODES_ANSWER, findCondition } from '../../model/model.ts'
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
  return [...missing(world, agents), ...agents.flatMap(failure), ...overlay(world, agents)]
}

const OS = 'kubernetes.io/os'

function missing(world: World, agents: readonly SeenAgent[]): readonly Finding[] {
  const { objects, selfSubject } = world
  const reporting = new Set(agents.filter(({ object }) => object.status).map(({ object }) => object.metadata.name))
  const silent = (objects.Node ?? [])
    .filter(({ object }) => (object.metadata.labels?.[OS] ?? 'linux') === 'linux')
    .map(({ object }) => object.metadata.name)
    .filter((name) => !reporting.has(name))
  if (silent.length === 0) return []
  const because: readonly Cause[] = [
    NOTHING_RUNS,
    { reason: 'PartNotReady', subject: { kind: 'DaemonSet', namespace: 'sealane-system', name: 'sealane-routeagent' } },
    { reason: 'PartMissing', subject: { kind: 'DaemonSet', namespace: 'sealane-system', name: 'sealane-routeagent' } },
    ...silent.map((name): Cause => ({ reason: 'NodeNotReady', subject: { kind: 'Node', name } })),
    ...refusalCauses('routeagent'),
  ]
  return [
    {
      reason: 'RouteAgentMissing',
      severity: 'degraded',
      subject: selfSubject,
      seen: `${silent.length} of ${objects.Node?.length ?? 0} nodes: ${named(silent)}`,
      ...absentAt(world),
      because,
    },
  ]
}

function failure(agent: SeenAgent): readonly Finding[] {
  const { failure: seen, failureReason } = agent.object.status ?? {}
  if (seen === undefined) return []
  const reason = failureReason === ('PortTaken' satisfies ReasonCode) ? 'PortTaken' : 'RoundFailed'
  const subject = seenSubject('RouteAgent', agent)
  const because: readonly Cause[] = [{ reason: 'GatewayWithoutIPv4', subject: { kind: 'Node', name: subject.name } }]
  return [{ reason, severity: 'degraded', subject, seen, ...seenAt(agent), because }]
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
  ]
}

function since({ object }: SeenAgent): string | undefined {
  const found = findCondition(object.status?.conditions, CONDITION_NODES_ANSWER)
  return found?.status === 'False' ? found.lastTransitionTime : undefined
}
