import t from 'tap'
import { Clients, type SiteNetworks, wordsOf } from '../../../dns/clients/clients.ts'
import { Places, TokenBuckets } from '../../../dns/clients/client-limits.ts'
import { parseAddress } from '../../../model/values/ip.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'
import { internalIps, nodeObject } from '../../support/objects/node-objects.ts'
import { syncedIndex, workedExamples } from '../zone-fixture.ts'

const NO_SITE: SiteNetworks = { networksVersion: 0, nodeAddresses: [], lanePrefixes: [] }

t.test('who is of this site: its networks, its nodes, this machine; not what comes by a lane', async (t) => {
  const api = workedExamples()
  api.put(clusterObject({ id: 'west', index: 1, podCIDRs: ['10.42.0.0/16', 'fd42:1::/48'] }))
  const globalCIDRs = ['244.1.0.0/16']
  api.put(clusterObject({ id: 'east', index: 2, podCIDRs: ['10.42.0.0/16'], globalCIDRs }))
  api.put(clusterObject({ id: 'plain', index: 3, podCIDRs: ['10.9.3.0/24', 'fd42:3::/48'] }))
  api.put(nodeObject('gw', { status: internalIps('203.0.113.20') }))
  let interfaces = ['10.9.0.7/16', '192.168.5.1/24', 'fd00:5::1/64', '246.0.2.0/32']
  const index = await syncedIndex(api)
  const clients = new Clients({ site: index, networks: ['10.42.0.0/16', 'fd42:1::/48'], interfaces: () => interfaces })
  const isOwn = (address: string): boolean => {
    const byText = clients.ofText(address)
    t.same(clients.ofWords(wordsOf(parseAddress(address))), byText, `${address}: the same by its numbers`)
    return byText.isOwn
  }
  const rows: [string, boolean][] = [
    ['127.0.0.1', true],
    ['::1', true],
    ['10.42.0.7', true],
    ['fd42:1::7', true],
    ['192.168.5.77', true],
    ['fd00:5::77', true],
    ['203.0.113.20', true],
    ['10.9.0.8', true],
    ['244.1.0.5', false],
    ['10.9.3.5', false],
    ['fd42:3::5', false],
    ['203.0.113.21', false],
    ['8.8.8.8', false],
    ['246.0.3.0', false],
  ]
  for (const [address, want] of rows) t.equal(isOwn(address), want, address)
  t.ok(clients.ofText('fe80::1%eth0').isOwn, 'a neighbour on a link')
  t.notOk(clients.ofText('').isOwn, 'a connection that has gone')
  api.drop('Cluster', 'plain')
  t.ok(isOwn('10.9.3.5'), 'no lane has it any more: the network of the interface counts')
  interfaces = ['172.20.0.1/16']
  clients.lookAgain()
  t.same([isOwn('192.168.5.77'), isOwn('172.20.3.4')], [false, true], 'interfaces come and go')
})

t.test('one machine is one client: an IPv4 address, an IPv6 /64; networks are /24 and /56', (t) => {
  const clients = new Clients({ site: NO_SITE, networks: [], interfaces: () => [] })
  const of = (address: string) => clients.ofText(address)
  t.equal(of('2001:db8:0:100::1').key, of('2001:db8:0:100:ffff::2').key)
  t.not(of('2001:db8:0:100::1').key, of('2001:db8:0:101::1').key)
  t.equal(of('2001:db8:0:100::1').network, of('2001:db8:0:1ff::1').network)
  t.not(of('2001:db8:0:100::1').network, of('2001:db8:0:200::1').network)
  t.not(of('192.0.2.1').key, of('192.0.2.2').key)
  t.equal(of('192.0.2.1').network, of('192.0.2.254').network)
  t.not(of('192.0.2.1').network, of('192.0.3.1').network)
  t.end()
})

t.test('places: each client may have as many as are free', (t) => {
  const places = new Places(10)
  const takeAll = (client: string): number => {
    let taken = 0
    for (; places.refuses(client) === undefined; taken += 1) places.take(client)
    return taken
  }
  t.equal(takeAll('greedy'), 5)
  t.equal(places.refuses('greedy'), 'own')
  t.equal(takeAll('second'), 3)
  t.equal(takeAll('third'), 1)
  t.equal(takeAll('fourth'), 1)
  t.equal(places.refuses('fifth'), 'taken')
  places.giveBack('greedy')
  t.same([places.size, takeAll('fifth')], [9, 1])
  t.end()
})

t.test('token buckets: a rate, a burst, and a table that does not grow', (t) => {
  const buckets = new TokenBuckets({ places: 64, perSecond: 10, burst: 20 })
  const taken = (key: number, nowMs: number): number => {
    let count = 0
    while (buckets.take(key, nowMs)) count += 1
    return count
  }
  t.equal(taken(7, 0), 20)
  t.equal(taken(7, 500), 5)
  t.equal(taken(8, 500), 20, 'another key')
  t.equal(taken(7, 60_000), 20, 'no more than the burst after a pause')
  for (let key = 100; key < 10_000; key += 1) buckets.take(key, 70_000)
  t.equal(taken(7, 70_000), 20, 'who was put out finds a full one')
  t.end()
})
