/**
 * Checks which other clusters are reached, and finds the common cause of links that are not up: all links, a cluster, a
 * gateway here, a gateway there. One cause is one finding, with its links below it.
 */
import { CONDITION_CONNECTED, CONDITION_IN_CONTACT, findCondition } from '../../model/model.ts'
import { hadGateway, remoteLaneOf } from '../../model/lanes/lanes.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import {
  type Cause,
  type FactObjects,
  type Finding,
  type Link,
  type Subject,
  type World,
  absentAt,
  named,
  seenAt,
} from '../facts/facts.ts'

export function links(world: World): readonly Finding[] {
  const { reached, others, silent } = world
  if (world.self === undefined || others === undefined) return []
  // The state of the links is unknown.
  if (reached === undefined) return silent.length === 0 ? [] : others.map((id) => unknownFinding(world, id))
  const cutOff = others.filter((id) => !reached.has(id))
  const gateways = cutOffGateways(world)
  const far = cutOffFarGateways(world, gateways)
  return [
    ...allCutOff(world, cutOff),
    ...cutOff.map((id) => cutOffFinding(world, id)),
    ...[...gateways].map(([node, down]) => gatewayFinding(world, node, down)),
    ...[...far].map(([endpoint, down]) => farFinding(world, endpoint, down)),
    ...world.links.flatMap((link) => (isUp(link) ? [] : [linkFinding(world, link)])),
  ]
}

function isUp({ connection }: Link): boolean {
  return connection.state === 'up'
}

function clusterSubject(id: string): Subject {
  return { kind: 'Cluster', name: id }
}

/**
 * Finds that all clusters are cut off. With one cluster alone, the faulty side is unknown. Clusters that are not
 * connected to the broker either are not counted.
 */
function allCutOff(world: World, cutOff: readonly string[]): readonly Finding[] {
  const { objects, others = [], selfSubject, fresh, links: all } = world
  const [first] = fresh
  const away = (objects.Cluster ?? []).filter(({ object: { status } }) => {
    return findCondition(status?.conditions, CONDITION_IN_CONTACT)?.status === 'False'
  })
  const isAway = new Set(away.map(({ object }) => object.spec.id))
  const here = cutOff.filter((id) => !isAway.has(id) && !isAwaited(world, id))
  if (first === undefined || here.length < 2 || cutOff.length < others.length || all.length === 0) return []
  const seen = `none of ${others.length} clusters is reachable: ${named(cutOff)}`
  const because: readonly Cause[] = [{ reason: 'NoGateway' }, ...WAYS_BLOCKED, ...routesMissing(all)]
  const severity = cutOff.every((id) => isNew(world, id, linksTo(world, id))) ? 'notice' : 'down'
  return [{ reason: 'AllClustersCutOff', severity, subject: selfSubject, seen, ...seenAt(first), because }]
}

/**
 * Whether the cluster has published no gateway: it is not ready yet, or its own status has the cause. A link to it
 * proves that it had one.
 */
function isAwaited({ objects, links: all }: World, id: string): boolean {
  if (all.some(({ connection }) => connection.cluster === id)) return false
  const object = objects.Cluster?.find((one) => one.object.spec.id === id)?.object
  const said = findCondition(object?.status?.conditions, CONDITION_CONNECTED)
  // A cluster that had a gateway before has lost it.
  if (hadGateway(said)) return false
  // Without the Endpoints, the agent's word counts.
  if (objects.Endpoint === undefined) return said?.reason === ('FarGatewayAwaited' satisfies ReasonCode)
  return !objects.Endpoint.some(({ object }) => object.spec.cluster === id)
}

