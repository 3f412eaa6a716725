import t from 'tap'
import { ClusterApiError } from '../../kubeapi/cluster-api.ts'
import { HeardGateways } from '../../kubeapi/heard-gateways.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { LABEL_GATEWAY } from '../../model/lanes/gateway-node.ts'
import type { Gateway, Node } from '../../model/objects.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { connectionsTo, gatewayObject, internalIps, nodeObject } from '../support/objects/node-objects.ts'

const NAMES = ['g1', 'g2'] as const
type Name = (typeof NAMES)[number]
const MACHINES = ['192.0.2.1', '192.0.2.2']

const node = (name: string, i: number, labels: Record<string, string> = { [LABEL_GATEWAY]: 'true' }): Node =>
  nodeObject(name, { metadata: { labels }, status: internalIps(`192.0.2.${i + 1}`) })

/** A watcher of two gateways, both with a lane to paris that is up. */
class Stage {
  readonly clock = new FakeClock()
  readonly api = new MemoryApi({ clock: this.clock })
  readonly logger = new CapturingLogger()
  readonly knocks: string[] = []
  /** The gateways whose processes write. */
  readonly writing = new Set<Name>(NAMES)
  /** The addresses whose machines answer. */
  readonly machines = new Set(MACHINES)
  readonly changes: string[] = []
  readonly heard: HeardGateways
  readonly #only: readonly Name[]
  readonly #stop = new AbortController()
  #turns = 0

