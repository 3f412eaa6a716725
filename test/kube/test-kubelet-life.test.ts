/** The life of pods on the test kubelet: from a Deployment to their removal. */
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import type { KubeObject } from './support/kube-request.ts'
import { execInPod } from './support/node.ts'
import {
  NAMESPACE,
  type Pod,
  type World,
  isReady,
  podNamespaces,
  kubeletMissing,
  processesBelow,
  runPod,
  startWorld,
} from './support/test-kubelet-world.ts'

t.setTimeout(600_000)

const SOCAT = 'alpine/socat:1.7.4.4'
const NETSHOOT = 'nicolaka/netshoot:v0.15'

t.test('pods come, are seen, and go', { skip: kubeletMissing() ?? false }, async (t) => {
  const world = await startWorld(t)
  for (const [name, story] of Object.entries(STORIES)) await t.test(name, (t) => story(t, world))
})

const STORIES: Readonly<Record<string, (t: Test, world: World) => Promise<void>>> = {
  'a Deployment answers on its pods’ addresses, and its Service has ready endpoints': deploymentStory,
  'readiness follows the probe, and a container that ends is started again': probeStory,
  'what others write into a status is put right, once': reconcileStory,
  'a test kubelet that was killed starts its pods again with the same addresses': restartStory,
  'deleting leaves no namespace, no process, no mount and no file': deletionStory,
}

interface Slice extends KubeObject {
  readonly endpoints?: readonly {
    readonly addresses: readonly string[]
    readonly conditions: { readonly ready: boolean }
  }[]
}

/** A server like that of the conformance suite: a shell script that finds its own address and answers with it. */
const SERVER = `first_ip=$(echo "$MY_POD_IPS" | tr ',' '\\n' | awk 'NR == 1')
echo "$first_ip" | grep -qE '^[0-9.]+$' && family=TCP || family=TCP6
exec socat "$family-LISTEN:42,crlf,reuseaddr,fork" SYSTEM:"echo \\"pod ip $first_ip\\""`

async function deploymentStory(t: Test, { cluster, nodes }: World): Promise<void> {
  const { api } = cluster
  const env = [{ name: 'MY_POD_IPS', valueFrom: { fieldRef: { fieldPath: 'status.podIPs' } } }]
  const container = { name: 'hello', image: SOCAT, command: ['/bin/sh', '-c'], args: [SERVER], env }
  await api.post('/apis/apps/v1/namespaces/shop/deployments', {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'hello' },
    spec: {
      replicas: 2,
      selector: { matchLabels: { app: 'hello' } },
      template: { metadata: { labels: { app: 'hello' } }, spec: { containers: [container] } },
    },
  })
  await api.post(`${NAMESPACE}/services`, {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'hello' },
    spec: { selector: { app: 'hello' }, ports: [{ name: 'tcp', port: 42 }] },
  })
  const ready = await eventually(
    async () => {
      const slices = await api.list<Slice>(
        '/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=kubernetes.io/service-name=hello',
      )
      const endpoints = slices.flatMap((slice) => slice.endpoints ?? []).filter(({ conditions }) => conditions.ready)
      return endpoints.length === 2 && endpoints.flatMap(({ addresses }) => addresses)
    },
    { deadlineMs: 30_000, say: 'two ready endpoints' },
  )
  const pods = await api.list<Pod>(`${NAMESPACE}/pods?labelSelector=app=hello`)
  t.strictSame(pods.map(({ status }) => status.podIP).sort(), [...ready].sort(), 'the endpoints are the pods')
  t.strictSame(new Set(pods.map(({ spec }) => spec.nodeName)), new Set(['n1', 'n2']), 'the scheduler spread them')
  for (const address of ready) {
    for (const node of nodes) t.equal(await call(node.netns, address), `pod ip ${address}`)
  }
  const [pod] = pods
  if (pod?.metadata.name === undefined) return
  const other = ready.find((address) => address !== pod.status.podIP) ?? ''
  const argv = ['socat', '-T2', 'STDIO', `TCP:${other}:42`]
  const { stdout } = await execInPod(cluster.kubeconfig, { namespace: 'shop', pod: pod.metadata.name, argv })
  t.equal(stdout.trim(), `pod ip ${other}`, 'a pod reaches a pod of the other node')
}

