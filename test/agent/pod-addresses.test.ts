/** Pods that appear outside the pod CIDRs of a running member: reported on its own Cluster, with the networks to add. */
import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import t from 'tap'
import { newPodAddressMemory, planPodAddressStatus, podsOutsideRanges } from '../../agent/cluster/plan-pod-addresses.ts'
import { planMemberReport } from '../../agent/publish/plan-member-report.ts'
import { findCondition } from '../../model/conditions.ts'
import type { MemberStatus } from '../../model/member-status.ts'
import type { EndpointSlice, Node, RouteAgent } from '../../model/objects.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { eventually } from '../support/eventually.ts'
import { clusterObject } from '../support/objects/cluster-objects.ts'
import { Site } from './site.ts'
import { FakeClusterset } from './fake-clusterset.ts'

function slice(
  name: string,
  addresses: readonly string[],
  change: { kind?: string; node?: string; labels?: Record<string, string> } = {},
): EndpointSlice {
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name, namespace: 'shop', labels: { 'kubernetes.io/service-name': 'web', ...change.labels } },
    addressType: addresses[0]?.includes(':') === true ? 'IPv6' : 'IPv4',
    endpoints: addresses.map((address, i) => ({
      addresses: [address],
      nodeName: change.node ?? 'n1',
      targetRef: { kind: change.kind ?? 'Pod', name: `${name}-${i}` },
    })),
    ports: [],
  }
}

function node(name: string, address: string, labels: Record<string, string> = {}): Node {
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name, labels },
    status: { addresses: [{ type: 'InternalIP', address }] },
  }
}

function report(name: string, podsOutside: readonly string[]): RouteAgent {
  const status = { version: '1.0.0', clusters: [], podsOutside }
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'RouteAgent', metadata: { name }, status }
}

const STATED = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.96.0.0/12'] }
const NODES = [
  node('n1', '192.168.1.1'),
  node('w', '192.168.1.2', { 'kubernetes.io/os': 'windows' }),
  node('v', '192.168.1.3', { type: 'virtual-kubelet' }),
]

function networks(...slices: readonly EndpointSlice[]): readonly string[] {
  return (
    podsOutsideRanges({ stated: STATED, nodes: NODES, slices, routeAgents: [] }, newPodAddressMemory())?.networks ?? []
  )
}

t.test('which endpoints are pods outside', async (t) => {
  t.same(networks(slice('a', ['10.42.0.5'])), [])
  t.same(networks(slice('a', ['10.42.0.5', '10.50.0.5'])), ['10.50.0.0/16'])
  t.same(networks(slice('a', ['10.50.0.5']), slice('b', ['10.60.0.5'])), ['10.50.0.0/16', '10.60.0.0/16'])
  t.same(networks(slice('a', ['192.168.1.1'])), [], 'on the host network')
  t.same(networks(slice('a', ['10.50.0.5'], { node: 'w' })), [], 'on a Windows node')
  t.same(networks(slice('a', ['10.50.0.5'], { node: 'v' })), [], 'on a virtual node')
  t.same(networks(slice('a', ['10.50.0.5'], { kind: 'VirtualMachine' })), [], 'no pod')
  t.same(networks(slice('a', ['10.50.0.5'], { labels: { 'multicluster.kubernetes.io/source-cluster': 'paris' } })), [])
  t.same(networks(slice('a', ['fd00::5'])), [], 'a family that the cluster does not offer')
  t.same(networks(slice('a', ['127.0.0.1', '169.254.0.9'])), [])
})

t.test('pods without a Service: what the nodes report, as far as it is one of theirs', async (t) => {
  const reported = (...routeAgents: readonly RouteAgent[]) =>
    podsOutsideRanges({ stated: STATED, nodes: NODES, slices: [], routeAgents }, newPodAddressMemory())?.networks ?? []
  t.same(reported(), [])
  t.same(reported(report('n1', ['10.50.3.9']), report('n1', [])), ['10.50.0.0/16'])
  t.same(reported(report('n1', ['10.42.0.5'])), [], 'stated since the node reported it')
  t.same(reported(report('gone', ['10.50.3.9']), report('v', ['10.50.3.9']), report('w', ['10.50.3.9'])), [])
  t.same(reported(report('n1', ['192.168.1.2'])), [], 'the address of another node')
  t.same(reported(report('n1', ['fd00::5', '127.0.0.1', '224.0.0.1', 'x', '10.50.0.0/16'])), [])
  const many = Array.from({ length: 9 }, (_, i) => `172.${16 + i}.0.1`)
  t.notMatch(reported(report('n1', many)).join(), '172.24.', 'at most eight of a node')
  const silent = { stated: STATED, nodes: NODES, slices: [], routeAgents: [report('n1', ['10.50.3.9'])] }
  t.equal(podsOutsideRanges({ ...silent, silent: new Set(['n1']) }, newPodAddressMemory()), undefined)
  t.ok(podsOutsideRanges({ ...silent, silent: new Set(['w']) }, newPodAddressMemory()))
  const both = podsOutsideRanges(
    { stated: STATED, nodes: NODES, slices: [slice('a', ['10.60.0.5'])], routeAgents: [report('n1', ['10.50.0.5'])] },
    newPodAddressMemory(),
  )
  t.same(both?.networks, ['10.50.0.0/16', '10.60.0.0/16'])
  t.equal(both?.example.title, 'pod shop/a-0', 'a pod with a name says more')
})