  constructor(only: readonly Name[] = NAMES, heartbeatMs?: number) {
    this.#only = only
    NAMES.forEach((name, i) => this.api.put(node(name, i)))
    const { clock, api: api, logger } = this
    this.heard = new HeardGateways({
      api,
      clock,
      logger,
      heartbeatMs,
      probeTcp: (address) => {
        this.knocks.push(address)
        return Promise.resolve(this.machines.has(address))
      },
    })
    this.heard.onChange((change) => {
      if (change?.type === 'set') this.changes.push(`${change.object.metadata.name} ${this.shown()}`)
    })
    this.#write()
    void this.heard.run(this.#stop.signal)
  }

  /** The gateways write every 3 s while the API accepts writes. */
  async pass(seconds: number): Promise<void> {
    for (let i = 0; i < seconds; i += 1) {
      this.#turns += 1
      if (this.#turns % 3 === 0 && this.api.failure === undefined) this.#write()
      await this.clock.advance(1000)
    }
  }

  outage(is: boolean): void {
    this.api.failure = is ? new ClusterApiError('Unavailable', 'no answer') : undefined
  }

  /** The health of each gateway, as `fresh up, gone down`. */
  shown(): string {
    return this.heard
      .list()
      .map(({ metadata, status }) => `${this.heard.liveness(metadata.name)} ${status?.connections[0]?.state}`)
      .join(', ')
  }

  stop(): void {
    this.#stop.abort()
  }

  #write(): void {
    for (const name of this.#only) {
      if (this.writing.has(name)) this.api.put(gateway(name, new Date(this.clock.now()).toISOString()))
    }
  }
}

function gateway(name: string, heartbeatTime?: string): Gateway {
  const beat = heartbeatTime === undefined ? {} : { heartbeatTime }
  return gatewayObject(name, { connections: connectionsTo({ paris: 'up' }), ...beat })
}

t.test('a machine that dies', async (t) => {
  for (const only of [NAMES, ['g1']] as const) {
    const stage = new Stage(only)
    const rest = only.length === 2 ? ', fresh up' : ''
    await stage.pass(30)
    t.equal(stage.shown(), `fresh up${rest}`)
    t.equal(stage.knocks.length, only.length, 'once each, to learn whether they answer at all')
    stage.writing.delete('g1')
    stage.machines.delete('192.0.2.1')
    await stage.pass(10)
    t.equal(stage.shown(), `fresh up${rest}`, 'a restart of the process would be over by now')
    stage.changes.length = 0
    await stage.pass(10)
    t.equal(stage.shown(), `gone down${rest}`, 'within 20 s')
    t.ok(stage.changes.includes(`g1 gone down${rest}`), 'and that is told')
    const knocks = (): number => stage.knocks.filter((address) => address === '192.0.2.1').length
    const before = knocks()
    await stage.pass(60)
    t.equal(knocks(), before, 'there it rests')
    stage.machines.add('192.0.2.1')
    await stage.pass(30)
    t.equal(stage.shown(), `gone down${rest}`, 'a machine that is back has no lanes yet')
    stage.writing.add('g1')
    stage.changes.length = 0
    await stage.pass(3)
    t.equal(stage.shown(), `fresh up${rest}`, 'back with the first word')
    t.ok(stage.changes.includes(`g1 fresh up${rest}`), 'and that is told')
    await stage.pass(10)
    stage.writing.delete('g1')
    stage.machines.delete('192.0.2.1')
    await stage.pass(20)
    t.equal(stage.shown(), `gone down${rest}`, 'and a second time')
    stage.stop()
  }
})

t.test('a heartbeat of another length: three of them count', async (t) => {
  for (const [seconds, isHeard, isLost] of [
    [4, 9, 18],
    [10, 26, 40],
  ] as const) {
    const stage = new Stage(['g1'], seconds * 1000)
    await stage.pass(30)
    stage.writing.clear()
    stage.machines.clear()
    await stage.pass(isHeard)
    t.equal(stage.shown(), 'fresh up', `not within ${isHeard} s`)
    await stage.pass(isLost - isHeard)
    t.equal(stage.shown(), 'gone down', `within ${isLost} s`)
    stage.stop()
  }
})

t.test('a process that dies while its machine lives', async (t) => {
  const alone = new Stage(['g1'])
  await alone.pass(9)
  alone.writing.clear()
  await alone.pass(20)
  t.equal(alone.shown(), 'silent up', 'the only way there is stays')
  await alone.pass(300)
  t.equal(alone.shown(), 'silent up')
  t.ok(alone.knocks.length < 80, `knocked at now and then: ${alone.knocks.length}`)
  alone.machines.clear()
  await alone.pass(10)
  t.equal(alone.shown(), 'gone down', 'until the machine dies as well')
  alone.stop()

  const two = new Stage()
  await two.pass(9)
  two.writing.delete('g2')
  await two.pass(20)
  t.equal(two.shown(), 'fresh up, silent down', 'whoever is heard goes first')
  two.stop()
})

t.test('the API is away: nothing changes, neither then nor afterwards', async (t) => {
  for (const only of [NAMES, ['g1']] as const) {
    const stage = new Stage(only)
    await stage.pass(9)
    const before = stage.shown()
    for (const seconds of [120, 12, 8, 5]) {
      // No machine would answer a probe, and all have answered before, so only the rule keeps them.
      stage.machines.clear()
      const knocks = stage.knocks.length
      stage.outage(true)
      await stage.pass(seconds)
      t.equal(stage.shown(), before, `${seconds} s without an API`)
      t.equal(stage.knocks.length, knocks, 'nobody is knocked at')
      stage.outage(false)
      // The gateways write again only after their own pauses.
      const names = [...stage.writing]
      stage.writing.clear()
      await stage.pass(3)
      t.equal(stage.knocks.length, knocks, 'nor afterwards')
      for (const address of MACHINES) stage.machines.add(address)
      for (const name of names) stage.writing.add(name)
      await stage.pass(20)
      t.equal(stage.shown(), before, `back after ${seconds} s`)
    }
    t.ok(stage.knocks.length <= 2 * only.length, `only to learn whether they answer: ${stage.knocks.length}`)
    stage.stop()
  }
})

t.test('who has died during an outage is found after it; who had died before stays dead', async (t) => {
  const stage = new Stage()
  await stage.pass(9)
  stage.writing.delete('g1')
  stage.machines.delete('192.0.2.1')
  await stage.pass(20)
  t.equal(stage.shown(), 'gone down, fresh up')
  stage.outage(true)
  stage.writing.delete('g2')
  stage.machines.delete('192.0.2.2')
  await stage.pass(60)
  t.equal(stage.shown(), 'gone down, fresh up')
  stage.outage(false)
  await stage.pass(25)
  t.equal(stage.shown(), 'gone down, gone down')
  stage.stop()
})

t.test('the API takes no writes: machines answer, so nothing changes', async (t) => {
  const stage = new Stage()
  await stage.pass(9)
  stage.writing.clear()
  await stage.pass(120)
  t.equal(stage.shown(), 'silent up, silent up')
  stage.stop()
})

t.test('a firewall that swallows knocks: who never answered is silent, not gone', async (t) => {
  for (const only of [NAMES, ['g1']] as const) {
    const stage = new Stage(only)
    stage.machines.clear()
    const rows = { up: only.map(() => 'fresh up').join(', '), silent: only.map(() => 'silent up').join(', ') }
    await stage.pass(600)
    const before = stage.knocks.length
    await stage.pass(600)
    t.equal(stage.shown(), rows.up)
    t.ok(before <= 16 * only.length, `more often at first: ${before}`)
    const knocks = stage.knocks.length - before
    t.ok(knocks <= 8 * only.length, `rarely, while all is well: ${knocks}`)
    stage.writing.clear()
    await stage.pass(120)
    t.equal(stage.shown(), rows.silent, 'nobody writes any more, and nobody is cut off')
    for (const address of MACHINES) stage.machines.add(address)
    await stage.pass(10)
    stage.machines.clear()
    await stage.pass(10)
    t.equal(stage.shown(), only.map(() => 'gone down').join(', '), 'they answered at last, and then no more')
    stage.stop()
  }
})

t.test('a firewall that is closed later: what was learnt before is forgotten while they write', async (t) => {
  const stage = new Stage()
  await stage.pass(30)
  stage.machines.clear()
  await stage.pass(200)
  stage.writing.clear()
  await stage.pass(60)
  t.equal(stage.shown(), 'silent up, silent up')
  stage.stop()
})

t.test('a node that is to be no gateway, and whose process could not take its object away', async (t) => {
  for (const only of [NAMES, ['g1']] as const) {
    const stage = new Stage(only)
    const rest = only.length === 2 ? ', fresh up' : ''
    await stage.pass(9)
    stage.api.put(node('g1', 0, {}))
    await stage.pass(30)
    t.equal(stage.shown(), `fresh up${rest}`, 'it hands over, and says so: it counts')
    stage.writing.delete('g1')
    await stage.pass(20)
    t.equal(stage.shown(), `gone down${rest}`, 'though its machine answers')
    stage.stop()
  }
  const stage = new Stage(['g1'])
  await stage.pass(9)
  stage.writing.delete('g1')
  await stage.pass(20)
  t.equal(stage.shown(), 'silent up')
  stage.api.put(node('g1', 0, {}))
  await stage.pass(6)
  t.equal(stage.shown(), 'gone down', 'the label was taken off afterwards')
  stage.stop()
})

t.test('a machine that is too busy for the first knock is asked again before long', async (t) => {
  const stage = new Stage()
  stage.machines.delete('192.0.2.1')
  await stage.pass(3)
  stage.machines.add('192.0.2.1')
  await stage.pass(30)
  stage.writing.delete('g1')
  stage.machines.delete('192.0.2.1')
  await stage.pass(25)
  t.equal(stage.shown(), 'gone down, fresh up')
  stage.stop()
})

t.test('a machine with another address has to answer there first', async (t) => {
  const stage = new Stage()
  await stage.pass(30)
  stage.api.put(node('g1', 8))
  stage.machines.delete('192.0.2.1')
  await stage.pass(30)
  stage.writing.delete('g1')
  await stage.pass(20)
  t.equal(stage.shown(), 'silent down, fresh up')
  stage.stop()
})

t.test('releases that do not tell, objects that go, and who is seen for the first time', async (t) => {
  const stage = new Stage([])
  stage.api.put(gateway('g1'))
  await stage.pass(60)
  t.equal(stage.shown(), 'fresh up', 'without a heartbeat nothing is judged')
  stage.api.put(gateway('g2', '2020-01-01T00:00:00Z'))
  await stage.pass(10)
  t.equal(stage.shown(), 'fresh up, fresh up', 'an old one counts from when it is first seen')
  stage.machines.clear()
  await stage.pass(12)
  t.equal(stage.shown(), 'fresh up, gone down')
  t.strictSame(stage.heard.stale(), ['g2'])
  stage.api.drop('Gateway', 'g2')
  await stage.pass(1)
  t.strictSame(stage.heard.stale(), [])
  stage.api.put(gateway('g2', '2020-01-01T00:00:00Z'))
  await stage.pass(10)
  t.equal(stage.shown(), 'fresh up, fresh up', 'made anew: from the beginning')
  stage.stop()
})
