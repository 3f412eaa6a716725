/**
 * What the pods of a node may call in other clusters, traced through the planned table, and compared with the offers and
 * the egress rules themselves. What a real kernel makes of the table: test/lanes/access.test.ts.
 */
import fc from 'fast-check'
import t from 'tap'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import { type TracePacket, traceNft } from '../../../kernel/fake/fake-nft-tracer.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { ANNOTATION_CALLERS, callersText } from '../../../model/access/callers.ts'
import { mayCall } from '../../../model/access/offer.ts'
import { NFT_TABLE_NODE } from '../../../model/kernel-ids.ts'
import type { ClusterAccessPolicy, EndpointSlice, KubeObject, Namespace, Pod } from '../../../model/objects.ts'
import type { Offer } from '../../../model/records.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { type AccessPlan, NOTHING_OFFERED } from '../../../routeagent/access/access-chains.ts'
import { NO_ACCESS_CHANGES } from '../../../routeagent/access/plan-access.ts'
import { NOTHING_LIMITED } from '../../../routeagent/access/plan-calls.ts'
import { AccessReader } from '../../../routeagent/access/read-access.ts'
import { NodeTable } from '../../../routeagent/balance/node-table.ts'
import { BalancePlanner } from '../../../routeagent/balance/plan-balancing.ts'
import { accessSite, nodeNftWorld, serviceContext } from '../../../routeagent/balance/plan-node-table.ts'
import { addressFamily } from '../../../routeagent/world/address-family.ts'
import { routeAgentMetrics } from '../../../routeagent/world/metrics.ts'
import { routeAgentCaches } from '../../../routeagent/world/read-world.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { clusterAccessPolicy } from '../../support/objects/access-objects.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'
import { namespaceObject } from '../../support/objects/service-objects.ts'
import { podObject } from '../support/pod-object.ts'
import { cluster, routeWorld, slice } from '../support/site.ts'

const NEVER = new AbortController().signal
const CLUSTERS = [
  cluster('milano', 1, '244.0.0.0/16'),
  cluster('paris', 2, '244.1.0.0/16'),
  withLabels('oslo', 3, '244.3.0.0/16', { tier: 'prod' }),
]
const WORLD = routeWorld({ clusters: CLUSTERS, exposure: 'nothing' })
const PARIS = '244.1.0.5'
const OSLO = '244.3.0.5'

function withLabels(id: string, index: number, global: string, labels: Readonly<Record<string, string>>) {
  return clusterObject({ ...cluster(id, index, global).spec, labels })
}

/** A node of which the objects are read, and its table. */
class CallingNode {
  readonly api = new MemoryApi()
  readonly nft = new FakeNft()
  readonly logger = new CapturingLogger()
  readonly reader: AccessReader
  readonly #table: NodeTable
  readonly #planner = new BalancePlanner(serviceContext(WORLD, 4))

  world = nodeNftWorld(WORLD, 4)
  /** Whether the ClusterAccessPolicies have been read. */
  isRead = true
  /** Whether the server says that it does not know them. */
  isUnserved = false

  constructor() {
    const caches = routeAgentCaches(this.api)
    const { clusterPolicies: read } = caches.access
    const isRead = (): boolean => this.isRead && read.synced
    const isUnserved = (): boolean => this.isUnserved
    const clusterPolicies: typeof read = {
      get synced() {
        return isRead()
      },
      get isUnserved() {
        return isUnserved()
      },
      list: () => read.list(),
      get: (name) => read.get(name),
      onChange: (listener) => read.onChange(listener),
      whenSynced: (signal) => read.whenSynced(signal),
    }
    const gated = { ...caches, access: { ...caches.access, clusterPolicies } }
    this.reader = new AccessReader(gated, addressFamily(4), this.logger)
    this.reader.follow(() => undefined)
    const metrics = routeAgentMetrics(createMetrics('routeagent'))
    this.#table = new NodeTable({ nft: this.nft, clock: new FakeClock(), logger: this.logger, metrics })
  }

