/** The test kubelet runs containers as they are written, or says why it does not. */
import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { Duplex } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { type KubeApi, openKubeApi } from '../../kubeapi/kube/kube.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { eventually } from '../support/eventually.ts'
import type { Json, KubeObject } from './support/kube-request.ts'
import { execInPod } from './support/node.ts'
import {
  NAMESPACE,
  type Pod,
  type World,
  isReady,
  kubeletMissing,
  processesWith,
  runPod,
  startWorld,
} from './support/test-kubelet-world.ts'

t.setTimeout(600_000)

const NETSHOOT = 'nicolaka/netshoot:v0.15'

t.test('containers on two nodes', { skip: kubeletMissing() ?? false }, async (t) => {
  const world = await startWorld(t)
  for (const [name, story] of Object.entries(STORIES)) await t.test(name, (t) => story(t, world))
})

const STORIES: Readonly<Record<string, (t: Test, world: World) => Promise<void>>> = {
  'commands run in a pod, over both protocols, with output, exit code and terminal': execStory,
  'ports on the loopback of a pod are forwarded, with large data, errors and ends': forwardStory,
  'a port is forwarded to who may do that, and to nobody else': forwardRightsStory,
  'what a container writes can be read, in part and while it is written': logStory,
  'a pod on the node’s network, and one on each node': hostNetworkStory,
  'volumes: configuration, a token that works, a claim, and what they may write': volumeStory,
  'what cannot be honoured is refused with the reason': refusalStory,
}

async function execStory(t: Test, world: World): Promise<void> {
  await runPod(world, 'request', {
    containers: [{ name: 'request', image: NETSHOOT, args: ['/bin/sh', '-ec', 'while :; do echo .; sleep 5; done'] }],
  })
  const target = { namespace: 'shop', pod: 'request' }
  const { kubeconfig } = world.cluster
  for (const protocol of ['spdy', 'websocket'] as const) {
    const both = await execInPod(kubeconfig, {
      ...target,
      protocol,
      argv: ['sh', '-c', 'echo out; echo err >&2; exit 3'],
    })
    t.strictSame(both, { code: 3, stdout: 'out\n', stderr: 'err\n' }, `${protocol}: both outputs and the exit code`)
    const input = await execInPod(kubeconfig, { ...target, protocol, argv: ['tr', 'a-z', 'A-Z'], input: 'text' })
    t.strictSame(input, { code: 0, stdout: 'TEXT', stderr: '' }, `${protocol}: input`)
    const tty = await execInPod(kubeconfig, {
      ...target,
      protocol,
      tty: true,
      argv: ['sh', '-c', 'test -t 1 && echo yes'],
    })
    t.strictSame(tty, { code: 0, stdout: 'yes\r\n', stderr: '' }, `${protocol}: a terminal`)
    const none = await execInPod(kubeconfig, { ...target, protocol, argv: ['no-such-program'] })
    t.equal(none.code, 255)
    t.match(none.stderr, /executable file not found/)
  }
  const started = performance.now()
  const quirk = await execInPod(kubeconfig, { ...target, quirk: true, argv: ['sh', '-c', 'echo "pod ip" 2>&1'] })
  t.strictSame(quirk, { code: 0, stdout: 'pod ip\r\n', stderr: '' }, 'as the conformance suite asks')
  t.ok(performance.now() - started < 4000, 'within its deadline')
  const failed = await execInPod(kubeconfig, { ...target, quirk: true, argv: ['sh', '-c', 'exit 9'] })
  t.equal(failed.code, 9, 'its exit code arrives too')
  const resolver = await execInPod(kubeconfig, { ...target, argv: ['cat', '/etc/resolv.conf'] })
  t.equal(
    resolver.stdout,
    'nameserver 10.43.0.10\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n',
  )
  const slow = await execInPod(kubeconfig, { ...target, argv: ['sleep', '987'], timeoutSeconds: 1 })
  t.equal(slow.code, 255)
  await eventually(() => !processesWith('sleep\x00987').length, { say: 'a command whose caller has gone is ended' })
}

/** A pod that answers on its loopback alone: 7000 sends back what it gets, 7001 sends so many bytes and ends. */
const LOOPBACK = {
  echo: 7000,
  burst: 7001,
  burstBytes: 4 << 20,
  /** Nothing listens there. */
  unused: 7002,
}

