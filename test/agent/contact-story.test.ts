import t, { type Test } from 'tap'
import type { ObjectCache } from '../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import type { Gateway, Kind, ObjectKinds } from '../../model/objects.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { eventually } from '../support/eventually.ts'
import { namespaceObject } from '../support/objects/service-objects.ts'
import { gatewayObject } from '../support/objects/node-objects.ts'
import { Site, service, slice } from './site.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { until } from './until.ts'

const MINUTE = 60_000
const IMPORTED = ['shop/web ClusterSetIP 245.0.0.1 http:80 from milano,paris Ready']
const MILANO = 'web<-milano http:8080 244.1.0.5(10-42-0-5)'
const PARIS = 'web<-paris http:8080 244.2.0.6(10-42-0-6)'

interface Stage {
  readonly set: FakeClusterset
  readonly clock: FakeClock
  readonly tokyo: Site
  /**
   * Lets minutes pass, in which the broker sends contact every 15 seconds. `silent` names members without a connection.
   */
  readonly pass: (minutes: number, silent?: Readonly<Record<string, number>>) => Promise<void>
}

/** Starts milano and paris, which export shop/web, and tokyo, which watches and whose clock only the test moves. */
async function start(t: Test): Promise<Stage> {
  const set = new FakeClusterset()
  const clock = new FakeClock()
  const milano = new Site(set, { id: 'milano', podCIDR: '10.42.0.0/16', globalCIDR: '244.1.0.0/16' })
  const paris = new Site(set, { id: 'paris', podCIDR: '10.42.0.0/16', globalCIDR: '244.2.0.0/16' })
  const tokyo = new Site(set, { id: 'tokyo', podCIDR: '10.42.0.0/16', globalCIDR: '244.3.0.0/16', clock })
  for (const [site, address] of [
    [milano, '10.42.0.5'],
    [paris, '10.42.0.6'],
    [tokyo, ''],
  ] as const) {
    await site.join()
    site.api.put(namespaceObject('shop'))
    if (address === '') continue
    site.api.put(service('shop', 'web'))
    site.api.put(slice('shop', 'web', address))
    site.export('shop', 'web')
  }
  const all = [milano, paris, tokyo]
  all.forEach((site) => site.start())
  t.teardown(async () => {
    const stopped = Promise.all(all.map((site) => site.stop()))
    await clock.advance(1)
    await stopped
  })
  const stage: Stage = {
    set,
    clock,
    tokyo,
    pass: async (minutes, silent = {}) => {
      const start = clock.now()
      for (let i = 0; i < minutes * 4; i += 1) {
        const since = (clock.now() - start) / MINUTE
        set.silent = new Map(Object.entries(silent).map(([id, before]) => [id, (before + since) * MINUTE]))
        for (const link of set.links) link.onReason()
        await clock.advance(MINUTE / 4)
      }
    },
  }
  await eventually(async () => {
    await clock.advance(10)
    return JSON.stringify([tokyo.show(), tokyo.slices()]) === JSON.stringify([IMPORTED, [MILANO, PARIS]])
  })
  await stage.pass(1)
  t.equal(tokyo.api.cache('Lease').list().length, 2, 'a lease for each of the others')
  tokyo.reported()
  return stage
}

const lanes = (state: 'up' | 'down', rxBytes: number): NonNullable<Gateway['status']> => ({
  version: '0',
  lanes: [],
  connections: [
    {
      cluster: 'paris',
      lane: 0,
      endpoint: 'paris.gw-lane0',
      state,
      message: '',
      usingNat: false,
      rxBytes,
      txBytes: 0,
    },
  ],
})

