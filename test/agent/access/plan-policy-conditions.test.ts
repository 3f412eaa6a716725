/** What the conditions of access policies and traffic policies say. */
import t from 'tap'
import { PolicyConditions, type PolicyWorld } from '../../../agent/publish/plan-policy-conditions.ts'
import {
  type ReportedWorld,
  planTrafficStatuses,
  reportShares,
} from '../../../agent/publish/plan-traffic-conditions.ts'
import { AccessPolicyLoop, TrafficPolicyLoop } from '../../../agent/publish/policy-loops.ts'
import { agentConfig } from '../../../agent/loop/config.ts'
import { agentMetrics } from '../../../agent/loop/metrics.ts'
import { MirrorWriter } from '../../../agent/loop/mirror-writer.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import { HeardGateways } from '../../../kubeapi/heard-gateways.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import type {
  AccessPolicy,
  ClusterAccessPolicy,
  ClusterTrafficPolicy,
  EndpointSlice,
  ServiceImport,
  TrafficPolicy,
} from '../../../model/objects.ts'
import { TrafficPolicies } from '../../../model/services/services.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { accessPolicy, clusterAccessPolicy } from '../../support/objects/access-objects.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'
import { gatewaySaying } from '../../support/objects/node-objects.ts'
import { importObject } from '../../support/objects/service-objects.ts'

const WORLD: PolicyWorld = {
  self: 'milano',
  clustersetDefault: undefined,
  policies: [],
  clusterPolicies: [],
  clusters: ['milano', 'oslo', 'paris'].map((id) => clusterObject({ id, labels: { tier: 'prod' } })),
  exports: new Set(['shop/web' as never]),
}

function conditionsOf(change: Partial<PolicyWorld>): string[] {
  const changed = new PolicyConditions().plan({ ...WORLD, ...change }, 0)
  return changed.map(({ status }) => {
    const [one] = status?.conditions ?? []
    return `${one?.type}=${one?.status}/${one?.reason}: ${one?.message}`
  })
}

t.test('an AccessPolicy', async (t) => {
  const nobody = 'lets in no other member'
  const rows: readonly [string, AccessPolicy['spec'], string][] = [
    ['all', { from: [{}] }, 'Valid=True/PolicyInForce: '],
    ['one service', { targetRefs: [{ name: 'web' }], from: [{}] }, 'Valid=True/PolicyInForce: '],
    ['nobody', { from: [] }, `Valid=True/PolicyNamesNobody: ${nobody}`],
    ['this cluster alone', { from: [{ clusters: ['milano'] }] }, `Valid=True/PolicyNamesNobody: ${nobody}`],
    [
      'labels of no member',
      { from: [{ selector: { matchLabels: { tier: 'x' } } }] },
      `Valid=True/PolicyNamesNobody: ${nobody}`,
    ],
    [
      'labels of members',
      { from: [{ selector: { matchLabels: { tier: 'prod' } } }] },
      'Valid=True/PolicyInForce: labels of members are their own word unless their join token states them or ' +
        'operators of the broker approve joins',
    ],
    [
      'ids of no member',
      { from: [{ clusters: ['lima', 'oslo', 'quito'] }] },
      'Valid=True/PolicyNamesUnknown: names no members: lima, quito',
    ],
    [
      'many ids of no member',
      { from: [{ clusters: ['a', 'b', 'c', 'd', 'e'] }] },
      'Valid=True/PolicyNamesUnknown: names no members: a, b, c and 2 more',
    ],
    [
      'a service that is not exported',
      { targetRefs: [{ name: 'api' }, { name: 'web' }], from: [{}] },
      'Valid=True/PolicyTargetMissing: no ServiceExport: api',
    ],
    [
      'fields of a later release',
      { from: [{ clusters: ['oslo'], ports: [80] }, { clusters: ['paris'] }], mode: 'x' } as never,
      `Valid=False/PolicyNotUnderstood,PolicyNamesNobody: not understood: spec.mode, spec.from[0].ports; ${nobody}`,
    ],
    [
      'another kind of target',
      { targetRefs: [{ kind: 'Gateway', name: 'web' }], from: [{}] } as never,
      `Valid=False/PolicyNotUnderstood,PolicyNamesNobody: not understood: spec.targetRefs[0].kind; ${nobody}`,
    ],
    [
      'selectors of no meaning',
      {
        from: [
          { selector: { matchExpressions: [{ key: 'tier', operator: 'In' }] } },
          { clusters: ['oslo'], namespaceSelector: { matchExpressions: [{ key: 'a', operator: 'Gt' as never }] } },
        ],
      },
      'Valid=False/PolicyNotUnderstood: not understood: spec.from[0].selector, spec.from[1].namespaceSelector',
    ],
    [
      'all at once',
      { targetRefs: [{ name: 'api' }], from: [{ clusters: ['lima'], selector: {} }] },
      `Valid=True/PolicyNamesNobody,PolicyNamesUnknown,PolicyTargetMissing: ${nobody}; names no members: lima; no ServiceExport: api`,
    ],
  ]
  for (const [name, spec, want] of rows)
    t.same(conditionsOf({ policies: [accessPolicy('shop/p', spec)] }), [want], name)
})

