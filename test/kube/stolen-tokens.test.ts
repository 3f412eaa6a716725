/** What a thief of each part's token can do beyond the part's work, on a real API server. */
import { readFileSync } from 'node:fs'
import t from 'tap'
import { clustersetIpv6 } from '../../model/addresses/addressing.ts'
import { formatAddress, parseAddress } from '../../model/values/ip.ts'
import { attack } from '../hostile/support/attack.ts'
import { eventually } from '../support/eventually.ts'
import { applyCrds, planeWithShop } from './support/apply-manifests.ts'
import { pathOf } from './support/object-path.ts'
import type { ControlPlane } from './support/control-plane.ts'
import { DEFAULT_VALUES } from '../../install/values/install-values.ts'
import { brokerObjects, memberObjects } from './support/installed-objects.ts'
import { kubeProgramsMissing } from './support/kube-programs.ts'
import { type Json, type KubeRequest, kubeRequest } from './support/kube-request.ts'
import { endpoint, membership } from './support/manifest-objects.ts'
import { dryDelete, refusedWithin } from './support/refusals.ts'
import { SITE, lease, own, serviceImport, slice } from './policies/stolen-objects.ts'
import { boundToken } from './support/bound-token.ts'
import { nodeObject } from '../support/objects/node-objects.ts'

t.setTimeout(300_000)

const SYSTEM = 'sealane-system'
/** The IPv6 address that belongs to 245.0.0.1. */
const TWIN = formatAddress(clustersetIpv6(parseAddress('245.0.0.1')))
const eventuallyRefused = refusedWithin(10_000)
const SLICES = '/apis/discovery.k8s.io/v1/namespaces'
const OURS = '/apis/sealane.io/v1alpha1'
const LEASES = `/apis/coordination.k8s.io/v1/namespaces/${SYSTEM}/leases`
const DRY = '?dryRun=All'
const PARTS = ['agent', 'gateway', 'routeagent', 'dns'] as const
const FORBIDDEN = /forbidden/i

/** Members and broker of one cluster, as `sealane join` and `sealane broker deploy` leave them. */
async function installed(): Promise<ControlPlane> {
  const cluster = await planeWithShop(t)
  const { api } = cluster
  await applyCrds(api)
  const values = { ...DEFAULT_VALUES, member: { ...DEFAULT_VALUES.member, site: SITE } }
  const objects = [...memberObjects(values), ...brokerObjects()]
  for (const object of objects.filter(({ kind }) => kind === 'Namespace')) await api.apply(pathOf(object), object)
  for (const object of objects.filter(({ kind }) => !LATER.test(kind))) await api.apply(pathOf(object), object)
  await api.apply(`${OURS}/memberships/self`, membership({ clusterId: 'roma' }))
  return cluster
}

/** Kinds that need nodes, or do not matter here. */
const LATER = /^(DaemonSet|Deployment|StatefulSet|PersistentVolumeClaim|Service|PodDisruptionBudget)$/

