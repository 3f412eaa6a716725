import fc from 'fast-check'
import t from 'tap'
import {
  type ClusterExport,
  type MergedService,
  exposedPorts,
  mergeServices,
} from '../../../model/services/merge-services.ts'
import type { ImportPort, Protocol } from '../../../model/objects.ts'
import type { ServiceExportBody } from '../../../model/records.ts'

const BODY: ServiceExportBody = {
  kind: 'ServiceExport',
  uid: 'u',
  type: 'ClusterSetIP',
  ports: [{ name: 'http', protocol: 'TCP', port: 80 }],
  sessionAffinity: 'None',
  ipFamilies: ['IPv4'],
  exportedLabels: {},
  exportedAnnotations: {},
}

function exported(cluster: string, createdAtMs: number, change: Partial<ServiceExportBody> = {}): ClusterExport {
  return { cluster, createdAtMs, body: { ...BODY, ...change } }
}

/** The ports, as `tcp 42/TCP` or `80/TCP` if unnamed, joined by commas. */
function ports(text: string): ImportPort[] {
  return text.split(', ').map((item) => {
    const [name, rest] = item.includes(' ') ? (item.split(' ') as [string, string]) : ['', item]
    const [port, protocol] = rest.split('/') as [string, Protocol]
    return { ...(name === '' ? {} : { name }), protocol, port: Number(port) }
  })
}

function showPorts(list: readonly ImportPort[]): string {
  return list.map(({ name, port, protocol }) => `${name === undefined ? '' : `${name} `}${port}/${protocol}`).join(', ')
}

/** The clusters that serve each merged port: `tcp<-a,b; udp<-a`, with `own=>merged` if it was renamed. */
function showRoutes(merged: MergedService): string {
  return merged.spec.ports
    .map((port) => {
      const from = [...merged.portsOf]
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .flatMap(([cluster, exposed]) =>
          exposed
            .filter((e) => e.mergedName === (port.name ?? '') && e.port === port.port && e.protocol === port.protocol)
            .map((e) => (e.ownName === e.mergedName ? cluster : `${cluster}(${e.ownName})`)),
        )
      return `${port.name ?? ''}<-${from.join(',')}`
    })
    .join('; ')
}

t.test('worked port merges: A is older than B', async (t) => {
  const rows: [a: string, b: string, merged: string, reasons: string, routes: string][] = [
    ['tcp 42/TCP, udp 42/UDP', 'tcp 42/TCP, udp 42/UDP', 'tcp 42/TCP, udp 42/UDP', '', 'tcp<-a,b; udp<-a,b'],
    [
      'tcp 42/TCP, udp 42/UDP',
      'tcp 42/TCP, stcp 142/SCTP',
      'tcp 42/TCP, udp 42/UDP, stcp 142/SCTP',
      'PortConflict',
      'tcp<-a,b; udp<-a; stcp<-b',
    ],
    ['tcp 42/TCP, udp 42/UDP', 'tcp 43/TCP', 'tcp 42/TCP, udp 42/UDP', 'PortConflict', 'tcp<-a; udp<-a'],
    [
      'tcp 42/TCP, udp 42/UDP',
      'tcp2 4242/TCP',
      'tcp 42/TCP, udp 42/UDP, tcp2 4242/TCP',
      'PortConflict',
      'tcp<-a; udp<-a; tcp2<-b',
    ],
    ['web 80/TCP', 'http 80/TCP', 'web 80/TCP', 'PortConflict', 'web<-a,b(http)'],
    // These rows are not in the specification's table: the same set in another order, unnamed ports, swapped names.
    ['x 1/TCP, y 2/TCP', 'y 2/TCP, x 1/TCP', 'x 1/TCP, y 2/TCP', '', 'x<-a,b; y<-a,b'],
    ['80/TCP', '80/TCP', '80/TCP', '', '<-a,b'],
    ['80/TCP', '81/TCP', '80/TCP', 'PortConflict', '<-a'],
    ['80/TCP', 'http 80/TCP', '80/TCP', 'PortConflict', '<-a,b(http)'],
    ['x 1/TCP, y 2/TCP', 'x 2/TCP, y 1/TCP', 'x 1/TCP, y 2/TCP', 'PortConflict', 'x<-a,b(y); y<-a,b(x)'],
  ]
  for (const [a, b, want, reasons, routes] of rows) {
    const merged = mergeServices([exported('b', 2, { ports: ports(b) }), exported('a', 1, { ports: ports(a) })])
    t.equal(showPorts(merged.spec.ports), want, `${a} + ${b}`)
    t.equal(merged.conflicts.get('a')?.reasons.join(), reasons, `${a} + ${b}: reasons`)
    t.same(merged.conflicts.get('b'), merged.conflicts.get('a'), 'all exporters hear the same')
    t.equal(showRoutes(merged), routes, `${a} + ${b}: routes`)
  }
})