t.test('a ClusterAccessPolicy', async (t) => {
  const rows: readonly [string, ClusterAccessPolicy, Partial<PolicyWorld>, string][] = [
    ['the default', clusterAccessPolicy('deny'), {}, 'Valid=True/PolicyInForce: '],
    [
      'another name',
      clusterAccessPolicy('deny', 'mine'),
      {},
      'Valid=False/PolicyIgnored: only the one named default counts',
    ],
    [
      'a stricter clusterset',
      clusterAccessPolicy('allow'),
      { clustersetDefault: 'deny' },
      'Valid=True/PolicyInForce: the default of the clusterset is stricter: deny',
    ],
    [
      'egress',
      { ...clusterAccessPolicy('allow'), spec: { default: 'allow', egress: [{ clusters: ['paris'] }] } },
      {},
      'Valid=True/PolicyInForce: ',
    ],
    [
      'open connections',
      { ...clusterAccessPolicy('allow'), spec: { default: 'allow', keepOpenConnections: true } },
      {},
      'Valid=True/PolicyInForce: ',
    ],
    [
      'egress of a later release',
      { ...clusterAccessPolicy('allow'), spec: { default: 'allow', egress: [{ later: [] }] } } as never,
      {},
      'Valid=False/PolicyNotUnderstood: not understood: spec.egress[0].later',
    ],
    [
      'a word of a later release',
      clusterAccessPolicy('audit' as never),
      {},
      'Valid=False/PolicyNotUnderstood: not understood: spec.default',
    ],
  ]
  for (const [name, policy, change, want] of rows)
    t.same(conditionsOf({ clusterPolicies: [policy], ...change }), [want], name)
})

t.test('a policy that stands for one in a file that cannot be read', async (t) => {
  const annotations = { 'sealane.io/unread-file': 'objects/own.yaml' }
  const [own, ofCluster] = [accessPolicy('shop/p', { from: [] }), clusterAccessPolicy('deny')]
  const unread = <T extends { readonly metadata: object }>(one: T): T => ({
    ...one,
    metadata: { ...one.metadata, annotations },
  })
  const want = 'Valid=False/PolicyFileInvalid: closed until this file is valid: objects/own.yaml'
  t.same(conditionsOf({ policies: [unread(own)], clusterPolicies: [unread(ofCluster)] }), [want, want])
  const conditions = new PolicyConditions()
  const [first] = conditions.plan({ ...WORLD, policies: [unread(own)] }, 0) as AccessPolicy[]
  t.match(conditions.plan({ ...WORLD, policies: [{ ...own, status: first?.status }] as never }, 1), [
    { status: { conditions: [{ reason: 'PolicyNamesNobody' }] } },
  ])
})

