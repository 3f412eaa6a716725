/** Calls that end although single steps look well: what was not looked at, both families, effects without a cause. */
import t from 'tap'
import type { FactSet } from '../../../explain/facts/fact.ts'
import { explainPath } from '../../../explain/path/explain-path.ts'
import type { PathObjects } from '../../../explain/path/member-view.ts'
import { parseFrom, parseTo } from '../../../explain/path/path-ends.ts'
import { pathText } from '../../../cli/status/path/path-text.ts'
import type { AccessPolicy, EndpointSlice, Pod, TrafficPolicy } from '../../../model/objects.ts'
import { SELF, factSet } from '../../support/objects/member-facts.ts'
import { DOWN, changeLinks } from '../broken-member.ts'
import { type At, type TwoInit, endOf, explained, importedSlice, memberObjects, pathObjects } from './two-members.ts'

const CLUSTER_LABEL = 'multicluster.kubernetes.io/source-cluster'

const here = (change: PathObjects): PathObjects => ({ ...pathObjects(SELF), ...change })

function sliceOf(cluster: string, change: Partial<EndpointSlice> = {}): EndpointSlice {
  const slice = importedSlice()
  const labels = { ...slice.metadata.labels, [CLUSTER_LABEL]: cluster }
  return {
    ...slice,
    ...change,
    metadata: { ...slice.metadata, name: `db-${cluster}-${change.addressType ?? ''}`, labels },
  }
}

/** Other members beside paris, with links as good as those to paris. */
const withMembers =
  (...ids: string[]) =>
  (at: At): void => {
    const [, paris] = at('Cluster')
    for (const [i, id] of ids.entries()) {
      const spec = { ...paris!.spec, id, globalCIDRs: [`244.${i + 3}.0.0/16`], index: i + 3 }
      at('Cluster').push({ ...paris!, metadata: { name: id }, spec })
    }
    at('ServiceImport')[0]!.status['clusters'] = ['paris', ...ids].map((cluster) => ({ cluster })) as never
    const copied = (all: readonly object[]): object[] =>
      [...all].flatMap((one) => [one, ...ids.map((cluster) => ({ ...one, cluster }))])
    for (const { status } of at('Gateway')) status.connections = copied(status.connections) as never
    for (const { status } of at('RouteAgent')) status['clusters'] = copied(status['clusters']) as never
  }

const IPV6_PODS: EndpointSlice = sliceOf('paris', {
  ...{ addressType: 'IPv6', endpoints: [{ addresses: ['fd02::5'] }] },
})
const withIps =
  (...ips: string[]) =>
  (at: At): void => {
    Object.assign(at('ServiceImport')[0]!.spec, { ips })
    for (const [i, { spec }] of at('Cluster').entries()) {
      for (const field of ['podCIDRs', 'globalCIDRs']) (spec[field] as string[]).push(`fd0${i + 1}::/64`)
    }
  }
const podWith = (...ips: string[]): Pod => {
  const [pod] = pathObjects(SELF).Pod ?? []
  return { ...pod!, status: { ...pod!.status, podIP: ips[0]!, podIPs: ips.map((ip) => ({ ip })) } }
}

const unimported = (at: At): void => void (at('ServiceImport').length = 0)
const exposesPods = (at: At): void => void (at('Membership')[0]!.spec['exposure'] = 'pods')
const ONLY_TOKYO: AccessPolicy = {
  ...{ apiVersion: 'sealane.io/v1alpha1', kind: 'AccessPolicy', metadata: { name: 'few', namespace: 'shop' } },
  spec: { from: [{ clusters: ['tokyo'] }] },
}
const refusing = pathObjects('paris', [ONLY_TOKYO])
const { AccessPolicy: _policies, ...unread } = pathObjects('paris')

