import fc from 'fast-check'
import t from 'tap'
import { type ImportPlan, type ImportWorld, newImportMemory, planImports } from '../../agent/plan-imports.ts'
import { planPrune } from '../../agent/plan-prune.ts'
import type { ClusterId } from '../../model/ids.ts'
import type { Cluster, ClusterSpec, Endpoint, EndpointSlice, ServiceImport } from '../../model/objects.ts'
import type { EndpointSliceBody, RecordBody, ServiceExportBody, StoredRecord } from '../../model/records.ts'
import { parsePrefix } from '../../model/ip.ts'
import { showImport, showSlice } from './site.ts'

const RANGE = parsePrefix('245.0.0.0/16')
const INIT = { allowedNamespaces: [] }
const OWN: ClusterSpec = {
  id: 'tokyo',
  index: 3,
  podCIDRs: ['10.42.0.0/16'],
  serviceCIDRs: [],
  globalCIDRs: ['244.3.0.0/16'],
  labels: {},
}

function record(cluster: string, name: string, body: RecordBody, createdAtMs = 1): StoredRecord {
  const namespace = body.kind === 'Cluster' || body.kind === 'Endpoint' ? '' : 'shop'
  return { key: { cluster: cluster as ClusterId, kind: body.kind, namespace, name }, revision: 1, createdAtMs, body }
}

function cluster(id: string, podCIDRs: string[], globalCIDRs: string[]): StoredRecord {
  return record(id, id, { kind: 'Cluster', spec: { ...OWN, id, podCIDRs, globalCIDRs } })
}

function exported(from: string, change: Partial<ServiceExportBody> = {}, createdAtMs = 1): StoredRecord {
  return record(
    from,
    'web',
    {
      kind: 'ServiceExport',
      uid: 'u',
      type: 'ClusterSetIP',
      ports: [{ name: 'http', protocol: 'TCP', port: 80 }],
      sessionAffinity: 'None',
      ipFamilies: ['IPv4'],
      exportedLabels: {},
      exportedAnnotations: {},
      ...change,
    },
    createdAtMs,
  )
}

function sliceOf(from: string, addresses: string, change: Partial<EndpointSliceBody> = {}): StoredRecord {
  return record(from, 'web-1', {
    kind: 'EndpointSlice',
    service: 'web',
    addressType: 'IPv4',
    ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
    endpoints: addresses
      .split(' ')
      .filter(Boolean)
      .map((address) => ({ addresses: [address], nodeName: 'n', zone: 'z' })),
    ...change,
  })
}

const IP = record('', 'web', { kind: 'ClusterSetIP', ips: ['245.0.0.7'] })
const MILANO = cluster('milano', ['10.42.0.0/16'], ['244.1.0.0/16'])
const FLAT = cluster('flat', ['10.99.0.0/16'], [])

function world(records: StoredRecord[], change: Partial<ImportWorld> = {}): ImportWorld {
  return {
    own: 'tokyo',
    ownSpec: OWN,
    records,
    certain: new Set(['', 'tokyo', 'milano', 'flat']),
    namespaces: new Set(['shop']),
    ownSlices: () => undefined,
    serviceImport: () => undefined,
    clusters: new Map([['tokyo', OWN]]),
    endpointOwner: () => undefined,
    clustersetIpRange: RANGE,
    ...change,
  }
}

function plan(records: StoredRecord[], change: Partial<ImportWorld> = {}): ImportPlan {
  return planImports(world(records, change), newImportMemory(INIT))
}

function show({ objects, services }: ImportPlan): string[] {
  return [...objects.values()].map((object) => {
    if (object.kind === 'ServiceImport') {
      const service = services.get(`ServiceImport/${object.metadata.namespace}/${object.metadata.name}`)!
      const conditions = [{ ...service.ready, lastTransitionTime: '' }]
      return showImport({
        ...object,
        status: { clusters: service.clusters.map((id) => ({ cluster: id })), conditions },
      })
    }
    return object.kind === 'EndpointSlice' ? showSlice(object) : `${object.kind} ${object.metadata.name}`
  })
}

