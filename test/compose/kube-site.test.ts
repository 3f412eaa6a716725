/**
 * The site is a real cluster: the objects of the agent have the labels and annotations that its environment requests.
 */
import t, { type Test } from 'tap'
import { openKubeSite, readGatewayChoice } from '../../compose/site/kube-site.ts'
import { OBJECT_MARKS } from '../../install/values/marks.ts'
import { RELAYS_ANNOTATION } from '../../model/lanes/relay-address.ts'
import type { ConnectionStatus, Gateway } from '../../model/objects.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { type FakeApiServer, fakeApiServer } from '../support/fake-api-server.ts'
import { membershipObject } from '../support/objects/cluster-objects.ts'
import { connectionTo, gatewayObject } from '../support/objects/node-objects.ts'
import { put } from '../kubeapi/kube/kube-site.ts'

const NEVER = new AbortController().signal
const ENV = { [OBJECT_MARKS.labels]: '{"team":"net"}', [OBJECT_MARKS.annotations]: '{"example.org/owner":"net"}' }
const MARKED = { labels: { team: 'net' }, annotations: { 'example.org/owner': 'net' } }

async function opened(t: Test, server: FakeApiServer, env: Readonly<Record<string, string>> = ENV) {
  const access = { kubeconfig: server.kubeconfig, namespace: 'sealane-system' }
  const deps = { clock: new SystemClock(), logger: new CapturingLogger(), metrics: undefined }
  const { api, kube } = await openKubeSite(deps, { access, settings: '', components: ['agent'], signal: NEVER, env })
  t.teardown(() => api.close())
  return kube
}

const writes = (server: FakeApiServer): number => server.requests.filter((line) => !line.startsWith('GET')).length

t.test('a Membership has them, one of an earlier release once', async (t) => {
  const server = await fakeApiServer(t)
  const place = server.place('Membership', membershipObject().metadata.name)
  const kube = await opened(t, server)
  t.equal(await kube.hasMembership(NEVER), false)
  await kube.createMembership(membershipObject(), NEVER)
  t.match(server.objects.get(place)?.metadata, MARKED)
  t.equal(await kube.hasMembership(NEVER), true)
  t.equal(writes(server), 1)

  const user = { labels: { theirs: 'x' }, annotations: { note: 'y' } }
  put(server, { ...membershipObject(), metadata: { ...membershipObject().metadata, ...user } })
  const before = server.objects.get(place)
  for (let i = 0; i < 3; i += 1) t.equal(await kube.hasMembership(NEVER), true)
  t.equal(writes(server), 2, 'once')
  const after = server.objects.get(place)
  t.match(after?.metadata, MARKED)
  t.match(after?.metadata, user, 'and what others wrote stays')
  t.same(after?.['spec'], before?.['spec'], 'what it says is not touched')
  t.equal(await (await opened(t, server, {})).hasMembership(NEVER), true)
  t.equal(writes(server), 2, 'none where none is asked for')
})

t.test('the candidates of links are kept where a gateway runs, and nowhere else', async (t) => {
  const candidates = [{ kind: 'public', at: '192.0.2.1:4500', state: 'in-use' }] as const
  const link: ConnectionStatus = { ...connectionTo('paris', 'up'), candidates }
  const rows = [
    [['agent'], false],
    [['routeagent'], false],
    [['dns'], false],
    [['agent', 'gateway'], true],
    [undefined, true],
  ] as const
  for (const [components, isKept] of rows) {
    await t.test(components?.join() ?? 'all in one process', async (t) => {
      const server = await fakeApiServer(t)
      const gateway = gatewayObject('gw1', { connections: [link] })
      const said = { ...gateway, metadata: { name: 'new' }, status: { conditions: [] } } as unknown as Gateway
      for (const one of [gateway, said]) {
        put(server, one)
        const init = { manager: 'gateway', force: true, status: true }
        server.objects.apply(server.place('Gateway', one.metadata.name), { ...one }, init)
      }
      const access = { kubeconfig: server.kubeconfig, namespace: 'sealane-system' }
      const deps = { clock: new SystemClock(), logger: new CapturingLogger(), metrics: undefined }
      const site = { access, settings: '', signal: NEVER, env: {}, components }
      const { api } = await openKubeSite(deps, site)
      t.teardown(() => api.close())
      const cache = api.cache('Gateway')
      await cache.whenSynced(AbortSignal.timeout(5000))
      const expected = isKept ? candidates : undefined
      const of = (one: Gateway | undefined): unknown => one?.status?.connections[0]?.candidates
      t.same(of(cache.get('gw1')), expected)
      t.equal(cache.get('gw1')?.status?.connections[0]?.cluster, 'paris', 'the rest of the connection stays')
      t.same(of(await api.read('Gateway', 'gw1')), expected, 'and what is read is the same')
      t.ok(cache.get('new'), 'a status without connections is no fault')
    })
  }
})

t.test('what the Membership says about access changes alone', async (t) => {
  const server = await fakeApiServer(t)
  const place = server.place('Membership', membershipObject().metadata.name)
  const kube = await opened(t, server)
  // Another program requests that the cluster leaves, which no cache shows yet.
  put(server, membershipObject({ phase: 'leaving', exposure: 'pods' }))
  await kube.changeMembership({ exposure: 'exports' }, NEVER)
  await kube.changeMembership({ accessDefault: 'deny' }, NEVER)
  const { spec } = membershipObject({ phase: 'leaving', exposure: 'exports', accessDefault: 'deny' })
  t.strictSame(server.objects.get(place)?.['spec'], spec)
})

