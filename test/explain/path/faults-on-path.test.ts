/**
 * Each code that ends a call, the facts that carry it, and the station at which `sealane explain` ends. The codes are
 * those of the failure table; docs/explain.md is written from the same list.
 */
import t from 'tap'
import type { Fact, FactSet } from '../../../explain/facts/fact.ts'
import type { ProbeItems } from '../../../explain/facts/probe-shapes.ts'
import { ON_PATH } from '../../../explain/path/reasons-on-path.ts'
import { parseRuleset } from '../../../kernel/look/parse-ruleset.ts'
import type { ReasonCode } from '../../../model/reasons/reasons.ts'
import { ALL_FAILURES } from '../../../scripts/documents/failures.ts'
import { NOW, SELF, condition } from '../../support/objects/member-facts.ts'
import { namespaceObject } from '../../support/objects/service-objects.ts'
import { DOWN, type Loose, changeLinks } from '../broken-member.ts'
import { type At, type TwoInit, endOf, explained, importedSlice, pathObjects } from './two-members.ts'

const links = (change: object) => (at: At) => changeLinks(at, () => true, change)
const named = (at: At, kind: Parameters<At>[0], name: string): Loose | undefined =>
  at(kind).find(({ metadata }) => metadata.name === name)
const agent = (at: At, change: object, name = 'w0'): void => {
  Object.assign(named(at, 'RouteAgent', name)?.status ?? {}, change)
}
const withFact =
  (fact: Fact) =>
  (set: FactSet): FactSet => ({ ...set, facts: [...set.facts, fact] })

function host(
  node: string,
  rest: object,
  rules: readonly object[] = [],
  tables = ['sealane_gateway', 'sealane_node'],
): TwoInit {
  const own = tables.map((name) => ({ table: { family: 'ip', name } }))
  const firewall = parseRuleset({ nftables: [...own, ...rules] }, 'sealane_')
  const devices = [
    { name: 'cni0', addresses: ['10.42.2.1'] },
    { name: 'sealane0', addresses: ['246.0.1.0'] },
  ]
  const item = JSON.parse(
    JSON.stringify({ node, devices, sysctls: {}, disks: [], firewall, ...rest }),
  ) as ProbeItems['host']
  return { facts: withFact({ t: 'probe', kind: 'host', source: 'here', at: NOW, items: [item] }) }
}

const place = { family: 'ip', table: 'filter' }
const chain = (hook: string, policy: string): object => ({
  chain: { ...place, name: hook, type: 'filter', hook, prio: 0, policy },
})
const dropsLanes = [
  chain('input', 'accept'),
  {
    rule: {
      ...place,
      chain: 'input',
      expr: [
        { match: { op: '==', left: { payload: { protocol: 'udp', field: 'dport' } }, right: { range: [4500, 4507] } } },
        { drop: null },
      ],
    },
  },
]

const dns = (result: string, role: 'ours' | 'cluster' = 'cluster'): TwoInit => ({
  facts: withFact({
    ...{ t: 'probe', kind: 'dns-answer', source: 'here', at: NOW },
    items: [{ server: '10.43.0.10:53', role, name: 'db.shop.svc.clusterset.local', result, ms: 3 }],
  }),
})

const unimported = (reason: ReasonCode, type: 'Valid' | 'Ready' = 'Valid'): TwoInit => ({
  here: (at) => void (at('ServiceImport').length = 0),
  there: (at) => {
    const [one] = at('ServiceExport')
    if (one !== undefined) one.status.conditions = [condition(type, 'False', reason, 'as the message says')]
  },
})

const closed = (spec: object, namespace = 'shop') => ({
  ...{ metadata: { name: 'closed', namespace }, spec: { podSelector: {}, ...spec } },
})

const noBackend = { ...pathObjects(SELF), EndpointSlice: [{ ...importedSlice(), endpoints: [] }] }

