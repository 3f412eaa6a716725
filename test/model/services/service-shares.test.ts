/**
 * Shares from the objects of a cluster: of ports, under egress rules, and to which clusters open
 * connections are ended.
 */
import fc from 'fast-check'
import t from 'tap'
import { clustersWithoutEgress } from '../../../model/access/access.ts'
import {
  type ServiceShares,
  type SharesPlan,
  type SharesWorld,
  TrafficPolicies,
  endedClusters,
  sharesOfPort,
  sharesOfService,
  statedShares,
} from '../../../model/services/services.ts'
import type { ClusterAccessPolicy, EndpointSlice, ImportPort, TrafficPolicy } from '../../../model/objects.ts'
import { cluster, serviceImport, slice } from '../../routeagent/support/site.ts'

const NOW = { 'sealane.io/drained': 'true', 'sealane.io/drained-now': 'true' }

t.test('open connections are ended only while another cluster takes the calls', (t) => {
  const paris = cluster('paris', 2, '244.1.0.0/16')
  type Drain = 'cluster' | 'cluster now' | 'service now' | 'cluster, its slices say now' | 'slices alone say now'
  type Case = readonly [say: string, drain: Drain, roma: string, reachable: readonly string[], want: string]
  const rows: readonly Case[] = [
    ['drained only', 'cluster', '244.2.0.5', ['paris', 'roma'], ''],
    ['the cluster', 'cluster now', '244.2.0.5', ['paris', 'roma'], 'paris'],
    ['the service', 'service now', '244.2.0.5', ['paris', 'roma'], 'paris'],
    ['the CRD of an earlier release', 'cluster, its slices say now', '244.2.0.5', ['paris', 'roma'], 'paris'],
    ['a mark of a drain that is over', 'slices alone say now', '244.2.0.5', ['paris', 'roma'], ''],
    ['out of reach: a client waits in vain', 'cluster now', '244.2.0.5', ['roma'], 'paris'],
    ['the last one that is ready', 'cluster now', '244.2.0.5!', ['paris', 'roma'], ''],
    ['the last one, while its link fails for a moment', 'cluster now', '244.2.0.5!', [], ''],
    ['so with a service', 'service now', '244.2.0.5!', [], ''],
    ['no cluster is reached', 'cluster now', '244.2.0.5', [], ''],
  ]
  for (const [say, drain, roma, reachable, want] of rows) {
    const spec = drain.startsWith('cluster') ? { ...paris.spec, drained: true } : paris.spec
    const now = drain === 'cluster now' ? { ...spec, drainedNow: true } : spec
    const mark = drain.endsWith('say now') ? { 'sealane.io/drained-now': 'true' } : {}
    const annotations = drain === 'service now' ? NOW : mark
    const marked = slice('web', 'paris', ['244.1.0.5'])
    const slices: EndpointSlice[] = [
      { ...marked, metadata: { ...marked.metadata, annotations } },
      slice('web', 'roma', [roma]),
    ]
    const world: SharesWorld = {
      ...{ self: 'milano', clusterset: undefined, reachable: new Set(reachable) },
      clusters: new Map([
        ['paris', { ...paris, spec: now }],
        ['roma', cluster('roma', 3, '244.2.0.0/16')],
      ]),
      policies: new TrafficPolicies({ policies: [], clusterPolicies: [] }),
      withoutEgress: new Set(),
    }
    const shares = sharesOfService(serviceImport('web', '245.0.0.7'), slices, world)
    const ended = shares === undefined ? [] : [...endedClusters(shares, slices, world)]
    t.equal(ended.join(), want, say)
    const message = shares?.shares.find(({ cluster: id }) => id === 'paris')?.message ?? ''
    t.equal(message.includes('are ended'), want !== '' && reachable.includes('paris'), `${say}: "${message}"`)
  }
  t.end()
})

