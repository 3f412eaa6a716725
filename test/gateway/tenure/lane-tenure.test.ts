/** Three nodes with one lane number, on a clock and an API that are fakes. */
import t, { type Test } from 'tap'
import { wireguardRules } from '../../../gateway/cable/wireguard/plan-device.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { handLaneOver } from '../../../gateway/tenure/handover/hand-lane-over.ts'
import { LaneTenure } from '../../../gateway/tenure/lane-tenure.ts'
import { UnmadeLane } from '../../../gateway/tenure/unmade-lane.ts'
import type { GatewayDeps } from '../../../gateway/deps.ts'
import type { ConnectionState, Node } from '../../../model/objects.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { connectionsTo, gatewayObject } from '../../support/objects/node-objects.ts'
import { FakeLeases } from '../support/fake-leases.ts'
import { membership } from '../support/netns-sites.ts'
import { endpoint, node } from '../support/worlds.ts'

const NODES = ['a', 'b', 'c'] as const
type Name = (typeof NODES)[number]
const ADDRESSES = { a: '192.0.2.10', b: '192.0.2.11', c: '192.0.2.12' } as const

class Cluster {
  readonly clock = new FakeClock()
  readonly objects = new MemoryApi({ clock: this.clock })
  readonly leases = new FakeLeases(this.objects)
  readonly logger = new CapturingLogger()
  readonly tenures = new Map<Name, LaneTenure>()
  /** Machines that answer no knock, by address. */
  readonly dead = new Set<string>()
  readonly knocks: string[] = []
  readonly #stops = new Map<Name, AbortController>()

  constructor(t: Test) {
    this.objects.put(membership('milano', 'joined'))
    for (const name of NODES) this.node(name, {})
    t.teardown(() => NODES.forEach((name) => this.kill(name)))
  }

  node(name: Name, spec: NonNullable<Node['spec']>): void {
    this.label(name, '0', spec)
  }

  label(name: Name, lane: string | undefined, spec: NonNullable<Node['spec']> = {}): void {
    const { metadata, ...rest } = node(name, ADDRESSES[name])
    const labels = lane === undefined ? {} : { 'sealane.io/gateway': lane }
    this.objects.put({ ...rest, metadata: { ...metadata, labels }, spec })
  }

  start(...names: Name[]): void {
    for (const name of names) {
      const stop = new AbortController()
      const { clock, logger, objects, leases } = this
      const knock = (address: string): Promise<boolean> => {
        this.knocks.push(address)
        return Promise.resolve(!this.dead.has(address))
      }
      const cable = { rules: wireguardRules }
      const init = { node: name, lane: 0, numbers: 1, unmade: new UnmadeLane(clock) }
      const tenure = new LaneTenure({ clock, logger, api: objects, leases, knock, cable }, init)
      this.tenures.set(name, tenure)
      this.#stops.set(name, stop)
      void tenure.run(stop.signal)
    }
  }

  /** The process ends without a word; its machine is there. */
  kill(name: Name): void {
    this.#stops.get(name)?.abort()
    this.tenures.delete(name)
  }

  /** The machine goes without a word. */
  lose(name: Name): void {
    this.kill(name)
    this.dead.add(ADDRESSES[name])
  }

  /** What the node's gateway publishes: its Endpoint, and its lanes to the other clusters. */
  reports(
    name: Name,
    states: Readonly<Record<string, ConnectionState>> | undefined,
    driver = 'wireguard-kernel',
  ): void {
    const own = endpoint('milano', name, 0, [])
    this.objects.drop('Endpoint', own.metadata.name)
    this.objects.drop('Gateway', name)
    if (states === undefined) return
    const lanes = [{ lane: 0, device: 'sealane0', mtu: 1420, driver }]
    const heartbeatTime = new Date(this.clock.now()).toISOString()
    this.objects.put(own)
    this.objects.put(gatewayObject(name, { lanes, connections: connectionsTo(states), heartbeatTime }))
  }

  async pass(ms: number): Promise<void> {
    for (let i = 0; i < ms; i += 100) await this.clock.advance(100)
  }

