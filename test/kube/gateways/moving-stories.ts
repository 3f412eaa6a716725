/**
 * Nodes that become gateways and stop being ones, with real packets. The other cluster calls after every move, and five
 * times a second while a lane is handed over; a node that loses the label is clean, and one that gets it continues the
 * same lane.
 */
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Gateway } from '../../../model/objects.ts'
import { eventually } from '../../support/eventually.ts'
import { type Site, callers } from '../support/callers.ts'
import type { KubeObject } from '../support/kube-request.ts'
import type { KubeNode } from '../support/node.ts'
import { dumpNode, sealaneFiles } from '../support/node-dump.ts'
import { lastWords, refusedByApiServer } from '../support/pod-logs.ts'
import { sealane } from '../support/sealane-command.ts'
import { callSteadily } from '../support/steady-calls.ts'
import { FAR, type NodeWorld, OURS, gateways, label, names } from './node-world.ts'

const SYSTEM = 'sealane-system'
/**
 * The longest gap between two answers while a lane is handed over to a running gateway. It is two or three seconds on
 * two busy cores.
 */
const LONGEST_GAP_MS = 10_000

/** Begins with any gateways, and ends with nothing of ours anywhere. */
export async function movingStories(t: Test, world: NodeWorld): Promise<void> {
  const { here, nodes } = world
  const [a] = nodes
  const refused = await newlyRefused(world, [])
  for (const { name } of nodes) await label(here, name, name === a.name ? '0' : null)
  await reported(world, `c2.${a.name}-lane0`, a.name)
  await answered(world, 'before anything moves')
  await t.test('what nodes tell belongs to their Nodes', (t) => owned(t, world))
  await t.test('the gateway moves to another node', (t) => moved(t, world))
  await t.test('the lane of a gateway changes, and changes back', (t) => otherLane(t, world))
  await t.test('one takes over before the other stops', (t) => takenOver(t, world))
  t.strictSame(await newlyRefused(world, refused), [], 'nothing was refused')
  await t.test('a gateway is lost, and another node replaces it', (t) => replaced(t, world))
  await t.test('the lost machine comes back', (t) => returned(t, world))
  await t.test('leaving', (t) => left(t, world))
}

/** Waits until a new connection from the other cluster is answered; returns how long that took. */
async function answered({ there }: NodeWorld, say: string): Promise<number> {
  const began = performance.now()
  const call = { namespace: 'demo', host: FAR, times: 1 }
  await eventually(async () => (await callers(there, call)) === 'c2', { deadlineMs: 90_000, intervalMs: 100, say })
  return performance.now() - began
}

const endpoints = async (site: Site): Promise<string> =>
  (await names(site, 'endpoints'))
    .split(' ')
    .filter((name) => name.startsWith('c2.'))
    .join(' ')

/** Waits until both clusters report this cluster's lanes like this. */
async function reported({ here, there }: NodeWorld, want: string, nodes: string): Promise<void> {
  const isReported = async (): Promise<boolean> => {
    const found = await gateways(here)
    if (found === nodes) return true
    throw new Error(`they are "${found}"`)
  }
  await eventually(isReported, { deadlineMs: 60_000, say: `gateways are ${nodes}` }).catch(async (error: unknown) => {
    throw new Error(`${String(error)}\n${await lastWords(here.api, SYSTEM, 25)}`, { cause: error })
  })
  for (const site of [here, there]) {
    await eventually(async () => (await endpoints(site)) === want, {
      deadlineMs: 60_000,
      say: `${site.name} knows of ${want}`,
    })
  }
}

