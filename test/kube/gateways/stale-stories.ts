/**
 * The report of a gateway becomes stale: its machine disappears while pods of its cluster call the other one, and later
 * returns. In between, the API server of that cluster is away for a while, which must change nothing.
 */
import { execFileSync } from 'node:child_process'
import type { Test } from 'tap'
import type { Gateway, RouteAgent } from '../../../model/objects.ts'
import { eventually } from '../../support/eventually.ts'
import { type Site, callers, helloService } from '../support/callers.ts'
import type { Json, KubeObject } from '../support/kube-request.ts'
import type { KubeNode } from '../support/node.ts'
import { lastWords } from '../support/pod-logs.ts'
import { sealane } from '../support/sealane-command.ts'
import { exportService, findImport, importText, importedSlices } from '../support/service-imports.ts'
import { callSteadily } from '../support/steady-calls.ts'
import type { TestCluster } from '../support/two-clusters.ts'
import { FAR, HEARTBEAT_MS, type NodeWorld, OURS, label } from './node-world.ts'

/**
 * This is longer than three heartbeats, after which a reader treats a gateway as silent, and longer than the Leases of
 * agents.
 */
const AWAY_MS = 5 * HEARTBEAT_MS + 5000
/** After this time a stopped heartbeat would have been noticed: three heartbeats, reads and TCP probes. */
const WATCHED_MS = 3 * HEARTBEAT_MS + 6000
/** If a gateway were wrongly given up, the gap would be longer than this. A busy machine delays single calls. */
const LONGEST_GAP_MS = 5000

interface World extends NodeWorld {
  readonly cluster: TestCluster
  /** The gateway whose machine disappears. */
  readonly gateway: KubeNode
  readonly workers: readonly string[]
}

/** Leaves the second node as the only gateway, with everything up. */
export async function staleStories(t: Test, given: NodeWorld): Promise<void> {
  const world = await oneGateway(given)
  await t.test('while all is well', (t) => well(t, world))
  await t.test('the API server is away', (t) => away(t, world))
  await t.test('the machine dies', (t) => dies(t, world))
  await t.test('the machine comes back', (t) => returns(t, world))
}

async function oneGateway(given: NodeWorld): Promise<World> {
  const { clusters, here, there, nodes } = given
  const [, gateway] = nodes
  const cluster = clusters.clusters[1]
  if (cluster === undefined) throw new Error('two clusters were asked for')
  for (const { name } of nodes) await label(here, name, name === gateway.name ? '0' : null)
  for (const site of [there, here]) {
    await site.api.apply('/api/v1/namespaces/demo/services/hello', helloService('hello'))
    await exportService(site, 'demo', 'hello')
  }
  await eventually(async () => importText(await findImport(here, 'demo', 'hello')).endsWith('from c1,c2'), {
    deadlineMs: 60_000,
    say: 'both export hello',
  })
  const workers = nodes.map(({ name }) => name).filter((name) => name !== gateway.name)
  return { ...given, cluster, gateway, workers }
}

/** Each worker with the gateways that it uses: `c2n1 c2n2, c2n3 c2n2`. */
async function ways({ here, workers }: World): Promise<string> {
  const agents = await here.api.list<RouteAgent & KubeObject>(`${OURS}/routeagents`)
  return agents
    .filter(({ metadata }) => workers.includes(metadata.name))
    .map(({ metadata, status }) => `${metadata.name} ${status?.clusters[0]?.gateways.join('+') ?? '?'}`.trim())
    .join(', ')
}

/**
 * The gateways with their lanes: `c2n2 0`. The first one goes once the second carries, which then takes the lane of its
 * label.
 */
async function gatewayLanes({ here }: World): Promise<string> {
  const found = await here.api.list<Gateway & KubeObject>(`${OURS}/gateways`)
  return found.map(({ metadata, status }) => `${metadata.name} ${status?.lanes[0]?.lane ?? '-'}`).join(', ')
}

/** The condition of the gateway, as `Ready True LanesUp`, or of the other cluster, as `Connected …`. */
async function condition({ here, gateway }: World, type: 'Ready' | 'Connected'): Promise<string> {
  const path = type === 'Ready' ? `gateways/${gateway.name}` : 'clusters/c1'
  const { status } = await here.api.get<Gateway & KubeObject>(`${OURS}/${path}`)
  const found = status?.conditions?.find((one) => one.type === type)
  return `${type} ${found?.status} ${found?.reason}`
}

/**
 * The clusters that answer when the pod of this cluster calls the service that both export. It calls the address, since
 * DNS may be on any node.
 */
async function answers({ here }: World, times = 12): Promise<string> {
  const host = (await findImport(here, 'demo', 'hello'))?.spec.ips?.[0] ?? ''
  return callers(here, { namespace: 'demo', host, times })
}

