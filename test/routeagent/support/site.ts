/** Objects of a small site in short notation: milano with gateways and workers, among paris and tokyo. */
import type {
  Cluster,
  ConnectionState,
  Endpoint,
  EndpointSlice,
  Gateway,
  ImportPort,
  Membership,
  Node,
  RouteAgent,
  ServiceImport,
  SliceEndpoint,
} from '../../../model/objects.ts'
import { parsePrefix } from '../../../model/values/ip.ts'
import { LABEL_SERVICE_NAME, LABEL_SOURCE_CLUSTER, LABEL_ZONE } from '../../../model/spec-constants.ts'
import type { KernelFacts, NodeRouteWorld } from '../../../routeagent/world/node-world.ts'
import type { NodeNftWorld } from '../../../routeagent/balance/plan-node-table.ts'
import type { ServiceContext } from '../../../routeagent/balance/plan-service.ts'
import { clusterObject, endpointObject, membershipObject } from '../../support/objects/cluster-objects.ts'
import {
  connectionTo,
  gatewayObject,
  internalIps,
  nodeObject,
  routeAgentObject,
} from '../../support/objects/node-objects.ts'
import { importObject, sliceObject } from '../../support/objects/service-objects.ts'

/** The devices of the node `worker`: its underlay, and the bridge of its pods. */
export const WORKER_LINKS: KernelFacts['links'] = [
  { name: 'lo', index: 1, kind: '', mtu: 65536, up: true, mac: '' },
  { name: 'eth0', index: 2, kind: 'veth', mtu: 1500, up: true, mac: '02:00:00:00:00:02' },
  { name: 'cni0', index: 3, kind: 'bridge', mtu: 1500, up: true, mac: '02:00:00:00:00:03' },
]

/** What the machine of the node `worker` reports about IPv4. */
export const WORKER_FACTS: KernelFacts = {
  links: WORKER_LINKS,
  addresses: [
    { device: 'lo', address: '127.0.0.1/8' },
    { device: 'eth0', address: '192.168.7.11/24' },
    { device: 'cni0', address: '10.42.1.1/24' },
    { device: 'cni0', address: 'fe80::1/64' },
  ],
  mainRoutes: [{ destination: '10.42.1.0/24', type: 'unicast', device: 'cni0' }],
  bridgeNetfilter: '1',
}

/** The node `worker` of milano, in zone `a`, before it is known which clusters answer. */
export const SERVICE_CONTEXT: ServiceContext = {
  node: 'worker',
  self: 'milano',
  zone: 'a',
  clustersetIpRange: parsePrefix('245.0.0.0/16'),
  reachable: undefined,
}

/** What the table of that node depends on besides the services. */
export const NFT_WORLD: NodeNftWorld = {
  family: 4,
  podCidrs: ['10.42.0.0/16'],
  nodePodCidrs: ['10.42.1.0/24'],
  localCidrs: ['10.42.1.0/24'],
  remote: ['244.1.0.0/16'],
  clustersetIpRange: '245.0.0.0/16',
  bridgeHidesAnswers: false,
  overlayPorts: [4810],
  overlay: { local: '192.168.7.11', devices: ['eth0'] },
  overlayNodes: ['192.168.7.1'],
  otherGateways: undefined,
  isOnlyGateway: false,
  openPorts: [],
  sampled: false,
  exposure: 'pods',
  marksAgain: false,
  ownPods: undefined,
  callers: new Map(),
  origins: [],
}

export function membership(phase: 'joined' | 'leaving' = 'joined'): Membership {
  return membershipObject({ phase })
}

export function node(name: string, internalIp?: string, podCIDR?: string, zone?: string): Node {
  return nodeObject(name, {
    metadata: zone === undefined ? {} : { labels: { [LABEL_ZONE]: zone } },
    spec: podCIDR === undefined ? {} : { podCIDR },
    status: internalIp === undefined ? internalIps() : internalIps(internalIp),
  })
}

export function cluster(id: string, index: number, globalCIDR?: string, podCIDR = '10.42.0.0/16'): Cluster {
  const globalCIDRs = globalCIDR === undefined ? [] : [globalCIDR]
  return clusterObject({ id, index, podCIDRs: [podCIDR], serviceCIDRs: ['10.43.0.0/16'], globalCIDRs })
}

/** The same cluster with IPv6, which is never translated. */
export function dualStack(object: Cluster, podCIDR: string): Cluster {
  const { podCIDRs, globalCIDRs } = object.spec
  const global = globalCIDRs.length === 0 ? [] : [...globalCIDRs, podCIDR]
  return { ...object, spec: { ...object.spec, podCIDRs: [...podCIDRs, podCIDR], globalCIDRs: global } }
}

export function dualStackNode(object: Node, podCIDR: string): Node {
  const { podCIDR: first, podCIDRs = first === undefined ? [] : [first] } = object.spec ?? {}
  return { ...object, spec: { ...object.spec, podCIDRs: [...podCIDRs, podCIDR] } }
}