function traffic(spec: Partial<TrafficPolicy['spec']>): TrafficPolicy {
  const metadata = { name: 'db', namespace: 'shop' }
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'TrafficPolicy',
    metadata,
    spec: { targetRefs: [], ...spec },
  }
}
const TARGET = { targetRefs: [{ group: 'multicluster.x-k8s.io', kind: 'ServiceImport', name: 'db' }] } as object
const notReady = [{ addresses: ['244.2.2.6'], conditions: { ready: false } }]
const twoNodes = (at: At): void => {
  for (const { metadata, status } of at('RouteAgent'))
    if (metadata.name === 'gw0') status['clusters'] = [{ cluster: SELF, gateways: [], mtu: 0 }] as never
}
const onTwoNodes: TwoInit = {
  objects: here({
    EndpointSlice: [sliceOf('paris', { endpoints: [{ addresses: ['244.2.2.5'] }, { addresses: ['244.2.0.5'] }] })],
  }),
  there: twoNodes,
}
const roundFails = (at: At): void => {
  for (const { status } of at('RouteAgent')) Object.assign(status, { clusters: [], failure: 'no IPv4 address' })
}
const headless =
  (change?: (at: At) => void) =>
  (at: At): void => {
    Object.assign(at('ServiceImport')[0]!.spec, { type: 'Headless', ips: [] })
    change?.(at)
  }

const ROWS: Readonly<Record<string, readonly [TwoInit, end: string]>> = {
  'not offered, and the exporter exposes all its pods': [
    { here: unimported, there: exposesPods, farObjects: refusing },
    'access CallsNotAllowed',
  ],
  'not imported, and the policies of the exporter are unread': [
    { here: unimported, farObjects: unread },
    'name NameUnknown',
  ],
  'the name of a pod of a service that is not headless': [{ to: 'a.paris.db.shop' }, 'name NameUnknown'],
  'an IPv6 pod, from a caller with IPv4 alone': [
    { to: 'fd02::5', here: withIps('245.0.0.9') },
    'caller IPFamilyNotSupported',
  ],
  'a service of IPv6 alone, from a caller with IPv4 alone': [
    { here: withIps('fd00:5ea::9'), objects: here({ EndpointSlice: [IPV6_PODS] }) },
    'caller IPFamilyNotSupported',
  ],
  'both families, and pods of IPv6 alone, from a caller with IPv4 alone': [
    { here: withIps('245.0.0.9', 'fd00:5ea::9'), objects: here({ EndpointSlice: [IPV6_PODS] }) },
    'backends NoReadyEndpoint',
  ],
  'an IPv6 service, from a caller whose second address is of IPv6': [
    {
      ...{ here: withIps('fd00:5ea::9'), asks: false },
      objects: here({ EndpointSlice: [IPV6_PODS], Pod: [podWith('10.42.2.7', 'fd01::7')] }),
    },
    'UNDETERMINED',
  ],
  'UDP to a port of an exported service that has it by TCP': [
    { to: '244.2.2.5:5433/udp' },
    'access access-not-exported',
  ],
  'the routeagent of the caller fails, and reports no routes': [{ here: roundFails }, 'UNDETERMINED'],
  'the routeagents of the called side fail, and report no routes': [{ there: roundFails }, 'UNDETERMINED'],
  'one of two nodes with pods is cut off': [onTwoNodes, 'AMBIGUOUS'],
  'refused, as one cluster is not ready and the other in no tier': [
    {
      here: withMembers('tokyo'),
      objects: here({
        EndpointSlice: [sliceOf('paris', { endpoints: notReady }), sliceOf('tokyo')],
        TrafficPolicy: [traffic({ ...TARGET, order: [{ clusters: ['paris'] }], whenNoneReady: 'refuse' })],
      }),
    },
    'shares NoneReadyRefused',
  ],
  'headless, and no packets reach the only cluster': [
    { here: headless((at) => changeLinks(at, () => true, DOWN)), asks: false },
    'link ClusterCutOff',
  ],
  'headless, and no pod is ready: DNS answers none': [
    { here: headless(), objects: here({ EndpointSlice: [sliceOf('paris', { endpoints: notReady })] }) },
    'backends NoReadyEndpoint',
  ],
  'a headless pod by the name that is made of its address': [
    { here: headless(), to: '244-2-2-5.paris.db.shop' },
    'REACHABLE',
  ],
  'a headless pod that does not exist': [{ here: headless(), to: 'x.paris.db.shop' }, 'backends NoReadyEndpoint'],
}

for (const [name, [init, end]] of Object.entries(ROWS)) {
  t.test(name, async (t) => {
    const found = explained(init)
    t.equal(endOf(found), end, found.message)
  })
}