const IDS = ['lyon', 'paris', 'roma']
const MEMBERS = IDS.map((id, i) => cluster(id, i + 2, `244.${i + 1}.0.0/16`))
const HTTP: ImportPort = { name: 'http', protocol: 'TCP', port: 80 }
const GRPC: ImportPort = { name: 'grpc', protocol: 'TCP', port: 90 }
const BOTH = serviceImport('web', '245.0.0.7', { ports: [HTTP, GRPC] })
const ANY = { any: {} }

interface WorldInit {
  readonly spec?: TrafficPolicy['spec']
  readonly drained?: string
  readonly egress?: ClusterAccessPolicy['spec']['egress']
  readonly self?: string
}

function worldOf({ spec, drained, egress, self = 'milano' }: WorldInit): SharesWorld {
  const metadata = { name: 'p', namespace: 'shop', uid: 'p', generation: 1 }
  const policies: TrafficPolicy[] =
    spec === undefined ? [] : [{ apiVersion: 'sealane.io/v1alpha1', kind: 'TrafficPolicy', metadata, spec }]
  const access: ClusterAccessPolicy[] =
    egress === undefined
      ? []
      : [
          {
            apiVersion: 'sealane.io/v1alpha1',
            kind: 'ClusterAccessPolicy',
            metadata: { name: 'default' },
            spec: { default: 'allow', egress },
          },
        ]
  return {
    ...{ self, clusterset: 'demo', reachable: undefined },
    clusters: new Map(
      MEMBERS.map((one) => [one.spec.id, { ...one, spec: { ...one.spec, drained: one.spec.id === drained } }]),
    ),
    policies: new TrafficPolicies({ policies, clusterPolicies: [] }),
    withoutEgress: clustersWithoutEgress(access, MEMBERS, self),
  }
}

/** The endpoints of a cluster behind these ports, at addresses of its own. */
function served(id: string, addresses: readonly string[], ...ports: readonly ImportPort[]): EndpointSlice {
  const net = IDS.indexOf(id) + 1
  const made = slice(
    'web',
    id,
    addresses.map((one) => `244.${net}.0.${one}`),
    [...ports],
  )
  const name = [made.metadata.name, ...ports.map(({ name: port }) => port)].join('-')
  return { ...made, metadata: { ...made.metadata, name } }
}

function shown({ shares }: SharesPlan): string {
  return shares.flatMap(({ cluster: id, share }) => (share > 0 ? [`${id} ${share}`] : [])).join(', ')
}

function ofPorts(shares: ServiceShares | undefined): readonly string[] | undefined {
  return shares && [HTTP, GRPC].map((port) => shown(sharesOfPort(shares, port)))
}