async function stolen(cluster: ControlPlane): Promise<void> {
  const { api, url, caFile } = cluster
  const withToken = (token: string): KubeRequest =>
    kubeRequest({ url, ca: readFileSync(caFile, 'utf8'), credentials: { token } })
  const account = (name: string, namespace = SYSTEM): Promise<KubeRequest> =>
    cluster.apiAs({ serviceAccount: { namespace, name } })
  const onNode = async (node: string, name: string): Promise<KubeRequest> =>
    withToken(await boundToken(api, { node, namespace: SYSTEM, account: name }))
  const agent = await account('sealane-agent')
  t.teardown(() => agent.close())

  await attack('token-agent-kube-dns', async (t) => {
    const refusal = /label kubernetes.io\/service-name/
    const path = `${SLICES}/kube-system/endpointslices/kube-dns-evil-1`
    const evil = slice('kube-system', 'kube-dns-evil-1', { 'kubernetes.io/service-name': 'kube-dns' })
    await eventuallyRefused(t, () => agent.apply(`${path}${DRY}`, evil), refusal, 'made')
    const harmless = slice('kube-system', 'kube-dns-evil-1', {})
    await eventually(() => agent.apply(path, harmless), { deadlineMs: 30_000, say: 'policies know the site file' })
    await t.rejects(agent.apply(path, evil), refusal, 'applied later')
    const labels = { 'kubernetes.io/service-name': 'kube-dns' }
    await t.rejects(agent.merge(path, { metadata: { labels } }), refusal, 'merged later')
    await t.rejects(agent.merge(path, { metadata: { labels: { 'kubernetes.io/service-name': '' } } }), refusal, 'empty')
    await agent.delete(path)
    const derived = { 'sealane.io/derived': 'true', 'multicluster.kubernetes.io/service-name': '' }
    const asDerived = slice('kube-system', 'kube-dns-evil-1', { ...labels, ...derived })
    await t.rejects(agent.apply(`${path}${DRY}`, asDerived), refusal, 'as a derived one')
  })

  await attack('token-agent-services', async (t) => {
    const refusal = /the agent writes only Services (with label|whose names end with|of type ClusterIP)/
    const labels = { 'sealane.io/derived': 'true', 'app.kubernetes.io/managed-by': 'sealane' }
    const of = (name: string, spec: object = {}, marks: Readonly<Record<string, string>> = labels): Json => ({
      ...{ apiVersion: 'v1', kind: 'Service', metadata: { name, labels: marks } },
      spec: { type: 'ClusterIP', ports: [{ port: 80, protocol: 'TCP' }], ...spec },
    })
    const at = (name: string): string => `/api/v1/namespaces/shop/services/${name}`
    await api.apply(at('theirs'), of('theirs', {}, {}))
    const made =
      (name: string, spec: object = {}, marks = labels as Readonly<Record<string, string>>) =>
      (): Promise<unknown> =>
        agent.apply(`${at(name)}${DRY}`, of(name, spec, marks))
    await eventuallyRefused(t, made('x-clusterset', {}, {}), refusal, 'without the label')
    await t.rejects(made('theirs')(), refusal, 'taken over')
    await t.rejects(agent.delete(at('theirs')), refusal, 'deleted')
    await t.rejects(made('web')(), refusal, 'a name that nobody consented to')
    await t.rejects(made('x-clusterset', { selector: { app: 'x' } })(), refusal, 'a selector')
    await t.rejects(made('x-clusterset', { externalIPs: ['192.0.2.1'] })(), refusal, 'an external address')
    await t.rejects(made('x-clusterset', { type: 'NodePort' })(), refusal, 'another type')
    await eventually(made('x-clusterset'), { deadlineMs: 30_000, say: 'policies know the site file' })
    const slices = `${SLICES}/shop/endpointslices/web-global-paris-1`
    const marks = { ...labels, 'kubernetes.io/service-name': 'web-global' }
    const cluster = {
      'multicluster.kubernetes.io/source-cluster': 'paris',
      'multicluster.kubernetes.io/service-name': '',
    }
    const sliced = (): Promise<unknown> =>
      agent.apply(`${slices}${DRY}`, slice('shop', 'web-global-paris-1', { ...marks, ...cluster }))
    await t.rejects(made('web-global')(), refusal, 'before the Namespace consents')
    await t.rejects(sliced(), /label kubernetes.io\/service-name/, 'nor its endpoints')
    const annotations = { 'sealane.io/derived-service': '*-global' }
    await api.merge('/api/v1/namespaces/shop', { metadata: { annotations } })
    await eventually(made('web-global'), { deadlineMs: 30_000, say: 'the Namespace consents' })
    await eventually(sliced, { deadlineMs: 30_000, say: 'and to its endpoints' })
    await t.rejects(made('-global')(), /Invalid value|whose names end with/, 'nothing in the place of *')
    await t.rejects(agent.merge('/api/v1/namespaces/shop', { metadata: { annotations } }), FORBIDDEN, 'by itself')
  })

  await attack('token-agent-foreign-slices', async (t) => {
    const refusal = /the agent writes only EndpointSlices with label/
    const path = `${SLICES}/kube-system/endpointslices/kube-dns-1`
    const labels = { 'kubernetes.io/service-name': 'kube-dns' }
    const theirs = slice('kube-system', 'kube-dns-1', labels, 'endpointslice-controller.k8s.io')
    await api.apply(path, theirs)
    const ours = slice('kube-system', 'kube-dns-1', {})
    await eventuallyRefused(t, () => agent.apply(`${path}${DRY}`, ours), refusal, 'taken over')
    await t.rejects(agent.merge(path, { endpoints: [{ addresses: ['192.0.2.66'] }] }), refusal, 'changed')
    await t.rejects(agent.delete(path), refusal, 'deleted')
  })

  await attack('token-agent-imports', async (t) => {
    const path = '/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop/serviceimports'
    const theirs = serviceImport('theirs')
    await api.apply(`${path}/theirs`, theirs)
    const refusal = /the agent writes only ServiceImports with label/
    await eventuallyRefused(t, () => agent.apply(`${path}/new${DRY}`, serviceImport('new')), refusal, 'made')
    const labels = { 'app.kubernetes.io/managed-by': 'sealane' }
    await t.rejects(agent.merge(`${path}/theirs`, { metadata: { labels } }), refusal, 'taken over')
    await t.rejects(agent.delete(`${path}/theirs`), refusal, 'deleted')
    await eventually(() => agent.apply(`${path}/ours`, serviceImport('ours', labels)), {
      deadlineMs: 30_000,
      say: 'policies know the Membership',
    })
    await agent.delete(`${path}/ours`)
    t.pass('its own it writes')
  })

  await attack('token-agent-foreign-names', async (t) => {
    const refusal = /the agent writes only EndpointSlices that are named after the labels/
    const made =
      (name: string, labels: Readonly<Record<string, string>> = {}) =>
      (): Promise<unknown> =>
        agent.apply(`${SLICES}/shop/endpointslices/${name}${DRY}`, slice('shop', name, labels))
    await eventuallyRefused(t, made('web-1'), refusal, 'another name')
    await t.rejects(made('kube-dns-evil')(), refusal, 'a part of the name')
    const cluster = 'multicluster.kubernetes.io/source-cluster'
    await t.rejects(made('kube-dns-evil-1', { [cluster]: '' })(), refusal, 'no cluster')
    await t.rejects(made('kube-dns-evil-1', { [cluster]: 'paris' })(), refusal, 'another cluster')
    await made('kube-dns-evil-1')()
  })

  await attack('token-agent-import-ips', async (t) => {
    const refusal = /the agent assigns only clusterset IPs to a ServiceImport, from 245\.0\.0\.0\/16 and fd/
    const labels = { 'app.kubernetes.io/managed-by': 'sealane' }
    const made = (...ips: readonly string[]): Promise<unknown> => {
      const { spec, ...rest } = serviceImport('taken', labels)
      const path = '/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop/serviceimports/taken'
      return agent.apply(`${path}${DRY}`, { ...rest, spec: { ...(spec as object), ips } })
    }
    await eventuallyRefused(t, () => made('10.96.0.1'), refusal, 'of the API server')
    for (const ips of [['245.1.0.1'], ['245.0.0.1', '169.254.169.254'], ['fd00::1'], ['::ffff:245.0.0.1']]) {
      await t.rejects(made(...ips), /only clusterset IPs|Invalid value/, ips.join())
    }
    await made('245.0.0.1', TWIN)
    const membership = (): Promise<unknown> =>
      agent.merge(`${OURS}/memberships/self${DRY}`, { spec: { clustersetIpRange: '10.96.0.0/12' } })
    await eventuallyRefused(t, membership, /the agent does not change the ranges/, 'nor is the range another')
  })

  await attack('token-agent-guarded-namespaces', async (t) => {
    const labels = { 'app.kubernetes.io/managed-by': 'sealane' }
    const imported = (namespace: string): Promise<unknown> =>
      agent.apply(
        `/apis/multicluster.x-k8s.io/v1beta1/namespaces/${namespace}/serviceimports/kubernetes${DRY}`,
        serviceImport('kubernetes', labels),
      )
    const sliced = (namespace: string): Promise<unknown> =>
      agent.apply(
        `${SLICES}/${namespace}/endpointslices/kube-dns-evil-1${DRY}`,
        slice(namespace, 'kube-dns-evil-1', {}),
      )
    await api.apply('/api/v1/namespaces/openshift-dns', {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name: 'openshift-dns' },
    })
    const guarded = ['kube-public', 'kube-node-lease', 'default', 'openshift-dns', SYSTEM, 'sealane-broker']
    for (const namespace of guarded) {
      const refusal = new RegExp(`the agent imports nothing into namespace ${namespace}: it is guarded`)
      await eventuallyRefused(t, () => imported(namespace), refusal, `ServiceImport in ${namespace}`)
      await t.rejects(sliced(namespace), refusal, `EndpointSlice in ${namespace}`)
    }
    for (const namespace of ['shop', 'kube-system']) await Promise.all([imported(namespace), sliced(namespace)])
    t.pass('what the site file allows is taken')
    const slices = `${SLICES}/kube-public/endpointslices/kube-dns-evil-1`
    await api.apply(slices, slice('kube-public', 'kube-dns-evil-1', {}))
    await agent.delete(slices)
    t.pass('what was allowed once is cleaned up')
  })

  await attack('token-agent-lanes', async (t) => {
    const refusal = /the agent writes only the Leases/
    const taken = (name: string): Promise<unknown> => agent.post(`${LEASES}${DRY}`, lease(name, 'n9'))
    await eventuallyRefused(t, () => taken('sealane-lane-0'), refusal, 'a lane')
    await api.post(LEASES, lease('sealane-lane-3', 'n1'))
    await t.rejects(agent.merge(`${LEASES}/sealane-lane-3`, { spec: { holderIdentity: 'n9' } }), refusal, 'given away')
    await t.rejects(agent.delete(`${LEASES}/sealane-lane-3`), refusal, 'ended')
    await t.rejects(
      agent.post('/apis/coordination.k8s.io/v1/namespaces/kube-system/leases', lease('x', 'y')),
      FORBIDDEN,
    )
    for (const name of ['sealane-agent', 'sealane-cluster-paris']) await taken(name)
  })

  await attack('token-agent-leaves', async (t) => {
    const refusal = /the agent does not remove this cluster from its clusterset/
    const path = `${OURS}/memberships/self`
    const leaving = (): Promise<unknown> => agent.merge(`${path}${DRY}`, { spec: { phase: 'leaving' } })
    await eventuallyRefused(t, leaving, refusal, 'said')
    const asks = { metadata: { annotations: { 'sealane.io/leave-requested': 'true' } } }
    const asking = /the agent does not request that this cluster leaves/
    await t.rejects(agent.merge(`${path}${DRY}`, asks), asking, 'asked for')
    await t.rejects(agent.merge(`${path}${DRY}`, { ...asks, spec: { phase: 'leaving' } }), refusal, 'both at once')
    await api.merge(path, asks)
    await leaving()
    await api.merge(path, { metadata: { annotations: { 'sealane.io/leave-requested': null } } })
    await t.rejects(leaving(), refusal, 'after an administrator has thought better of it')
    await eventuallyRefused(t, () => dryDelete(agent, path), /leave first with sealane leave/, 'deleted, to try')
    await t.rejects(agent.delete(path), /leave first with sealane leave/, 'deleted')
    await agent.merge(path, { spec: { observedAddress: '192.0.2.1' } })
  })

  await attack('token-agent-properties', async (t) => {
    const path = '/apis/about.k8s.io/v1beta1/clusterproperties'
    const property = (name: string): Json => ({
      apiVersion: 'about.k8s.io/v1beta1',
      kind: 'ClusterProperty',
      metadata: { name },
      spec: { value: 'x' },
    })
    const refusal = /the agent creates only the ClusterProperties/
    await eventuallyRefused(t, () => agent.post(`${path}${DRY}`, property('other.example.org')), refusal, 'another')
    await agent.post(`${path}${DRY}`, property('clusterset.k8s.io'))
  })

  await attack('token-without-node', async (t) => {
    const refusal = /its token does not name its node/
    const gateway = await account('sealane-gateway')
    const routeagent = await account('sealane-routeagent')
    t.teardown(() => [gateway, routeagent].forEach((one) => one.close()))
    const status = { version: '1', lanes: [], connections: [] }
    await api.apply(`${OURS}/gateways/n1`, own('Gateway', 'n1'))
    await api.apply(`${OURS}/gateways/n1/status`, { ...own('Gateway', 'n1'), status })
    await api.apply(`${OURS}/endpoints/roma.n1-lane0`, endpoint({ name: 'roma.n1-lane0' }))
    const attempts: Readonly<Record<string, () => Promise<unknown>>> = {
      'a Gateway': () => gateway.apply(`${OURS}/gateways/n1${DRY}`, own('Gateway', 'n1')),
      'its status': () => gateway.merge(`${OURS}/gateways/n1/status${DRY}`, { status: { version: '2' } }),
      'its end': () => dryDelete(gateway, `${OURS}/gateways/n1`),
      'an Endpoint': () =>
        gateway.apply(`${OURS}/endpoints/roma.n1-lane1${DRY}`, endpoint({ name: 'roma.n1-lane1', lane: 1 })),
      "another's end": () => dryDelete(gateway, `${OURS}/endpoints/roma.n1-lane0`),
      'a RouteAgent': () => routeagent.apply(`${OURS}/routeagents/n1${DRY}`, own('RouteAgent', 'n1')),
    }
    for (const [name, attempt] of Object.entries(attempts)) await eventuallyRefused(t, attempt, refusal, name)
    const lane = (): Promise<unknown> => gateway.post(`${LEASES}${DRY}`, lease('sealane-lane-7', 'n1'))
    await eventuallyRefused(t, lane, /takes a lane only for its own node/, 'a lane')
  })

  await attack('token-of-another-node', async (t) => {
    const refusal = /a pod on node n2 writes only the objects of that node/
    const gateway = await onNode('n2', 'sealane-gateway')
    const routeagent = await onNode('n2', 'sealane-routeagent')
    t.teardown(() => [gateway, routeagent].forEach((one) => one.close()))
    const attempts: Readonly<Record<string, () => Promise<unknown>>> = {
      'a Gateway': () => gateway.apply(`${OURS}/gateways/n1${DRY}`, own('Gateway', 'n1')),
      'its status': () => gateway.merge(`${OURS}/gateways/n1/status${DRY}`, { status: { version: '2' } }),
      'an Endpoint': () => gateway.apply(`${OURS}/endpoints/roma.n1-lane0${DRY}`, endpoint({ name: 'roma.n1-lane0' })),
      'its end': () => dryDelete(gateway, `${OURS}/endpoints/roma.n1-lane0`),
      'a RouteAgent': () => routeagent.apply(`${OURS}/routeagents/n1${DRY}`, own('RouteAgent', 'n1')),
    }
    for (const [name, attempt] of Object.entries(attempts)) await eventuallyRefused(t, attempt, refusal, name)
    await gateway.apply(`${OURS}/gateways/n2`, own('Gateway', 'n2'))
    await routeagent.apply(`${OURS}/routeagents/n2`, own('RouteAgent', 'n2'))
    t.pass('its own each writes')
  })

  await attack('token-of-another-cluster', async (t) => {
    const gateway = await onNode('n2', 'sealane-gateway')
    t.teardown(() => gateway.close())
    const foreign = endpoint({ name: 'paris.n2-lane0', node: 'n2' })
    const refusal = /a gateway writes only the Endpoints of its own cluster, roma/
    const made = (): Promise<unknown> => gateway.apply(`${OURS}/endpoints/paris.n2-lane0${DRY}`, foreign)
    await eventuallyRefused(t, made, refusal, 'made')
    await api.apply(`${OURS}/endpoints/paris.n2-lane0`, foreign)
    const removed = (): Promise<unknown> => dryDelete(gateway, `${OURS}/endpoints/paris.n2-lane0`)
    await eventuallyRefused(t, removed, refusal, 'removed')
  })

  await attack('token-beyond-its-work', async (t) => {
    const node = { ...nodeObject('n1') }
    // The agent may patch a Node, and a policy limits that.
    await api.apply('/api/v1/nodes/n8', { ...nodeObject('n8') })
    for (const part of PARTS) {
      const name = `sealane-${part}`
      const token = part === 'gateway' || part === 'routeagent' ? await onNode('n1', name) : await account(name)
      const attempts = beyond(token, { part, node })
      for (const [what, attempt] of Object.entries(attempts)) await t.rejects(attempt(), FORBIDDEN, `${part}: ${what}`)
      token.close()
    }
  })

  await attack('token-dns-writes', async (t) => {
    const dns = await account('sealane-dns')
    t.teardown(() => dns.close())
    for (const path of WRITABLE) {
      for (const method of ['POST', 'PATCH', 'DELETE']) {
        const { status } = await dns.raw(method, method === 'POST' ? path : `${path}/x`, {
          ...(method === 'DELETE' ? {} : { body: {} }),
          contentType: method === 'PATCH' ? 'application/merge-patch+json' : 'application/json',
        })
        t.equal(status, 403, `${method} ${path}`)
      }
    }
  })

  await attack('token-broker', async (t) => {
    const broker = await account('sealane-broker', 'sealane-broker')
    t.teardown(() => broker.close())
    const paths = [...WRITABLE, '/api/v1/nodes', '/api/v1/namespaces/sealane-broker/secrets', '/api/v1/pods', LEASES]
    for (const path of paths) t.equal((await broker.raw('GET', path)).status, 403, path)
    const [own] = brokerObjects().filter(({ kind }) => kind === 'StatefulSet')
    t.match(own, { spec: { template: { spec: { automountServiceAccountToken: false } } } }, 'and its pod has none')
  })

  await attack('token-of-an-editor', async (t) => {
    await api.apply('/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/bob', {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'RoleBinding',
      metadata: { name: 'bob', namespace: 'shop' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'edit' },
      subjects: [{ kind: 'User', name: 'bob', apiGroup: 'rbac.authorization.k8s.io' }],
    })
    const bob = await cluster.apiAs({ user: 'bob' })
    t.teardown(() => bob.close())
    const mcs = '/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop'
    const exported = { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', metadata: { name: 'web' } }
    await eventually(() => bob.post(`${mcs}/serviceexports${DRY}`, exported), { deadlineMs: 30_000, say: 'he exports' })
    const labels = {
      'multicluster.kubernetes.io/service-name': 'web',
      'multicluster.kubernetes.io/source-cluster': 'x',
    }
    const attempts: Readonly<Record<string, () => Promise<unknown>>> = {
      'a ServiceImport': () => bob.post(`${mcs}/serviceimports${DRY}`, serviceImport('web')),
      'its status': () => bob.merge(`${mcs}/serviceimports/theirs/status`, { status: {} }),
      'an EndpointSlice': () => bob.post(`${SLICES}/shop/endpointslices${DRY}`, slice('shop', 'web-x', labels)),
      'an Endpoint': () => bob.post(`${OURS}/endpoints${DRY}`, endpoint()),
      'a Membership': () => bob.merge(`${OURS}/memberships/self`, { spec: { phase: 'leaving' } }),
      'an export elsewhere': () => bob.post(`${mcs.replace('shop', 'kube-system')}/serviceexports${DRY}`, exported),
      'our Secret': () => bob.get(`/api/v1/namespaces/${SYSTEM}/secrets/sealane-identity`),
    }
    for (const [name, attempt] of Object.entries(attempts)) await t.rejects(attempt(), FORBIDDEN, name)
    t.ok((await bob.list(`${OURS}/clusters`).catch(() => undefined)) === undefined, 'a namespace is no cluster')
  })
}

