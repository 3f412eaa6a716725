/** The way of a packet from the calling node to the called pod: rewriting, routes, gateways and the link. Pure. */
import { isAddress, prefixPairs } from '../../model/addresses/addresses.ts'
import { heartbeatAgeMs, isWebRelayName, remoteLaneOf } from '../../model/lanes/lanes.ts'
import { type ConnectionStatus, LABEL_K8S_SERVICE_NAME, machineText, nodeMachine } from '../../model/model.ts'
import { type Link, named } from '../facts/facts.ts'
import type { PacketTuple } from './document.ts'
import type { MemberView, Scope } from './member-view.ts'
import { type StepBase, type StepDraft, settled } from './station.ts'
import { type Backend, type Trip, type Way, globalOf, nodeOf, ownOf, tupleOf } from './trip.ts'

/** The first backend, as the example of a packet. Where backends differ, the station looks at all of them. */
function backendOf({ backends }: Way): Backend | undefined {
  const [first] = backends
  return first?.address === '' ? undefined : first
}

/** From the clusterset IP to one backend, on the node of the caller. Undefined where nothing is rewritten. */
export function balanceStep(trip: Trip, way: Way): StepDraft | undefined {
  const { here, caller, virtual, imported, to } = trip
  if (virtual === undefined || imported === undefined) return undefined
  const backend = backendOf(way)
  const { node, address: source } = caller
  const draft: StepDraft = {
    ...{ direction: 'forward', station: 'balance', cluster: here.self, component: 'routeagent' },
    ...(node === undefined ? {} : { node }),
    object: `clusterset IP ${virtual}`,
    input: tupleOf(trip, { source, destination: virtual, port: to.port }),
    output: tupleOf(trip, { source, destination: backend?.address, port: backend?.port ?? undefined }),
    decision: 'passes',
    message: `the node sends each new connection to one of ${way.backends.length} pods of ${way.cluster}`,
    ...{
      evidence: 'computed',
      source: imported.source,
      ageSeconds: here.ageOf(imported.at),
      next: 'sealane diagnose host',
    },
  }
  return settled(draft, here, nodeScope(trip, way))
}

function nodeScope({ caller, service }: Trip, { cluster }: Way): Scope {
  const scope = { cluster, nodes: caller.node === undefined ? [] : [caller.node] }
  return service === undefined ? scope : { ...scope, service }
}

/** Links of the gateways that carry packets of the caller; of all gateways where that is not known. */
interface WayLinks {
  /** Names of Nodes. Undefined if the node of the caller or its routes are not known. */
  readonly gateways: readonly string[] | undefined
  readonly links: readonly Link[]
  readonly up: readonly Link[]
}

export function wayLinks({ here, caller }: Trip, { cluster }: Way): WayLinks {
  const links = here.world.links.filter(({ connection }) => connection.cluster === cluster)
  const up = links.filter(({ connection }) => connection.state === 'up')
  const agent = caller.node === undefined ? undefined : here.find('RouteAgent', caller.node)
  const gateways = agent?.object.status?.clusters.find((one) => one.cluster === cluster)?.gateways
  const isOn = ({ node }: Link): boolean => gateways === undefined || gateways.length === 0 || gateways.includes(node)
  return { gateways, links: links.filter(isOn), up: up.filter(isOn) }
}