t.test('a service whose name has two addresses is called by the family of the caller', async (t) => {
  const both = here({ EndpointSlice: [importedSlice(), IPV6_PODS], Pod: [podWith('fd01::7', '10.42.2.7')] })
  const found = explained({ here: withIps('245.0.0.9', 'fd00:5ea::9'), objects: both, asks: false })
  const balance = found.steps.find(({ station }) => station === 'balance')
  t.match(balance?.input, { source: 'fd01::7', destination: 'fd00:5ea::9' })
  t.match(balance?.output, { destination: 'fd02::5' })
  t.match(found.steps[0]?.notes, [/for IPv4/])
})

t.test('the member that refuses is named, also after one that does not export the service', async (t) => {
  const side = (id: 'paris', change: (at: At) => void, objects: PathObjects) => {
    const own = memberObjects(id)
    change((kind) => (own[kind] ?? []) as never)
    return { facts: factSet(own), objects }
  }
  const own = memberObjects(SELF)
  own.ServiceImport = []
  withMembersOnly(own.Cluster as never)
  const tokyo = side(
    'paris',
    (at) => {
      at('Membership')[0]!.spec['clusterId'] = 'tokyo'
      at('ServiceExport').length = 0
    },
    pathObjects('paris'),
  )
  const found = explainPath(
    { from: parseFrom('shop/front-0'), to: parseTo('db.shop') },
    {
      here: { facts: factSet(own), objects: pathObjects(SELF) },
      far: [
        { ...tokyo, title: '--to-context t' },
        { ...side('paris', exposesPods, refusing), title: '--to-context p' },
      ],
    },
  )
  if ('wrong' in found) throw new Error(found.wrong)
  t.equal(endOf(found), 'access CallsNotAllowed', found.message)
  t.equal(found.steps.at(-1)?.cluster, 'paris')
  t.match(found, { next: 'sealane access check milano/shop db.shop', nextAt: 'paris' })
  t.same(found.asked, [
    { option: '--to-context t', cluster: 'tokyo', isOnWay: false },
    { option: '--to-context p', cluster: 'paris', isOnWay: true },
  ])
  t.match(pathText(found, false), /asked: tokyo \(--to-context t\), which is on no way of this call\n/)
})

function withMembersOnly(clusters: { metadata: object; spec: object }[]): void {
  const [, paris] = clusters
  clusters.push({
    ...paris!,
    metadata: { name: 'tokyo' },
    spec: { ...paris!.spec, id: 'tokyo', globalCIDRs: ['244.3.0.0/16'] },
  })
}

t.test('members that cannot be the called side are refused', async (t) => {
  const ask = (change: (at: At) => void, id: typeof SELF | 'paris' = 'paris'): unknown => {
    const own = memberObjects(id)
    change((kind) => (own[kind] ?? []) as never)
    return explainPath(
      { from: parseFrom('shop/front-0'), to: parseTo('db.shop') },
      {
        here: { facts: factSet(memberObjects(SELF)), objects: pathObjects(SELF) },
        far: [{ facts: factSet(own), title: '--to-context x' }],
      },
    )
  }
  const stranger = (at: At): void => void (at('Membership')[0]!.spec['clusterId'] = 'stranger')
  t.match(ask(stranger), { wrong: '--to-context x: stranger is no member of clusterset demo' })
  t.match(
    ask((at) => void (at('Membership')[0]!.spec['clusterset'] = 'other')),
    { wrong: /paris is no member of/ },
  )
  t.match(
    ask((at) => void (at('Membership').length = 0)),
    { wrong: '--to-context x: has not joined a clusterset' },
  )
  t.match(
    ask(() => undefined, SELF),
    { wrong: '--to-context x: is milano, where the caller is' },
  )
})

t.test('of many ways all count, and those that end are listed first', async (t) => {
  const ids = ['a1', 'a2', 'a3', 'a4', 'a5']
  const found = explained({
    asks: false,
    here: (at) => {
      withMembers(...ids)(at)
      for (const { status } of at('RouteAgent'))
        for (const one of status['clusters'] as { cluster: string; gateways: string[] }[])
          if (one.cluster === 'a5') one.gateways = []
    },
    objects: here({ EndpointSlice: ['paris', ...ids].map((id) => sliceOf(id)) }),
  })
  t.equal(found.outcome, 'AMBIGUOUS', found.message)
  t.match(found.message, /^it depends on the connection: packets to a5 end at step \d+, node: /)
  t.match(pathText(found, false), /\nnext: sealane diagnose lanes\n$/, 'with the command to run next')
  t.equal(found.waysLeftOut, 2)
  t.match(
    found.ways.find(({ cluster }) => cluster === 'a5'),
    { outcome: 'UNREACHABLE', failing: { station: 'node', reason: 'NodesCutOff' } },
  )
})