async function runLoopbackPod(world: World, name: string): Promise<Pod> {
  const listen = (port: number): string => `socat TCP4-LISTEN:${port},bind=127.0.0.1,reuseaddr,fork`
  const echo = `${listen(LOOPBACK.echo)} EXEC:cat &`
  const burst = `exec ${listen(LOOPBACK.burst)} SYSTEM:'head -c ${LOOPBACK.burstBytes} /dev/zero'`
  const listening = [LOOPBACK.echo, LOOPBACK.burst].map((port) => `nc -z 127.0.0.1 ${port}`).join(' && ')
  const readinessProbe = { exec: { command: ['sh', '-c', listening] }, periodSeconds: 1 }
  const command = ['sh', '-c', `${echo} ${burst}`]
  await runPod(world, name, { containers: [{ name: 'main', image: NETSHOOT, command, readinessProbe }] })
  return await eventually(
    async () => {
      const pod = await world.cluster.api.get<Pod>(`${NAMESPACE}/pods/${name}`)
      return isReady(pod) && pod
    },
    { deadlineMs: 20_000, say: `pod ${name} listens` },
  )
}

/** The API client of the product, as the user of that kubeconfig. */
async function productClient(t: Test, kubeconfig: string): Promise<KubeApi> {
  const deps = { clock: new SystemClock(), logger: new CapturingLogger() }
  const kube = await openKubeApi(deps, { namespace: 'shop', kubeconfig })
  t.teardown(() => kube.close())
  return kube
}

/** The first `bytes` bytes that arrive. The protocol cannot end one direction, so an echo never ends by itself. */
async function received(stream: Duplex, bytes: number): Promise<Buffer> {
  const parts: Buffer[] = []
  let size = 0
  for await (const part of stream.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    parts.push(part)
    size += part.length
    if (size >= bytes) break
  }
  return Buffer.concat(parts)
}

async function forwardStory(t: Test, world: World): Promise<void> {
  const { cluster, nodes } = world
  const signal = AbortSignal.timeout(120_000)
  const pod = await runLoopbackPod(world, 'loopback')
  const node = nodes.find(({ name }) => name === pod.spec.nodeName)
  const inNode = ['netns', 'exec', node?.netns ?? '', 'nc', '-z', '-w', '2', pod.status.podIP ?? '']
  t.throws(() => execFileSync('ip', [...inNode, String(LOOPBACK.echo)]), 'the node itself cannot reach the port')

  const kube = await productClient(t, cluster.kubeconfig)
  const forward = (port: number): Promise<Duplex> => kube.forward({ namespace: 'shop', pod: 'loopback', port }, signal)
  const sent = randomBytes(8 << 20)
  const echo = await forward(LOOPBACK.echo)
  const echoed = received(echo, sent.length)
  echo.write(sent)
  t.ok((await echoed).equals(sent), 'large data both ways at once')
  const others = await Promise.all(
    ['one', 'two', 'three'].map(async (text) => {
      const stream = await forward(LOOPBACK.echo)
      stream.write(text)
      const answer = await received(stream, text.length)
      stream.destroy()
      return answer.toString()
    }),
  )
  t.strictSame(others, ['one', 'two', 'three'], 'several connections at once, beside one that is open')

  const burst = await buffer(await forward(LOOPBACK.burst))
  t.equal(burst.length, LOOPBACK.burstBytes, 'the connection ends when the pod ends it, after all its data')

  const refused = await forward(LOOPBACK.unused)
  refused.resume()
  const [error] = (await once(refused, 'error')) as [Error]
  t.match(error, { reason: 'ForwardFailed', message: /^forward Pod shop\/loopback port 7002: .*refused/ })

  const closed = once(echo, 'close')
  echo.on('error', (error) => t.comment(`the connection ended with: ${error.message}`)).resume()
  await cluster.api.raw('DELETE', `${NAMESPACE}/pods/loopback?gracePeriodSeconds=0`)
  await closed
  t.pass('an open connection ends with its pod')
  await eventually(async () => (await cluster.api.find(`${NAMESPACE}/pods/loopback`)) === undefined)
  await t.rejects(forward(LOOPBACK.echo), { code: 'NotFound' }, 'a pod that is gone')
}