/** The route from the node of the caller over the overlay to the gateways. */
export function nodeStep(trip: Trip, way: Way, { gateways, up }: WayLinks): StepDraft {
  const { here, caller } = trip
  const { node } = caller
  const agent = node === undefined ? undefined : here.find('RouteAgent', node)
  const base: StepBase = {
    ...{ direction: 'forward', station: 'node', cluster: here.self, component: 'routeagent', evidence: 'observed' },
    ...(node === undefined ? {} : { node }),
    object: node === undefined ? caller.title : `RouteAgent ${node}`,
    ...{
      source: agent?.source ?? 'the objects of this cluster',
      ageSeconds: here.ageOf(agent?.at ?? here.world.takenAt),
    },
    next: 'sealane diagnose lanes',
  }
  const scope = nodeScope(trip, way)
  if (node === undefined) {
    return settled({ ...base, decision: 'unknown', message: `the node of ${caller.title} is not known` }, here, scope)
  }
  if (agent?.object.status === undefined) {
    if (here.seen('RouteAgent') === undefined) {
      const message = here.unansweredOf('RouteAgent') ?? 'RouteAgents could not be read'
      return { ...base, decision: 'unknown', reason: 'NotAnswered', message }
    }
    const [reason, message] = withoutAgent(here, node)
    return settled({ ...base, decision: 'fails', reason, message }, here, scope)
  }
  const { failure } = agent.object.status
  if ((gateways === undefined || gateways.length === 0) && failure !== undefined) {
    return settled({ ...base, decision: 'unknown', reason: 'RoundFailed', message: unread(node, failure) }, here, scope)
  }
  if (gateways === undefined || gateways.length === 0) {
    const isReached = here.world.reached?.has(way.cluster) === true
    const message = `${node} has no route to ${way.cluster} by any gateway`
    if (isReached) return settled({ ...base, decision: 'fails', reason: 'NodesCutOff', message }, here, scope)
    return settled({ ...base, decision: 'follows', message: `${message}, as no link is up` }, here, scope)
  }
  const { mtu } = agent.object.status.clusters.find((one) => one.cluster === way.cluster) ?? {}
  const isOwn = gateways.includes(node)
  const by = isOwn ? `${node} is a gateway` : `over the overlay to ${named(gateways)}`
  const draft: StepDraft = {
    ...{ ...base, decision: 'passes' },
    message: `${by}${mtu === undefined ? '' : `, packets up to ${mtu} bytes`}`,
    output: outgoing(trip, way),
  }
  // A firewall that closes a link is named at the link.
  const isLost = here.world.links.some((link) => link.node === node) && !up.some((link) => link.node === node)
  return isLost ? { ...draft, notes: [] } : settled(draft, here, scope)
}

/** A routeagent whose rounds fail reports no routes, and the kernel may still have those of an earlier round. */
function unread(node: string, failure: string): string {
  return `the routes of ${node} are not known, as its routeagent fails: ${failure}`
}

/** Why no routeagent reports on a node: none can run there, or it is missing. */
function withoutAgent(
  view: MemberView,
  node: string,
): readonly ['NodeWithoutRouteAgent' | 'RouteAgentMissing', string] {
  const machine = nodeMachine(view.find('Node', node)?.object)
  const other = machineText(machine)
  if (other === undefined) return ['RouteAgentMissing', `no routeagent reports on ${node}`]
  if (machine.is === 'virtual' && machine.onlyBy !== undefined) {
    return ['NodeWithoutRouteAgent', `${node} is ${other}, and no routeagent reports there`]
  }
  return ['NodeWithoutRouteAgent', `${node} is ${other}: no routeagent can run there`]
}

function outgoing(trip: Trip, way: Way): PacketTuple {
  const backend = backendOf(way)
  return tupleOf(trip, {
    source: trip.caller.address,
    destination: backend?.address,
    port: trip.virtual === undefined ? trip.to.port : backend?.port,
  })
}

