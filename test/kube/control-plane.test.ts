/** The control plane of the kube tier is a real one, and can be broken and repaired. */
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { netnsMissing, withNetns } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type ControlPlane, type ControlPlaneInit, startControlPlane } from './support/control-plane.ts'
import { startEtcd } from './support/etcd.ts'
import { startKubeProxy } from './support/kube-proxy.ts'
import { kubeProgramsMissing } from './support/kube-programs.ts'
import { type KubeObject, type KubeRequest, KubeRequestError, kubeRequest } from './support/kube-request.ts'
import { readKubeconfig } from './support/kubeconfig-file.ts'
import { sliceObject } from '../support/objects/service-objects.ts'
import { nodeObject } from '../support/objects/node-objects.ts'

t.setTimeout(1_800_000)

const SHOP = '/api/v1/namespaces/shop'

t.test('one cluster', { skip: kubeProgramsMissing() ?? false }, async (t) => {
  const cluster = await startControlPlane({
    name: 'milano',
    directory: temporaryFolder(t),
    serviceCIDR: '10.43.0.0/16',
    podCIDR: '10.42.0.0/16',
  })
  t.teardown(() => cluster.stop())
  const { api } = cluster
  await api.post('/api/v1/namespaces', namespace('shop'))

  await t.test('it tells the version of the modules it was built from', async (t) => {
    if (process.env['KUBEBUILDER_ASSETS'] !== undefined) return
    const pinned = /k8s\.io\/kubernetes (v\S+)/.exec(readFileSync(new URL('go.mod', import.meta.url), 'utf8'))?.[1]
    t.match(await api.get<object>('/version'), { gitVersion: pinned })
  })

  await t.test('RBAC refuses a stranger, and lets in whom a role names', async (t) => {
    const stranger = await cluster.apiAs({ user: 'stranger' })
    t.teardown(() => stranger.close())
    await refused(t, 403, stranger.list(`${SHOP}/services`))
    await api.apply('/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/view', {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'RoleBinding',
      metadata: { name: 'view', namespace: 'shop' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'view' },
      subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name: 'stranger' }],
    })
    await eventually(() => stranger.list(`${SHOP}/services`))
    await refused(t, 403, stranger.post(`${SHOP}/configmaps`, configMap('mine')))
  })

  await t.test('nobody comes in with an expired certificate, a wrong token, or another cluster’s', async (t) => {
    const path = '/api/v1/namespaces'
    const expired = await cluster.apiAs({ user: 'late', groups: ['system:masters'], validMs: -60_000 })
    t.teardown(() => expired.close())
    await refused(t, 401, expired.list(path))
    const { status } = await rawWithToken(cluster, 'not.a.token')
    t.equal(status, 401)
  })

  await t.test('a ServiceAccount has a real token, and the controllers made the account', async (t) => {
    await eventually(() => api.find(`${SHOP}/serviceaccounts/default`))
    const account = await cluster.apiAs({ serviceAccount: { namespace: 'shop', name: 'default' } })
    t.teardown(() => account.close())
    const review = await account.post<{ status: { userInfo: object } }>(
      '/apis/authentication.k8s.io/v1/selfsubjectreviews',
      { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' },
    )
    t.match(review.status.userInfo, { username: 'system:serviceaccount:shop:default' })
    await refused(t, 403, account.list(`${SHOP}/secrets`))
  })

  await t.test('a ValidatingAdmissionPolicy refuses what its expression refuses', async () => {
    await denyServicesNamed(api, 'forbidden')
    await eventually(
      async () => {
        const error = await api.post(`${SHOP}/services`, service('forbidden')).then(
          () => api.delete(`${SHOP}/services/forbidden`),
          (error: unknown) => error,
        )
        return error instanceof KubeRequestError && error.message.includes('this name is not for you')
      },
      { say: 'the policy is at work', deadlineMs: 30_000 },
    )
    await api.post(`${SHOP}/services`, service('allowed'))
  })

  await t.test('EndpointSlices are made for a Service and its Pods', async (t) => {
    await api.post('/api/v1/nodes', nodeObject('n1'))
    const node = await eventually(async () => withPodCIDR(await api.get('/api/v1/nodes/n1')), { deadlineMs: 20_000 })
    t.equal(node, '10.42.0.0/24', 'the node gets its part of the pod range')
    await api.post(`${SHOP}/services`, service('web'))
    await readyPod(api, 'web-1', '10.42.0.7')
    t.same(await eventually(() => endpointsOf(api, 'web'), { deadlineMs: 20_000 }), ['10.42.0.7 ready'])
  })

  for (const [program, how] of [
    ['kube-apiserver', 'SIGKILL'],
    ['etcd', 'SIGKILL'],
    ['kube-controller-manager', 'SIGKILL'],
    ['kube-apiserver', 'SIGSTOP'],
  ] as const) {
    await t.test(`${program} comes back after ${how}, with all that was there`, async (t) => {
      if (how === 'SIGSTOP') process.kill(cluster.pids()[program] ?? 0, how)
      else await cluster.kill(program)
      if (program === 'kube-apiserver') await eventually(() => isSilent(api), { say: 'nobody answers' })
      if (program === 'etcd') await eventually(async () => (await readiness(api)) !== 200, { deadlineMs: 30_000 })
      await cluster.restart(program)
      t.same(await endpointsOf(api, 'web'), ['10.42.0.7 ready'])
      const name = `after-${program}-${how.toLowerCase()}`
      await api.post(`${SHOP}/services`, service(name))
      // The controllers may return as slowly as the API server does.
      await eventually(() => endpointsOf(api, name), { deadlineMs: 120_000, say: 'the controllers are at work' })
    })
  }

  await t.test('a namespace is emptied and goes', async () => {
    await api.delete(`${SHOP}/pods/web-1?gracePeriodSeconds=0`)
    await api.delete(SHOP)
    await eventually(async () => (await api.find(SHOP)) === undefined, { deadlineMs: 60_000, intervalMs: 200 })
  })
})