  /** Kinds that have not been read are listed as the caches know them. */
  async read(...kinds: readonly ('EndpointSlice' | 'ClusterAccessPolicy' | 'Cluster' | 'Pod' | 'Namespace')[]) {
    await Promise.all(kinds.map((kind) => this.api.cache(kind).whenSynced(NEVER)))
  }

  async apply(): Promise<AccessPlan> {
    const access = this.reader.plan(accessSite(this.world, WORLD))
    await this.#table.apply({ world: this.world, planner: this.#planner, changes: [], access }, true, NEVER)
    return access.plan
  }

  /** `passes`, or why the packet is dropped. */
  outcome(hook: 'forward' | 'output', change: Partial<TracePacket>): string {
    const packet = { ...CALL, ...(hook === 'forward' ? { iif: 'cni0', oif: 'sealane-vx' } : {}), ...change }
    const result = traceNft(this.nft, hook, packet)
    if (result.verdict === 'accept') return 'passes'
    return /dropped-access-(\S+)/.exec(result.path.at(-1) ?? '')?.[1] ?? result.verdict
  }
}

const CALL: TracePacket = { saddr: '10.42.1.5', daddr: PARIS, l4proto: 'tcp', dport: 8080, syn: true }

function limitedSlice(
  name: string,
  from: string,
  addresses: readonly string[],
  offer: Offer,
  ports?: EndpointSlice['ports'],
  keepsOpen = false,
) {
  const made = slice(name, from, addresses, ports)
  const text = callersText(offer, 'milano', keepsOpen)
  const annotations = text === undefined ? {} : { annotations: { [ANNOTATION_CALLERS]: text } }
  return { ...made, metadata: { ...made.metadata, ...annotations } }
}

function egress(rules: NonNullable<ClusterAccessPolicy['spec']['egress']>): ClusterAccessPolicy {
  return { ...clusterAccessPolicy('allow'), spec: { default: 'allow', egress: rules } }
}

function namespace(name: string, labels: Readonly<Record<string, string>>): Namespace {
  return { ...namespaceObject(name), metadata: { name, labels } }
}

const toMilano = (names: readonly string[], team?: string): Offer => [
  {
    clusters: ['milano'] as never,
    namespaces: { names, selectors: team === undefined ? [] : [{ matchLabels: { team } }] },
  },
]

async function nodeWith(...objects: readonly KubeObject[]): Promise<CallingNode> {
  const node = new CallingNode()
  for (const object of [...CLUSTERS, ...objects]) node.api.put(object)
  await node.read('EndpointSlice', 'ClusterAccessPolicy', 'Cluster', 'Pod', 'Namespace')
  return node
}

