/** Derived Services: which imports have one, what it holds, and what its import says about it. */
import fc from 'fast-check'
import t from 'tap'
import {
  type DerivedMemory,
  type DerivedPlan,
  type DerivedWorld,
  derivedAmong,
  planDerived,
} from '../../../agent/import/plan-derived.ts'
import type {
  EndpointSlice,
  Namespace,
  Service,
  ServiceImport,
  SliceEndpoint,
  TrafficPolicy,
} from '../../../model/objects.ts'
import { TrafficPolicies } from '../../../model/services/traffic-policies.ts'
import { KeyedMemo } from '../../../reconcile/incremental.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'
import { importObject, namespaceObject, serviceObject, sliceObject } from '../../support/objects/service-objects.ts'

const ASKED = 'sealane.io/derived-service'
const OURS = { 'app.kubernetes.io/managed-by': 'sealane' }

interface ImportInit {
  readonly name?: string
  readonly asks?: string
  readonly at?: string
  readonly spec?: Partial<ServiceImport['spec']>
}

function imported({ name = 'web', asks, at = '2026-01-01T00:00:00Z', spec }: ImportInit = {}): ServiceImport {
  const annotations = asks === undefined ? {} : { annotations: { [ASKED]: asks } }
  return importObject(
    { name, uid: `uid-${name}`, creationTimestamp: at, labels: OURS, ...annotations },
    { type: 'ClusterSetIP', ports: [{ name: 'http', protocol: 'TCP', port: 80 }], ...spec },
  )
}

function sliceFrom(cluster: string, service: string, endpoints: readonly SliceEndpoint[]): EndpointSlice {
  const labels = {
    'multicluster.kubernetes.io/service-name': service,
    'multicluster.kubernetes.io/source-cluster': cluster,
    'endpointslice.kubernetes.io/managed-by': 'agent.sealane.io',
  }
  const annotations = { 'sealane.io/pods': 'a' }
  return sliceObject(
    { name: `${service}-${cluster}-0`, labels, annotations },
    { ports: [{ name: 'http', protocol: 'TCP', port: 8080 }], endpoints: [...endpoints] },
  )
}

const up = (address: string): SliceEndpoint => ({ addresses: [address], conditions: { ready: true } })

function shop(pattern?: string): ReadonlyMap<string, Namespace> {
  const bare = namespaceObject('shop')
  const annotations = pattern === undefined ? {} : { annotations: { [ASKED]: pattern } }
  return new Map([['shop', { ...bare, metadata: { ...bare.metadata, ...annotations } }]])
}

const MEMBERS = ['milano', 'paris', 'tokyo'].map(
  (id, i) => [id, clusterObject({ id, index: i + 1, podCIDRs: [`10.${i + 1}.0.0/16`] })] as const,
)

function world(change: Partial<DerivedWorld> & { readonly policy?: TrafficPolicy['spec'] } = {}): DerivedWorld {
  const { policy, ...rest } = change
  const metadata = { name: 'p', namespace: 'shop' }
  const policies: TrafficPolicy[] =
    policy === undefined ? [] : [{ apiVersion: 'sealane.io/v1alpha1', kind: 'TrafficPolicy', metadata, spec: policy }]
  return {
    imports: [],
    namespaces: shop(),
    services: [],
    slices: [],
    serviceFamilies: [],
    isOffered: true,
    shares: {
      self: 'tokyo',
      clusterset: 'test',
      clusters: new Map(MEMBERS),
      reachable: undefined,
      policies: new TrafficPolicies({ policies, clusterPolicies: [] }),
      withoutEgress: new Set(),
    },
    ...rest,
  }
}

function services({ objects }: DerivedPlan): Service[] {
  return [...objects.values()].filter((one) => one.kind === 'Service')
}

function slices({ objects }: DerivedPlan): EndpointSlice[] {
  return [...objects.values()].filter((one) => one.kind === 'EndpointSlice')
}

function said({ findings }: DerivedPlan): string[] {
  return findings.map(
    ({ serviceImport, finding }) =>
      `${serviceImport.metadata.name} ${finding.status}/${finding.reason}: ${finding.message}`,
  )
}