/** The own gateway, which gives the caller its global address. */
export function gatewayStep(trip: Trip, way: Way, { gateways = [], up, links }: WayLinks): StepDraft {
  const { here, caller } = trip
  const { world } = here
  const nodes = gateways.length > 0 ? gateways : [...new Set(up.map(({ node }) => node))]
  const own = here.cluster(here.self)
  const input = outgoing(trip, way)
  const source = globalOf(caller.address, here.self, here)
  const output = { ...input, ...(source === undefined ? {} : { source }) }
  const isSame = caller.address === undefined ? !isTranslated(here) : source === caller.address
  const base: StepBase = {
    ...{ direction: 'forward', station: 'gateway', cluster: here.self, component: 'gateway', evidence: 'computed' },
    ...(nodes.length === 0 ? {} : { node: named(nodes) }),
    ...{ object: `Cluster ${here.self}`, input, output, source: own?.source ?? 'the objects of this cluster' },
    ...{ ageSeconds: here.ageOf(own?.at ?? world.takenAt), next: 'sealane show gateways' },
  }
  const scope = { ...nodeScope(trip, way), nodes }
  if (world.objects.Gateway !== undefined && world.fresh.length + world.silent.length === 0) {
    return settled({ ...base, decision: 'fails', reason: 'NoGateway', message: 'no gateway reports' }, here, scope)
  }
  const message = isSame
    ? 'the addresses of this cluster are unique: nothing is rewritten'
    : `the gateway rewrites the source to its global address${source === undefined ? '' : ` ${source}`}, one to one`
  const draft: StepDraft = { ...base, decision: 'passes', message }
  return links.length > 0 && up.length === 0 ? draft : settled(draft, here, scope)
}

/** Whether the gateways of this cluster give its pods global addresses. */
function isTranslated(here: MemberView): boolean {
  const own = here.cluster(here.self)
  return own !== undefined && prefixPairs(own.object.spec).length > 0
}

const MOST_BUCKETS = 6

/** The links between the gateways: which ones packets are spread over, by what, and in which state. */
export function linkStep(trip: Trip, way: Way, { links, up }: WayLinks): StepDraft {
  const { here } = trip
  const { world } = here
  const { cluster } = way
  const steady = up.filter(({ connection }) => connection.held !== true)
  const used = steady.length > 0 ? steady : up
  const [first] = used.length > 0 ? used : links
  const nodes = [...new Set(links.map(({ node }) => node))]
  const at = first?.gateway
  const base: StepBase = {
    ...{ direction: 'forward', station: 'link', cluster: here.self, component: 'gateway', evidence: 'observed' },
    ...(nodes.length === 0 ? {} : { node: named(nodes) }),
    object: first === undefined ? `Cluster ${cluster}` : linkName(first),
    source: at?.source ?? 'the objects of this cluster',
    ageSeconds: ageOfGateway(here, at) ?? here.ageOf(world.takenAt),
    next: 'sealane show connections',
  }
  const scope = { cluster, nodes: nodes.length > 0 ? nodes : gatewayNodes(here) }
  if (used.length > 0) {
    const left = links.filter((link) => !used.includes(link))
    const notes = [
      ...used.slice(0, MOST_BUCKETS).map((link) => `next hop ${linkName(link)}: ${linkText(here, link)}`),
      ...(used.length > MOST_BUCKETS ? [`${used.length - MOST_BUCKETS} more next hops`] : []),
      ...left
        .slice(0, 2)
        .map(
          (link) =>
            `left out ${linkName(link)}: ${link.connection.held === true ? 'it flaps' : link.connection.message}`,
        ),
    ]
    const message = `${used.length} of ${links.length} links to ${cluster} carry packets; ${first === undefined ? '' : linkText(here, first)}`
    return settled({ ...base, decision: 'passes', message, notes }, here, scope)
  }
  if (world.reached === undefined) {
    const isGone = world.silent.length > 0
    const message = isGone
      ? 'no gateway has reported lately'
      : (here.unansweredOf('Gateway') ?? 'Gateways could not be read')
    return settled(
      { ...base, decision: 'unknown', reason: isGone ? 'GatewayStatusStale' : 'NotAnswered', message },
      here,
      scope,
    )
  }
  const via = world.via.get(cluster)
  const notes = via === undefined ? [] : [`by the topology only relays of ${named(via)} may carry the links`]
  const message =
    links.length === 0 ? `no gateway has a link to ${cluster}` : `none of ${links.length} links to ${cluster} is up`
  const reason =
    links.length === 0
      ? 'NoLane'
      : links.some(({ connection }) => connection.state === 'down')
        ? 'LaneProbeTimeout'
        : 'LaneConnecting'
  return settled({ ...base, decision: 'fails', reason, message, notes }, here, scope)
}

