/** Members with IPv6 pod CIDRs: which of these are routed, through joins, changed facts, leaves and evictions. */
import t from 'tap'
import { clusterSpec } from '../../broker/addresses/cluster-records.ts'
import type { MemberRecord } from '../../model/records.ts'
import { ownCluster } from '../../model/addresses/own-cluster.ts'
import type { ClusterId } from '../../model/ids.ts'
import { type Harness, Publisher, Watcher, aSlice, anExport, facts, join_, startBroker } from './support/harness.ts'

const SIX = 'fd00:42::/48'

function dual(pods4: string, pods6: string, services6?: string) {
  return facts([pods4, pods6], services6 === undefined ? {} : { serviceCIDRs: ['10.43.0.0/16', services6] })
}

/** Returns `id pods | services | global` for each Cluster record. */
function records({ log }: Harness): string[] {
  return log.list('member').flatMap(({ key }) => {
    const spec = clusterSpec(log, key)
    if (spec === undefined) return []
    return [`${key} ${[spec.podCIDRs, spec.serviceCIDRs, spec.globalCIDRs].map((list) => list.join(',')).join(' | ')}`]
  })
}

function sixSlice(address: string): MemberRecord {
  const { namespace, body } = aSlice('web', address)
  return { namespace, name: 'web-6', body: { ...body, addressType: 'IPv6' } as MemberRecord['body'] }
}

t.test('IPv6 is carried as it is, also where IPv4 is translated', async (t) => {
  const harness = await startBroker(t)
  await join_(harness, 'milano', { facts: dual('10.42.0.0/16', SIX) })
  const paris = await join_(harness, 'paris', { facts: dual('10.42.0.0/16', 'fd00:50::/48') })
  t.match(paris.response, {
    podCIDRs: ['10.42.0.0/16', 'fd00:50::/48'],
    serviceCIDRs: ['10.43.0.0/16'],
    globalCIDRs: ['244.1.0.0/16', 'fd00:50::/48'],
  })
  t.same(records(harness), [
    'milano 10.42.0.0/16,fd00:42::/48 | 10.43.0.0/16 | 244.0.0.0/16,fd00:42::/48',
    'paris 10.42.0.0/16,fd00:50::/48 | 10.43.0.0/16 | 244.1.0.0/16,fd00:50::/48',
  ])
})

t.test('IPv6 that overlaps is left out for the member that was first, and IPv4 is as before', async (t) => {
  const harness = await startBroker(t)
  await join_(harness, 'milano', { facts: dual('10.42.0.0/16', SIX) })
  const stated = facts(['fd00:7::/48', '10.50.0.0/16', 'fd00:42:0:8::/64'], { serviceCIDRs: ['fd00:9::/108'] })
  const paris = await join_(harness, 'paris', { facts: stated })
  t.match(paris.response, { podCIDRs: ['10.50.0.0/16'], serviceCIDRs: [], globalCIDRs: [] })
  t.same(ownCluster('paris' as ClusterId, stated, paris.response).spec, clusterSpec(harness.log, 'paris'))
  t.same(records(harness), ['milano 10.42.0.0/16,fd00:42::/48 | 10.43.0.0/16 | ', 'paris 10.50.0.0/16 |  | '])
  t.same(
    (await harness.tokens.members()).map(({ podCIDRs, notCarried }) => [podCIDRs, notCarried]),
    [
      [['10.42.0.0/16', SIX], []],
      [stated.podCIDRs, ['fd00:7::/48', 'fd00:42:0:8::/64']],
    ],
  )
  const tokyo = await join_(harness, 'tokyo', { facts: facts(['10.60.0.0/16'], { serviceCIDRs: ['fd00:42::/112'] }) })
  t.match(tokyo.response, { podCIDRs: ['10.60.0.0/16'], serviceCIDRs: [], globalCIDRs: [] })
})

t.test('a broker that says nothing of what it carries carries all', async (t) => {
  const harness = await startBroker(t)
  const { response } = await join_(harness, 'milano')
  const silent = { ...response, podCIDRs: [], serviceCIDRs: [] }
  t.match(ownCluster('milano' as ClusterId, facts(), silent).spec, {
    podCIDRs: ['10.42.0.0/16'],
    serviceCIDRs: ['10.43.0.0/16'],
  })
})

t.test('who leaves or is evicted frees its IPv6, and only what differs is sent', async (t) => {
  const harness = await startBroker(t)
  const milano = await join_(harness, 'milano', { facts: dual('10.42.0.0/16', SIX) })
  await join_(harness, 'paris', { facts: dual('10.50.0.0/16', SIX) })
  await join_(harness, 'tokyo', { facts: dual('10.60.0.0/16', 'fd00:42:0:1::/64', 'fd00:43::/112') })
  const oslo = await join_(harness, 'oslo', { facts: facts(['10.70.0.0/16']) })
  const watcher = new Watcher(harness, oslo.peer)
  await watcher.line(/^synced/)
  const before = watcher.lines.length

  await harness.broker.leave(milano.peer)
  await watcher.line('remove milano/Cluster//milano')
  await harness.clock.advance(1000)
  await watcher.line(/^synced complete=\S* departed=milano$/)
  const puts = (): string[] => watcher.lines.slice(before).filter((line) => line.startsWith('put'))
  t.same(puts(), ['put paris/Cluster//paris'])
  t.same(records(harness), [
    'oslo 10.70.0.0/16 | 10.43.0.0/16 | ',
    'paris 10.50.0.0/16,fd00:42::/48 | 10.43.0.0/16 | ',
    'tokyo 10.60.0.0/16 | 10.43.0.0/16 | ',
  ])
  await harness.tokens.evict({ cluster: 'paris', force: true })
  await harness.log.refresh()
  await watcher.line('put tokyo/Cluster//tokyo')
  t.same(puts(), ['put paris/Cluster//paris', 'put tokyo/Cluster//tokyo'])
  t.same(records(harness)[1], 'tokyo 10.60.0.0/16,fd00:42:0:1::/64 | 10.43.0.0/16,fd00:43::/112 | ')
  await watcher.stop()
})

