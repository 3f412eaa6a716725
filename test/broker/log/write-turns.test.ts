/** The order in which replicas that write at the same time let each other write. */
import fc from 'fast-check'
import t from 'tap'
import { MOST_SERVED, WriteTurns } from '../../../broker/store/etcd/write-order.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

const { signal } = new AbortController()
/** The revision of etcd when the group of writes began. */
const NOW = 100
const MOST_MS = 250

function turns(): { readonly clock: FakeClock; readonly own: WriteTurns } {
  const clock = new FakeClock()
  return { clock, own: new WriteTurns(clock, 'own') }
}

/** Returns whether the replica waits, once everything that is due has happened. */
async function waits(clock: FakeClock, own: WriteTurns): Promise<boolean> {
  let isOver = false
  void own.await(NOW, signal).then(() => (isOver = true))
  await clock.advance(0)
  return !isOver
}

t.test('nobody wants: nobody waits', async (t) => {
  const { clock, own } = turns()
  t.notOk(await waits(clock, own))
  own.see({ replica: 'own', since: 3 })
  t.notOk(await waits(clock, own), 'its own want is none of another one')
  t.same(own.served, [])
  t.equal(await own.await(NOW, signal), false)
})

t.test('who was overtaken earlier goes first', async (t) => {
  const { clock, own } = turns()
  own.see({ replica: 'a', since: 5 })
  t.ok(await waits(clock, own))
  own.overtaken(7)
  t.ok(await waits(clock, own), 'a said so earlier')
  own.seeServed('a')
  t.notOk(await waits(clock, own), 'a has written')
  own.see({ replica: 'b', since: 9 })
  t.notOk(await waits(clock, own), 'b said so later')
  own.overtaken(11)
  t.notOk(await waits(clock, own), 'overtaken again, it still was the first')
  t.same(own.served, ['own'])
  own.done()
  t.same(own.served, [])
  t.ok(await waits(clock, own), 'it is the turn of b')
})

t.test('who was not overtaken itself waits for those who were before its group began, and for no other', async (t) => {
  const { clock, own } = turns()
  own.see({ replica: 'later', since: NOW + 1 })
  t.notOk(await waits(clock, own))
  own.see({ replica: 'before', since: NOW })
  t.ok(await waits(clock, own))
})

t.test('it goes on at once when the other ones have written', async (t) => {
  const { clock, own } = turns()
  own.see({ replica: 'a', since: 5 })
  own.see({ replica: 'b', since: 6 })
  let isOver = false
  const waiting = own.await(NOW, signal).then((hasWaited) => {
    isOver = true
    return hasWaited
  })
  own.seeServed('a')
  await clock.advance(0)
  t.notOk(isOver)
  own.seeServed('b')
  t.equal(await waiting, true)
  t.equal(clock.monotonic(), new FakeClock().monotonic(), 'no time has passed')
})

t.test('who does not write is waited for once, however often it says that it wants to', async (t) => {
  const { clock, own } = turns()
  own.see({ replica: 'slow', since: 5 })
  const waiting = own.await(NOW, signal)
  for (let i = 0; i < 5; i += 1) {
    await clock.advance(50)
    own.see({ replica: 'slow', since: 5 })
  }
  await waiting
  t.notOk(await waits(clock, own))
  t.same(own.served, ['slow'], 'the next write takes away what it said')
  own.seeServed('slow')
  t.same(own.served, [])
})

t.test('a watch that begins anew forgets, and a signal ends the wait', async (t) => {
  const { clock, own } = turns()
  own.see({ replica: 'a', since: 5 })
  own.forget()
  t.notOk(await waits(clock, own))
  own.see({ replica: 'a', since: 5 })
  const stop = new AbortController()
  const waiting = own.await(NOW, stop.signal)
  stop.abort(new Error('over'))
  await t.rejects(waiting, { message: 'over' })
})

t.test('whatever the store says, also while it waits, the wait has an end, and what is kept has a limit', async () => {
  const said = fc.record({
    replica: fc.stringMatching(/^[a-z]{1,3}$/),
    since: fc.option(fc.nat(2 * NOW), { nil: undefined }),
    waitMs: fc.nat(300),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(said, { maxLength: 100 }), fc.array(said, { maxLength: 30 }), async (before, during) => {
      const { clock, own } = turns()
      const say = ({ replica, since }: { readonly replica: string; readonly since: number | undefined }): void =>
        since === undefined ? own.seeServed(replica) : own.see({ replica, since })
      for (const one of before) say(one)
      const wait = { isOver: false }
      void own.await(NOW, signal).then(() => (wait.isOver = true))
      let passedMs = 0
      // The revisions of etcd only rise, so a wish that is announced during the wait is later.
      for (const one of during) {
        say({ ...one, since: one.since === undefined ? undefined : one.since + NOW + 1 })
        await clock.advance(one.waitMs)
        passedMs += one.waitMs
        if (passedMs >= MOST_MS && !wait.isOver) return false
      }
      await clock.advance(Math.max(0, MOST_MS - passedMs))
      return wait.isOver && own.served.length <= MOST_SERVED
    }),
  )
})