function gatewayNodes({ world }: MemberView): string[] {
  return [...world.fresh, ...world.silent].map(({ object }) => object.metadata.name)
}

/** How old the report of a gateway is, by its heartbeat. */
function ageOfGateway({ world }: MemberView, gateway: Link['gateway'] | undefined): number | undefined {
  const ms = gateway === undefined ? undefined : heartbeatAgeMs(gateway.object, world.nowMs)
  return ms === undefined ? undefined : Math.floor(ms / 1000)
}

function linkName({ node, connection }: Link): string {
  return `Link ${node} lane ${connection.lane} to ${connection.cluster} lane ${remoteLaneOf(connection)}`
}

/** Cable, way, round trip, sizes and loss of a link. */
function linkText(here: MemberView, { connection, gateway }: Link): string {
  const { rttMs, mtu, loss, usingAddress, asleep } = connection
  const device = gateway.object.status?.lanes.find(
    (one) => one.lane === connection.lane && (one.remoteLane ?? one.lane) === remoteLaneOf(connection),
  )
  return [
    ...(device === undefined ? [] : [`${device.device} (${device.driver})`]),
    `${wayText(here, connection)}${usingAddress === undefined ? '' : ` by ${usingAddress}`}`,
    ...(rttMs === undefined ? [] : [`RTT ${rttMs} ms`]),
    ...(mtu === undefined ? [] : [`packets up to ${mtu} bytes`]),
    ...(loss === undefined || loss === 0 ? [] : [`${Math.round(loss * 100)} % lost`]),
    ...(asleep === true ? ['asleep: the next packet wakes it'] : []),
  ].join(', ')
}

/** Which rung of reach the tunnel uses. */
function wayText(
  here: MemberView,
  { cluster, usingNat, usingRelay, usingAddress, endpoint }: ConnectionStatus,
): string {
  if (here.world.via.has(cluster))
    return `${usingRelay === undefined ? 'through no relay' : `relayed by ${usingRelay}`}, by the topology`
  if (usingRelay !== undefined) return isWebRelayName(usingRelay) ? `over ${usingRelay}` : `relayed by ${usingRelay}`
  if (usingNat) return 'through NAT'
  const candidates = here.find('Endpoint', endpoint)?.object.spec.candidates ?? []
  const kind = candidates.find(({ address, port }) => {
    return usingAddress === `${address}:${port}` || usingAddress === `[${address}]:${port}`
  })?.kind
  return kind === undefined ? 'direct' : `direct (${kind} address)`
}

/** The far gateway, which gives the packet the pod's own address again. */
export function farGatewayStep(trip: Trip, way: Way, direction: 'forward' | 'return' = 'forward'): StepDraft {
  const { here, far } = trip
  const { cluster } = way
  const view = far.get(cluster)
  const record = here.cluster(cluster)
  const backend = backendOf(way)
  const own = backend === undefined ? undefined : ownOf(backend.address, cluster, here)
  const source = globalOf(trip.caller.address, here.self, here)
  const port = trip.virtual === undefined ? trip.to.port : backend?.port
  const outside = tupleOf(trip, { source, destination: backend?.address, port })
  const inside = tupleOf(trip, { source, destination: own, port })
  const hasPairs = record !== undefined && prefixPairs(record.object.spec).length > 0
  const nodes = view === undefined ? [] : [...new Set(linksBack(view, here.self).map(({ node }) => node))]
  const ends = direction === 'forward' ? { input: outside, output: inside } : answered(inside, outside)
  const draft: StepDraft = {
    ...{ direction, station: 'far-gateway', cluster, component: 'gateway', object: `Cluster ${cluster}` },
    ...(nodes.length === 0 ? {} : { node: named(nodes) }),
    ...ends,
    decision: 'passes',
    message: hasPairs
      ? `the gateway of ${cluster} rewrites ${direction === 'forward' ? 'the destination to the own' : 'the source to the global'} address of the pod, one to one`
      : `the addresses of ${cluster} are unique: nothing is rewritten`,
    ...{
      evidence: 'computed',
      source: record?.source ?? 'the objects of this cluster',
      ageSeconds: here.ageOf(record?.at ?? here.world.takenAt),
    },
    next: 'sealane show clusters',
  }
  return view === undefined ? draft : settled(draft, view, { cluster: here.self, nodes })
}

