/** The admission policies, on a real API server under the accounts that they are about. */
import { readFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { adminOf } from '../../cli/kube/access/open-admin.ts'
import { requireAdmission } from '../../cli/kube/admission/ask-admission.ts'
import { openKubeApi } from '../../kubeapi/kube/kube-api.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { eventually } from '../support/eventually.ts'
import { messageOf } from '../support/failure.ts'
import { CRDS, applyCrds, planeWithShop } from './support/apply-manifests.ts'
import { pathOf } from './support/object-path.ts'
import { boundToken } from './support/bound-token.ts'
import { DEFAULT_VALUES } from '../../install/values.ts'
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
  const cluster = await planeWithShop(t)
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
    // Policies see the site file a moment later than it is stored.
    await eventually(() => agent.apply(path(ours), mirrored), { deadlineMs: 30_000, say: 'its own is taken' })
    const refusal = /the agent writes only EndpointSlices with label/
    await eventuallyRefused(t, () => agent.apply(path('new'), slice('new', 'someone')), refusal, 'creates')
    await t.rejects(agent.apply(path('theirs'), slice('theirs', 'agent.sealane.io')), refusal, 'takes over')
    await t.rejects(agent.delete(path('theirs')), refusal, 'deletes')
    await agent.delete(path(ours))
    await api.delete(path('theirs'))
  })

  await t.test('what the rules of a company refuse is named before anything is installed', (t) =>
    companyRules(t, api, cluster.kubeconfig),
  )

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
    const whose = /a gateway takes a lane only for the node that it is on, and gives up only its own/
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
    // A node pool may say it at registration.
    const labels = { 'sealane.io/gateway': '0', zone: 'a' }
    const metadata = { name: 'n4', labels }
    await kubelet.post('/api/v1/nodes', nodeObject('n4', { metadata }))
    const label = /a node does not change label sealane.io\/gateway: it does not decide whether it is a gateway/
    const address =
      /a node does not change annotation sealane.io\/public-address: it does not decide where it is called/
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

/** As `sealane leave` does it. */
async function leaves(api: KubeRequest): Promise<void> {
  await api.merge(MEMBERSHIP, { spec: { phase: 'leaving' } })
  await api.delete(MEMBERSHIP)
}

/** What policies look at reaches them a moment later than it is stored. */
async function reportEndpoint(gateway: KubeRequest, name: string): Promise<void> {
  await eventually(() => gateway.apply(`${ENDPOINTS}/${name}`, endpoint({ name, node: 'n1' })), {
    deadlineMs: 30_000,
    say: `${name} is taken`,
  })
}

/** The node's token is good for node n1 of roma. */
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

const PODS = `/api/v1/namespaces/${SYSTEM}/pods`

type PodSpec = Readonly<Record<string, unknown>> & { readonly containers: readonly [Json] }

function templateOf(kind: string, part: string): PodSpec {
  const object = memberObjects().find((one) => one.kind === kind && one.metadata.name === `sealane-${part}`)
  return (object as unknown as { spec: { template: { spec: PodSpec } } }).spec.template.spec
}

function pod(spec: object, metadata: object = {}): Json {
  return { apiVersion: 'v1', kind: 'Pod', metadata: { generateName: 'try-', namespace: SYSTEM, ...metadata }, spec }
}