/** The answer of the server at that address to a program of this host, in a namespace. */
function call(netns: string, address: string): Promise<string> {
  return eventually(() =>
    execFileSync('ip', ['netns', 'exec', netns, 'socat', '-T2', 'STDIO', `TCP:${address}:42,connect-timeout=2`], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim(),
  )
}

/**
 * The node controller marks the pods of a silent node like this, and leaves it to the kubelet to take the mark back.
 */
async function reconcileStory(t: Test, world: World): Promise<void> {
  const { api } = world.cluster
  await runPod(world, 'marked', { containers: [{ name: 'main', image: NETSHOOT }] })
  const path = `${NAMESPACE}/pods/marked`
  const read = () => api.get<Pod & KubeObject>(path)
  await eventually(async () => isReady(await read()), { deadlineMs: 30_000, say: 'ready' })
  const conditions = [{ type: 'Ready', status: 'False', reason: 'NodeStatusUnknown' }]
  await api.merge(`${path}/status`, { status: { conditions } })
  await eventually(async () => isReady(await read()), { deadlineMs: 10_000, say: 'ready again' })
  const settled = await eventually(async () => {
    const [before, after] = [await read(), await new Promise((resolve) => setTimeout(resolve, 1000)).then(read)]
    return before.metadata.resourceVersion === after.metadata.resourceVersion && after
  })
  t.ok(isReady(settled), 'and nobody goes on writing')
}

async function probeStory(t: Test, world: World): Promise<void> {
  const { api, kubeconfig } = world.cluster
  const probe = { exec: { command: ['test', '-e', '/tmp/ready'] }, periodSeconds: 1, failureThreshold: 1 }
  await runPod(world, 'probed', {
    containers: [{ name: 'main', image: NETSHOOT, readinessProbe: probe }],
  })
  const touch = (argv: readonly string[]): ReturnType<typeof execInPod> =>
    execInPod(kubeconfig, { namespace: 'shop', pod: 'probed', argv })
  const becomes = (ready: boolean): Promise<true> =>
    eventually(async () => isReady(await api.get<Pod>(`${NAMESPACE}/pods/probed`)) === ready, { deadlineMs: 10_000 })
  await becomes(false)
  await touch(['touch', '/tmp/ready'])
  await becomes(true)
  await touch(['rm', '/tmp/ready'])
  await becomes(false)

  await runPod(world, 'crashing', {
    containers: [{ name: 'main', image: NETSHOOT, command: ['sh', '-c', 'echo life; sleep 0.2; exit 5'] }],
  })
  const status = await eventually(
    async () => {
      const pod = await api.get<Pod>(`${NAMESPACE}/pods/crashing`)
      const [main] = pod.status.containerStatuses ?? []
      return (main?.restartCount ?? 0) >= 2 && main?.state.waiting?.reason === 'CrashLoopBackOff' && main
    },
    { deadlineMs: 20_000, intervalMs: 50, say: 'two restarts' },
  )
  t.equal(status.lastState.terminated?.exitCode, 5)
  t.equal(status.ready, false)
}

async function restartStory(t: Test, { cluster, nodes, directory }: World): Promise<void> {
  const { api } = cluster
  const [, second] = nodes
  const list = async (): Promise<readonly Pod[]> =>
    (await api.list<Pod>(`${NAMESPACE}/pods?labelSelector=app=hello`)).filter(({ spec }) => spec.nodeName === 'n2')
  const [before] = await list()
  await second.kubelet.kill('SIGKILL')
  await eventually(() => processesBelow(directory, 'n2').length === 0, { say: 'its pods end with it' })
  second.kubelet.start()
  const [after] = await eventually(
    async () => {
      const pods = await list()
      return (pods[0]?.status.containerStatuses?.[0]?.restartCount ?? 0) > 0 && pods.every(isReady) && pods
    },
    { deadlineMs: 20_000, say: 'the pod runs again' },
  )
  t.equal(after?.metadata.uid, before?.metadata.uid)
  t.equal(after?.status.podIP, before?.status.podIP)
  t.equal(await call(second.netns, after?.status.podIP ?? ''), `pod ip ${after?.status.podIP ?? ''}`)
}

async function deletionStory(t: Test, { cluster, nodes, underlay, directory }: World): Promise<void> {
  const { api } = cluster
  t.not(podNamespaces(underlay).length, 0, 'there are pods')
  await api.delete(NAMESPACE)
  await eventually(async () => (await api.find(NAMESPACE)) === undefined, {
    deadlineMs: 60_000,
    say: 'the namespace is gone',
  })
  t.strictSame(podNamespaces(underlay), [])
  for (const node of nodes) {
    t.strictSame(processesBelow(directory, node.name), [])
    t.strictSame(readdirSync(join(directory, `test-kubelet-${node.name}`, 'pods')), [])
    await node.stop()
    t.notOk(existsSync(join(directory, `test-kubelet-${node.name}`, 'pods')))
    t.notMatch(execFileSync('ip', ['-n', node.netns, 'link'], { encoding: 'utf8' }), /cni0|pod[0-9a-f]{8}/)
  }
  t.notMatch(readFileSync('/proc/mounts', 'utf8'), directory)
}