t.test('a service for some namespaces', async (t) => {
  const node = await nodeWith(
    limitedSlice('web', 'paris', [PARIS, '244.1.0.6'], toMilano(['shop'], 'x')),
    slice('open', 'paris', ['244.1.0.6', '244.1.0.7']),
    podObject('shop/a', '10.42.1.5'),
    podObject('bank/b', '10.42.1.6'),
    podObject('bank/host', '192.168.7.11', { spec: { nodeName: 'worker', hostNetwork: true } }),
    podObject('shop/host', '192.168.7.11', { spec: { nodeName: 'worker', hostNetwork: true } }),
    podObject('shop/far', '10.42.2.9', { spec: { nodeName: 'gw-b' } }),
    podObject('shop/done', '10.42.1.6', { phase: 'Succeeded' }),
    podObject('shop/twice', '10.42.1.8'),
    podObject('bank/twice', '10.42.1.8'),
    podObject('team/c', '10.42.1.9'),
    podObject('unread/d', '10.42.1.10'),
    namespace('team', { team: 'x' }),
  )
  const { calls } = await node.apply()
  t.equal(calls.limited.size, 1, 'a port that an open service has too is open')
  const rows: readonly [what: string, want: string, packet: Partial<TracePacket>, hook?: 'output'][] = [
    ['of the namespace', 'passes', {}],
    ['by labels', 'passes', { saddr: '10.42.1.9' }],
    ['a namespace that has not been read', 'namespace', { saddr: '10.42.1.10' }],
    ['of another one', 'namespace', { saddr: '10.42.1.6' }],
    ['a connection that has begun', 'namespace', { saddr: '10.42.1.6', ctState: 'established', syn: false }],
    ['a pod that is not known yet', 'namespace', { saddr: '10.42.1.77' }],
    ['an address of two namespaces', 'namespace', { saddr: '10.42.1.8' }],
    ['a pod of another node', 'namespace', { saddr: '10.42.2.9' }],
    ['its answers', 'passes', { saddr: '10.42.1.6', ctDirection: 'reply', ctState: 'established' }],
    ['a port that is shared', 'passes', { saddr: '10.42.1.6', daddr: '244.1.0.6' }],
    ['another port', 'passes', { saddr: '10.42.1.6', dport: 9090 }],
    ['on its way from another node', 'passes', { saddr: '10.42.2.9', iif: 'sealane-vx', oif: 'sealane0' }],
    ['the node', 'namespace', { saddr: '192.168.7.11' }, 'output'],
    ['the node, another service', 'passes', { saddr: '192.168.7.11', daddr: '244.1.0.7' }, 'output'],
  ]
  for (const [what, want, packet, hook = 'forward'] of rows) t.equal(node.outcome(hook, packet), want, what)
  const broken = limitedSlice('web', 'paris', [PARIS], toMilano(['shop']))
  for (const text of ['{', '[]', '{"names":["shop"]}', '{"names":["shop"],"selectors":[{"matchExpressions":3}]}']) {
    node.api.put({ ...broken, metadata: { ...broken.metadata, annotations: { [ANNOTATION_CALLERS]: text } } })
    await node.apply()
    t.equal(node.outcome('forward', {}), 'namespace', `not understood: ${text}`)
  }
})

t.test('egress', async (t) => {
  const node = await nodeWith(podObject('shop/a', '10.42.1.5'), podObject('bank/b', '10.42.1.6'))
  const full = (): number => node.nft.accepted.filter((sent) => sent.some(({ verb }) => verb === 'delete-table')).length
  const rows: readonly [what: string, rules: NonNullable<ClusterAccessPolicy['spec']['egress']>, want: string][] = [
    ['none', [], 'egress egress egress egress egress'],
    ['all', [{}], 'passes passes passes passes passes'],
    ['a namespace', [{ namespaces: ['shop'] }], 'passes egress passes egress egress'],
    ['a cluster', [{ clusters: ['paris'] }], 'passes passes egress egress passes'],
    [
      'by labels',
      [{ namespaces: ['bank'], selector: { matchLabels: { tier: 'prod' } } }],
      'egress egress egress passes egress',
    ],
    ['a later field: what it said stays', [{ later: true } as never], 'egress egress egress passes egress'],
    ['two', [{ namespaces: ['shop'] }, { clusters: ['oslo'] }], 'passes egress passes passes egress'],
  ]
  const results = (): string =>
    [
      node.outcome('forward', {}),
      node.outcome('forward', { saddr: '10.42.1.6' }),
      node.outcome('forward', { daddr: OSLO }),
      node.outcome('forward', { daddr: OSLO, saddr: '10.42.1.6' }),
      node.outcome('output', { saddr: '10.42.1.1' }),
    ].join(' ')
  for (const [what, rules, want] of rows) {
    node.api.put(egress(rules))
    await node.apply()
    t.equal(results(), want, what)
  }
  t.equal(node.outcome('forward', { daddr: '244.9.0.1' }), 'egress', 'a cluster that this table does not know')
  t.equal(node.outcome('forward', { daddr: '244.9.0.1', oif: 'eth0' }), 'passes', 'not to a cluster')
  const inward = { saddr: '10.42.1.6', ctDirection: 'reply', ctState: 'established' } as const
  t.equal(node.outcome('forward', inward), 'passes', 'answers')
  const before = full()
  node.api.put(podObject('shop/new', '10.42.1.20'))
  await node.apply()
  t.equal(node.outcome('forward', { saddr: '10.42.1.20' }), 'passes', 'a new pod')
  t.equal(full(), before, 'replaces no table')
  node.api.put(clusterAccessPolicy('allow'))
  await node.apply()
  t.equal(results(), 'passes passes passes passes passes', 'nothing is stated any more')
})