/** The tuples of an answer: source and destination change places, and the port is the sender's. */
function answered(input: PacketTuple, output: PacketTuple): Pick<StepDraft, 'input' | 'output'> {
  return { input: turned(input), output: turned(output) }
}

function turned({ protocol, source, destination }: PacketTuple): PacketTuple {
  return {
    protocol,
    ...(destination === undefined ? {} : { source: destination }),
    ...(source === undefined ? {} : { destination: source }),
  }
}

function linksBack(view: MemberView, to: string): readonly Link[] {
  return view.world.links.filter(({ connection }) => connection.cluster === to && connection.state === 'up')
}

/** The node of the called pod: its route back to the caller's cluster, by which it also gets packets. */
export function farNodeStep(trip: Trip, way: Way, direction: 'forward' | 'return'): StepDraft {
  const { here, far } = trip
  const { cluster } = way
  const view = far.get(cluster)
  const base = { direction, station: 'far-node', cluster, component: 'routeagent' } as const
  if (view === undefined) return notAsked(trip, base, `node of the pod in ${cluster}`)
  const own = ownAddresses(way, view)
  const { nodes, homeless } = podNodes(trip, view, own)
  const at = {
    evidence: 'observed',
    source: 'the objects of the other member',
    ageSeconds: view.ageOf(view.world.takenAt),
    ...{ next: 'sealane diagnose lanes', nextAt: cluster },
  } as const
  const [first] = nodes
  if (first === undefined) {
    const [pod] = own
    const message = `the node of ${pod ?? 'the pod'} is not known`
    return { ...base, ...at, object: pod ?? cluster, decision: 'unknown', message }
  }
  const ways = nodes.map((node) => farNodeWay(here, view, node))
  const bad = ways.filter(({ problem }) => problem !== undefined)
  const shown = bad[0] ?? ways[0]
  const node = named(nodes, MOST_NODES_NAMED)
  const agent = shown?.agent
  const rest = {
    ...base,
    ...at,
    node,
    object: `RouteAgent ${shown?.node ?? first}`,
    source: agent?.source ?? at.source,
  }
  if (shown?.problem !== undefined) {
    const isAll = bad.length === nodes.length && homeless === 0
    const [reason, message] = shown.problem
    const scope = { cluster: here.self, nodes: bad.map((one) => one.node) }
    const others = isAll ? '' : `; ${bad.length} of ${nodes.length} nodes with pods are like this`
    const found = settled({ ...rest, decision: 'fails', reason, message }, view, scope)
    return { ...found, decision: isAll ? 'fails' : 'partly', message: `${found.message}${others}` }
  }
  const failing = ways.find(({ failure }) => failure !== undefined)
  if (failing?.failure !== undefined) {
    return { ...rest, decision: 'unknown', reason: 'RoundFailed', message: unread(failing.node, failing.failure) }
  }
  if (homeless > 0) {
    const message = `the nodes of ${homeless} of ${own.length} pods are not known`
    return { ...rest, decision: 'unknown', message }
  }
  const tuple = tupleOf(trip, { destination: own[0] })
  const gateways = [...new Set(ways.flatMap((one) => one.gateways))]
  const draft: StepDraft = {
    ...rest,
    ...(direction === 'forward' ? { input: tuple, output: tuple } : {}),
    decision: 'passes',
    message: direction === 'forward' ? `${node} hands the packet to the pod` : `answers leave by ${named(gateways)}`,
  }
  return settled(draft, view, { cluster: here.self, nodes })
}

