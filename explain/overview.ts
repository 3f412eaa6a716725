/** Summarizes a member on one screen: its identity, what it reaches, and how much of it works. Pure. */
import {
  CONDITION_CLUSTER_DNS,
  CONDITION_IMPORTED,
  CONDITION_IN_CONTACT,
  type ConnectionStatus,
  findCondition,
  machineText,
  nodeMachine,
  printable,
} from '../model/model.ts'
import { type Exposure, exposureOf } from '../model/access/access.ts'
import { heartbeatAgeMs, remoteLaneOf } from '../model/lanes/lanes.ts'
import { type Link, type PartVersion, type World, hasAllBackends, importStates, partVersions } from './facts/facts.ts'

export interface Overview {
  /** RFC 3339 time. */
  readonly takenAt: string
  readonly target: string
  /** Absent before the cluster has joined. */
  readonly cluster?: string
  readonly clusterset?: string
  readonly phase?: 'joined' | 'leaving'
  /** What other members may call. */
  readonly exposure?: Exposure
  readonly versions: readonly PartVersion[]
  readonly broker: BrokerOverview
  /** Absent if the Nodes could not be read. */
  readonly nodes?: NodeCounts
  readonly gateways: readonly GatewayOverview[]
  readonly clusters: readonly ClusterOverview[]
  readonly links: readonly LinkOverview[]
  /** Members that the topology does not link with this one, which is no fault. Absent if there are none. */
  readonly notLinked?: { readonly reason: 'NotLinkedByTopology'; readonly clusters: readonly string[] }
  readonly clusterDns: { readonly state: 'answers' | 'fails' | 'unknown' | 'none'; readonly since?: string }
  /** Absent if the objects could not be read. */
  readonly exports?: ExportCounts
  readonly imports?: ImportCounts
}

export interface BrokerOverview {
  /** Whether this cluster publishes and receives, by its agent's report. */
  readonly state: 'connected' | 'away' | 'unknown'
  readonly since?: string
  readonly heardAt?: string
  readonly addresses?: number
  readonly failing?: number
  readonly certificateEnds?: string
  /** The holder of the agents' Lease. */
  readonly agent?: string
}

export interface GatewayOverview {
  readonly node: string
  readonly state: 'reporting' | 'silent' | 'starting'
  readonly lane?: number
  readonly linksUp: number
  readonly links: number
  readonly heardSecondsAgo?: number
}

export interface ClusterOverview {
  readonly cluster: string
  readonly state: 'reached' | 'cut off' | 'unknown'
  /** Whether the cluster is connected to the broker, by the broker's last report. */
  readonly contact: 'heard' | 'silent' | 'unknown'
  readonly linksUp: number
  readonly links: number
  /** The best value of the links that are up. */
  readonly rttMs?: number
  /** The worst value of the links that are up. */
  readonly loss?: number
  readonly mtu?: number
  /** The age of the oldest gateway report. */
  readonly heardSecondsAgo?: number
}

export interface LinkOverview extends Pick<
  ConnectionStatus,
  | 'cluster'
  | 'lane'
  | 'state'
  | 'usingAddress'
  | 'usingNat'
  | 'rttMs'
  | 'loss'
  | 'mtu'
  | 'handshakeAgeSeconds'
  | 'message'
> {
  readonly node: string
  readonly remoteLane: number
  readonly heardSecondsAgo?: number
}

export interface NodeCounts {
  /** Linux machines of their own, on which a routeagent runs. */
  readonly machines: number
  /** The number of all others by what they are: `a virtual node (EKS Fargate)`, `a node with windows`. */
  readonly leftOut: Readonly<Record<string, number>>
}

export interface ExportCounts {
  readonly total: number
  readonly exported: number
  readonly pending: number
  /** Exports that are invalid, or that the broker refuses in whole or in part. */
  readonly failed: number
  readonly conflicts: number
  readonly notImported: number
}

export interface ImportCounts {
  readonly total: number
  /** Services with a ready pod in a reached cluster. Absent if unknown. */
  readonly usable?: number
  readonly withoutBackends?: number
  /** Exports of other members that are not imported here, by reason. Absent if the agent did not report them. */
  readonly notImported?: Readonly<Record<string, number>>
}