t.test('the agent changes the annotation about relays, and nothing else of the Membership', async (t) => {
  const server = await fakeApiServer(t)
  const place = server.place('Membership', membershipObject().metadata.name)
  const kube = await opened(t, server)
  const before = membershipObject({ phase: 'leaving' })
  put(server, { ...before, metadata: { ...before.metadata, annotations: { own: 'stays' } } })
  const annotations = (): unknown => server.objects.get(place)?.metadata.annotations
  await kube.noteRelays('{"addresses":[]}', NEVER)
  t.strictSame(annotations(), { own: 'stays', [RELAYS_ANNOTATION]: '{"addresses":[]}' })
  await kube.noteRelays(undefined, NEVER)
  t.strictSame(annotations(), { own: 'stays' })
  t.strictSame(server.objects.get(place)?.['spec'], before.spec)
})

t.test('whoever takes them from the Membership again, or refuses them, is asked once', async (t) => {
  const server = await fakeApiServer(t)
  const kube = await opened(t, server)
  for (let i = 0; i < 3; i += 1) {
    put(server, membershipObject())
    t.equal(await kube.hasMembership(NEVER), true)
  }
  t.equal(writes(server), 1)

  const other = await opened(t, server)
  put(server, membershipObject())
  server.fault = ({ method }) => (method === 'PATCH' ? { status: 422, body: {} } : undefined)
  t.equal(await other.hasMembership(NEVER), true, 'it is a member all the same')
})

t.test('the Secret with the identity has them', async (t) => {
  const server = await fakeApiServer(t)
  const secret = () => server.objects.list('v1/secrets', undefined)[0]?.metadata
  await (await opened(t, server, {})).identity.key()
  t.notOk(secret()?.labels?.['team'])
  await (await opened(t, server)).identity.problem({ text: 'x', reason: 'NoLane' })
  t.match(secret(), MARKED)
  t.match(secret()?.labels, { 'app.kubernetes.io/managed-by': 'sealane' })
  t.match(secret()?.annotations, { 'sealane.io/join-problem': 'x' })
})

t.test('what cannot be a mark ends it at the start', async (t) => {
  const server = await fakeApiServer(t)
  await t.rejects(opened(t, server, { [OBJECT_MARKS.labels]: 'team=net' }), {
    name: 'UserError',
    message: /^SEALANE_OBJECT_LABELS "team=net": expected a JSON object of strings/,
  })
})

t.test('what the installation says about the choice of gateways', async (t) => {
  const read = (replace: string, nodes = '') =>
    readGatewayChoice({ SEALANE_REPLACE_GATEWAYS: replace, SEALANE_GATEWAY_NODES: nodes })
  t.same(readGatewayChoice({}), { replaces: true, fillsUp: false, nodeSelector: {} })
  t.same(read(''), { replaces: true, fillsUp: false, nodeSelector: {} })
  t.same(read('never'), { replaces: false, fillsUp: false, nodeSelector: {} })
  const nodes = '{"node-role.kubernetes.io/edge":"","topology.kubernetes.io/zone":"a"}'
  t.same(read('missing', nodes), { replaces: true, fillsUp: true, nodeSelector: JSON.parse(nodes) as object })
  t.same(read('', '{"sealane.io/gateway":"true","a":"b"}').nodeSelector, { a: 'b' }, 'a candidate lacks our own label')
  for (const [replace, selector, problem] of [
    ['always', '', /^SEALANE_REPLACE_GATEWAYS "always": expected missing or never, or nothing$/],
    ['', '[]', /^SEALANE_GATEWAY_NODES "\[\]": expected a JSON object of strings/],
    ['', '{"a":1}', /^SEALANE_GATEWAY_NODES: value of a: expected a string/],
    ['', '{"no key":"x"}', /^SEALANE_GATEWAY_NODES: "no key": expected the key of a label/],
    ['', '{"a":"no value"}', /^SEALANE_GATEWAY_NODES: "a": expected a label's value/],
  ] as const) {
    t.throws(() => read(replace, selector), { message: problem }, `${replace} ${selector}`)
  }
})

t.test('the join token of another tool is read, and never written', async (t) => {
  const server = await fakeApiServer(t)
  const { identity } = await opened(t, server)
  t.equal(await identity.token(), undefined)
  const place = { namespace: 'sealane-system', name: 'sealane-join-token' }
  const resource = { resource: 'v1/secrets', apiVersion: 'v1', kind: 'Secret' }
  const data = { token: Buffer.from('SEALANE-given').toString('base64') }
  server.objects.put({ ...resource, ...place }, { apiVersion: 'v1', kind: 'Secret', metadata: place, data })
  t.equal(await identity.token(), 'SEALANE-given')
  t.equal(writes(server), 0)
})

t.test('of pods, those of the node are watched', async (t) => {
  const server = await fakeApiServer(t)
  const access = { kubeconfig: server.kubeconfig, namespace: 'sealane-system' }
  const deps = { clock: new SystemClock(), logger: new CapturingLogger(), metrics: undefined }
  const init = { access, settings: '', components: ['routeagent'], node: 'worker-1', signal: NEVER, env: {} }
  const { api } = await openKubeSite(deps, init)
  t.teardown(() => api.close())
  await api.cache('Pod').whenSynced(AbortSignal.timeout(5000))
  const lists = server.requests.filter((line) => line.includes('/pods'))
  t.ok(
    lists.length > 0 &&
      lists.every((line) => decodeURIComponent(line).includes('fieldSelector=spec.nodeName=worker-1')),
  )
})