  /** Events since the last call of it. */
  reported(): string[] {
    const events = this.objects.events.splice(0)
    return events.map(({ type, reason, regarding, note }) => `${type} ${reason} ${regarding.name}: ${note}`)
  }

  /** Such as `a serving, b standing by, c standing by`. */
  get states(): string {
    return [...this.tenures].map(([name, { state }]) => `${name} ${state.is}`).join(', ')
  }
}

const taken = (node: Name, why: string): string =>
  `Normal LaneTaken ${node}: this node is the gateway of lane 0 now; ${why}`

async function served(t: Test): Promise<Cluster> {
  const cluster = new Cluster(t)
  cluster.start('b', 'c', 'a')
  await cluster.pass(5000)
  t.equal(cluster.states, 'b standing by, c standing by, a serving', 'the first by name, whoever started first')
  cluster.reports('a', { paris: 'up', tokyo: 'up' })
  t.strictSame(cluster.reported(), [taken('a', 'nobody had it')])
  return cluster
}

t.test('a drain hands the lane over, and nobody takes it back', async (t) => {
  const cluster = await served(t)
  cluster.node('a', { unschedulable: true })
  await cluster.pass(300)
  t.equal(cluster.states, 'b serving, c standing by, a handing over', 'offered, and taken at once')
  cluster.reports('b', { paris: 'up', tokyo: 'connecting' })
  await cluster.pass(10_000)
  t.equal(cluster.states, 'b serving, c standing by, a handing over', 'until the other is up everywhere')
  t.strictSame([...(cluster.tenures.get('a')?.handedOver() ?? [])], ['0/paris'])
  cluster.reports('b', { paris: 'up', tokyo: 'up' })
  await cluster.pass(1500)
  t.match(cluster.states, 'a handing over', 'and the routes have followed')
  await cluster.pass(1000)
  t.equal(cluster.states, 'b serving, c standing by, a standing by')
  cluster.reports('a', undefined)
  cluster.node('a', {})
  await cluster.pass(60_000)
  t.equal(cluster.states, 'b serving, c standing by, a standing by', 'it does not come back by itself')
  t.strictSame(cluster.reported(), [
    taken('b', 'a gives it: the node is cordoned'),
    'Normal LaneHandedOver a: b has lane 0 now; this node goes on until it carries',
  ])
})

t.test('all nodes are cordoned: the lane stays, and that is told; one comes back', async (t) => {
  const cluster = await served(t)
  for (const name of NODES) cluster.node(name, { unschedulable: true })
  await cluster.pass(4000)
  t.strictSame(cluster.objects.events, [])
  await cluster.pass(60_000)
  t.equal(cluster.states, 'b standing by, c standing by, a serving')
  t.match(cluster.objects.events, [{ reason: 'LaneNotHandedOver', regarding: { kind: 'Node', name: 'a' } }])
  cluster.node('c', {})
  await cluster.pass(2500)
  t.equal(cluster.states, 'b standing by, c serving, a handing over')
})

t.test('a machine that dies is replaced after its Lease; it comes back and stands by', async (t) => {
  const cluster = await served(t)
  cluster.lose('a')
  await cluster.pass(10_000)
  t.equal(cluster.states, 'b standing by, c standing by')
  await cluster.pass(8000)
  t.equal(cluster.states, 'b serving, c standing by')
  t.strictSame(cluster.knocks.slice(0, 2), [ADDRESSES.a, ADDRESSES.a], 'knocked at twice: a packet may be lost')
  t.strictSame(cluster.reported(), [
    taken('b', 'a is gone'),
    'Warning LaneHolderLost a: lane 0 of this node is lost; b takes it',
  ])
  cluster.reports('b', { paris: 'up', tokyo: 'up' })
  cluster.start('a')
  await cluster.pass(4000)
  t.equal(cluster.states, 'b serving, c standing by, a standing by')
})