t.test('each port is divided among the clusters that serve it', async (t) => {
  // lyon has http alone.
  const slices = [served('lyon', ['1'], HTTP), served('paris', ['1'], HTTP, GRPC), served('roma', ['1'], GRPC, HTTP)]
  const byId = (id: string) => ({
    propertySelector: { matchProperties: { 'cluster.clusterset.k8s.io': id } },
  })
  const chosen = { ...BOTH, spec: { ...BOTH.spec, clusterSelectors: [byId('lyon'), byId('paris')] } }
  const first = [{ clusters: ['lyon'] }]
  const rows: readonly (readonly [
    say: string,
    world: WorldInit,
    want: readonly string[] | undefined,
    of?: typeof BOTH,
  ])[] = [
    ['nothing is divided', {}, undefined],
    [
      'in the order of tiers',
      { spec: { order: [...first, { clusters: ['paris'] }, ANY] } },
      ['lyon 10000', 'paris 10000'],
    ],
    ['by cluster selectors', {}, ['lyon 10000', 'paris 10000'], chosen],
    ['not to a drained one', { spec: { order: [...first, ANY] }, drained: 'paris' }, ['lyon 10000', 'roma 10000']],
    [
      'not to one of weight 0',
      { spec: { order: [...first, { ...ANY, weights: { paris: 0 } }] } },
      ['lyon 10000', 'roma 10000'],
    ],
    ['refused', { spec: { order: first, whenNoneReady: 'refuse' } }, ['lyon 10000', '']],
    [
      'the local one first',
      { self: 'lyon', spec: { order: [{ local: {} }, ANY] } },
      ['lyon 10000', 'paris 5000, roma 5000'],
    ],
  ]
  for (const [say, init, want, service = BOTH] of rows)
    t.strictSame(ofPorts(sharesOfService(service, slices, worldOf(init))), want, say)
  const all = IDS.map((id) => served(id, ['1'], HTTP, GRPC))
  const order = { spec: { order: [...first, ANY] } }
  t.strictSame(sharesOfService(BOTH, all, worldOf(order))?.ports, [], 'all serve all ports: one plan')
  const twoSlices = [...all.slice(1), served('lyon', ['1'], HTTP), served('lyon', ['1'], GRPC)]
  t.strictSame(sharesOfService(BOTH, twoSlices, worldOf(order))?.ports, [], 'and so by slices of single ports')
  const bad = [served('lyon', ['1'], HTTP, { ...GRPC, port: 70_000 }), ...all.slice(1)]
  t.strictSame(ofPorts(sharesOfService(BOTH, bad, worldOf(order))), ['lyon 10000', 'paris 5000, roma 5000'])
  const none = [served('lyon', [], HTTP), ...all.slice(1)]
  t.strictSame(sharesOfService(BOTH, none, worldOf(order))?.ports, [], 'a slice without endpoints serves nothing')
})

t.test('the shares of a port are those of the service with only the endpoints that serve it', async (t) => {
  const ports = fc.constantFrom([HTTP], [GRPC], [HTTP, GRPC], [GRPC, HTTP])
  const addresses = fc.uniqueArray(
    fc.tuple(fc.integer({ min: 1, max: 9 }), fc.constantFrom('', '!', '~')).map(([last, mark]) => `${last}${mark}`),
    { maxLength: 4, selector: (one) => one[0] },
  )
  const slices = fc.uniqueArray(
    fc.tuple(fc.constantFrom(...IDS), addresses, ports).map(([id, some, of]) => served(id, some, ...of)),
    { maxLength: 7, selector: ({ metadata }) => metadata.name },
  )
  const tier = fc.oneof(
    fc.subarray(IDS, { minLength: 1 }).map((clusters) => ({ clusters })),
    fc.dictionary(fc.constantFrom(...IDS), fc.nat(100)).map((weights) => ({ ...ANY, weights })),
  )
  const spec = fc.record({
    order: fc.array(tier, { minLength: 1, maxLength: 3 }),
    spillBelowPercent: fc.constantFrom(0, 50, 100),
    whenNoneReady: fc.constantFrom('all' as const, 'refuse' as const),
  })
  const drained = fc.option(fc.constantFrom(...IDS), { nil: undefined })
  let differing = 0
  fc.assert(
    fc.property(slices, spec, drained, (slices, spec, drained) => {
      const world = worldOf({ spec, ...(drained === undefined ? {} : { drained }) })
      const shares = sharesOfService(BOTH, slices, world)
      if (shares === undefined) return false
      if (shares.ports.length > 0) differing += 1
      return [HTTP, GRPC].every((port) => {
        const serving = slices.filter((one) => one.ports?.some(({ name }) => name === port.name) === true)
        const alone = { ...BOTH, spec: { ...BOTH.spec, ports: [port] } }
        const { refused, ...want } = statedShares(alone, serving, world)
        const got = sharesOfPort(shares, port)
        return shown(got) === shown({ refused, ...want }) && got.refused === refused
      })
    }),
    { numRuns: 500 },
  )
  t.ok(differing > 50, `${differing} of 500 have ports of their own`)
})

