/** Ports outside from one router: asked for, renewed, given back; and what routers do that lie, flood or are silent. */
import t from 'tap'
import {
  LIFETIME_SECONDS,
  LONGEST_PAUSE_MS,
  MOST_MESSAGES,
  PAUSE_MS,
  PortMapper,
  RENEW_MS,
} from '../../../../gateway/reach/mapping/port-mapper.ts'
import { formatAddressPort, parseAddress } from '../../../../model/addresses/addresses.ts'
import { Router, type RouterInit } from './support/router.ts'

const CLIENT = '10.0.0.2'

class Pair {
  nowMs = 1000
  client: string
  sent = 0
  readonly mapper: PortMapper
  answers: (question: Buffer) => readonly Buffer[]

  constructor(
    answers: Router | ((question: Buffer) => readonly Buffer[]),
    ports: readonly number[] = [4500],
    { client = CLIENT, lane = 0 }: { readonly client?: string; readonly lane?: number } = {},
  ) {
    this.client = client
    const nonce = (port: number): Buffer => Buffer.from(String(port).padStart(12, '0'))
    this.mapper = new PortMapper({ nonce, lane, random: () => Number(client.split('.').at(-1)) / 256 })
    this.answers =
      answers instanceof Router
        ? (question) => {
            const answer = answers.answer(question, this.client)
            return answer === undefined ? [] : [answer]
          }
        : answers
    this.mapper.want(ports)
  }

  run(ms: number): this {
    const untilMs = this.nowMs + ms
    while (this.nowMs <= untilMs) this.step()
    this.nowMs = untilMs
    return this
  }

  /** One question, or the time of the next one. */
  step(): void {
    const question = this.mapper.next(this.nowMs, parseAddress(this.client))
    if (question === undefined) {
      const dueMs = this.mapper.dueMs(this.nowMs)
      this.nowMs = dueMs > this.nowMs ? dueMs : this.nowMs + 1
      return
    }
    this.sent += 1
    for (const answer of this.answers(question)) this.mapper.take(answer, this.nowMs)
  }

  get mapped(): Record<number, string> {
    return Object.fromEntries([...this.mapper.mapped(this.nowMs)].map(([port, at]) => [port, formatAddressPort(at)]))
  }
}

const OUTSIDE = '203.0.113.7'
const router = (init: Partial<RouterInit> = {}): Router => new Router({ speaks: ['pcp'], address: OUTSIDE, ...init })

t.test('ports are mapped by either protocol, and kept', async (t) => {
  for (const speaks of [['pcp'], ['natPmp'], ['pcp', 'natPmp']] as const) {
    const one = router({ speaks })
    const pair = new Pair(one, [4500, 4501]).run(10)
    t.strictSame(pair.mapped, { 4500: `${OUTSIDE}:4500`, 4501: `${OUTSIDE}:4501` }, speaks.join())
    t.equal(pair.mapper.protocol, speaks[0])
    const before = pair.sent
    pair.run(RENEW_MS - 1000)
    t.equal(pair.sent, before, 'nothing until they are to be renewed')
    pair.run(10 * RENEW_MS)
    t.equal(Object.keys(pair.mapped).length, 2, 'renewed')
    pair.mapper.want([4501])
    pair.run(10)
    t.strictSame(
      [...one.mappings.values()].map(({ inside }) => inside),
      [4501],
      'one is given back',
    )
    for (const message of pair.mapper.release(parseAddress(CLIENT))) one.answer(message, CLIENT)
    t.equal(one.mappings.size, 0, 'all are given back')
  }
})

t.test('all ports get the distance of the first one', async (t) => {
  const one = router({ gives: (inside, wanted) => (inside === 4500 ? 51_000 : wanted) })
  t.strictSame(new Pair(one, [4500, 4501, 4503]).run(10).mapped, {
    4500: `${OUTSIDE}:51000`,
    4501: `${OUTSIDE}:51001`,
    4503: `${OUTSIDE}:51003`,
  })
})

t.test('several gateways behind one router: each gets ports with one distance', async (t) => {
  const rows: readonly (readonly [string, readonly number[]])[] = [
    ['of one cluster', [0, 1, 2]],
    ['of three clusters', [0, 0, 0]],
  ]
  for (const [say, lanes] of rows) {
    const taken = (): Set<number> => new Set([...one.mappings.values()].map(({ outside }) => outside))
    const nextFree = (port: number): number => (taken().has(port) ? nextFree(port + 1) : port)
    const one: Router = router({ gives: (_inside, wanted) => nextFree(wanted) })
    const ports = [4500, 4501, 4502]
    const pairs = lanes.map((lane, i) => new Pair(one, ports, { lane, client: `10.0.0.${i + 2}` }))
    for (let i = 0; i < 40; i++) for (const pair of pairs) if (!pair.mapper.isSettled(pair.nowMs)) pair.step()
    for (const pair of pairs) {
      const distances = [...pair.mapper.mapped(pair.nowMs)].map(([inside, { port }]) => port - inside)
      t.equal(distances.length, ports.length, say)
      t.equal(new Set(distances).size, 1, `${say}: ${distances.join()}`)
      t.ok(pair.sent <= 20, `${say}: ${pair.sent} questions`)
    }
    t.equal(taken().size, 9, 'no port of two')
  }
})