t.test('a cluster that dies loses its endpoints after the time of a lease, and gets them back', async (t) => {
  const { tokyo, pass, clock } = await start(t)
  const contact = (): string[] =>
    tokyo.api
      .cache('Cluster')
      .list()
      .flatMap(
        ({ spec, status }) => status?.conditions?.map(({ type, status: is }) => `${spec.id} ${type}=${is}`) ?? [],
      )
      .filter((text) => text.includes('InContact'))
      .sort()
  await until(t, contact, ['milano InContact=True', 'paris InContact=True'], 'both are heard')
  await pass(9, { paris: 0 })
  t.same(tokyo.slices(), [MILANO, PARIS], 'what cannot be seen stays')
  await until(t, contact, ['milano InContact=True', 'paris InContact=False'], 'said long before')
  await pass(2, { paris: 9 })
  await until(t, () => tokyo.slices(), [MILANO], 'its endpoints go')
  t.same(tokyo.show(), IMPORTED, 'what it exports is remembered')
  t.same(tokyo.reported(), ['Cluster paris Warning ContactLost'])
  t.match(await tokyo.metrics(), /sealane_agent_silent_clusters\S* 1/)

  const stopped = tokyo.stop()
  await clock.advance(1)
  await stopped
  tokyo.start()
  await pass(1, { paris: 11 })
  t.same(tokyo.slices(), [MILANO], 'a restart does not bring it back')
  t.same(tokyo.api.writes.filter(({ verb, kind }) => verb === 'apply' && kind === 'EndpointSlice').length, 2)

  await pass(1)
  await until(t, () => tokyo.slices(), [MILANO, PARIS], 'heard again')
  t.same(tokyo.reported().at(-1), 'Cluster paris Normal ContactRestored')
  await until(t, contact, ['milano InContact=True', 'paris InContact=True'], 'on the Cluster, too')
})

t.test('whoever is cut off itself removes nothing', async (t) => {
  const { set, tokyo, pass } = await start(t)
  set.online = false
  await pass(60, { paris: 0, milano: 0 })
  t.same(tokyo.slices(), [MILANO, PARIS], 'an hour without the broker')
  set.online = true
  await pass(3, { paris: 0, milano: 0 })
  t.same(tokyo.slices(), [MILANO, PARIS], 'the broker is back and has itself heard nobody yet')
  await pass(1)
  t.same(tokyo.slices(), [MILANO, PARIS])
  t.same(tokyo.reported(), [])
})

t.test('a lane that is up proves life, as long as a gateway really says so', async (t) => {
  const { tokyo, pass } = await start(t)
  const gateway = gatewayObject('gw')
  await tokyo.api.apply(gateway)
  for (let minute = 0; minute < 20; minute += 1) {
    await tokyo.api.applyStatus({ ...gateway, status: lanes('up', minute) })
    await pass(1, { paris: minute })
  }
  t.same(tokyo.slices(), [MILANO, PARIS], 'the broker does not hear it, the lanes do')
  await pass(12, { paris: 20 })
  await until(t, () => tokyo.slices(), [MILANO], 'the gateway has stopped writing: what it said last proves nothing')
})

t.test('who leaves the clusterset takes its lease along; leaving takes all', async (t) => {
  const { set, clock, tokyo, pass } = await start(t)
  set.departed.add('paris')
  for (const [key, record] of [...set.records]) if (record.key.cluster === 'paris') set.records.delete(key)
  set.spread()
  await pass(1)
  const names = (): string[] =>
    tokyo.api
      .cache('Lease')
      .list()
      .map(({ metadata }) => metadata.name)
  await until(t, names, ['sealane-cluster-milano'], 'paris has left')
  await tokyo.setPhase('leaving')
  const ended = tokyo.ended()
  await clock.advance(1000)
  await ended
  t.same(names(), [])
})

/** An API on which the agent has no right to read Leases. */
class WithoutLeases extends MemoryApi {
  override cache<K extends Kind>(kind: K): ObjectCache<ObjectKinds[K]> {
    const cache = super.cache(kind)
    if (kind !== 'Lease') return cache
    return {
      synced: false,
      list: () => [],
      get: () => undefined,
      onChange: () => () => undefined,
      whenSynced: () => new Promise(() => undefined),
    }
  }
}