async function allUp(world: World): Promise<void> {
  const { gateway, workers } = world
  const want = workers.map((name) => `${name} ${gateway.name}`).join(', ')
  const options = { deadlineMs: 120_000, intervalMs: 250 }
  await eventually(async () => (await gatewayLanes(world)) === `${gateway.name} 0`, { ...options, say: 'one is left' })
  await eventually(async () => (await ways(world)) === want, { ...options, say: `ways are ${want}` })
  for (const text of ['Ready True LanesUp', 'Connected True LaneUp']) {
    const type = text.startsWith('Ready') ? 'Ready' : 'Connected'
    await eventually(async () => (await condition(world, type)) === text, { ...options, say: text })
  }
  await eventually(async () => (await answers(world)) === 'c1 c2', { ...options, say: 'both clusters answer' })
}

/** What `kubectl get` prints for one kind: the columns and the cells of each row. */
async function printed({ api }: Site, plural: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const accept = 'application/json;as=Table;v=v1;g=meta.k8s.io'
  const { text } = await api.raw('GET', `${OURS}/${plural}`, { accept })
  const { columnDefinitions, rows } = JSON.parse(text) as PrintedTable
  return rows.map(({ cells }) => Object.fromEntries(columnDefinitions.map(({ name }, i) => [name, cells[i]])))
}

interface PrintedTable {
  readonly columnDefinitions: readonly { readonly name: string }[]
  readonly rows: readonly { readonly cells: readonly unknown[] }[]
}

interface Row {
  readonly node: string
  readonly state: string
  readonly heardSecondsAgo: number
  readonly message: string
}

async function shown({ here, gateway }: World): Promise<Row | undefined> {
  const { stdout } = await sealane(['show', 'connections', '--kubeconfig', here.kubeconfig, '-o', 'json'])
  const { items } = JSON.parse(stdout) as { items: readonly Row[] }
  return items.find(({ node }) => node === gateway.name)
}

async function well(t: Test, world: World): Promise<void> {
  const { here, gateway } = world
  await allUp(world)
  const [row] = (await printed(here, 'gateways')).filter(({ Name }) => Name === gateway.name)
  t.match(row, { Lane: 0, Up: '1/1', Ready: 'True', Reason: 'LanesUp', Heard: /^\d+s$/ })
  for (const agent of await printed(here, 'routeagents')) t.match(agent, { Reached: '1/1' }, String(agent['Name']))
  const [other] = (await printed(here, 'clusters')).filter(({ Name }) => Name === 'c1')
  t.match(other, { Connected: 'True' })
  t.match(await eventNotes(world), /^LaneUp: lane 0 to c1 is up$/m)
  const found = await shown(world)
  t.equal(found?.state, 'up')
  t.ok((found?.heardSecondsAgo ?? Infinity) < 15, `heard ${found?.heardSecondsAgo} s ago`)
}

async function away(t: Test, world: World): Promise<void> {
  const { there, cluster, gateway } = world
  const before = await ways(world)
  const calls = await callSteadily(there, 'demo', FAR, 'c2')
  // Otherwise it would then treat all nodes as dead and all pods as not ready, which the test kubelet would not undo.
  await cluster.plane.kill('kube-controller-manager')
  await cluster.plane.kill('kube-apiserver')
  // This wait has no visible end, because only clocks inside the parts run meanwhile.
  const until = performance.now() + AWAY_MS
  await eventually(() => performance.now() > until, { deadlineMs: 2 * AWAY_MS, intervalMs: 250, say: 'it was away' })
  await cluster.plane.restart('kube-apiserver')
  await cluster.plane.restart('kube-controller-manager')
  const back = performance.now()
  // All heartbeats are old now, which alone proves nothing.
  const seen = new Set<string>()
  const watched = async (): Promise<boolean> => {
    seen.add(await ways(world))
    return performance.now() - back > WATCHED_MS
  }
  await eventually(watched, { deadlineMs: 3 * WATCHED_MS, intervalMs: 250, say: 'it was watched' })
  t.strictSame([...seen], [before], 'no worker has let go of the gateway')
  const { calls: count, unanswered, longestGapMs } = await calls.stop()
  t.comment(`${unanswered} of ${count} calls had no answer; the longest gap was ${longestGapMs} ms`)
  t.ok(longestGapMs < LONGEST_GAP_MS, `no gap of ${LONGEST_GAP_MS} ms: the longest was ${longestGapMs} ms`)
  await allUp(world)
  t.notMatch(await eventNotes(world), /has not reported/, `${gateway.name} was not taken for silent`)
}

