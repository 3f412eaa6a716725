/**
 * Test clusters with IPv4 and IPv6 behave as real ones, before anything of ours is installed: two nodes, real packets.
 */
import t, { type Test } from 'tap'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { same } from './mcs/expect.ts'
import { type Site, helloService, lookUp, openForCalls } from './support/callers.ts'
import { type Both, dualPods, dualTemplate, seenBy } from './support/dual-hello.ts'
import type { Json, KubeObject } from './support/kube-request.ts'
import { execInPod } from './support/node.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'
import { DUAL, startClusters } from './support/two-clusters.ts'

t.setTimeout(300_000)

const FAMILIES = [
  { family: 4, type: 'IPv4', record: 'A' },
  { family: 6, type: 'IPv6', record: 'AAAA' },
] as const
const HOST = 'hello.shop.svc.cluster.local'

t.test('a cluster with IPv4 and IPv6', { skip: kubeletMissing() ?? false, timeout: 300_000 }, async (t) => {
  const rows = DUAL.slice(0, 1).map((row) => ({ ...row, nodes: ['c1n1', 'c1n2'] }))
  const world = await startClusters({ directory: temporaryFolder(t), rows })
  t.teardown(() => world.stop())
  const [cluster] = world.clusters
  if (cluster === undefined) throw new Error('there is no cluster')
  const site = { name: 'c1', api: cluster.plane.api, kubeconfig: cluster.plane.kubeconfig }
  await openForCalls(site, 'shop')
  const labels = { app: 'hello' }
  const onEachNode = { selector: { matchLabels: labels }, template: withFacts(dualTemplate('c1', labels)) }
  await site.api.apply('/apis/apps/v1/namespaces/shop/daemonsets/hello', {
    apiVersion: 'apps/v1',
    kind: 'DaemonSet',
    metadata: { name: 'hello' },
    spec: onEachNode,
  })
  const both = { ipFamilyPolicy: 'PreferDualStack' }
  await site.api.apply('/api/v1/namespaces/shop/services/hello', helloService('hello', both))
  const pods = await dualPods(site, 'shop', 3)

  await t.test('nodes and pods', (t) => nodesAndPods(t, site, pods))
  await t.test('every pod by its addresses, and who called', (t) => podToPod(t, site, pods))
  await t.test('a Service by both of its addresses', (t) => service(t, site, pods))
})

/** Adds variables by which pods learn their own addresses. */
function withFacts(template: Json): Json {
  const { spec } = template as { spec: { containers: readonly Json[] } & Json }
  const env = ['status.podIPs', 'status.hostIPs'].map((fieldPath) => ({
    name: fieldPath.replace('status.', ''),
    valueFrom: { fieldRef: { fieldPath } },
  }))
  return { ...template, spec: { ...spec, containers: spec.containers.map((one) => ({ ...one, env })) } }
}

interface NodeObject extends KubeObject {
  readonly spec: { readonly podCIDRs: readonly string[] }
  readonly status: { readonly addresses: readonly { readonly type: string; readonly address: string }[] }
}

interface PodObject extends KubeObject {
  readonly spec: { readonly nodeName: string }
  readonly status: { readonly hostIPs: readonly { readonly ip: string }[] }
}