/** A signal takes a moment to arrive, in which a last answer may still come. */
async function isSilent(api: KubeRequest): Promise<boolean> {
  return await api.raw('GET', '/readyz', { timeoutMs: 500 }).then(
    () => false,
    () => true,
  )
}

async function readiness(api: KubeRequest): Promise<number> {
  return (await api.raw('GET', '/readyz')).status
}

t.test('two clusters', { skip: kubeProgramsMissing() ?? netnsMissing() ?? false }, async (t) => {
  await withNetns(async (ns) => {
    await ns.exec('ip', ['address', 'add', '192.0.2.1/32', 'dev', 'lo'])
    const folder = temporaryFolder(t)
    const etcd = await startEtcd({ directory: join(folder, 'etcd') })
    t.teardown(() => etcd.stop())
    const start = (init: Partial<ControlPlaneInit> & { name: string }): Promise<ControlPlane> =>
      startControlPlane({ directory: join(folder, init.name), serviceCIDR: '10.43.0.0/16', etcd, ...init })
    for (const name of ['milano', 'roma']) mkdirSync(join(folder, name))
    const [milano, roma] = await Promise.all([
      start({ name: 'milano' }),
      start({ name: 'roma', netns: ns.name, listen: '192.0.2.1', scheduler: true }),
    ])
    t.teardown(() => Promise.all([milano.stop(), roma.stop()]))

    await t.test('they share an etcd and nothing else', async (t) => {
      await milano.api.post('/api/v1/namespaces', namespace('shop'))
      t.equal(await roma.api.find('/api/v1/namespaces/shop'), undefined)
      const wrong = kubeRequest({ ...readKubeconfig(milano.kubeconfig), url: roma.url })
      t.teardown(() => wrong.close())
      await t.rejects(wrong.raw('GET', '/version'), /certificate/, 'each has its own CA')
    })

    await t.test('one in a network namespace is reached from both sides', async (t) => {
      t.equal(roma.insideUrl, 'https://192.0.2.1:6443')
      t.match(roma.url, /^https:\/\/127\.0\.0\.1:\d+$/)
      const inside = readKubeconfig(roma.insideKubeconfig).url
      const answer = await ns.exec('curl', ['--silent', '--cacert', roma.caFile, `${inside}/version`])
      t.match(JSON.parse(answer), { platform: /linux/ })
      const slice = '/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes'
      t.match(await roma.api.get(slice), { endpoints: [{ addresses: ['192.0.2.1'] }] })
    })

    await t.test('a scheduler puts a Pod on the node', async (t) => {
      await roma.api.post('/api/v1/nodes', nodeObject('n1'))
      await roma.api.merge('/api/v1/nodes/n1/status', {
        status: { allocatable: { pods: '10' }, conditions: [{ type: 'Ready', status: 'True' }] },
      })
      await roma.api.post('/api/v1/namespaces/default/pods', {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name: 'web' },
        spec: { containers: [{ name: 'web', image: 'none' }], tolerations: [{ operator: 'Exists' }] },
      })
      const node = await eventually(
        async () => {
          const pod = await roma.api.get('/api/v1/namespaces/default/pods/web')
          return (pod['spec'] as { nodeName?: string }).nodeName
        },
        { deadlineMs: 20_000, say: 'the Pod has a node' },
      )
      t.equal(node, 'n1')
    })

    await t.test('kube-proxy makes the address of a Service work on a node', async (t) => {
      await roma.api.merge('/api/v1/nodes/n1/status', {
        status: { addresses: [{ type: 'InternalIP', address: '192.0.2.1' }] },
      })
      const { spec } = await roma.api.post<{ spec: { clusterIP: string } }>('/api/v1/namespaces/default/services', {
        ...service('web'),
        spec: { ports: [{ name: 'http', port: 80 }] },
      })
      await roma.api.post('/apis/discovery.k8s.io/v1/namespaces/default/endpointslices', {
        ...sliceObject({ name: 'web-1', namespace: 'default', labels: { 'kubernetes.io/service-name': 'web' } }),
        endpoints: [{ addresses: ['192.0.2.1'], conditions: { ready: true } }],
        ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
      })
      ns.spawn('socat', ['TCP4-LISTEN:8080,fork,reuseaddr', 'SYSTEM:echo hello'])
      const proxy = await startKubeProxy({ cluster: roma, node: 'n1', netns: ns.name, directory: folder })
      t.teardown(() => proxy.stop())
      // The namespace has no default route, and packets need one before they can be redirected.
      await ns.exec('ip', ['route', 'add', 'default', 'dev', 'lo'])
      const answer = await eventually(
        async () => {
          const { stdout } = await ns.tryExec('socat', ['-T2', '-', `TCP4:${spec.clusterIP}:80,connect-timeout=1`])
          return stdout === '' ? undefined : stdout
        },
        { deadlineMs: 20_000, say: 'the Service answers' },
      )
      t.equal(answer, 'hello\n')
    })

    await t.test('what is stopped runs no more, and a mistake is told with the log', async (t) => {
      const pids = Object.values(milano.pids())
      await milano.stop()
      for (const pid of pids.filter((pid) => pid !== etcd.program.pid)) t.notOk(existsSync(`/proc/${pid}`))
      await t.rejects(
        start({ name: 'milano', apiServerArguments: ['--no-such-flag'] }),
        /kube-apiserver ended with 1; its log ends with:\n[^]*unknown flag: --no-such-flag/,
      )
    })
  })
})

