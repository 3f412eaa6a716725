import t from 'tap'
import { AddressBook } from '../../protocol/broker-addresses.ts'
import { ConnectionLife } from '../../protocol/transport/connection-life.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'

const MINUTE = 60_000

t.test('no two lives are the same, none is shorter than half or longer than half as much again', async (t) => {
  const clock = new FakeClock()
  const dropped: string[] = []
  const life = new ConnectionLife({ clock, ageMs: 20 * MINUTE, drop: (peer) => void dropped.push(peer) })
  const ends: number[] = []
  for (let i = 0; i < 200; i += 1) {
    life.begin(`10.0.0.1:${i}`)
    life.signalOf(`10.0.0.1:${i}`)?.addEventListener('abort', () => void ends.push(clock.monotonic()))
  }
  await clock.advance(10 * MINUTE - 1)
  t.equal(ends.length, 0)
  await clock.advance(20 * MINUTE + 1)
  t.equal(ends.length, 200)
  for (let minute = 10; minute < 30; minute += 1) {
    const within = ends.filter((at) => at >= minute * MINUTE && at < (minute + 1) * MINUTE).length
    t.ok(within >= 1 && within <= 25, `minute ${minute}: ${within} of 200`)
  }
  t.ok(dropped.length > 150, 'a member that holds on is dropped')
  await clock.advance(MINUTE)
  t.equal(new Set(dropped).size, 200)
})

t.test('one that has closed is forgotten; without an age nobody is sent away', async (t) => {
  const clock = new FakeClock()
  const life = new ConnectionLife({ clock, ageMs: 1000, drop: () => t.fail('it is closed') })
  life.begin('10.0.0.1:1')
  life.forget('10.0.0.1:1')
  t.equal(life.signalOf('10.0.0.1:1'), undefined)
  t.same(clock.pending(), [])
  const forEver = new ConnectionLife({ clock, ageMs: 0, drop: () => t.fail('it may stay') })
  forEver.begin('10.0.0.1:1')
  t.same(clock.pending(), [])
  t.equal(forEver.signalOf('10.0.0.1:1')?.aborted, false)
})

t.test('before a stop, members leave one by one, also those that come meanwhile', async (t) => {
  const clock = new FakeClock()
  const life = new ConnectionLife({ clock, ageMs: 0, drop: () => undefined })
  const ends: number[] = []
  const connect = (peer: string): void => {
    life.begin(peer)
    life.signalOf(peer)?.addEventListener('abort', () => {
      ends.push(clock.monotonic())
      life.forget(peer)
    })
  }
  for (let i = 0; i < 100; i += 1) connect(`10.0.0.1:${i}`)
  let isOver = false
  const drained = life.drain(10_000).then(() => (isOver = true))
  await clock.advance(4000)
  connect('10.0.0.2:1')
  await clock.advance(1000)
  t.ok(ends.length > 30 && ends.length < 70, `${ends.length} in half of the time`)
  t.notOk(isOver)
  await clock.advance(5000)
  await drained
  t.equal(ends.length, 101)
  await new ConnectionLife({ clock, ageMs: 0, drop: () => undefined }).drain(10_000)
  t.pass('nobody there, nothing to wait for')
})

t.test('members of a replica that is cut off leave it, and who comes meanwhile stays for a minute', async (t) => {
  const clock = new FakeClock()
  const life = new ConnectionLife({ clock, ageMs: 0, drop: () => undefined })
  const ends: number[] = []
  const connect = (peer: string): void => {
    life.begin(peer)
    life.signalOf(peer)?.addEventListener('abort', () => {
      ends.push(clock.monotonic())
      life.forget(peer)
    })
  }
  for (let round = 0; round < 3; round += 1) {
    ends.length = 0
    for (let i = 0; i < 50; i += 1) connect(`10.0.0.${round}:${i}`)
    for (let again = 0; again < 3; again += 1) life.setCutOff(true)
    await clock.advance(2500)
    t.ok(ends.length > 10 && ends.length < 40, `${ends.length} of 50 in half of the time`)
    await clock.advance(2500)
    t.equal(ends.length, 50)
    for (let i = 50; i < 100; i += 1) connect(`10.0.0.${round}:${i}`)
    await clock.advance(30_000 - 1)
    t.equal(ends.length, 50, 'where all are cut off nobody goes round and round')
    await clock.advance(60_000)
    t.equal(ends.length, 100)
    life.setCutOff(false)
    connect(`10.0.0.${round}:100`)
    await clock.advance(24 * 60 * MINUTE)
    t.equal(ends.length, 100, 'as before')
    life.forget(`10.0.0.${round}:100`)
  }
})