t.test('settings: the oldest export wins and the difference is told', async (t) => {
  const rows: [
    older: Partial<ServiceExportBody>,
    younger: Partial<ServiceExportBody>,
    reasons: string,
    want: object,
  ][] = [
    [{ type: 'ClusterSetIP' }, { type: 'Headless' }, 'TypeConflict', { type: 'ClusterSetIP' }],
    [{ type: 'Headless' }, { type: 'ClusterSetIP' }, 'TypeConflict', { type: 'Headless' }],
    [{ sessionAffinity: 'ClientIP' }, {}, 'SessionAffinityConflict', { sessionAffinity: 'ClientIP' }],
    [
      { sessionAffinity: 'ClientIP', sessionAffinityTimeoutSeconds: 10 },
      { sessionAffinity: 'ClientIP', sessionAffinityTimeoutSeconds: 20 },
      'SessionAffinityConfigConflict',
      { sessionAffinityConfig: { clientIP: { timeoutSeconds: 10 } } },
    ],
    [
      { sessionAffinity: 'ClientIP' },
      { sessionAffinity: 'ClientIP', sessionAffinityTimeoutSeconds: 10800 },
      '',
      { sessionAffinity: 'ClientIP' },
    ],
    [{ internalTrafficPolicy: 'Local' }, {}, 'InternalTrafficPolicyConflict', { internalTrafficPolicy: 'Local' }],
    [{ internalTrafficPolicy: 'Cluster' }, {}, '', { internalTrafficPolicy: 'Cluster' }],
    [{}, { trafficDistribution: 'PreferClose' }, 'TrafficDistributionConflict', {}],
    [{ ipFamilies: ['IPv4'] }, { ipFamilies: ['IPv6', 'IPv4'] }, '', { ipFamilies: ['IPv4'] }],
  ]
  for (const [older, younger, reasons, want] of rows) {
    const merged = mergeServices([exported('a', 2, younger), exported('b', 1, older)])
    const name = JSON.stringify([older, younger])
    t.equal(merged.conflicts.get('a')?.reasons.join(), reasons, name)
    t.match(merged.spec, want, name)
  }
})

t.test('IP families: those of the oldest export that can be reached by any of its own', async (t) => {
  type Families = ServiceExportBody['ipFamilies']
  const both: Families = ['IPv6', 'IPv4']
  const has = (name: string, families: string): string => `; ${name} has ${families} only`
  const lost = (name: string): string => `; ${name} has IPv6, which its cluster is not reached by`
  // The oldest comes first: the families of the export, and the families by which its cluster is reached.
  const rows: [exports: [says: Families, carried?: Families][], want: Families, conflict?: string][] = [
    [[[['IPv4']]], ['IPv4']],
    [[[both]], both],
    [[[['IPv4', 'IPv4']]], ['IPv4']],
    [[[[]]], ['IPv4']],
    [[[[]], [['IPv6']]], ['IPv6']],
    [[[['IPv4']], [both]], ['IPv4']],
    [[[both], [['IPv4']]], both, `IPv6 and IPv4 offered${has('b', 'IPv4')}`],
    [[[both], [['IPv4']], [['IPv6']]], both, `IPv6 and IPv4 offered${has('b', 'IPv4')}${has('c', 'IPv6')}`],
    [[[['IPv6']], [['IPv4']]], ['IPv6'], `IPv6 offered${has('b', 'IPv4')}`],
    [[[['IPv4']], [['IPv6']]], ['IPv4'], `IPv4 offered${has('b', 'IPv6')}`],
    [[[['IPv6']], [['IPv6']]], ['IPv6']],
    [[[both, ['IPv4']], [both]], ['IPv4']],
    [[[both], [both, ['IPv4']]], both, `IPv6 and IPv4 offered${has('b', 'IPv4')}`],
    [[[['IPv6'], ['IPv4']], [['IPv4']]], ['IPv4'], `IPv4 offered${lost('a')}`],
    [
      [
        [['IPv6'], ['IPv4']],
        [['IPv6'], ['IPv4']],
      ],
      ['IPv6'],
    ],
    [[[['IPv6']], [['IPv6'], ['IPv4']]], ['IPv6'], `IPv6 offered${lost('b')}`],
  ]
  for (const [exports, want, conflict] of rows) {
    const given = exports.map(([ipFamilies, carried], i) => {
      return { ...exported('abc'.charAt(i), i, { ipFamilies }), ...(carried === undefined ? {} : { carried }) }
    })
    const merged = mergeServices(given.reverse())
    const name = JSON.stringify(exports)
    t.strictSame(merged.spec.ipFamilies, want, name)
    const { reasons, message } = merged.conflicts.get('a')!
    t.same(reasons, conflict === undefined ? [] : ['IPFamilyConflict'], name)
    t.equal(message, conflict === undefined ? '' : `ipFamilies: ${conflict}`, name)
  }
})

