/** How the Kubernetes driver follows a kind, with and without failures. */
import t, { type Test } from 'tap'
import type { ObjectCache } from '../../../../kubeapi/cluster-api.ts'
import type { Kind, KubeObject, Service } from '../../../../model/objects.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { service, serviceImport } from '../../../compliance/cluster-api.ts'
import { eventually } from '../../../support/eventually.ts'
import { silentProxy } from '../../../support/silent-proxy.ts'
import { type FakeApiServer, fakeApiServer } from '../../../support/fake-api-server.ts'
import { type Opened, drop, openFake, put } from '../kube-site.ts'

const names = (cache: ObjectCache<KubeObject>): string[] => cache.list().map(({ metadata }) => metadata.name)

const lists = (server: FakeApiServer, plural = 'services'): string[] =>
  server.requests.filter((line) => line.includes(`/${plural}`) && line.includes('limit='))

const watches = (server: FakeApiServer, plural = 'services'): string[] =>
  server.requests.filter((line) => line.includes(`/${plural}`) && line.includes('watch=true'))

async function followed(t: Test, server: FakeApiServer, kind: Kind): Promise<Opened> {
  const opened = await openFake(t, server)
  await opened.api.cache(kind).whenSynced(AbortSignal.timeout(5000))
  return opened
}

t.test('a long list comes in pages and is shown when it is complete', async (t) => {
  const server = await fakeApiServer(t)
  for (let i = 0; i < 1201; i += 1) put(server, service(`s${i}`))
  const { api } = await openFake(t, server)
  const cache = api.cache('Service')
  const sizes = new Set<number>()
  server.fault = () => (sizes.add(cache.list().length), undefined)
  await cache.whenSynced(AbortSignal.timeout(5000))
  t.equal(cache.list().length, 1201)
  t.equal(lists(server).length, 3)
  t.same([...sizes], [0], 'nothing before')
})

t.test('a page that fails takes nothing away; the next complete list tells', async (t) => {
  const server = await fakeApiServer(t)
  for (let i = 0; i < 501; i += 1) put(server, service(`s${i}`))
  const { api } = await followed(t, server, 'Service')
  const cache = api.cache('Service')
  drop(server, 'Service', 's0', 'shop')
  await eventually(() => cache.list().length === 500)
  put(server, service('x1'))
  await eventually(() => cache.list().length === 501)
  const sizes = new Set<number>()
  cache.onChange(() => sizes.add(cache.list().length))
  server.fault = ({ query }) => (query.has('continue') ? { status: 422 } : undefined)
  const before = lists(server).length
  server.cut()
  await eventually(() => lists(server).length >= before + 2)
  t.same([...sizes], [])
  drop(server, 'Service', 's1', 'shop')
  server.fault = undefined
  await eventually(() => cache.list().length === 500)
  t.notOk(cache.get('s1', 'shop'))
})

t.test('an empty list is believed when it is complete', async (t) => {
  const server = await fakeApiServer(t)
  put(server, service('web'))
  const { api } = await followed(t, server, 'Service')
  server.fault = () => 'cut'
  server.cut()
  drop(server, 'Service', 'web', 'shop')
  server.fault = ({ query }) => (query.has('limit') ? { status: 200, body: { kind: 'List' } } : undefined)
  await eventually(() => lists(server).length >= 3)
  t.same(names(api.cache('Service')), ['web'], 'an answer without items is no list')
  server.fault = undefined
  await eventually(() => api.cache('Service').list().length === 0)
})

t.test('a server that is away costs time and nothing else', async (t) => {
  const server = await fakeApiServer(t)
  put(server, service('stays'))
  put(server, service('goes'))
  const { api, logger } = await followed(t, server, 'Service')
  const cache = api.cache('Service')
  const reported: string[] = []
  cache.onChange((change) => reported.push(`${change?.type ?? ''} ${change?.object.metadata.name ?? ''}`))
  server.fault = () => 'cut'
  server.cut()
  drop(server, 'Service', 'goes', 'shop')
  put(server, service('new'))
  await eventually(() => lists(server).length >= 3)
  t.same(names(cache), ['goes', 'stays'])
  server.fault = undefined
  await eventually(() => cache.get('new', 'shop'))
  await eventually(() => reported.length === 2)
  t.same(reported, ['set new', 'removed goes'], 'only what differs, additions first')
  t.equal(logger.messages('warn').length, new Set(logger.messages('warn')).size, 'each trouble is told once')
  await eventually(() => logger.messages('info').includes('watching Service objects again'))
})