t.test('egress that is taken back, where open connections are kept', async (t) => {
  const node = await nodeWith(podObject('shop/a', '10.42.1.5'))
  const put = async (rules: NonNullable<ClusterAccessPolicy['spec']['egress']>, keepOpenConnections: boolean) => {
    const policy = egress(rules)
    node.api.put({ ...policy, spec: { ...policy.spec, keepOpenConnections } })
    await node.apply()
  }
  const open = { ctState: 'established', syn: false } as const
  for (const [what, rules, keeps, want] of [
    ['allowed', [{}], true, 'passes passes passes'],
    ['taken back', [], true, 'egress passes egress'],
    ['not kept any more', [], false, 'egress egress egress'],
    ['kept again', [], true, 'egress passes egress'],
  ] as const) {
    await put([...rules], keeps)
    const packets = [{}, open, { ...open, l4proto: 'udp' }] as const
    t.equal(packets.map((packet) => node.outcome('forward', packet)).join(' '), want, what)
  }
  t.equal(node.outcome('forward', { ...open, syn: true }), 'egress', 'a SYN that opens it once more')
  node.api.put(limitedSlice('web', 'paris', [PARIS], toMilano(['bank'])))
  await node.apply()
  t.equal(node.outcome('forward', open), 'namespace', 'what the exporter takes back ends')
})

t.test('a service that an exporter takes back, where it says whether open connections are kept', async (t) => {
  const open = { ctState: 'established', syn: false } as const
  const rows: readonly (readonly [what: string, keeps: readonly boolean[], may: string, want: string])[] = [
    ['offered', [true], 'shop', 'passes passes passes passes'],
    ['taken back', [true], 'bank', 'namespace passes namespace namespace'],
    ['not kept any more', [false], 'bank', 'namespace namespace namespace namespace'],
    ['kept again', [true], 'bank', 'namespace passes namespace namespace'],
    [
      'the port of two services, one of which does not keep',
      [true, false],
      'bank',
      'namespace namespace namespace namespace',
    ],
    ['both keep', [true, true], 'bank', 'namespace passes namespace namespace'],
    ['offered again', [true, true], 'shop', 'passes passes passes passes'],
  ]
  const ports = (['TCP', 'UDP'] as const).map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: 8080 }))
  const node = await nodeWith(podObject('shop/a', '10.42.1.5'))
  for (const [what, keeps, may, want] of rows) {
    const slices = keeps.map((one, i) => limitedSlice(`web-${i}`, 'paris', [PARIS], toMilano([may]), ports, one))
    node.api.drop('EndpointSlice', slice('web-1', 'paris', [PARIS]).metadata.name, 'shop')
    for (const one of slices) node.api.put(one)
    await node.apply()
    const packets = [{}, open, { ...open, l4proto: 'udp' }, { ...open, syn: true }] as const
    t.equal(packets.map((packet) => node.outcome('forward', packet)).join(' '), want, what)
    const answer = { ctState: 'established', ctDirection: 'reply', syn: false } as const
    t.equal(node.outcome('forward', answer), 'passes', `${what}: answers`)
  }
})