t.test('what becomes of records', async (t) => {
  const rows: [name: string, records: StoredRecord[], want: string[]][] = [
    ['nothing', [], []],
    [
      'translated',
      [MILANO, IP, exported('milano'), sliceOf('milano', '10.42.0.5')],
      [
        'Cluster milano',
        'web<-milano http:8080 244.1.0.5(10-42-0-5)',
        'shop/web ClusterSetIP 245.0.0.7 http:80 from milano Ready',
      ],
    ],
    [
      'flat',
      [FLAT, IP, exported('flat'), sliceOf('flat', '10.99.0.5')],
      [
        'Cluster flat',
        'web<-flat http:8080 10.99.0.5(10-99-0-5)',
        'shop/web ClusterSetIP 245.0.0.7 http:80 from flat Ready',
      ],
    ],
    [
      'our own',
      [IP, exported('tokyo'), sliceOf('tokyo', '10.42.0.5')],
      ['web<-tokyo http:8080 10.42.0.5(10-42-0-5)', 'shop/web ClusterSetIP 245.0.0.7 http:80 from tokyo Ready'],
    ],
    [
      'no address yet',
      [MILANO, exported('milano')],
      ['Cluster milano', 'shop/web ClusterSetIP - http:80 from milano Pending'],
    ],
    [
      'an address out of range',
      [MILANO, record('', 'web', { kind: 'ClusterSetIP', ips: ['10.0.0.1'] }), exported('milano')],
      ['Cluster milano', 'shop/web ClusterSetIP - http:80 from milano Pending'],
    ],
    [
      'only IPv6',
      [MILANO, IP, exported('milano', { ipFamilies: ['IPv6'] })],
      ['Cluster milano', 'shop/web ClusterSetIP - http:80 from milano IPFamilyNotSupported'],
    ],
    [
      'headless',
      [MILANO, IP, exported('milano', { type: 'Headless', ports: [] }), sliceOf('milano', '10.42.0.5', { ports: [] })],
      ['Cluster milano', 'web<-milano  244.1.0.5(10-42-0-5)', 'shop/web Headless -  from milano Ready'],
    ],
    ['slices without an export', [MILANO, IP, sliceOf('milano', '10.42.0.5')], ['Cluster milano']],
    [
      'an address that its owner has no right to',
      [MILANO, IP, exported('milano'), sliceOf('milano', '10.43.0.5 10.42.0.6 169.254.169.254')],
      [
        'Cluster milano',
        'web<-milano http:8080 244.1.0.6(10-42-0-6)',
        'shop/web ClusterSetIP 245.0.0.7 http:80 from milano Ready',
      ],
    ],
    [
      'a port that lost its number serves nothing',
      [
        MILANO,
        FLAT,
        IP,
        exported('flat'),
        exported('milano', { ports: [{ name: 'http', protocol: 'TCP', port: 81 }] }, 2),
        sliceOf('flat', '10.99.0.1'),
        sliceOf('milano', '10.42.0.5'),
      ],
      [
        'Cluster flat',
        'Cluster milano',
        'web<-flat http:8080 10.99.0.1(10-99-0-1)',
        'shop/web ClusterSetIP 245.0.0.7 http:80 from flat,milano Ready',
      ],
    ],
    [
      'a cluster that overlaps ours untranslated',
      [cluster('bad', ['10.42.0.0/17'], []), IP, exported('bad'), sliceOf('bad', '10.42.0.5')],
      ['shop/web ClusterSetIP 245.0.0.7 http:80 from bad Ready'],
    ],
  ]
  for (const [name, records, want] of rows) t.same(show(plan(records)), want, name)
})

