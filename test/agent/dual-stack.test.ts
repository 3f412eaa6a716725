/** Services with two IP families: which addresses are imported where, and the condition when IPv6 is left out. */
import t, { type Test } from 'tap'
import { planExports } from '../../agent/export/plan-exports.ts'
import { newImportMemory, planImports } from '../../agent/import/plan-imports.ts'
import { ipv6LeftOut } from '../../agent/publish/publish-loop.ts'
import { nameHash } from '../../model/ids.ts'
import { parsePrefix } from '../../model/values/ip.ts'
import type { ClusterSpec, EndpointSlice, ServiceImport } from '../../model/objects.ts'
import type { ServiceExportBody, StoredRecord } from '../../model/records.ts'
import { namespaceObject } from '../support/objects/service-objects.ts'
import { INIT, IP, OWN, PRESENT, cluster, exported, plan, record, sliceOf, world } from './import-fixtures.ts'
import { ALLOWS_ALL, Site, service, serviceExport, slice } from './site.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { until } from './until.ts'

const DUAL: ClusterSpec = {
  ...OWN,
  podCIDRs: ['10.42.0.0/16', 'fd00:3::/48'],
  globalCIDRs: ['244.3.0.0/16', 'fd00:3::/48'],
}
const MILANO = cluster('milano', ['10.42.0.0/16', 'fd00:1::/48'], ['244.1.0.0/16', 'fd00:1::/48'])
const FOUR = cluster('four', ['10.99.0.0/16'], [])
const SIX_TWIN = 'fd53:ea1a:4e00::f500:7'
const both: ServiceExportBody['ipFamilies'] = ['IPv6', 'IPv4']

function sixOf(from: string, address: string): StoredRecord {
  const found = sliceOf(from, address, { addressType: 'IPv6' })
  return { ...found, key: { ...found.key, name: 'web-6' } }
}

/** Returns `families | ips | condition | addresses of slices`. */
function show(records: StoredRecord[], ownSpec = DUAL, present?: ServiceImport): string {
  const { services } = plan(records, {
    ownSpec,
    clusters: new Map([['tokyo', ownSpec]]),
    ...(present === undefined ? {} : { serviceImport: () => present, certain: new Set<string>() }),
  })
  const { serviceImport, ready, slices } = services.get('ServiceImport/shop/web')!
  const addresses = slices.flatMap(({ endpoints }) => endpoints?.flatMap((one) => one.addresses) ?? [])
  const { ipFamilies, ips } = serviceImport?.spec ?? {}
  return [ipFamilies?.join() ?? '-', ips?.join() ?? '-', ready.reason, addresses.join(' ')].join(' | ')
}