async function forwardRightsStory(t: Test, world: World): Promise<void> {
  await runLoopbackPod(world, 'guarded')
  const forwardAs = async (user: string, verbs: readonly string[]): Promise<Duplex> => {
    await grantForwarding(world, user, verbs)
    const kube = await productClient(t, await world.cluster.kubeconfigFor({ user }))
    return kube.forward({ namespace: 'shop', pod: 'guarded', port: LOOPBACK.burst }, AbortSignal.timeout(60_000))
  }
  const burst = await buffer(await forwardAs('forwarder', ['get', 'create']))
  t.equal(burst.length, LOOPBACK.burstBytes, 'get and create are enough')
  await t.rejects(
    forwardAs('only-create', ['create']),
    { reason: 'Forbidden', message: /cannot get resource "pods\/portforward"/ },
    'create alone is not',
  )
  // The server checks create after it has let the request in by get, and then names neither verb nor subresource.
  await t.rejects(
    forwardAs('only-get', ['get']),
    { reason: 'Forbidden', message: /pods "guarded" is forbidden/ },
    'get alone is not',
  )
}

/** Resolves when the server knows the rights. */
async function grantForwarding({ cluster }: World, user: string, verbs: readonly string[]): Promise<void> {
  const { api } = cluster
  const group = 'rbac.authorization.k8s.io'
  const path = `/apis/${group}/v1/namespaces/shop`
  const common = { apiVersion: `${group}/v1`, metadata: { name: user } }
  const rules = [{ apiGroups: [''], resources: ['pods/portforward'], verbs }]
  await api.apply(`${path}/roles/${user}`, { ...common, kind: 'Role', rules })
  await api.apply(`${path}/rolebindings/${user}`, {
    ...common,
    kind: 'RoleBinding',
    roleRef: { apiGroup: group, kind: 'Role', name: user },
    subjects: [{ apiGroup: group, kind: 'User', name: user }],
  })
  for (const verb of verbs) {
    const resourceAttributes = { namespace: 'shop', verb, resource: 'pods', subresource: 'portforward' }
    const review = { apiVersion: 'authorization.k8s.io/v1', kind: 'SubjectAccessReview' }
    const asked = { ...review, metadata: {}, spec: { user, resourceAttributes } }
    await eventually(
      async () => {
        const path = '/apis/authorization.k8s.io/v1/subjectaccessreviews'
        const { status } = await api.post<{ readonly status: { readonly allowed: boolean } }>(path, asked)
        return status.allowed
      },
      { say: `${user} may ${verb} pods/portforward` },
    )
  }
}

async function logStory(t: Test, world: World): Promise<void> {
  const { api } = world.cluster
  await runPod(world, 'talker', {
    containers: [
      {
        name: 'talker',
        image: NETSHOOT,
        command: ['sh', '-c', 'for i in 1 2 3; do echo line $i; done; exec sleep 600'],
      },
    ],
  })
  const log = async (query: string): Promise<string> => {
    const { text } = await api.raw('GET', `${NAMESPACE}/pods/talker/log${query}`)
    return text
  }
  await eventually(async () => (await log('')) === 'line 1\nline 2\nline 3\n')
  t.equal(await log('?tailLines=1'), 'line 3\n')
  t.match(await log('?tailLines=1&timestamps=true'), /^20\d\d-\S+Z line 3\n$/)
  const { status, text } = await api.raw('GET', `${NAMESPACE}/pods/talker/log?previous=true`)
  t.equal(status, 400)
  t.match(text, /no previous life/)

  await runPod(
    world,
    'last-words',
    {
      restartPolicy: 'Never',
      containers: [{ name: 'last-words', image: NETSHOOT, command: ['sh', '-c', 'sleep 1; echo bye; exit 4'] }],
    },
    'Failed',
  )
  const late = { restartPolicy: 'Never', activeDeadlineSeconds: 1 }
  const sleeper = { name: 'late', image: NETSHOOT, command: ['sleep', '600'] }
  const ended = await runPod(world, 'late', { ...late, containers: [sleeper] }, 'Failed')
  t.match(ended.status, { reason: 'DeadlineExceeded' }, 'its time is over')
  const followed = await api.raw('GET', `${NAMESPACE}/pods/last-words/log?follow=true`)
  t.equal(followed.text, 'bye\n', 'following ends with the container')
}