/** What stands after a plan is carried out. */
function after(before: DerivedWorld, plan: DerivedPlan): DerivedWorld {
  const at = (one: Service | EndpointSlice): string => `${one.kind}/${one.metadata.name}`
  const gone = new Set(plan.remove.map((one) => at(one as Service)))
  const kept = <T extends Service | EndpointSlice>(all: readonly T[], fresh: readonly T[]): T[] => {
    const written = new Set(fresh.map(at))
    return [...all.filter((one) => !gone.has(at(one)) && !written.has(at(one))), ...fresh]
  }
  return {
    ...before,
    services: kept(before.services, services(plan)),
    slices: kept(before.slices, slices(plan)),
  }
}

t.test('the whole of one', async (t) => {
  const endpoint = { ...up('10.1.0.5'), zone: 'z1', hints: { forZones: [{ name: 'z1' }] }, hostname: 'web-0' }
  const affinity = { sessionAffinity: 'ClientIP', sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } } } as const
  const plan = planDerived(
    world({
      imports: [imported({ asks: 'web-clusterset', spec: affinity })],
      slices: [sliceFrom('milano', 'web', [endpoint]), sliceObject({ name: 'own', labels: {} })],
    }),
  )
  const owner = { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceImport', name: 'web', uid: 'uid-web' }
  const labels = { 'sealane.io/derived': 'true', 'sealane.io/derived-from': 'web', ...OURS }
  t.same(services(plan), [
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: {
        ...{ name: 'web-clusterset', namespace: 'shop', labels, ownerReferences: [owner] },
        annotations: { 'sealane.io/derived-ports': 'TCP/80' },
      },
      spec: { type: 'ClusterIP', ports: [{ name: 'http', protocol: 'TCP', port: 80 }], ...affinity },
    },
  ])
  const [copy] = slices(plan)
  t.match(copy?.metadata.name, /^web-clusterset-milano-[0-9a-f]{16}$/)
  t.same(copy?.metadata.labels, {
    ...labels,
    'kubernetes.io/service-name': 'web-clusterset',
    'multicluster.kubernetes.io/source-cluster': 'milano',
    'endpointslice.kubernetes.io/managed-by': 'agent.sealane.io',
  })
  t.equal(copy?.metadata.annotations, undefined, 'notes for readers of imports stay behind')
  t.same([copy?.endpoints, copy?.ports], [[endpoint], [{ name: 'http', protocol: 'TCP', port: 8080 }]])
  t.equal(slices(plan).length, 1)
  t.same(said(plan), ['web True/DerivedServiceReady: Service shop/web-clusterset'])
})