t.test('families and addresses of a ServiceImport', async (t) => {
  const slices = [sliceOf('milano', '10.42.0.5'), sixOf('milano', 'fd00:1::5')]
  const only = (families: ServiceExportBody['ipFamilies']) => exported('milano', { ipFamilies: families })
  const rows: [name: string, records: StoredRecord[], own: ClusterSpec, want: string][] = [
    ['both', [only(both)], DUAL, `IPv6,IPv4 | ${SIX_TWIN},245.0.0.7 | Ready | 244.1.0.5 fd00:1::5`],
    [
      'the other order',
      [only(['IPv4', 'IPv6'])],
      DUAL,
      `IPv4,IPv6 | 245.0.0.7,${SIX_TWIN} | Ready | 244.1.0.5 fd00:1::5`,
    ],
    ['a family twice', [only(['IPv6', 'IPv6'])], DUAL, `IPv6 | ${SIX_TWIN} | Ready | fd00:1::5`],
    ['only IPv6', [only(['IPv6'])], DUAL, `IPv6 | ${SIX_TWIN} | Ready | fd00:1::5`],
    ['only IPv4', [only(['IPv4'])], DUAL, 'IPv4 | 245.0.0.7 | Ready | 244.1.0.5'],
    ['both, where pods have IPv4', [only(both)], OWN, 'IPv4 | 245.0.0.7 | Ready | 244.1.0.5'],
    ['only IPv6, where pods have IPv4', [only(['IPv6'])], OWN, 'IPv6 | - | IPFamilyNotSupported | '],
    [
      'headless, both',
      [exported('milano', { ipFamilies: both, type: 'Headless' })],
      DUAL,
      'IPv6,IPv4 | - | Ready | 244.1.0.5 fd00:1::5',
    ],
    [
      'headless, both, where pods have IPv4',
      [exported('milano', { ipFamilies: both, type: 'Headless' })],
      OWN,
      'IPv4 | - | Ready | 244.1.0.5',
    ],
    [
      'headless IPv6, where pods have IPv4',
      [exported('milano', { ipFamilies: ['IPv6'], type: 'Headless' })],
      OWN,
      'IPv6 | - | IPFamilyNotSupported | ',
    ],
    [
      'an export of both from a cluster that is reached by IPv4',
      [exported('four', { ipFamilies: both }), sliceOf('four', '10.99.0.5')],
      DUAL,
      'IPv4 | 245.0.0.7 | Ready | 10.99.0.5',
    ],
    [
      'an older one of both, a younger of IPv4',
      [only(both), exported('four', {}, 2), sliceOf('four', '10.99.0.5')],
      DUAL,
      `IPv6,IPv4 | ${SIX_TWIN},245.0.0.7 | Ready | 10.99.0.5 244.1.0.5 fd00:1::5`,
    ],
    [
      'our own',
      [exported('tokyo', { ipFamilies: both }), sliceOf('tokyo', '10.42.0.9'), sixOf('tokyo', 'fd00:3::9')],
      DUAL,
      `IPv6,IPv4 | ${SIX_TWIN},245.0.0.7 | Ready | 10.42.0.9 fd00:3::9`,
    ],
  ]
  for (const [name, records, own, want] of rows)
    t.equal(show([MILANO, FOUR, IP, ...slices, ...records], own), want, name)
})

t.test('what is said where no family is left', async (t) => {
  const records = [MILANO, IP, exported('milano', { ipFamilies: ['IPv6'] })]
  t.strictSame(plan(records).services.get('ServiceImport/shop/web')?.ready, {
    type: 'Ready',
    status: 'False',
    reason: 'IPFamilyNotSupported',
    message: 'the service has only IPv6 addresses, and the pods of this cluster use IPv4',
  })
})

t.test('while the broker has not said which addresses are right, those of before are kept', async (t) => {
  const present = (ips: string[], ipFamilies: ServiceExportBody['ipFamilies']): ServiceImport => ({
    ...PRESENT,
    spec: { ...PRESENT.spec, ips, ipFamilies },
    status: { clusters: [{ cluster: 'milano' }] },
  })
  const records = (ipFamilies: ServiceExportBody['ipFamilies']) => [MILANO, exported('milano', { ipFamilies })]
  t.equal(
    show(records(both), DUAL, present([SIX_TWIN, '245.0.0.7'], both)),
    `IPv6,IPv4 | ${SIX_TWIN},245.0.0.7 | Ready | `,
  )
  t.equal(show(records(['IPv6']), DUAL, present([SIX_TWIN], ['IPv6'])), `IPv6 | ${SIX_TWIN} | Ready | `)
  t.equal(show(records(['IPv6']), DUAL, present(['fd00::7'], ['IPv6'])), 'IPv6 | - | Pending | ')
})

t.test('while an exporter is missing, its service keeps the families that it has', async (t) => {
  const records = [MILANO, IP, exported('milano', { ipFamilies: both }), sliceOf('milano', '10.42.0.5')]
  const slices = [...records, sixOf('milano', 'fd00:1::5')]
  t.equal(show(slices, DUAL, PRESENT), '- | - | Ready | 244.1.0.5', 'nothing is written to the ServiceImport')
})