function cutOffFinding(world: World, id: string): Finding {
  const { objects, links: all, fresh, selfSubject } = world
  const down = all.filter(({ connection }) => connection.cluster === id)
  const object = objects.Cluster?.find((cluster) => cluster.object.spec.id === id)
  const since = findCondition(object?.object.status?.conditions, CONDITION_CONNECTED)
  const origin = down[0]?.gateway ?? fresh[0]
  const base = {
    severity: isNew(world, id, down) ? 'notice' : 'down',
    subject: clusterSubject(id),
    ...(origin === undefined ? absentAt(world) : seenAt(origin)),
    ...(since?.status === 'False' ? { since: since.lastTransitionTime } : {}),
  } as const
  const [best] = down
  const because: readonly Cause[] = [
    { reason: 'Silent', subject: clusterSubject(id) },
    { reason: 'AllClustersCutOff', subject: selfSubject },
    ...WAYS_BLOCKED,
    ...routesMissing(down),
  ]
  if (best === undefined) {
    if (isAwaited(world, id)) {
      const seen = 'the cluster has published no gateway yet'
      const silent: Cause = { reason: 'Silent', subject: clusterSubject(id) }
      return { ...base, reason: 'FarGatewayAwaited', severity: 'notice', seen, because: [silent] }
    }
    const seen = 'no gateway of this cluster has a link to the cluster'
    return { reason: 'NoLane', seen, ...base, because: [...because, { reason: 'NoGateway' }] }
  }
  const hopeless = down.every(({ connection }) => connection.cause === 'NeitherCallable')
  const oneWay = down.every(isOneWay)
  const seen = `none of ${down.length} link${down.length === 1 ? '' : 's'} is up: ${best.connection.message}`
  return { reason: hopeless ? 'NeitherEndCallable' : oneWay ? 'UdpOneWay' : 'ClusterCutOff', seen, ...base, because }
}

function linksTo({ links: all }: World, id: string): readonly Link[] {
  return all.filter(({ connection }) => connection.cluster === id)
}

/** A far end is new if its gateways have been known for less than this, and no link to it has been up. */
const NEW_MS = 30_000

function isNew(world: World, id: string, all: readonly Link[]): boolean {
  const ends = (world.objects.Endpoint ?? []).filter(({ object }) => object.spec.cluster === id)
  return ends.length > 0 && ends.every(({ object }) => hasJustCome(world, object)) && all.every(isConnecting)
}

/** Whether links lead to new gateways, of a cluster that may have others for longer. */
function areNew(world: World, all: readonly Link[]): boolean {
  const names = new Set(all.map(({ connection }) => farName(connection)))
  const ends = (world.objects.Endpoint ?? []).filter(({ object }) => names.has(object.metadata.name))
  return ends.length > 0 && ends.every(({ object }) => hasJustCome(world, object)) && all.every(isConnecting)
}

function isConnecting({ connection }: Link): boolean {
  return connection.state === 'connecting'
}

function hasJustCome({ nowMs }: World, { metadata: { creationTimestamp } }: FactObjects['Endpoint']): boolean {
  return Math.abs(nowMs - Date.parse(creationTimestamp ?? '')) < NEW_MS
}

/** Whether some packets of the far end arrive: it works, and packets in one direction are lost on the way. */
function isOneWay({ connection: { cause } }: Link): boolean {
  return cause === 'AnswersLost' || cause === 'NoneAnswers'
}

/** Causes that can stop all links of a gateway. */
const WAYS_BLOCKED: readonly Cause[] = [
  // The other members do not connect to an evicted member.
  { reason: 'MemberEvicted' },
  { reason: 'FirewallDrops' },
  { reason: 'PortTaken' },
]

/** A gateway without its routes cannot carry traffic on any link, not even probes. */
function routesMissing(down: readonly Link[]): readonly Cause[] {
  const nodes = new Set(down.map(({ node }) => node))
  return [...nodes].map((name) => ({ reason: 'KernelRoutesMissing', subject: { kind: 'Node', name } }))
}

/** Gateways that have no link up to clusters that other gateways reach, with those links. */
function cutOffGateways(world: World): ReadonlyMap<string, readonly Link[]> {
  const wanted = groupBy(world.links.filter(isReachedOtherwise(world)), ({ node }) => node)
  return new Map([...wanted].filter(([, all]) => !all.some(isUp)))
}

/** The same for far gateways, as seen from our gateways that have links up. */
function cutOffFarGateways(
  world: World,
  gateways: ReadonlyMap<string, readonly Link[]>,
): ReadonlyMap<string, readonly Link[]> {
  const ours = world.links.filter(isReachedOtherwise(world)).filter(({ node }) => !gateways.has(node))
  const wanted = groupBy(ours, ({ connection }) => farName(connection))
  return new Map([...wanted].filter(([, all]) => !all.some(isUp)))
}

function isReachedOtherwise({ reached }: World): (link: Link) => boolean {
  return ({ connection }) => reached?.has(connection.cluster) === true
}