const MOST_NODES_NAMED = 4

interface FarNodeWay {
  readonly node: string
  readonly agent: ReturnType<typeof routeAgentOf>
  readonly gateways: readonly string[]
  /** Why its routes are not known. */
  readonly failure?: string
  readonly problem?: readonly ['NodeWithoutRouteAgent' | 'RouteAgentMissing' | 'NodesCutOff', string]
}

function routeAgentOf(view: MemberView, node: string) {
  return view.find('RouteAgent', node)
}

function farNodeWay(here: MemberView, view: MemberView, node: string): FarNodeWay {
  const agent = routeAgentOf(view, node)
  if (agent?.object.status === undefined) {
    return { node, agent, gateways: [], problem: withoutAgent(view, node) }
  }
  const gateways = agent.object.status.clusters.find((one) => one.cluster === here.self)?.gateways ?? []
  if (gateways.length > 0) return { node, agent, gateways }
  const { failure } = agent.object.status
  if (failure !== undefined) return { node, agent, gateways, failure }
  return { node, agent, gateways, problem: ['NodesCutOff', `${node} has no route to ${here.self} by any gateway`] }
}

/** The addresses that the backends of a way have in their own cluster. */
function ownAddresses({ backends, cluster }: Way, view: MemberView): readonly string[] {
  return backends.flatMap(({ address }) => (address === '' ? [] : [ownOf(address, cluster, view)]))
}

/** More pods that no slice gives a node are not looked for among the ranges of nodes. */
const MOST_LOOKED_FOR = 100

/** The nodes of pods, sorted, and the number of pods whose node is not known. */
function podNodes(
  { service }: Trip,
  view: MemberView,
  addresses: readonly string[],
): { readonly nodes: readonly string[]; readonly homeless: number } {
  const slices = service === undefined ? [...view.slices()].flat() : view.slicesOf(service, true)
  const known = new Map<string, string>()
  for (const { endpoints = [] } of slices) {
    for (const { nodeName, addresses: all } of endpoints) {
      if (nodeName !== undefined) for (const one of all) known.set(one, nodeName)
    }
  }
  const missing = addresses.filter((one) => !known.has(one) && isAddress(one)).slice(0, MOST_LOOKED_FOR)
  for (const one of missing) {
    const node = nodeOf(one, view)
    if (node !== undefined) known.set(one, node)
  }
  const nodes = [...new Set(addresses.flatMap((one) => known.get(one) ?? []))].sort()
  return { nodes, homeless: addresses.filter((one) => !known.has(one)).length }
}

function notAsked(
  { here }: Trip,
  base: Pick<StepDraft, 'direction' | 'station' | 'cluster' | 'component'>,
  object: string,
): StepDraft {
  return {
    ...{ ...base, object, decision: 'unknown', reason: 'FarSideNotAsked' },
    message: `only ${base.cluster} knows: it was not asked (--to-context, --to-site)`,
    ...{ evidence: 'configured', source: 'the records of this cluster', ageSeconds: here.ageOf(here.world.takenAt) },
  }
}

/** The called pod: what its cluster publishes about it, and which policies there keep packets out. */
export function farPodStep(trip: Trip, way: Way): StepDraft {
  const { here, far, service } = trip
  const { cluster } = way
  const view = cluster === here.self ? here : far.get(cluster)
  const backend = backendOf(way)
  const base = { direction: 'forward', station: 'far-pod', cluster, component: 'kubernetes' } as const
  if (view === undefined)
    return notAsked(
      trip,
      base,
      `pod ${backend === undefined ? 'of the service' : ownOf(backend.address, cluster, here)}`,
    )
  const own = backend === undefined ? undefined : ownOf(backend.address, cluster, view)
  const draft: StepDraft = {
    ...{ ...base, object: `pod ${own ?? 'of the service'}`, decision: 'passes' },
    message: 'no NetworkPolicy that can be read keeps the packet out',
    ...{ evidence: 'computed', source: 'the objects of the other member', ageSeconds: view.ageOf(view.world.takenAt) },
    ...{ next: 'sealane diagnose services', nextAt: cluster },
  }
  const called = service ?? ownService(view, own)
  return settled(draft, view, called === undefined ? {} : { service: called })
}