t.test('only a slice that has changed is looked at again', async (t) => {
  const slices = Array.from({ length: 50 }, (_, i) => slice(`s${i}`, [`10.42.0.${i}`]))
  const memory = newPodAddressMemory()
  let reads = 0
  const counted = slices.map(
    (one) =>
      new Proxy(one, {
        get: (target, key) => ((reads += key === 'endpoints' ? 1 : 0), Reflect.get(target, key) as unknown),
      }),
  )
  podsOutsideRanges({ stated: STATED, nodes: NODES, slices: counted, routeAgents: [] }, memory)
  t.equal(reads, 50)
  podsOutsideRanges(
    { stated: { ...STATED }, nodes: [...NODES], slices: [...counted, slice('new', ['10.42.1.1'])], routeAgents: [] },
    memory,
  )
  t.equal(reads, 50)
  const wide = { ...STATED, podCIDRs: ['10.42.0.0/17'] }
  podsOutsideRanges({ stated: wide, nodes: NODES, slices: counted, routeAgents: [] }, memory)
  t.equal(reads, 100, 'other ranges')
})

t.test('the condition: its message stays through a rollout, and a healthy cluster has none', async (t) => {
  const own = clusterObject({ id: 'paris', podCIDRs: STATED.podCIDRs })
  const outside = (name: string, address: string) =>
    podsOutsideRanges(
      { stated: STATED, nodes: NODES, slices: [slice(name, [address])], routeAgents: [] },
      newPodAddressMemory(),
    )
  t.equal(planPodAddressStatus(own, STATED, undefined, 0), undefined)
  const changed = planPodAddressStatus(own, STATED, outside('a', '10.50.0.5'), 0)
  t.match(findCondition(changed?.status?.conditions, 'PodAddresses'), {
    status: 'False',
    reason: 'PodsOutsideRanges',
    message:
      'pods have addresses in 10.50.0.0/16, outside the pod CIDRs 10.42.0.0/16: other clusters do not reach such pods; run sealane join again, with --pod-cidr 10.42.0.0/16 --pod-cidr 10.50.0.0/16',
  })
  if (changed === undefined) return
  t.equal(planPodAddressStatus(changed, STATED, outside('b', '10.50.9.9'), 0), undefined, 'the same network')
  t.match(
    planPodAddressStatus(changed, STATED, outside('b', '10.51.9.9'), 0)?.status?.conditions?.[0]?.message,
    '10.51.0.0/16',
  )
  const over = planPodAddressStatus(changed, STATED, undefined, 0)
  t.match(over?.status?.conditions?.[0], { status: 'True', reason: 'PodsInsideRanges' })
  const report = (cluster: typeof own) =>
    planMemberReport({
      ...{ own: 'paris', version: '1.0.0', gateways: [], routeAgents: [], exports: new Map(), conflicts: new Map() },
      ...{ clusters: [cluster], notImported: [], silent: new Set() },
    }).problems
  t.same(report(changed), [{ code: 'PodsOutsideRanges', severity: 'degraded', count: 1 }])
  t.same(over && report(over), [])
})

t.test('an agent tells, and takes it back', async (t) => {
  const clock = new FakeClock()
  const site = new Site(new FakeClusterset(), { id: 'paris', podCIDR: '10.42.0.0/16', clock })
  await site.join()
  site.api.put(slice('web', ['10.50.0.5']))
  site.start()
  t.teardown(() => site.stop())
  const said = (): string =>
    findCondition(site.api.get('Cluster', 'paris')?.status?.conditions, 'PodAddresses')?.status ?? '-'
  const until = (status: string) =>
    eventually(async () => (await clock.advance(1000), said() === status), { intervalMs: 1 })
  await until('False')
  site.api.put(slice('web', ['10.42.0.5']))
  await until('True')
  site.api.put(node('n1', '192.168.1.1'))
  site.api.put(report('n1', ['10.50.0.5']))
  await until('False')
  site.api.put(report('n1', []))
  await until('True')
})