async function hostNetworkStory(t: Test, world: World): Promise<void> {
  const { cluster, nodes } = world
  const { api } = cluster
  const container = { name: 'agent', image: 'host:pause' }
  await api.post('/apis/apps/v1/namespaces/shop/daemonsets', {
    apiVersion: 'apps/v1',
    kind: 'DaemonSet',
    metadata: { name: 'agent' },
    spec: {
      selector: { matchLabels: { app: 'agent' } },
      template: {
        metadata: { labels: { app: 'agent' } },
        spec: {
          hostNetwork: true,
          dnsPolicy: 'ClusterFirstWithHostNet',
          containers: [
            {
              ...container,
              securityContext: { capabilities: { drop: ['ALL'], add: ['NET_ADMIN'] } },
              ports: [{ containerPort: 9 }],
            },
          ],
        },
      },
    },
  })
  const pods = await eventually(
    async () => {
      const list = await api.list<Pod>(`${NAMESPACE}/pods?labelSelector=app=agent`)
      return list.length === 2 && list.every(isReady) && list
    },
    { deadlineMs: 30_000, say: 'a pod on each node' },
  )
  t.strictSame(
    pods.map(({ spec, status }) => [spec.nodeName, status.podIP]).sort(),
    nodes.map(({ name, address }) => [name, address]),
    'each has its node’s address',
  )
  const pod = pods.find(({ spec }) => spec.nodeName === 'n2')?.metadata.name ?? ''
  const inside = (argv: readonly string[]): ReturnType<typeof execInPod> =>
    execInPod(cluster.kubeconfig, { namespace: 'shop', pod, argv })
  t.match(
    (await inside(['ip', '-4', 'address', 'show', 'eth0'])).stdout,
    '192.0.2.12/24',
    'it is in the node’s namespace',
  )
  t.equal((await inside(['hostname'])).stdout, 'n2\n')
  t.equal(
    (await inside(['ip', 'link', 'add', 'sl-test', 'type', 'bridge'])).code,
    0,
    'NET_ADMIN is enough for a device',
  )
  t.equal((await inside(['ip', 'link', 'del', 'sl-test'])).code, 0)
  t.not((await inside(['mount', '-t', 'tmpfs', 'x', '/mnt'])).code, 0, 'and not for a mount')
}

async function volumeStory(t: Test, world: World): Promise<void> {
  const { api, kubeconfig } = world.cluster
  await api.post(`${NAMESPACE}/configmaps`, {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'settings' },
    data: { 'site.yaml': 'kind: Site\n', level: 'debug' },
  })
  await api.post('/api/v1/persistentvolumes', {
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: { name: 'disk' },
    spec: { capacity: { storage: '1Gi' }, accessModes: ['ReadWriteOnce'], hostPath: { path: '/disks/a' } },
  })
  await api.post(`${NAMESPACE}/persistentvolumeclaims`, {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { name: 'data' },
    spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } }, storageClassName: '' },
  })
  // A claim that was seen before its volume is tried again only 15 s later: most of the time that a pod is given.
  await eventually(
    async () => {
      const claim = await api.get<{ status: { phase?: string } }>(`${NAMESPACE}/persistentvolumeclaims/data`)
      return claim.status.phase === 'Bound'
    },
    { deadlineMs: 60_000, say: 'the claim is bound' },
  )
  await runPod(world, 'volumes', {
    initContainers: [
      {
        name: 'first',
        image: NETSHOOT,
        command: ['sh', '-c', 'echo prepared >/data/file'],
        volumeMounts: [{ name: 'data', mountPath: '/data' }],
      },
    ],
    containers: [
      {
        name: 'main',
        image: NETSHOOT,
        env: [
          { name: 'LEVEL', valueFrom: { configMapKeyRef: { name: 'settings', key: 'level' } } },
          { name: 'TEXT', value: 'level is $(LEVEL)' },
        ],
        securityContext: {
          runAsUser: 1000,
          runAsNonRoot: true,
          readOnlyRootFilesystem: true,
          allowPrivilegeEscalation: false,
        },
        volumeMounts: [
          { name: 'settings', mountPath: '/etc/sealane' },
          { name: 'data', mountPath: '/data' },
          { name: 'scratch', mountPath: '/tmp' },
        ],
      },
    ],
    volumes: [
      { name: 'settings', configMap: { name: 'settings' } },
      { name: 'data', persistentVolumeClaim: { claimName: 'data' } },
      { name: 'scratch', emptyDir: {} },
    ],
  })
  const inside = async (script: string): Promise<string> => {
    const result = await execInPod(kubeconfig, { namespace: 'shop', pod: 'volumes', argv: ['sh', '-c', script] })
    return result.stdout + result.stderr
  }
  t.equal(await inside('cat /etc/sealane/site.yaml'), 'kind: Site\n')
  t.equal(await inside('echo $TEXT; id -u; cat /data/file'), 'level is debug\n1000\nprepared\n')
  t.equal(await inside('echo x >/tmp/x && cat /tmp/x'), 'x\n')
  t.match(await inside('touch /x'), /Read-only file system/)
  t.match(await inside('touch /etc/sealane/x'), /Read-only file system|Permission denied/)
  const token = '/var/run/secrets/kubernetes.io/serviceaccount'
  t.equal(await inside(`cat ${token}/namespace`), 'shop')
  const asked = await inside(
    `curl -sS --cacert ${token}/ca.crt -H "authorization: Bearer $(cat ${token}/token)" ` +
      'https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/shop/pods',
  )
  t.match(asked, /system:serviceaccount:shop:default.*cannot list/, 'the API server knows who asks')

  await api.merge(`${NAMESPACE}/configmaps/settings`, { data: { 'site.yaml': 'kind: Changed\n' } })
  await eventually(async () => (await inside('cat /etc/sealane/site.yaml')) === 'kind: Changed\n', {
    deadlineMs: 30_000,
    intervalMs: 500,
    say: 'the change is seen in the volume',
  })
}