t.test('names', async (t) => {
  const limit = 'a name of a Service: 1 to 63 of a-z, 0-9 and -, a letter first'
  const rows: readonly [what: string, asks: string | undefined, pattern: string | undefined, want: string][] = [
    ['nothing is asked', undefined, undefined, ''],
    ['by the import', 'x-clusterset', undefined, 'x-clusterset'],
    ['by the Namespace', undefined, '*-global', 'web-global'],
    ['all around', undefined, 'a-*-b', 'a-web-b'],
    ['a bare *', undefined, '*', 'DerivedServiceNameInvalid'],
    ['the name of the import', 'web', 'w*', 'DerivedServiceNameInvalid'],
    ['a bare * is no consent', 'other', '*', 'DerivedServiceNameInvalid'],
    ['a bare * does not forbid the fixed end', 'x-clusterset', '*', 'x-clusterset'],
    ['the import counts first', 'eu-global', '*-global', 'eu-global'],
    ['the import wants none', '', '*-global', ''],
    ['an empty pattern', undefined, '', ''],
    ['no consent', 'other', undefined, 'DerivedServiceNameInvalid'],
    ['another end', 'other', '*-global', 'DerivedServiceNameInvalid'],
    ['nothing in the place of *', '-global', '*-global', 'DerivedServiceNameInvalid'],
    ['the two ends overlap', 'aba', 'ab*ba', 'DerivedServiceNameInvalid'],
    ['a pattern without *', undefined, 'global', 'DerivedServiceNameInvalid'],
    ['a pattern with two', undefined, '*-*', 'DerivedServiceNameInvalid'],
    ['a digit first', '1-clusterset', undefined, 'DerivedServiceNameInvalid'],
    ['capitals', 'X-clusterset', undefined, 'DerivedServiceNameInvalid'],
    ['a dot', 'a.b-clusterset', undefined, 'DerivedServiceNameInvalid'],
    ['too long', undefined, `*-${'x'.repeat(60)}`, 'DerivedServiceNameInvalid'],
    ['what a replacement could mean', undefined, '$&*', 'DerivedServiceNameInvalid'],
  ]
  for (const [what, asks, pattern, want] of rows) {
    const plan = planDerived(
      world({ imports: [imported(asks === undefined ? {} : { asks })], namespaces: shop(pattern) }),
    )
    const isWrong = plan.findings.some(({ finding }) => finding.status === 'False')
    t.equal(isWrong ? plan.findings[0]?.finding.reason : (services(plan)[0]?.metadata.name ?? ''), want, what)
    t.equal(services(plan).length, want === '' || isWrong ? 0 : 1, what)
  }
  const [text] = said(planDerived(world({ imports: [imported()], namespaces: shop('7*') })))
  const at = 'annotation sealane.io/derived-service of Namespace shop "7*"'
  t.equal(text, `web False/DerivedServiceNameInvalid: ${at}: expected ${limit}, which "7web" is not`)
  const [bare] = said(planDerived(world({ imports: [imported()], namespaces: shop('*') })))
  const more = 'one * for the name of the import, and more around it, such as *-clusterset'
  t.equal(bare, `web False/DerivedServiceNameInvalid: ${at.replace('7*', '*')}: expected ${more}`)
})

t.test('who has the name', async (t) => {
  const mine = serviceObject({ name: 'x-clusterset' }, { ports: [{ port: 1, protocol: 'TCP' }] })
  const plan = planDerived(world({ imports: [imported({ asks: 'x-clusterset' })], services: [mine] }))
  t.same([plan.objects.size, plan.remove], [0, []], 'a Service of a user is neither taken nor removed')
  t.same(said(plan), [
    'web False/DerivedServiceNameTaken: Service shop/x-clusterset exists, and Sealane did not create it',
  ])

  const imports = [
    imported({ name: 'aaa', asks: 'x-clusterset', at: '2026-02-02T00:00:00Z' }),
    imported({ name: 'zzz', asks: 'x-clusterset', at: '2026-01-01T00:00:00Z' }),
  ]
  for (const all of [imports, [...imports].reverse()]) {
    const both = planDerived(world({ imports: all }))
    t.same(
      services(both).map(({ metadata }) => metadata.labels?.['sealane.io/derived-from']),
      ['zzz'],
    )
    t.same(said(both), [
      'zzz True/DerivedServiceReady: Service shop/x-clusterset',
      'aaa False/DerivedServiceNameTaken: Service shop/x-clusterset is derived from ServiceImport zzz, which is older',
    ])
  }
  const foreign = {
    ...imported({ asks: 'x-clusterset' }),
    metadata: { ...imported({ asks: 'x' }).metadata, labels: {} },
  }
  t.same(planDerived(world({ imports: [foreign] })).findings, [], 'an import of another implementation')
})