t.test('samples of what is refused, and no plan without a change', async (t) => {
  const node = await nodeWith(
    limitedSlice('web', 'paris', [PARIS], toMilano(['bank'])),
    podObject('shop/a', '10.42.1.5'),
    egress([{ clusters: ['paris'] }]),
  )
  node.world = { ...node.world, sampled: true }
  const { calls } = await node.apply()
  for (const [reason, packet] of [
    ['access-namespace', {}],
    ['access-egress', { daddr: OSLO }],
  ] as const) {
    const trace = (isOverLimits: boolean) =>
      traceNft(node.nft, 'forward', { ...CALL, iif: 'cni0', oif: 'sealane-vx', ...packet }, { isOverLimits })
    const [sampled, flood] = [trace(false), trace(true)]
    t.same([sampled.verdict, flood.verdict], ['drop', 'drop'], reason)
    for (const { path } of [sampled, flood])
      t.ok(
        path.some((one) => one.includes(`counter name dropped-${reason} `)),
        'counted',
      )
    t.match(sampled.path.at(-2), `log prefix "${reason}" group`)
    t.notOk(
      flood.path.some((one) => one.includes('log prefix')),
      'a flood is not logged',
    )
  }
  t.equal((await node.apply()).calls, calls, 'the same plan')
  const milano = cluster('milano', 1, '244.0.0.0/16')
  node.api.put(milano)
  await node.apply()
  node.api.put({ ...milano, status: { importedBy: [{ namespace: 'shop', name: 'web', clusters: ['oslo'] }] } })
  t.equal((await node.apply()).calls, calls, 'the same after a change of the status of a Cluster')
  const site = accessSite(node.world, WORLD)
  t.not(node.reader.plan(site, true).plan.calls, calls, 'a check reads again')
  const moved = { ...site, callers: new Map([...site.callers, ['oslo', ['244.9.0.0/16']]]) }
  t.ok(node.reader.plan(moved).plan.calls.egress?.has('244.9.0.0/16'), 'prefixes of a cluster')
})

t.test('what has not been read is refused, and read only where something is limited', async (t) => {
  const node = new CallingNode()
  node.isRead = false
  for (const object of CLUSTERS) node.api.put(object)
  await node.read('EndpointSlice', 'ClusterAccessPolicy', 'Cluster')
  t.match(node.reader.waitingFor('nothing'), 'clusterPolicies')
  await node.apply()
  t.equal(node.outcome('forward', {}), 'egress', 'while it is not known whether egress is limited')
  const pods = { ...accessSite(node.world, WORLD), exposure: 'pods' } as const
  t.match(node.reader.waitingFor('pods'), 'clusterPolicies')
  t.not(node.reader.plan(pods).plan.calls.egress, undefined, 'with all pods exposed too')
  node.isUnserved = true
  t.equal(node.reader.waitingFor('pods'), undefined, 'unless the server does not know the kind')
  t.equal(node.reader.plan(pods).plan.calls.egress, undefined, 'then nothing can be limited')
  t.match(node.reader.waitingFor('nothing'), 'clusterPolicies', 'where exports are chosen, the kind must be known')
  node.isUnserved = false
  node.isRead = true
  t.equal(node.reader.waitingFor('nothing'), undefined, 'no pods are read')
  node.api.put(limitedSlice('web', 'paris', [PARIS], toMilano(['shop'])))
  node.api.put(podObject('shop/a', '10.42.1.5'))
  t.match(node.reader.waitingFor('nothing'), /pods, namespaces/)
  await node.apply()
  await node.read('Pod', 'Namespace')
  t.equal(node.reader.waitingFor('nothing'), undefined)
  await node.apply()
  t.equal(node.outcome('forward', {}), 'passes')
})

