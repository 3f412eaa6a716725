/** An import is called through a derived Service, by consumers that know only Services. */
import t, { type Test } from 'tap'
import { ClusterApiError } from '../../kubeapi/cluster-api.ts'
import type { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { AGENT_LOOP, type AgentConfig } from '../../agent/loop/config.ts'
import { agentMetrics } from '../../agent/loop/metrics.ts'
import { MirrorWriter } from '../../agent/loop/mirror-writer.ts'
import { SharedFindings } from '../../agent/loop/shared-findings.ts'
import { DerivedLoop } from '../../agent/mirror/derived-loop.ts'
import { HeardGateways } from '../../kubeapi/heard-gateways.ts'
import { heardGateways } from '../../model/lanes/liveness.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { gatewaySaying } from '../support/objects/node-objects.ts'
import { namespaceObject, serviceObject } from '../support/objects/service-objects.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { Site, service, slice } from './site.ts'
import { until } from './until.ts'

const NAME_TAKEN = 'False/DerivedServiceNameTaken'
const ASKED = 'sealane.io/derived-service'

function namespace(pattern?: string): ReturnType<typeof namespaceObject> {
  const metadata = { name: 'shop', ...(pattern === undefined ? {} : { annotations: { [ASKED]: pattern } }) }
  return { ...namespaceObject('shop'), metadata }
}

async function sites(
  t: Test,
  config: Partial<AgentConfig> = {},
): Promise<{ set: FakeClusterset; milano: Site; tokyo: Site }> {
  const set = new FakeClusterset()
  const milano = new Site(set, { id: 'milano', podCIDR: '10.1.0.0/16' })
  const tokyo = new Site(set, { id: 'tokyo', podCIDR: '10.3.0.0/16', config })
  t.teardown(() => Promise.all([milano.stop(), tokyo.stop()]))
  for (const site of [milano, tokyo]) {
    await site.join()
    site.api.put(namespace())
  }
  milano.api.put(service('shop', 'web'))
  milano.api.put(slice('shop', 'web', '10.1.0.5 !10.1.0.6'))
  milano.export('shop', 'web')
  milano.start()
  tokyo.start()
  return { set, milano, tokyo }
}

/** Returns `web-global 80 from web: milano 10.1.0.5 !10.1.0.6` for each derived Service, with its slices. */
function derived(api: MemoryApi): string[] {
  const slices = api.cache('EndpointSlice').list()
  const labelled = api
    .cache('Service')
    .list()
    .filter(({ metadata }) => metadata.labels?.['sealane.io/derived'] === 'true')
  return labelled.map(({ metadata: { name, labels = {} }, spec }) => {
    const of = slices.filter(({ metadata }) => metadata.labels?.['kubernetes.io/service-name'] === name)
    const endpoints = of.map(({ metadata, endpoints: all = [] }) => {
      const shown = all.map((one) => `${one.conditions?.ready === false ? '!' : ''}${one.addresses.join('+')}`)
      return `${metadata.labels?.['multicluster.kubernetes.io/source-cluster'] ?? ''} ${shown.join(' ')}`
    })
    const ports = (spec?.ports ?? []).map(({ port }) => port).join()
    return `${name} ${ports} from ${labels['sealane.io/derived-from'] ?? ''}: ${endpoints.sort().join(', ')}`
  })
}

function said({ api }: Site): string {
  const found = api
    .get('ServiceImport', 'web', 'shop')
    ?.status?.conditions?.find(({ type }) => type === 'sealane.io/DerivedService')
  return found === undefined ? 'nothing' : `${found.status}/${found.reason}`
}

/** Derived slices that no Service has any more, and derived Services. */
function leftovers({ api }: Site): number {
  const all = [...api.cache('Service').list(), ...api.cache('EndpointSlice').list()]
  return all.filter(({ metadata }) => metadata.labels?.['sealane.io/derived'] !== undefined).length
}

t.test('asked for, followed, repaired, renamed and removed', async (t) => {
  const { milano, tokyo } = await sites(t)
  await until(t, () => tokyo.slices().length, 1, 'imported')
  t.same([derived(tokyo.api), said(tokyo)], [[], 'nothing'], 'nobody asked')

  tokyo.api.put(namespace('*-global'))
  await until(t, () => derived(tokyo.api), ['web-global 80 from web: milano 10.1.0.5 !10.1.0.6'], 'it is there')
  await until(t, () => said(tokyo), 'True/DerivedServiceReady', 'and said')
  milano.api.put(slice('shop', 'web', '10.1.0.7'))
  await until(t, () => derived(tokyo.api), ['web-global 80 from web: milano 10.1.0.7'], 'it follows')

  const before = tokyo.api.get('Service', 'web-global', 'shop')
  const copy = tokyo.api
    .cache('EndpointSlice')
    .list()
    .find(({ metadata }) => metadata.name.startsWith('web-global-'))
  if (before === undefined || copy === undefined) throw new Error('no derived Service')
  const origin = tokyo.api
    .cache('EndpointSlice')
    .list()
    .find(({ metadata }) => metadata.name.startsWith('web-milano-'))
  t.same(copy.endpoints, origin?.endpoints, 'as imported')
  await tokyo.api.apply({ ...before, spec: { ...before.spec, ports: [{ name: 'x', protocol: 'TCP', port: 1 }] } })
  await tokyo.api.apply({ ...copy, endpoints: [] })
  await until(t, () => derived(tokyo.api), ['web-global 80 from web: milano 10.1.0.7'], 'edits are undone')
  await tokyo.api.remove('Service', 'web-global', 'shop')
  await tokyo.api.remove('EndpointSlice', copy.metadata.name, 'shop')
  await until(t, () => derived(tokyo.api), ['web-global 80 from web: milano 10.1.0.7'], 'and removals')

  tokyo.export('shop', 'web-global')
  await until(
    t,
    () => tokyo.conditions('shop', 'web-global').split(' ')[0],
    'Valid=False/DerivedServiceNotExported',
    'it is not exported again',
  )
  tokyo.api.put(namespace('eu-*'))
  await until(t, () => derived(tokyo.api), ['eu-web 80 from web: milano 10.1.0.7'], 'another name')
  tokyo.api.put(namespace('eu'))
  await until(t, () => [derived(tokyo.api), said(tokyo)], [[], 'False/DerivedServiceNameInvalid'], 'no name')
  tokyo.api.put(namespace('*-global'))
  await until(t, () => [derived(tokyo.api).length, said(tokyo)], [1, 'True/DerivedServiceReady'], 'corrected')
  tokyo.api.put(namespace())
  await until(t, () => [leftovers(tokyo), said(tokyo)], [0, 'False/DerivedServiceNotAsked'], 'nobody asks any more')
  t.equal(tokyo.slices().length, 1, 'the import stays')
})

t.test("a user's Service of that name", async (t) => {
  const { tokyo } = await sites(t)
  const mine = serviceObject({ name: 'web-global' }, { ports: [{ port: 7, protocol: 'TCP' }] })
  tokyo.api.put(mine)
  tokyo.api.put(namespace('*-global'))
  await until(t, () => said(tokyo), 'False/DerivedServiceNameTaken', 'it is taken')
  t.same([leftovers(tokyo), tokyo.api.get('Service', 'web-global', 'shop')?.spec], [0, mine.spec], 'and untouched')
  tokyo.api.drop('Service', 'web-global', 'shop')
  await until(t, () => [derived(tokyo.api).length, said(tokyo)], [1, 'True/DerivedServiceReady'], 'once it is free')
})

t.test('a derived Service that a user takes over', async (t) => {
  const { tokyo } = await sites(t)
  tokyo.api.put(namespace('*-global'))
  await until(t, () => derived(tokyo.api), ['web-global 80 from web: milano 10.1.0.5 !10.1.0.6'], 'it is there')
  const before = tokyo.api.get('Service', 'web-global', 'shop')
  if (before === undefined) throw new Error('no derived Service')
  const theirs = { ports: [{ name: 'x', protocol: 'TCP', port: 7 }], selector: { app: 'web' } } as const
  await tokyo.api.apply({ ...before, spec: theirs })
  await until(t, () => [derived(tokyo.api), said(tokyo)], [['web-global 7 from web: '], NAME_TAKEN], 'it is theirs')
  tokyo.api.put(namespace())
  await until(t, () => said(tokyo), 'False/DerivedServiceNotAsked', 'nobody asks any more')
  await tokyo.setPhase('leaving')
  await tokyo.ended()
  t.same(tokyo.api.get('Service', 'web-global', 'shop')?.spec, theirs, 'it stays, also when the cluster leaves')
})

t.test('a member that the route agents of this cluster refuse', async (t) => {
  const { set, tokyo } = await sites(t)
  // Milano has these addresses, and is the first by name.
  const zurich = new Site(set, { id: 'zurich7', podCIDR: '10.1.128.0/17' })
  t.teardown(() => zurich.stop())
  await zurich.join()
  for (const object of [namespace(), service('shop', 'web'), slice('shop', 'web', '10.1.128.9')]) zurich.api.put(object)
  zurich.export('shop', 'web')
  zurich.start()
  await until(t, () => tokyo.slices().length, 2, 'both are imported')
  tokyo.api.put(namespace('*-global'))
  await until(t, () => said(tokyo), 'True/DerivedServiceReady', 'it is there')
  const ofMilano = ['web-global 80 from web: milano 10.1.0.5 !10.1.0.6']
  await until(t, () => derived(tokyo.api), ofMilano, 'no lane leads to the other')
})

t.test('an API server that refuses the Service', async (t) => {
  const { tokyo } = await sites(t)
  const apply = tokyo.api.apply.bind(tokyo.api)
  tokyo.api.apply = (object, signal) =>
    object.kind === 'Service' ? Promise.reject(new ClusterApiError('Invalid', 'no such port')) : apply(object, signal)
  tokyo.api.put(namespace('*-global'))
  await until(t, () => said(tokyo), 'False/ObjectNotWritten', 'it is said')
  tokyo.api.apply = apply
  tokyo.api.put(namespace('*-eu'))
  await until(t, () => [derived(tokyo.api).length, said(tokyo)], [1, 'True/DerivedServiceReady'], 'another is taken')
})

t.test('without the broker, after a restart, and at the end', async (t) => {
  const { set, milano, tokyo } = await sites(t)
  tokyo.api.put(namespace('*-global'))
  const there = ['web-global 80 from web: milano 10.1.0.5 !10.1.0.6']
  await until(t, () => derived(tokyo.api), there, 'there')
  set.online = false
  await tokyo.stop()
  tokyo.api.writes.splice(0)
  tokyo.start()
  await tokyo.api.remove('Service', 'web-global', 'shop')
  await until(t, () => derived(tokyo.api), there, 'repaired without a broker')
  t.same(
    tokyo.api.writes.filter(({ kind, verb }) => kind === 'EndpointSlice' && verb === 'remove'),
    [],
    'nothing went meanwhile',
  )
  set.online = true
  set.spread()
  milano.api.drop('ServiceExport', 'web', 'shop')
  await until(t, () => [tokyo.show(), leftovers(tokyo)], [[], 0], 'it goes with the import')
  milano.export('shop', 'web')
  await until(t, () => derived(tokyo.api), there, 'and comes with it')
  await tokyo.setPhase('leaving')
  await tokyo.ended()
  t.same([leftovers(tokyo), tokyo.show(), tokyo.slices()], [0, [], []], 'a cluster that left has nothing')
})

t.test('a site without Kubernetes', async (t) => {
  const { tokyo } = await sites(t, { removesOrphans: true })
  tokyo.api.put(namespace('*-global'))
  await until(t, () => said(tokyo), 'False/DerivedServiceNotOffered', 'it says so')
  t.equal(leftovers(tokyo), 0)
})

t.test('a gateway that is gone reaches no member, whatever its object says', async (t) => {
  const { tokyo } = await sites(t)
  const { api, logger } = tokyo
  api.put(namespace('*-global'))
  api.put(gatewaySaying('gw milano up'))
  await until(t, () => derived(api), ['web-global 80 from web: milano 10.1.0.5 !10.1.0.6'], 'it reports')
  await tokyo.stop()
  const parts = { api, logger, clock: new SystemClock(), metrics: agentMetrics(createMetrics('agent')) }
  const gateways = new HeardGateways(parts)
  gateways.list = () => heardGateways(api.cache('Gateway').list(), () => 'gone')
  const writer = new MirrorWriter({ ...parts, own: tokyo.id })
  const stop = new AbortController()
  const deps = { ...parts, writer, gateways, findings: new SharedFindings() }
  const running = new DerivedLoop(deps, { own: tokyo.id, removesOrphans: false, loop: AGENT_LOOP }).run(stop.signal)
  await until(t, () => derived(api), ['web-global 80 from web: '], 'its machine does not answer')
  stop.abort()
  await running
})