t.test('a derived Service that a user took over', async (t) => {
  const asked = imported({ asks: 'x-clusterset' })
  const start = world({ imports: [asked], slices: [sliceFrom('milano', 'web', [up('10.1.0.1')])] })
  const there = after(start, planDerived(start))
  const [ours] = there.services
  if (ours === undefined) throw new Error('no derived Service')
  const { metadata, spec } = ours
  const other = { ports: [{ name: 'http', protocol: 'TCP', port: 81 }] } as const
  const ofKubernetes = {
    'kubernetes.io/service-name': 'x-clusterset',
    'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
  }
  const theirs = sliceObject({ name: 'x-clusterset-abc', labels: { ...metadata.labels, ...ofKubernetes } })
  const rows: readonly [what: string, change: Partial<Service>, why: string][] = [
    ['a selector', { spec: { ...spec, selector: { app: 'web' } } }, 'a user gave it a selector'],
    [
      'a selector and other ports',
      { spec: { ...spec, ...other, selector: { app: 'web' } } },
      'a user gave it a selector',
    ],
    ['externalIPs', { spec: { ...spec, externalIPs: ['192.0.2.1'] } }, 'a user gave it externalIPs'],
    ['another type', { spec: { ...spec, type: 'LoadBalancer' } }, 'a user gave it type LoadBalancer'],
    ['no owner', { metadata: { ...metadata, ownerReferences: [] } }, 'ServiceImport "web" does not own it'],
    [
      'another origin',
      { metadata: { ...metadata, labels: { ...metadata.labels, 'sealane.io/derived-from': 'api' } } },
      'ServiceImport "api" does not own it',
    ],
    ['no label', { metadata: { ...metadata, labels: {} } }, 'Sealane did not create it'],
  ]
  for (const [what, change, why] of rows) {
    const taken = { ...there, services: [{ ...ours, ...change }], slices: [...there.slices, theirs] }
    const plan = planDerived(taken)
    t.equal(plan.objects.size, 0, `${what}: nothing is written`)
    t.same(plan.remove, [there.slices[1]], `${what}: our slice goes, and nothing else`)
    t.same(said(plan), [`web False/DerivedServiceNameTaken: Service shop/x-clusterset exists, and ${why}`], what)
    t.same(planDerived({ ...taken, imports: [] }).remove, [there.slices[1]], `${what}: without the import alike`)
    t.same(derivedAmong(taken.services), [], `${what}: it stays when the cluster leaves`)
  }
  const emptied = planDerived({ ...there, services: [{ ...ours, spec: { ...spec, selector: {}, externalIPs: [] } }] })
  t.same([services(emptied), emptied.remove], [[ours], []], 'empty fields are none')
})

t.test('families', async (t) => {
  type Families = readonly ('IPv4' | 'IPv6')[]
  const asked = (ipFamilies: Families, type: 'ClusterSetIP' | 'Headless'): ServiceImport =>
    imported({ asks: 'x-clusterset', spec: { ipFamilies: [...ipFamilies], type } })
  const both = { serviceFamilies: ['IPv4', 'IPv6'] } as const
  const rows: readonly [from: Families, to: Families, removed: boolean][] = [
    [['IPv4'], ['IPv4', 'IPv6'], false],
    [['IPv4', 'IPv6'], ['IPv4'], false],
    [['IPv4', 'IPv6'], ['IPv6'], true],
    [['IPv6'], ['IPv4', 'IPv6'], true],
    [['IPv4'], ['IPv6'], true],
  ]
  for (const type of ['ClusterSetIP', 'Headless'] as const)
    for (const [from, to, removed] of rows) {
      const what = `${type} ${from.join('+')} to ${to.join('+')}`
      const start = world({ imports: [asked(from, type)], ...both })
      const there = { ...after(start, planDerived(start)), imports: [asked(to, type)] }
      const plan = planDerived(there)
      t.same([plan.remove.length, services(plan).length], removed ? [1, 0] : [0, 1], what)
      const end = planDerived(after(there, plan))
      const ipFamilyPolicy = to.length === 2 ? 'RequireDualStack' : 'SingleStack'
      t.match(services(end)[0]?.spec, { ipFamilies: to, ipFamilyPolicy }, what)
      t.same(end.remove, [], what)
    }
})

