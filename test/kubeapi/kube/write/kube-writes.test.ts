/** How the Kubernetes driver writes: only what differs, only our own fields, and correctly when the server fails. */
import t, { type Test } from 'tap'
import type { ClusterApiError } from '../../../../kubeapi/cluster-api.ts'
import type { KubeApi } from '../../../../kubeapi/kube/kube-api.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { service, serviceExport, serviceImport } from '../../../compliance/cluster-api.ts'
import { eventually } from '../../../support/eventually.ts'
import { TOKEN, type Fault, type FakeApiServer, fakeApiServer } from '../../../support/fake-api-server.ts'
import { drop, openFake, put } from '../kube-site.ts'

const OURS = 'app.kubernetes.io/managed-by'

const writes = (server: FakeApiServer): string[] => server.requests.filter((line) => !line.startsWith('GET'))

const patches = (server: FakeApiServer): number => server.requests.filter((line) => line.startsWith('PATCH')).length

const stored = (server: FakeApiServer, name = 'web') => server.objects.get(server.place('ServiceImport', name, 'shop'))

async function synced(t: Test, server: FakeApiServer): Promise<KubeApi> {
  const { api } = await openFake(t, server)
  await api.cache('ServiceImport').whenSynced(AbortSignal.timeout(5000))
  return api
}

t.test('nothing is sent when nothing differs, also after a restart', async (t) => {
  const server = await fakeApiServer(t)
  const first = await synced(t, server)
  await first.apply(serviceImport('web'))
  await first.apply(serviceImport('web'))
  t.equal(patches(server), 1)
  await first.close()
  const second = await synced(t, server)
  await second.apply(serviceImport('web'))
  t.equal(patches(server), 1)
})

t.test('what we no longer want goes, also after a restart; what others added stays', async (t) => {
  const server = await fakeApiServer(t)
  const first = await synced(t, server)
  await first.apply(serviceImport('web'))
  await first.close()
  server.objects.apply(
    server.place('ServiceImport', 'web', 'shop'),
    { metadata: { name: 'web', labels: { theirs: 'x' } } },
    { manager: 'argo', force: false, status: false },
  )
  const second = await synced(t, server)
  await second.apply({ ...serviceImport('web'), metadata: { name: 'web', namespace: 'shop' } })
  t.same(stored(server)?.metadata.labels, { theirs: 'x', [OURS]: 'sealane' })
  await second.apply({ ...serviceImport('web'), metadata: { name: 'web', namespace: 'shop' } })
  t.equal(patches(server), 2)
})

t.test('what someone changes or removes of ours is put right; it stays ours without its label', async (t) => {
  const server = await fakeApiServer(t)
  const api = await synced(t, server)
  await api.apply(serviceImport('web'))
  const uid = stored(server)?.metadata.uid
  put(server, serviceImport('web', 8080))
  await eventually(() => api.cache('ServiceImport').get('web', 'shop')?.spec.ports[0]?.port === 8080)
  t.equal(api.cache('ServiceImport').get('web', 'shop')?.metadata.labels?.[OURS], undefined)
  await api.apply(serviceImport('web'))
  t.match(stored(server), { metadata: { uid, labels: { [OURS]: 'sealane' } }, spec: { ports: [{ port: 80 }] } })
  drop(server, 'ServiceImport', 'web', 'shop')
  await eventually(() => api.cache('ServiceImport').get('web', 'shop') === undefined)
  await api.apply(serviceImport('web'))
  t.ok(stored(server), 'made anew')
})

t.test("a user's object that we have not heard of yet is left as it was", async (t) => {
  const server = await fakeApiServer(t)
  const api = await synced(t, server)
  // The watch delivers nothing, so the cache cannot know the change.
  server.fault = ({ path, query }) =>
    query.has('watch') || (query.has('limit') && path.endsWith('serviceimports')) ? { status: 503 } : undefined
  server.endWatches()
  await eventually(() => server.watching('serviceimports') === 0)
  put(server, serviceImport('differs', 9))
  put(server, { ...serviceImport('other'), spec: {} } as never)
  const before = JSON.stringify([stored(server, 'differs')?.['spec'], stored(server, 'other')?.['spec']])
  for (const name of ['differs', 'other']) {
    await t.rejects(api.apply(serviceImport(name)), {
      code: 'Forbidden',
      message: `ServiceImport shop/${name} is the user's own and is not overwritten`,
    })
  }
  t.equal(JSON.stringify([stored(server, 'differs')?.['spec'], stored(server, 'other')?.['spec']]), before)
})