async function refusalStory(t: Test, world: World): Promise<void> {
  const { api } = world.cluster
  const refused: readonly (readonly [string, Json, RegExp])[] = [
    ['host-pid', { hostPID: true, containers: [pause()] }, /spec\.hostPID: true is not supported/],
    [
      'host-port',
      { containers: [{ ...pause(), ports: [{ containerPort: 80, hostPort: 80 }] }] },
      /hostPort: 80 is supported/,
    ],
    [
      'nfs',
      { containers: [pause()], volumes: [{ name: 'x', nfs: { server: '192.0.2.9', path: '/' } }] },
      /spec\.volumes\[0\]\.nfs\.\w+: \S+ is not supported/,
    ],
  ]
  for (const [name, spec, reason] of refused) {
    const pod = await runPod(world, name, spec, 'Failed')
    t.equal(pod.status.reason, 'UnsupportedByTestKubelet')
    t.match(pod.status.message, reason)
    await eventually(async () => {
      const events = await api.list<{ reason: string; message: string } & KubeObject>(
        `${NAMESPACE}/events?fieldSelector=involvedObject.name=${name}`,
      )
      return events.some(
        ({ reason, message }) => reason === 'UnsupportedByTestKubelet' && message === pod.status.message,
      )
    })
  }
  const containers = [{ ...pause(), image: 'nginx:1' }]
  await api.post(`${NAMESPACE}/pods`, {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'image' },
    spec: { containers },
  })
  const waits = await eventually(
    async () => {
      const pod = await api.get<Pod>(`${NAMESPACE}/pods/image`)
      return pod.status.containerStatuses?.[0]?.state.waiting?.reason === 'ImagePullBackOff' && pod
    },
    { deadlineMs: 20_000, say: 'a pod waits for an image that is not there' },
  )
  const { waiting } = waits.status.containerStatuses?.[0]?.state ?? {}
  t.match(waiting, { reason: 'ImagePullBackOff', message: /image "nginx:1" is not in the test kubelet's images file/ })
  const node = await api.get<KubeObject & { status: { images: object[] } }>(
    `/api/v1/nodes/${waits.spec.nodeName ?? ''}`,
  )
  t.ok(node.status.images.length > 0, 'a node tells which images it has')
  // A Failed pod would be replaced at once, and again, and again.
  await api.post('/apis/apps/v1/namespaces/shop/replicasets', {
    apiVersion: 'apps/v1',
    kind: 'ReplicaSet',
    metadata: { name: 'owned' },
    spec: {
      selector: { matchLabels: { app: 'owned' } },
      template: { metadata: { labels: { app: 'owned' } }, spec: { hostIPC: true, containers: [pause()] } },
    },
  })
  const [owned] = await eventually(
    async () => {
      const pods = await api.list<Pod>(`${NAMESPACE}/pods?labelSelector=app=owned`)
      return pods[0]?.status.containerStatuses?.[0]?.state.waiting?.message !== undefined && pods
    },
    { deadlineMs: 20_000, say: 'a pod of the ReplicaSet has been looked at by its node' },
  )
  t.equal(owned?.status.phase, 'Pending', 'a controller’s pod waits')
  t.match(owned?.status.containerStatuses?.[0]?.state.waiting?.message, /spec\.hostIPC: true is not supported/)
}

const pause = (): Json => ({ name: 'main', image: 'host:pause' })
