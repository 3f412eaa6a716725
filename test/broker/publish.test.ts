import t from 'tap'
import { DEFAULT_MEMBER_QUOTA } from '../../model/member-quota.ts'
import type { MemberRecord } from '../../model/records.ts'
import {
  Publisher,
  Watcher,
  aSlice,
  anExport,
  declaration,
  digest,
  facts,
  join_,
  startBroker,
} from './support/harness.ts'

const web = anExport('web')
const db = anExport('db', { type: 'Headless' })
const slice = aSlice('web', '10.42.1.7')

t.test('first publication, then only differences', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const first = new Publisher(harness, peer)
  await first.send(declaration([web, slice]))
  await first.send(digest([web, slice]))
  await first.put(web)
  await first.put(slice)
  await first.acknowledged()
  t.match(first.replies, [
    { t: 'sendDigest' },
    { t: 'need', keys: [{ kind: 'ServiceExport', namespace: 'shop', name: 'web' }, { kind: 'EndpointSlice' }] },
  ])
  t.equal(harness.log.get('member', 'milano')?.complete, true)
  first.end()
  const revision = harness.log.list('record').length

  const same = new Publisher(harness, peer)
  await same.send(declaration([slice, web]))
  t.same(same.replies, [{ t: 'inSync', takesStatus: true, keepsToOffers: true }])
  same.end()

  const changed = new Publisher(harness, peer)
  const records = [anExport('web', { exportedLabels: { a: 'b' } }), db]
  await changed.send(declaration(records))
  await changed.send(digest(records))
  t.match(changed.replies.at(-1), { t: 'need', keys: [{ name: 'web' }, { name: 'db' }] })
  t.equal(harness.log.get('record', 'milano/EndpointSlice/shop/web-1'), undefined, 'what is not in the digest has gone')
  t.equal(revision, 4, 'two of the member, its Cluster record and an address')
})

t.test('an empty set is a set', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const stream = new Publisher(harness, peer)
  await stream.publish([])
  t.same(stream.replies, [{ t: 'inSync', takesStatus: true, keepsToOffers: true }])
  t.equal(harness.log.get('member', 'milano')?.complete, true)
})

t.test('the set is complete only when all of it is here', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const stream = new Publisher(harness, peer)
  await stream.send(declaration([web, db]))
  await stream.send(digest([web, db]))
  await stream.put(web)
  await stream.acknowledged()
  t.equal(harness.log.get('member', 'milano')?.complete, false)
  await stream.put(anExport('db', { uid: '' }))
  await stream.acknowledged()
  t.same(stream.refusals(), ['uid: has 0 characters: expected 1 to 128'])
  t.equal(harness.log.get('member', 'milano')?.complete, true, 'a refused record has been answered')
})

t.test('the order of messages', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  await t.rejects(new Publisher(harness, peer).put(web), { message: 'put: the first message of a stream is declare' })
  await t.rejects(new Publisher(harness, peer).send(digest([])), { message: 'digest: it was not asked for' })
  const stream = new Publisher(harness, peer)
  await stream.send(declaration([web]))
  await t.rejects(stream.put(web), { message: 'put: the digest comes first' })
})