function ownService(view: MemberView, address: string | undefined): Trip['service'] {
  for (const slices of view.slices()) {
    for (const { metadata, endpoints = [] } of slices) {
      const name = metadata.labels?.[LABEL_K8S_SERVICE_NAME]
      const isIt = endpoints.some(({ addresses }) => address !== undefined && addresses.includes(address))
      if (isIt && name !== undefined) return { namespace: metadata.namespace ?? '', name }
    }
  }
  return undefined
}

/** The answer on the same links: probes pass both ways, and the far end reports how large its packets may be. */
export function linkBackStep(trip: Trip, { cluster }: Way, { up }: WayLinks): StepDraft {
  const { here } = trip
  const [first] = up
  const size = first?.connection.receiveMtu
  const base: StepBase = {
    ...{ direction: 'return', station: 'link', cluster, component: 'gateway', evidence: 'observed' },
    object: first === undefined ? `Cluster ${cluster}` : linkName(first),
    ...{
      source: first?.gateway.source ?? '-',
      ageSeconds: ageOfGateway(here, first?.gateway) ?? 0,
      next: 'sealane show connections',
    },
  }
  const message = `probes are answered${size === undefined ? '' : `, packets up to ${size} bytes arrive`}`
  return {
    ...base,
    decision: first === undefined ? 'unknown' : 'passes',
    message: first === undefined ? 'no link is known to be up' : message,
  }
}

/** The own gateway on the way back, and from there to the node of the caller. */
export function backHomeSteps(trip: Trip, way: Way, { gateways, up }: WayLinks): readonly StepDraft[] {
  const { here, caller, virtual, to } = trip
  const nodes = gateways ?? [...new Set(up.map(({ node }) => node))]
  const source = globalOf(caller.address, here.self, here)
  const isSame = caller.address === undefined ? !isTranslated(here) : source === caller.address
  const backend = backendOf(way)
  const at = {
    evidence: 'computed',
    source: 'the objects of this cluster',
    ageSeconds: here.ageOf(here.world.takenAt),
    next: 'sealane diagnose host',
  } as const
  const outside = tupleOf(trip, { source, destination: backend?.address })
  const inside = tupleOf(trip, { source: caller.address, destination: backend?.address })
  const gateway: StepDraft = {
    ...{
      direction: 'return',
      station: 'gateway',
      cluster: here.self,
      component: 'gateway',
      object: `Cluster ${here.self}`,
      ...at,
    },
    ...(nodes.length === 0 ? {} : { node: named(nodes) }),
    ...answered(outside, inside),
    decision: 'passes',
    message: isSame ? 'nothing is rewritten' : 'the gateway gives the caller its own address again',
  }
  const isRewritten = virtual !== undefined
  const home: StepDraft = {
    ...{
      direction: 'return',
      station: 'node',
      cluster: here.self,
      component: 'routeagent',
      object: caller.title,
      ...at,
    },
    ...(caller.node === undefined ? {} : { node: caller.node }),
    ...answered(
      inside,
      isRewritten ? tupleOf(trip, { source: caller.address, destination: virtual, port: to.port }) : inside,
    ),
    decision: 'passes',
    message: isRewritten
      ? 'the node gives the answer the clusterset IP as its source'
      : 'the node hands the answer to the caller',
  }
  return [settled(gateway, here, { cluster: way.cluster, nodes }), settled(home, here, nodeScope(trip, way))]
}