/** From a code to what is broken, and the end if it is not the first station of the code. */
const FAULTS: Partial<Readonly<Record<ReasonCode, TwoInit | readonly [TwoInit, end: string]>>> = {
  NoMembership: { here: (at) => void (at('Membership').length = 0) },
  PolicyKeepsIn: { here: (at) => void at('NetworkPolicy').push(closed({ policyTypes: ['Egress'] }) as never) },

  DnsLoop: {
    facts: withFact({
      ...{ t: 'probe', kind: 'settings', source: 'here', at: NOW },
      items: [{ listen: ['10.0.0.1:53'], upstreams: ['10.0.0.1:53'] }],
    }),
  },
  DnsServerSilent: dns('timeout'),
  DnsServerFails: dns('SERVFAIL', 'ours'),
  DoesNotAnswer: dns('NXDOMAIN'),
  PartNotReady: {
    here: (at) => {
      Object.assign(named(at, 'Deployment', 'sealane-dns')?.status ?? {}, { readyReplicas: 0 })
      named(at, 'Cluster', SELF)?.status.conditions.splice(0, 1, condition('ClusterDNS', 'False', 'DoesNotAnswer', 'x'))
    },
  },
  PartMissing: {
    here: (at) => {
      const all = at('Deployment')
      all.splice(
        all.findIndex(({ metadata }) => metadata.name === 'sealane-dns'),
        1,
      )
      named(at, 'Cluster', SELF)?.status.conditions.splice(0, 1, condition('ClusterDNS', 'False', 'DoesNotAnswer', 'x'))
    },
  },
  PolicyStopsPart: {
    here: (at) => {
      at('NetworkPolicy').length = 0
      at('NetworkPolicy').push(closed({ policyTypes: ['Ingress'] }, 'sealane-system') as never)
      named(at, 'Cluster', SELF)?.status.conditions.splice(0, 1, condition('ClusterDNS', 'False', 'DoesNotAnswer', 'x'))
    },
  },
  NoService: unimported('NoService'),
  InvalidServiceType: unimported('InvalidServiceType'),
  NamespaceNotAllowed: unimported('NamespaceNotAllowed', 'Ready'),
  Pending: unimported('Pending', 'Ready'),
  Failed: unimported('Failed', 'Ready'),
  NamespaceMissing: {
    here: (at) => void (at('ServiceImport').length = 0),
    objects: { ...pathObjects(SELF), Namespace: [namespaceObject('other')] },
  },
  NotImported: {
    here: (at) => void (at('ServiceImport').length = 0),
    there: (at) => {
      at('ServiceExport')[0]?.status.conditions.push(
        condition('sealane.io/Imported', 'False', 'NotImported', 'milano: NameTaken'),
      )
    },
  },
  ImportsMissing: { here: (at) => void (at('ServiceImport').length = 0) },

  ImportsWithoutBackends: {
    here: (at) => void Object.assign(at('EndpointSlice')[0] ?? {}, { endpoints: [] }),
    objects: noBackend,
  },
  AddressOutsidePods: {
    objects: noBackend,
    there: (at) =>
      void at('ServiceExport')[0]?.status.conditions.push(
        condition('sealane.io/Complete', 'False', 'AddressOutsidePods', 'x'),
      ),
  },
  PodsOutsideRanges: {
    objects: noBackend,
    there: (at) =>
      void named(at, 'Cluster', 'paris')?.status.conditions.push(
        condition('PodAddresses', 'False', 'PodsOutsideRanges', 'x'),
      ),
  },
  BackendDown: {
    objects: noBackend,
    there: (at) => {
      const slice = {
        metadata: { name: 'db-1', namespace: 'shop', labels: { 'kubernetes.io/service-name': 'db' } },
        endpoints: [],
      }
      const status = { check: 'tcp', backends: [{ address: '10.42.2.5', up: false, since: NOW, message: 'refused' }] }
      at('EndpointSlice').push({ ...slice, status } as never)
    },
  },

  KernelTableMissing: host('w0', {}, [], []),
  NodesCutOff: { here: (at) => agent(at, { clusters: [{ cluster: 'paris', gateways: [], mtu: 0 }] }) },
  RouteAgentMissing: { here: (at) => void at('RouteAgent').pop() },
  RouteAgentSilent: [{ here: (at) => agent(at, { heartbeatTime: '2020-01-01T00:00:00Z' }) }, 'REACHABLE'],
  OverlayPortDiffers: {
    here: (at) => {
      for (const { metadata, status } of at('RouteAgent')) status['overlayPort'] = metadata.name === 'w0' ? 4811 : 4810
    },
  },
  ChecksumOffloadNotSwitched: {
    here: (at) =>
      agent(at, { conditions: [condition('ChecksumOffload', 'Unknown', 'ChecksumOffloadNotSwitched', 'no ethtool')] }),
  },
  ForwardPoliciesMissing: [
    {
      here: (at) =>
        agent(at, { conditions: [condition('ClosedWithoutTables', 'False', 'ForwardPoliciesMissing', 'no XFRM')] }),
    },
    'REACHABLE',
  ],
  OpenWithoutTables: [
    {
      here: (at) =>
        agent(at, {
          conditions: [condition('ClosedWithoutTables', 'False', 'OpenWithoutTables', 'failClosed is false')],
        }),
    },
    'REACHABLE',
  ],
  GatewayNodeUnheard: [
    {
      here: (at) => agent(at, { conditions: [condition('NodesAnswer', 'Unknown', 'GatewayNodeUnheard', 'gw0, gw1')] }),
    },
    'AMBIGUOUS',
  ],
  // A node that hears no gateway has no route, which is the finding.
  GatewayNodeSilent: [
    {
      here: (at) => agent(at, { silentNodes: ['gw0', 'gw1'], clusters: [{ cluster: 'paris', gateways: [], mtu: 0 }] }),
    },
    'node NodesCutOff',
  ],
  KernelRoutesMissing: host('w0', { routes: {} }),
  ForwardingOff: host('w0', { sysctls: { 'net/ipv4/ip_forward': '0' } }),
  FirewallDrops: host('w0', {}, [chain('forward', 'drop')]),
  ConnectionTableFull: host('w0', { connections: { used: 10, limit: 10 } }),

  NoGateway: {
    here: (at) => {
      at('Gateway').length = 0
      for (const { metadata } of at('Node')) delete metadata.labels
    },
  },
  NoLane: { here: (at) => at('Gateway').forEach(({ status }) => void (status.connections = [])) },
  FarGatewayAwaited: {
    here: (at) => {
      at('Gateway').forEach(({ status }) => void (status.connections = []))
      const own = at('Endpoint').filter(({ metadata }) => metadata.name.startsWith(SELF))
      at('Endpoint').splice(0, 99, ...own)
      named(at, 'Cluster', 'paris')?.status.conditions.splice(1, 1)
    },
  },
  ClusterCutOff: { here: links(DOWN), asks: false },
  UdpOneWay: { here: links({ ...DOWN, cause: 'NoneAnswers' }), asks: false },
  NeitherEndCallable: { here: links({ ...DOWN, cause: 'NeitherCallable' }), asks: false },
  NeitherEndHears: { here: links(DOWN), there: links(DOWN) },
  // Of one end alone that is down, that end is the finding.
  LinkEndsDiffer: [
    { here: links({ ...DOWN, cause: 'NoneAnswers' }), there: links({ state: 'connecting', cause: 'NoneAnswers' }) },
    'link LinkEndsDiffer',
  ],
  LaneProbeTimeout: [{ here: links(DOWN), asks: false }, 'link ClusterCutOff'],
  LaneConnecting: [{ here: links({ state: 'connecting' }), asks: false }, 'link ClusterCutOff'],
  PortTaken: {
    here: (at) => {
      links(DOWN)(at)
      for (const { status } of at('Gateway'))
        Object.assign(status, { failure: 'UDP 4500 is taken', failureReason: 'PortTaken' })
    },
    asks: false,
  },
  Silent: {
    here: (at) => {
      links(DOWN)(at)
      named(at, 'Cluster', 'paris')?.status.conditions.splice(
        0,
        1,
        condition('InContact', 'False', 'Silent', 'not heard'),
      )
    },
    asks: false,
  },
  GatewaySilent: [
    { here: (at) => at('Gateway').forEach(({ status }) => void (status['heartbeatTime'] = '2026-11-25T11:50:00Z')) },
    'UNDETERMINED',
  ],
  GatewayStatusStale: [
    { here: (at) => at('Gateway').forEach(({ status }) => void (status['heartbeatTime'] = '2026-11-25T11:50:00Z')) },
    'UNDETERMINED',
  ],

  PolicyKeepsOut: {
    there: (at) => {
      at('NetworkPolicy').push(closed({ policyTypes: ['Ingress'] }) as never)
      const service = {
        metadata: { name: 'db', namespace: 'shop' },
        spec: { type: 'ClusterIP', selector: { app: 'db' }, ports: [{ port: 5432, protocol: 'TCP' }] },
      }
      Object.assign(at('Service'), { 0: service, length: 1 })
    },
  },
  StrictReversePath: [host('gw0', { sysctls: { 'net/ipv4/conf/sealane0/rp_filter': '1' } }), 'AMBIGUOUS'],
  WorkerNodeSilent: [
    {
      here: (at) => {
        for (const { metadata, status } of at('RouteAgent')) if (metadata.name !== 'w0') status['silentNodes'] = ['w0']
      },
    },
    'AMBIGUOUS',
  ],
}

