import t from 'tap'
import { namespaceObject } from '../support/objects/service-objects.ts'
import { endpointObject } from '../support/objects/cluster-objects.ts'
import { Site, service, slice } from './site.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { until } from './until.ts'

/** Starts milano and paris, whose ranges overlap, and tokyo, which exports nothing and has the namespace shop. */
async function threeSites(): Promise<{ set: FakeClusterset; milano: Site; paris: Site; tokyo: Site; all: Site[] }> {
  const set = new FakeClusterset()
  const milano = new Site(set, { id: 'milano', podCIDR: '10.42.0.0/16', globalCIDR: '244.1.0.0/16' })
  const paris = new Site(set, { id: 'paris', podCIDR: '10.42.0.0/16', globalCIDR: '244.2.0.0/16' })
  const tokyo = new Site(set, { id: 'tokyo', podCIDR: '10.42.0.0/16', globalCIDR: '244.3.0.0/16' })
  const all = [milano, paris, tokyo]
  for (const site of all) {
    await site.join()
    site.api.put(namespaceObject('shop'))
  }
  return { set, milano, paris, tokyo, all }
}

t.test('a service is exported, joined, changed and withdrawn', async (t) => {
  const { milano, paris, tokyo, all } = await threeSites()
  all.forEach((site) => site.start())
  t.teardown(() => Promise.all(all.map((site) => site.stop())))

  milano.api.put(service('shop', 'web'))
  milano.api.put(slice('shop', 'web', '10.42.0.5 !10.42.1.6'))
  milano.export('shop', 'web')
  await until(t, () => tokyo.show(), ['shop/web ClusterSetIP 245.0.0.1 http:80 from milano Ready'], 'tokyo finds it')
  await until(
    t,
    () => tokyo.slices(),
    ['web<-milano http:8080 244.1.0.5(10-42-0-5) !244.1.1.6(10-42-1-6)'],
    'translated',
  )
  await until(
    t,
    () => milano.slices(),
    ['web<-milano http:8080 10.42.0.5(10-42-0-5) !10.42.1.6(10-42-1-6)'],
    'milano uses its own',
  )
  await until(
    t,
    () => milano.conditions('shop', 'web'),
    'Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts',
    'conditions',
  )

  paris.api.put(
    service('shop', 'web', {
      ports: [
        { name: 'www', port: 80 },
        { name: 'admin', port: 81 },
      ],
    }),
  )
  paris.api.put(
    slice('shop', 'web', '10.42.0.7', {
      ports: [
        { name: 'www', port: 3000 },
        { name: 'admin', port: 3001 },
      ],
    }),
  )
  paris.export('shop', 'web')
  await until(
    t,
    () => tokyo.show(),
    ['shop/web ClusterSetIP 245.0.0.1 http:80,admin:81 from milano,paris Ready'],
    'both, under the same address',
  )
  await until(
    t,
    () => tokyo.slices(),
    [
      'web<-milano http:8080 244.1.0.5(10-42-0-5) !244.1.1.6(10-42-1-6)',
      'web<-paris http:3000,admin:3001 244.2.0.7(10-42-0-7)',
    ],
    "paris' port is renamed to the older one's name",
  )
  for (const site of [milano, paris]) {
    await until(
      t,
      () => site.conditions('shop', 'web'),
      'Valid=True/Valid Ready=True/Exported Conflict=True/PortConflict',
      `${site.id} hears it`,
    )
  }

  milano.api.drop('ServiceExport', 'web', 'shop')
  await until(
    t,
    () => tokyo.show(),
    ['shop/web ClusterSetIP 245.0.0.1 www:80,admin:81 from paris Ready'],
    'milano is out',
  )
  await until(t, () => tokyo.slices(), ['web<-paris www:3000,admin:3001 244.2.0.7(10-42-0-7)'], 'with its endpoints')
  await until(
    t,
    () => paris.conditions('shop', 'web'),
    'Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts',
    'the conflict ends',
  )

  paris.api.drop('ServiceExport', 'web', 'shop')
  for (const site of all) {
    await until(t, () => [site.show(), site.slices()], [[], []], `${site.id} has forgotten the service`)
  }
  t.same(
    all.flatMap((site) => site.logger.lines.filter(({ level }) => level !== 'info')),
    [],
    'no complaints',
  )
})

