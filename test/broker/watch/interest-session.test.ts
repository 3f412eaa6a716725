/**
 * The session of a member that asks for namespaces, with a broker of this release and with a broker that does not
 * support interests.
 */
import t, { type Test } from 'tap'
import type { BrokerApi, Peer, WatchRequest } from '../../../protocol/broker-api.ts'
import { inMemoryBroker } from '../../../protocol/transport/in-memory.ts'
import { Replica, type ReplicaChange } from '../../../protocol/replica/record-replica.ts'
import { WatchSession } from '../../../protocol/sessions/watch-session.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { eventually } from '../../support/eventually.ts'
import { type Harness, Publisher, aSlice, anExport, join_, startBroker } from '../support/harness.ts'

const NAMESPACES = ['blue', 'red', 'shop']

/** Returns the broker as an earlier release, which ignores the field. */
function ofLastRelease(api: BrokerApi): BrokerApi {
  const watch: BrokerApi['watch'] = (peer, { interest: _, ...request }, signal, end) =>
    api.watch(peer, request, signal, end)
  return new Proxy(api, { get: (target, name) => (name === 'watch' ? watch : Reflect.get(target, name)) as unknown })
}

class Member {
  readonly replica = new Replica()
  readonly states: string[] = []
  readonly requests: WatchRequest[] = []
  readonly changes: ReplicaChange[] = []
  readonly session: WatchSession
  #link: ReturnType<typeof inMemoryBroker>

  readonly #peer: Peer

  constructor(harness: Harness, peer: Peer) {
    this.#peer = peer
    this.#link = this.at(harness.broker)
    this.session = new WatchSession({
      connect: () => this.#link.connect(),
      replica: this.replica,
      clock: new SystemClock(),
      logger: new CapturingLogger(),
      waitsForInterest: true,
      onChange: (changes) => this.changes.push(...changes),
      onState: ({ t: state }) => {
        if (this.states.at(-1) !== state) this.states.push(state)
      },
    })
  }

  at(api: BrokerApi): ReturnType<typeof inMemoryBroker> {
    const watch: BrokerApi['watch'] = (peer, request, signal, end) => {
      this.requests.push(request)
      return api.watch(peer, request, signal, end)
    }
    const noted = new Proxy(api, {
      get: (target, name) => (name === 'watch' ? watch : Reflect.get(target, name)) as unknown,
    })
    return inMemoryBroker(noted, this.#peer)
  }

  /** Breaks the connection, so that the next one goes to the given broker. */
  moveTo(api: BrokerApi): void {
    const old = this.#link
    this.#link = this.at(api)
    old.cut()
  }

  ask(...names: string[]): void {
    this.session.setInterest(new Set(names))
  }

  async has(want: string): Promise<void> {
    const now = (): string => {
      const spaces = [...this.replica.records.values()].map(({ key }) => key.namespace).filter((one) => one !== '')
      return [...new Set(spaces)].sort().join()
    }
    await eventually(() => now() === want, { say: want }).catch((error: unknown) => {
      throw new Error(`${String(error)}: ${now()}`)
    })
  }
}

async function begin(t: Test): Promise<{ harness: Harness; member: Member; publisher: Publisher }> {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  await publisher.publish(
    NAMESPACES.flatMap((at) => [anExport('web', { type: 'Headless' }, at), aSlice('web', '10.42.0.5', at)]),
  )
  const member = new Member(harness, peer)
  const stop = new AbortController()
  const running = member.session.run(stop.signal)
  t.teardown(async () => {
    stop.abort()
    await running
  })
  return { harness, member, publisher }
}

t.test(
  'nothing is asked for before it is known what; then a change takes over while the session is live',
  async (t) => {
    const { member, publisher } = await begin(t)
    await new Promise((resolve) => setImmediate(resolve))
    t.equal(member.requests.length, 0)
    member.ask('shop')
    await member.has('shop')
    await eventually(() => member.states.at(-1) === 'live')
    t.same(member.states, ['connecting', 'syncing', 'live'])

    member.ask('shop', 'red')
    await member.has('red,shop')
    await eventually(() => member.replica.holds('red'))
    t.same(member.states, ['connecting', 'syncing', 'live'], 'it was live all the time')
    t.equal(member.requests.length, 2, 'one request more')
    t.same([...(member.requests[1]?.interest?.missing ?? [])], ['red'])
    const shop = member.changes.filter(({ record }) => record.key.namespace === 'shop')
    t.equal(shop.length, 2, 'what it had was not sent again')

    member.ask('red')
    t.notOk(member.replica.holds('shop'), 'dropped at once')
    const last = member.changes.slice(-2).map((one) => `${one.t} ${one.record.key.namespace}`)
    t.same(last, ['removed shop', 'removed shop'])
    await publisher.put(anExport('db', { type: 'Headless' }, 'shop'))
    await publisher.put(anExport('db', { type: 'Headless' }, 'red'))
    await eventually(() => member.replica.records.has('milano/ServiceExport/red/db'))
    await member.has('red')
    member.ask('red')
    t.equal(member.requests.length, 3, 'the same again is no change')
    t.same([...(member.replica.exported ?? [])].sort(), NAMESPACES)

    for (const names of [['blue'], ['shop', 'red'], [], NAMESPACES]) member.ask(...names)
    await member.has('blue,red,shop')
    await eventually(() => NAMESPACES.every((name) => member.replica.holds(name)))
    t.same(member.states, ['connecting', 'syncing', 'live'])
  },
)

t.test('a broker of the last release sends everything; one of this release takes over from there', async (t) => {
  const { harness, member, publisher } = await begin(t)
  member.ask('shop')
  await member.has('shop')
  member.moveTo(ofLastRelease(harness.broker))
  await member.has('blue,red,shop')
  t.ok(member.replica.holds('anything'))
  t.equal(member.replica.exported, undefined, 'nobody tells')
  const resumed = member.requests.map(({ resume }) => (resume === undefined ? 'whole' : 'resumed'))
  t.same(resumed, ['whole', 'resumed', 'whole'], 'a part cannot be resumed there')
  await publisher.put(anExport('db', { type: 'Headless' }, 'blue'))
  await eventually(() => member.replica.records.has('milano/ServiceExport/blue/db'))

  member.moveTo(harness.broker)
  await member.has('shop')
  t.ok(member.requests.at(-1)?.resume, 'everything is there already')
  t.same([...(member.replica.exported ?? [])].sort(), NAMESPACES)
  t.ok(member.replica.holds('shop'))
  t.notOk(member.replica.holds('blue'))
  member.ask('shop', 'blue')
  await member.has('blue,shop')
})

t.test('everything again, by a member that had a part', async (t) => {
  const { member } = await begin(t)
  member.ask('shop')
  await member.has('shop')
  member.session.setInterest(undefined)
  await member.has('blue,red,shop')
  t.equal(member.replica.scope, undefined)
  member.session.setInterest(new Set())
  await member.has('')
  t.equal(member.replica.records.size, 1, 'of clusters it hears all the same')
})