t.test('labels and annotations are taken whole from the oldest', async (t) => {
  const merged = mergeServices([
    exported('a', 1, { exportedLabels: { x: '1' }, exportedAnnotations: { n: 'a' } }),
    exported('b', 2, { exportedLabels: { y: '2' }, exportedAnnotations: { m: 'b' } }),
  ])
  t.same([merged.labels, merged.annotations], [{ x: '1' }, { n: 'a' }])
  t.equal(merged.conflicts.get('b')?.reasons.join(), 'AnnotationsConflict,LabelsConflict')
})

t.test('several conflicts at once: order of reasons and wording', async (t) => {
  const merged = mergeServices([
    exported('milano', 1),
    exported('paris', 2, { type: 'Headless', ports: ports('http 81/TCP'), ipFamilies: ['IPv6'] }),
  ])
  t.same(merged.conflicts.get('milano'), {
    reasons: ['PortConflict', 'TypeConflict', 'IPFamilyConflict'],
    message:
      'ports: all ports are offered, the oldest export wins where they clash; milano has http 80/TCP; paris has http 81/TCP. ' +
      'type: the oldest export wins; milano has ClusterSetIP; paris has Headless. ' +
      'ipFamilies: IPv4 offered; paris has IPv6 only',
  })
})

t.test('the same age: the smaller cluster id counts as older', async (t) => {
  const merged = mergeServices([exported('b', 5, { type: 'Headless' }), exported('a', 5)])
  t.equal(merged.spec.type, 'ClusterSetIP')
  t.same(merged.clusters, ['a', 'b'])
})

t.test('a long list of dissenters is cut', async (t) => {
  const many = Array.from({ length: 9 }, (_, i) => exported(`c${i}`, i + 2, { type: 'Headless' }))
  const { message } = mergeServices([exported('a', 1), ...many]).conflicts.get('a')!
  t.match(message, /c4 has Headless; and 4 more$/)
})

t.test('nothing to merge is a mistake of the caller', async (t) => {
  t.throws(() => mergeServices([]), new RangeError('mergeServices: expected at least one export'))
})

const arbPort = fc.record(
  {
    name: fc.constantFrom('', 'a', 'b', 'c'),
    protocol: fc.constantFrom<Protocol>('TCP', 'UDP'),
    port: fc.integer({ min: 1, max: 4 }),
    appProtocol: fc.constantFrom('', 'h2c'),
  },
  { requiredKeys: ['protocol', 'port'] },
)
const arbMap = fc.dictionary(fc.constantFrom('x', 'y'), fc.constantFrom('1', '2'))
const arbBody: fc.Arbitrary<ServiceExportBody> = fc
  .record({
    type: fc.constantFrom('ClusterSetIP' as const, 'Headless' as const),
    ports: fc.array(arbPort, { maxLength: 4 }),
    sessionAffinity: fc.constantFrom('None' as const, 'ClientIP' as const),
    ipFamilies: fc.array(fc.constantFrom('IPv4' as const, 'IPv6' as const), { maxLength: 2 }),
    exportedLabels: arbMap,
    exportedAnnotations: arbMap,
  })
  .map((change) => ({ ...BODY, ...change }))
const arbExports = fc.uniqueArray(
  fc.record({
    cluster: fc.constantFrom('a', 'b', 'c', 'd'),
    createdAtMs: fc.integer({ min: 0, max: 3 }),
    body: arbBody,
  }),
  { selector: (item) => item.cluster, minLength: 1, maxLength: 4 },
)

/** Turns maps into lists, because JSON has no maps. */
function flat(merged: MergedService): unknown {
  return { ...merged, conflicts: sorted(merged.conflicts), portsOf: sorted(merged.portsOf) }
}
function sorted<V>(map: ReadonlyMap<string, V>): [string, V][] {
  return [...map].sort(([a], [b]) => (a < b ? -1 : 1))
}