t.test('a process that is away for long, on a machine that answers, keeps its lane', async (t) => {
  const cluster = await served(t)
  cluster.kill('a')
  await cluster.pass(300_000)
  t.equal(cluster.states, 'b standing by, c standing by', 'its kernel goes on, and nobody would take that out')
  t.ok(cluster.knocks.length > 20 && cluster.knocks.length < 130, `asked now and then: ${cluster.knocks.length}`)
  t.match(cluster.objects.events, [{ reason: 'LaneHolderSilent', regarding: { kind: 'Node', name: 'a' } }])
  t.equal(cluster.objects.events.length, 1)
  await cluster.pass(900_000)
  t.equal(cluster.objects.events.length, 1, 'told once')
  t.equal(cluster.logger.lines.filter(({ message }) => message === 'the lease of the lane lapsed').length, 2)
  cluster.start('a')
  await cluster.pass(60_000)
  t.equal(cluster.states, 'b standing by, c standing by, a serving')
  t.equal(cluster.leases.get('sealane-lane-0')?.spec?.leaseTransitions, 0)

  cluster.kill('a')
  await cluster.pass(60_000)
  t.equal(cluster.states, 'b standing by, c standing by')
  cluster.lose('a')
  await cluster.pass(9000)
  t.equal(cluster.states, 'b serving, c standing by', 'later the machine goes as well')
})

t.test('a process that is away, and a lane that is lost with it, or given up', async (t) => {
  const rows: [say: string, happens: (cluster: Cluster) => void][] = [
    ['user space ends with it', (cluster) => cluster.reports('a', { paris: 'up' }, 'wireguard-userspace')],
    ['it was up nowhere', (cluster) => cluster.reports('a', { paris: 'down', tokyo: 'connecting' })],
    ['its Node is gone', (cluster) => cluster.objects.drop('Node', 'a')],
    ['its label is gone', (cluster) => cluster.label('a', undefined)],
    ['it is cordoned', (cluster) => cluster.node('a', { unschedulable: true })],
    [
      'nobody knows where to knock',
      (cluster) => {
        const { status: _none, ...rest } = cluster.objects.get('Node', 'a') as Node
        cluster.objects.put(rest)
      },
    ],
  ]
  for (const [say, happens] of rows) {
    const cluster = await served(t)
    cluster.kill('a')
    await cluster.pass(30_000)
    t.equal(cluster.states, 'b standing by, c standing by', say)
    happens(cluster)
    await cluster.pass(9000)
    t.equal(cluster.states, 'b serving, c standing by', say)
    t.equal(cluster.leases.get('sealane-lane-0')?.spec?.leaseTransitions, 1, say)
  }
})

t.test('a network that comes back while the lane is being taken', async (t) => {
  const cluster = await served(t)
  cluster.kill('b')
  cluster.lose('a')
  for (let i = 0; i < 200 && cluster.knocks.length < 2; i += 1) await cluster.pass(100)
  t.equal(cluster.knocks.length, 2)
  cluster.dead.clear()
  await cluster.pass(60_000)
  t.equal(cluster.states, 'c standing by', 'the machine answers again before it was given up')
})

t.test('a Lease that somebody removes each time is not made anew at once', async (t) => {
  const cluster = await served(t)
  let made = 0
  cluster.leases.collects = true
  const write = cluster.leases.write.bind(cluster.leases)
  cluster.leases.write = (lease) => {
    made += 1
    return write(lease)
  }
  await cluster.pass(30_000)
  t.ok(made >= 5 && made <= 12, `${made} times in 30 s`)
  t.equal(cluster.states, 'b standing by, c standing by, a serving')
  cluster.leases.collects = false
  await cluster.pass(10_000)
  t.equal(cluster.leases.get('sealane-lane-0')?.spec?.holderIdentity, 'a')
})

t.test('without an API nothing moves, for minutes; then a dead one is replaced', async (t) => {
  const cluster = await served(t)
  cluster.leases.failure = new ClusterApiError('Unavailable', 'no answer')
  await cluster.pass(120_000)
  t.equal(cluster.states, 'b standing by, c standing by, a serving')
  cluster.leases.failure = undefined
  await cluster.pass(20_000)
  t.equal(cluster.states, 'b standing by, c standing by, a serving', 'and nobody thinks that it was dead')
  t.equal(cluster.leases.get('sealane-lane-0')?.spec?.leaseTransitions, 0)
  cluster.leases.failure = new ClusterApiError('Unavailable', 'no answer')
  cluster.lose('a')
  await cluster.pass(60_000)
  cluster.leases.failure = undefined
  await cluster.pass(14_000)
  t.equal(cluster.states, 'b standing by, c standing by')
  await cluster.pass(5000)
  t.equal(cluster.states, 'b serving, c standing by')
})