t.test('the broker vanishes, everything else restarts', async (t) => {
  const { set, milano, tokyo, paris, all } = await threeSites()
  for (const site of [milano, paris]) {
    site.api.put(service('shop', 'web'))
    site.api.put(slice('shop', 'web', '10.42.0.5'))
    site.export('shop', 'web')
  }
  all.forEach((site) => site.start())
  t.teardown(() => Promise.all(all.map((site) => site.stop())))
  const imports = ['shop/web ClusterSetIP 245.0.0.1 http:80 from milano,paris Ready']
  const slices = ['web<-milano http:8080 244.1.0.5(10-42-0-5)', 'web<-paris http:8080 244.2.0.5(10-42-0-5)']
  const exported = 'Valid=True/Valid Ready=True/Exported Conflict=False/NoConflicts'
  await until(t, () => [tokyo.show(), tokyo.slices()], [imports, slices], 'at first')
  await until(
    t,
    () => [milano.conditions('shop', 'web'), tokyo.api.cache('Cluster').list().length],
    [exported, 3],
    'at first',
  )
  for (const site of all) await until(t, () => site.api.cache('Lease').list().length, 2, 'leases of the others')

  set.online = false
  for (const site of all) await site.stop()
  for (const site of all) site.api.writes.length = 0
  all.forEach((site) => site.start())
  milano.api.put(service('shop', 'other'))
  milano.export('shop', 'other')
  await until(
    t,
    () => milano.conditions('shop', 'other'),
    'Valid=True/Valid Ready=False/Pending Conflict=False/NoConflicts',
    'a new export waits',
  )
  t.equal(milano.conditions('shop', 'web'), exported, 'the old one is believed to be exported still')
  t.same([tokyo.show(), tokyo.slices()], [imports, slices], 'nothing is lost')
  t.same(tokyo.api.writes, [], 'nothing was written')
  t.same(tokyo.status.notReady(), [], 'ready without the broker')
  t.match(tokyo.status.plans().get('agent'), 'broker: the broker cannot be reached')

  // The broker comes back without records, and tokyo is the first member to connect.
  set.forget()
  await milano.stop()
  await paris.stop()
  set.online = true
  set.spread()
  t.same([tokyo.show(), tokyo.slices()], [imports, slices], 'what cannot be seen stays')
  paris.start()
  await until(t, () => [...set.complete].sort().includes('paris'), true, 'paris has declared')
  await until(t, () => tokyo.show(), imports, 'the service keeps milano')
  t.same(tokyo.slices(), slices, 'with its endpoints')
  milano.start()
  await until(
    t,
    () => tokyo.show(),
    [...imports.map((line) => line), 'shop/other ClusterSetIP 245.0.0.2 http:80 from milano Ready'].sort(),
    'the new export arrives',
  )
  set.departed.add('paris')
  for (const [key, record] of [...set.records]) if (record.key.cluster === 'paris') set.records.delete(key)
  await paris.stop()
  set.spread()
  await until(t, () => tokyo.slices().filter((line) => line.includes('paris')), [], 'who has left is gone')
  await until(t, () => tokyo.api.get('Cluster', 'paris'), undefined, 'for good')
})

t.test('namespaces: only those that exist here, and not while they end', async (t) => {
  const { milano, tokyo, paris, all } = await threeSites()
  all.forEach((site) => site.start())
  t.teardown(() => Promise.all(all.map((site) => site.stop())))
  milano.api.put(service('extra', 'web'))
  milano.api.put(slice('extra', 'web', '10.42.0.5'))
  milano.export('extra', 'web')
  await until(t, () => milano.show().length, 1, 'at home')
  t.same(tokyo.show(), [])
  tokyo.api.put(namespaceObject('extra'))
  await until(
    t,
    () => tokyo.show(),
    ['extra/web ClusterSetIP 245.0.0.1 http:80 from milano Ready'],
    'the namespace comes',
  )
  tokyo.api.put(namespaceObject('extra', { status: { phase: 'Terminating' } }))
  await until(t, () => [tokyo.show(), tokyo.slices()], [[], []], 'and goes')
  t.same(paris.show(), [])
})

