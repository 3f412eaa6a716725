import fc from 'fast-check'
import t from 'tap'
import { AddressBook, MAX_NAMED_ADDRESSES, formatBrokerAddress } from '../../protocol/broker-addresses.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'

const OWN = ['a.example:7443', 'b.example:7443', 'c.example:7443']

function picks(book: AddressBook, count: number): Map<string, number> {
  const counts = new Map<string, number>()
  for (let i = 0; i < count; i += 1) {
    const text = formatBrokerAddress(book.next())
    counts.set(text, (counts.get(text) ?? 0) + 1)
  }
  return counts
}

t.test('each start is at an address of its own choice', async (t) => {
  const clock = new FakeClock()
  const starts = Array.from({ length: 300 }, () => formatBrokerAddress(new AddressBook({ own: OWN, clock }).next()))
  for (const one of OWN) {
    const share = starts.filter((start) => start === one).length
    t.ok(share > 70 && share < 130, `${one}: ${share} of 300`)
  }
  t.equal(formatBrokerAddress(new AddressBook({ own: OWN, first: 'b.example', clock }).next()), 'b.example:7443')
})

t.test('one that fails rests, longer each time, and another one is called at once', async (t) => {
  const clock = new FakeClock()
  const book = new AddressBook({ own: OWN, clock })
  const dead = book.next()
  for (const [round, least] of [500, 2000, 4500].entries()) {
    book.failed(dead)
    t.notOk(picks(book, 50).has(formatBrokerAddress(dead)), `round ${round}: not called`)
    await clock.advance(least - 1)
    t.notOk(picks(book, 50).has(formatBrokerAddress(dead)), `round ${round}: nor ${least - 1} ms later`)
    await clock.advance(least + 2)
    t.ok(picks(book, 50).has(formatBrokerAddress(dead)), `round ${round}: later it is`)
  }
  t.equal(book.failing, 1)
  book.worked(dead)
  t.equal(book.failing, 0)
  book.ended(dead)
  t.equal(book.failing, 0, 'nothing has failed there')
  t.notOk(picks(book, 50).has(formatBrokerAddress(dead)), 'a connection that is over leads elsewhere too')
  await clock.advance(1001)
  t.ok(picks(book, 50).has(formatBrokerAddress(dead)))
})

t.test('where all have failed, the one that rests least is called all the same', async (t) => {
  const clock = new FakeClock()
  const book = new AddressBook({ own: OWN, clock })
  const called: string[] = []
  for (let i = 0; i < 9; i += 1) {
    const address = book.next()
    called.push(formatBrokerAddress(address))
    book.failed(address)
  }
  for (const round of [0, 3, 6])
    t.equal(new Set(called.slice(round, round + 3)).size, 3, 'never one of them twice in a row')
})

t.test('a list that grows from one to three', async (t) => {
  const clock = new FakeClock()
  const book = new AddressBook({ own: ['a.example:7443'], clock })
  book.worked(book.next())
  book.learn(OWN)
  t.same(book.proven, ['a.example:7443'], 'only what has worked')
  for (let i = 0; i < 30; i += 1) book.worked(book.next())
  t.same([...book.proven].sort(), OWN)
  t.equal(picks(book, 60).size, 3)
  const later = new AddressBook({ own: ['a.example:7443'], proven: book.proven, clock })
  t.equal(picks(later, 60).size, 3, 'also after a start with what was kept')
})

t.test('own addresses that the broker does not name any more are the last resort', async (t) => {
  const clock = new FakeClock()
  const book = new AddressBook({ own: ['old.example:7443'], clock })
  book.worked(book.next())
  book.learn(['new.example:7443'])
  const untried = new AddressBook({ own: ['old.example:7443'], clock })
  untried.learn(['new.example:7443'])
  untried.failed({ host: 'new.example', port: 7443 })
  t.same([...picks(untried, 30).keys()], ['old.example:7443'], 'while the new one has not worked it counts in full')
  book.worked({ host: 'new.example', port: 7443 })
  t.same([...picks(book, 30).keys()], ['new.example:7443'])
  book.failed({ host: 'new.example', port: 7443 })
  t.same([...picks(book, 30).keys()], ['old.example:7443'], 'and is there when the new one fails')
})

t.test('own addresses that are gone for good: what was named and never tried is tried', async (t) => {
  const clock = new FakeClock()
  const book = new AddressBook({ own: ['old.example:7443'], clock })
  book.learn(['new.example:7443'])
  book.failed({ host: 'old.example', port: 7443 })
  t.equal(formatBrokerAddress(book.next()), 'new.example:7443')
})

t.test('a list of nonsense costs one attempt at a time', async (t) => {
  const clock = new FakeClock()
  const book = new AddressBook({ own: ['a.example:7443'], clock })
  book.worked(book.next())
  book.learn(Array.from({ length: 500 }, (_, i) => `192.0.2.${i % 250}:9`))
  t.equal(book.size, 1 + MAX_NAMED_ADDRESSES)
  let failures = 0
  for (let i = 0; i < 200; i += 1) {
    const address = book.next()
    if (address.host === 'a.example') {
      failures = 0
      book.worked(address)
    } else {
      failures += 1
      book.failed(address)
    }
    t.ok(failures <= 1, 'after each failure the address is called that has worked')
  }
})

t.test('whatever a broker sends, the addresses of the token stay', async (t) => {
  const text = fc.oneof(
    fc.string(),
    fc.string({ unit: 'binary', maxLength: 300 }),
    fc.constantFrom('x.example:7443', 'a.example', '[::1]:1', ' : ', 'a.example:0'),
  )
  const step = fc.oneof(
    fc.record({ t: fc.constant('learn' as const), list: fc.array(text, { maxLength: 40 }) }),
    fc.record({ t: fc.constantFrom('failed' as const, 'worked' as const, 'ended' as const) }),
    fc.record({ t: fc.constant('wait' as const), ms: fc.nat(20_000) }),
  )
  const property = fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
    const clock = new FakeClock()
    const book = new AddressBook({ own: OWN, clock })
    for (const one of steps) {
      if (one.t === 'learn') book.learn(one.list)
      else if (one.t === 'wait') await clock.advance(one.ms)
      else book[one.t](book.next())
      for (const own of OWN) if (!book.all.includes(own)) return false
      if (book.size > OWN.length + 2 * MAX_NAMED_ADDRESSES) return false
    }
    // If no other address answers, these are called again soon.
    for (let i = 0; i < 3 * book.size; i += 1) {
      const address = book.next()
      if (OWN.includes(formatBrokerAddress(address))) return true
      book.failed(address)
    }
    return false
  })
  await fc.assert(property, { numRuns: 300 })
  t.pass()
})
