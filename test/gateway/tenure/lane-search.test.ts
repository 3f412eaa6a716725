/** Nodes whose label leaves the number open share the existing numbers; on a fake clock and a fake API. */
import t, { type Test } from 'tap'
import { wireguardRules } from '../../../gateway/cable/wireguard/plan-device.ts'
import { LaneSearch } from '../../../gateway/lease/lane-search.ts'
import { LaneLease } from '../../../gateway/lease/lane-lease.ts'
import { FailedLane } from '../../../gateway/lease/failed-lane.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { laneHolders, laneOfHolder } from '../../../model/lanes/lane-servers.ts'
import type { Node } from '../../../model/objects.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { untilAborted } from '../../../reconcile/wait.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { connectionsTo, gatewayObject } from '../../support/objects/node-objects.ts'
import { FakeLeases } from '../support/fake-leases.ts'
import { membership } from '../support/netns-sites.ts'
import { endpoint, node } from '../support/worlds.ts'

const addressOf = (name: string): string => `192.0.2.${name.charCodeAt(0) - 87}`

class Cluster {
  readonly clock = new FakeClock()
  readonly objects = new MemoryApi({ clock: this.clock })
  readonly leases = new FakeLeases(this.objects)
  readonly logger = new CapturingLogger()
  readonly dead = new Set<string>()
  /** The current state of each process. */
  readonly states = new Map<string, string>()
  readonly #numbers: number
  readonly #stops = new Map<string, AbortController>()