t.test('properties of the merge', async (t) => {
  fc.assert(
    fc.property(
      arbExports.chain((list) => fc.tuple(fc.constant(list), fc.shuffledSubarray(list, { minLength: list.length }))),
      ([one, other]) => {
        t.strictSame(flat(mergeServices(one)), flat(mergeServices(other)))
      },
    ),
    { numRuns: 300 },
  )
  t.pass('the order of the exports does not matter')

  fc.assert(
    fc.property(arbExports, (list) => {
      const { ports: merged } = mergeServices(list).spec
      const names = merged.map((port) => port.name ?? '')
      const numbers = merged.map((port) => `${port.protocol}/${port.port}`)
      return new Set(names).size === names.length && new Set(numbers).size === numbers.length
    }),
    { numRuns: 500 },
  )
  t.pass('no name and no protocol and number occurs twice')

  fc.assert(
    fc.property(arbExports, fc.constantFrom(-1, 9), (list, createdAtMs) => {
      const first = mergeServices(list)
      const again: ServiceExportBody = {
        ...BODY,
        type: first.spec.type,
        ports: first.spec.ports,
        sessionAffinity: first.spec.sessionAffinity ?? 'None',
        ipFamilies: first.spec.ipFamilies ?? [],
        exportedLabels: first.labels,
        exportedAnnotations: first.annotations,
      }
      const second = mergeServices([...list, { cluster: 'z', createdAtMs, body: again }])
      t.strictSame([second.spec, second.labels], [first.spec, first.labels])
    }),
    { numRuns: 300 },
  )
  t.pass('idempotent: the result, exported once more, changes nothing')

  fc.assert(
    fc.property(arbExports, arbBody, (list, body) => {
      const before = mergeServices(list)
      const after = mergeServices([...list, { cluster: 'z', createdAtMs: 9, body }])
      t.strictSame(after.spec.ports.slice(0, before.spec.ports.length), before.spec.ports)
      // The ports that a cluster exposes may only grow: a younger export can give a name to a port that had lost its
      // own.
      for (const [cluster, exposed] of before.portsOf) {
        const now = JSON.stringify(after.portsOf.get(cluster))
        for (const port of exposed) t.ok(now.includes(JSON.stringify(port)))
      }
    }),
    { numRuns: 300 },
  )
  t.pass('a younger export never disturbs what is offered already')

  fc.assert(
    fc.property(arbExports, (list) => {
      const merged = mergeServices(list)
      const routed = new Set([...merged.portsOf.values()].flat().map((port) => port.mergedName))
      return merged.spec.ports.every((port) => routed.has(port.name ?? ''))
    }),
    { numRuns: 300 },
  )
  t.pass('every merged port has a cluster behind it')
})

t.test('exposedPorts joins by protocol and number', async (t) => {
  t.same(exposedPorts(ports('web 80/TCP'), ports('http 80/TCP, dns 53/UDP')), [
    { ownName: 'http', mergedName: 'web', protocol: 'TCP', port: 80 },
  ])
})

t.test(
  'KEP-5939: the oldest list of cluster selectors counts, and its order and content are compared whole',
  async (t) => {
    const region = { propertySelector: { matchProperties: { 'region.sealane.io': 'eu', a: 'b' } } }
    const zone = { propertySelector: { matchExpressions: [{ key: 'zone.sealane.io', operator: 'Exists' as const }] } }
    const same = { propertySelector: { matchProperties: { a: 'b', 'region.sealane.io': 'eu' } } }
    const merge = (a: Partial<ServiceExportBody>, b: Partial<ServiceExportBody>): MergedService =>
      mergeServices([exported('b', 2, b), exported('a', 1, a)])
    const reasons = (merged: MergedService): string => merged.conflicts.get('b')?.reasons.join() ?? ''
    const agreed = merge({ clusterSelectors: [region, zone] }, { clusterSelectors: [same, zone] })
    t.equal(reasons(agreed), '')
    t.same(agreed.spec.clusterSelectors, [region, zone])
    const turned = merge({ clusterSelectors: [region, zone] }, { clusterSelectors: [zone, region] })
    t.equal(reasons(turned), 'ClusterSelectorsConflict')
    t.same(turned.spec.clusterSelectors, [region, zone])
    t.equal(turned.conflicts.get('a'), turned.conflicts.get('b'), 'every export has it')
    t.equal(reasons(merge({}, { clusterSelectors: [zone] })), 'ClusterSelectorsConflict')
    t.equal(merge({}, { clusterSelectors: [zone] }).spec.clusterSelectors, undefined)
    t.equal(reasons(merge({}, { clusterSelectors: [] })), '')
    const headless = merge(
      { type: 'Headless', clusterSelectors: [zone] },
      { type: 'Headless', clusterSelectors: [zone] },
    )
    t.equal(headless.spec.clusterSelectors, undefined)
  },
)