t.test('the status keeps the version in force, and is written once', async (t) => {
  const put = (generation: number, spec: unknown, status?: AccessPolicy['status']): AccessPolicy => {
    const { metadata, ...rest } = accessPolicy('shop/p', spec as AccessPolicy['spec'], generation)
    return { ...rest, metadata: { ...metadata, uid: 'u' }, ...(status === undefined ? {} : { status }) }
  }
  const plan = (one: AccessPolicy, kept?: PolicyWorld['kept'], conditions = new PolicyConditions()) =>
    conditions.plan({ ...WORLD, policies: [one], ...(kept === undefined ? {} : { kept }) }, 0) as AccessPolicy[]
  const good = { from: [{ clusters: ['oslo'] }] }
  const [first] = plan(put(1, good))
  t.same(first?.status?.inForce, { uid: 'u', generation: 1, spec: good })
  t.same(plan(put(1, good, first?.status)), [], 'written once')
  const [second] = plan(put(2, { from: 7 }, first?.status))
  t.same(second?.status?.inForce, first?.status?.inForce)
  t.match(second?.status?.conditions, [
    {
      status: 'False',
      reason: 'PolicyNotUnderstood',
      message: 'not understood: spec.from: expected a list; generation 1 stays in force',
      observedGeneration: 2,
    },
  ])
  t.same(plan(put(2, { from: 7 }, second?.status)), [], 'the next agent agrees')
  const { inForce, ...dropped } = first?.status ?? {}
  const kept = new Map([['AccessPolicy/shop/p', inForce as never]])
  t.same(plan(put(1, good, dropped), kept), [], 'what an API of an earlier release drops is not written again')
  const spoilt = { ...first?.status, inForce: { uid: 'u', generation: 1, spec: { from: [{}] } } }
  t.match(plan(put(1, good, spoilt)), [{ status: { inForce: { spec: good } } }], 'what another has written is repaired')
  const long = {
    from: Array.from({ length: 64 }, () => ({ namespaces: Array.from({ length: 200 }, () => 'x'.repeat(63)) })),
  }
  t.equal(plan(put(2, long, first?.status))[0]?.status?.inForce, undefined, 'too long: no older one comes back')
  const refused = { from: [{ clusters: ['No Label'] }] }
  t.equal(plan(put(2, refused, first?.status))[0]?.status?.inForce, undefined, 'the CRD would refuse it')
})

const COUNT = 2000

t.test('many policies: only what may have changed is looked at, and only changes are written', async (t) => {
  const conditions = new PolicyConditions()
  const policies = Array.from({ length: COUNT }, (_, i) =>
    accessPolicy(`n${i}/p`, { targetRefs: [{ name: 'web' }], from: [{ clusters: ['oslo'] }] }, 1),
  )
  const exports = new Set(policies.map(({ metadata }) => `${metadata.namespace}/web` as never))
  const written = conditions.plan({ ...WORLD, policies, exports }, 0) as AccessPolicy[]
  t.same([written.length, conditions.looked], [COUNT, COUNT])
  t.equal(written[0]?.status?.conditions?.[0]?.observedGeneration, 1)
  const world = { ...WORLD, policies: written, exports }
  t.same(conditions.plan(world, 1), [])
  t.equal(conditions.looked, COUNT)
  const fewer = new Set([...exports].slice(1))
  t.equal(conditions.plan({ ...world, exports: fewer }, 2).length, 1, 'one export less')
  t.equal(conditions.looked, COUNT + 1)
  t.equal(conditions.plan({ ...world, clusters: WORLD.clusters.slice(0, 1) }, 3).length, COUNT, 'a member left')
})

t.test('a TrafficPolicy: in force, in force with notes, or not valid; written once', async (t) => {
  const policy = (name: string, spec: TrafficPolicy['spec']): TrafficPolicy => ({
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'TrafficPolicy',
    metadata: { namespace: 'shop', name, generation: 3 },
    spec,
  })
  const policies = [
    policy('a', { targetRefs: [{ name: 'web' }], order: [{ local: {} }, { any: {} }] }),
    policy('b', { targetRefs: [{ name: 'gone' }], order: [{ clusters: ['lima'] }] }),
    policy('c', { targetRefs: [{ name: 'web' }], order: [{ clusters: ['oslo'], weights: { oslo: 0 } }] }),
  ]
  const world = {
    policies: new TrafficPolicies({ policies, clusterPolicies: [] }),
    reports: new Map(),
    members: new Set(['milano', 'oslo']),
    imports: new Map([['shop/web' as never, 'ClusterSetIP' as const]]),
  }
  const written = planTrafficStatuses(policies, world, 0)
  t.match(
    written.map(({ status }) => status?.conditions?.[0]),
    [
      { type: 'Valid', status: 'True', reason: 'TrafficPolicyInForce', observedGeneration: 3 },
      {
        status: 'True',
        reason: 'TrafficNamesUnknown,TrafficTargetMissing',
        message: 'names no members: lima; no ServiceImport: gone',
      },
      { status: 'False', reason: 'TrafficPolicyInvalid', message: /^spec\.order\[0\]\.weights: "all 0": expected/ },
    ],
  )
  t.same(planTrafficStatuses(written, world, 1), [], 'nothing changes after that')
})

type Rules = ClusterTrafficPolicy['spec']