t.test('refusals of records, by the broker itself', async (t) => {
  const harness = await startBroker(t, {
    config: {
      limits: { membersPerClusterset: 2, quota: { ...DEFAULT_MEMBER_QUOTA, bytes: 2000, records: 5 } },
    },
  })
  const { peer } = await join_(harness, 'milano')
  const paris = await join_(harness, 'paris')
  await t.rejects(join_(harness, 'tokyo'), {
    message: 'cluster: the clusterset has reached its limit of 2 members',
  })
  const stream = new Publisher(harness, peer)
  await stream.publish([])
  const endpoint = (cluster: string): MemberRecord => ({
    namespace: '',
    name: `${cluster}.gw-lane0`,
    body: {
      kind: 'Endpoint',
      spec: {
        cluster,
        node: 'gw',
        lane: 0,
        publicKey: Buffer.alloc(32, 1).toString('base64'),
        candidates: [],
        capabilities: [],
      },
    },
  })
  await stream.put(anExport('web', {}, 'kube-system'))
  await stream.put(aSlice('web', '127.0.0.1'))
  await stream.put(endpoint('paris'))
  await stream.put(endpoint('milano'))
  for (const name of ['a', 'b', 'c', 'd', 'e']) await stream.put(anExport(name, { type: 'Headless' }))
  await stream.acknowledged()
  t.same(stream.refusals(), [
    `namespace: "kube-system" is a system namespace: export from another one, or start the broker with --allow-namespace kube-system`,
    `endpoints[0].addresses[0]: "127.0.0.1" is a loopback address: expected one inside the cluster's pod CIDRs 10.42.0.0/16`,
    'spec.cluster: "paris": expected "milano", the cluster of the certificate',
    'records: the broker holds 5 records of cluster "milano", and its quota is 5: withdraw exports, ' +
      'or ask for more at the broker: sealane cluster quota milano --records N',
  ])
  const other = new Publisher(harness, paris.peer)
  await other.publish([])
  await other.put(endpoint('paris'))
  await other.acknowledged()
  t.same(other.refusals(), [
    `spec.publicKey: "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=" is a key of cluster "milano", which stated it first: expected a key of its own for each gateway`,
  ])
  // The gateway may come back, so the key belongs to milano until milano leaves.
  await stream.remove(endpoint('milano'))
  await stream.acknowledged()
  await other.put(endpoint('paris'))
  await other.acknowledged()
  t.equal(other.refusals().length, 2)
  await harness.broker.leave(peer)
  await other.put(endpoint('paris'))
  await other.acknowledged()
  t.equal(other.refusals().length, 2)
})

t.test("a member cannot write another's record: there is no field to say so", async (t) => {
  const harness = await startBroker(t)
  const milano = await join_(harness, 'milano')
  const paris = await join_(harness, 'paris')
  const owner = new Publisher(harness, paris.peer)
  await owner.publish([web])
  const intruder = new Publisher(harness, milano.peer)
  await intruder.publish([])
  const forged = { ...anExport('web', { uid: 'forged' }), cluster: 'paris', key: { cluster: 'paris' } }
  await intruder.put(forged)
  await intruder.remove({ ...web, cluster: 'paris' } as MemberRecord)
  await intruder.acknowledged()
  t.match(harness.log.get('record', 'paris/ServiceExport/shop/web'), { body: { uid: 'uid-web' } })
  t.equal(harness.log.get('record', 'milano/ServiceExport/shop/web'), undefined)
})

t.test('the broker stamps the age of an export', async (t) => {
  const harness = await startBroker(t)
  const { clock, log } = harness
  const { peer } = await join_(harness, 'milano')
  const start = clock.now()
  const age = (): number => ((log.get('record', 'milano/ServiceExport/shop/web')?.createdAtMs ?? NaN) - start) / 1000
  const stream = new Publisher(harness, peer)
  await stream.publish([])
  const steps: [string, () => Promise<void>, number][] = [
    ['first seen', () => stream.put(web), 10],
    ['changed: as old as before', () => stream.put(anExport('web', { exportedLabels: { a: 'b' } })), 10],
    ['withdrawn', () => stream.remove(web), NaN],
    ['the same uid again: as old as before', () => stream.put(web), 10],
    ['made anew', () => stream.put(anExport('web', { uid: 'second' })), 50],
    ['the first uid is new to us now', () => stream.put(web), 60],
  ]
  for (const [name, step, want] of steps) {
    await clock.advance(10_000)
    await step()
    await stream.acknowledged()
    t.same(age(), want, name)
  }
  await stream.remove(web)
  await stream.acknowledged()
  await clock.advance(25 * 3_600_000)
  await harness.broker.tidy()
  t.equal(log.count('stamp'), 0, 'a stamp without export goes after a day')
})

t.test('the broker stamps the age of a gateway', async (t) => {
  const harness = await startBroker(t)
  const { clock, log } = harness
  const { peer } = await join_(harness, 'milano')
  const start = clock.now()
  const name = 'milano.gw-lane0'
  const gateway = (byte: number): MemberRecord => {
    const publicKey = Buffer.alloc(32, byte).toString('base64')
    const spec = { cluster: 'milano', node: 'gw', lane: 0, publicKey, candidates: [], capabilities: [] }
    return { namespace: '', name, body: { kind: 'Endpoint', spec } }
  }
  const stream = new Publisher(harness, peer)
  await stream.publish([])
  const steps: [string, () => Promise<void>, number][] = [
    ['first seen', () => stream.put(gateway(1)), 10],
    ['another key: as old as before', () => stream.put(gateway(2)), 10],
    ['withdrawn', () => stream.remove(gateway(2)), NaN],
    ['it came again: younger', () => stream.put(gateway(2)), 40],
  ]
  for (const [say, step, want] of steps) {
    await clock.advance(10_000)
    await step()
    await stream.acknowledged()
    t.same(((log.get('record', `milano/Endpoint//${name}`)?.createdAtMs ?? NaN) - start) / 1000, want, say)
  }
})