t.test('when pods here get IPv6, what is remembered does not count', async (t) => {
  const memory = newImportMemory(INIT)
  const records = [MILANO, IP, exported('milano', { ipFamilies: both })]
  const families = (ownSpec: ClusterSpec) =>
    planImports(world(records, { ownSpec }), memory).services.get('ServiceImport/shop/web')?.serviceImport?.spec
      .ipFamilies
  t.same([OWN, DUAL, OWN].map(families), [['IPv4'], both, ['IPv4']])
})

t.test('the broker gives IPv4 addresses only', async (t) => {
  const given = record('', 'web', { kind: 'ClusterSetIP', ips: ['fd00::7', SIX_TWIN, '245.0.0.7'] })
  const { services, dropped } = plan([MILANO, given, exported('milano')])
  t.same(services.get('ServiceImport/shop/web')?.serviceImport?.spec.ips, ['245.0.0.7'])
  t.same(
    dropped.map(({ message }) => message),
    ['fd00::7 is not an IPv4 address', `${SIX_TWIN} is not an IPv4 address`],
  )
})

t.test(
  'a cluster that claims addresses which are ours is not used; where no pod has IPv6, IPv6 harms nobody',
  async (t) => {
    const clash = cluster('milano', ['10.50.0.0/16', 'fd00:3:0:1::/64'], [])
    const services6 = { ...OWN, serviceCIDRs: ['fd00:3::/108'] }
    const rows: [StoredRecord, ClusterSpec, reasons: string[]][] = [
      [clash, DUAL, ["fd00:3:0:1::/64 overlaps this cluster's own pod CIDRs"]],
      [clash, OWN, []],
      [cluster('milano', ['10.50.0.0/16', 'fd00:3::/48'], []), services6, []],
      [
        cluster('milano', ['10.50.0.0/16', 'fd00:3::/48'], []),
        { ...services6, podCIDRs: ['10.42.0.0/16', 'fd00:4::/48'] },
        ["fd00:3::/48 overlaps this cluster's own service CIDRs"],
      ],
      [cluster('milano', ['10.50.0.0/16', 'fe80::/64'], []), OWN, ['fe80::/64 is not a usable network']],
      [
        cluster('milano', ['10.50.0.0/16', 'fd00:1::/48'], ['244.1.0.0/16', 'fd00:2::/48']),
        DUAL,
        ['globalCIDRs[1] "fd00:2::/48": expected podCIDRs[1] itself, fd00:1::/48: IPv6 is not translated'],
      ],
    ]
    for (const [remote, ownSpec, reasons] of rows) {
      const { dropped, basis } = plan([remote], { ownSpec, clusters: new Map() })
      t.same(
        dropped.map(({ message }) => message),
        reasons,
      )
      t.equal(basis.clusters.has('milano'), reasons.length === 0)
    }
  },
)

t.test('why IPv6 is left out', async (t) => {
  const facts = { podCIDRs: ['10.42.0.0/16', 'fd00:1:0:7::/64'], serviceCIDRs: ['fd00:9::/108'] }
  const own = { ...OWN, index: 2, podCIDRs: ['10.42.0.0/16'], serviceCIDRs: [] }
  const other = (index: number, podCIDRs: string[]) => ({ ...OWN, id: `c${index}`, index, podCIDRs })
  const rows: [Parameters<typeof ipv6LeftOut>[0], string | undefined][] = [
    [{ facts: undefined, own, others: [] }, undefined],
    [{ facts: { ...facts, podCIDRs: ['10.42.0.0/16'] }, own, others: [other(1, ['fd00:9::/64'])] }, undefined],
    [{ facts, own: { ...own, podCIDRs: facts.podCIDRs }, others: [] }, undefined],
    [
      { facts, own, others: [other(1, ['10.1.0.0/16', 'fd00:1::/48'])] },
      'fd00:1:0:7::/64 of this cluster overlaps fd00:1::/48 of cluster c1',
    ],
    [
      { facts, own, others: [own, other(1, ['fd00:9::/64'])] },
      'fd00:9::/108 of this cluster overlaps fd00:9::/64 of cluster c1',
    ],
    [{ facts, own, others: [other(3, ['fd00:1::/48'])] }, 'the broker does not carry fd00:1:0:7::/64 of this cluster'],
  ]
  for (const [world, want] of rows) t.equal(ipv6LeftOut(world), want)
})