t.test('what is stated later takes IPv6 from nobody, and is carried once the other states it no more', async (t) => {
  const harness = await startBroker(t)
  const milano = await join_(harness, 'milano', { facts: facts(['10.42.0.0/16']) })
  const paris = await join_(harness, 'paris', { facts: dual('10.50.0.0/16', SIX) })
  const [first, second] = [new Publisher(harness, milano.peer), new Publisher(harness, paris.peer)]
  await first.publish([])
  const four = aSlice('web', '10.50.0.5')
  await second.publish([anExport('web', { ipFamilies: ['IPv4', 'IPv6'] }), four, sixSlice('fd00:42::5')])
  t.same(second.refusals(), [])
  const slices = (): string[] =>
    harness.log.list('record', 'paris').flatMap(({ key }) => (key.includes('EndpointSlice') ? [key] : []))
  const both = ['paris/EndpointSlice/shop/web-1', 'paris/EndpointSlice/shop/web-6']
  t.same(slices(), both)

  await first.facts(dual('10.42.0.0/16', SIX))
  await first.acknowledged()
  t.same(records(harness), [
    'milano 10.42.0.0/16 | 10.43.0.0/16 | ',
    'paris 10.50.0.0/16,fd00:42::/48 | 10.43.0.0/16 | ',
  ])
  t.same(slices(), both, 'the number of milano is lower, and it came later with this range')
  t.same(
    (await harness.tokens.members()).map(({ notes }) => notes),
    [['its IPv6 is not carried: fd00:42::/48 overlaps fd00:42::/48 of cluster paris'], []],
  )
  await first.put(sixSlice('fd00:42::6'))
  await first.acknowledged()
  t.same(first.refusals(), [
    'endpoints[0].addresses[0]: "fd00:42::6" is outside the cluster\'s pod CIDRs: expected one inside 10.42.0.0/16',
  ])

  await second.facts(dual('10.50.0.0/16', 'fd00:77::/48'))
  await second.acknowledged()
  t.same(records(harness), [
    'milano 10.42.0.0/16,fd00:42::/48 | 10.43.0.0/16 | ',
    'paris 10.50.0.0/16,fd00:77::/48 | 10.43.0.0/16 | ',
  ])
  t.same(slices(), ['paris/EndpointSlice/shop/web-1'], 'the address is another cluster’s now')
  t.equal(second.ended, undefined)
  first.end()
  second.end()
})

t.test('IPv6 that comes to hold the broker is carried no more, with what was published in it', async (t) => {
  const harness = await startBroker(t, { config: { advertise: ['broker.example:7443'] } })
  const paris = await join_(harness, 'paris', { facts: dual('10.50.0.0/16', SIX) })
  const publisher = new Publisher(harness, paris.peer)
  await publisher.publish([anExport('web', { ipFamilies: ['IPv4', 'IPv6'] }), sixSlice('fd00:42::5')])
  await harness.broker.reviewAddresses(['fd00:42::7443'])
  t.same(records(harness), ['paris 10.50.0.0/16 | 10.43.0.0/16 | '])
  t.same(
    harness.log.list('record', 'paris').filter(({ key }) => key.includes('EndpointSlice')),
    [],
  )
  t.same(
    (await harness.tokens.members()).map(({ notes }) => notes),
    [['its IPv6 is not carried: fd00:42::/48 holds fd00:42::7443, the broker']],
  )
  t.equal(publisher.ended, undefined)
  await harness.broker.reviewAddresses(['fd00:77::7443'])
  t.same(records(harness), ['paris 10.50.0.0/16,fd00:42::/48 | 10.43.0.0/16 | '])
  t.equal(
    publisher.ended,
    'podCIDRs: fd00:42::/48 of this cluster is carried again; the broker compares its records again',
    'paris need not have noticed, and would take for stored what was withdrawn',
  )
  await harness.broker.reviewAddresses(['fd00:42::7443'])
  await harness.tokens.evict({ cluster: 'paris', force: true })
  const milano = await join_(harness, 'milano', { facts: dual('10.60.0.0/16', SIX) })
  t.same(milano.response.podCIDRs, ['10.60.0.0/16'], 'also who comes later')
  t.same(milano.response.notes, ['its IPv6 is not carried: fd00:42::/48 holds fd00:42::7443, the broker'])
  publisher.end()
})

t.test('without IPv4 nobody joins', async (t) => {
  const harness = await startBroker(t)
  await t.rejects(join_(harness, 'milano', { facts: facts([SIX]) }), {
    name: 'RefusedError',
    code: 'InvalidArgument',
    field: 'podCIDRs',
    message: 'podCIDRs: fd00:42::/48: expected an IPv4 CIDR as well, this version does not connect pods without IPv4',
  })
})