/** Members with three addresses each, and three replicas; only the wire is a fake. */
class Fleet {
  readonly clock = new FakeClock({ seed: 7 })
  readonly replicas: ConnectionLife[] = []
  readonly at = new Map<string, number>()
  moves = 0
  readonly #books = new Map<string, AddressBook>()
  readonly #down = new Set<number>()

  constructor(members: number) {
    for (let i = 0; i < 3; i += 1) this.start(i)
    const own = [0, 1, 2].map((i) => `10.0.0.${i}:7443`)
    for (let i = 0; i < members; i += 1) this.#books.set(`m${i}:1`, new AddressBook({ own, clock: this.clock }))
    for (const member of this.#books.keys()) this.#connect(member)
  }

  start(i: number): void {
    this.#down.delete(i)
    this.replicas[i] = new ConnectionLife({ clock: this.clock, ageMs: 20 * MINUTE, drop: () => undefined })
  }

  async stop(i: number): Promise<void> {
    this.#down.add(i)
    const drained = this.replicas[i]?.drain(10_000)
    await this.clock.advance(10_000)
    await drained
  }

  shares(): readonly number[] {
    return [0, 1, 2].map((i) => [...this.at.values()].filter((at) => at === i).length)
  }

  #connect(member: string): void {
    const book = this.#books.get(member)
    if (book === undefined) return
    for (;;) {
      const address = book.next()
      const i = Number(address.host.slice(-1))
      if (this.#down.has(i)) {
        book.failed(address)
        continue
      }
      book.worked(address)
      this.at.set(member, i)
      const replica = this.replicas[i]
      replica?.begin(member)
      replica?.signalOf(member)?.addEventListener('abort', () => {
        replica.forget(member)
        book.ended(address)
        this.moves += 1
        this.#connect(member)
      })
      return
    }
  }
}

t.test('100 members spread over three replicas again after one was started anew, few at a time', async (t) => {
  const fleet = new Fleet(100)
  for (const share of fleet.shares()) t.ok(share >= 20 && share <= 47, `${share} of 100 at first`)
  const [before = 0] = fleet.shares()
  await fleet.stop(0)
  t.equal(fleet.moves, before, 'only those that were there have moved')
  t.equal(fleet.shares()[0], 0)
  fleet.start(0)
  for (let minute = 0; minute < 60; minute += 1) {
    const moved = fleet.moves
    await fleet.clock.advance(MINUTE)
    t.ok(fleet.moves - moved <= 20, `minute ${minute}: ${fleet.moves - moved} members moved`)
  }
  for (const share of fleet.shares()) t.ok(share >= 20 && share <= 47, `${share} of 100 an hour later`)
})

t.test('a rolling update of all three, one after the other', async (t) => {
  const fleet = new Fleet(100)
  for (const i of [0, 1, 2]) {
    const there = fleet.shares()[i] ?? 0
    const moved = fleet.moves
    await fleet.stop(i)
    t.equal(fleet.moves - moved, there, `replica ${i}: nobody else has moved`)
    fleet.start(i)
    await fleet.clock.advance(MINUTE)
  }
  await fleet.clock.advance(60 * MINUTE)
  for (const share of fleet.shares()) t.ok(share >= 20 && share <= 47, `${share} of 100 an hour later`)
})
