/** Who may read a console in a cluster: what is answered by token, method and header, and how many reviews strangers cause. */
import t from 'tap'
import { type Reading, admitReader } from '../../console/server/admission.ts'
import { Readers, TOKEN_HEADER } from '../../console/server/readers.ts'
import { JumpingClock } from '../support/jumping-clock.ts'

const token = (name: string): string => `e30.${Buffer.from(name).toString('base64url')}.c2ln`
/** The address that readers come from, and another one. */
const [API, POD] = ['10.0.0.1', '10.0.0.9']
const isCandidate = (): boolean => true
const asking = (text: string) => ({ headers: { [TOKEN_HEADER]: text } })

t.test('requests', async (t) => {
  type Row = readonly [what: string, reading: Reading, method: string, headers: Record<string, string>, outcome: number]
  const rows: readonly Row[] = [
    ['a reader', 'reader', 'GET', { host: 'api.example:6443' }, 200],
    ['a stranger', 'stranger', 'GET', {}, 401],
    ['a stranger learns no method', 'stranger', 'POST', {}, 401],
    ['a stranger learns no origin', 'stranger', 'GET', { origin: 'https://evil.example' }, 401],
    ['a reader that writes', 'reader', 'POST', {}, 405],
    ['a preflight with a token', 'reader', 'OPTIONS', {}, 405],
    ['a page of another origin', 'reader', 'GET', { origin: 'https://evil.example' }, 403],
    ['a page behind the same proxy', 'reader', 'GET', { 'sec-fetch-site': 'same-origin' }, 403],
    ['too many reviews', 'busy', 'GET', {}, 503],
  ]
  for (const [what, reading, method, headers, outcome] of rows) {
    const admission = admitReader({ method, path: '/', headers }, reading)
    t.equal(admission.t === 'refused' ? admission.code : 200, outcome, what)
  }
})

t.test('a token is reviewed once a minute, and a token that ended is found out', async (t) => {
  const clock = new JumpingClock()
  let may = true
  let reviews = 0
  const readers = new Readers({ clock, isCandidate, review: () => Promise.resolve(((reviews += 1), may)) })
  const ana = asking(token('ana'))
  t.same(await Promise.all([readers.read(ana, API), readers.read(ana, API)]), ['reader', 'reader'])
  may = false
  t.equal(await readers.read(ana, API), 'reader', 'for a minute')
  t.equal(reviews, 1)
  clock.jump(61_000)
  t.equal(await readers.read(ana, API), 'stranger')
  may = true
  t.equal(await readers.read(ana, API), 'stranger', 'a refusal is remembered too')
  clock.jump(11_000)
  t.equal(await readers.read(ana, API), 'reader')
})

t.test('what is no token causes no review', async (t) => {
  const review = () => t.fail('a review') as never
  const readers = new Readers({ clock: new JumpingClock(), isCandidate, review })
  for (const text of ['', 'a', 'a.b', 'a.b.c.d', 'a b.c.d', `${'a'.repeat(5000)}.b.c`, 'a.b.ü']) {
    t.equal(await readers.read(asking(text), POD), 'stranger', JSON.stringify(text.slice(0, 20)))
  }
  t.equal(await readers.read({ headers: {} }, POD), 'stranger')
  t.equal(await readers.read({ headers: { [TOKEN_HEADER]: [token('a'), token('b')] } }, POD), 'stranger', 'two')
  t.equal(await readers.read({ headers: { authorization: `Bearer ${token('a')}` } }, POD), 'stranger', 'elsewhere')
})

t.test('strangers cause few reviews, and do not drive out a reader', async (t) => {
  const clock = new JumpingClock()
  const reviews: string[] = []
  let hangs = false
  const review = (text: string): Promise<boolean> => {
    reviews.push(text)
    return hangs ? new Promise(() => undefined) : Promise.resolve([token('ana'), token('eva')].includes(text))
  }
  const readers = new Readers({ clock, isCandidate, review })
  t.equal(await readers.read(asking(token('ana')), API), 'reader')
  for (let i = 0; i < 1000; i += 1) {
    clock.jump(51)
    await readers.read(asking(token(`s${i}`)), POD)
    if (i % 500 === 0) t.equal(await readers.read(asking(token('ana')), API), 'reader')
  }
  reviews.length = 0
  clock.jump(60_000)
  const found: Reading[] = []
  for (let i = 0; i < 100; i += 1) found.push(await readers.read(asking(token(`at-once-${i}`)), POD))
  t.ok(reviews.length >= 10 && reviews.length < 50, `a burst of 10, and then 10 a second: ${reviews.length}`)
  t.equal(found.filter((one) => one === 'busy').length, 100 - reviews.length)
  t.equal(await readers.read(asking(token('eva')), API), 'reader', 'another address has its own share')
  clock.jump(60_000)
  hangs = true
  reviews.length = 0
  for (let i = 0; i < 100; i += 1) {
    clock.jump(51)
    void readers.read(asking(token(`hanging-${i}`)), POD)
  }
  t.equal(reviews.length, 4, 'at once')
  hangs = false
  t.equal(await readers.read(asking(token('ana')), API), 'reader', 'who was known goes before')
})

t.test('no answer to a review lets no one in', async (t) => {
  const readers = new Readers({
    clock: new JumpingClock(),
    isCandidate,
    review: () => Promise.reject(new Error('down')),
  })
  t.equal(await readers.read(asking(token('ana')), API), 'busy')
})

t.test('all addresses together cause no more than the API server bears', async (t) => {
  let reviews = 0
  const review = () => Promise.resolve(((reviews += 1), false))
  const readers = new Readers({ clock: new JumpingClock(), isCandidate, review })
  for (let i = 0; i < 1000; i += 1) await readers.read(asking(token(`s${i}`)), `10.1.${i >> 8}.${i & 255}`)
  t.ok(reviews >= 50 && reviews < 150, `${reviews}`)
})
