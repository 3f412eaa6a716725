import t from 'tap'
import { agentMetrics } from '../../../agent/loop/metrics.ts'
import { MirrorWriter } from '../../../agent/loop/mirror-writer.ts'
import { type Cluster, type KubeObject, type ServiceImport, objectKeyText } from '../../../model/objects.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../../support/eventually.ts'
import { importObject, namespaceObject } from '../../support/objects/service-objects.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'
import { slice } from '../site.ts'

const NEVER = new AbortController().signal

function imported(name: string, port = 80): ServiceImport {
  const ports = [{ protocol: 'TCP' as const, port }]
  return importObject({ name }, { ports })
}

function keyed(...objects: KubeObject[]): Map<string, KubeObject> {
  return new Map(objects.map((object) => [objectKeyText(object), object]))
}

async function setup(): Promise<{
  api: MemoryApi
  writer: MirrorWriter
  logger: CapturingLogger
  log: () => string[]
  clock: FakeClock
}> {
  const api = new MemoryApi()
  const clock = new FakeClock()
  const logger = new CapturingLogger()
  const metrics = agentMetrics(createMetrics('agent'))
  const writer = new MirrorWriter({ api: api, clock, logger, metrics, own: 'milano' })
  for (const kind of ['ServiceImport', 'EndpointSlice', 'Cluster'] as const) {
    const cache = api.cache(kind)
    await eventually(() => cache.synced)
  }
  const log = (): string[] => api.writes.splice(0).map(({ verb, kind, name }) => `${verb} ${kind} ${name}`)
  return { api, writer, logger, log, clock }
}

t.test('writes only what differs, endpoints first', async (t) => {
  const { api, writer, log } = await setup()
  t.same(await writer.apply(keyed(imported('a'), slice('shop', 'b', '')), NEVER), [])
  t.same(log(), ['apply EndpointSlice b-1', 'apply ServiceImport a'])
  await writer.apply(keyed(imported('a'), slice('shop', 'b', '')), NEVER)
  t.same(log(), [], 'equal objects')
  await writer.apply(keyed(imported('a', 81), slice('shop', 'b', '')), NEVER)
  t.same(log(), ['apply ServiceImport a'])
  await api.apply({ ...imported('a', 81), metadata: { name: 'a', namespace: 'shop', labels: { edited: 'yes' } } })
  log()
  await writer.apply(keyed(imported('a', 81)), NEVER)
  t.same(log(), ['apply ServiceImport a'], 'an edit is undone')
  const asked = { ...imported('a', 81).metadata, annotations: { 'sealane.io/derived-service': 'a-clusterset' } }
  await api.apply({ ...imported('a', 81), metadata: asked })
  log()
  await writer.apply(keyed(imported('a', 81)), NEVER)
  t.same(log(), [], 'what a user asks for stays')
})

t.test('addresses are given up before another cluster gets them', async (t) => {
  const { writer, log } = await setup()
  const of = (id: string, index: number, ...podCIDRs: string[]): Cluster => clusterObject({ id, index, podCIDRs })
  const six = 'fd00:42::/48'
  await writer.apply(keyed(of('alpha', 1, '10.1.0.0/16'), of('zeta', 2, '10.2.0.0/16', six)), NEVER)
  log()
  const next = keyed(of('alpha', 1, '10.1.0.0/16', six), of('zeta', 2, '10.2.0.0/16'), slice('shop', 'b', ''))
  await writer.apply(next, NEVER)
  t.same(log(), ['apply EndpointSlice b-1', 'apply Cluster zeta', 'apply Cluster alpha'])
  await writer.apply(keyed(of('alpha', 1, '10.1.0.0/16'), of('zeta', 2, '10.2.0.0/16', six)), NEVER)
  t.same(log(), ['apply Cluster alpha', 'apply Cluster zeta'])
})

t.test('the own Cluster is marked when all others are there', async (t) => {
  const { api, writer, log } = await setup()
  const metadata = { labels: { 'app.kubernetes.io/managed-by': 'sealane' } }
  const of = (id: string, index: number): Cluster =>
    clusterObject({ id, index, podCIDRs: [`10.${index}.0.0/16`] }, { metadata })
  const all = keyed(of('milano', 1), of('paris', 2), of('tokyo', 3), of('zagreb', 4))
  const apply = api.apply.bind(api)
  api.apply = (object, signal) =>
    object.metadata.name === 'tokyo'
      ? Promise.reject(new ClusterApiError('Unavailable', 'not served yet'))
      : apply(object, signal)
  t.equal((await writer.apply(all, NEVER)).length, 1)
  t.same(log(), ['apply Cluster paris', 'apply Cluster zagreb'], 'one is late: the own one waits')
  api.apply = (object, signal) =>
    object.metadata.name === 'tokyo' ? Promise.reject(new ClusterApiError('Invalid', 'absurd')) : apply(object, signal)
  t.same(await writer.apply(all, NEVER), [])
  t.same(log(), ['apply Cluster milano'], 'one that is refused holds nothing up')
  api.apply = apply
  await api.remove('Cluster', 'milano')
  writer.forget(of('milano', 1))
  const read = api.read.bind(api)
  api.read = (kind, name, ...more) => (name === 'paris' ? Promise.resolve(undefined) : read(kind, name, ...more))
  log()
  t.same(await writer.apply(all, NEVER), [])
  t.same(log(), [], 'the cache shows one that is gone: the own one waits')
  api.read = () => Promise.reject(new ClusterApiError('Unavailable', 'no answer'))
  t.match(await writer.apply(all, NEVER), [{ message: 'no answer' }], 'and where nobody knows')
  t.same(log(), [])
  api.read = read
  t.same(await writer.apply(all, NEVER), [])
  t.same(log(), ['apply Cluster milano'])
  await writer.apply(keyed(of('milano', 9), of('paris', 8)), NEVER)
  t.same(log(), ['apply Cluster milano', 'apply Cluster paris'], 'once it is there, in the common order')
})