t.test('leases that cannot be read do not hold up the import', async (t) => {
  const set = new FakeClusterset()
  const clock = new FakeClock()
  const api = new WithoutLeases()
  const milano = new Site(set, { id: 'milano', podCIDR: '10.1.0.0/16' })
  const tokyo = new Site(set, { id: 'tokyo', podCIDR: '10.2.0.0/16', clock, api })
  for (const site of [milano, tokyo]) {
    await site.join()
    site.api.put(namespaceObject('shop'))
    site.start()
  }
  t.teardown(async () => {
    const stopped = Promise.all([milano.stop(), tokyo.stop()])
    await clock.advance(1)
    await stopped
  })
  milano.api.put(service('shop', 'web'))
  milano.export('shop', 'web')
  await until(t, () => milano.show().length, 1, 'exported')
  await clock.advance(4000)
  t.same(tokyo.show(), [], 'waits a little')
  await clock.advance(2000)
  await until(t, () => tokyo.show().length, 1, 'then goes on')
  t.same(tokyo.status.notReady(), ['agent: Lease objects are not read yet'], 'and says what is missing')
  t.match(
    tokyo.logger.lines.filter(({ level }) => level === 'warn').map(({ message }) => message),
    ['the last contact of the clusters is unknown; no cluster is treated as lost'],
  )
})

t.test('a gateway that stops to tell is said to be unknown, once, and takes that back itself', async (t) => {
  const { tokyo, clock } = await start(t)
  const gateway = gatewayObject('gw')
  const ready = { type: 'Ready', status: 'True', reason: 'LanesUp', message: '' } as const
  await tokyo.api.apply(gateway)
  let beats = 0
  const beat = async (): Promise<void> => {
    const conditions = [{ ...ready, lastTransitionTime: '2026-01-01T00:00:00Z' }]
    const status = { ...lanes('up', 1), conditions, heartbeatTime: new Date((beats += 1)).toISOString() }
    await tokyo.api.applyStatus({ ...gateway, status })
  }
  const pass = async (seconds: number, beating: boolean): Promise<void> => {
    for (let i = 0; i < seconds; i += 1) {
      if (beating && i % 5 === 0) await beat()
      await clock.advance(1000)
    }
  }
  const said = (): string[] => {
    const at = tokyo.api.get('Gateway', 'gw')?.status?.conditions ?? []
    const all = tokyo.api.get('Cluster', 'paris')?.status?.conditions ?? []
    const paris = all.filter(({ type }) => type !== 'GatewaysRedundant')
    return [...at, ...paris].flatMap(({ type, status, reason }) =>
      type === 'InContact' ? [] : [`${type} ${status} ${reason}`],
    )
  }
  await pass(30, true)
  t.strictSame(said(), ['Ready True LanesUp', 'Connected True LaneUp'])
  await pass(10, false)
  t.strictSame(said(), ['Ready True LanesUp', 'Connected True LaneUp'], 'a restart would be over by now')
  await pass(12, false)
  const unknown = ['Ready Unknown GatewayStatusStale', 'Connected Unknown GatewayStatusStale']
  t.strictSame(said(), unknown)
  await pass(60, false)
  t.strictSame(said(), unknown)
  t.same(
    tokyo.reported(),
    ['Cluster paris Normal ClusterReached', 'Gateway gw Warning GatewaySilent'],
    'each told once',
  )
  t.match(await tokyo.metrics(), /sealane_agent_stale_gateways\S* 1/)
  await pass(6, true)
  t.strictSame(said(), ['Ready True LanesUp', 'Connected True LaneUp'])
  t.same(tokyo.reported(), ['Gateway gw Normal GatewayHeard'])
  t.match(await tokyo.metrics(), /sealane_agent_stale_gateways\S* 0/)
})
