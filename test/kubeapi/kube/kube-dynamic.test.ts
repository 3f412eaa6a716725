/** Access to any object of any kind, for the installer. */
import t from 'tap'
import { fakeApiServer } from '../../support/fake-api-server.ts'
import { openFake } from './kube-site.ts'

const configMap = (name: string, data: Record<string, string>) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace: 'kube-system' },
  data,
})

t.test('apply, get, list, delete, by what the server says it knows', async (t) => {
  const server = await fakeApiServer(t)
  const { api } = await openFake(t, server)
  const { dynamic } = api
  t.match(await dynamic.apply(configMap('coredns', { Corefile: 'a' })), { data: { Corefile: 'a' } })
  const ref = { apiVersion: 'v1', kind: 'ConfigMap', name: 'coredns', namespace: 'kube-system' }
  t.match(await dynamic.get(ref), { metadata: { uid: /./ } })
  t.equal(await dynamic.get({ ...ref, name: 'none' }), undefined)
  for (let i = 0; i < 600; i += 1)
    server.objects.put({ ...ref, resource: 'v1/configmaps', name: `c${i}` }, configMap(`c${i}`, {}))
  t.equal((await dynamic.list({ apiVersion: 'v1', kind: 'ConfigMap' })).length, 601, 'in pages')
  t.match((await dynamic.list({ apiVersion: 'v1', kind: 'ConfigMap', namespace: 'other' })).length, 0)
  t.equal(await dynamic.delete(ref), true)
  t.equal(await dynamic.delete(ref), false)
  t.equal(server.requests.filter((line) => line === 'GET /api/v1').length, 1, 'discovered once')
})

t.test('for sure: not there is only what the server says of this very object', async (t) => {
  const server = await fakeApiServer(t)
  const { api } = await openFake(t, server)
  const ref = { apiVersion: 'v1', kind: 'Node', name: 'n1' }
  server.objects.put(
    { ...ref, resource: 'v1/nodes', namespace: undefined },
    { apiVersion: 'v1', kind: 'Node', metadata: { name: 'n1' } },
  )
  t.match(await api.dynamic.getForSure(ref), { metadata: { name: 'n1' } })
  t.equal(await api.dynamic.getForSure({ ...ref, name: 'none' }), undefined)
  const status = (change: object): object => ({
    kind: 'Status',
    code: 404,
    reason: 'NotFound',
    message: 'm',
    ...change,
  })
  const rows: [say: string, body: unknown, mark: string][] = [
    ['a proxy', '404 page not found', '404 page not found (404)'],
    ['a proxy with a page of its own', {}, 'nothing more (404)'],
    ['a path that is not served', status({ details: {} }), 'm (404 NotFound)'],
    ['another kind', status({ details: { name: 'n1', kind: 'pods' } }), 'm (404 NotFound)'],
    ['another reason', status({ reason: 'Gone', details: { name: 'n1', kind: 'nodes' } }), 'm (404 Gone)'],
  ]
  for (const [say, body, mark] of rows) {
    server.fault = ({ path }) => (path.includes('/nodes/') ? { status: 404, body } : undefined)
    await t.rejects(
      api.dynamic.getForSure(ref),
      { code: 'NotFound', message: `get Node n1: the API server says: ${mark}` },
      say,
    )
    t.equal(await api.dynamic.get(ref), undefined, 'who only looks need not know')
  }
})

t.test('options reach the server', async (t) => {
  const server = await fakeApiServer(t)
  const { api } = await openFake(t, server)
  await api.dynamic.apply(configMap('x', { a: 'b' }), {
    dryRun: true,
    force: false,
    fieldManager: 'sealane-install',
  })
  t.match(server.requests.at(-1), /fieldManager=sealane-install&force=false&dryRun=All$/)
  await api.dynamic.apply(configMap('x', { a: 'b' }))
  t.match(server.requests.at(-1), /fieldManager=sealane&force=true$/)
})

t.test('a kind that the server does not know, now and later', async (t) => {
  const server = await fakeApiServer(t)
  server.missing.add('multicluster.x-k8s.io/v1beta1/serviceexports')
  const { api } = await openFake(t, server)
  const type = { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport' }
  t.equal(await api.dynamic.knows(type), false)
  await t.rejects(api.dynamic.list(type), {
    code: 'NotFound',
    message: 'the API server does not know the kind ServiceExport in multicluster.x-k8s.io/v1beta1',
  })
  server.missing.clear()
  t.equal(await api.dynamic.knows(type), true)
})

t.test('a namespaced object without a namespace, and conflicts with other managers', async (t) => {
  const server = await fakeApiServer(t)
  const { api } = await openFake(t, server)
  await t.rejects(api.dynamic.get({ apiVersion: 'v1', kind: 'ConfigMap', name: 'x' }), {
    code: 'Invalid',
    message: 'get ConfigMap x: metadata.namespace is missing, the kind is namespaced',
  })
  await api.dynamic.apply(configMap('x', { a: 'theirs' }), { fieldManager: 'argo' })
  await t.rejects(api.dynamic.apply(configMap('x', { a: 'ours' }), { force: false }), {
    code: 'Conflict',
    message: /^apply ConfigMap kube-system\/x: the API server says: .*"argo" \(409 Conflict\)$/,
  })
  t.match(await api.dynamic.apply(configMap('x', { a: 'ours' })), { data: { a: 'ours' } })
})