/** The events about the gateway, one line each. */
async function eventNotes({ here, gateway }: World): Promise<string> {
  const events = await here.api.list<EventObject>('/apis/events.k8s.io/v1/namespaces/default/events')
  return events
    .filter(({ regarding }) => regarding.kind === 'Gateway' && regarding.name === gateway.name)
    .map(({ reason, note }) => `${reason}: ${note}`)
    .join('\n')
}

interface EventObject extends KubeObject {
  readonly reason: string
  readonly note: string
  readonly regarding: { readonly kind: string; readonly name: string }
}

async function dies(t: Test, world: World): Promise<void> {
  const { clusters, here, gateway } = world
  const died = performance.now()
  const since = (): string => `${((performance.now() - died) / 1000).toFixed(1)} s`
  clusters.underlay.plug(gateway.name, false)
  await gateway.kubelet.kill()
  const options = { deadlineMs: 90_000, intervalMs: 250 }
  await letGo(t, world, options)
  t.comment(`the workers have let go of the gateway after ${since()}`)
  await onlyFrom(t, world, 'c2')
  t.comment(`calls stay in the cluster after ${since()}`)
  t.equal(await answers(world, 20), 'c2', 'nobody is sent to the dead gateway')
  // Another agent may first have to take over from one on the lost machine.
  for (const type of ['Ready', 'Connected'] as const) {
    const want = `${type} Unknown GatewayStatusStale`
    await eventually(async () => (await condition(world, type)) === want, { ...options, say: want })
  }
  t.comment(`conditions say so after ${since()}`)
  const [row] = (await printed(here, 'gateways')).filter(({ Name }) => Name === gateway.name)
  t.match(row, { Ready: 'Unknown', Reason: 'GatewayStatusStale' })
  for (const agent of (await printed(here, 'routeagents')).filter(({ Name }) => Name !== gateway.name)) {
    t.match(agent, { Reached: '0/1' }, String(agent['Name']))
  }
  const found = await shown(world)
  t.equal(found?.state, 'unknown')
  t.match(found?.message, /^was (up|down), last heard .* ago$/)
  t.match(await eventNotes(world), /^GatewaySilent: the gateway on node c2n2 has not reported since /m)
}

/** Waits until no worker uses the gateway; if that fails, it reports the state and the logs of our parts. */
async function letGo(t: Test, world: World, options: { deadlineMs: number; intervalMs: number }): Promise<void> {
  const { here, workers } = world
  const check = async (): Promise<boolean> => (await ways(world)) === workers.join(', ')
  await eventually(check, { ...options, say: 'no way is left' }).catch(async (error: unknown) => {
    for (const kind of ['routeagents', 'gateways']) {
      for (const { metadata, status } of await here.api.list<KubeObject & { status?: Json }>(`${OURS}/${kind}`)) {
        t.comment(`${kind} ${metadata.name} ${JSON.stringify(status)}`)
      }
    }
    t.comment(await lastWords(here.api, 'sealane-system').catch(String))
    throw error
  })
}

/** Waits until only this cluster answers; if that fails, it reports which did, and the logs of our parts. */
async function onlyFrom(t: Test, world: World, who: string): Promise<void> {
  let last = ''
  const check = async (): Promise<boolean> => (last = await answers(world)) === who
  await eventually(check, { deadlineMs: 60_000, intervalMs: 250 }).catch(async () => {
    t.comment(await balancing(world))
    t.comment(await lastWords(world.here.api, 'sealane-system').catch(String))
    t.equal(last, who, 'who answers')
  })
}

/** The state of the service on the calling pod's node: the import, its slices, and the kernel. */
async function balancing({ here, cluster }: World): Promise<string> {
  const found = await findImport(here, 'demo', 'hello')
  const slices = await importedSlices(here, 'demo', 'hello')
  const netns = cluster.nodes[2]?.netns ?? ''
  const table = execFileSync('ip', ['netns', 'exec', netns, 'nft', 'list', 'table', 'ip', 'sealane_node'])
  const address = found?.spec.ips?.[0] ?? 'no address'
  const lines = table
    .toString()
    .split('\n')
    .filter((line) => line.includes(address))
  return [importText(found), ...slices.map(({ endpoints }) => JSON.stringify(endpoints)), ...lines].join('\n')
}

async function returns(t: Test, world: World): Promise<void> {
  const { clusters, gateway } = world
  const began = performance.now()
  clusters.underlay.plug(gateway.name, true)
  gateway.kubelet.start()
  await gateway.ready()
  await allUp(world)
  t.comment(`all is up ${((performance.now() - began) / 1000).toFixed(1)} s after the machine was switched on`)
  await eventually(async () => (await eventNotes(world)).includes('GatewayHeard: '), { deadlineMs: 20_000 })
  t.equal((await shown(world))?.state, 'up')
}