t.test('a node calls by its own address among the pods, as far as that is known', async (t) => {
  const unknown = explained({ from: 'w0' })
  t.equal(endOf(unknown), 'REACHABLE', unknown.message)
  const gateway = unknown.steps.find(({ station }) => station === 'gateway')
  t.equal(gateway?.input?.source, undefined)
  t.match(gateway?.message, 'rewrites the source')
  const devices = [
    { name: 'eth0', addresses: ['192.0.2.3/24'] },
    { name: 'cni0', addresses: ['10.42.2.1/24'] },
  ]
  const item = { node: 'w0', devices, sysctls: {}, disks: [] }
  const probe = { t: 'probe', kind: 'host', source: 'here', at: '2026-11-25T12:00:00Z', items: [item] }
  const facts = (set: FactSet): FactSet => ({ ...set, facts: [...set.facts, probe as never] })
  const known = explained({ from: 'w0', facts })
  t.match(known.steps.find(({ station }) => station === 'gateway')?.output, { source: '244.1.2.1' })
})

t.test('a port number of both protocols: the backend has the port of the protocol', async (t) => {
  const ports = [
    { name: 'dns', port: 53, protocol: 'TCP' },
    { name: 'dns-udp', port: 53, protocol: 'UDP' },
  ] as const
  const own = [
    { name: 'dns', port: 5301, protocol: 'TCP' },
    { name: 'dns-udp', port: 5302, protocol: 'UDP' },
  ] as const
  const init: TwoInit = {
    here: (at) => void Object.assign(at('ServiceImport')[0]!.spec, { ports }),
    objects: here({ EndpointSlice: [sliceOf('paris', { ports: own })] }),
  }
  const outputOf = (to: string) => explained({ ...init, to }).steps.find(({ station }) => station === 'balance')?.output
  t.match(outputOf('db.shop:53/udp'), { port: 5302 })
  t.match(outputOf('db.shop:53'), { port: 5301 })
})

t.test('commands for copying are whole commands, and have no text of objects that is no name', async (t) => {
  const evil = 'x;$(touch evil) --site /'
  const own = memberObjects(SELF)
  for (const one of own.ServiceImport as { metadata: { name: string } }[]) one.metadata.name = evil
  for (const from of ['shop/front-0', 'w0', '10.42.2.9']) {
    const asked = explainPath(
      { from: parseFrom(from), to: parseTo('245.0.0.9:5432') },
      { here: { facts: factSet(own), objects: pathObjects(SELF) } },
    )
    if ('wrong' in asked) throw new Error(asked.wrong)
    const all = [
      asked,
      explained({ from }),
      explained({ from, to: '244.2.2.5:5433' }),
      explained({ from, to: '244.2.2.9/udp' }),
    ]
    for (const { next, steps } of all)
      for (const command of [next, ...steps.map((step) => step.next)])
        t.match(command ?? 'sealane', /^sealane(?: [a-z0-9][a-z0-9.:/[\]-]*)*$/)
  }
})

t.test(
  'headless: DNS answers pods of clusters that packets reach, and with `follow` of those with a share',
  async (t) => {
    const slices = [sliceOf('paris'), sliceOf('tokyo', { endpoints: [{ addresses: ['244.3.2.5'] }] })]
    const nameOf = (policies: readonly TrafficPolicy[], change?: (at: At) => void) => {
      const objects = here({ EndpointSlice: slices, TrafficPolicy: policies })
      const both = (at: At): void => {
        withMembers('tokyo')(at)
        headless(change)(at)
      }
      const found = explained({ asks: false, objects, here: both })
      return found.steps.find(({ station }) => station === 'name')
    }
    t.match(nameOf([])?.message, /^244.2.2.5, 244.3.2.5 for/)
    const follow = traffic({ ...TARGET, headless: 'follow', order: [{ clusters: ['tokyo'] }] })
    t.match(nameOf([follow])?.message, /^244.3.2.5 for/)
    t.match(nameOf([], (at) => changeLinks(at, ({ cluster }) => cluster === 'tokyo', DOWN))?.message, /^244.2.2.5 for/)
    t.match(
      nameOf([], (at) => changeLinks(at, () => true, DOWN)),
      { decision: 'follows' },
    )
  },
)