/** What the DaemonSets make is let in as it is installed, and of all else what Pod Security calls restricted. */
async function privilegedPods(t: Test, api: KubeRequest): Promise<void> {
  const made =
    (spec: object, metadata: object = {}) =>
    (): Promise<unknown> =>
      api.post(`${PODS}?dryRun=All&fieldValidation=Strict`, pod(spec, metadata))
  const madeBy = (part: string): object => ({
    ownerReferences: [
      { apiVersion: 'apps/v1', kind: 'DaemonSet', name: `sealane-${part}`, uid: 'd1', controller: true },
    ],
  })
  const plain = templateOf('Deployment', 'agent')
  const [container] = plain.containers
  const securityContext = (change: object): PodSpec => {
    const before = container['securityContext'] as object
    return { ...plain, containers: [{ ...container, securityContext: { ...before, ...change } }] }
  }
  const gateway = templateOf('DaemonSet', 'gateway')
  const mounting = (spec: PodSpec, source: object): PodSpec => {
    return { ...spec, volumes: [...(spec['volumes'] as readonly object[]), { name: 'x', ...source }] }
  }
  const who = 'only the DaemonSets of gateway and routeagent'
  const host = new RegExp(`hostNetwork is for ${who}, hostPID and hostIPC for no pod`)
  const mounts = new RegExp(`a hostPath volume is for ${who}`)
  const capabilities = /every container here drops ALL capabilities; NET_ADMIN is for/
  const root = /runAsNonRoot: true is wanted/
  const escalates = /allowPrivilegeEscalation: false, and none is privileged/
  await eventuallyRefused(t, made({ ...plain, hostNetwork: true }), host, 'the network of the node')
  const refused: readonly (readonly [string, () => Promise<unknown>, RegExp])[] = [
    ['processes of the node', made({ ...plain, hostPID: true }), host],
    ['of a gateway, too', made({ ...gateway, hostPID: true }, madeBy('gateway')), host],
    ['a file of the node', made(mounting(plain, { hostPath: { path: '/var/lib/sealane' } })), mounts],
    ['another file for a gateway', made(mounting(gateway, { hostPath: { path: '/' } }), madeBy('gateway')), mounts],
    ['an old kind of volume', made(mounting(plain, { nfs: { server: 's', path: '/' } })), mounts],
    [
      'a port of the node',
      made({ ...plain, containers: [{ ...container, ports: [{ containerPort: 1, hostPort: 1 }] }] }),
      /hostPort is for/,
    ],
    ['all power', made(securityContext({ privileged: true, allowPrivilegeEscalation: undefined })), escalates],
    ['growing power', made(securityContext({ allowPrivilegeEscalation: true })), escalates],
    ['no word about it', made(securityContext({ allowPrivilegeEscalation: undefined })), escalates],
    ['a capability', made(securityContext({ capabilities: { drop: ['ALL'], add: ['NET_ADMIN'] } })), capabilities],
    ['those that all have', made(securityContext({ capabilities: {} })), capabilities],
    ['root', made(securityContext({ runAsUser: 0, runAsNonRoot: false })), root],
    [
      'root, said of the pod',
      made({ ...plain, securityContext: { seccompProfile: { type: 'RuntimeDefault' } } }),
      root,
    ],
    ['no filter of system calls', made(securityContext({ seccompProfile: { type: 'Unconfined' } })), /seccompProfile/],
    ['none said', made({ ...plain, securityContext: { runAsNonRoot: true } }), /seccompProfile/],
    ['another domain', made(securityContext({ seLinuxOptions: { type: 'spc_t' } })), /no pod here has sysctls/],
    [
      'sysctls',
      made({
        ...plain,
        securityContext: {
          ...(plain['securityContext'] as object),
          sysctls: [{ name: 'net.ipv4.ip_forward', value: '1' }],
        },
      }),
      /sysctls/,
    ],
    ['in a container before', made({ ...plain, initContainers: [{ name: 'i', image: 'x' }] }), escalates],
    ['the account of a gateway alone', made(gateway), host],
    ['the DaemonSet of another part', made(gateway, madeBy('routeagent')), host],
    ['another account', made({ ...gateway, serviceAccountName: 'default' }, madeBy('gateway')), host],
  ]
  for (const [name, attempt, refusal] of refused) await t.rejects(attempt(), refusal, name)
  for (const part of ['agent', 'dns']) await made(templateOf('Deployment', part))()
  for (const part of ['gateway', 'routeagent']) await made(templateOf('DaemonSet', part), madeBy(part))()
  t.pass('all parts are let in')
  await debugged(t, api, pod(plain))
  const policy = await api.get('/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/sealane-pods')
  t.notOk(
    (policy['status'] as { typeChecking?: { expressionWarnings?: unknown } } | undefined)?.typeChecking
      ?.expressionWarnings,
    'its expressions fit pods',
  )
}