t.test('remove takes only the object that we know, and waits for nobody', async (t) => {
  const server = await fakeApiServer(t)
  const api = await synced(t, server)
  await api.apply(serviceImport('web'))
  server.fault = ({ query }) => (query.has('watch') || query.has('limit') ? { status: 503 } : undefined)
  server.endWatches()
  await eventually(() => server.watching('serviceimports') === 0)
  drop(server, 'ServiceImport', 'web', 'shop')
  put(server, { ...serviceImport('web'), metadata: { name: 'web', namespace: 'shop' } })
  await t.rejects(api.remove('ServiceImport', 'web', 'shop'), { code: 'Forbidden' })
  t.ok(stored(server))
  server.fault = undefined
  await eventually(() => server.watching('serviceimports') === 1, { deadlineMs: 15_000 })
  await api.apply(serviceImport('held'))
  const held = server.place('ServiceImport', 'held', 'shop')
  server.objects.put(held, {
    ...serviceImport('held'),
    metadata: { finalizers: ['x/y'], labels: { [OURS]: 'sealane' } },
  })
  await eventually(() => api.cache('ServiceImport').get('held', 'shop')?.metadata.labels?.['a'] === undefined)
  await api.remove('ServiceImport', 'held', 'shop')
  t.ok(api.cache('ServiceImport').get('held', 'shop')?.metadata.deletionTimestamp, 'still there, and going')
})

t.test('a status is written once, and not on an object that was made anew', async (t) => {
  const server = await fakeApiServer(t)
  put(server, serviceExport('web'))
  const { api } = await openFake(t, server)
  await api.cache('ServiceExport').whenSynced(AbortSignal.timeout(5000))
  const seen = api.cache('ServiceExport').get('web', 'shop')!
  const condition = {
    type: 'Valid',
    status: 'True',
    reason: 'Valid',
    message: '',
    lastTransitionTime: '2026-01-01T00:00:00Z',
  } as const
  const wanted = { ...seen, status: { conditions: [condition] } }
  await api.applyStatus(wanted)
  await api.applyStatus(wanted)
  t.equal(patches(server), 1)
  drop(server, 'ServiceExport', 'web', 'shop')
  put(server, serviceExport('web'))
  await eventually(() => api.cache('ServiceExport').get('web', 'shop')?.metadata.uid !== seen.metadata.uid)
  await t.rejects(api.applyStatus(wanted), { code: 'Conflict' })
})

/** Gives this answer to the first `count` requests that are not reads. */
function first(count: number, answer: Exclude<ReturnType<Fault>, undefined>): Fault {
  let left = count
  return ({ method }) => (method !== 'GET' && left-- > 0 ? answer : undefined)
}

const status = (code: number, reason: string, message: string, details?: object) => ({
  status: code,
  body: { kind: 'Status', status: 'Failure', code, reason, message, details },
})

t.test('what passes is tried again', async (t) => {
  const server = await fakeApiServer(t)
  const api = await synced(t, server)
  const rows: {
    readonly say: string
    readonly fault: Exclude<ReturnType<Fault>, undefined>
    readonly tries: number
  }[] = [
    {
      say: 'too many requests',
      fault: { ...status(429, 'TooManyRequests', 'slow'), headers: { 'retry-after': '0' } },
      tries: 3,
    },
    { say: 'server error', fault: status(500, 'InternalError', 'etcdserver: leader changed'), tries: 2 },
    { say: 'a proxy without a server', fault: { status: 503, body: '<html>no upstream</html>' }, tries: 2 },
    { say: 'a cut connection', fault: 'cut', tries: 2 },
  ]
  for (const [i, { say, fault, tries }] of rows.entries()) {
    const before = writes(server).length
    server.fault = first(tries - 1, fault)
    await api.apply(serviceImport(`s${i}`))
    t.equal(writes(server).length - before, tries, say)
  }
})