t.test('somebody meddles with what was mirrored', async (t) => {
  const { milano, tokyo, all } = await threeSites()
  all.forEach((site) => site.start())
  t.teardown(() => Promise.all(all.map((site) => site.stop())))
  milano.api.put(service('shop', 'web'))
  milano.api.put(slice('shop', 'web', '10.42.0.5'))
  milano.export('shop', 'web')
  const want = ['shop/web ClusterSetIP 245.0.0.1 http:80 from milano Ready']
  await until(t, () => [tokyo.show(), tokyo.slices().length], [want, 1], 'at first')
  await tokyo.api.remove('ServiceImport', 'web', 'shop')
  await until(t, () => tokyo.show(), want, 'a removed ServiceImport comes back')
  const found = tokyo.api.get('ServiceImport', 'web', 'shop')!
  await tokyo.api.apply({ ...found, spec: { ...found.spec, ips: ['1.2.3.4'] } })
  await until(t, () => tokyo.show(), want, 'an edited one is put right')
  tokyo.api.writes.length = 0
  milano.api.put(slice('shop', 'web', '10.42.0.5 10.42.0.6'))
  await until(
    t,
    () => tokyo.slices(),
    ['web<-milano http:8080 244.1.0.5(10-42-0-5) 244.1.0.6(10-42-0-6)'],
    'a pod more',
  )
  t.same(
    tokyo.api.writes.map(({ verb, kind }) => `${verb} ${kind}`),
    ['apply EndpointSlice'],
    'one write for one change',
  )
})

t.test('whoever takes Clusters away finds them again: its own as well', async (t) => {
  const { milano, tokyo, all } = await threeSites()
  all.forEach((site) => site.start())
  t.teardown(() => Promise.all(all.map((site) => site.stop())))
  const clusters = (): readonly string[] =>
    tokyo.api
      .cache('Cluster')
      .list()
      .map(({ metadata, spec }) => `${metadata.name} ${spec.podCIDRs.join()}`)
  const want = ['milano 10.42.0.0/16', 'paris 10.42.0.0/16', 'tokyo 10.42.0.0/16']
  await until(t, clusters, want, 'at first')
  for (const name of ['milano', 'paris', 'tokyo']) await tokyo.api.remove('Cluster', name)
  await until(t, clusters, want, 'as when the CRD is deleted, with everything of its kind')
  milano.api.put(service('shop', 'web'))
  milano.api.put(slice('shop', 'web', '10.42.0.5'))
  milano.export('shop', 'web')
  await until(t, () => tokyo.show(), ['shop/web ClusterSetIP 245.0.0.1 http:80 from milano Ready'], 'and all goes on')
})

t.test('gateways of the others are mirrored, our own are published', async (t) => {
  const { set, milano, tokyo, all } = await threeSites()
  all.forEach((site) => site.start())
  t.teardown(() => Promise.all(all.map((site) => site.stop())))
  const spec = {
    cluster: 'milano',
    node: 'gw',
    lane: 0,
    publicKey: Buffer.alloc(32, 7).toString('base64'),
    capabilities: [],
    candidates: [
      { kind: 'public', address: '192.0.2.10', port: 4500 },
      { kind: 'private', address: '127.0.0.1', port: 4500 },
    ],
  } as const
  await milano.api.apply(endpointObject(spec))
  await until(
    t,
    () => tokyo.api.get('Endpoint', 'milano.gw-lane0')?.spec.candidates.map(({ address }) => address),
    ['192.0.2.10'],
    'without the candidate that points at ourselves',
  )
  t.match(
    tokyo.logger.lines.filter(({ level }) => level === 'warn').map(({ fields }) => fields),
    [
      {
        record: 'milano/Endpoint/milano.gw-lane0',
        reason: 'AddressNotReachable',
        why: 'candidate "127.0.0.1" is a loopback address',
      },
    ],
  )
  t.equal(milano.api.get('Endpoint', 'milano.gw-lane0')?.spec.candidates.length, 2, 'the own object is untouched')
  set.complete.delete('milano')
  await milano.stop()
  await milano.api.remove('Endpoint', 'milano.gw-lane0')
  milano.start()
  await until(t, () => tokyo.api.get('Endpoint', 'milano.gw-lane0'), undefined, 'withdrawn')
})