const NAMESPACES = ['shop', 'bank', 'team'] as const
const choice = fc.record({
  names: fc.subarray([...NAMESPACES]),
  selectors: fc.subarray([{ matchLabels: { team: 'x' } }, { matchLabels: { team: 'y' } }]),
})
const offer: fc.Arbitrary<Offer> = fc.option(
  fc.array(
    fc.record(
      { clusters: fc.subarray(['milano', 'oslo']) as fc.Arbitrary<never[]>, namespaces: choice },
      { requiredKeys: ['clusters'] },
    ),
    { minLength: 1, maxLength: 2 },
  ),
  { nil: undefined },
)
const rule = fc.record(
  {
    namespaces: fc.subarray([...NAMESPACES]),
    clusters: fc.subarray(['paris', 'oslo']),
    selector: fc.constant({ matchLabels: { tier: 'prod' } }),
  },
  { requiredKeys: [] },
)
const step = fc.record({
  services: fc.array(
    fc.record({
      from: fc.constantFrom('paris', 'oslo'),
      last: fc.subarray([5, 6]),
      ports: fc.subarray([80, 81]),
      offer,
    }),
    { maxLength: 3 },
  ),
  pods: fc.array(fc.record({ last: fc.integer({ min: 5, max: 7 }), of: fc.constantFrom(...NAMESPACES) }), {
    maxLength: 4,
  }),
  teams: fc.dictionary(fc.constantFrom(...NAMESPACES), fc.constantFrom('x', 'y')),
  egress: fc.option(fc.array(rule, { maxLength: 2 }), { nil: undefined }),
})
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

t.test('the table lets out whom the rules name, after each of several changes', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 3 }), async (steps) => {
      const node = await nodeWith()
      let before: readonly KubeObject[] = []
      for (const one of steps) {
        const objects = objectsOf(one)
        for (const { kind, metadata } of before) node.api.drop(kind, metadata.name, metadata.namespace)
        for (const object of objects) node.api.put(object)
        before = objects
        await node.apply()
        for (const last of [5, 6, 7]) {
          for (const from of ['paris', 'oslo'] as const) {
            for (const [at, port] of [
              [5, 80],
              [5, 81],
              [6, 80],
            ] as const) {
              const daddr = `${from === 'paris' ? '244.1.0' : '244.3.0'}.${at}`
              const got = node.outcome('forward', { saddr: `10.42.1.${last}`, daddr, dport: port }) === 'passes'
              if (got !== mayGo(one, { last, from, at, port })) return false
            }
          }
        }
      }
      return !node.logger.lines.some(({ level }) => level === 'warn')
    }),
    { numRuns: 60 },
  )
  t.pass()
})

function objectsOf({ services, pods, teams, egress: rules }: Step): KubeObject[] {
  return [
    ...services.map(({ from, last, ports, offer: to }, i) =>
      limitedSlice(
        `s${i}`,
        from,
        last.map((n) => `${from === 'paris' ? '244.1.0' : '244.3.0'}.${n}`),
        to,
        ports.map((port) => ({ name: String(port), protocol: 'TCP', port })),
      ),
    ),
    ...pods.map(({ last, of }, i): Pod => podObject(`${of}/p${i}`, `10.42.1.${last}`)),
    ...Object.entries(teams).map(([name, team]) => namespace(name, { team })),
    ...(rules === undefined ? [] : [egress(rules)]),
  ]
}