t.test('the endpoints that are read for the ports of a service are limited', (t) => {
  const ports = Array.from({ length: 256 }, (_, i): ImportPort => ({ name: `p${i}`, protocol: 'TCP', port: 1 + i }))
  let read = 0
  const slices = ports.map(({ name }, i) => {
    const id = IDS[i % IDS.length] ?? ''
    const endpoints = Array.from({ length: 200 }, (_, n) => ({
      get addresses() {
        read += 1
        return [`10.${i}.0.${n}`]
      },
      conditions: {},
    }))
    // Each port is served by all slices but its own.
    const made = served(id, [], ...ports.filter((port) => port.name !== name))
    return { ...made, metadata: { ...made.metadata, name: `web-${name}` }, endpoints }
  })
  const service = serviceImport('web', '245.0.0.7', { ports })
  const shares = statedShares(service, slices, worldOf({}))
  t.ok(read > 900_000 && read <= 1_000_000 + 256 * 200, `${read} of 13 million are read`)
  const own = ports.map((port) => sharesOfPort(shares, port) !== shares)
  t.equal(own.lastIndexOf(true), 18, 'the first ports have their own shares')
  t.equal(own.filter(Boolean).length, 19, 'and the rest those of the service')
  t.end()
})

t.test('what egress rules shut gets no calls', async (t) => {
  const slices = IDS.map((id) => served(id, ['1'], HTTP, GRPC))
  const rows: readonly (readonly [say: string, egress: WorldInit['egress'], want: string | undefined])[] = [
    ['no rules', undefined, undefined],
    ['all', [{}], undefined],
    ['one cluster', [{ clusters: ['paris'] }], 'paris 10000'],
    [
      'single namespaces may call',
      [{ clusters: ['paris'] }, { clusters: ['roma'], namespaces: ['shop'] }],
      'paris 5000, roma 5000',
    ],
    ['by labels of namespaces', [{ clusters: ['roma'], namespaceSelector: {} }], 'roma 10000'],
    ['no namespace at all', [{ namespaces: [] }], ''],
    ['nothing', [], ''],
    ['what this release does not understand', [{ clusters: ['paris'], unknown: 1 } as never], ''],
  ]
  for (const [say, egress, want] of rows) {
    const shares = sharesOfService(BOTH, slices, worldOf(egress === undefined ? {} : { egress }))
    t.equal(shares && shown(shares), want, say)
    if (want === '') t.ok(shares?.refused, say)
  }
  const { shares } = statedShares(BOTH, slices, worldOf({ egress: [{ clusters: ['paris'] }] }))
  t.match(shares, [{ cluster: 'lyon', reason: 'CallsNotAllowed' }, { reason: 'ByReadyEndpoints' }, {}])
  const own = sharesOfService(BOTH, slices, worldOf({ self: 'lyon', egress: [] }))
  t.equal(own && shown(own), 'lyon 10000', 'a cluster may always call itself')
})

t.test('endpoints that terminate are no part of a tier: a rollout spills nothing', async (t) => {
  const leaving = Array.from({ length: 20 }, (_, i) => `${100 + i}~`)
  const ready = Array.from({ length: 10 }, (_, i) => `${1 + i}`)
  const spec = { order: [{ clusters: ['lyon'] }, ANY], spillBelowPercent: 50 }
  const plan = (addresses: readonly string[], others: readonly string[]): string => {
    const slices = [served('lyon', addresses, HTTP, GRPC), served('paris', others, HTTP, GRPC)]
    const shares = sharesOfService(BOTH, slices, worldOf({ spec }))
    return shares === undefined ? '-' : shown(shares)
  }
  t.equal(plan([...ready, ...leaving], ['1']), 'lyon 10000')
  const waiting = leaving.map((one) => one.replace('~', '!'))
  t.equal(plan([...ready, ...waiting], ['1']), 'lyon 6667, paris 3333', 'those that are not ready are')
  t.equal(plan(leaving, ['1~', '2~']), 'lyon 9091, paris 909', 'with none ready, those that still serve are called')
})
