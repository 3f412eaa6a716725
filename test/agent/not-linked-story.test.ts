/**
 * A member keeps to the topology by itself: this broker, like a replica of an earlier release, sends everything. What
 * belongs to a cluster with which the member does not link goes, and comes back with the link.
 */
import t, { type Test } from 'tap'
import { notLinkedMembers } from '../../model/membership.ts'
import type { Topology } from '../../model/records.ts'
import { endpointObject } from '../support/objects/cluster-objects.ts'
import { namespaceObject } from '../support/objects/service-objects.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { Site, service, slice } from './site.ts'
import { until } from './until.ts'

async function threeSites(
  t: Test,
): Promise<{ set: FakeClusterset; sites: Record<'milano' | 'paris' | 'tokyo', Site> }> {
  const set = new FakeClusterset()
  const sites = {
    milano: new Site(set, { id: 'milano', podCIDR: '10.41.0.0/16' }),
    paris: new Site(set, { id: 'paris', podCIDR: '10.42.0.0/16' }),
    tokyo: new Site(set, { id: 'tokyo', podCIDR: '10.43.0.0/16' }),
  }
  for (const site of Object.values(sites)) {
    await site.join()
    site.api.put(namespaceObject('shop'))
    site.start()
  }
  t.teardown(() => Promise.all(Object.values(sites).map((site) => site.stop())))
  for (const [id, address] of [
    ['milano', '10.41.0.5'],
    ['paris', '10.42.0.5'],
  ] as const) {
    const site = sites[id]
    site.api.put(service('shop', id))
    site.api.put(slice('shop', id, address))
    const publicKey = Buffer.alloc(32, id.length).toString('base64')
    const candidates = [{ kind: 'public' as const, address: '198.51.100.1', port: 4500 }]
    await site.api.apply(endpointObject({ cluster: id, publicKey, candidates }))
    site.export('shop', id)
  }
  return { set, sites }
}

let changes = 0
function state(set: FakeClusterset, topology: Topology): void {
  changes += 1
  const key = { cluster: '' as const, kind: 'Topology' as const, namespace: '', name: 'topology' }
  set.put(key, { kind: 'Topology', number: changes, topology })
  set.spread()
}

/** What a site has of others, without the address of a service. */
function has({ api, id }: Site): Record<string, string[]> {
  return {
    clusters: api
      .cache('Cluster')
      .list()
      .map(({ spec }) => spec.id)
      .filter((one) => one !== id)
      .sort(),
    gateways: api
      .cache('Endpoint')
      .list()
      .map(({ spec }) => spec.cluster)
      .filter((one) => one !== id)
      .sort(),
    services: api
      .cache('ServiceImport')
      .list()
      .map(({ metadata }) => metadata.name)
      .sort(),
  }
}

const ALL = { clusters: ['milano', 'paris'], gateways: ['milano', 'paris'], services: ['milano', 'paris'] }
const MILANO = { clusters: ['milano'], gateways: ['milano'], services: ['milano'] }

t.test('it withdraws what the topology takes, keeps to it without the broker, and takes it back', async (t) => {
  const { set, sites } = await threeSites(t)
  const { tokyo } = sites
  await until(t, () => has(tokyo), ALL, 'all link')
  const order: string[] = []
  for (const kind of ['ServiceImport', 'EndpointSlice', 'Endpoint', 'Cluster'] as const) {
    const note = (type: string | undefined): void => {
      if (type === 'removed') order.push(kind)
    }
    t.teardown(tokyo.api.cache(kind).onChange((change) => note(change?.type)))
  }
  state(set, { mode: 'hub-and-spoke', hubs: ['milano'] })
  await until(t, () => has(tokyo), MILANO, 'paris is no hub')
  t.same([...new Set(order)], ['ServiceImport', 'EndpointSlice', 'Endpoint', 'Cluster'], 'services first')
  const own = (): readonly string[] => {
    const object = tokyo.api.get('Cluster', 'tokyo')
    return object === undefined ? [] : notLinkedMembers(object)
  }
  await until(t, own, ['paris'], 'its own Cluster says so')

  // Nothing that comes of it later is used, not even while the broker is away and the agent starts again.
  sites.paris.api.put(service('shop', 'late'))
  sites.paris.api.put(slice('shop', 'late', '10.42.0.6'))
  sites.paris.export('shop', 'late')
  await until(t, () => sites.paris.conditions('shop', 'late').includes('Ready=True'), true, 'the broker has it')
  sites.milano.api.put(service('shop', 'marker'))
  sites.milano.export('shop', 'marker')
  await until(t, () => has(tokyo)['services'], ['marker', 'milano'], 'later records have arrived')
  set.online = false
  await tokyo.stop()
  tokyo.start()
  await until(t, () => tokyo.status.notReady().length, 0, 'it starts without the broker')
  t.same(has(tokyo)['clusters'], ['milano'])
  set.online = true
  state(set, { mode: 'full' })
  await until(t, () => has(tokyo)['services'], ['late', 'marker', 'milano', 'paris'], 'all link again')
  await until(t, own, [], 'and nobody is left out')
})