t.test("what is the user's own is told once; the rest is written", async (t) => {
  const { api, writer, logger, log } = await setup()
  api.put(imported('mine', 99))
  for (let i = 0; i < 3; i++) t.same(await writer.apply(keyed(imported('mine'), imported('other')), NEVER), [])
  t.same(log(), ['apply ServiceImport other'])
  t.same(
    logger.lines.map(({ level, fields }) => [level, fields['object'], fields['why']]),
    [['warn', 'ServiceImport/shop/mine', "ServiceImport shop/mine is the user's own and is not overwritten"]],
  )
})

t.test('what may pass is given back, after everything was tried', async (t) => {
  const { api, writer, logger } = await setup()
  api.failure = new ClusterApiError('Unavailable', 'disk full')
  const failures = await writer.apply(keyed(imported('a'), imported('b')), NEVER)
  t.same(
    failures.map(({ message }) => message),
    ['disk full', 'disk full'],
  )
  t.same(logger.lines, [], 'the loop tells it')
  api.failure = undefined
  t.same(await writer.apply(keyed(imported('a'), imported('b')), NEVER), [])
  t.equal(api.cache('ServiceImport').list().length, 2)
})

t.test('what the API refuses is not offered in every round, but again when something has changed', async (t) => {
  const { api, writer, clock } = await setup()
  let attempts = 0
  api.apply = () => {
    attempts += 1
    return Promise.reject(new ClusterApiError('Invalid', 'spec.ports: too many'))
  }
  const round = async (port = 80): Promise<number> => {
    t.same(await writer.apply(keyed(imported('a', port)), NEVER), [], 'nothing to try again soon')
    return attempts
  }
  t.equal(await round(), 1)
  t.ok(writer.isRefused(imported('a')))
  t.equal(await round(), 1, 'not again')
  t.equal(await round(81), 2, 'another content')
  t.equal(await round(81), 2)
  api.put(namespaceObject('shop'))
  const cache = api.cache('Namespace')
  await eventually(() => cache.get('shop') !== undefined)
  t.equal(await round(81), 3, 'the namespace is another one')
  await clock.advance(30_000)
  t.equal(await round(81), 4, 'now and then')
})

t.test('while the cache lags behind nothing is written twice; what vanishes is written again', async (t) => {
  const { api, writer, clock } = await setup()
  let writes = 0
  api.apply = () => {
    writes += 1
    return Promise.resolve()
  }
  const round = async (): Promise<number> => {
    await writer.apply(keyed(imported('a')), NEVER)
    return writes
  }
  t.equal(await round(), 1)
  t.equal(await round(), 1, 'the cache will show it')
  writer.forget(imported('a'))
  t.equal(await round(), 2, 'it was removed meanwhile')
  await clock.advance(30_000)
  t.equal(await round(), 3, 'it never came to be seen')
})

t.test('selectors that the API drops are written once; where it keeps them, they are missed', async (t) => {
  const { api, writer, log, clock } = await setup()
  const clusterSelectors = [{ propertySelector: { matchProperties: { 'zone.sealane.io': 'a' } } }]
  const selecting = (name: string): ServiceImport => importObject({ name }, { clusterSelectors })
  const apply = api.apply.bind(api)
  const pruned = (object: KubeObject): Promise<void> => apply(importObject({ name: object.metadata.name }))
  api.apply = pruned
  await writer.apply(keyed(selecting('a')), NEVER)
  t.same(log(), ['apply ServiceImport a'])
  for (let i = 0; i < 3; i += 1) {
    await clock.advance(60_000)
    await pruned({ ...selecting('a'), metadata: { name: 'a', namespace: 'shop' } })
    log()
    await writer.apply(keyed(selecting('a')), NEVER)
    t.same(log(), [], 'no write more')
  }
  api.apply = apply
  await writer.apply(keyed(selecting('a'), selecting('b')), NEVER)
  t.same(log(), ['apply ServiceImport b'])
  await writer.apply(keyed(selecting('b')), NEVER)
  await pruned(selecting('b'))
  log()
  await writer.apply(keyed(selecting('a'), selecting('b')), NEVER)
  t.same(log(), ['apply ServiceImport a', 'apply ServiceImport b'], 'this API keeps them')
})

t.test('what comes and goes before the answer to its write arrives is written again', async (t) => {
  const { api, writer } = await setup()
  let writes = 0
  api.apply = () => {
    writes += 1
    if (writes === 1) writer.forget(imported('a'))
    return Promise.resolve()
  }
  for (let i = 0; i < 3; i++) await writer.apply(keyed(imported('a')), NEVER)
  t.equal(writes, 2, 'once more, and no more')
})

t.test('what changes while a write is being refused lifts the refusal', async (t) => {
  const { api, writer } = await setup()
  const cache = api.cache('Namespace')
  let attempts = 0
  api.apply = async () => {
    attempts += 1
    if (attempts > 1) return
    api.put(namespaceObject('shop'))
    await eventually(() => cache.get('shop') !== undefined)
    throw new ClusterApiError('NotFound', 'namespaces "shop" not found')
  }
  for (let i = 0; i < 3; i++) t.same(await writer.apply(keyed(imported('a')), NEVER), [])
  t.equal(attempts, 2, 'the namespace came after the question')
})