function trafficPolicy(name: string, spec: TrafficPolicy['spec'], uid = name): TrafficPolicy {
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'TrafficPolicy', metadata: { namespace: 'shop', name, uid }, spec }
}

function imported(name: string, clusters: string, spec: Partial<ServiceImport['spec']> = {}): ServiceImport {
  const status = { clusters: clusters.split(' ').map((cluster) => ({ cluster })) }
  return { ...importObject({ name }, { type: 'ClusterSetIP', ...spec }), status }
}

/** Of `ready` endpoints that are ready and one that is not. */
function sliceFrom(cluster: string, name: string, ready: number, addressType: 'IPv4' | 'IPv6' = 'IPv4'): EndpointSlice {
  const labels = {
    'multicluster.kubernetes.io/service-name': name,
    'multicluster.kubernetes.io/source-cluster': cluster,
  }
  const endpoints = Array.from({ length: ready + 1 }, (_, i) => ({
    addresses: [addressType === 'IPv4' ? `10.1.0.${i}` : `fd00::${i}`],
    conditions: { ready: i < ready },
  }))
  const metadata = { name: `${name}-${cluster}-${addressType.toLowerCase()}`, namespace: 'shop', labels }
  return { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', metadata, addressType, endpoints }
}

function reported(rules: Rules, change: Partial<ReportedWorld>): string[] {
  const clusterPolicies: ClusterTrafficPolicy[] = [
    { apiVersion: 'sealane.io/v1alpha1', kind: 'ClusterTrafficPolicy', metadata: { name: 'default' }, spec: rules },
  ]
  const reports = reportShares({
    ...{ self: 'milano', clusterset: 'test', clusters: new Map(), reachable: undefined, imports: [], slices: [] },
    policies: new TrafficPolicies({ policies: [], clusterPolicies }),
    withoutEgress: new Set(),
    ...change,
  })
  return [...reports.values()].flatMap(({ services = [], servicesLeftOut }) => [
    ...services.map(({ name, shares, leftOut }) => {
      const texts = shares.map(({ cluster, share, ready, total, reason }) =>
        [cluster, share, `${ready}/${total}`, reason].join(' '),
      )
      return `${name}: ${[...texts, ...(leftOut === undefined ? [] : [`${leftOut} more`])].join(', ')}`
    }),
    ...(servicesLeftOut === undefined ? [] : [`${servicesLeftOut} more`]),
  ])
}

t.test('the shares that a policy reports: each service, its clusters and why, within bounds', async (t) => {
  const order: Rules['order'] = [{ clusters: ['oslo'] }, { any: {} }]
  const web = {
    imports: [imported('web', 'oslo paris')],
    slices: [sliceFrom('oslo', 'web', 2), sliceFrom('paris', 'web', 1)],
  }
  t.same(reported({ order }, web), ['web: oslo 10000 2/3 ByReadyEndpoints, paris 0 1/2 TierIdle'])
  t.same(
    reported({ order }, { ...web, reachable: new Set(['milano', 'paris']) }),
    ['web: oslo 0 2/3 ClusterNotReached, paris 10000 1/2 Spilled'],
    'one that is not reached says so',
  )
  const both = ['IPv4', 'IPv6'] as const
  const dual = both.map((family) => sliceFrom('oslo', 'db', 1, family))
  t.same(
    reported({ order }, { imports: [imported('db', 'oslo', { ipFamilies: [...both] })], slices: dual }),
    ['db: oslo 10000 1/2 ByReadyEndpoints'],
    'a pod of two families counts once',
  )
  const headless = { ...web, imports: [imported('web', 'oslo paris', { type: 'Headless' })] }
  t.same(reported({ order }, headless), [], 'a headless service does not follow it')
  t.match(reported({ order, headless: 'follow' }, headless), [/^web: oslo 10000/])
  const ids = Array.from({ length: 40 }, (_, i) => `c${String(i).padStart(2, '0')}`)
  const [wide = ''] = reported(
    { order: [{ clusters: ['c39'] }] },
    { imports: [imported('wide', ids.join(' '))], slices: ids.map((id) => sliceFrom(id, 'wide', 1)) },
  )
  t.match(wide, /c39 10000 1\/2 ByReadyEndpoints, 8 more$/)
  t.equal(wide.split(', ').length, 33)
  const names = ids.map((id) => imported(`s-${id}`, 'oslo'))
  t.equal(reported({ order }, { imports: names.toReversed() }).at(-1), '8 more')
  t.match(reported({ order }, { imports: names.toReversed() })[0], /^s-c00: /)
})

t.test('ports that not all endpoints serve have shares of their own, within bounds', async (t) => {
  const port = (name: string, number: number) => ({ name, protocol: 'TCP', port: number }) as const
  const portsOf = (change: Partial<ReportedWorld>) => {
    const policies = new TrafficPolicies({
      policies: [trafficPolicy('p', { order: [{ any: {} }] })],
      clusterPolicies: [],
    })
    const reports = reportShares({
      ...{ self: 'milano', clusterset: 'test', clusters: new Map(), reachable: undefined, imports: [], slices: [] },
      ...{ policies, withoutEgress: new Set(), ...change },
    })
    return [...reports.values()][0]?.services?.[0]
  }
  const ports = Array.from({ length: 60 }, (_, i) => port(`p${i}`, 8000 + i))
  const web = { ...imported('web', 'oslo paris'), spec: { ...imported('web', 'oslo paris').spec, ports } }
  const from = (id: string, ready: number, some: typeof ports): EndpointSlice => ({
    ...sliceFrom(id, 'web', ready),
    ports: some,
  })
  const alike = portsOf({ imports: [web], slices: [from('oslo', 2, ports), from('paris', 2, ports)] })
  t.same([alike?.portShares, alike?.portSharesLeftOut], [undefined, undefined], 'one entry where all are alike')
  const some = portsOf({ imports: [web], slices: [from('oslo', 2, ports), from('paris', 2, ports.slice(20))] })
  const [group] = some?.portShares ?? []
  t.equal(some?.portShares?.length, 1)
  t.same([group?.ports.length, group?.ports[0], group?.portsLeftOut], [16, 'p0', 4])
  t.match(group?.shares, [{ cluster: 'oslo', share: 10_000, ready: 2, reason: 'ByReadyEndpoints' }])
  t.same(
    some?.shares.map(({ share }) => share),
    [5000, 5000],
    'the service as a whole',
  )
  const ids = Array.from({ length: 40 }, (_, i) => `c${String(i).padStart(2, '0')}`)
  const many = portsOf({
    imports: [{ ...imported('web', ids.join(' ')), spec: web.spec }],
    slices: ids.map((id, i) => from(id, 1 + (i % 3), ports.slice(i % 10))),
  })
  t.same([many?.portShares?.length, many?.portSharesLeftOut], [4, 5])
  t.ok(many?.portShares?.every(({ shares, leftOut }) => shares.length <= 16 && (shares.length < 16 || leftOut !== 0)))
})

t.test(
  'the status keeps the version in force: an agent that starts while the policy is not valid follows it',
  async (t) => {
    const [api, clock, logger] = [new MemoryApi(), new FakeClock(), new CapturingLogger()]
    const parts = { api, clock, logger, metrics: agentMetrics(createMetrics('agent')) }
    const { loop } = agentConfig('unused')
    const init = { own: 'milano', loop }
    const pass = async (ms: number): Promise<void> => {
      for (let i = 0; i < ms; i += 100) await clock.advance(100)
    }
    /** What an agent does that runs for a while. */
    const run = async (ms = 1000): Promise<void> => {
      const [gateways, writer] = [new HeardGateways(parts), new MirrorWriter(parts)]
      const stop = new AbortController()
      const ended = new TrafficPolicyLoop({ ...parts, writer, gateways }, init).run(stop.signal)
      await pass(ms)
      stop.abort()
      await ended
    }
    const status = () => api.get('TrafficPolicy', 'p', 'shop')?.status
    const writes = (): number => api.writes.filter(({ kind }) => kind === 'TrafficPolicy').length
    const put = (...order: NonNullable<Rules['order']>): void => api.put(trafficPolicy('p', { order }))
    for (const [i, id] of ['milano', 'oslo', 'paris'].entries())
      api.put(clusterObject({ id, index: i, podCIDRs: [`10.${i}.0.0/16`] }))
    api.put(imported('web', 'oslo paris'))
    for (const id of ['oslo', 'paris']) api.put(sliceFrom(id, 'web', 2))
    put({ clusters: ['paris'] })
    await run()
    const good = { order: [{ clusters: ['paris'] }] }
    t.same(status()?.inForce, { uid: 'p', generation: 1, spec: good })
    const wrong = { clusters: ['oslo'], weights: { oslo: 0 } }
    put(wrong)
    for (const say of ['the first that starts', 'and the next']) {
      await run(40_000)
      t.same(status()?.inForce, { uid: 'p', generation: 1, spec: good }, say)
      t.match(status()?.conditions, [{ status: 'False', message: /expected .*; generation 1 stays in force$/ }], say)
      t.match(status()?.services?.[0]?.shares, [
        { cluster: 'oslo', share: 0 },
        { cluster: 'paris', share: 10_000 },
      ])
    }
    t.equal(writes(), 2, 'one write for each generation')
    api.drop('TrafficPolicy', 'p', 'shop')
    api.put(trafficPolicy('p', { order: [wrong] }, 'q'))
    await run()
    t.match([status()?.conditions?.[0]?.status, status()?.inForce, status()?.services], ['False', undefined, undefined])
    api.drop('TrafficPolicy', 'p', 'shop')
    const applyStatus = api.applyStatus.bind(api)
    // As an API server does whose CRD has no such field.
    api.applyStatus = (object) => {
      const { inForce: _dropped, ...kept } = (object as TrafficPolicy).status ?? {}
      return applyStatus({ ...object, status: kept } as TrafficPolicy)
    }
    put({ any: {} })
    const before = writes()
    await run(120_000)
    t.equal(writes() - before, 1, 'what an API of an earlier release drops is not written again and again')
  },
)

t.test('a version in force that the API has dropped is written once the API keeps it', async (t) => {
  const specs = { AccessPolicy: { from: [{}] }, TrafficPolicy: { order: [{ any: {} }] } }
  for (const [kind, spec] of Object.entries(specs) as ['AccessPolicy' | 'TrafficPolicy', object][]) {
    const [api, clock, logger] = [new MemoryApi(), new FakeClock(), new CapturingLogger()]
    const parts = { api, clock, logger, metrics: agentMetrics(createMetrics('agent')) }
    const [gateways, writer] = [new HeardGateways(parts), new MirrorWriter(parts)]
    const init = { own: 'milano', loop: agentConfig('unused').loop }
    const loop =
      kind === 'AccessPolicy'
        ? new AccessPolicyLoop({ ...parts, writer }, init)
        : new TrafficPolicyLoop({ ...parts, writer, gateways }, init)
    const applyStatus = api.applyStatus.bind(api)
    let has: 'no field' | 'no right' | 'all' = 'no field'
    let calls = 0
    api.applyStatus = async (object) => {
      calls += 1
      const isRefused = has === 'no right' && object.metadata.name === 'a'
      if (isRefused) throw new ClusterApiError('Forbidden', 'no')
      const { inForce: _dropped, ...kept } = (object as TrafficPolicy).status ?? {}
      await applyStatus(has === 'no field' ? ({ ...object, status: kept } as TrafficPolicy) : object)
    }
    const pass = async (ms: number): Promise<void> => {
      for (let i = 0; i < ms; i += 500) await clock.advance(500)
    }
    const kept = (): unknown[] =>
      ['a', 'b', 'c'].map((name) => api.get(kind, name, 'shop')?.status?.inForce?.generation)
    const put = (name: string): void => api.put({ ...trafficPolicy(name, {}), kind, spec } as unknown as TrafficPolicy)
    api.put(clusterObject({ id: 'milano' }))
    for (const name of ['a', 'b', 'c']) put(name)
    const stop = new AbortController()
    const ended = loop.run(stop.signal)
    await pass(1_300_000)
    t.same(kept(), [undefined, undefined, undefined], `${kind}: an API of an earlier release`)
    t.equal(calls, 5, `${kind}: one is written again in ten minutes`)
    has = 'no right'
    await pass(700_000)
    t.same(kept(), [undefined, 1, 1], `${kind}: the CRD has come, and one is refused`)
    has = 'all'
    await pass(120_000)
    t.same(kept(), [1, 1, 1], `${kind}: all that others lack`)
    const b = api.get(kind, 'b', 'shop') as TrafficPolicy | undefined
    const { inForce: _removed, ...status } = b?.status ?? {}
    const before = calls
    await applyStatus({ ...b, status } as TrafficPolicy)
    await pass(120_000)
    t.same(kept(), [1, 1, 1], `${kind}: what somebody has removed`)
    t.equal(calls, before + 1, `${kind}: in one write`)
    stop.abort()
    await ended
  }
})

t.test('a version between two rounds counts while the next one is not valid', async (t) => {
  const specs = {
    AccessPolicy: [{ from: [{ clusters: ['oslo'] }] }, { from: [{ clusters: ['paris'] }] }, { from: 7 }],
    ClusterAccessPolicy: [{ default: 'allow' }, { default: 'deny' }, { default: 7 }],
    TrafficPolicy: [{ order: [{ any: {} }] }, { order: [{ local: {} }] }, { order: [{ local: {}, any: {} }] }],
  }
  for (const kind of ['AccessPolicy', 'ClusterAccessPolicy', 'TrafficPolicy'] as const) {
    const [api, clock, logger] = [new MemoryApi(), new FakeClock(), new CapturingLogger()]
    const parts = { api, clock, logger, metrics: agentMetrics(createMetrics('agent')) }
    const [gateways, writer] = [new HeardGateways(parts), new MirrorWriter(parts)]
    const init = { own: 'milano', loop: agentConfig('unused').loop }
    const loop =
      kind === 'TrafficPolicy'
        ? new TrafficPolicyLoop({ ...parts, writer, gateways }, init)
        : new AccessPolicyLoop({ ...parts, writer }, init)
    const [name, place] = kind === 'ClusterAccessPolicy' ? ['default', {}] : ['a', { namespace: 'shop' }]
    const put = (spec: unknown): void =>
      api.put({ apiVersion: 'sealane.io/v1alpha1', kind, metadata: { name, ...place }, spec } as never)
    const pass = async (): Promise<void> => {
      for (let i = 0; i < 20_000; i += 500) await clock.advance(500)
    }
    const [first, second, bad] = specs[kind]
    api.put(clusterObject({ id: 'milano' }))
    put(first)
    const stop = new AbortController()
    const ended = loop.run(stop.signal)
    await pass()
    for (const spec of [second, bad]) put(spec)
    await pass()
    t.match(api.get(kind, name, place.namespace)?.status?.inForce, { generation: 2, spec: second }, kind)
    stop.abort()
    await ended
  }
})

t.test('an API that does not keep the version in force: it is said once, and nothing wider is kept', async (t) => {
  const specs = {
    AccessPolicy: [{ from: [{ clusters: ['oslo'] }] }, { from: 7 }, { from: [{}] }],
    TrafficPolicy: [{ order: [{ any: {} }] }, { order: [{ clusters: ['oslo'], weights: { oslo: 0 } }] }, {}],
  }
  const codes = { AccessPolicy: 'PolicyNotUnderstood', TrafficPolicy: 'TrafficPolicyInvalid' }
  for (const kind of ['AccessPolicy', 'TrafficPolicy'] as const) {
    const [good, bad, less] = specs[kind]
    const [api, clock, logger] = [new MemoryApi(), new FakeClock(), new CapturingLogger()]
    const parts = { api, clock, logger, metrics: agentMetrics(createMetrics('agent')) }
    const [gateways, writer] = [new HeardGateways(parts), new MirrorWriter(parts)]
    const init = { own: 'milano', loop: agentConfig('unused').loop }
    const loop =
      kind === 'AccessPolicy'
        ? new AccessPolicyLoop({ ...parts, writer }, init)
        : new TrafficPolicyLoop({ ...parts, writer, gateways }, init)
    const applyStatus = api.applyStatus.bind(api)
    let keeps: 'nothing' | 'less' | 'all' = 'nothing'
    api.applyStatus = (object) => {
      const { inForce, ...rest } = (object as TrafficPolicy).status ?? {}
      if (keeps === 'all' || inForce === undefined) return applyStatus(object)
      const status = keeps === 'nothing' ? rest : { ...rest, inForce: { ...inForce, spec: less } }
      return applyStatus({ ...object, status } as unknown as TrafficPolicy)
    }
    const pass = async (): Promise<void> => {
      for (let i = 0; i < 20_000; i += 500) await clock.advance(500)
    }
    const put = (name: string, spec: unknown): void =>
      api.put({ ...trafficPolicy(name, {}), kind, spec } as unknown as TrafficPolicy)
    const status = (name: string) => api.get(kind, name, 'shop')?.status
    const said = (): number => logger.lines.filter(({ fields }) => fields['reason'] === 'PolicyVersionNotKept').length
    api.put(clusterObject({ id: 'milano' }))
    api.put(clusterObject({ id: 'oslo', index: 1 }))
    for (const name of ['a', 'b', 'c']) put(name, good)
    const stop = new AbortController()
    const ended = loop.run(stop.signal)
    await pass()
    t.equal(said(), 1, `${kind}: once, however many there are`)
    t.equal(status('a')?.conditions?.[0]?.status, 'True')
    put('a', bad)
    await pass()
    t.equal(status('a')?.conditions?.[0]?.reason, `${codes[kind]},PolicyVersionNotKept`)
    t.equal(said(), 1)
    keeps = 'less'
    put('d', good)
    await pass()
    t.equal(status('d')?.inForce, undefined, `${kind}: what is stored would say more than its author did`)
    t.equal(said(), 2)
    keeps = 'all'
    put('e', good)
    await pass()
    t.match(status('e')?.inForce, { spec: good })
    t.equal(said(), 2)
    stop.abort()
    await ended
  }
})

t.test(
  'readiness that flips: a status is written at most once in 5 s, and not at all if all is as before',
  async (t) => {
    const [api, clock, logger] = [new MemoryApi(), new FakeClock(), new CapturingLogger()]
    const parts = { api, clock, logger, metrics: agentMetrics(createMetrics('agent')) }
    const gateways = new HeardGateways(parts)
    const { loop } = agentConfig('unused')
    const writer = new MirrorWriter(parts)
    const running = new TrafficPolicyLoop({ ...parts, writer, gateways }, { own: 'milano', loop })
    for (const [i, id] of ['milano', 'oslo', 'paris'].entries())
      api.put(clusterObject({ id, index: i, podCIDRs: [`10.${i}.0.0/16`] }))
    api.put(imported('web', 'oslo paris'))
    api.put(sliceFrom('oslo', 'web', 2))
    api.put(sliceFrom('paris', 'web', 2))
    api.put(trafficPolicy('p', { order: [{ any: {} }] }))
    const stop = new AbortController()
    const ended = running.run(stop.signal)
    const status = () => api.get('TrafficPolicy', 'p', 'shop')?.status
    const shares = (): string =>
      (status()?.services ?? []).flatMap((one) => one.shares.map(({ cluster, share }) => `${cluster} ${share}`)).join()
    const pass = async (ms: number): Promise<void> => {
      for (let i = 0; i < ms; i += 100) await clock.advance(100)
    }
    const writes = (): number =>
      api.writes.filter(({ verb, kind }) => verb === 'applyStatus' && kind === 'TrafficPolicy').length
    await pass(1000)
    t.equal(shares(), 'oslo 5000,paris 5000')
    t.match(status()?.conditions, [{ type: 'Valid', status: 'True' }])
    t.equal(writes(), 1)
    for (let i = 0; i < 20; i += 1) {
      api.put(sliceFrom('oslo', 'web', i % 2 === 0 ? 0 : 2))
      await pass(200)
    }
    await pass(10_000)
    t.equal(writes(), 1, 'all is as before')
    for (let i = 0; i < 100; i += 1) {
      api.put(sliceFrom('oslo', 'web', i % 50))
      await pass(200)
    }
    t.ok(writes() > 2 && writes() <= 6, `${writes()} writes in 20 s`)
    api.put(sliceFrom('oslo', 'web', 2))
    await pass(11_000)
    api.put(trafficPolicy('p', { order: [{ clusters: ['paris'] }, { any: {} }] }))
    await pass(1000)
    t.equal(shares(), 'oslo 0,paris 10000', 'what a user changes is reported at once')
    api.put(gatewaySaying('gw oslo up, paris down'))
    await pass(11_000)
    t.equal(shares(), 'oslo 10000,paris 0', 'a cluster that is not reached')
    // Another object of the name has the same generation. The shares of the first one are not its own.
    api.drop('TrafficPolicy', 'p', 'shop')
    api.put(trafficPolicy('p', { order: [{ clusters: ['oslo'] }] }, 'first'))
    api.put(gatewaySaying('gw oslo up, paris up'))
    await pass(11_000)
    t.equal(shares(), 'oslo 10000,paris 0')
    api.drop('TrafficPolicy', 'p', 'shop')
    await pass(1000)
    api.put(trafficPolicy('p', { order: [{ clusters: ['paris'] }] }, 'second'))
    await pass(1000)
    t.equal(shares(), 'oslo 0,paris 10000', 'a policy that a user has deleted and created again')
    api.drop('TrafficPolicy', 'p', 'shop')
    api.put(trafficPolicy('p', { order: [{ clusters: ['oslo'] }] }, 'third'))
    await pass(1000)
    t.equal(shares(), 'oslo 10000,paris 0', 'and again at once: nobody waits')
    stop.abort()
    await ended
  },
)