t.test('a router that gives ports as it likes is not asked for ever', async (t) => {
  let port = 50_000
  const pair = new Pair(router({ gives: () => (port += 7) }), [4500, 4501]).run(60_000)
  t.equal(Object.keys(pair.mapped).length, 2)
  t.ok(pair.sent <= 20, `${pair.sent} questions`)
})

t.test('a router that has restarted gets all questions again', async (t) => {
  let seconds = 5000
  for (const speaks of ['pcp', 'natPmp'] as const) {
    for (const later of [3, 900_000]) {
      seconds = 5000
      const one = router({ speaks: [speaks], epochSeconds: () => seconds })
      const pair = new Pair(one, [4500]).run(60_000)
      pair.mapper.want([4500, 4501])
      seconds += 60
      pair.run(59_000)
      one.mappings.clear()
      seconds = later
      pair.run(1100)
      t.equal(one.mappings.size, 2, `${speaks}, ${later} s: also the port that is not due yet`)
      t.equal(Object.keys(pair.mapped).length, 2)
      t.match(pair.mapper.state, { is: 'mapped' })
    }
  }
})

t.test('the answer that shows a restart is a good one', async (t) => {
  let seconds = 5000
  const pair = new Pair(router({ speaks: ['natPmp'], epochSeconds: () => seconds })).run(5000)
  seconds = 3
  pair.mapper.want([4500, 4501])
  pair.run(100)
  t.equal(Object.keys(pair.mapped).length, 2, 'the address was said a short time ago')
  t.match(pair.mapper.state, { is: 'mapped' })
})

t.test('a router that says at each answer that it has restarted is not asked for ever', async (t) => {
  let seconds = 1_000_000
  const pair = new Pair(router({ epochSeconds: () => (seconds -= 1000) }), [4500, 4501, 4502]).run(300_000)
  t.ok(pair.sent <= 30, `${pair.sent} questions`)
})

t.test('a router with other addresses: of its own, and of this node', async (t) => {
  for (const speaks of ['pcp', 'natPmp'] as const) {
    let seconds = 0
    const like = { speaks: [speaks], epochSeconds: () => seconds }
    const [first, second] = [router(like), router({ ...like, address: '198.51.100.7' })]
    let now = first
    const pair = new Pair(first)
    pair.answers = (question) => {
      seconds = Math.floor(pair.nowMs / 1000)
      return [now.answer(question, pair.client) ?? Buffer.alloc(0)]
    }
    pair.run(60_000)
    pair.mapper.want([4500, 4501])
    pair.run(10)
    now = second
    pair.run(60_100)
    t.strictSame(pair.mapped, { 4500: '198.51.100.7:4500', 4501: '198.51.100.7:4501' }, speaks)
    pair.mapper.want([4500, 4501, 4502])
    pair.client = '10.0.0.77'
    pair.run(10)
    const clients = [...second.mappings.values()].filter(({ client }) => client === pair.client)
    t.equal(clients.length, 3, `${speaks}: all are asked for from the new address`)
  }
})

t.test('renewals that fail: a living mapping stays until its end', async (t) => {
  const codes = { pcp: [7, 8, 10, 99], natPmp: [3, 4, 99] } as const
  for (const speaks of ['pcp', 'natPmp'] as const) {
    for (const code of [...codes[speaks], 2]) {
      const one = router({ speaks: [speaks] })
      const pair = new Pair(one).run(10)
      const { answers } = pair
      pair.answers = (question) => {
        const [bytes = Buffer.alloc(0)] = answers(question)
        if (speaks === 'pcp') bytes[3] = code
        else bytes.writeUInt16BE(code, 2)
        return [bytes]
      }
      pair.run(RENEW_MS + 1000)
      // With NAT-PMP, the question for the address is refused, which says nothing of the mapping.
      const isGone = code === 2 && speaks === 'pcp'
      t.strictSame(pair.mapped, isGone ? {} : { 4500: `${OUTSIDE}:4500` }, `${speaks} ${code}`)
      pair.answers = answers
      pair.run(PAUSE_MS + 1000)
      t.strictSame(pair.mapped, { 4500: `${OUTSIDE}:4500` }, `${speaks} ${code}: renewed soon`)
      t.match(pair.mapper.state, { is: 'mapped' })
    }
    const pair = new Pair(router({ speaks: [speaks] })).run(10)
    const { answers } = pair
    pair.answers = () => []
    pair.run(RENEW_MS + 20_000)
    t.equal(pair.mapper.protocol, speaks, 'messages that are lost')
    pair.answers = answers
    pair.run(30_000)
    t.match([pair.mapper.protocol, pair.mapper.state], [speaks, { is: 'mapped' }])
    pair.answers = () => []
    pair.run(3_600_000)
    t.strictSame(pair.mapped, {}, 'not for ever')
    pair.answers = answers
    pair.run(LONGEST_PAUSE_MS + 10_000)
    t.strictSame(pair.mapped, { 4500: `${OUTSIDE}:4500` }, 'a router that comes back is found in minutes')
  }
})

