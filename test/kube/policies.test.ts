/** The admission policies on a real API server, under the accounts that they restrict. */
import { readFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { corefileWrites } from './policies/corefile-writes.ts'
import { companyRules } from './policies/company-rules.ts'
import { serviceImport } from './policies/stolen-objects.ts'
import { derivedService } from './policies/derived-service.ts'
import { demandedLabels } from './policies/demanded-labels.ts'
import { privilegedPods } from './policies/privileged-pods.ts'
import { CRDS, applyCrds, planeWithShop } from './support/apply-manifests.ts'
import { pathOf } from './support/object-path.ts'
import { boundToken } from './support/bound-token.ts'
import { DEFAULT_VALUES } from '../../install/values/install-values.ts'
import { memberObjects } from './support/installed-objects.ts'
import { kubeProgramsMissing } from './support/kube-programs.ts'
import { type Json, type KubeObject, type KubeRequest, kubeRequest } from './support/kube-request.ts'
import { endpoint, membership } from './support/manifest-objects.ts'
import { dryDelete, refusedWithin } from './support/refusals.ts'
import { sliceObject } from '../support/objects/service-objects.ts'
import { nodeObject } from '../support/objects/node-objects.ts'

t.setTimeout(600_000)

const SYSTEM = 'sealane-system'
const eventuallyRefused = refusedWithin(60_000)

t.test('what policies refuse, and whom', { skip: kubeProgramsMissing() ?? false }, async (t) => {
  const cluster = await planeWithShop(t, '10.43.0.0/16,fd00:43::/112')
  const { api } = cluster
  await applyCrds(api)
  const site = 'apiVersion: sealane.io/v1alpha1\nkind: Site\n'
  const objects = memberObjects({ ...DEFAULT_VALUES, member: { ...DEFAULT_VALUES.member, site } })
  for (const object of objects.filter(({ kind }) => kind === 'Namespace')) await api.apply(pathOf(object), object)
  for (const object of objects) await api.apply(pathOf(object), object)

  await t.test('the agent writes its own EndpointSlices only', async (t) => {
    const agent = await cluster.apiAs({ serviceAccount: { namespace: SYSTEM, name: 'sealane-agent' } })
    t.teardown(() => agent.close())
    const path = (name: string): string => `/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/${name}`
    await api.apply(path('theirs'), slice('theirs', 'endpointslice-controller.k8s.io'))
    const ours = 'web-roma-1'
    const mirrored = slice(ours, 'agent.sealane.io')
    // Policies see the site file a moment after it is stored.
    await eventually(() => agent.apply(path(ours), mirrored), { deadlineMs: 30_000, say: 'its own is taken' })
    const refusal = /the agent writes only EndpointSlices with label/
    await eventuallyRefused(t, () => agent.apply(path('new'), slice('new', 'someone')), refusal, 'creates')
    await t.rejects(agent.apply(path('theirs'), slice('theirs', 'agent.sealane.io')), refusal, 'takes over')
    await t.rejects(agent.delete(path('theirs')), refusal, 'deletes')
    await agent.delete(path(ours))
    await api.delete(path('theirs'))
  })

  await t.test('without its settings and its Membership, the agent is refused, and nobody else is', async (t) => {
    const agent = await cluster.apiAs({ serviceAccount: { namespace: SYSTEM, name: 'sealane-agent' } })
    t.teardown(() => agent.close())
    const settings = objects.find(({ kind, metadata }) => kind === 'ConfigMap' && metadata.name === 'sealane-site')!
    await api.delete(pathOf(settings))
    const slices = '/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices'
    const imports = '/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop/serviceimports'
    const nothing = /no params found for policy binding/
    const own = serviceImport('own', { 'app.kubernetes.io/managed-by': 'sealane' })
    await eventuallyRefused(
      t,
      () => agent.apply(`${slices}/web-roma-2`, slice('web-roma-2', 'agent.sealane.io')),
      nothing,
      'a slice',
    )
    await eventuallyRefused(t, () => agent.apply(`${imports}/own`, own), nothing, 'an import')
    for (const value of ['1', '2']) {
      const labels = { 'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io', value }
      await api.apply(`${slices}/theirs`, { ...sliceObject({ name: 'theirs', labels }, { endpoints: [] }) })
      await api.apply(`${imports}/theirs`, serviceImport('theirs', { value }))
    }
    await api.delete(`${slices}/theirs`)
    await api.delete(`${imports}/theirs`)
    await api.apply(pathOf(settings), settings)
  })

  await t.test('what the rules of a company refuse is named before anything is installed', (t) =>
    companyRules(t, api, cluster.kubeconfig),
  )

  await t.test('a derived Service is written, kept, repaired and removed', async (t) => {
    const kubeconfig = await cluster.kubeconfigFor({ serviceAccount: { namespace: SYSTEM, name: 'sealane-agent' } })
    await member(api, {})
    await derivedService(t, { api, kubeconfig })
    await leaves(api)
  })

  await t.test('where a company demands a label on all objects, imports still arrive', async (t) => {
    const account = { serviceAccount: { namespace: SYSTEM, name: 'sealane-agent' } }
    const [agent, kubeconfig] = [await cluster.apiAs(account), await cluster.kubeconfigFor(account)]
    t.teardown(() => agent.close())
    await member(api, {})
    await demandedLabels(t, { api, agent, kubeconfig, membership: MEMBERSHIP })
    await leaves(api)
  })

  await t.test('the agent writes its own block to a Corefile', (t) => corefileWrites(t, cluster))

  await t.test('who is privileged in our namespace', (t) => privilegedPods(t, api))

  await t.test('the agent sets conditions of a Gateway, and nothing else', async (t) => {
    const agent = await cluster.apiAs({ serviceAccount: { namespace: SYSTEM, name: 'sealane-agent' } })
    t.teardown(() => agent.close())
    const path = '/apis/sealane.io/v1alpha1/gateways/n9'
    const own = { apiVersion: 'sealane.io/v1alpha1', kind: 'Gateway', metadata: { name: 'n9' } }
    const heartbeatTime = '2026-01-01T00:00:00.250Z'
    const status = { version: '1', lanes: [], connections: [], heartbeatTime, up: '0/0' }
    await api.apply(path, own)
    await api.apply(`${path}/status`, { ...own, status })
    const refusal = /the agent writes only conditions of a Gateway/
    const says = (change: Json) => (): Promise<unknown> => agent.merge(`${path}/status`, { status: change })
    await eventuallyRefused(t, says({ heartbeatTime: '2026-01-01T00:00:01.250Z' }), refusal, 'a heartbeat')
    await t.rejects(says({ version: '2' })(), refusal, 'a version')
    await t.rejects(says({ up: '1/1' })(), refusal, 'how many are up')
    await t.rejects(says({ up: null })(), refusal, 'how many are up, taken away')
    await t.rejects(says({ failure: 'broken' })(), refusal, 'a failure')
    await t.rejects(says({ failureReason: 'PortTaken' })(), refusal, 'the name of a failure')
    await t.rejects(says({ lanes: [{ lane: 0, device: 'sealane0', mtu: 1420, driver: 'x' }] })(), refusal, 'a lane')
    const ready = { type: 'Ready', status: 'Unknown', reason: 'GatewayStatusStale', message: '' }
    await says({ conditions: [{ ...ready, lastTransitionTime: '2026-01-01T00:00:00Z' }] })()
    t.match(await api.get(path), { status: { version: '1', heartbeatTime, up: '0/0', conditions: [ready] } })
    await t.rejects(agent.delete(path), /forbidden/i, 'deletes')
    await api.delete(path)
  })

  await t.test('a pod on a node writes the objects of that node only', async (t) => {
    const token = await boundToken(api, { node: 'n1', namespace: SYSTEM, account: 'sealane-gateway' })
    const { url, caFile } = cluster
    const gateway = kubeRequest({ url, ca: readFileSync(caFile, 'utf8'), credentials: { token } })
    t.teardown(() => gateway.close())
    const group = '/apis/sealane.io/v1alpha1'
    const own = { apiVersion: 'sealane.io/v1alpha1', kind: 'Gateway', metadata: { name: 'n1' } }
    await gateway.apply(`${group}/gateways/n1`, own)
    const status = { version: '1', lanes: [], connections: [] }
    await gateway.apply(`${group}/gateways/n1/status`, { ...own, status })
    await member(api, { clusterId: 'roma' })
    await reportEndpoint(gateway, 'roma.n1-lane0')
    const refusal = /a pod on node n1 writes only the objects of that node/
    const other = { ...own, metadata: { name: 'n2' } }
    await eventuallyRefused(t, () => gateway.apply(`${group}/gateways/n2`, other), refusal, 'another gateway')
    await api.apply(`${group}/gateways/n3`, { ...own, metadata: { name: 'n3' } })
    await t.rejects(gateway.delete(`${group}/gateways/n3`), refusal, 'deletes another')
    await t.rejects(
      gateway.apply(`${group}/endpoints/roma.n2-lane0`, endpoint({ name: 'roma.n2-lane0', node: 'n2' })),
      refusal,
      'an endpoint of another node',
    )
    await t.test('and of its own cluster', (t) => ownEndpointsOnly(t, { api, gateway }))
    await gateway.delete(`${group}/endpoints/roma.n1-lane0`)
    await gateway.delete(`${group}/gateways/n1`)
  })

  await t.test('a gateway takes lanes for its own node, and no other Lease', async (t) => {
    const { url, caFile } = cluster
    const open = async (node: string): Promise<KubeRequest> => {
      const token = await boundToken(api, { node, namespace: SYSTEM, account: 'sealane-gateway' })
      const gateway = kubeRequest({ url, ca: readFileSync(caFile, 'utf8'), credentials: { token } })
      t.teardown(() => gateway.close())
      return gateway
    }
    const [n1, n2] = await Promise.all([open('n1'), open('n2')])
    const path = `/apis/coordination.k8s.io/v1/namespaces/${SYSTEM}/leases`
    const lease = (name: string, holderIdentity: string): Json => ({
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: { name, namespace: SYSTEM },
      spec: { holderIdentity },
    })
    const whose = /a gateway takes a lane only for its own node, and releases only its own lane/
    const which = /a gateway writes only the Leases of lanes, sealane-lane-<number>/
    const made = (name: string, holder: string) => (): Promise<unknown> =>
      n1.post(`${path}?dryRun=All`, lease(name, holder))
    await eventuallyRefused(t, made('sealane-lane-0', 'n2'), whose, 'for another node')
    await t.rejects(made('sealane-lane-0', '')(), whose, 'for nobody')
    for (const name of ['sealane-agent', 'sealane-cluster-milano', 'sealane-lane-x', 'sealane-lane-1000']) {
      await t.rejects(made(name, 'n1')(), which, name)
    }
    await n1.post(path, lease('sealane-lane-0', 'n1'))
    const written = async (gateway: KubeRequest, holder: string): Promise<unknown> => {
      const { metadata } = await api.get(`${path}/sealane-lane-0`)
      return gateway.put(`${path}/sealane-lane-0`, { ...lease('sealane-lane-0', holder), metadata })
    }
    await t.rejects(written(n2, ''), whose, "another's is not given up")
    await t.rejects(written(n2, 'n1'), whose, 'nor renewed')
    await t.rejects(written(n1, 'n2'), whose, 'nor given to somebody')
    await written(n2, 'n2')
    await t.rejects(written(n1, ''), whose, 'it is no longer its own')
    await written(n2, '')
    await t.rejects(n1.delete(`${path}/sealane-lane-0`), /forbidden/)
  })

  await t.test('a node does not make itself a gateway', async (t) => {
    const n4 = '/api/v1/nodes/n4'
    const kubelet = await cluster.apiAs({ user: 'system:node:n4', groups: ['system:nodes'] })
    t.teardown(() => kubelet.close())
    // A node pool may set it at registration.
    const labels = { 'sealane.io/gateway': '0', zone: 'a' }
    const metadata = { name: 'n4', labels }
    await kubelet.post('/api/v1/nodes', nodeObject('n4', { metadata }))
    const label = /a node must not change label sealane.io\/gateway: it does not decide whether it is a gateway/
    const address =
      /a node must not change annotation sealane.io\/public-address: it does not decide its public address/
    const set = (path: string, change: object) => (): Promise<unknown> => kubelet.merge(path, { metadata: change })
    const gateway = (value: string | null): object => ({ labels: { 'sealane.io/gateway': value } })
    const called = (value: string | null): object => ({ annotations: { 'sealane.io/public-address': value } })
    await eventuallyRefused(t, set(`${n4}?dryRun=All`, gateway('1')), label, 'another lane')
    await t.rejects(set(n4, gateway(null))(), label, 'off')
    await t.rejects(set(`${n4}/status`, gateway('1'))(), label, 'with its status')
    await t.rejects(set(n4, called('192.0.2.66'))(), address)
    await t.rejects(set(`${n4}/status`, called(''))(), address, 'empty, with its status')
    await set(n4, { labels: { zone: 'b' }, annotations: { other: 'free' } })()
    await kubelet.merge(`${n4}/status`, { status: { nodeInfo: { kubeletVersion: 'v2' } } })

    await api.merge(n4, { metadata: { ...gateway(null), ...called('192.0.2.10') } })
    t.pass('an administrator may')
    await t.rejects(set(n4, gateway(''))(), label, 'on')
    await t.rejects(set(n4, called('192.0.2.66'))(), address, 'moved')
    await t.rejects(set(n4, called(null))(), address, 'off')
    await kubelet.merge(`${n4}/status`, { status: { nodeInfo: { kubeletVersion: 'v3' } } })
    const { metadata: now } = await api.get(n4)
    t.strictSame(now.labels, { zone: 'b' })
    t.match(now.annotations, { other: 'free', 'sealane.io/public-address': '192.0.2.10' })
    await api.delete(n4)
  })

  await t.test('the agent makes a node a gateway, and changes nothing else of it', async (t) => {
    const n5 = '/api/v1/nodes/n5'
    const agent = await cluster.apiAs({ serviceAccount: { namespace: SYSTEM, name: 'sealane-agent' } })
    t.teardown(() => agent.close())
    const metadata = { name: 'n5', labels: { zone: 'a' }, annotations: { other: 'kept' } }
    await api.post('/api/v1/nodes', nodeObject('n5', { metadata }))
    await api.merge(`${n5}/status`, { status: { addresses: [{ type: 'ExternalIP', address: '198.51.100.7' }] } })
    const set = (change: object) => (): Promise<unknown> => agent.merge(n5, change)
    const labels = (change: object): object => ({ metadata: { labels: change } })
    const annotations = (change: object): object => ({ metadata: { annotations: change } })
    const only = /the agent changes only label sealane.io\/gateway and annotations/
    await eventuallyRefused(t, set(labels({ zone: 'b' })), only, 'another label')
    await t.rejects(set(labels({ zone: null }))(), only, 'takes one away')
    await t.rejects(set(annotations({ other: 'mine' }))(), only, 'another annotation')
    await t.rejects(set({ spec: { unschedulable: true } })(), only, 'a cordon')
    await t.rejects(set({ spec: { taints: [{ key: 'a', effect: 'NoExecute' }] } })(), only, 'a taint')
    await t.rejects(set({ metadata: { finalizers: ['sealane.io/x'] } })(), only, 'a finalizer')
    await t.rejects(set(labels({ 'sealane.io/gateway': '0' }))(), /sets label sealane.io\/gateway to true/, 'a lane')
    const by = /sets annotation sealane.io\/gateway-chosen-by to agent only/
    await t.rejects(set(annotations({ 'sealane.io/gateway-chosen-by': 'join' }))(), by)
    const address = /sets annotation sealane.io\/public-address to an ExternalIP of the Node only/
    await t.rejects(set(annotations({ 'sealane.io/public-address': '192.0.2.66' }))(), address)
    const chosen = { 'sealane.io/gateway-chosen-by': 'agent', 'sealane.io/public-address': '198.51.100.7' }
    await set({ metadata: { labels: { 'sealane.io/gateway': 'true' }, annotations: chosen } })()
    const { metadata: now } = await api.get(n5)
    t.strictSame(now.labels, { zone: 'a', 'sealane.io/gateway': 'true' })
    t.match(now.annotations, { ...chosen, other: 'kept' })
    await t.rejects(set(labels({ 'sealane.io/gateway': null }))(), /changes no other one/, 'takes a gateway away')
    await t.rejects(agent.delete(n5), /forbidden/i, 'deletes')
    await api.delete(n5)
  })

  await t.test('a Membership stays until this cluster leaves', async (t) => {
    await member(api, {})
    const refusal = /this cluster is a member of clusterset default: leave first with sealane leave/
    await eventuallyRefused(t, () => api.delete(MEMBERSHIP), refusal, 'deleted')
    const { status, text } = await api.raw('DELETE', '/apis/sealane.io/v1alpha1/memberships')
    t.ok(status >= 400, 'all of them at once')
    t.match(text, refusal)
    const agent = await cluster.apiAs({ serviceAccount: { namespace: SYSTEM, name: 'sealane-agent' } })
    t.teardown(() => agent.close())
    await t.rejects(agent.delete(MEMBERSHIP), refusal, 'by the agent')
    await leaves(api)
    t.equal(await api.find(MEMBERSHIP), undefined)
  })

  await t.test('id and clusterset stay while this cluster is a member, and can go when it leaves', async (t) => {
    const path = (name: string): string => `/apis/about.k8s.io/v1beta1/clusterproperties/${name}`
    const set = (name: string, value: string, query = ''): Promise<unknown> =>
      api.apply(`${path(name)}${query}`, {
        apiVersion: 'about.k8s.io/v1beta1',
        kind: 'ClusterProperty',
        metadata: { name },
        spec: { value },
      })
    const [id, clusterset] = ['cluster.clusterset.k8s.io', 'clusterset.k8s.io']
    await set(id, 'milano')
    await set(id, 'roma')
    await member(api, {})
    await set(clusterset, 'default')
    await eventuallyRefused(t, () => set(id, 'milano', '?dryRun=All'), /must not change while this cluster is/, 'id')
    await t.rejects(api.delete(path(id)), /leave it first with sealane leave/, 'id, deleted')
    await eventuallyRefused(
      t,
      () => set(clusterset, 'x', '?dryRun=All'),
      /must not change while this cluster/,
      'clusterset',
    )
    await t.rejects(api.delete(path(clusterset)), /leave first with sealane leave/, 'clusterset, deleted')
    await set('other.example.org', 'free')
    await set('other.example.org', 'to change')
    await member(api, { phase: 'leaving' })
    await eventually(() => api.delete(path(clusterset)).then(() => true), { deadlineMs: 30_000 })
    await eventually(() => api.delete(path(id)).then(() => true), { deadlineMs: 30_000 })
    t.pass('both are gone')
    await leaves(api)
  })

  await t.test('a CRD takes the Membership of a member along', async (t) => {
    await member(api, {})
    const crd = `${CRDS}/memberships.sealane.io`
    await api.delete(crd)
    await eventually(async () => (await api.find(crd)) === undefined, { deadlineMs: 30_000, say: 'the CRD is gone' })
    t.equal(await api.find(MEMBERSHIP), undefined)
  })
})

const MEMBERSHIP = '/apis/sealane.io/v1alpha1/memberships/self'
const ENDPOINTS = '/apis/sealane.io/v1alpha1/endpoints'

function member(api: KubeRequest, change: object): Promise<unknown> {
  return api.apply(MEMBERSHIP, membership(change))
}

/** Leaves as `sealane leave` does. */
async function leaves(api: KubeRequest): Promise<void> {
  await api.merge(MEMBERSHIP, { spec: { phase: 'leaving' } })
  await api.delete(MEMBERSHIP)
}

/** Objects that policies read reach them a moment after they are stored. */
async function reportEndpoint(gateway: KubeRequest, name: string): Promise<void> {
  await eventually(() => gateway.apply(`${ENDPOINTS}/${name}`, endpoint({ name, node: 'n1' })), {
    deadlineMs: 30_000,
    say: `${name} is taken`,
  })
}

/** The node's token is valid for node n1 of roma. */
async function ownEndpointsOnly(
  t: Test,
  { api, gateway }: { readonly api: KubeRequest; readonly gateway: KubeRequest },
): Promise<void> {
  const refusal = /a gateway writes only the Endpoints of its own cluster, roma/
  const other = 'paris.n1-lane0'
  const theirs = (change: object = {}): KubeObject => endpoint({ name: other, node: 'n1', ...change })
  await eventuallyRefused(t, () => gateway.apply(`${ENDPOINTS}/${other}`, theirs()), refusal, 'creates')
  await api.apply(`${ENDPOINTS}/${other}`, theirs())
  const changed = theirs({ capabilities: ['wireguard'] })
  await t.rejects(gateway.apply(`${ENDPOINTS}/${other}`, changed), refusal, 'changes what was mirrored')
  await eventuallyRefused(t, () => dryDelete(gateway, `${ENDPOINTS}/${other}`), refusal, 'removes it')
  await api.delete(`${ENDPOINTS}/${other}`)
  await leaves(api)
  const early = (): Promise<unknown> =>
    gateway.apply(`${ENDPOINTS}/roma.n1-lane1?dryRun=All`, endpoint({ name: 'roma.n1-lane1', node: 'n1', lane: 1 }))
  const nothing = /no params found for policy binding with `Deny` parameterNotFoundAction/
  await eventuallyRefused(t, early, nothing, 'nothing before this cluster is a member')
}

function slice(name: string, managedBy: string): Json {
  const labels = {
    'endpointslice.kubernetes.io/managed-by': managedBy,
    'multicluster.kubernetes.io/service-name': 'web',
    'multicluster.kubernetes.io/source-cluster': 'roma',
  }
  return { ...sliceObject({ name, labels }, { endpoints: [] }) }
}