t.test('the objects in full', async (t) => {
  const { objects } = plan([
    MILANO,
    IP,
    exported('milano', { exportedLabels: { a: 'b' }, exportedAnnotations: { c: 'd' } }),
    sliceOf('milano', '10.42.0.5'),
  ])
  t.strictSame(objects.get('ServiceImport/shop/web'), {
    apiVersion: 'multicluster.x-k8s.io/v1beta1',
    kind: 'ServiceImport',
    metadata: { name: 'web', namespace: 'shop', labels: { a: 'b' }, annotations: { c: 'd' } },
    spec: {
      type: 'ClusterSetIP',
      ports: [{ name: 'http', protocol: 'TCP', port: 80 }],
      ipFamilies: ['IPv4'],
      ips: ['245.0.0.7'],
      sessionAffinity: 'None',
    },
  })
  const slice = [...objects.values()].find(({ kind }) => kind === 'EndpointSlice')!
  t.match(slice.metadata.name, /^web-milano-[0-9a-f]{16}$/)
  t.strictSame(
    slice,
    {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: {
        name: slice.metadata.name,
        namespace: 'shop',
        labels: {
          'multicluster.kubernetes.io/service-name': 'web',
          'multicluster.kubernetes.io/source-cluster': 'milano',
          'endpointslice.kubernetes.io/managed-by': 'agent.sealane.io',
        },
      },
      addressType: 'IPv4',
      ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
      endpoints: [{ addresses: ['244.1.0.5'], hostname: '10-42-0-5', zone: 'z' }],
    },
    'no node name of another cluster',
  )
})

t.test('bad records are left out, with a reason, and only they', async (t) => {
  const bad = (change: Partial<StoredRecord['key']>, body: RecordBody): StoredRecord => {
    const good = record('milano', 'web', body)
    return { ...good, key: { ...good.key, ...change } }
  }
  const body = exported('milano').body as ServiceExportBody
  const endpoint = { cluster: 'milano', node: 'gw', lane: 0, publicKey: 'k', candidates: [], capabilities: [] }
  const rows: [StoredRecord, reason: string][] = [
    [bad({ namespace: 'kube-system' }, body), 'namespace "kube-system" is a system namespace'],
    [bad({ namespace: 'openshift-dns' }, body), 'namespace "openshift-dns" is a system namespace'],
    [bad({ namespace: '../..' }, body), 'namespace "../.." is not a DNS label'],
    [bad({ name: 'Web' }, body), 'service name "Web" is not a DNS label'],
    [bad({ cluster: 'a.b' as ClusterId }, body), 'cluster id "a.b" is not a DNS label'],
    [bad({}, { ...body, ports: [{ name: 'a b', protocol: 'TCP', port: 80 }] }), 'port "a b" 80 is malformed'],
    [bad({}, { ...body, ports: [{ protocol: 'TCP', port: 70000 }] }), 'port "" 70000 is malformed'],
    [bad({}, { ...body, exportedLabels: { 'a b': 'c' } }), 'label "a b=c" is malformed'],
    [bad({}, { ...body, exportedLabels: { a: 'c d' } }), 'label "a=c d" is malformed'],
    [bad({}, { ...body, exportedAnnotations: { 'a//b': '' } }), 'annotation "a//b" is malformed'],
    [bad({}, { ...body, internalTrafficPolicy: 'x' }), 'internalTrafficPolicy "x"'],
    [
      bad({ namespace: '' }, { kind: 'Endpoint', spec: { ...endpoint, cluster: 'paris' } }),
      'it claims to belong to cluster "paris"',
    ],
    [
      bad({ namespace: '' }, { kind: 'Endpoint', spec: { ...endpoint, node: '../x' } }),
      'node "../x" is not a DNS name',
    ],
    [cluster('bad', ['10.42.0.0/16'], []), "10.42.0.0/16 overlaps this cluster's own pod CIDRs"],
    [cluster('bad', ['127.0.0.0/8'], []), '127.0.0.0/8 is no usable network'],
    [
      cluster('bad', ['10.1.0.0/16'], ['244.9.0.0/24']),
      'globalCIDRs[0] "244.9.0.0/24": expected the size and family of podCIDRs[0], 10.1.0.0/16',
    ],
    [cluster('bad', ['x'], []), 'podCIDRs "x": expected a CIDR such as 10.42.0.0/16'],
  ]
  const good = [MILANO, FLAT, IP, exported('flat'), sliceOf('flat', '10.99.0.1')]
  for (const [one, reason] of rows) {
    const found = plan([one, ...good])
    t.same(
      found.dropped.map((dropped) => dropped.reason),
      [reason],
    )
    t.same(
      show(found),
      [
        'Cluster flat',
        'Cluster milano',
        'web<-flat http:8080 10.99.0.1(10-99-0-1)',
        'shop/web ClusterSetIP 245.0.0.7 http:80 from flat Ready',
      ],
      reason,
    )
  }
  t.same(
    planImports(
      world([bad({ namespace: 'kube-system' }, body)]),
      newImportMemory({ allowedNamespaces: ['kube-system'] }),
    ).dropped,
    [],
    'allowed',
  )
})