t.test('forms', async (t) => {
  const rows: readonly [
    what: string,
    spec: Partial<ServiceImport['spec']>,
    ours: DerivedWorld['serviceFamilies'],
    want: object,
  ][] = [
    ['headless', { type: 'Headless', sessionAffinity: 'ClientIP' }, [], { clusterIP: 'None', sessionAffinity: 'None' }],
    ['headless without ports', { type: 'Headless', ports: [] }, [], { clusterIP: 'None', ports: [] }],
    [
      'both families here',
      { ipFamilies: ['IPv6', 'IPv4'] },
      ['IPv4', 'IPv6'],
      { ipFamilies: ['IPv6', 'IPv4'], ipFamilyPolicy: 'RequireDualStack' },
    ],
    [
      'one family here',
      { ipFamilies: ['IPv6', 'IPv4'] },
      ['IPv4'],
      { ipFamilies: ['IPv4'], ipFamilyPolicy: 'SingleStack' },
    ],
    ['unknown families here', { ipFamilies: ['IPv4'] }, [], { ipFamilies: undefined, ipFamilyPolicy: undefined }],
    ['local only', { internalTrafficPolicy: 'Local' }, [], { internalTrafficPolicy: 'Local' }],
  ]
  for (const [what, spec, serviceFamilies, want] of rows) {
    const [service] = services(
      planDerived(world({ imports: [imported({ asks: 'x-clusterset', spec })], serviceFamilies })),
    )
    for (const [field, value] of Object.entries(want))
      t.same((service?.spec as Record<string, unknown> | undefined)?.[field], value, `${what}: ${field}`)
  }
  const refused = (change: ImportInit['spec'], more: Partial<DerivedWorld> = {}): unknown =>
    planDerived(world({ imports: [imported({ asks: 'x-clusterset', ...(change && { spec: change }) })], ...more }))
      .findings[0]?.finding.reason
  t.equal(refused({ ipFamilies: ['IPv6'] }, { serviceFamilies: ['IPv4'] }), 'IPFamilyNotSupported')
  t.equal(refused({ ports: [] }), 'DerivedServiceNameInvalid')
  t.equal(refused({}, { isOffered: false }), 'DerivedServiceNotOffered')
})

t.test('which clusters count', async (t) => {
  const input = {
    imports: [imported({ asks: 'x-clusterset' })],
    slices: [
      sliceFrom('milano', 'web', [up('10.1.0.1'), up('10.1.0.2')]),
      sliceFrom('paris', 'web', [up('10.2.0.1'), up('10.2.0.2')]),
    ],
  }
  const rows: readonly [what: string, policy: TrafficPolicy['spec'] | undefined, clusters: string[], text: string][] = [
    ['no policy', undefined, ['milano', 'paris'], 'DerivedServiceReady: Service shop/x-clusterset'],
    [
      'weights',
      { order: [{ clusters: ['milano', 'paris'], weights: { milano: 1, paris: 9 } }] },
      ['milano', 'paris'],
      'DerivedServiceReady,DerivedServiceWithoutWeights: Service shop/x-clusterset; ' +
        'weights cannot be had: each ready endpoint gets the same share',
    ],
    [
      'weights that endpoints give anyway',
      { order: [{ clusters: ['milano', 'paris'], weights: { milano: 5, paris: 5 } }] },
      ['milano', 'paris'],
      'DerivedServiceReady: Service shop/x-clusterset',
    ],
    [
      'a drain',
      { order: [{ clusters: ['milano', 'paris'], weights: { milano: 0, paris: 1 } }] },
      ['paris'],
      'DerivedServiceReady: Service shop/x-clusterset; without endpoints of milano',
    ],
    [
      'an order',
      { order: [{ clusters: ['milano'] }, { any: {} }] },
      ['milano'],
      'DerivedServiceReady: Service shop/x-clusterset; without endpoints of paris',
    ],
  ]
  for (const [what, policy, clusters, text] of rows) {
    const plan = planDerived(world({ ...input, ...(policy === undefined ? {} : { policy }) }))
    const from = slices(plan).map(({ metadata }) => metadata.labels?.['multicluster.kubernetes.io/source-cluster'])
    t.same(from, clusters, what)
    t.same(said(plan), [`web True/${text}`], what)
  }
  const cut = world(input)
  const lost = planDerived({ ...cut, shares: { ...cut.shares, reachable: new Set(['tokyo', 'paris']) } })
  t.equal(said(lost)[0], 'web True/DerivedServiceReady: Service shop/x-clusterset; without endpoints of milano')
  const sticky = planDerived(world({ ...input, policy: { sessionAffinity: { clientIP: { timeoutSeconds: 7 } } } }))
  t.match(services(sticky)[0]?.spec, {
    sessionAffinity: 'ClientIP',
    sessionAffinityConfig: { clientIP: { timeoutSeconds: 7 } },
  })
  const withoutSlices = { ...input, slices: [], policy: { sessionAffinity: { clientIP: { timeoutSeconds: 7 } } } }
  t.match(services(planDerived(world(withoutSlices)))[0]?.spec, services(sticky)[0]?.spec, 'no cluster has endpoints')
})

