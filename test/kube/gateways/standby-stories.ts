/**
 * Gateway nodes that are drained, restarted and lost, while two other clusters call twenty times a second: another node
 * takes the lane before the node goes. The cluster with these gateways has three nodes, and the last cluster has only
 * one.
 */
import type { Test } from 'tap'
import { ANNOTATION_HANDOVER } from '../../../model/lanes/lane-servers.ts'
import type { Lease } from '../../../model/objects.ts'
import { eventually } from '../../support/eventually.ts'
import type { Site } from '../support/callers.ts'
import {
  type GatewayWorld,
  cordon,
  gatewayReady,
  gateways,
  laneDevices,
  lossOf,
  restartGateways,
  upLanes,
} from '../support/gateway-world.ts'
import type { KubeObject } from '../support/kube-request.ts'
import { lastWords } from '../support/pod-logs.ts'
import { CALLS_PER_SECOND, type RapidReport } from '../support/rapid-calls.ts'
import { watchObjects } from '../support/watch-objects.ts'

/** The gateway nodes of c2: one is active, and one is a standby. */
const GATEWAYS = ['c2n1', 'c2n2']
export const ONE_AND_A_STANDBY = ['--gateways', '1', ...GATEWAYS.flatMap((node) => ['--gateway', node])]
const other = (node: string): string => GATEWAYS.find((name) => name !== node) ?? ''

const SYSTEM = 'sealane-system'
const LEASE = `/apis/coordination.k8s.io/v1/namespaces/${SYSTEM}/leases/sealane-lane-0`
/**
 * How many calls a hand-over loses depends on the machine: `npm run bench:handover` measures it. A failover waits for a
 * Lease to expire, and no gap here may be that long.
 */
const FAILOVER_MS = 10_000

/** Begins with the first join; leaves all nodes as they were, and the lane with one of the two. */
export async function standbyStories(t: Test, world: GatewayWorld): Promise<void> {
  await t.test('joining makes one gateway and one that stands by', (t) => joined(t, world))
  await t.test('the gateway is drained', (t) => drained(t, world))
  await t.test('it comes back and stands by; the other one is drained', (t) => drained(t, world))
  await t.test('the DaemonSet is restarted', (t) => restarted(t, world))
  await t.test('the machine of the gateway is lost', (t) => lost(t, world))
  await t.test('a cluster with one node says that nobody takes its lane', (t) => alone(t, world))
}

async function holder({ api }: Site): Promise<string> {
  return (await api.find<Lease & KubeObject>(LEASE))?.spec?.holderIdentity ?? ''
}

/** Waits until that node is the cluster's only gateway. */
async function alonServes(site: Site, node: string, deadlineMs = 60_000): Promise<void> {
  await eventually(async () => (await holder(site)) === node && (await gateways(site)) === node, {
    deadlineMs,
    say: `${node} alone serves lane 0`,
  })
}

async function joined(t: Test, { c2, calls }: GatewayWorld): Promise<void> {
  const nodes = await c2.api.list('/api/v1/nodes?labelSelector=sealane.io%2Fgateway%3Dtrue')
  t.strictSame(nodes.map(({ metadata }) => metadata.name).sort(), GATEWAYS)
  await eventually(async () => GATEWAYS.includes(await gateways(c2)), { deadlineMs: 60_000, say: 'one of them serves' })
  for (const one of calls) await one.look()
}

/** Runs `work`, and checks that each time the lane changed hands, its holder had offered it before. */
async function offered<R>(t: Test, { c2 }: GatewayWorld, work: () => Promise<R>): Promise<R> {
  let before = await c2.api.get<Lease & KubeObject>(LEASE)
  const watch = await watchObjects(c2.kubeconfig, LEASE.slice(0, LEASE.lastIndexOf('/')))
  const result = await work()
  watch.stop()
  const changes: string[] = []
  for (const { type, object } of watch.events) {
    if (object.metadata.name !== before.metadata.name) continue
    const now = object as Lease & KubeObject
    const [from, to] = [before.spec?.holderIdentity ?? '', now.spec?.holderIdentity ?? '']
    const isOffered = before.metadata.annotations?.[ANNOTATION_HANDOVER] !== undefined
    if (type === 'DELETED') changes.push(`${from}: the Lease was deleted`)
    else if (from !== to) changes.push(`${from} to ${to}: ${isOffered ? 'offered' : 'not offered'}`)
    before = now
  }
  t.comment(changes.join('; '))
  t.strictSame(
    changes.filter((change) => !change.endsWith(': offered')),
    [],
    'each time it was offered',
  )
  return result
}

async function drained(t: Test, world: GatewayWorld): Promise<void> {
  noFailover(t, await offered(t, world, () => drainOnce(t, world)))
}

function noFailover(t: Test, reports: readonly RapidReport[]): void {
  for (const { calls, longestGapMs } of reports) {
    t.ok(
      calls > 3 * CALLS_PER_SECOND && longestGapMs < FAILOVER_MS,
      `${calls} calls, the longest gap was ${longestGapMs} ms`,
    )
  }
}

/**
 * Does what kubectl drain does: cordons the node, then evicts all pods but those of DaemonSets. Then the machine stops,
 * and returns.
 */