t.test('slices of both families are published, each by its own pod CIDRs', async (t) => {
  const named = (name: string, endpoints: string, addressType: 'IPv4' | 'IPv6' = 'IPv6'): EndpointSlice =>
    slice('shop', 'web', endpoints, {
      addressType,
      metadata: { name, namespace: 'shop', labels: { 'kubernetes.io/service-name': 'web' } },
    })
  const world = {
    cluster: 'milano',
    podPrefixes: ['10.42.0.0/16', 'fd00:1::/48'].map((text) => parsePrefix(text)),
    access: ALLOWS_ALL,
    exports: [serviceExport('shop', 'web')],
    services: [service('shop', 'web', { ipFamilies: ['IPv4', 'IPv6'] })],
    slices: [named('web-4', '10.42.0.5', 'IPv4'), named('web-6', 'db-0@fd00:1::5 fd00:2::5 fe80::1')],
    endpoints: [],
  }
  const found = planExports(world)
  t.same([...found.records.keys()], ['ServiceExport/shop/web', 'EndpointSlice/shop/web-4', 'EndpointSlice/shop/web-6'])
  t.match(found.records.get('EndpointSlice/shop/web-6')?.body, {
    addressType: 'IPv6',
    endpoints: [{ addresses: ['fd00:1::5'], hostname: 'db-0' }],
  })
  t.same(
    found.exports.get('shop/web')?.notes.map(({ message }) => message),
    [
      'endpoint fd00:2::5 is left out: outside the pod CIDRs (AddressOutsidePods)',
      'endpoint fe80::1 is left out: a linkLocal address (AddressOutsidePods)',
    ],
  )
  const ipv6 = 'fd00:1::/48 of this cluster overlaps fd00::/16 of cluster paris'
  const left = planExports({ ...world, podPrefixes: [parsePrefix('10.42.0.0/16')], ipv6LeftOut: ipv6 })
  t.same([...left.records.keys()], ['ServiceExport/shop/web', 'EndpointSlice/shop/web-4'])
  t.same(left.exports.get('shop/web')?.notes, [{ message: `IPv6 endpoints are left out: ${ipv6}` }])
})

const GOOD = 'Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts'

async function sites(t: Test): Promise<{ set: FakeClusterset; milano: Site; tokyo: Site; four: Site }> {
  const set = new FakeClusterset()
  const facts = { podCIDRs: ['10.60.0.0/16', 'fd00:1::/64'], serviceCIDRs: [], labels: {}, version: '' }
  const milano = new Site(set, { id: 'milano', podCIDR: '10.42.0.0/16', podCIDR6: 'fd00:1::/48' })
  const tokyo = new Site(set, { id: 'tokyo', podCIDR: '10.50.0.0/16', podCIDR6: 'fd00:3::/48' })
  // This cluster has the highest index, because fake-clusterset.ts takes the length of the id.
  const four = new Site(set, { id: 'four-only', podCIDR: '10.60.0.0/16', config: { facts } })
  t.teardown(() => Promise.all([milano, tokyo, four].map((site) => site.stop())))
  for (const site of [milano, tokyo, four]) {
    await site.join()
    site.api.put(namespaceObject('shop'))
    site.start()
  }
  return { set, milano, tokyo, four }
}

function putBoth(site: Site, name: string, four: string, six: string): void {
  const labels = { 'kubernetes.io/service-name': name }
  site.api.put(slice('shop', name, four))
  const metadata = { name: `${name}-6`, namespace: 'shop', labels }
  site.api.put(slice('shop', name, six, { addressType: 'IPv6', metadata }))
}