t.test('what a dead routeagent has reported ends, and that of an earlier release stays', async (t) => {
  const clock = new FakeClock()
  const site = new Site(new FakeClusterset(), { id: 'paris', podCIDR: '10.42.0.0/16', clock })
  await site.join()
  const reports = (name: string, address: string, atMs?: number): void => {
    const one = report(name, [address])
    const time = atMs === undefined ? {} : { podsOutsideTime: new Date(atMs).toISOString() }
    site.api.put({ ...one, status: { version: '1.0.0', clusters: [], ...one.status, ...time } })
  }
  for (const [i, name] of ['dead', 'earlier', 'alive'].entries()) site.api.put(node(name, `192.168.1.${i + 1}`))
  reports('dead', '10.50.0.5', clock.now())
  reports('earlier', '10.60.0.5')
  site.start()
  t.teardown(() => site.stop())
  const said = (): string =>
    findCondition(site.api.get('Cluster', 'paris')?.status?.conditions, 'PodAddresses')?.message ?? '-'
  const until = (...networks: readonly string[]) =>
    eventually(
      async () => {
        reports('alive', '10.70.0.5', clock.now())
        await clock.advance(10_000)
        return said().startsWith(`pods have addresses in ${networks.join(', ')}, outside`)
      },
      { intervalMs: 1, deadlineMs: 20_000, say: networks.join() },
    )
  await until('10.50.0.0/16', '10.60.0.0/16', '10.70.0.0/16')
  const startedMs = clock.now()
  await until('10.60.0.0/16', '10.70.0.0/16')
  t.ok(clock.now() - startedMs >= 600_000, 'not before it has missed several of its writes')
  reports('dead', '10.50.0.5', clock.now())
  await until('10.50.0.0/16', '10.60.0.0/16', '10.70.0.0/16')
})

t.test(
  'the connections that a dead routeagent counted are not carried, and the broker learns that one is silent',
  async (t) => {
    const clock = new FakeClock()
    const clusterset = new FakeClusterset()
    const site = new Site(clusterset, { id: 'paris', podCIDR: '10.42.0.0/16', clock })
    await site.join()
    const counts = (name: string, count: number, atMs?: number): void => {
      const time = atMs === undefined ? {} : { heartbeatTime: new Date(atMs).toISOString() }
      const status = { version: '1.0.0', clusters: [], openConnections: { count, atLeast: false }, ...time }
      site.api.put({ apiVersion: 'sealane.io/v1alpha1', kind: 'RouteAgent', metadata: { name }, status })
    }
    for (const [i, name] of ['dead', 'earlier', 'alive'].entries()) site.api.put(node(name, `192.168.1.${i + 1}`))
    counts('dead', 100, clock.now())
    counts('earlier', 20)
    site.start()
    t.teardown(() => site.stop())
    const said = (): MemberStatus | undefined => {
      const body = [...clusterset.records.values()].find((record) => record.body.kind === 'MemberStatus')?.body
      return body?.kind === 'MemberStatus' ? body : undefined
    }
    const silent = (): number => said()?.report?.problems.find(({ code }) => code === 'RouteAgentSilent')?.count ?? 0
    const until = (count: number, atLeast: boolean, nodes: number) =>
      eventually(
        async () => {
          counts('alive', 3, clock.now())
          await clock.advance(10_000)
          return isDeepStrictEqual(said()?.openConnections, { count, atLeast }) && silent() === nodes
        },
        { intervalMs: 1, deadlineMs: 20_000, say: `${count} ${String(atLeast)}: ${JSON.stringify(said())}` },
      )
    await until(123, false, 0)
    const startedMs = clock.now()
    await until(23, true, 1)
    t.ok(clock.now() - startedMs >= 600_000, 'not before it has missed several of its writes')
    counts('dead', 100, clock.now())
    await until(123, false, 0)
  },
)

t.test('whatever the slices hold: never thrown, never wide', async () => {
  const text = fc.oneof(fc.ipV4(), fc.ipV6(), fc.string({ unit: 'binary' }))
  fc.assert(
    fc.property(fc.array(fc.array(text, { maxLength: 5 }), { maxLength: 20 }), (all) =>
      networks(...all.map((addresses, i) => slice(`s${i}`, addresses))).every(
        (cidr) => Number(cidr.split('/')[1]) >= 12,
      ),
    ),
  )
})