/** Decides about one call, without the plan. */
function mayGo(
  { services, pods, teams, egress: rules }: Step,
  call: { readonly last: number; readonly from: string; readonly at: number; readonly port: number },
): boolean {
  const mine = [...new Set(pods.filter(({ last }) => last === call.last).map(({ of }) => of))]
  const leaves = rules?.filter(
    ({ clusters, selector }) =>
      clusters?.includes(call.from) !== false && (selector === undefined || call.from === 'oslo'),
  )
  const everybody = leaves === undefined || leaves.some(({ namespaces }) => namespaces === undefined)
  const covered = (of: string): boolean => leaves?.some(({ namespaces }) => namespaces?.includes(of as never)) === true
  if (!everybody && (mine.length === 0 || !mine.every(covered))) return false
  const serving = services.filter(
    ({ from, last, ports }) => from === call.from && last.includes(call.at) && ports.includes(call.port),
  )
  const isOpen = (to: Offer): boolean =>
    to === undefined ||
    to.some(({ clusters, namespaces }) => clusters.includes('milano' as never) && namespaces === undefined)
  if (serving.length === 0 || serving.some(({ offer: to }) => isOpen(to))) return true
  const isOffered = (name: (typeof NAMESPACES)[number]): boolean => {
    const team = teams[name]
    const labels = team === undefined ? {} : { labels: { team } }
    return serving.some(({ offer: to }) => mayCall(to, { cluster: 'milano', namespace: { name, ...labels } }))
  }
  return mine.length > 0 && mine.every(isOffered)
}

t.test('a slice of another writer, whose namespaces have no names of namespaces, hinders no table', async (t) => {
  const node = await nodeWith(podObject('shop/a', '10.42.1.5'), podObject('bank/b', '10.42.1.6'))
  const stranger = slice('web', 'paris', [PARIS])
  for (const name of ['a"b', 'a\\b', 'a\nb', '"; drop', '\u4e2d'.repeat(60), '', 'shop']) {
    const names = JSON.stringify({ names: ['shop', name], selectors: [] })
    const metadata = { ...stranger.metadata, annotations: { [ANNOTATION_CALLERS]: names } }
    node.api.put({ ...stranger, metadata })
    await t.resolves(node.apply(), `${JSON.stringify(name)} hinders no table`)
    t.equal(node.outcome('forward', { saddr: '10.42.1.6' }), 'namespace', `${JSON.stringify(name)} lets in no other`)
  }
})

t.test('a slice that is no import any more counts no longer', async (t) => {
  const pods = [podObject('shop/a', '10.42.1.5'), podObject('bank/b', '10.42.1.6')]
  const offered = limitedSlice('web', 'paris', [PARIS], toMilano(['bank']))
  const open = slice('web-too', 'paris', [PARIS])
  const node = await nodeWith(offered, open, ...pods)
  await node.apply()
  t.equal(node.outcome('forward', {}), 'passes', 'open by the second slice')
  node.api.put({ ...open, metadata: { ...open.metadata, labels: {} } })
  await node.apply()
  t.equal(node.outcome('forward', {}), 'namespace')
})

t.test('groups that no service has any more leave no chains behind for ever', async (t) => {
  const nft = new FakeNft()
  const metrics = routeAgentMetrics(createMetrics('routeagent'))
  const table = new NodeTable({ nft, clock: new FakeClock(), logger: new CapturingLogger(), metrics })
  const world = nodeNftWorld(WORLD, 4)
  const planner = new BalancePlanner(serviceContext(WORLD, 4))
  const chains = (): number => nft.table(NFT_TABLE_NODE)?.chains.size ?? 0
  const counts: number[] = []
  for (let round = 0; round < 12; round += 1) {
    const choices = Array.from(
      { length: 200 },
      (_, i) => [`g${round}-${i}`, { names: [`shop-${i}`], selectors: [] }] as const,
    )
    const groups = new Map(choices.map(([name, choice]) => [name, { choice, pods: [] }]))
    const limited = new Map(choices.map(([name], i) => [`244.1.1.${i} . tcp . 8080`, `goto calls-${name}`]))
    const plan = { ...NOTHING_OFFERED, calls: { ...NOTHING_LIMITED, limited, groups } }
    await table.apply({ world, planner, changes: [], access: { plan, changes: NO_ACCESS_CHANGES } }, false, NEVER)
    counts.push(chains())
  }
  t.ok(Math.max(...counts) < 6500, `at most ${Math.max(...counts)} chains`)
})