t.test('types of services with two families, in clusters with and without IPv6', async (t) => {
  const { milano, tokyo, four } = await sites(t)
  const twin = 'fd53:ea1a:4e00::f500:'
  const rows = [
    ['cluster-ip', { type: 'ClusterIP', clusterIPs: ['10.43.0.1', 'fd00:9::1'] }, `245.0.0.1,${twin}1`, '245.0.0.1'],
    ['node-port', { type: 'NodePort', ipFamilies: ['IPv6', 'IPv4'] }, `${twin}2,245.0.0.2`, '245.0.0.2'],
    ['load-balancer', { type: 'LoadBalancer', ipFamilies: ['IPv4', 'IPv6'] }, `245.0.0.3,${twin}3`, '245.0.0.3'],
    ['headless', { type: 'ClusterIP', clusterIP: 'None', ipFamilies: ['IPv4', 'IPv6'] }, '-', '-'],
  ] as const
  for (const [name, spec, ips, ips4] of rows) {
    milano.api.put(service('shop', name, spec))
    putBoth(milano, name, 'db-0@10.42.0.5', 'db-0@fd00:1::5')
    milano.export('shop', name)
    const type = name === 'headless' ? 'Headless' : 'ClusterSetIP'
    const line = (site: Site): string => site.show().find((text) => text.includes(`/${name} `)) ?? 'nothing'
    const lines = (): string[] => [milano, tokyo, four].map(line)
    const want = [ips, ips, ips4].map((text) => `shop/${name} ${type} ${text} http:80 from milano Ready`)
    await until(t, lines, want, name)
    await until(t, () => milano.conditions('shop', name), GOOD, name)
    const slices = (site: Site): string[] => site.slices().filter((text) => text.startsWith(name))
    const at = (address: string): string => `${name}<-milano http:8080 ${address}(db-0)`
    await until(t, () => slices(tokyo), [at('10.42.0.5'), at('fd00:1::5')], `${name}: slices of both families`)
    await until(t, () => slices(milano), [at('10.42.0.5'), at('fd00:1::5')], `${name}: at home too`)
    await until(t, () => slices(four), [at('10.42.0.5')], `${name}: only what pods there can use`)
  }
})

t.test('an exporter whose IPv6 is left out: said on the export, on the conflict and in the log', async (t) => {
  const { milano, tokyo, four } = await sites(t)
  const dual = { ipFamilies: ['IPv4', 'IPv6'] } as const
  four.api.put(service('shop', 'web', dual))
  putBoth(four, 'web', '10.60.0.5', 'fd00:1::5')
  four.export('shop', 'web')
  await until(t, () => tokyo.show(), ['shop/web ClusterSetIP 245.0.0.1 http:80 from four-only Ready'], 'IPv4 only')
  const ready = (): string | undefined =>
    four.api.get('ServiceExport', 'web', 'shop')?.status?.conditions?.find(({ type }) => type === 'Ready')?.message
  const why = 'fd00:1::/64 of this cluster overlaps fd00:1::/48 of cluster milano'
  await until(t, ready, `exported; IPv6 endpoints are left out: ${why}`, 'the user is told')
  const logged = four.logger.lines.filter(({ message }) => message === 'other clusters reach this cluster by IPv4 only')
  t.equal(logged.at(-1)?.fields['why'], why)
  four.reported()

  milano.api.put(service('shop', 'web', dual))
  putBoth(milano, 'web', '10.42.0.5', 'fd00:1::5')
  milano.api.put({ ...serviceExport('shop', 'web') })
  await until(t, () => milano.conditions('shop', 'web'), GOOD, 'the oldest is reached by IPv4: nobody lacks that')
  four.api.drop('ServiceExport', 'web', 'shop')
  const wide = `245.0.0.1,fd53:ea1a:4e00::f500:1`
  await until(t, () => tokyo.show(), [`shop/web ClusterSetIP ${wide} http:80 from milano Ready`], 'now by both')
  four.export('shop', 'web')
  const conflict = 'Valid=True/Valid Ready=True/Exported Conflict=True/IPFamilyConflict'
  await until(t, () => [four, milano].map((site) => site.conditions('shop', 'web')), [conflict, conflict], 'on both')
  const message = four.api
    .get('ServiceExport', 'web', 'shop')
    ?.status?.conditions?.find(({ type }) => type === 'Conflict')?.message
  t.equal(message, 'ipFamilies: IPv4 and IPv6 offered; four-only has IPv4 only')
})