function namespace(name: string): KubeObject {
  return { apiVersion: 'v1', kind: 'Namespace', metadata: { name } }
}

function configMap(name: string): KubeObject {
  return { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } }
}

function service(name: string): KubeObject {
  const spec = { selector: { app: 'web' }, ports: [{ name: 'http', port: 80, targetPort: 8080 }] }
  return { apiVersion: 'v1', kind: 'Service', metadata: { name }, spec }
}

function withPodCIDR(node: KubeObject): string | undefined {
  return (node['spec'] as { podCIDR?: string }).podCIDR
}

async function readyPod(api: KubeRequest, name: string, podIP: string): Promise<void> {
  await api.post(`${SHOP}/pods`, {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, labels: { app: 'web' } },
    spec: { nodeName: 'n1', containers: [{ name: 'web', image: 'none', ports: [{ containerPort: 8080 }] }] },
  })
  const conditions = [{ type: 'Ready', status: 'True' }]
  await api.merge(`${SHOP}/pods/${name}/status`, {
    status: { phase: 'Running', podIP, podIPs: [{ ip: podIP }], conditions },
  })
}

/** The addresses with their readiness, sorted; undefined while there are none. */
async function endpointsOf(api: KubeRequest, name: string): Promise<string[] | undefined> {
  interface Slice {
    readonly endpoints?: readonly { addresses: readonly string[]; conditions: { ready: boolean } }[]
  }
  const path = `/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=kubernetes.io/service-name%3D${name}`
  const endpoints = (await api.list<Slice>(path)).flatMap((slice) => slice.endpoints ?? [])
  const said = endpoints.map((one) => `${one.addresses.join()} ${one.conditions.ready ? 'ready' : 'not ready'}`)
  return said.length === 0 ? undefined : said.sort()
}

async function denyServicesNamed(api: KubeRequest, name: string): Promise<void> {
  const apiVersion = 'admissionregistration.k8s.io/v1'
  const rule = { apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['services'] }
  await api.apply(`/apis/${apiVersion}/validatingadmissionpolicies/names`, {
    apiVersion,
    kind: 'ValidatingAdmissionPolicy',
    metadata: { name: 'names' },
    spec: {
      failurePolicy: 'Fail',
      matchConstraints: { resourceRules: [rule] },
      validations: [{ expression: `object.metadata.name != '${name}'`, message: 'this name is not for you' }],
    },
  })
  await api.apply(`/apis/${apiVersion}/validatingadmissionpolicybindings/names`, {
    apiVersion,
    kind: 'ValidatingAdmissionPolicyBinding',
    metadata: { name: 'names' },
    spec: { policyName: 'names', validationActions: ['Deny'] },
  })
}

async function refused(t: Test, status: number, request: Promise<unknown>): Promise<void> {
  const answer = await request.then(
    () => 'done',
    (error: unknown) => (error instanceof KubeRequestError ? error.status : error),
  )
  t.equal(answer, status)
}

async function rawWithToken(cluster: ControlPlane, token: string): Promise<{ status: number }> {
  const client = kubeRequest({ url: cluster.url, ca: readFileSync(cluster.caFile, 'utf8'), credentials: { token } })
  try {
    return await client.raw('GET', '/api/v1/namespaces')
  } finally {
    client.close()
  }
}