t.test('gateways whose object names are equal', async (t) => {
  const endpoint = (from: string, node: string): StoredRecord =>
    record(from, `${from}-${node}`, {
      kind: 'Endpoint',
      spec: { cluster: from, node, lane: 0, publicKey: from, candidates: [], capabilities: [] },
    })
  const both = [endpoint('a', 'b-c'), endpoint('a-b', 'c')]
  const owner = (found: ImportPlan): string => (found.objects.get('Endpoint/a-b-c-lane0') as Endpoint).spec.cluster
  t.equal(owner(plan(both)), 'a', 'the smaller id')
  t.equal(owner(plan(both, { endpointOwner: () => 'a-b' })), 'a-b', 'who has it keeps it')
  const mine = plan(both, { endpointOwner: () => 'tokyo' })
  t.same(
    [mine.objects.size, mine.dropped.map(({ reason }) => reason)],
    [0, ['the name a-b-c-lane0 is taken', 'the name a-b-c-lane0 is taken']],
    'never ours',
  )
})

const PRESENT: ServiceImport = {
  apiVersion: 'multicluster.x-k8s.io/v1beta1',
  kind: 'ServiceImport',
  metadata: { name: 'web', namespace: 'shop' },
  spec: {
    type: 'ClusterSetIP',
    ports: [{ name: 'old', protocol: 'TCP', port: 80 }],
    ips: ['245.0.0.7'],
    ipFamilies: ['IPv4'],
  },
  status: { clusters: [{ cluster: 'flat' }, { cluster: 'milano' }] },
}

t.test('an exporter that the broker has not heard of yet is waited for', async (t) => {
  const records = [MILANO, FLAT, IP, exported('milano'), sliceOf('milano', '10.42.0.5')]
  const waiting = { certain: new Set(['', 'milano']), serviceImport: () => PRESENT }
  const held = plan(records, waiting)
  t.same(
    show(held),
    ['Cluster flat', 'Cluster milano', 'web<-milano old:8080 244.1.0.5(10-42-0-5)'],
    'slices follow, under the names in force',
  )
  t.ok(held.services.has('ServiceImport/shop/web'), 'the ServiceImport is held')
  t.same(
    show(plan(records, { ...waiting, certain: new Set(['', 'milano', 'flat']) })).at(-1),
    'shop/web ClusterSetIP 245.0.0.7 http:80 from milano Ready',
  )
})

t.test('the address stays until the broker has all of its own records', async (t) => {
  const records = [MILANO, exported('milano'), sliceOf('milano', '')]
  const present = { ...PRESENT, status: { clusters: [{ cluster: 'milano' }] } }
  const last = (certain: string[]): string | undefined =>
    show(plan(records, { certain: new Set(certain), serviceImport: () => present })).at(-1)
  t.equal(last(['milano']), 'shop/web ClusterSetIP 245.0.0.7 http:80 from milano Ready')
  t.equal(last(['milano', '']), 'shop/web ClusterSetIP - http:80 from milano Pending')
})