async function nodesAndPods(t: Test, site: Site, addresses: ReadonlyMap<string, Both>): Promise<void> {
  const nodes = await site.api.list<NodeObject>('/api/v1/nodes')
  const ranges = nodes.map(({ spec }) => spec.podCIDRs)
  for (const [v4, v6, ...more] of ranges) {
    t.match(v4, /^10\.42\.\d+\.0\/24$/, 'each node has an IPv4 range of the cluster')
    t.match(v6, /^fd00:42:(0:[0-9a-f]+:)?:\/64$/, 'and an IPv6 one')
    t.strictSame(more, [], 'and no more')
  }
  // The controller chooses the ranges: it skips one if it reads a Node again before its own write to it has returned.
  t.equal(new Set(ranges.flat()).size, 4, 'no two of them alike')
  const own = new Map(
    nodes.map(({ metadata, status }) => {
      const internal = status.addresses.filter(({ type }) => type === 'InternalIP')
      return [metadata.name, internal.map(({ address }) => address)]
    }),
  )
  t.strictSame([...own.values()].sort(), [
    ['192.0.2.11', '2001:db8::11'],
    ['192.0.2.12', '2001:db8::12'],
  ])
  for (const { metadata, spec, status } of await site.api.list<PodObject>('/api/v1/namespaces/shop/pods')) {
    const hostIPs = status.hostIPs.map(({ ip }) => ip)
    t.strictSame(hostIPs, own.get(spec.nodeName), `${metadata.name} knows its node by both addresses`)
    if (!metadata.name.startsWith('hello')) continue
    const podIPs = addresses.get(metadata.name)
    const what = { namespace: 'shop', pod: metadata.name, container: 'tcp4' }
    const reported = await execInPod(site.kubeconfig, { ...what, argv: ['sh', '-c', 'echo $podIPs $hostIPs'] })
    t.equal(
      reported.stdout,
      `${podIPs?.[4] ?? ''},${podIPs?.[6] ?? ''} ${hostIPs.join(',')}\n`,
      'and its programs are told',
    )
  }
}

async function podToPod(t: Test, site: Site, pods: ReadonlyMap<string, Both>): Promise<void> {
  const caller = pods.get('request')
  for (const [name, addresses] of pods) {
    if (name === 'request') continue
    for (const { family, type } of FAMILIES) {
      for (const protocol of ['tcp', 'udp'] as const) {
        // The pods have no probe, so a Ready one may not listen yet.
        const ask = (): Promise<string> =>
          seenBy(site, { namespace: 'shop', host: addresses[family], family, protocol, times: 2 })
        await same(t, ask, `c1 ${caller?.[family] ?? ''}`, `${name} by ${protocol} over ${type}`)
      }
    }
  }
}

interface ServiceObject extends KubeObject {
  readonly spec: { readonly clusterIPs: readonly string[]; readonly ipFamilies: readonly string[] }
}

interface SliceObject extends KubeObject {
  readonly addressType: string
  readonly endpoints: readonly { readonly addresses: readonly string[] }[]
}

async function service(t: Test, site: Site, pods: ReadonlyMap<string, Both>): Promise<void> {
  const { spec } = await site.api.get<ServiceObject>('/api/v1/namespaces/shop/services/hello')
  t.strictSame(spec.ipFamilies, ['IPv4', 'IPv6'])
  const query = `labelSelector=${encodeURIComponent('kubernetes.io/service-name=hello')}`
  const path = `/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?${query}`
  const caller = pods.get('request')
  const hello = [...pods].filter(([name]) => name !== 'request')
  for (const [i, { family, type, record }] of FAMILIES.entries()) {
    const endpoints = async (): Promise<string> => {
      const slices = await site.api.list<SliceObject>(path)
      const own = slices.filter(({ addressType }) => addressType === type)
      return own
        .flatMap((slice) => slice.endpoints.flatMap(({ addresses }) => addresses))
        .sort()
        .join(' ')
    }
    const wanted = hello.map(([, addresses]) => addresses[family]).sort()
    await same(t, endpoints, wanted.join(' '), `${type}: a slice with both pods`)
    const clusterIP = spec.clusterIPs[i] ?? ''
    for (const host of [clusterIP, HOST]) {
      for (const protocol of ['tcp', 'udp'] as const) {
        const ask = (): Promise<string> => seenBy(site, { namespace: 'shop', host, family, protocol, times: 4 })
        await same(t, ask, `c1 ${caller?.[family] ?? ''}`, `${type}: ${host} by ${protocol}`)
      }
    }
    t.equal(await lookUp(site, 'shop', HOST, record), `NOERROR ${clusterIP}`, `${record} of the name`)
  }
}