t.test('whose each address is travels with a service of two families, and nobody else needs it', async (t) => {
  const { milano, tokyo } = await sites(t)
  const targetRef = { kind: 'Pod', name: 'web-1', uid: 'd2f7' }
  const at = (address: string, other: string) => [
    { addresses: [address], targetRef },
    { addresses: [other], targetRef: { kind: 'Node', name: 'n1' } },
  ]
  milano.api.put(service('shop', 'web', { ipFamilies: ['IPv4', 'IPv6'] }))
  milano.api.put(slice('shop', 'web', '', { endpoints: at('10.42.0.5', '10.42.0.6') }))
  const metadata = { name: 'web-6', namespace: 'shop', labels: { 'kubernetes.io/service-name': 'web' } }
  milano.api.put(slice('shop', 'web', '', { metadata, addressType: 'IPv6', endpoints: at('fd00:1::5', 'fd00:1::6') }))
  milano.export('shop', 'web')
  milano.api.put(service('shop', 'four'))
  milano.api.put(slice('shop', 'four', '', { endpoints: at('10.42.0.7', '10.42.0.8') }))
  milano.export('shop', 'four')
  const pods = (): string =>
    tokyo.api
      .cache('EndpointSlice')
      .list()
      .map((one) => {
        const addresses = (one.endpoints ?? []).flatMap((endpoint) => endpoint.addresses).join()
        return `${addresses} ${one.metadata.annotations?.['sealane.io/pods'] ?? '-'}`
      })
      .sort()
      .join('; ')
  const key = nameHash('d2f7').slice(0, 8)
  const want = `10.42.0.5,10.42.0.6 ${key},; 10.42.0.7,10.42.0.8 -; fd00:1::5,fd00:1::6 ${key},`
  await until(t, pods, want, 'pods')
  const written = JSON.stringify(tokyo.api.cache('EndpointSlice').list())
  t.notMatch(written, /targetRef|web-1/, 'no object of another cluster is named')
})

t.test('IPv6 that comes and goes with the Cluster record', async (t) => {
  const { set, milano, tokyo } = await sites(t)
  milano.api.put(service('shop', 'web', { ipFamilies: ['IPv4', 'IPv6'] }))
  putBoth(milano, 'web', '10.42.0.5', 'fd00:1::5')
  milano.export('shop', 'web')
  const seen = (): string => [...tokyo.show(), ...tokyo.slices()].join('; ')
  const head = (ips: string): string => `shop/web ClusterSetIP ${ips} http:80 from milano Ready`
  const at = (address: string, host: string): string => `; web<-milano http:8080 ${address}(${host})`
  const dual = `${head('245.0.0.1,fd53:ea1a:4e00::f500:1')}${at('10.42.0.5', '10-42-0-5')}${at('fd00:1::5', 'fd00-1--5')}`
  await until(t, seen, dual, 'both')
  set.join({ id: 'milano', podCIDRs: ['10.42.0.0/16'], globalCIDRs: [] })
  set.spread()
  await until(t, seen, `${head('245.0.0.1')}${at('10.42.0.5', '10-42-0-5')}`, 'IPv6 goes')
  set.join({ id: 'milano', podCIDRs: ['10.42.0.0/16', 'fd00:1::/48'], globalCIDRs: [] })
  set.spread()
  await until(t, seen, dual, 'and comes back')
})