t.test('pruning', async (t) => {
  const labels = (source: string, manager = 'agent.sealane.io'): Record<string, string> => ({
    'multicluster.kubernetes.io/source-cluster': source,
    'endpointslice.kubernetes.io/managed-by': manager,
  })
  const slice = (name: string, of: Record<string, string>): EndpointSlice => ({
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    addressType: 'IPv4',
    metadata: { name, namespace: 'shop', labels: of },
  })
  const object = (id: string): Cluster => ({
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Cluster',
    metadata: { name: id },
    spec: { ...OWN, id },
  })
  const present = {
    serviceImports: [
      PRESENT,
      { ...PRESENT, metadata: { name: 'kept', namespace: 'shop' } },
      { ...PRESENT, metadata: { name: 'bare', namespace: 'shop' }, status: {} },
    ],
    slices: [
      slice('m', labels('milano')),
      slice('f', labels('flat')),
      slice('t', labels('tokyo')),
      slice('user', {}),
      slice('foreign', labels('milano', 'other')),
    ],
    clusters: [object('tokyo'), object('milano'), object('flat')],
    endpoints: [],
    own: 'tokyo',
    desired: new Map<string, unknown>([['Cluster/milano', 1]]),
    kept: new Map<string, unknown>([['ServiceImport/shop/kept', 1]]),
  }
  const rows: [certain: string[], want: string[]][] = [
    [[], []],
    [['milano'], ['m']],
    [
      ['milano', 'flat'],
      ['web', 'm', 'f', 'flat'],
    ],
    [
      ['milano', 'flat', 'tokyo'],
      ['web', 'bare', 'm', 'f', 't', 'flat'],
    ],
  ]
  for (const [certain, want] of rows) {
    t.same(
      planPrune({ ...present, certain: new Set(certain) }).map(({ metadata }) => metadata.name),
      want,
      certain.join(),
    )
  }
})

t.test('properties', async (t) => {
  const arbPorts = fc.uniqueArray(
    fc.record({
      name: fc.constantFrom('a', 'b', ''),
      protocol: fc.constant('TCP' as const),
      port: fc.integer({ min: 1, max: 3 }),
    }),
    { maxLength: 3, selector: (p) => p.port },
  )
  const arbRecord: fc.Arbitrary<StoredRecord> = fc.oneof(
    fc
      .tuple(
        fc.constantFrom('milano', 'flat', 'tokyo'),
        arbPorts,
        fc.integer({ min: 0, max: 2 }),
        fc.constantFrom('ClusterSetIP' as const, 'Headless' as const),
      )
      .map(([from, ports, at, type]) => exported(from, { ports, type }, at)),
    fc
      .tuple(fc.constantFrom('milano', 'flat', 'tokyo'), fc.ipV4(), fc.constantFrom('10.42.0.5', '10.99.0.5'))
      .map(([from, a, b]) => sliceOf(from, `${a} ${b}`, { ports: [{ name: 'a', port: 8080 }, { port: 8081 }] })),
    fc.constantFrom(MILANO, FLAT, IP),
  )
  const arbRecords = fc.uniqueArray(arbRecord, { selector: ({ key }) => JSON.stringify(key), maxLength: 10 })
  const flat = (found: ImportPlan): string => JSON.stringify([[...found.objects], [...found.dropped]])
  fc.assert(
    fc.property(
      arbRecords.chain((list) => fc.tuple(fc.constant(list), fc.shuffledSubarray(list, { minLength: list.length }))),
      ([one, other]) => flat(plan(one)) === flat(plan(other)),
    ),
    { numRuns: 300 },
  )
  t.pass('the order of records does not matter')
  const memory = newImportMemory(INIT)
  fc.assert(
    fc.property(arbRecords, (list) => {
      const first = planImports(world(list), memory)
      const second = planImports(world(list), memory)
      if (flat(first) !== flat(plan(list))) return false
      return [...first.objects].every(([key, object]) => second.objects.get(key) === object)
    }),
    { numRuns: 300 },
  )
  t.pass('the memory changes nothing but identity')
  fc.assert(
    fc.property(arbRecords, (list) => {
      const { objects } = plan(list)
      for (const object of objects.values()) {
        if (object.kind !== 'EndpointSlice') continue
        const service = objects.get('ServiceImport/shop/web') as ServiceImport
        const names = service.spec.ports.map((port) => port.name ?? '')
        if (!(object.ports ?? []).every((port) => names.includes(port.name ?? ''))) return false
        const source = object.metadata.labels?.['multicluster.kubernetes.io/source-cluster']
        const inside = { milano: /^244\.1\./, flat: /^10\.99\./, tokyo: /./ }[source ?? '']
        if (!(object.endpoints ?? []).every(({ addresses }) => addresses.every((text) => inside?.test(text))))
          return false
      }
      return true
    }),
    { numRuns: 300 },
  )
  t.pass('slices carry only ports of the service, and only addresses of their cluster')
})