/** All that our parts write, and what else the API has there. */
const WRITABLE = [
  `${SLICES}/shop/endpointslices`,
  '/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop/serviceimports',
  '/apis/multicluster.x-k8s.io/v1beta1/namespaces/shop/serviceexports',
  ...['memberships', 'clusters', 'endpoints', 'gateways', 'routeagents'].map((plural) => `${OURS}/${plural}`),
  '/apis/about.k8s.io/v1beta1/clusterproperties',
  '/api/v1/namespaces/shop/services',
  '/api/v1/namespaces/shop/configmaps',
]

/** Writes that no part needs, so that a stolen token must not allow them. */
function beyond(
  as: KubeRequest,
  { part, node }: { readonly part: (typeof PARTS)[number]; readonly node: Json },
): Readonly<Record<string, () => Promise<unknown>>> {
  const secrets = `/api/v1/namespaces/${SYSTEM}/secrets`
  const role = { apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'ClusterRole', metadata: { name: 'x' }, rules: [] }
  const pod = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'x' },
    spec: { containers: [{ name: 'c', image: 'x' }] },
  }
  const config = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'coredns' }, data: { Corefile: '' } }
  const bound = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} }
  return {
    'another Secret': () => as.get(`${secrets}/other`),
    'all Secrets': () => as.list(secrets),
    'all Secrets of the cluster': () => as.list('/api/v1/secrets'),
    'a new Secret': () => as.post(secrets, { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'x' } }),
    ...(part === 'agent' ? {} : { 'the identity': () => as.get(`${secrets}/sealane-identity`) }),
    'another token': () => as.post(`/api/v1/namespaces/${SYSTEM}/serviceaccounts/sealane-agent/token`, bound),
    'a role': () => as.post(`/apis/rbac.authorization.k8s.io/v1/clusterroles${DRY}`, role),
    'a pod': () => as.post(`/api/v1/namespaces/${SYSTEM}/pods${DRY}`, pod),
    'a command in a pod': () => as.post(`/api/v1/namespaces/${SYSTEM}/pods/x/exec?command=id`, {}),
    'the node': () => as.apply(`/api/v1/nodes/n1${DRY}`, node),
    'the gateway label': () => as.merge('/api/v1/nodes/n8', { metadata: { labels: { 'sealane.io/gateway': '0' } } }),
    "the cluster's DNS": () => as.apply(`/api/v1/namespaces/kube-system/configmaps/coredns${DRY}`, config),
    'our policies': () =>
      as.delete('/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/sealane-agent-slices'),
    'the site file': () => as.merge(`/api/v1/namespaces/${SYSTEM}/configmaps/sealane-site`, { data: {} }),
    ...(part === 'agent'
      ? {}
      : { 'a Service': () => as.merge('/api/v1/namespaces/kube-system/services/kube-dns', { spec: {} }) }),
    ...(part === 'agent' ? {} : { 'a Membership': () => as.merge(`${OURS}/memberships/self`, { spec: {} }) }),
    ...(part === 'agent' ? {} : { 'a Cluster': () => as.delete(`${OURS}/clusters/paris`) }),
    ...(part === 'gateway' || part === 'agent' ? {} : { 'an Endpoint': () => as.delete(`${OURS}/endpoints/x`) }),
    ...(part === 'gateway' ? {} : { 'a Gateway': () => as.delete(`${OURS}/gateways/n1`) }),
    ...(part === 'routeagent' ? {} : { 'a RouteAgent': () => as.delete(`${OURS}/routeagents/n1`) }),
  }
}

const missing = kubeProgramsMissing()
if (missing === undefined) {
  const cluster = await installed()
  await stolen(cluster)
} else {
  t.test('tokens of our own parts', { skip: missing }, () => undefined)
}