t.test('removal, and a change that no update can make', async (t) => {
  const start = world({
    imports: [imported({ asks: 'x-clusterset' })],
    slices: [sliceFrom('milano', 'web', [up('10.1.0.1')])],
  })
  const there = after(start, planDerived(start))
  t.same([there.services.length, there.slices.length], [1, 2])
  const gone = planDerived({ ...there, imports: [imported()] })
  t.same(
    gone.remove.map(({ kind }) => kind),
    ['Service', 'EndpointSlice'],
    'the annotation goes',
  )
  t.same(gone.findings, [], 'an import without the condition needs none')
  const condition = {
    type: 'sealane.io/DerivedService',
    status: 'True',
    reason: 'DerivedServiceReady',
    message: '',
  } as const
  const status = { conditions: [{ ...condition, lastTransitionTime: '2026-01-01T00:00:00Z' }] }
  t.same(said(planDerived({ ...there, imports: [{ ...imported(), status }] })), [
    'web False/DerivedServiceNotAsked: no annotation asks for it',
  ])
  t.equal(planDerived({ ...there, imports: [] }).remove.length, 2, 'the import goes')
  const headless = imported({ asks: 'x-clusterset', spec: { type: 'Headless' } })
  const first = planDerived({ ...there, imports: [headless] })
  t.same([services(first), first.remove.map(({ kind }) => kind)], [[], ['Service']], 'it goes first')
  const second = planDerived(after({ ...there, imports: [headless] }, first))
  t.same([services(second)[0]?.spec?.clusterIP, second.remove], ['None', []], 'and comes back')

  const moved = { ports: [{ name: 'http', protocol: 'TCP', port: 81 }] } as const
  const other = planDerived({ ...there, imports: [imported({ asks: 'x-clusterset', spec: moved })] })
  t.same([services(other)[0]?.spec?.ports?.[0]?.port, other.remove], [81, []], 'another port needs no removal')
  const edited = there.services.map((one) => ({ ...one, spec: { ...one.spec, ...moved } }))
  const mended = planDerived({ ...there, services: edited })
  t.same([services(mended), mended.remove.map(({ kind }) => kind)], [[], ['Service']], 'a port of somebody else does')
})