t.test('an oversized record', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const stream = new Publisher(harness, peer)
  await stream.publish([])
  const endpoint = {
    addresses: ['10.42.0.1'],
    hostname: 'h'.repeat(63),
    nodeName: 'n'.repeat(63),
    zone: 'z'.repeat(63),
  }
  const addresses = Array.from({ length: 100 }, () => '10.42.100.100')
  const big = aSlice('web', '10.42.0.1')
  await stream.put({
    ...big,
    body: { ...big.body, endpoints: Array.from({ length: 1001 }, () => endpoint) } as typeof big.body,
  })
  await stream.put({
    ...big,
    body: {
      ...big.body,
      endpoints: Array.from({ length: 1000 }, () => ({ ...endpoint, addresses })),
    } as typeof big.body,
  })
  await stream.acknowledged()
  t.same(stream.refusals(), [
    'record.body.endpoints: 1001 entries: expected at most 1000',
    'endpoints: 100000 addresses: expected at most 2000 in one slice',
  ])
})

t.test('a clusterset IP lives as long as somebody exports the service, and comes back', async (t) => {
  const harness = await startBroker(t)
  const [milano, paris] = [await join_(harness, 'milano'), await join_(harness, 'paris')]
  const [a, b] = [new Publisher(harness, milano.peer), new Publisher(harness, paris.peer)]
  const watcher = new Watcher(harness, milano.peer)
  const ip = (): string | undefined => {
    const body = harness.log.get('record', '/ClusterSetIP/shop/web')?.body
    return body?.kind === 'ClusterSetIP' ? body.ips[0] : undefined
  }
  await a.publish([web])
  const first = ip()
  t.match(first, /^245\.0\.\d+\.\d+$/)
  await b.publish([web])
  await a.remove(web)
  await a.acknowledged()
  t.equal(ip(), first, 'paris still exports it')
  await b.put(anExport('web', { type: 'Headless' }))
  await b.acknowledged()
  t.equal(ip(), undefined, 'a headless service has none')
  await watcher.line('remove /ClusterSetIP/shop/web')
  await b.put(anExport('other'))
  await b.put(web)
  await b.acknowledged()
  t.equal(ip(), first)
  await harness.broker.leave(paris.peer)
  t.equal(ip(), undefined)
  await watcher.stop()
})

t.test('a full clusterset IP range: released addresses are used again, oldest first', async (t) => {
  const harness = await startBroker(t, { config: { clustersetIpRange: '245.0.0.0/30' } })
  const { peer } = await join_(harness, 'milano')
  const stream = new Publisher(harness, peer)
  await stream.publish([anExport('a'), anExport('b')])
  await stream.put(anExport('c'))
  await stream.acknowledged()
  t.same(stream.refusals(), [
    'clustersetIP: all addresses of the range 245.0.0.0/30 are in use: withdraw exports, or export as headless; ' +
      'a larger range can be set only at the first start of a broker, with --clusterset-ip-range',
  ])
  await harness.clock.advance(1000)
  await stream.remove(anExport('b'))
  await stream.acknowledged()
  await harness.clock.advance(1000)
  await stream.remove(anExport('a'))
  await stream.acknowledged()
  const wasB = harness.log.get('serviceIp', 'shop/b')?.ip
  await stream.put(anExport('c'))
  await stream.acknowledged()
  t.equal(harness.log.get('serviceIp', 'shop/c')?.ip, wasB)
  t.equal(harness.log.get('record', 'milano/ServiceExport/shop/c')?.body.kind, 'ServiceExport')
})