t.test('leaving takes everything mirrored away and ends the agent', async (t) => {
  const { set, milano, tokyo, all } = await threeSites()
  all.forEach((site) => site.start())
  t.teardown(() => Promise.all(all.map((site) => site.stop())))
  milano.api.put(service('shop', 'web'))
  milano.api.put(slice('shop', 'web', '10.42.0.5'))
  milano.export('shop', 'web')
  await until(t, () => tokyo.show().length, 1, 'at first')
  tokyo.api.put(service('shop', 'own'))
  tokyo.export('shop', 'own')
  await until(t, () => tokyo.conditions('shop', 'own').includes('Exported'), true, 'tokyo exports something too')
  await tokyo.setPhase('leaving')
  await tokyo.ended()
  t.equal(tokyo.conditions('shop', 'own'), 'Valid=Unknown/Pending Ready=False/Pending Conflict=False/NoConflicts')
  t.ok(set.links[2]?.forgotten, 'the saved copy is gone')
  t.same([tokyo.show(), tokyo.slices()], [[], []])
  t.same(
    tokyo.api
      .cache('Cluster')
      .list()
      .map(({ metadata }) => metadata.name),
    ['tokyo'],
  )
  t.match(tokyo.status.notReady(), ['agent: leaving the clusterset'])
})

t.test('who is stopped before everything is gone has not left', async (t) => {
  const set = new FakeClusterset()
  const site = new Site(set, { id: 'milano', podCIDR: '10.42.0.0/16' })
  await site.join()
  site.start()
  t.teardown(() => site.stop())
  await until(t, () => set.links[0]?.forgotten, false, 'it runs')
  Object.assign(set.links[0] ?? {}, { forget: () => Promise.reject(new Error('disk full')) })
  await site.setPhase('leaving')
  await until(
    t,
    () => site.logger.lines.find(({ level }) => level === 'error')?.fields,
    { component: 'agent', reason: 'RoundFailed', why: 'Error: disk full' },
    'it is said',
  )
  await site.stop()
  t.match(site.logger.messages().at(-1), 'cannot remove the mirrored objects; retrying')
})

t.test('before joining, the agent waits and says so', async (t) => {
  const set = new FakeClusterset()
  const site = new Site(set, { id: 'milano', podCIDR: '10.42.0.0/16' })
  site.start()
  await until(t, () => site.status.notReady(), ['agent: waiting until this cluster joins a clusterset'], 'waits')
  await site.join()
  await until(t, () => site.status.notReady(), [], 'ready once joined')
  await site.stop()
})

t.test('a refusal stands in the export', async (t) => {
  const { set, milano, all } = await threeSites()
  set.admit = (_cluster, record) => (record.name === 'web' ? 'namespace "shop" is not allowed' : undefined)
  all.forEach((site) => site.start())
  t.teardown(() => Promise.all(all.map((site) => site.stop())))
  milano.api.put(service('shop', 'web'))
  milano.export('shop', 'web')
  await until(
    t,
    () => milano.conditions('shop', 'web'),
    'Valid=True/Valid Ready=False/Failed Conflict=False/NoConflicts',
    'refused',
  )
  t.match(
    milano.api.get('ServiceExport', 'web', 'shop')?.status?.conditions?.find(({ type }) => type === 'Ready')?.message,
    'the broker refuses ServiceExport/shop/web: record: namespace "shop" is not allowed (InvalidValue)',
  )
  milano.export('shop', 'ghost')
  await until(
    t,
    () => milano.conditions('shop', 'ghost'),
    'Valid=False/NoService Ready=False/Pending Conflict=False/NoConflicts',
    'no Service',
  )
})