  constructor(t: Test, numbers: number) {
    this.#numbers = numbers
    this.objects.put(membership('milano', 'joined'))
    t.teardown(() => {
      for (const stop of this.#stops.values()) stop.abort()
    })
  }

  label(name: string, value: string, spec: NonNullable<Node['spec']> = {}): void {
    const { metadata, ...rest } = node(name, addressOf(name))
    this.objects.put({ ...rest, metadata: { ...metadata, labels: { 'sealane.io/gateway': value } }, spec })
  }

  /** Labels the nodes, and starts their processes in that order. */
  start(...names: string[]): void {
    for (const name of names) {
      if (this.objects.get('Node', name) === undefined) this.label(name, 'true')
      const stop = new AbortController()
      this.#stops.set(name, stop)
      void this.#process(name, stop.signal)
    }
  }

  /** The machine disappears without giving its lease up. */
  lose(name: string): void {
    this.#stops.get(name)?.abort()
    this.states.delete(name)
    this.dead.add(addressOf(name))
  }

  async pass(ms: number): Promise<void> {
    for (let i = 0; i < ms; i += 100) await this.clock.advance(100)
  }

  /** The node that holds each lane, as `a=0 c=1`. */
  get held(): string {
    const leases = this.objects.cache('Lease').list()
    return [...laneHolders(leases)]
      .sort()
      .map((name) => `${name}=${laneOfHolder(leases, name)}`)
      .join(' ')
  }

  /** Does what labelled-gateway.ts does, without a gateway. */
  async #process(name: string, signal: AbortSignal): Promise<void> {
    const { clock, logger, objects, leases } = this
    const probeTcp = (address: string): Promise<boolean> => Promise.resolve(!this.dead.has(address))
    const deps = { clock, logger, api: objects, leases, probeTcp, cable: { rules: wireguardRules } }
    const failedLane = new FailedLane(clock)
    while (!signal.aborted) {
      const search = new LaneSearch(deps, { node: name, numbers: this.#numbers, failedLane })
      const found = await this.#until(search, signal, name, () => search.state.is === 'found')
      if (!found || search.state.is !== 'found') return
      const chosen = search.state.watch
      const tenure = new LaneLease(deps, { node: name, lane: chosen.lane, numbers: this.#numbers, chosen, failedLane })
      tenure.onChange(() => this.#publish(name, chosen.lane, tenure.state.is !== 'standing by'))
      await this.#until(tenure, signal, name, () => tenure.state.is === 'standing by')
    }
  }

  async #until(
    part: LaneSearch | LaneLease,
    signal: AbortSignal,
    name: string,
    isOver: () => boolean,
  ): Promise<boolean> {
    const over = new AbortController()
    const running = part.run(AbortSignal.any([signal, over.signal]))
    while (!signal.aborted && !isOver()) {
      const turn = part.whileTurn()
      this.states.set(name, part.state.is)
      await untilAborted(AbortSignal.any([signal, turn.signal]))
      turn.close()
    }
    over.abort()
    await running
    return !signal.aborted
  }

  /** A gateway that serves has its links up at once. */
  #publish(name: string, lane: number, serves: boolean): void {
    const own = endpoint('milano', name, lane, [])
    if (!serves) {
      this.objects.drop('Endpoint', own.metadata.name)
      this.objects.drop('Gateway', name)
      return
    }
    this.objects.put(own)
    const lanes = [{ lane, device: 'sealane0', mtu: 1420, driver: 'wireguard-kernel' }]
    const connections = connectionsTo({ paris: 'up' }).map((one) => ({ ...one, lane }))
    this.objects.put(gatewayObject(name, { lanes, connections }))
  }
}

t.test('as many gateways as numbers are active within seconds, and the others stand by', async (t) => {
  const rows: [numbers: number, started: string, held: string][] = [
    [2, 'a b', 'a=0 b=1'],
    [2, 'b a', 'a=0 b=1'],
    [2, 'd c b a', 'a=0 b=1'],
    [3, 'a b c', 'a=0 b=1 c=2'],
    [1, 'c a b', 'a=0'],
    [8, 'h g f e d c b a', 'a=0 b=1 c=2 d=3 e=4 f=5 g=6 h=7'],
    [8, 'a b c d e f g h i j k', 'a=0 b=1 c=2 d=3 e=4 f=5 g=6 h=7'],
    [2, 'a', 'a=0'],
  ]
  for (const [numbers, started, held] of rows) {
    const cluster = new Cluster(t, numbers)
    const names = started.split(' ')
    for (const name of names) cluster.label(name, 'true')
    cluster.start(...names)
    await cluster.pass(3000)
    t.equal(cluster.held, held, `${started}, ${numbers}`)
    const spare = [...cluster.states.values()].filter((state) => state === 'standing by').length
    t.equal(spare, Math.max(0, names.length - numbers))
    await cluster.pass(60_000)
    t.equal(cluster.held, held, 'and it stays so')
  }
})

t.test('a gateway is gone for 15 s: a standby takes its number, and it stands by when it comes back', async (t) => {
  const cluster = new Cluster(t, 3)
  cluster.start('a', 'b', 'c', 'd', 'e')
  await cluster.pass(10_000)
  t.equal(cluster.held, 'a=0 b=1 c=2')
  cluster.lose('b')
  await cluster.pass(12_000)
  t.equal(cluster.held, 'a=0 b=1 c=2', 'not before')
  await cluster.pass(8000)
  t.equal(cluster.held, 'a=0 c=2 d=1')
  cluster.dead.clear()
  cluster.start('b')
  await cluster.pass(30_000)
  t.equal(cluster.held, 'a=0 c=2 d=1', 'nothing moves for one that comes back')
  t.equal(cluster.states.get('b'), 'standing by')

  cluster.lose('a')
  cluster.lose('c')
  await cluster.pass(22_000)
  t.equal(cluster.held, 'b=0 d=1 e=2', 'two at once')
  cluster.lose('d')
  cluster.lose('e')
  await cluster.pass(22_000)
  t.equal(cluster.held, 'b=0 d=1 e=2', 'one that serves takes no second number')
})

t.test('a machine that stays takes a free number before a spot one, which takes what is left', async (t) => {
  const cluster = new Cluster(t, 1)
  cluster.label('b', 'true', { taints: [{ key: 'cloud.google.com/gke-spot', value: 'true', effect: 'NoSchedule' }] })
  cluster.start('a', 'b', 'c')
  await cluster.pass(10_000)
  t.equal(cluster.held, 'a=0')
  cluster.lose('a')
  await cluster.pass(22_000)
  t.equal(cluster.held, 'c=0')
  cluster.lose('c')
  await cluster.pass(22_000)
  t.equal(cluster.held, 'b=0')
})

t.test('a cordon gives the number to a standby; without one it stays, and nobody is warned', async (t) => {
  const cluster = new Cluster(t, 2)
  cluster.start('a', 'b', 'c')
  await cluster.pass(10_000)
  cluster.label('a', 'true', { unschedulable: true })
  await cluster.pass(1000)
  t.equal(cluster.held, 'a=0 b=1', 'first its traffic goes to the others')
  await cluster.pass(4000)
  t.equal(cluster.held, 'b=1 c=0')
  await cluster.pass(10_000)
  t.equal(cluster.states.get('a'), 'standing by', 'once the other is up')
  cluster.label('c', 'true', { unschedulable: true })
  await cluster.pass(60_000)
  t.equal(cluster.held, 'b=1 c=0')
  const warnings = () => cluster.objects.events.filter(({ type }) => type === 'Warning')
  t.strictSame(warnings(), [], 'b carries what it can')
  cluster.label('b', 'true', { unschedulable: true })
  await cluster.pass(60_000)
  t.equal(cluster.held, 'b=1 c=0')
  t.ok(warnings().length > 0, 'nobody will')
  for (const { reason } of warnings()) t.equal(reason, 'LaneNotHandedOver')
})

t.test('a node whose label says a number has it', async (t) => {
  const cluster = new Cluster(t, 2)
  cluster.label('z', '0')
  cluster.start('a', 'b')
  await cluster.pass(3000)
  t.equal(cluster.held, 'a=1', 'its process is late')
  await cluster.pass(10_000)
  t.equal(cluster.held, 'a=1 b=0', 'too late')
})

t.test('the API is away', async (t) => {
  const cluster = new Cluster(t, 2)
  cluster.start('a', 'b', 'c')
  await cluster.pass(10_000)
  cluster.leases.failure = new ClusterApiError('Unavailable', 'no answer')
  await cluster.pass(120_000)
  cluster.leases.failure = undefined
  await cluster.pass(12_000)
  t.equal(cluster.held, 'a=0 b=1')
  t.strictSame([...cluster.states.values()], ['serving', 'serving', 'standing by'], 'a silent holder was silent as all')

  cluster.leases.failure = new ClusterApiError('Unavailable', 'no answer')
  cluster.lose('b')
  cluster.dead.clear()
  cluster.start('b')
  await cluster.pass(5000)
  t.equal(cluster.states.get('b'), 'serving', 'what it served when it could last say so it takes up again')
  cluster.start('d')
  await cluster.pass(5000)
  t.equal(cluster.states.get('d'), 'unknown')
  cluster.leases.failure = undefined
  await cluster.pass(10_000)
  t.equal(cluster.held, 'a=0 b=1')
  t.equal(cluster.states.get('d'), 'standing by')
})

t.test('before a cluster joins no number is taken', async (t) => {
  const cluster = new Cluster(t, 2)
  cluster.objects.drop('Membership', 'self')
  cluster.start('a', 'b')
  await cluster.pass(10_000)
  t.equal(cluster.held, '')
  t.strictSame([...cluster.states.values()], ['unknown', 'unknown'])
  cluster.objects.put(membership('milano', 'joined'))
  await cluster.pass(3000)
  t.equal(cluster.held, 'a=0 b=1')
})