t.test('what does not pass is told: what was asked, and what the server said', async (t) => {
  const server = await fakeApiServer(t)
  const api = await synced(t, server)
  const ending = { causes: [{ reason: 'NamespaceTerminating', message: 'namespace shop is being terminated' }] }
  const rows = [
    {
      answer: status(403, 'Forbidden', 'create not allowed while custom resource definition is terminating'),
      code: 'Unavailable',
      said: 'the API server says: create not allowed while custom resource definition is terminating (403 Forbidden)',
    },
    {
      answer: status(422, 'Invalid', 'no params found for policy binding with `Deny` parameterNotFoundAction'),
      code: 'Unavailable',
      said: 'the API server says: no params found for policy binding with `Deny` parameterNotFoundAction (422 Invalid)',
    },
    { answer: status(403, 'Forbidden', 'no'), code: 'Forbidden', said: 'the API server says: no (403 Forbidden)' },
    {
      answer: status(403, 'Forbidden', 'it is ending', ending),
      code: 'Conflict',
      said: 'the API server says: it is ending (403 Forbidden)',
    },
    {
      answer: status(422, 'Invalid', 'spec.type: bad'),
      code: 'Invalid',
      said: 'the API server says: spec.type: bad (422 Invalid)',
    },
    {
      answer: status(404, 'NotFound', 'namespaces "shop" not found'),
      code: 'NotFound',
      said: 'the API server says: namespaces "shop" not found (404 NotFound)',
    },
    { answer: { status: 413, body: '' }, code: 'Invalid', said: 'the API server says: nothing more (413)' },
    {
      answer: { status: 502, body: '<html>\n bad\n gateway' },
      code: 'Unavailable',
      said: 'the API server says: <html> bad gateway (502)',
    },
  ] as const
  for (const { answer, code, said } of rows) {
    server.fault = first(100, answer)
    await t.rejects(api.apply(serviceImport('web')), { code, message: `apply ServiceImport shop/web: ${said}` })
  }
  server.fault = undefined
  await api.apply(serviceImport('web'))
})

t.test('where the cache shows only some objects, the server is asked about the others', async (t) => {
  const server = await fakeApiServer(t)
  put(server, service('web'))
  const selectors = { Service: { namespace: 'aaa' }, ServiceImport: { namespace: 'shop' } }
  const { api } = await openFake(t, server, { selectors })
  await t.rejects(api.apply(service('web', 81)), { code: 'Forbidden' })
  await t.rejects(api.remove('Service', 'web', 'shop'), { code: 'Forbidden' })
  await api.apply(service('ours'))
  await api.apply(service('ours'))
  t.equal(patches(server), 1)
  t.same(api.cache('Service').list(), [], 'passed by')
  await api.remove('Service', 'ours', 'shop')
  t.notOk(server.objects.get(server.place('Service', 'ours', 'shop')))
  await api.apply(serviceImport('web'))
  t.ok(api.cache('ServiceImport').get('web', 'shop'), 'shown at once')
  t.notOk(
    server.requests.some((line) => line.startsWith('GET') && line.endsWith('/serviceimports/web')),
    'and not asked for',
  )
})

t.test('a server that does not answer', async (t) => {
  const server = await fakeApiServer(t)
  const clock = new FakeClock()
  const { api } = await openFake(t, server, { clock })
  await api.cache('ServiceImport').whenSynced(AbortSignal.timeout(5000))
  server.fault = ({ method }) => (method === 'GET' ? undefined : 'hang')
  let failure: ClusterApiError | undefined
  void api.apply(serviceImport('web')).catch((error: unknown) => (failure = error as ClusterApiError))
  await eventually(async () => (await clock.advance(500), failure !== undefined))
  t.equal(failure?.code, 'Unavailable')
  t.equal(failure?.message, `apply ServiceImport shop/web: the API server at ${server.url} did not answer within 10 s`)
  const aborted = new AbortController()
  const waiting = api.apply(serviceImport('web'), aborted.signal)
  aborted.abort(new Error('enough'))
  await t.rejects(waiting, { message: 'enough' })
})

t.test('a write before the kind could be read says why', async (t) => {
  const server = await fakeApiServer(t)
  server.missing.add('multicluster.x-k8s.io/v1beta1/serviceimports')
  const clock = new FakeClock()
  const { api, logger } = await openFake(t, server, { clock })
  let failure: ClusterApiError | undefined
  void api.apply(serviceImport('web')).catch((error: unknown) => (failure = error as ClusterApiError))
  await eventually(() => logger.messages('warn').length === 1)
  await eventually(async () => (await clock.advance(500), failure !== undefined))
  t.equal(failure?.code, 'Unavailable')
  t.match(failure?.message, /^ServiceImport shop\/web: ServiceImport objects cannot be read yet: .* installed\?\)$/)
})