/** The gateways gw-a and gw-b, and the worker. */
export const NODES: readonly [Node, Node, Node] = [
  node('gw-a', '192.168.7.1', '10.42.0.0/24'),
  node('gw-b', '192.168.7.2', '10.42.2.0/24'),
  node('worker', '192.168.7.11', '10.42.1.0/24', 'a'),
]

/**
 * The world of the worker: three overlapping clusters, one lane at gw-a, two at gw-b, where one of three links is down.
 */
export function routeWorld(change: Partial<NodeRouteWorld> = {}): NodeRouteWorld {
  return {
    node: 'worker',
    self: 'milano',
    nodes: NODES,
    clusters: [
      cluster('tokyo', 3, '244.2.0.0/16'),
      cluster('milano', 1, '244.0.0.0/16'),
      cluster('paris', 2, '244.1.0.0/16'),
    ],
    endpoints: [
      endpoint('milano', 'gw-a'),
      endpoint('milano', 'gw-b', 1),
      endpoint('milano', 'gw-b', 2),
      endpoint('paris', 'gw'),
    ],
    gateways: [
      gateway('gw-a', { paris: 'up', tokyo: 'up' }),
      gateway('gw-b', { paris: ['down', 'up', 'up'], tokyo: 'down' }, 1380),
    ],
    routeAgents: [],
    globalRange: '244.0.0.0/8',
    clustersetIpRange: '245.0.0.0/16',
    overlayPort: 4810,
    facts: WORKER_FACTS,
    ...change,
  }
}

export function endpoint(clusterId: string, nodeName: string, lane = 0): Endpoint {
  return endpointObject({ cluster: clusterId, node: nodeName, lane })
}

/** `{ paris: 'up' }` is lane 0; `{ paris: ['up', 'down'] }` are lanes 0 and 1. */
export function gateway(
  nodeName: string,
  states?: Readonly<Record<string, ConnectionState | readonly ConnectionState[]>>,
  mtu = 1440,
): Gateway {
  if (states === undefined) return gatewayObject(nodeName)
  const connections = Object.entries(states).flatMap(([id, lanes]) =>
    [lanes].flat().map((state, lane) => connectionTo(id, state, { lane })),
  )
  const numbers = [...new Set(connections.map((c) => c.lane))]
  const lanes = numbers.map((lane) => ({ lane, device: `sealane${lane}`, mtu, driver: 'kernel' }))
  return gatewayObject(nodeName, { version: 'test', lanes, connections })
}

/** The node's report of the ranges of its pods. */
export function routeAgent(name: string, ...podRanges: readonly string[]): RouteAgent {
  return routeAgentObject(name, { podRanges })
}

const HTTP: ImportPort = { name: 'http', protocol: 'TCP', port: 80 }

export function serviceImport(name: string, ip: string, spec: Partial<ServiceImport['spec']> = {}): ServiceImport {
  return importObject({ name }, { type: 'ClusterSetIP', ips: [ip], ports: [HTTP], ...spec })
}

/**
 * `244.1.0.5` is ready, `244.1.0.5!` is not, and `244.1.0.5~` serves while it terminates. The node and the zone may
 * follow, with the zones of its hints: `10.42.1.5 on worker in a for a,b`.
 */
export function slice(
  service: string,
  clusterId: string,
  addresses: readonly string[],
  ports: EndpointSlice['ports'] = [{ name: 'http', protocol: 'TCP', port: 8080 }],
): EndpointSlice {
  const labels = { [LABEL_SERVICE_NAME]: service, [LABEL_SOURCE_CLUSTER]: clusterId }
  const reported = { endpoints: addresses.map(sliceEndpoint), ports }
  return sliceObject({ name: `${service}-${clusterId}`, labels }, reported)
}

/** The same with IPv6 addresses, since Kubernetes keeps each family in slices of its own. */
export function slice6(...init: Parameters<typeof slice>): EndpointSlice {
  const made = slice(...init)
  return { ...made, metadata: { ...made.metadata, name: `${made.metadata.name}-ipv6` }, addressType: 'IPv6' }
}

function sliceEndpoint(text: string): SliceEndpoint {
  const [address = '', ...place] = text.split(' ')
  const after = (word: string): string | undefined => place[place.indexOf(word) + 1 || place.length]
  const [nodeName, zone, zones] = ['on', 'in', 'for'].map(after)
  return {
    addresses: [address.replace(/[!~]$/, '')],
    ...(nodeName === undefined ? {} : { nodeName }),
    ...(zone === undefined ? {} : { zone }),
    ...(zones === undefined ? {} : { hints: { forZones: zones.split(',').map((name) => ({ name })) } }),
    conditions: sliceConditions(address),
  }
}

function sliceConditions(address: string): NonNullable<SliceEndpoint['conditions']> {
  if (address.endsWith('!')) return { ready: false, serving: false, terminating: false }
  if (address.endsWith('~')) return { ready: false, serving: true, terminating: true }
  return { ready: true }
}