t.test('a process that starts while nobody answers', async (t) => {
  const cluster = new Cluster(t)
  cluster.leases.failure = new ClusterApiError('Unavailable', 'no answer')
  cluster.start('a', 'b')
  cluster.reports('b', { paris: 'up' })
  await cluster.pass(3000)
  t.equal(cluster.states, 'a unknown, b serving', 'who has told that it serves goes on')
  cluster.leases.failure = undefined
  await cluster.pass(3000)
  t.equal(cluster.states, 'a standing by, b serving', 'and keeps the lane')

  const older = new Cluster(t)
  older.leases.failure = new ClusterApiError('Forbidden', 'leases is forbidden')
  older.start('a', 'b')
  await older.pass(3000)
  t.equal(older.states, 'a serving, b serving', 'without the right to Leases the label alone counts')
})

t.test('a release without Leases: who was called last goes on', async (t) => {
  const cluster = new Cluster(t)
  cluster.reports('a', { paris: 'down' })
  await cluster.pass(2000)
  cluster.reports('c', { paris: 'up' })
  cluster.start('a', 'b', 'c')
  await cluster.pass(300)
  t.match(cluster.states, /c serving/)
  await cluster.pass(4000)
  t.equal(cluster.states, 'a standing by, b standing by, c serving')
})

t.test('before a cluster joins, and after it has left, no Lease is made', async (t) => {
  const cluster = new Cluster(t)
  cluster.objects.drop('Membership', 'self')
  cluster.start('a', 'b')
  await cluster.pass(10_000)
  t.equal(cluster.states, 'a unknown, b unknown')
  t.match(cluster.tenures.get('a')?.state, { why: 'this cluster has not joined yet' })
  t.equal(cluster.leases.get('sealane-lane-0'), undefined)
  cluster.objects.put(membership('milano', 'joined'))
  await cluster.pass(1000)
  t.equal(cluster.states, 'a serving, b standing by')
  const before = cluster.leases.get('sealane-lane-0')?.metadata
  t.equal(before?.ownerReferences?.[0]?.kind, 'Membership')
  for (const phase of ['leaving', 'gone'] as const) {
    if (phase === 'gone') cluster.objects.drop('Membership', 'self')
    else cluster.objects.put(membership('milano', 'leaving'))
    await cluster.pass(60_000)
    t.equal(cluster.leases.get('sealane-lane-0')?.metadata.resourceVersion, before?.resourceVersion, phase)
    t.equal(cluster.states, 'a serving, b standing by', 'and it sees to its own departure')
  }
})

/** The end of a process in user space. */
function ending({ objects, clock, logger, tenures }: Cluster, name: Name, driver: string, goes = false): Promise<void> {
  const cable = { rules: wireguardRules, driver: () => Promise.resolve({ name: `wireguard-${driver}` }) }
  const deps = { api: objects, clock, logger, cable } as unknown as GatewayDeps
  const tenure = tenures.get(name)
  if (tenure === undefined) throw new Error('no tenure')
  return handLaneOver(deps, tenure, goes)
}

async function tookMs(cluster: Cluster, end: Promise<void>): Promise<number> {
  const began = cluster.clock.monotonic()
  const over = new AbortController()
  void end.then(() => over.abort())
  for (let i = 0; i < 1000 && !over.signal.aborted; i += 1) await cluster.pass(100)
  return cluster.clock.monotonic() - began
}