/** Devices, tables, routes, rules and files of a gateway on a node; '' if there are none. */
function laneTraces({ directory }: NodeWorld, { netns, name }: KubeNode): string {
  const inside = (...argv: string[]): string =>
    execFileSync('ip', ['netns', 'exec', netns, ...argv], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
  const found = [
    ...(inside('ip', '-o', 'link').match(/sealane\d+/g) ?? []),
    ...(inside('nft', 'list', 'tables').match(/sealane_gateway/g) ?? []),
    ...(inside('ip', 'route', 'show', 'table', 'all').match(/^.*\btable 7311\b.*$/gm) ?? []),
    ...(inside('ip', 'rule').match(/^.*\blookup 7311\b.*$/gm) ?? []),
    ...sealaneFiles(join(directory, 'c2'), name).filter((file) => /^lane|^gateway/.test(file)),
  ]
  return found.join('\n')
}

async function cleaned(t: Test, world: NodeWorld, node: KubeNode): Promise<void> {
  await eventually(() => laneTraces(world, node) === '', { deadlineMs: 30_000, say: `${node.name} is clean` }).catch(
    () => undefined,
  )
  t.equal(laneTraces(world, node), '', `nothing of a gateway is left on ${node.name}`)
}

async function owned(t: Test, { here }: NodeWorld): Promise<void> {
  for (const [plural, name, node] of [
    ['endpoints', 'c2.c2n1-lane0', 'c2n1'],
    ['gateways', 'c2n1', 'c2n1'],
    ['routeagents', 'c2n1', 'c2n1'],
    ['routeagents', 'c2n2', 'c2n2'],
    ['routeagents', 'c2n3', 'c2n3'],
  ] as const) {
    const [object, owner] = await Promise.all([
      here.api.get(`${OURS}/${plural}/${name}`),
      here.api.get(`/api/v1/nodes/${node}`),
    ])
    const { uid } = owner.metadata
    t.strictSame(object.metadata['ownerReferences'], [{ apiVersion: 'v1', kind: 'Node', name: node, uid }], name)
  }
  t.equal((await here.api.get(`${OURS}/endpoints/c1.c1n1-lane0`)).metadata['ownerReferences'], undefined, 'mirrored')
}

async function moved(t: Test, world: NodeWorld): Promise<void> {
  const { here, nodes } = world
  const [a, b] = nodes
  t.not(laneTraces(world, a), '', 'a gateway has traces')
  await label(here, b.name, '0')
  await label(here, a.name, null)
  const ms = await answered(world, `${b.name} carries the lane`)
  t.comment(`served again ${(ms / 1000).toFixed(1)} s after the label of the new gateway`)
  await reported(world, `c2.${b.name}-lane0`, b.name)
  await cleaned(t, world, a)
}

interface PodObject extends KubeObject {
  readonly spec: { readonly nodeName?: string }
  readonly status: {
    readonly containerStatuses?: readonly { readonly restartCount: number }[]
    readonly conditions?: readonly { readonly type: string; readonly status: string }[]
  }
}

function podsOf({ api }: Site, part: string): Promise<readonly PodObject[]> {
  const selector = encodeURIComponent(`app.kubernetes.io/component=${part}`)
  return api.list<PodObject>(`/api/v1/namespaces/${SYSTEM}/pods?labelSelector=${selector}`)
}

async function nodesOf(site: Site, part: string): Promise<readonly string[]> {
  return (await podsOf(site, part)).map(({ spec }) => spec.nodeName ?? '').sort()
}

async function gatewayPod({ here }: NodeWorld, node: string): Promise<PodObject | undefined> {
  return (await podsOf(here, 'gateway')).find(({ spec }) => spec.nodeName === node)
}

/** The node changes its lane in the same process; the other cluster then has a device for the new number. */
async function otherLane(t: Test, world: NodeWorld): Promise<void> {
  const [, b] = world.nodes
  const before = await gatewayPod(world, b.name)
  await label(world.here, b.name, '1')
  await reported(world, `c2.${b.name}-lane1`, b.name)
  await eventually(() => !/^lane0\.key$/m.test(laneTraces(world, b)), { deadlineMs: 30_000, say: 'lane 0 is gone' })
  t.match(laneTraces(world, b), /^lane1\.key$/m)
  await answered(world, `${b.name} carries as lane 1`)
  await label(world.here, b.name, '0')
  await reported(world, `c2.${b.name}-lane0`, b.name)
  await answered(world, 'back on lane 0')
  const after = await gatewayPod(world, b.name)
  t.equal(after?.metadata.uid, before?.metadata.uid, 'by the same pod')
  t.equal(after?.status.containerStatuses?.[0]?.restartCount, 0, 'which did not start anew')
}

async function takenOver(t: Test, world: NodeWorld): Promise<void> {
  const { here, there, nodes } = world
  const [a, b] = nodes
  const calls = await callSteadily(there, 'demo', FAR, 'c2')
  await standsBy(t, world, a, b)
  await label(here, b.name, null)
  await reported(world, `c2.${a.name}-lane0`, a.name)
  await cleaned(t, world, b)
  await answered(world, `${a.name} alone`)
  await standsBy(t, world, b, a)
  await label(here, a.name, null)
  await reported(world, `c2.${b.name}-lane0`, b.name)
  await answered(world, `${b.name} alone`)
  const { calls: count, unanswered, longestGapMs } = await calls.stop()
  t.comment(`${unanswered} of ${count} calls had no answer; the longest gap was ${longestGapMs} ms`)
  t.ok(longestGapMs < LONGEST_GAP_MS, `no gap of ${LONGEST_GAP_MS} ms: the longest was ${longestGapMs} ms`)
}

/**
 * Refusals in addition to the known ones: an API server that has just started refuses requests until it has read the
 * rules.
 */
async function newlyRefused({ there, here }: NodeWorld, known: readonly string[]): Promise<readonly string[]> {
  const all = await Promise.all([there, here].map(({ api }) => refusedByApiServer(api, SYSTEM)))
  return all.flat().filter((line) => !known.includes(line))
}

/** Gives a node the label of a lane that another one serves: it does not take the lane, and is a ready standby. */
async function standsBy(t: Test, world: NodeWorld, node: KubeNode, server: KubeNode): Promise<void> {
  await label(world.here, node.name, '0')
  await eventually(async () => (await gatewayPod(world, node.name))?.status.conditions?.some(isReady) === true, {
    deadlineMs: 60_000,
    say: `the gateway on ${node.name} is ready`,
  })
  await reported(world, `c2.${server.name}-lane0`, server.name)
  await servesAlone(t, world, { server, other: node })
}

function isReady({ type, status }: { readonly type: string; readonly status: string }): boolean {
  return type === 'Ready' && status === 'True'
}

/**
 * Waits until the other cluster has its link to `server` up, and checks that its calls arrive there and not at `other`.
 */
async function servesAlone(
  t: Test,
  world: NodeWorld,
  { server, other }: { readonly server: KubeNode; readonly other: KubeNode },
): Promise<void> {
  const want = `c2.${server.name}-lane0 up`
  await eventually(async () => (await connections(world.there)) === want, { deadlineMs: 60_000, say: want })
  const before = received(server)
  await answered(world, `${server.name} serves lane 0`)
  t.ok(received(server) > before, `calls come in at ${server.name}`)
  t.equal(laneTraces(world, other), '', `nothing of a lane is on ${other.name}`)
}

/** The links of its gateways: the remote Endpoint and the state. */
async function connections({ api }: Site): Promise<string> {
  const objects = await api.list<Gateway & KubeObject>(`${OURS}/gateways`)
  const all = objects.flatMap(({ status }) => status?.connections ?? [])
  return all.map(({ endpoint, state }) => `${endpoint} ${state}`).join('\n')
}

/** The packets that came out of lane 0 of a node, with either kind of WireGuard. */
function received({ netns }: KubeNode): number {
  const argv = ['netns', 'exec', netns, 'ip', '-j', '-s', 'link', 'show', 'dev', 'sealane0']
  const [link] = JSON.parse(execFileSync('ip', argv, { encoding: 'utf8' })) as [LinkCounters]
  return link.stats64.rx.packets
}

interface LinkCounters {
  readonly stats64: { readonly rx: { readonly packets: number } }
}

/** The machine disappears without warning; then an operator deletes its Node. */
async function replaced(t: Test, world: NodeWorld): Promise<void> {
  const { clusters, here, nodes } = world
  const [a, b, c] = nodes
  const agents = await nodesOf(here, 'agent')
  t.strictSame(agents, [a.name, b.name], 'the agents are on both nodes')
  clusters.underlay.plug(b.name, false)
  await b.kubelet.kill()
  const labelled = performance.now()
  await label(here, a.name, '0')
  const want = `c2.${a.name}-lane0 up`
  await eventually(async () => (await connections(world.there)) === want, { deadlineMs: 60_000, say: want })
  await eventually(async () => (await gateways(here)).includes(a.name), { deadlineMs: 30_000, say: 'it tells' })
  await answered(world, 'the new gateway serves while the Node of the old one is still there')
  const ms = performance.now() - labelled
  t.comment(`served again ${(ms / 1000).toFixed(1)} s after the label of the new gateway, the old one dead`)
  t.equal(await gateways(here), `${a.name} ${b.name}`, 'what the dead one told is still there')
  await here.api.delete(`/api/v1/nodes/${b.name}`)
  await reported(world, `c2.${a.name}-lane0`, a.name)
  const others = `${a.name} ${c.name}`
  await eventually(async () => (await names(here, 'routeagents')) === others, { deadlineMs: 30_000 })
  t.equal(await names(here, 'routeagents'), others, 'all that it told went with its Node')
  await answered(world, 'with the new one alone')
}

/** The next gateway takes over and removes what its dead predecessor left in its kernel. */
async function returned(t: Test, world: NodeWorld): Promise<void> {
  const { clusters, here, nodes } = world
  const [a, b, c] = nodes
  clusters.underlay.plug(b.name, true)
  b.kubelet.start()
  await b.ready()
  const all = `${a.name} ${b.name} ${c.name}`
  await eventually(async () => (await names(here, 'routeagents')) === all, {
    deadlineMs: 90_000,
    say: 'it tells again',
  })
  t.equal(await gateways(here), a.name, 'a machine that comes back without the label is no gateway')
  await standsBy(t, world, b, a)
  await label(here, b.name, null)
  await reported(world, `c2.${a.name}-lane0`, a.name)
  await cleaned(t, world, b)
  await answered(world, `${a.name} goes on`)
}

async function left(t: Test, world: NodeWorld): Promise<void> {
  const { clusters, kernels, directory } = world
  for (const { row, plane, nodes } of [...clusters.clusters].reverse()) {
    // The namespace disappears with its last pod, and a pod of the gateway may take 45 s.
    await sealane(['leave', '--yes', '--timeout', '3m', '--kubeconfig', plane.kubeconfig])
    for (const node of nodes) {
      const before = withoutBridge(kernels.get(node.name) ?? '')
      t.equal(withoutBridge(dumpNode(node)), before, `${node.name}: its kernel is as before`)
      t.strictSame(sealaneFiles(join(directory, row.name), node.name), [], `${node.name}: no file is left`)
    }
  }
}

/** A machine that returns as a new Node gets another pod range, and the bridge of its pods another address. */
function withoutBridge(kernel: string): string {
  return kernel
    .split('\n')
    .filter((line) => !/\bdev cni0\b/.test(line))
    .join('\n')
}