export function overviewOf(world: World): Overview {
  const { objects, nowMs, target, self } = world
  const membership = objects.Membership?.find(({ object }) => object.spec.clusterId === self)?.object.spec
  const joined =
    self === undefined || membership === undefined
      ? {}
      : {
          cluster: printable(self),
          clusterset: printable(membership.clusterset),
          phase: membership.phase,
          exposure: exposureOf({ spec: membership }),
        }
  const exported = exportCounts(world)
  const imported = importCounts(world)
  return {
    takenAt: new Date(nowMs).toISOString(),
    target,
    ...joined,
    versions: partVersions(world).map((row) => ({
      ...row,
      part: printable(row.part),
      version: printable(row.version),
    })),
    broker: brokerOverview(world),
    ...nodeCounts(world),
    gateways: gatewayOverviews(world),
    clusters: (world.others ?? []).map((id) => clusterOverview(world, id)),
    links: world.links.map((link) => linkOverview(world, link)),
    ...notLinkedOf(world),
    clusterDns: dnsOverview(world),
    ...(exported === undefined ? {} : { exports: exported }),
    ...(imported === undefined ? {} : { imports: imported }),
  }
}

function notLinkedOf({ notLinked }: World): Pick<Overview, 'notLinked'> {
  const clusters = [...notLinked].map(printable)
  return clusters.length === 0 ? {} : { notLinked: { reason: 'NotLinkedByTopology', clusters } }
}

function nodeCounts({ objects }: World): Pick<Overview, 'nodes'> {
  if (objects.Node === undefined) return {}
  const reporting = new Set((objects.RouteAgent ?? []).map(({ object }) => object.metadata.name))
  const texts = objects.Node.flatMap(({ object }) => {
    const machine = nodeMachine(object)
    // Its name misleads: a routeagent runs on machines only.
    const isMachine = machine.is === 'virtual' && machine.onlyBy !== undefined && reporting.has(object.metadata.name)
    return isMachine ? [] : (machineText(machine) ?? [])
  })
  const leftOut = [...Map.groupBy(texts, (text) => text)].map(([text, all]) => [printable(text), all.length] as const)
  return { nodes: { machines: objects.Node.length - texts.length, leftOut: Object.fromEntries(leftOut) } }
}

function brokerOverview({ broker, agentLease }: World): BrokerOverview {
  const holder = agentLease?.object.spec?.holderIdentity ?? ''
  const agent = holder === '' ? {} : { agent: printable(holder) }
  if (broker === undefined) return { state: 'unknown', ...agent }
  const { publish, watch, since, heardAt, addresses, failing, certificateEnds } = broker.object
  return {
    state: publish === 'live' && watch === 'live' ? 'connected' : 'away',
    since: printable(since),
    ...(heardAt === undefined ? {} : { heardAt: printable(heardAt) }),
    addresses,
    failing,
    ...(certificateEnds === undefined ? {} : { certificateEnds: printable(certificateEnds) }),
    ...agent,
  }
}

function gatewayOverviews({ objects, silent, nowMs }: World): readonly GatewayOverview[] {
  return (objects.Gateway ?? []).map((gateway): GatewayOverview => {
    const { metadata, status } = gateway.object
    const lane = status?.lanes[0]?.lane
    const connections = status?.connections ?? []
    return {
      node: printable(metadata.name),
      state: silent.includes(gateway) ? 'silent' : status === undefined ? 'starting' : 'reporting',
      ...(lane === undefined ? {} : { lane }),
      linksUp: connections.filter(({ state }) => state === 'up').length,
      links: connections.length,
      ...heard(heartbeatAgeMs(gateway.object, nowMs)),
    }
  })
}

function clusterOverview(world: World, id: string): ClusterOverview {
  const { objects, links, reached, nowMs } = world
  const own = links.filter(({ connection }) => connection.cluster === id)
  const up = own.filter(({ connection }) => connection.state === 'up').map(({ connection }) => connection)
  const object = objects.Cluster?.find((cluster) => cluster.object.spec.id === id)?.object
  const contact = findCondition(object?.status?.conditions, CONDITION_IN_CONTACT)?.status
  const ages = own.flatMap(({ gateway }) => heartbeatAgeMs(gateway.object, nowMs) ?? [])
  return {
    cluster: printable(id),
    state: reached === undefined ? 'unknown' : reached.has(id) ? 'reached' : 'cut off',
    contact: contact === 'True' ? 'heard' : contact === 'False' ? 'silent' : 'unknown',
    linksUp: up.length,
    links: own.length,
    ...extreme(
      'rttMs',
      Math.min,
      up.flatMap(({ rttMs }) => rttMs ?? []),
    ),
    ...extreme(
      'loss',
      Math.max,
      up.flatMap(({ loss }) => loss ?? []),
    ),
    ...extreme(
      'mtu',
      Math.min,
      up.flatMap(({ mtu }) => mtu ?? []),
    ),
    ...heard(ages.length === 0 ? undefined : Math.max(...ages)),
  }
}