t.test('too old a version: another list, and no warning', async (t) => {
  const server = await fakeApiServer(t)
  const { api, logger } = await followed(t, server, 'Service')
  await eventually(() => server.watching('services') === 1)
  server.objects.compacted = 1_000_000
  put(server, service('web'))
  await eventually(() => api.cache('Service').get('web', 'shop'))
  server.endWatches()
  await eventually(() => lists(server).length >= 2)
  server.objects.compacted = 0
  await eventually(() => server.watching('services') === 1, { deadlineMs: 15_000 })
  t.same(
    logger.messages('warn').filter((line) => /410|too old/.test(line)),
    [],
  )
})

t.test('bookmarks move the version on: a watch that ends in good order goes on from there', async (t) => {
  const server = await fakeApiServer(t)
  const clock = new FakeClock()
  const { api } = await openFake(t, server, { clock })
  await api.cache('Service').whenSynced(AbortSignal.timeout(5000))
  await eventually(() => server.watching('services') === 1)
  server.objects.version += 500
  server.bookmark('services')
  await clock.advance(2000)
  const first = watches(server).length
  server.endWatches()
  await eventually(() => watches(server).length > first && server.watching('services') === 1)
  t.match(watches(server).at(-1), new RegExp(`resourceVersion=${server.objects.version}&`))
  t.equal(lists(server).length, 1, 'no list')
})

for (const { say, line } of [
  { say: 'no JSON', line: '{"type": "ADDED", "obj' },
  { say: 'a version that went back', line: '{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}' },
  { say: 'an error', line: '{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd is away"}}' },
  { say: 'no object', line: '{"type":"ADDED"}' },
]) {
  t.test(`a watch that brings ${say} is answered by a list`, async (t) => {
    const server = await fakeApiServer(t)
    put(server, service('web'))
    const { api } = await followed(t, server, 'Service')
    await eventually(() => server.watching('services') === 1)
    server.sendLine('services', line)
    await eventually(() => lists(server).length === 2)
    put(server, service('api'))
    await eventually(() => api.cache('Service').get('api', 'shop'))
  })
}

t.test('a kind that nobody installed: not synced, told once, found when it comes', async (t) => {
  const server = await fakeApiServer(t)
  server.missing.add('multicluster.x-k8s.io/v1beta1/serviceexports')
  const { api, logger } = await openFake(t, server)
  const cache = api.cache('ServiceExport')
  await eventually(() => lists(server, 'serviceexports').length >= 2)
  t.equal(cache.synced, false)
  await eventually(() => cache.isUnserved === true, { say: 'the list of kinds lacks it' })
  t.same(logger.messages('warn'), [
    'cannot watch ServiceExport objects: the API server does not know multicluster.x-k8s.io/v1beta1 serviceexports ' +
      '(is its CustomResourceDefinition installed?)',
  ])
  server.missing.clear()
  await cache.whenSynced(AbortSignal.timeout(10_000))
  t.equal(cache.isUnserved, false)
})

t.test('a 404 of a proxy does not make a kind unknown', async (t) => {
  const server = await fakeApiServer(t)
  server.fault = ({ path }) => (path.includes('services') ? { status: 404, body: '404 page not found' } : undefined)
  const { api } = await openFake(t, server)
  const cache = api.cache('Service')
  await eventually(() => lists(server).length >= 2)
  t.same([cache.synced, cache.isUnserved], [false, false])
})

t.test('a kind that we may not read is unknown only if the list of kinds lacks it', async (t) => {
  const server = await fakeApiServer(t)
  const body = { kind: 'Status', reason: 'Forbidden', message: 'no right' }
  server.fault = ({ path }) => (/service(exports|imports)/.test(path) ? { status: 403, body } : undefined)
  server.missing.add('multicluster.x-k8s.io/v1beta1/serviceexports')
  const { api } = await openFake(t, server)
  const [missing, present] = [api.cache('ServiceExport'), api.cache('ServiceImport')]
  await eventually(() => missing.isUnserved === true, {
    say: 'no role names it, as after an upgrade of the image alone',
  })
  server.missing.clear()
  await eventually(() => missing.isUnserved === false, { say: 'the kind comes without the right to read it' })
  t.ok(lists(server, 'serviceimports').length >= 2)
  for (const { synced, isUnserved } of [missing, present]) t.same([synced, isUnserved], [false, false], 'unread')
})