t.test('facts change', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const stream = new Publisher(harness, peer)
  const far = aSlice('far', '10.60.0.1')
  await stream.publish([slice])
  await stream.put(far)
  await stream.facts(facts(['10.60.0.0/16'], { labels: { zone: 'b' } }))
  await stream.put(far)
  await stream.facts(facts(['10.0.0.0/7']))
  await stream.acknowledged()
  t.same(stream.refusals(), [
    `endpoints[0].addresses[0]: "10.60.0.1" is outside the cluster's pod CIDRs: expected one inside 10.42.0.0/16`,
    'podCIDRs[0]: "10.0.0.0/7" is too large: expected /8 to /28',
  ])
  t.match(harness.log.get('record', 'milano/Cluster//milano')?.body, {
    spec: { podCIDRs: ['10.60.0.0/16'], labels: { zone: 'b' } },
  })
  t.equal(harness.log.get('record', 'milano/EndpointSlice/shop/web-1'), undefined, 'addresses given up are withdrawn')
  t.ok(harness.log.get('record', 'milano/EndpointSlice/shop/far-1'))
})

t.test('facts that find no room change nothing', async (t) => {
  const harness = await startBroker(t, { config: { globalRange: '244.0.0.0/16' } })
  const { peer } = await join_(harness, 'milano')
  await join_(harness, 'paris', { facts: facts(['10.50.0.0/16']) })
  const stream = new Publisher(harness, peer)
  await stream.publish([web])
  await stream.facts(facts(['10.50.0.0/16']))
  await stream.acknowledged()
  t.same(stream.refusals(), [
    'podCIDRs: the global range 244.0.0.0/16 is exhausted: pod CIDR 10.50.0.0/16 of cluster "paris" overlaps another cluster\'s and needs a /16 block, and no block is free (0 of 65536 addresses are free, 1 block is given): choose pod CIDRs that no other cluster uses, or smaller ones; or evict members that are gone for good ("sealane cluster list", "sealane cluster evict"); or create a clusterset with a larger range (--global-range at the first start of its broker)',
  ])
  t.same(harness.log.get('member', 'milano')?.facts.podCIDRs, ['10.42.0.0/16'])
})

t.test('a newer stream takes over', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const old = new Publisher(harness, peer)
  await old.publish([web])
  const next = new Publisher(harness, peer)
  await t.rejects(old.put(db), {
    code: 'FailedPrecondition',
    message:
      'stream: a newer publish stream of cluster "milano" has taken over; if this repeats, two sites use one identity',
  })
  old.end()
  await next.publish([web])
  t.same(next.replies, [{ t: 'inSync', takesStatus: true, keepsToOffers: true }])
})

t.test('while the store refuses nothing is acknowledged; then it is', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const stream = new Publisher(harness, peer)
  await stream.publish([])
  const { DatabaseSync } = process.getBuiltinModule('node:sqlite')
  const other = new DatabaseSync(`${harness.stateDir}/broker.db`)
  other.exec('BEGIN IMMEDIATE')
  await stream.put(web)
  await new Promise((resolve) => setTimeout(resolve, 2300))
  t.same(stream.replies, [{ t: 'inSync', takesStatus: true, keepsToOffers: true }])
  other.exec('ROLLBACK')
  other.close()
  await harness.clock.advance(1000)
  await stream.acknowledged()
  t.match(harness.logger.messages('error'), ['cannot write to the store; retrying'])
  t.ok(harness.log.get('record', 'milano/ServiceExport/shop/web'))
})

t.test('a replica of an earlier release comes and goes: each stream states it, and ends when it changes', async (t) => {
  let keeps = false
  const replicas = {
    isConnectedElsewhere: () => false,
    report: () => undefined,
    keepToOffers: () => keeps,
    withoutTopology: () => [],
  }
  const harness = await startBroker(t, { replicas })
  const { peer } = await join_(harness, 'milano')
  const first = new Publisher(harness, peer)
  await first.publish([])
  t.same(first.replies, [{ t: 'inSync', takesStatus: true }], 'a replica would give records to all')
  harness.broker.reviewOffers()
  t.equal(first.ended, undefined, 'nothing has changed')
  keeps = true
  harness.broker.reviewOffers()
  t.match(first.ended, /brokers of an earlier release have come or gone/)
  first.end()
  const second = new Publisher(harness, peer)
  await second.publish([])
  t.same(second.replies, [{ t: 'inSync', takesStatus: true, keepsToOffers: true }])
  harness.broker.reviewOffers()
  t.equal(second.ended, undefined)
  keeps = false
  harness.broker.reviewOffers()
  t.match(second.ended, /earlier release/)
  t.match(
    harness.logger.lines.filter(({ fields }) => fields['reason'] === 'OffersNotSupported'),
    [{}, {}],
    'told',
  )
})