function extreme<K extends string>(
  key: K,
  pick: (...all: number[]) => number,
  all: readonly number[],
): { [k in K]?: number } {
  return (all.length === 0 ? {} : { [key]: pick(...all) }) as { [k in K]?: number }
}

function linkOverview({ nowMs }: World, { node, connection, gateway }: Link): LinkOverview {
  const { cluster, lane, state, usingAddress, usingNat, rttMs, loss, mtu, handshakeAgeSeconds, message } = connection
  return {
    node: printable(node),
    lane,
    cluster: printable(cluster),
    remoteLane: remoteLaneOf(connection),
    state,
    ...(usingAddress === undefined ? {} : { usingAddress: printable(usingAddress) }),
    usingNat,
    ...(rttMs === undefined ? {} : { rttMs }),
    ...(loss === undefined ? {} : { loss }),
    ...(mtu === undefined ? {} : { mtu }),
    ...(handshakeAgeSeconds === undefined ? {} : { handshakeAgeSeconds }),
    ...heard(heartbeatAgeMs(gateway.object, nowMs)),
    message: printable(message),
  }
}

/** On a plain site there is no cluster DNS. */
function dnsOverview({ objects, self, atSite }: World): Overview['clusterDns'] {
  if (atSite) return { state: 'none' }
  const own = objects.Cluster?.find(({ object }) => object.spec.id === self)?.object
  const found = findCondition(own?.status?.conditions, CONDITION_CLUSTER_DNS)
  if (found === undefined || found.status === 'Unknown') return { state: 'unknown' }
  return { state: found.status === 'True' ? 'answers' : 'fails', since: printable(found.lastTransitionTime) }
}

function exportCounts({ objects }: World): ExportCounts | undefined {
  const all = objects.ServiceExport?.map(({ object }) => {
    const is = (type: string): string | undefined => findCondition(object.status?.conditions, type)?.status
    const ready = findCondition(object.status?.conditions, 'Ready')
    const isPending = ready === undefined || ready.reason === 'Pending'
    const state =
      is('Valid') === 'False' ? 'failed' : ready?.status === 'True' ? 'exported' : isPending ? 'pending' : 'failed'
    return { state, isConflict: is('Conflict') === 'True', isUnused: is(CONDITION_IMPORTED) === 'False' }
  })
  if (all === undefined) return undefined
  return {
    total: all.length,
    exported: all.filter(({ state }) => state === 'exported').length,
    pending: all.filter(({ state }) => state === 'pending').length,
    failed: all.filter(({ state }) => state === 'failed').length,
    conflicts: all.filter(({ isConflict }) => isConflict).length,
    notImported: all.filter(({ isUnused }) => isUnused).length,
  }
}

function importCounts(world: World): ImportCounts | undefined {
  const { objects, reached, reports } = world
  if (objects.ServiceImport === undefined) return undefined
  const total = objects.ServiceImport.length
  const said = reports.flatMap(({ object: { notImported } }) => (notImported === undefined ? [] : [notImported]))
  const notImported = said.length === 0 ? {} : { notImported: counted(said) }
  if (objects.EndpointSlice === undefined && hasAllBackends(world)) {
    const usable = objects.ServiceImport.filter(({ object }) => (object.status?.clusters ?? []).length > 0).length
    return { total, usable, withoutBackends: 0, ...notImported }
  }
  if (objects.EndpointSlice === undefined || reached === undefined) return { total, ...notImported }
  const states = importStates(world)
  const withoutBackends = states.filter(({ usable }) => usable === 0).length
  return { total, usable: states.length - withoutBackends, withoutBackends, ...notImported }
}

function counted(said: readonly Readonly<Record<string, number>>[]): Readonly<Record<string, number>> {
  const rows = said.flatMap((one) => Object.entries(one)).filter(([, count]) => count > 0)
  const sorted = rows.sort(([a], [b]) => (a < b ? -1 : 1))
  return Object.fromEntries(sorted.map(([reason, count]): [string, number] => [printable(reason), count]))
}

function heard(ageMs: number | undefined): { readonly heardSecondsAgo?: number } {
  return ageMs === undefined ? {} : { heardSecondsAgo: Math.floor(ageMs / 1000) }
}