/** Codes that only explain why links that are down are down; the facts above have each of their forms. */
const CAUSES_OF_LINKS: readonly ReasonCode[] = [
  'AllClustersCutOff',
  'GatewayCutOff',
  'FarGatewayUnreached',
  'MemberEvicted',
]

t.test('a node that only its roles show to be virtual may be a machine whose routeagent is missing', async (t) => {
  const roles = { 'node-role.kubernetes.io/edge': '', 'node-role.kubernetes.io/agent': '' }
  const here = (at: At): void => {
    for (const node of at('Node')) {
      if (node.metadata.name === 'w0') node.metadata.labels = { ...node.metadata.labels, ...roles }
    }
    const agents = at('RouteAgent')
    agents.splice(0, 99, ...agents.filter(({ metadata }) => metadata.name !== 'w0'))
  }
  const { failing, steps } = explained({ here })
  t.match(failing, { station: 'node', reason: 'NodeWithoutRouteAgent' })
  const message = 'w0 is a virtual node (KubeEdge, by its roles alone), and no routeagent reports there'
  t.ok(
    steps.some((step) => step.message === message),
    steps.map((step) => step.message).join('\n'),
  )
})

t.test('a pod on a node that runs no routeagent: what the node is, at either end', async (t) => {
  const rows: readonly (readonly [string, Readonly<Record<string, string>>, string])[] = [
    ['Windows', { 'kubernetes.io/os': 'windows' }, 'w0 is a node with windows: no routeagent can run there'],
    [
      'a virtual node',
      { type: 'virtual-kubelet' },
      'w0 is a virtual node (Virtual Kubelet): no routeagent can run there',
    ],
  ]
  const isOther =
    (labels: Readonly<Record<string, string>>) =>
    (at: At): void => {
      const [node] = at('Node').filter(({ metadata }) => metadata.name === 'w0')
      if (node !== undefined) node.metadata.labels = { ...node.metadata.labels, ...labels }
      const agents = at('RouteAgent')
      agents.splice(0, 99, ...agents.filter(({ metadata }) => metadata.name !== 'w0'))
    }
  for (const [name, labels, message] of rows) {
    const caller = explained({ here: isOther(labels) })
    t.match(caller.failing, { station: 'node', reason: 'NodeWithoutRouteAgent' }, `${name} of the caller`)
    const callee = explained({ there: isOther(labels) })
    t.match(callee.failing, { station: 'far-node', reason: 'NodeWithoutRouteAgent' }, `${name} of the called pod`)
    for (const { steps } of [caller, callee]) {
      t.ok(
        steps.some((step) => step.message === message),
        message,
      )
    }
  }
})