t.test('a token that is refused is read again, once', async (t) => {
  const server = await fakeApiServer(t)
  const api = await synced(t, server)
  server.fault = first(1, status(401, 'Unauthorized', 'Unauthorized'))
  await api.apply(serviceImport('web'))
  server.tokens.add(`not ${TOKEN}`)
  server.fault = undefined
  await t.rejects(api.apply(serviceImport('web', 81)), { code: 'Unauthorized' })
})

t.test('no more than 16 requests at once', async (t) => {
  const server = await fakeApiServer(t)
  const api = await synced(t, server)
  const other = await synced(t, server)
  server.fault = ({ method }) => (method === 'PATCH' ? 'hang' : undefined)
  const stop = new AbortController()
  const all = Array.from({ length: 40 }, (_one, i) => api.apply(serviceImport(`s${i}`), stop.signal))
  const settled = Promise.allSettled(all)
  await eventually(() => patches(server) === 16)
  // Another client's request and answer take long enough for a seventeenth write to arrive.
  await other.secrets.read('any')
  t.equal(patches(server), 16, 'the others wait')
  stop.abort(new Error('enough'))
  await settled
  server.fault = undefined
  await api.apply(serviceImport('web'))
  t.ok(stored(server), 'their places are free again')
})

t.test('a server that is not there', async (t) => {
  const server = await fakeApiServer(t)
  const api = await synced(t, server)
  const { api: lost } = await openFake(t, server, { kubeconfig: server.kubeconfigAt('https://127.0.0.1:1') })
  await t.rejects(lost.secrets.read('any'), {
    code: 'Unavailable',
    message:
      'get Secret sealane-system/any: the API server at https://127.0.0.1:1 is unreachable: connect ECONNREFUSED 127.0.0.1:1',
  })
  const { api: stranger } = await openFake(t, await fakeApiServer(t), {
    kubeconfig: server.kubeconfigAt((await fakeApiServer(t)).url),
  })
  await t.rejects(
    stranger.secrets.read('any'),
    { code: 'Unavailable', message: /certificate|signature/ },
    'not trusted',
  )
  await api.close()
})

t.test('secrets are read and written, and never shown', async (t) => {
  const server = await fakeApiServer(t)
  const { api, logger } = await openFake(t, server)
  t.equal(await api.secrets.read('sealane-identity'), undefined)
  const data = new Map([
    ['cluster.key', Buffer.from('very secret')],
    ['broker.json', Buffer.from('{}')],
  ])
  await api.secrets.write('sealane-identity', { type: 'sealane.io/identity', data })
  const read = await api.secrets.read('sealane-identity')
  t.equal(read?.type, 'sealane.io/identity')
  t.same([...(read?.data ?? [])].map(([key, bytes]) => [key, Buffer.from(bytes).toString()]).sort(), [
    ['broker.json', '{}'],
    ['cluster.key', 'very secret'],
  ])
  await api.secrets.write('sealane-identity', {
    type: 'sealane.io/identity',
    data: new Map([['ca.crt', Buffer.from('x')]]),
  })
  t.same([...((await api.secrets.read('sealane-identity'))?.data.keys() ?? [])], ['ca.crt'], 'replaced')
  server.fault = first(100, status(403, 'Forbidden', 'no'))
  const error = await api.secrets.write('sealane-identity', { type: 'x', data }).catch((error: unknown) => error)
  t.notMatch(`${String(error)} ${JSON.stringify(logger.lines)}`, /very secret|dmVyeSBzZWNyZXQ/)
})

t.test('an event says which object it is about', async (t) => {
  const server = await fakeApiServer(t)
  put(server, serviceExport('web'))
  put(server, service('web'))
  const { api } = await openFake(t, server)
  await api.cache('ServiceExport').whenSynced(AbortSignal.timeout(5000))
  api.report({
    regarding: { kind: 'ServiceExport', name: 'web', namespace: 'shop' },
    type: 'Warning',
    reason: 'Conflict',
    note: 'n',
  })
  api.report({ regarding: { kind: 'Cluster', name: 'milano' }, type: 'Normal', reason: 'Heard', note: 'n' })
  await eventually(() => server.objects.list('events.k8s.io/v1/events', undefined).length === 2)
  const [joined, conflict] = server.objects.list('events.k8s.io/v1/events', undefined)
  const { uid } = server.objects.get(server.place('ServiceExport', 'web', 'shop'))!.metadata
  t.match(conflict, {
    metadata: { namespace: 'shop', name: /^web\.[0-9a-f]+$/ },
    regarding: {
      apiVersion: 'multicluster.x-k8s.io/v1beta1',
      kind: 'ServiceExport',
      namespace: 'shop',
      name: 'web',
      uid,
    },
    action: 'Conflict',
    eventTime: /^\d{4}-.*\.\d{6}Z$/,
  })
  t.match(joined, { metadata: { namespace: 'default' }, regarding: { kind: 'Cluster', name: 'milano' } })
})