function gatewayFinding(world: World, node: string, down: readonly Link[]): Finding {
  const [first] = down
  const clusters = named(down.map(({ connection }) => connection.cluster))
  return {
    reason: 'GatewayCutOff',
    severity: areNew(world, down) ? 'notice' : 'degraded',
    subject: { kind: 'Gateway', name: node },
    seen: `none of its ${down.length} links is up, to ${clusters}: ${first?.connection.message ?? ''}`,
    ...(first === undefined ? { source: '-', at: '-' } : seenAt(first.gateway)),
    because: [
      { reason: 'NodeNotReady', subject: { kind: 'Node', name: node } },
      { reason: 'FirewallDrops', subject: { kind: 'Node', name: node } },
      { reason: 'KernelRoutesMissing', subject: { kind: 'Node', name: node } },
      { reason: 'PortTaken', subject: { kind: 'Gateway', name: node } },
    ],
  }
}

function farFinding(world: World, endpoint: string, down: readonly Link[]): Finding {
  const [first] = down
  return {
    reason: 'FarGatewayUnreached',
    severity: areNew(world, down) ? 'notice' : 'degraded',
    subject: { kind: 'Endpoint', name: endpoint },
    seen: `no link to it from ${named(down.map(({ node }) => node))} is up: ${first?.connection.message ?? ''}`,
    ...(first === undefined ? { source: '-', at: '-' } : seenAt(first.gateway)),
  }
}

function linkFinding(world: World, link: Link): Finding {
  const { node, connection, gateway } = link
  const { cluster, lane, state, message } = connection
  const far = remoteLaneOf(connection)
  return {
    reason: state === 'down' ? 'LaneProbeTimeout' : 'LaneConnecting',
    severity: areNew(world, [link]) ? 'notice' : 'degraded',
    subject: { kind: 'Link', name: `${node} lane ${lane} to ${cluster} lane ${far}` },
    seen: message,
    ...seenAt(gateway),
    because: [
      { reason: 'ClusterCutOff', subject: clusterSubject(cluster) },
      { reason: 'NeitherEndCallable', subject: clusterSubject(cluster) },
      { reason: 'UdpOneWay', subject: clusterSubject(cluster) },
      { reason: 'GatewayCutOff', subject: { kind: 'Gateway', name: node } },
      { reason: 'FarGatewayUnreached', subject: { kind: 'Endpoint', name: farName(connection) } },
    ],
  }
}

function farName(connection: Link['connection']): string {
  const { cluster, endpoint } = connection
  return endpoint === '' ? `${cluster}-lane${remoteLaneOf(connection)}` : endpoint
}

function unknownFinding(world: World, id: string): Finding {
  const { silent } = world
  const [first] = silent
  return {
    reason: 'GatewayStatusStale',
    severity: 'degraded',
    subject: clusterSubject(id),
    seen: 'no gateway with a route to it reports',
    ...(first === undefined ? absentAt(world) : seenAt(first)),
    because: silent.map(({ object }) => ({
      reason: 'GatewaySilent',
      subject: { kind: 'Gateway', name: object.metadata.name },
    })),
  }
}

function groupBy<T>(items: readonly T[], keyOf: (item: T) => string): ReadonlyMap<string, readonly T[]> {
  const groups = new Map<string, T[]>()
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item])
  return groups
}

const LOSSY = 0.1
const HELD = 'the link went down repeatedly, so it is not used for some time'

/** Checks the quality of the links that are up. */
export function linkQuality({ links }: World): readonly Finding[] {
  return links.filter(({ connection }) => connection.state === 'up').flatMap(qualityOf)
}

function qualityOf(link: Link): readonly Finding[] {
  const { node, connection, gateway } = link
  const { cluster, lane, loss = 0, held = false, message } = connection
  const name = `${node} lane ${lane} to ${cluster} lane ${remoteLaneOf(connection)}`
  const base = { subject: { kind: 'Link', name }, ...seenAt(gateway) }
  const findings: Finding[] = []
  if (held) findings.push({ reason: 'LinkFlaps', severity: 'degraded', seen: message === '' ? HELD : message, ...base })
  if (loss >= LOSSY) {
    const seen = `${Math.round(loss * 100)} % of its last probes were not answered`
    findings.push({ reason: 'LinkLossy', severity: 'degraded', seen, ...base })
  }
  const narrow = narrowText(link)
  if (narrow !== undefined) findings.push({ reason: 'PathMtuReduced', severity: 'notice', seen: narrow, ...base })
  return findings
}

function narrowText({ connection, gateway }: Link): string | undefined {
  const { lane, mtu } = connection
  const far = remoteLaneOf(connection)
  const device = gateway.object.status?.lanes.find((one) => one.lane === lane && (one.remoteLane ?? one.lane) === far)
  if (mtu === undefined || device === undefined || mtu >= device.mtu) return undefined
  return `packets larger than ${mtu} bytes are lost; the MTU of the device is ${device.mtu}`
}