t.test('any world: no user loses anything, each name has one owner, and a second plan changes nothing', async (t) => {
  const name = fc.constantFrom('a', 'b', 'c')
  const asks = fc.constantFrom('a-clusterset', 'b-clusterset', 'a', '', 'A', undefined)
  const arbImport = fc
    .record({ name, asks, at: fc.constantFrom('2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z'), headless: fc.boolean() })
    .map(({ name: is, asks: wants, at, headless }) =>
      imported({
        ...{ name: is, at, spec: { type: headless ? 'Headless' : 'ClusterSetIP' } },
        ...(wants === undefined ? {} : { asks: wants }),
      }),
    )
  const arbWorld = fc
    .record({
      imports: fc.uniqueArray(arbImport, { selector: ({ metadata }) => metadata.name }),
      pattern: fc.constantFrom(undefined, '*', '*-clusterset', 'x', ''),
      mine: fc.subarray(['a', 'a-clusterset', 'c-clusterset']),
      from: fc.uniqueArray(fc.tuple(fc.constantFrom('milano', 'paris', 'tokyo'), name), { selector: String }),
      reachable: fc.option(fc.subarray(['milano', 'paris']), { nil: undefined }),
    })
    .map(({ imports, pattern, mine, from, reachable }) => {
      const whole = world({
        imports,
        namespaces: shop(pattern),
        services: mine.map((one) => serviceObject({ name: one })),
        slices: from.map(([cluster, service], i) => sliceFrom(cluster, service, [up(`10.1.0.${i}`)])),
      })
      return { ...whole, shares: { ...whole.shares, reachable: reachable && new Set(['tokyo', ...reachable]) } }
    })
  const shown = (plan: DerivedPlan): string => JSON.stringify([[...plan.objects].sort(), said(plan)])
  fc.assert(
    fc.property(arbWorld, arbWorld, (one, other) => {
      const mine = new Set(one.services.map(({ metadata }) => metadata.name))
      const memory: DerivedMemory = new KeyedMemo()
      const plan = planDerived(one, memory)
      const there = after(one, plan)
      const again = planDerived(there, memory)
      const ofOther = after(there, planDerived({ ...there, imports: other.imports, namespaces: other.namespaces }))
      const back = planDerived(after(ofOther, planDerived({ ...ofOther, ...pick(one) })))
      return (
        services(plan).every(({ metadata }) => !mine.has(metadata.name)) &&
        slices(plan).every(({ metadata }) =>
          services(plan).some((service) => service.metadata.name === metadata.labels?.['kubernetes.io/service-name']),
        ) &&
        plan.remove.length === 0 &&
        again.remove.length === 0 &&
        shown(again) === shown(plan) &&
        slices(again).every((slice, i) => slice === slices(plan)[i]) &&
        shown(planDerived({ ...one, imports: [...one.imports].reverse() })) === shown(plan) &&
        [...mine].every((left) => ofOther.services.some(({ metadata }) => metadata.name === left)) &&
        shown(planDerived(after({ ...ofOther, ...pick(one) }, back))) === shown(plan)
      )
    }),
    { numRuns: 300 },
  )
  t.pass('holds')
})

function pick({ imports, namespaces }: DerivedWorld): Pick<DerivedWorld, 'imports' | 'namespaces'> {
  return { imports, namespaces }
}

t.test('a slice is copied with the ports in whose calls its cluster has a share', async (t) => {
  const http = { name: 'http', protocol: 'TCP', port: 80 } as const
  const grpc = { name: 'grpc', protocol: 'TCP', port: 90 } as const
  const of = (cluster: string, address: string, ports: NonNullable<EndpointSlice['ports']>): EndpointSlice => ({
    ...sliceFrom(cluster, 'web', [up(address)]),
    ports,
  })
  const both = [http, grpc]
  const given = [of('milano', '10.1.0.5', [http]), of('paris', '10.2.0.5', both), of('tokyo', '10.3.0.5', both)]
  const imports = [imported({ asks: 'web-clusterset', spec: { ports: both } })]
  const memory: DerivedMemory = new KeyedMemo()
  const planned = (order: NonNullable<TrafficPolicy['spec']['order']>): DerivedPlan =>
    planDerived(world({ imports, slices: given, policy: { order, whenNoneReady: 'refuse' } }), memory)
  const ports = (plan: DerivedPlan): string[] =>
    slices(plan).map((one) => `${one.endpoints?.[0]?.addresses[0]} ${one.ports?.map(({ name }) => name).join()}`)
  const milano = [{ clusters: ['milano'] }, { clusters: ['paris'] }]
  const first = planned(milano)
  t.same(ports(first), ['10.1.0.5 http', '10.2.0.5 grpc'])
  t.same(said(first), ['web True/DerivedServiceReady: Service shop/web-clusterset; without endpoints of tokyo'])
  t.equal(slices(planned(milano))[1], slices(first)[1], 'the same object while nothing changes')
  t.same(ports(planned([{ clusters: ['paris'] }])), ['10.2.0.5 http,grpc'])
  t.same(ports(planned([{ clusters: ['milano'] }])), ['10.1.0.5 http'], 'grpc is refused')
})