t.test('what is of no use ends, and is asked for again later', async (t) => {
  const one = router()
  const pair = new Pair(one, [4500, 4501]).run(10)
  pair.mapper.rest(pair.nowMs)
  pair.run(100)
  t.equal(one.mappings.size, 0)
  const before = pair.sent
  pair.run(LONGEST_PAUSE_MS - 1000)
  t.equal(pair.sent, before, 'not renewed')
  pair.run(2000)
  t.equal(one.mappings.size, 2, 'asked for again')
  pair.mapper.rest(pair.nowMs)
  pair.run(100)
  pair.mapper.wake()
  pair.run(100)
  t.equal(one.mappings.size, 2)
})

t.test('refusals: asked again after pauses, and the other ports are kept', async (t) => {
  const one = router({ gives: (inside, wanted) => (inside === 4500 ? undefined : wanted) })
  const pair = new Pair(one, [4500, 4501]).run(1000)
  t.strictSame(pair.mapped, { 4501: `${OUTSIDE}:4501` })
  t.match(pair.mapper.state, { is: 'mapped' })
  pair.run(3_600_000)
  t.strictSame(pair.mapped, { 4501: `${OUTSIDE}:4501` })
  const alone = new Pair(router({ gives: () => undefined })).run(1000)
  t.match(alone.mapper.state, { is: 'refused', why: 'no resources' })
  alone.run(3_600_000)
  t.ok(alone.sent <= 15, `${alone.sent} questions in an hour`)
  const zero = new Pair(router({ lifetimeSeconds: 0 })).run(1000)
  t.match(zero.mapper.state, { is: 'refused' })
  const short = new Pair(router({ lifetimeSeconds: 20 })).run(1000)
  t.match(short.mapper.state, { is: 'refused', why: 'lifetime too short: 20 s' })
  t.strictSame(short.mapped, {})
  t.strictSame(zero.mapped, {})
})

t.test('the lifetime is that of the router, at most the one that was asked for', async (t) => {
  for (const [stated, lasts] of [
    [60, 60],
    [0xffffffff, LIFETIME_SECONDS],
  ] as const) {
    const pair = new Pair(router({ lifetimeSeconds: stated })).run(10)
    pair.answers = () => []
    pair.run(lasts * 1000 - 1000)
    t.equal(Object.keys(pair.mapped).length, 1)
    pair.run(2000)
    t.strictSame(pair.mapped, {}, 'not believed for longer')
  }
})

t.test('hostile: silent, garbage, floods, answers to other questions', async (t) => {
  const good = (question: Buffer): Buffer => router().answer(question, CLIENT) ?? Buffer.alloc(0)
  const changed = (change: (bytes: Buffer) => unknown) => (question: Buffer) => {
    const bytes = good(question)
    change(bytes)
    return [bytes]
  }
  const rows: readonly (readonly [string, (question: Buffer) => readonly Buffer[]])[] = [
    ['silent', () => []],
    ['one octet', () => [Buffer.from([0])]],
    ['the question itself', (question) => [question]],
    ['another nonce', changed((bytes) => bytes.fill(9, 24, Math.min(36, bytes.length)))],
    ['another port', changed((bytes) => bytes.fill(9, Math.min(40, bytes.length), Math.min(42, bytes.length)))],
    ['a flood', () => Array.from({ length: 10_000 }, () => Buffer.alloc(60, 0x81))],
    ['NAT-PMP where PCP was asked', () => [Buffer.from('00810000000003e81194c35000000258', 'hex')]],
    ['both versions are unknown', (question) => [Buffer.from([question[0] ?? 0, 0x81, 0, 1])]],
  ]
  for (const [say, answers] of rows) {
    const pair = new Pair(answers).run(9000)
    t.strictSame(pair.mapped, {}, say)
    t.equal(pair.mapper.isAsking, false, `${say}: it has given up`)
    t.match(pair.mapper.state, { is: 'silent' }, say)
    t.ok(pair.sent <= 8, `${say}: ${pair.sent} questions`)
    t.ok(pair.mapper.dueMs(pair.nowMs) - pair.nowMs >= PAUSE_MS - 9000, `${say}: and waits`)
  }
  const flooded = new Pair(() => [])
  flooded.mapper.next(flooded.nowMs, parseAddress(CLIENT))
  for (let i = 1; i < MOST_MESSAGES; i++) t.notOk(flooded.mapper.take(Buffer.alloc(60, 0x81), flooded.nowMs))
  t.ok(flooded.mapper.take(Buffer.alloc(60, 0x81), flooded.nowMs), 'given up after so many')
})