/** A container that is added later is asked like the others; what else changes of a pod is not looked at. */
async function debugged(t: Test, api: KubeRequest, made: Json): Promise<void> {
  const { metadata } = await api.post(PODS, made)
  const path = `${PODS}/${metadata.name}`
  const added = (securityContext: object) => (): Promise<unknown> =>
    api.merge(`${path}/ephemeralcontainers`, {
      spec: { ephemeralContainers: [{ name: 'debug', image: 'x', securityContext }] },
    })
  await t.rejects(added({ privileged: true })(), /every container here needs allowPrivilegeEscalation/, 'privileged')
  await t.rejects(added({})(), /every container here needs allowPrivilegeEscalation/, 'as kubectl debug makes it')
  await added({ allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } })()
  await api.merge(path, { metadata: { labels: { other: 'free' } } })
  await api.delete(path)
}

const RULES = '/apis/admissionregistration.k8s.io/v1'

/** A rule about workloads, with a limit on namespaces as companies have them: everywhere but where the platform is. */
async function companyRules(t: Test, api: KubeRequest, kubeconfig: string): Promise<void> {
  const name = 'cost-center'
  const rule = { apiGroups: ['apps'], apiVersions: ['*'], resources: ['*'], operations: ['CREATE', 'UPDATE'] }
  const apiVersion = 'admissionregistration.k8s.io/v1'
  await api.apply(`${RULES}/validatingadmissionpolicies/${name}`, {
    apiVersion,
    kind: 'ValidatingAdmissionPolicy',
    metadata: { name },
    spec: {
      matchConstraints: { resourceRules: [rule] },
      validations: [{ expression: `'${name}' in object.metadata.labels`, message: `label ${name} is missing` }],
    },
  })
  await api.apply(`${RULES}/validatingadmissionpolicybindings/${name}`, {
    apiVersion,
    kind: 'ValidatingAdmissionPolicyBinding',
    metadata: { name },
    spec: { policyName: name, validationActions: ['Deny'] },
  })
  const { signal } = new AbortController()
  const kube = await openKubeApi(
    { clock: new SystemClock(), logger: new CapturingLogger() },
    { kubeconfig, namespace: SYSTEM },
  )
  t.teardown(() => kube.close())
  const admin = adminOf(kube)
  const refused = (objects: readonly KubeObject[], force = false): Promise<string> =>
    messageOf(requireAdmission(admin, objects, { force, signal, say: () => undefined }))
  const wanted = memberObjects()
  const workloads = wanted.filter(({ kind }) => kind === 'Deployment' || kind === 'DaemonSet')
  await eventually(async () => /refuses 4 of/.test(await refused(wanted)), {
    deadlineMs: 30_000,
    say: 'the rule is known',
  })
  const said = await refused(wanted)
  for (const { kind, metadata } of workloads)
    t.match(said, `\n  ${kind} ${SYSTEM}/${metadata.name}: `, `${metadata.name} is named`)
  t.match(said, `label ${name} is missing`)
  t.equal(await refused(wanted, true), '(it did not fail)', 'forced')
  const elsewhere = workloads.map((object) => ({
    ...object,
    metadata: { ...object.metadata, namespace: 'not-there-yet' },
  }))
  t.match(
    await refused(elsewhere),
    /asked in namespace default, as its own is not there yet/,
    'before there is a namespace',
  )
  const labelled = workloads.map((object) => ({
    ...object,
    metadata: { ...object.metadata, labels: { ...object.metadata.labels, [name]: '4711' } },
  }))
  t.equal(await refused(labelled), '(it did not fail)', 'what follows the rule is taken')
  const unknown = { apiVersion: 'example.org/v1', kind: 'Thing', metadata: { name: 'x', namespace: SYSTEM } }
  t.equal(await refused([unknown]), '(it did not fail)', 'a kind that is not there yet')
  await api.delete(`${RULES}/validatingadmissionpolicybindings/${name}`)
  await api.delete(`${RULES}/validatingadmissionpolicies/${name}`)
}
