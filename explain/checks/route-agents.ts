/** Whether the pods of every node have a way to the other clusters. */
import { PORT_TAKEN } from '../../model/status-text.ts'
import type { FactObjects } from '../facts/fact.ts'
import type { Seen } from '../facts/read-facts.ts'
import type { Cause, Finding } from '../finding.ts'
import { type World, absentAt, named, seenAt, seenSubject, refusalCauses } from '../world.ts'

type SeenAgent = Seen<FactObjects['RouteAgent']>

export function routeAgents(world: World): readonly Finding[] {
  const { objects, self } = world
  const { RouteAgent: agents } = objects
  if (agents === undefined || self === undefined) return []
  return [...missing(world, agents), ...agents.flatMap(failure), ...cutOff(world, agents)]
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
  const seen = agent.object.status?.failure
  if (seen === undefined) return []
  const reason = seen.includes(PORT_TAKEN) ? 'PortTaken' : 'RoundFailed'
  return [{ reason, severity: 'degraded', subject: seenSubject('RouteAgent', agent), seen, ...seenAt(agent) }]
}

/** A closed port between nodes cuts many off at once: one finding has them all. */
function cutOff({ reached, selfSubject }: World, agents: readonly SeenAgent[]): readonly Finding[] {
  const lost = agents.flatMap((agent) =>
    (agent.object.status?.clusters ?? [])
      .filter(({ cluster, gateways }) => gateways.length === 0 && reached?.has(cluster) === true)
      .map(({ cluster }) => ({ agent, cluster })),
  )
  const [first] = lost
  if (first === undefined) return []
  const nodes = lost.map(({ agent }) => agent.object.metadata.name)
  return [
    {
      reason: 'NodesCutOff',
      severity: 'down',
      subject: selfSubject,
      seen: `${named(nodes)}: no gateway leads to ${named(lost.map(({ cluster }) => cluster))}`,
      ...seenAt(first.agent),
    },
  ]
}