t.test('every code that ends a call has a row, and the failure table has it', async (t) => {
  const ending = Object.entries(ON_PATH).flatMap(([code, { effect }]) =>
    effect === 'note' ? [] : [code as ReasonCode],
  )
  t.same(
    ending.filter((code) => FAULTS[code] === undefined && !CAUSES_OF_LINKS.includes(code)),
    [],
  )
  const known = new Set<string>(ALL_FAILURES.map(({ code }) => code))
  t.same(
    Object.keys(ON_PATH).filter((code) => !known.has(code)),
    [],
  )
})

for (const [code, row] of Object.entries(FAULTS)) {
  t.test(code, async (t) => {
    const [init, end] = Array.isArray(row) ? (row as [TwoInit, string]) : [row as TwoInit, undefined]
    const found = explained(init)
    const [first] = ON_PATH[code as ReasonCode]?.at ?? []
    t.equal(endOf(found), end ?? `${first ?? '-'} ${code}`, found.message)
  })
}

t.test('one of several firewalls: at the link where that is down, before it where it is up', async (t) => {
  const drops = host('gw0', {}, dropsLanes)
  t.equal(endOf(explained({ ...drops, here: links(DOWN), asks: false })), 'link FirewallDrops')
  t.equal(endOf(explained(drops)), 'REACHABLE')
  t.equal(
    endOf(explained({ ...drops, here: links(DOWN), there: links(DOWN) })),
    'link FirewallDrops',
    'also if both ends are asked',
  )
})

t.test('a fault of another node, cluster or service ends no call', async (t) => {
  t.equal(
    endOf(explained(host('gw1', { sysctls: { 'net/ipv4/ip_forward': '0' } }))),
    'AMBIGUOUS',
    'one of two gateways',
  )
  const all: readonly TwoInit[] = [
    host('w9', { sysctls: { 'net/ipv4/ip_forward': '0' } }),
    { here: (at) => changeLinks(at, (_, node) => node === 'gw1', DOWN) },
    { here: (at) => void at('NetworkPolicy').push(closed({ policyTypes: ['Egress'] }, 'bank') as never) },
  ]
  for (const init of all) t.equal(endOf(explained(init)), 'REACHABLE')
})

t.test('what the far side alone knows is undetermined without it', async (t) => {
  const found = explained({ asks: false })
  t.equal(endOf(found), 'UNDETERMINED')
  const unknown = found.steps.filter(({ decision }) => decision === 'unknown')
  t.same(new Set(unknown.map(({ station }) => station)), new Set(['far-node', 'far-pod']))
  t.same(new Set(unknown.map(({ reason }) => reason)), new Set(['FarSideNotAsked']))
})