t.test('clusters that link through hubs have all of each other, and gateways learn why', async (t) => {
  const { set, sites } = await threeSites(t)
  const { tokyo } = sites
  const noted = () => {
    const text = tokyo.api.get('Cluster', 'tokyo')?.metadata.annotations?.['sealane.io/topology']
    return text === undefined ? undefined : (JSON.parse(text) as unknown)
  }
  const far = () => {
    const endpoints = tokyo.api.cache('Endpoint').list()
    return endpoints
      .filter(({ spec }) => spec.cluster !== 'tokyo')
      .map(({ metadata, spec }) => [spec.cluster, metadata.annotations?.['sealane.io/via'], spec.candidates.length])
      .sort()
  }
  const direct = [
    ['milano', undefined, 1],
    ['paris', undefined, 1],
  ]
  /** Each version of the Endpoint of paris: no gateway may ever see one that it could call. */
  const seen: string[] = []
  let isTransit = false
  const off = tokyo.api.cache('Endpoint').onChange((change) => {
    const { object } = change ?? {}
    if (!isTransit || change?.type !== 'set' || object?.spec.cluster !== 'paris') return
    seen.push(`${object.metadata.annotations?.['sealane.io/via']} ${object.spec.candidates.length}`)
  })
  t.teardown(off)
  await until(t, () => has(tokyo), ALL, 'all link')
  state(set, { mode: 'hub-and-spoke', hubs: ['milano'] })
  await until(t, () => has(tokyo), MILANO, 'paris is no hub')
  isTransit = true
  const via: Topology = { mode: 'hub-and-spoke', hubs: ['milano'], via: ['milano'] }
  state(set, via)
  await until(t, () => has(tokyo), ALL, 'through the hub')
  await until(t, noted, via, 'its own Cluster says so')
  t.same(far(), [direct[0], ['paris', 'milano', 0]])
  t.same([...new Set(seen)], ['milano 0'])
  isTransit = false
  state(set, { mode: 'full' })
  await until(t, noted, undefined, 'and no longer')
  await until(t, far, direct, 'they may call each other again')
})

t.test('a broker that lost its records does not make a member forget those with which it links', async (t) => {
  const { set, sites } = await threeSites(t)
  const { tokyo } = sites
  await until(t, () => has(tokyo), ALL, 'all link')
  const pair = { between: { selector: { matchLabels: { env: 'prod' } } }, and: { clusters: ['tokyo'] } }
  state(set, { mode: 'pairs', pairs: [pair] })
  await until(t, () => has(tokyo), { clusters: [], gateways: [], services: [] }, 'neither has the label')
  state(set, { mode: 'groups', groups: [{ name: 'all', clusters: ['milano', 'paris', 'tokyo'] }] })
  await until(t, () => has(tokyo), ALL, 'all link again')
  await Promise.all([sites.milano.stop(), sites.paris.stop()])
  set.forget()
  set.spread()
  state(set, { mode: 'groups', groups: [{ name: 'some', clusters: ['milano', 'tokyo'] }] })
  await until(t, () => has(tokyo), MILANO, 'milano stays, though the broker has nothing of it')
})
