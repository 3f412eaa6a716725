import t from 'tap'
import { newImportMemory, planImports } from '../../../agent/import/plan-imports.ts'
import type { StoredRecord } from '../../../model/records.ts'
import {
  FLAT,
  INIT,
  IP,
  MILANO,
  PRESENT,
  cluster,
  exported,
  plan,
  record,
  show,
  sliceOf,
  world,
  PUBLIC_KEY,
} from '../import-fixtures.ts'

t.test('an exporter orders no Service here', async (t) => {
  const asks = { 'sealane.io/derived-service': 'kube-dns-clusterset', kept: 'x' }
  const { objects } = plan([MILANO, IP, exported('milano', { exportedAnnotations: asks })])
  t.same(objects.get('ServiceImport/shop/web')?.metadata.annotations, { kept: 'x' })
})

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
    metadata: {
      name: 'web',
      namespace: 'shop',
      labels: { a: 'b', 'app.kubernetes.io/managed-by': 'sealane' },
      annotations: { c: 'd' },
    },
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
          'app.kubernetes.io/managed-by': 'sealane',
        },
      },
      addressType: 'IPv4',
      ports: [{ name: 'http', protocol: 'TCP', port: 8080 }],
      endpoints: [{ addresses: ['244.1.0.5'], hostname: '10-42-0-5', zone: 'z' }],
    },
    'no node name of another cluster',
  )
})

t.test('where endpoints are travels along; node names mean something at home only', async (t) => {
  const endpoints = [
    { addresses: ['10.42.0.5'], nodeName: 'n', zone: 'z', hints: { forZones: [{ name: 'y' }, { name: 'x' }] } },
    { addresses: ['10.42.0.6'], nodeName: 'n', zone: 'no zone', hints: { forZones: [{ name: 'no zone' }] } },
  ]
  const records = ['milano', 'tokyo'].flatMap((from) => [exported(from), sliceOf(from, '', { endpoints })])
  const { objects, dropped } = plan([MILANO, IP, ...records])
  const hints = { forZones: [{ name: 'x' }, { name: 'y' }] }
  t.strictSame(
    [...objects.values()].flatMap((object) => (object.kind === 'EndpointSlice' ? [object.endpoints] : [])),
    [
      [
        { addresses: ['244.1.0.5'], hostname: '10-42-0-5', zone: 'z', hints },
        { addresses: ['244.1.0.6'], hostname: '10-42-0-6' },
      ],
      [
        { addresses: ['10.42.0.5'], hostname: '10-42-0-5', zone: 'z', hints, nodeName: 'n' },
        { addresses: ['10.42.0.6'], hostname: '10-42-0-6', nodeName: 'n' },
      ],
    ],
  )
  const message = 'endpoint "10.42.0.6": zone "no zone" is left out: not a label value'
  t.strictSame(
    dropped,
    ['milano', 'milano', 'tokyo', 'tokyo'].map((from) => ({
      ...{ what: `${from}/EndpointSlice/shop/web/web-1`, reason: 'InvalidValue', message },
    })),
  )
})

t.test('IP families: what the clusterset does not carry is not promised', async (t) => {
  const six = sliceOf('milano', 'fd00::5', { addressType: 'IPv6' })
  const rows: [name: string, records: StoredRecord[], want: string][] = [
    [
      'dual-stack',
      [exported('milano', { ipFamilies: ['IPv6', 'IPv4'] }), sliceOf('milano', '10.42.0.5')],
      'IPv4 245.0.0.7 Ready',
    ],
    [
      'headless dual-stack',
      [exported('milano', { ipFamilies: ['IPv6', 'IPv4'], type: 'Headless' }), sliceOf('milano', '10.42.0.5')],
      'IPv4 - Ready',
    ],
    [
      'headless IPv6',
      [exported('milano', { ipFamilies: ['IPv6'], type: 'Headless' }), six],
      'IPv6 - IPFamilyNotSupported',
    ],
    ['IPv6', [exported('milano', { ipFamilies: ['IPv6'] }), six], 'IPv6 - IPFamilyNotSupported'],
    [
      'the oldest has only IPv6, another IPv4',
      [exported('flat', { ipFamilies: ['IPv6'] }), exported('milano', {}, 2)],
      'IPv4 245.0.0.7 Ready',
    ],
    ['nothing said', [exported('milano', { ipFamilies: [] })], 'IPv4 245.0.0.7 Ready'],
  ]
  for (const [name, records, want] of rows) {
    const { services } = plan([MILANO, FLAT, IP, ...records])
    const found = services.get('ServiceImport/shop/web')
    const spec = found?.serviceImport?.spec
    t.equal(`${spec?.ipFamilies?.join()} ${spec?.ips?.join() ?? '-'} ${found?.ready.reason}`, want, name)
  }
})

t.test('a cluster that is taken as dead loses its endpoints and nothing else', async (t) => {
  const records = [MILANO, FLAT, IP, exported('milano'), exported('flat'), exported('tokyo')]
  const slices = [sliceOf('milano', '10.42.0.5'), sliceOf('flat', '10.99.0.5'), sliceOf('tokyo', '10.42.0.9')]
  const found = plan([...records, ...slices], { expired: new Set(['milano', 'tokyo']) })
  t.same(show(found).slice(2), [
    'web<-flat http:8080 10.99.0.5(10-99-0-5)',
    'web<-tokyo http:8080 10.42.0.9(10-42-0-9)',
    'shop/web ClusterSetIP 245.0.0.7 http:80 from flat,milano,tokyo Ready',
  ])
})

t.test('no two gateways have equal names, however clusters and nodes are called', async (t) => {
  const endpoint = (from: string, node: string): StoredRecord =>
    record(from, `${from}.${node}-lane0`, {
      kind: 'Endpoint',
      spec: { cluster: from, node, lane: 0, publicKey: PUBLIC_KEY, candidates: [], capabilities: [] },
    })
  const found = plan([endpoint('a', 'b-c'), endpoint('a-b', 'c')])
  t.same([...found.objects.keys()].sort(), ['Endpoint/a-b.c-lane0', 'Endpoint/a.b-c-lane0'])
})

t.test('a mirrored gateway has the time at which the broker first had it, and no other', async (t) => {
  const spec = { cluster: 'milano', node: 'gw', lane: 0, publicKey: PUBLIC_KEY, candidates: [], capabilities: [] }
  const stamped = (createdAtMs: number): StoredRecord =>
    record('milano', 'milano.gw-lane0', { kind: 'Endpoint', spec }, createdAtMs)
  const memory = newImportMemory(INIT)
  const annotations = (createdAtMs: number): unknown =>
    planImports(world([stamped(createdAtMs)]), memory).objects.get('Endpoint/milano.gw-lane0')?.metadata.annotations
  t.strictSame(annotations(1_000), { 'sealane.io/published-at': '1970-01-01T00:00:01.000Z' })
  t.strictSame(annotations(2_000), { 'sealane.io/published-at': '1970-01-01T00:00:02.000Z' }, 'remembered by the stamp')
  t.strictSame(annotations(0), {}, 'a record without a stamp')
})

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