t.test('a kind that we may not read says so, with what the server said', async (t) => {
  const server = await fakeApiServer(t)
  const message = 'services is forbidden: User "u" cannot list resource "services" at the cluster scope'
  server.fault = () => ({ status: 403, body: { kind: 'Status', reason: 'Forbidden', message } })
  const { api, logger } = await openFake(t, server)
  api.cache('Service')
  await eventually(() => logger.messages('warn').length > 0)
  t.equal(
    logger.messages('warn')[0],
    `cannot watch Service objects: list services: the API server says: ${message} (403 Forbidden)`,
  )
})

t.test('an answer larger than memory should take is asked for in smaller pages', async (t) => {
  const server = await fakeApiServer(t)
  put(server, service('web'))
  server.fault = ({ query }) =>
    Number(query.get('limit') ?? 0) > 100 ? { status: 200, body: 'x'.repeat(17 << 20) } : undefined
  const { api } = await openFake(t, server)
  await api.cache('Service').whenSynced(AbortSignal.timeout(20_000))
  const sizes = lists(server).map((line) => /limit=(\d+)/.exec(line)?.[1])
  t.same(sizes, ['500', '250', '125', '62'], 'a page that is too large is not asked for again')
})

t.test('everything goes over one connection', async (t) => {
  const server = await fakeApiServer(t)
  const { api } = await openFake(t, server)
  const kinds = ['Namespace', 'Node', 'Pod', 'Service', 'EndpointSlice', 'ServiceExport', 'ServiceImport'] as const
  await Promise.all(kinds.map((kind) => api.cache(kind).whenSynced(AbortSignal.timeout(5000))))
  await Promise.all(kinds.map((_kind, i) => api.apply(serviceImport(`s${i}`))))
  t.equal(server.connections, 1)
})

t.test('a peer that goes silent is noticed within 30 s', async (t) => {
  for (const { speak, withinMs } of [
    { speak: 'h2', withinMs: 20_000 },
    { speak: 'http1', withinMs: 28_000 },
  ] as const) {
    const server = await fakeApiServer(t, { speak })
    const proxy = await silentProxy(t, { host: '127.0.0.1', port: Number(new URL(server.url).port) })
    const kubeconfig = server.kubeconfigAt(`https://127.0.0.1:${proxy.port}`)
    const clock = new FakeClock()
    const { api } = await openFake(t, server, { clock, kubeconfig })
    const cache = api.cache('Service')
    await cache.whenSynced(AbortSignal.timeout(5000))
    await eventually(() => server.watching('services') === 1)
    proxy.silence()
    put(server, service('unheard'))
    // The clock moves in steps, because a request needs real time until its answer arrives.
    for (let ms = 0; ms < withinMs; ms += 1000) await clock.advance(1000)
    await eventually(async () => {
      await clock.advance(100)
      return cache.get('unheard', 'shop')
    })
    t.pass(`${speak}: within ${withinMs} ms and a rest`)
  }
})

t.test('a server that refuses a watch and stalls in the reason', async (t) => {
  for (const speak of ['h2', 'http1'] as const) {
    const server = await fakeApiServer(t, { speak })
    server.fault = ({ query }) => (query.has('watch') ? 'stall' : undefined)
    const clock = new FakeClock()
    const { api, logger } = await openFake(t, server, { clock })
    await api.cache('Service').whenSynced(AbortSignal.timeout(5000))
    await eventually(() => watches(server).length === 1)
    const before = clock.monotonic()
    const given = (): boolean => logger.messages('warn').some((line) => line.includes('did not answer within 10 s'))
    await eventually(async () => (await clock.advance(500), given()))
    t.ok(clock.monotonic() - before < 20_000, `${speak}: given up as soon as any other request`)
    server.fault = undefined
    put(server, service('web'))
    await eventually(async () => (await clock.advance(500), api.cache('Service').get('web', 'shop')))
  }
})