async function drainOnce(t: Test, world: GatewayWorld): Promise<readonly RapidReport[]> {
  const { c2, nodes } = world
  const name = await holder(c2)
  const next = other(name)
  const node = nodes.find((one) => one.name === name)
  if (node === undefined) throw new Error(`no node ${name}`)
  const began = performance.now()
  await cordon(c2, name, true)
  const moved = alonServes(c2, next).then(() => (performance.now() - began) / 1000)
  const [seconds] = await Promise.all([moved, evictAll(c2, name)])
  t.comment(`${next} alone serves ${seconds.toFixed(1)} s after the drain of ${name} began`)
  await eventually(() => laneDevices(node) === '', { deadlineMs: 30_000, say: `no lane is left on ${name}` })
  await node.kubelet.kill()
  const reports = await lossOf(t, world, 'drained')
  node.kubelet.start()
  await node.ready()
  await cordon(c2, name, false)
  await eventually(() => gatewayReady(c2, name), { deadlineMs: 60_000, say: `the gateway on ${name} is ready again` })
  t.equal(await holder(c2), next, 'who comes back stands by')
  t.equal(await gateways(c2), next)
  return reports
}

async function evictAll({ api }: Site, node: string): Promise<void> {
  const pods = await api.list(`/api/v1/pods?fieldSelector=spec.nodeName%3D${node}`)
  for (const { metadata } of pods) {
    const owners = metadata['ownerReferences'] as readonly { readonly kind: string }[] | undefined
    if (owners?.some(({ kind }) => kind === 'DaemonSet')) continue
    const { name, namespace = '' } = metadata
    const eviction = { apiVersion: 'policy/v1', kind: 'Eviction', metadata: { name, namespace } }
    const path = `/api/v1/namespaces/${namespace}/pods/${name}/eviction`
    await eventually(async () => (await api.raw('POST', path, { body: eviction })).status !== 429, {
      deadlineMs: 60_000,
      say: `${name} is evicted`,
    })
  }
}

async function restarted(t: Test, world: GatewayWorld): Promise<void> {
  const restart = async (): Promise<readonly RapidReport[]> => {
    await restartGateways(world.c2, GATEWAYS)
    await oneServes(world.c2)
    return lossOf(t, world, 'restarted')
  }
  noFailover(t, await offered(t, world, restart))
}

async function oneServes(site: Site): Promise<void> {
  const serves = async (): Promise<boolean> => GATEWAYS.includes(await gateways(site))
  await eventually(serves, { deadlineMs: 60_000, say: 'one serves' }).catch(async (error: unknown) => {
    const now = `Gateways: ${await gateways(site)}; holder: ${await holder(site)}`
    throw new Error(`${String(error)}\n${now}\n${await lastWords(site.api, SYSTEM, 25)}`, { cause: error })
  })
}

/** The holder is silent, and its machine does not answer: its Lease expires, and the standby takes the lane. */
async function lost(t: Test, world: GatewayWorld): Promise<void> {
  const { underlay, c2, nodes } = world
  // The API server is on the first node and must stay available.
  if ((await holder(c2)) === 'c2n1') {
    await cordon(c2, 'c2n1', true)
    await alonServes(c2, 'c2n2', 90_000)
    await cordon(c2, 'c2n1', false)
  }
  const name = await holder(c2)
  const node = nodes.find((one) => one.name === name)
  const next = other(name)
  const began = performance.now()
  underlay.plug(name, false)
  await node?.kubelet.kill()
  await eventually(async () => (await holder(c2)) === next, { deadlineMs: 60_000, say: `${next} takes the lane` })
  t.comment(`${next} took the lane ${((performance.now() - began) / 1000).toFixed(1)} s after ${name} was lost`)
  await eventually(async () => (await upLanes(c2, next)) === 2, { deadlineMs: 60_000, say: `${next} is up to both` })
  for (const { longestGapMs } of await lossOf(t, world, 'lost')) {
    t.ok(longestGapMs < 30_000, `no longer than a Lease and a few seconds: ${longestGapMs} ms`)
  }
  underlay.plug(name, true)
  node?.kubelet.start()
  await node?.ready()
  await alonServes(c2, next, 90_000)
  await lossOf(t, world, 'the lost one is back')
}

async function alone(t: Test, world: GatewayWorld): Promise<void> {
  const { c3 } = world
  await cordon(c3, 'c3n1', true)
  const events = async () => {
    const all = await c3.api.list<KubeObject & { reason: string; note: string }>('/apis/events.k8s.io/v1/events')
    return all.filter(({ reason }) => reason === 'LaneNotHandedOver').map(({ note }) => note)
  }
  await eventually(async () => (await events()).length === 1, { deadlineMs: 30_000, say: 'it is told' })
  t.match((await events())[0], /^the node is cordoned, and no other node takes lane 0/)
  t.equal(await gateways(c3), 'c3n1', 'and it goes on')
  for (const { unanswered } of await lossOf(t, world, 'cordoned and alone')) t.equal(unanswered, 0)
  await cordon(c3, 'c3n1', false)
  await restartGateways(c3, ['c3n1'])
  await lossOf(t, world, 'one gateway alone is restarted')
}