t.test('the end of the process', async (t) => {
  const rows: [say: string, driver: string, others: 'there' | 'away', fromMs: number, toMs: number][] = [
    ['a lane of the kernel goes on without it', 'kernel', 'there', 0, 500],
    ['one of user space is handed over', 'userspace', 'there', 2000, 5000],
    ['unless there is nobody', 'userspace', 'away', 0, 500],
  ]
  for (const [say, driver, others, fromMs, toMs] of rows) {
    const cluster = await served(t)
    if (others === 'away') for (const name of ['b', 'c'] as const) cluster.node(name, { unschedulable: true })
    cluster.reports('b', { paris: 'up', tokyo: 'up' })
    const ms = await tookMs(cluster, ending(cluster, 'a', driver))
    t.ok(ms >= fromMs && ms <= toMs, `${say}: ${ms} ms`)
    t.equal(cluster.states.includes('b serving'), fromMs > 0, say)
  }
  const down = await served(t)
  down.node('a', { taints: [{ key: 'node.kubernetes.io/not-ready', effect: 'NoExecute' }] })
  down.reports('b', { paris: 'up', tokyo: 'up' })
  await tookMs(down, ending(down, 'a', 'kernel'))
  t.match(down.states, 'b serving', 'a machine that shuts down takes the lane of its kernel along')

  const cluster = await served(t)
  t.ok((await tookMs(cluster, ending(cluster, 'b', 'userspace'))) < 500, 'who stands by just ends')

  for (const others of ['none', 'away'] as const) {
    const alone = await served(t)
    for (const name of ['b', 'c'] as const) {
      alone.kill(name)
      if (others === 'none') alone.label(name, undefined)
    }
    alone.label('a', undefined)
    await tookMs(alone, ending(alone, 'a', 'kernel', true))
    const holder = (): string | undefined => alone.leases.get('sealane-lane-0')?.spec?.holderIdentity
    t.equal(holder(), '', `given back, others ${others}`)
    await alone.pass(20_000)
    t.equal(holder(), '', 'and not taken again by a node that is no gateway')
    alone.node('c', {})
    alone.start('c')
    await alone.pass(3000)
    t.equal(holder(), 'c', 'the next one need not wait')
  }

  const dead = await served(t)
  dead.kill('b')
  dead.kill('c')
  const ms = await tookMs(dead, ending(dead, 'a', 'userspace'))
  t.ok(ms >= 5000 && ms < 6000, `nobody comes: ${ms} ms`)

  const slow = await served(t)
  const slowMs = await tookMs(slow, ending(slow, 'a', 'userspace'))
  t.ok(slowMs >= 25_000 && slowMs < 26_000, `it comes and is not up in time: ${slowMs} ms`)

  const gone = await served(t)
  for (const name of ['b', 'c'] as const) gone.kill(name)
  await tookMs(gone, ending(gone, 'a', 'kernel', true))
  t.equal(gone.leases.get('sealane-lane-0')?.spec?.holderIdentity, '', 'who is no gateway any more gives it back')
})

t.test('a label that is taken off: the node goes on until another gateway carries', async (t) => {
  const cluster = await served(t)
  cluster.reports('a', { paris: 'up', tokyo: 'up' })
  cluster.reports('b', { paris: 'up', tokyo: 'up' })
  for (const name of ['b', 'c'] as const) cluster.kill(name)
  cluster.label('a', undefined)
  cluster.reported()
  const from = cluster.clock.monotonic()
  let endedMs: number | undefined
  const end = ending(cluster, 'a', 'kernel', true).then(() => (endedMs = cluster.clock.monotonic() - from))
  await cluster.pass(20_000)
  t.equal(endedMs, undefined, 'what a process said that is gone does not count')
  t.match(cluster.reported(), [/^Warning LaneNotHandedOver a: .* this one goes on until one does, for 60 s$/])
  cluster.reports('b', { paris: 'up', tokyo: 'connecting' })
  await cluster.pass(5000)
  t.equal(endedMs, undefined, 'one that reaches less does not carry')
  cluster.reports('b', { paris: 'up', tokyo: 'up' })
  await cluster.pass(5000)
  await end
  t.ok(endedMs !== undefined && endedMs >= 25_000 && endedMs < 30_000, `after ${endedMs} ms`)
  t.equal(cluster.leases.get('sealane-lane-0')?.spec?.holderIdentity, '', 'and gives the lane back')
})