t.test('late events neither bring back what we removed nor undo what we wrote', async (t) => {
  const server = await fakeApiServer(t)
  const { api } = await followed(t, server, 'ServiceImport')
  const cache = api.cache('ServiceImport')
  await eventually(() => server.watching('serviceimports') === 1)
  server.muted = true
  const place = server.place('ServiceImport', 'web', 'shop')
  const late: string[] = []
  const write = async (port: number): Promise<void> => {
    await api.apply(serviceImport('web', port))
    late.push(JSON.stringify({ type: late.length === 0 ? 'ADDED' : 'MODIFIED', object: server.objects.get(place) }))
  }
  const seen: string[] = []
  cache.onChange((change) => seen.push(`${change?.type ?? ''} ${change?.object.spec.ports[0]?.port ?? 0}`))
  await write(1)
  await write(2)
  for (const line of late) server.sendLine('serviceimports', line)
  await write(3)
  await api.remove('ServiceImport', 'web', 'shop')
  server.sendLine('serviceimports', late[2] ?? '')
  server.muted = false
  put(server, { ...serviceImport('other'), metadata: { name: 'other', namespace: 'shop' } })
  await eventually(() => cache.get('other', 'shop'))
  t.same(seen, ['set 1', 'set 2', 'set 3', 'removed 3', 'set 80'])
})

t.test('objects are kept slim', async (t) => {
  const server = await fakeApiServer(t)
  const big = 'x'.repeat(1000)
  const users = { selector: { app: 'web' }, externalIPs: ['192.0.2.1'], ipFamilyPolicy: 'SingleStack' } as const
  const object = {
    ...service('web'),
    metadata: { name: 'web', namespace: 'shop', labels: { app: 'web' } },
    spec: { ...service('web').spec, ...users, externalName: big, loadBalancerClass: big },
  }
  put(server, object)
  const { api } = await followed(t, server, 'Service')
  const kept = api.cache('Service').get('web', 'shop')
  t.notMatch(JSON.stringify(kept), /xxx|managedFields|resourceVersion/)
  t.match(kept, {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { labels: { app: 'web' } },
    spec: { ports: [{ port: 80 }], ...users },
  })
})

t.test('of the hints of an endpoint the zones are kept, and which pod it is', async (t) => {
  const server = await fakeApiServer(t)
  const forZones = [{ name: 'a' }]
  const pod = { kind: 'Pod', name: 'web-1', uid: 'u' }
  const endpoints = [
    { addresses: ['10.42.0.5'], zone: 'b', hints: { forZones, forNodes: [{ name: 'n' }] } },
    { addresses: ['10.42.0.6'], hints: { forNodes: [{ name: 'n' }] }, targetRef: { ...pod, namespace: 'shop' } },
    { addresses: ['10.42.0.7'], targetRef: pod },
  ]
  put(server, {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: 'web-1', namespace: 'shop' },
    addressType: 'IPv4',
    endpoints,
  })
  const { api } = await followed(t, server, 'EndpointSlice')
  t.strictSame(api.cache('EndpointSlice').get('web-1', 'shop')?.endpoints, [
    { addresses: ['10.42.0.5'], zone: 'b', hints: { forZones } },
    { addresses: ['10.42.0.6'], hints: {}, targetRef: pod },
    { addresses: ['10.42.0.7'], targetRef: pod },
  ])
})

t.test('a change of nothing that is kept is no change', async (t) => {
  const server = await fakeApiServer(t)
  put(server, service('web'))
  const { api } = await followed(t, server, 'Service')
  let changes = 0
  api.cache('Service').onChange(() => (changes += 1))
  put(server, { ...service('web'), spec: { ...service('web').spec, loadBalancerClass: 'y' } } as Service)
  put(server, service('api'))
  await eventually(() => api.cache('Service').get('api', 'shop'))
  t.equal(changes, 2, 'the generation of a fake Service, and the other Service')
})

t.test('selectors go along with list and watch', async (t) => {
  const server = await fakeApiServer(t)
  const selectors = { Service: { labelSelector: 'a=b,!c', fieldSelector: 'metadata.name!=x', namespace: 'shop' } }
  const { api } = await openFake(t, server, { selectors })
  await api.cache('Service').whenSynced(AbortSignal.timeout(5000))
  await eventually(() => watches(server).length === 1)
  for (const line of [lists(server)[0], watches(server)[0]]) {
    t.match(line, '/api/v1/namespaces/shop/services?labelSelector=a%3Db%2C!c&fieldSelector=metadata.name!%3Dx&')
  }
})

t.test('close ends everything', async (t) => {
  const server = await fakeApiServer(t)
  const { api } = await followed(t, server, 'Service')
  await eventually(() => server.watching('services') === 1)
  await api.close()
  await eventually(() => server.connections === 0 && server.watching('services') === 0)
})