t.test('two processes report on one object in the same millisecond', async (t) => {
  const server = await fakeApiServer(t)
  put(server, service('web'))
  for (const seed of [1, 2]) {
    const { api } = await openFake(t, server, { clock: new FakeClock({ seed }) })
    const regarding = { kind: 'Service', name: 'web', namespace: 'shop' } as const
    api.report({ regarding, type: 'Warning', reason: 'Conflict', note: `of process ${seed}` })
  }
  const path = '/apis/events.k8s.io/v1/namespaces/shop/events'
  await eventually(() => server.requests.filter((line) => line.includes(path)).length === 2)
  await eventually(() => server.objects.list('events.k8s.io/v1/events', undefined).length === 2)
})

t.test('an event that is refused says so in plain words', async (t) => {
  const server = await fakeApiServer(t)
  server.fault = ({ path }) => (path.endsWith('/events') ? { status: 403, body: { message: 'no' } } : undefined)
  const { api, logger } = await openFake(t, server)
  api.report({ regarding: { kind: 'Cluster', name: 'milano' }, type: 'Normal', reason: 'Heard', note: 'n' })
  await eventually(() => logger.messages('debug').includes('cannot write an event'))
  const [line] = logger.lines.filter(({ message }) => message === 'cannot write an event')
  t.equal(line?.fields['why'], 'report on Cluster milano: the API server says: no (403)')
})

t.test('a field of a status that the schema lacked is sent again later: the schema may have come', async (t) => {
  const server = await fakeApiServer(t)
  const clock = new FakeClock()
  const { api } = await openFake(t, server, { clock })
  await api.cache('ServiceImport').whenSynced(AbortSignal.timeout(5000))
  await api.apply(serviceImport('web'))
  const message =
    'failed to create typed patch object (shop/web; x/v1, Kind=X): .status.clusters: field not declared in schema'
  let refused = 0
  server.fault = ({ method }) => {
    if (method !== 'PATCH' || refused > 0) return undefined
    refused += 1
    return { status: 500, body: { kind: 'Status', status: 'Failure', message, code: 500 } }
  }
  const object = { ...serviceImport('web'), status: { conditions: [], clusters: [{ cluster: 'oslo' }] } }
  await api.applyStatus(object)
  const before = patches(server)
  await api.applyStatus(object)
  t.equal(patches(server), before, 'not at once')
  await clock.advance(300_000)
  await api.applyStatus(object)
  t.match(stored(server)?.['status'], { clusters: [{ cluster: 'oslo' }] })
  t.equal(patches(server), before + 1)
})

t.test('a field that the schema of an earlier release lacks is left out', async (t) => {
  const server = await fakeApiServer(t)
  const api = await synced(t, server)
  const message =
    'failed to create typed patch object (shop/web; x/v1, Kind=X): .spec.ports: field not declared in schema'
  let refused = 0
  server.fault = ({ method }) => {
    if (method !== 'PATCH' || refused > 0) return undefined
    refused += 1
    return { status: 500, body: { kind: 'Status', status: 'Failure', message, code: 500 } }
  }
  await api.apply(serviceImport('web'))
  t.equal(patches(server), 2)
  t.notOk(Object.hasOwn(stored(server)?.['spec'] as object, 'ports'))
  await api.apply(serviceImport('web'))
  t.equal(patches(server), 2, 'and not written again')
  server.fault = ({ method }) => {
    const body = { kind: 'Status', status: 'Failure', message: message.replace('ports', 'nosuch'), code: 500 }
    return method === 'PATCH' ? { status: 500, body } : undefined
  }
  await t.rejects(api.apply(serviceImport('other')), { code: 'Invalid', message: /\.spec\.nosuch: field not declared/ })
  t.equal(patches(server), 3, 'it is not tried again')
})
