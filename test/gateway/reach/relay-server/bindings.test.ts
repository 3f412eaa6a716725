/** Who gets bound, who is refused, and to whom a relay says nothing. */
import fc from 'fast-check'
import t from 'tap'
import { type BindAnswer, NO_COOKIE, QUESTION_BYTES } from '../../../../gateway/reach/frames/bind-frame.ts'
import { CHALLENGES_TO_ADDRESS } from '../../../../gateway/reach/relay-server/address-proof.ts'
import { BIND_LIFE_MS, PAIR_ALONE_MS, PAIR_IDLE_MS } from '../../../../gateway/reach/relay-server/bindings.ts'
import type { QuestionOutcome } from '../../../../gateway/reach/relay-server/relay-events.ts'
import { parseAddressPort } from '../../../../model/addresses/addresses.ts'
import { PAIRS_OF_RELAY, PORTS_OF_RELAY, RELAY_LAST_PORT, RELAY_PORT } from '../../../../model/kernel-ids.ts'
import { CONTROL, RELAY_AT, RelayStage, type TestEnd, pathTexts } from '../../support/relay-stage.ts'

const A = '198.51.100.1:40001'
const B = '192.0.2.1:50001'
const C = '192.0.2.77:50077'

interface Two {
  readonly stage: RelayStage
  readonly a: TestEnd
  readonly b: TestEnd
}

/** An end, and that with which it is linked. */
interface OwnAndFar {
  readonly own: TestEnd
  readonly far: TestEnd
}

function two(init: ConstructorParameters<typeof RelayStage>[0] = {}): Two {
  const stage = new RelayStage(init)
  return { stage, a: stage.end('paris'), b: stage.end('oslo') }
}

t.test('two ends are bound, each at a port of its own', async (t) => {
  const { stage, a, b } = two()
  t.match(stage.ask(a, b, { at: A }), { type: 'challenge' })
  t.same([stage.bindings.openPorts(), stage.bindings.paths()], [[], []], 'a challenge costs nothing')
  const toA = stage.bind(a, b, A)
  t.same(stage.bindings.paths(), [], 'one end alone has no path')
  const toB = stage.bind(b, a, B)
  t.not(toA, toB)
  t.same(stage.bindings.paths(), [
    { from: parseAddressPort(A), port: toA, to: parseAddressPort(B), leaves: toB, member: 1, number: 1 },
    { from: parseAddressPort(B), port: toB, to: parseAddressPort(A), leaves: toA, member: 2, number: 2 },
  ])
  const answer = stage.prove(a, b, { at: A, port: toA })
  t.match(answer, {
    type: 'bound',
    port: toA,
    far: { mapping: 'unknown', sharedMs: 0 },
    lifeMs: BIND_LIFE_MS,
    seen: parseAddressPort(A),
  })
})

t.test('a binding lives for 30 s, and its ports until nothing has passed for 5 minutes', async (t) => {
  const { stage, a, b } = two()
  const [toA, toB] = [stage.bind(a, b, A), stage.bind(b, a, B)]
  await stage.clock.advance(BIND_LIFE_MS - 1)
  t.equal(stage.bindings.paths().length, 2)
  t.match(stage.prove(a, b, { at: A, port: toA }), { type: 'bound' }, 'renewed')
  await stage.clock.advance(1)
  t.same(stage.bindings.paths(), [], 'b has not renewed')
  t.equal(stage.bindings.apply({ kind: 'time' }).isChanged, true)
  t.same([...stage.bindings.openPorts()].sort(), [toA, toB].sort(), 'the pair keeps its ports')
  t.equal(stage.bind(b, a, B), toB)
  t.equal(stage.bindings.paths().length, 2)

  for (let i = 0; i < 4; i++) {
    await stage.clock.advance(PAIR_IDLE_MS / 4)
    stage.prove(a, b, { at: A, port: toA })
    stage.prove(b, a, { at: B, port: toB })
    if (i < 2) stage.carry(toA, 100)
  }
  t.equal(stage.bindings.paths().length, 2, 'packets passed')
  await stage.clock.advance(PAIR_IDLE_MS / 2)
  stage.bindings.apply({ kind: 'time' })
  t.same([stage.bindings.paths(), stage.bindings.openPorts()], [[], []], 'nothing has passed for 5 minutes')
})

t.test('a pair that is never bound has its ports for 30 s', async (t) => {
  const { stage, a, b } = two()
  t.match(stage.prove(a, b, { at: A }), { type: 'assigned' })
  t.equal(stage.bindings.openPorts().length, 2)
  await stage.clock.advance(BIND_LIFE_MS)
  stage.bindings.apply({ kind: 'time' })
  t.same(stage.bindings.openPorts(), [])
})

t.test('an end that moves is followed when it has answered a challenge there', async (t) => {
  const { stage, a, b } = two()
  const toA = stage.bind(a, b, A)
  stage.bind(b, a, B)
  const before = pathTexts(stage)
  const challenge = stage.ask(a, b, { at: C, port: toA })
  t.match(challenge, { type: 'challenge' })
  t.same(pathTexts(stage), before, 'the old address until then')
  t.match(stage.prove(a, b, { at: C, port: toA }), { type: 'bound', seen: parseAddressPort(C) })
  t.notSame(pathTexts(stage), before)
  t.equal(stage.bindings.known().length, 2)
})

t.test('an end that is renewed is never challenged again', async (t) => {
  const { stage, a, b } = two()
  const toA = stage.bind(a, b, A)
  stage.bind(b, a, B)
  let last = stage.prove(a, b, { at: A, port: toA })
  for (let i = 0; i < 100; i++) {
    await stage.clock.advance(8000)
    stage.carry(toA, 1)
    last = stage.ask(a, b, { at: A, port: toA, cookie: last?.type === 'bound' ? last.cookie : NO_COOKIE })
    if (last?.type !== 'bound') t.fail(`round ${i}: ${last?.type ?? 'silence'}`)
  }
  t.match(last, { type: 'bound' })
})

// What a relay does not answer, and what it refuses.

interface Silence {
  readonly say: string
  readonly outcome: QuestionOutcome
  readonly send: (two: Two) => { readonly bytes: Buffer; readonly at?: string; readonly port?: number }
}

const SILENCES: readonly Silence[] = [
  { say: 'no octets', outcome: 'malformed', send: () => ({ bytes: Buffer.alloc(0) }) },
  {
    say: 'a packet of a cable',
    outcome: 'malformed',
    send: () => ({ bytes: Buffer.from('01000000'.repeat(37), 'hex') }),
  },
  {
    say: 'a question that is too long',
    outcome: 'malformed',
    send: ({ stage, a, b }) => ({ bytes: Buffer.concat([stage.bytes(a, b), Buffer.alloc(1)]) }),
  },
  {
    say: 'an unknown key',
    outcome: 'unknownEnd',
    send: ({ stage, b }) => {
      const stranger = new RelayStage({ keys: stage.keys }).end('paris')
      return { bytes: stage.bytes(stranger, b) }
    },
  },
  {
    say: 'a known end by the key of another one',
    outcome: 'wrongMac',
    send: ({ stage, a, b }) => ({ bytes: stage.bytes(a, b, { key: b.key }) }),
  },
  {
    say: 'the end of another clusterset',
    outcome: 'unknownEnd',
    send: ({ stage, b }) => ({ bytes: stage.bytes(new RelayStage({ keys: stage.keys }).end('paris', 'andes'), b) }),
  },
  {
    say: 'a question for another relay of the same name',
    outcome: 'wrongMac',
    send: ({ stage, a, b }) => ({ bytes: stage.bytes(a, b, { key: new RelayStage().end('paris').key }) }),
  },
  ...[
    '127.0.0.1:4000',
    '224.0.0.1:4000',
    '255.255.255.255:4000',
    '0.0.0.0:4000',
    '169.254.1.1:4000',
    '[2001:db8::1]:9',
  ].map((at): Silence => ({
    say: `from ${at}`,
    outcome: 'badSource',
    send: ({ stage, a, b }) => ({ bytes: stage.bytes(a, b), at }),
  })),
  {
    say: 'from the address of the relay itself: a circle',
    outcome: 'badSource',
    send: ({ stage, a, b }) => ({ bytes: stage.bytes(a, b), at: '203.0.113.9:4601' }),
  },
]

for (const { say, outcome, send } of SILENCES) {
  t.test(`nothing is said to: ${say}`, async (t) => {
    const both = two()
    const { bytes, at = A, port } = send(both)
    t.same(both.stage.send(bytes, at, port), { isChanged: false, outcome })
    t.same(both.stage.bindings.openPorts(), [])
  })
}

t.test('what is refused, after a challenge only', async (t) => {
  const refused = (answer: BindAnswer | undefined): string | undefined =>
    answer?.type === 'refused' ? answer.why : answer?.type
  const { stage, a, b } = two()
  const same = stage.end('paris')
  const stranger = new RelayStage().end('oslo')
  t.match(stage.ask(a, same, { at: A }), { type: 'challenge' })
  t.equal(refused(stage.prove(a, same, { at: A })), 'notAllowed', 'an end of the same member')
  t.equal(refused(stage.prove(a, stranger, { at: A })), 'notAllowed', 'an unknown far end')
  t.equal(refused(stage.prove(a, a, { at: A })), 'notAllowed', 'itself')
  t.equal(refused(stage.prove(a, b, { at: A, port: 4650 })), 'wrongPort', 'a port of nobody')
  const toA = stage.bind(a, b, A)
  const toB = stage.bind(b, a, B)
  t.match(stage.prove(a, b, { at: A, port: toB }), { type: 'refused', why: 'wrongPort', port: toA })
  t.equal(refused(stage.prove(b, a, { at: A, port: toB })), 'sameAddress', 'both ends at one address: a circle')
  stage.allow([a, b], () => false)
  t.equal(refused(stage.prove(a, b, { at: A })), 'notAllowed', 'members that may not link')
})

t.test('two pairs between the same two addresses: packets of both would look alike', async (t) => {
  const { stage, a, b } = two()
  const again = stage.end('paris')
  stage.bind(a, b, A)
  stage.bind(b, a, B)
  stage.bind(again, b, A)
  const assigned = stage.prove(b, again, { at: B })
  const port = assigned?.type === 'assigned' ? assigned.port : CONTROL
  t.match(stage.prove(b, again, { at: B, port }), { type: 'refused', why: 'sameAddress' })
  t.match(stage.prove(b, again, { at: C, port }), { type: 'bound' }, 'from another address it is bound')
  t.equal(new Set(pathTexts(stage)).size, 4)
})

t.test('an end that is withdrawn, or may not link any more, loses its path at once', async (t) => {
  for (const [say, change] of [
    ['withdrawn', ({ stage, a }: Two) => stage.allow([a])],
    ['a topology without the link', ({ stage, a, b }: Two) => stage.allow([a, b], () => false)],
    ['only one of both permits it', ({ stage, a, b }: Two) => stage.allow([a, b], (from) => from === 'paris')],
    ['the same identity of another member', ({ stage, a, b }: Two) => stage.allow([a, { ...b, member: 'rome' }])],
  ] as const) {
    const both = two()
    both.stage.bind(both.a, both.b, A)
    both.stage.bind(both.b, both.a, B)
    t.equal(both.stage.bindings.paths().length, 2)
    t.equal(change(both).isChanged, true, say)
    t.same([both.stage.bindings.paths(), both.stage.bindings.known()], [[], []], say)
  }
  const { stage, a, b } = two()
  stage.bind(a, b, A)
  stage.bind(b, a, B)
  t.equal(stage.allow([b, a]).isChanged, false, 'the same list in another order')
  t.equal(stage.bindings.paths().length, 2)
})

// Replays, spoofed sources, floods.

t.test('a question that is sent again by somebody else', async (t) => {
  const { stage, a, b } = two()
  const toA = stage.bind(a, b, A)
  stage.bind(b, a, B)
  const challenge = stage.ask(a, b, { at: A, port: toA })
  const cookie = challenge?.type === 'challenge' ? challenge.cookie : NO_COOKIE
  const bytes = stage.bytes(a, b, { cookie })
  t.equal(stage.send(bytes, A, toA).outcome, 'bound')
  const before = pathTexts(stage)

  t.equal(stage.send(bytes, A, toA).outcome, 'refused', 'from the same address: stale')
  t.equal(stage.send(bytes, C, toA).outcome, 'challenge', 'from another one: the cookie is not for it')
  t.equal(stage.send(bytes, A, CONTROL).outcome, 'challenge', 'at another port')
  t.same(pathTexts(stage), before)

  t.match(stage.prove(a, b, { at: C, port: toA }), { type: 'bound' }, 'the end moves')
  const moved = pathTexts(stage)
  t.equal(stage.send(bytes, A, toA).outcome, 'refused', 'the old question does not move it back')
  t.same(pathTexts(stage), moved)

  await stage.clock.advance(PAIR_IDLE_MS)
  stage.bindings.apply({ kind: 'time' })
  const again = stage.bind(b, a, B)
  t.ok(again > 0)
  for (const port of stage.bindings.openPorts())
    t.not(stage.send(bytes, A, port).outcome, 'bound', 'nor after the pair was forgotten')
})

t.test('a question from before the relay was started again', async (t) => {
  const first = two()
  const toA = first.stage.bind(first.a, first.b, A)
  const challenge = first.stage.ask(first.a, first.b, { at: A, port: toA })
  const bytes = first.stage.bytes(first.a, first.b, {
    cookie: challenge?.type === 'challenge' ? challenge.cookie : NO_COOKIE,
  })
  // Two relays with one identity, as after a copied state folder, are the same case.
  const second = new RelayStage({ keys: first.stage.keys })
  second.allow([first.a, first.b])
  t.equal(second.send(bytes, A, CONTROL).outcome, 'challenge')
  t.same(second.bindings.openPorts(), [])
  t.equal(second.bind(first.a, first.b, A) > 0, true, 'the end itself is bound again')
})

t.test('a clock that was wrong: the relay says how far it has counted', async (t) => {
  const { stage, a, b } = two()
  const toA = stage.bind(a, b, A)
  const inTenYears = 2_100_000_000_000
  t.match(stage.prove(a, b, { at: A, port: toA, counter: inTenYears }), { type: 'bound' })
  t.match(stage.prove(a, b, { at: A, port: toA, counter: 7 }), { type: 'refused', why: 'stale', newest: inTenYears })
  t.match(stage.prove(a, b, { at: A, port: toA, counter: inTenYears + 1 }), { type: 'bound' })
})

t.test('a third party gets few packets, however often its address is named', async (t) => {
  const { stage, a, b } = two()
  const victim = '192.0.2.200'
  let sent = 0
  for (let i = 0; i < 500; i++) {
    const { answer } = stage.send(stage.bytes(a, b), `${victim}:${1000 + i}`)
    if (answer !== undefined) sent += 1
    t.ok((answer?.length ?? 0) <= QUESTION_BYTES)
    await stage.clock.advance(100)
  }
  t.equal(sent, CHALLENGES_TO_ADDRESS)
  await stage.clock.advance(60_000)
  t.match(stage.ask(a, b, { at: `${victim}:9` }), { type: 'challenge' }, 'after a minute')
})

t.test('somebody who copies the questions of one end delays that end alone, and not where it is bound', async (t) => {
  const { stage, a, b } = two()
  const c = stage.end('rome')
  const toA = stage.bind(a, b, A)
  stage.bind(b, a, B)
  const renewed = stage.prove(a, b, { at: A, port: toA })
  const copied = stage.bytes(a, b)
  const outcomes = new Map<QuestionOutcome | undefined, number>()
  for (let i = 0; i < 20_000; i++) {
    const { outcome } = stage.send(copied, `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}:5`, toA)
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1)
  }
  t.ok((outcomes.get('challenge') ?? 0) <= 60, `${outcomes.get('challenge') ?? 0} challenges`)
  t.ok((outcomes.get('tooMany') ?? 0) >= 19_000)
  const cookie = renewed?.type === 'bound' ? renewed.cookie : NO_COOKIE
  t.match(stage.ask(a, b, { at: A, port: toA, cookie }), { type: 'bound' })
  t.match(stage.prove(c, b, { at: C }), { type: 'assigned' }, 'another end')
})

t.test('an end that asks without a pause is answered some times a second', async (t) => {
  const { stage, a, b } = two()
  const toA = stage.bind(a, b, A)
  const first = stage.ask(a, b, { at: A, port: toA })
  let cookie = first?.type === 'challenge' ? first.cookie : NO_COOKIE
  let answers = 0
  for (let i = 0; i < 1000; i++) {
    const answer = stage.ask(a, b, { at: A, port: toA, cookie })
    if (answer?.type === 'bound') {
      answers += 1
      cookie = answer.cookie
    }
  }
  t.ok(answers > 0 && answers <= 40, `${answers} answers at once`)
})

// Limits.

t.test('as many pairs as there are ports, and as a member may have', async (t) => {
  const why = (answer: BindAnswer | undefined): string | undefined =>
    answer?.type === 'refused' ? answer.why : answer?.type
  const few = new RelayStage({ ports: { first: 4601, last: 4602 } })
  const paris = few.end('paris')
  const others = [1, 2, 3].map((i) => few.end(`site-${i}`)) as [TestEnd, TestEnd, TestEnd]
  t.same(
    others.map((other) => why(few.prove(paris, other, { at: A }))),
    ['assigned', 'assigned', 'full'],
    'an end has each port once',
  )
  t.same([...few.bindings.openPorts()].sort(), [4601, 4602])
  t.equal(why(few.prove(others[0], others[2], { at: B })), 'assigned', 'others share them')

  const limited = new RelayStage({ limits: { mostPairsOfMember: 2 } })
  const oslo = [limited.end('oslo'), limited.end('oslo')] as const
  const far = [1, 2, 3].map((i) => limited.end(`site-${i}`))
  const [one, two_, three] = far as [TestEnd, TestEnd, TestEnd]
  t.equal(why(limited.prove(oslo[0], one, { at: A })), 'assigned')
  t.equal(why(limited.prove(oslo[1], two_, { at: A })), 'assigned')
  t.equal(why(limited.prove(oslo[0], three, { at: A })), 'memberFull')
  const asked = limited.prove(three, oslo[0], { at: C })
  t.equal(why(asked), 'assigned', 'it is not their pair')
  t.equal(why(limited.prove(oslo[0], three, { at: A })), 'memberFull', 'nor can they make it theirs')
  t.equal(why(limited.prove(one, three, { at: C })), 'assigned', 'others go on')

  const tiny = new RelayStage({ limits: { mostPairs: 1, mostEnds: 3 } })
  const ends = [1, 2, 3, 4].map((i) => tiny.end(`site-${i}`)) as [TestEnd, TestEnd, TestEnd, TestEnd]
  t.equal(tiny.send(tiny.bytes(ends[3], ends[0]), A).outcome, 'unknownEnd', 'the fourth of three')
  t.equal(why(tiny.prove(ends[0], ends[1], { at: A })), 'assigned')
  t.equal(why(tiny.prove(ends[0], ends[2], { at: A })), 'full')
})

t.test('a thousand pairs share two hundred ports', async (t) => {
  const stage = new RelayStage({ ports: { first: RELAY_PORT + 1, last: RELAY_LAST_PORT } })
  const ends = Array.from({ length: 46 }, (_, i) => ({ end: stage.end(`site-${i}`), at: `198.51.100.${i + 1}:4500` }))
  const refused: (string | undefined)[] = []
  for (const [i, a] of ends.entries()) {
    for (const b of ends.slice(i + 1)) {
      // All of them are bound within the life of the first binding.
      await stage.clock.advance(20)
      if (stage.bindings.pairCount === PAIRS_OF_RELAY) {
        const answer = stage.prove(a.end, b.end, { at: a.at })
        refused.push(answer?.type === 'refused' ? answer.why : answer?.type)
        continue
      }
      const [toA, toB] = [stage.bind(a.end, b.end, a.at), stage.bind(b.end, a.end, b.at)]
      t.ok(toA !== toB, 'the two ports of a pair differ')
    }
  }
  t.same(
    refused,
    Array.from({ length: 11 }, () => 'full'),
  )
  const paths = stage.bindings.paths()
  t.equal(paths.length, 2 * PAIRS_OF_RELAY)
  t.equal(new Set(paths.map(({ from, port }) => `${String(from.address.value)} ${port}`)).size, paths.length)
  t.equal(new Set(paths.map(({ number }) => number)).size, paths.length)
  t.equal(Math.max(...paths.map(({ number }) => number)), 2 * PAIRS_OF_RELAY)
  const uses = new Map<number, number>()
  for (const { port } of paths) uses.set(port, (uses.get(port) ?? 0) + 1)
  t.equal(uses.size, PORTS_OF_RELAY, 'all ports are used')
  t.ok(Math.max(...uses.values()) <= 20, `at most ${Math.max(...uses.values())} ends share one`)
})

t.test('two ends with one address, as during a rotation, get different ports', async (t) => {
  const stage = new RelayStage({ ports: { first: 4601, last: 4603 } })
  const pairs = Array.from({ length: 6 }, (_, i) => ({ far: stage.end(`site-${i}`), own: stage.end('paris') }))
  // The far ends ask first, so the relay does not know the addresses of these when it gives them ports.
  for (const { far, own } of pairs) t.match(stage.prove(far, own, { at: B }), { type: 'assigned' })
  const [before, , , after, fifth, sixth] = pairs as [OwnAndFar, OwnAndFar, OwnAndFar, OwnAndFar, OwnAndFar, OwnAndFar]
  const port = stage.bind(before.own, before.far, A)
  stage.bind(before.far, before.own, B)
  const paths = pathTexts(stage)
  t.match(stage.prove(after.own, after.far, { at: A }), { type: 'assigned', port })
  const moved = stage.prove(after.own, after.far, { at: A, port })
  t.match(moved, { type: 'refused', why: 'wrongPort' })
  t.same(pathTexts(stage), paths, 'the end that is bound keeps its port')
  const other = stage.bind(after.own, after.far, A)
  t.not(other, port)
  t.not(stage.bind(after.far, after.own, C), other, 'the two ports of a pair differ')
  t.equal(stage.bindings.paths().length, 4)
  t.ok(stage.bind(fifth.own, fifth.far, A) > 0)
  const assigned = stage.prove(sixth.own, sixth.far, { at: A })
  t.equal(assigned?.type, 'assigned')
  const last = assigned?.type === 'assigned' ? assigned.port : 0
  t.match(stage.prove(sixth.own, sixth.far, { at: A, port: last }), { type: 'refused', why: 'full' }, 'none is left')
  t.equal(stage.bindings.paths().length, 4)
})

t.test('an end with many pairs may ask more often, by its pairs', async (t) => {
  const stage = new RelayStage()
  const paris = stage.end('paris')
  const others = Array.from({ length: 60 }, (_, i) => stage.end(`site-${i}`))
  // All at once, as after a restart of the relay.
  for (const other of others) t.ok(stage.bind(paris, other, A) > 0)
})

t.test('a burst of questions before the first answer costs an end nothing but time', async (t) => {
  for (const count of [60, 199]) {
    const stage = new RelayStage({ ports: { first: RELAY_PORT + 1, last: RELAY_LAST_PORT } })
    const paris = stage.end('paris')
    const others = Array.from({ length: count }, (_, i) => stage.end(`site-${i}`))
    const outcomes = others.map((other) => stage.send(stage.bytes(paris, other), A).outcome)
    t.equal(outcomes.filter((outcome) => outcome === 'challenge').length, CHALLENGES_TO_ADDRESS)
    // An address that is proven gets challenges again, and the end has lost none.
    const proven = outcomes.indexOf('challenge')
    const first = stage.send(stage.bytes(paris, others[proven] ?? paris), B)
    t.equal(first.outcome, 'challenge')
    for (const other of others) t.ok(stage.bind(paris, other, C) > 0)
  }
})

t.test('an end that moves to and fro changes the table seldom', async (t) => {
  const { stage, a, b } = two()
  const port = stage.bind(a, b, A)
  stage.bind(b, a, B)
  let [moves, last] = [0, pathTexts(stage).join()]
  for (let i = 0; i < 100; i++) {
    stage.prove(a, b, { at: i % 2 === 0 ? C : A, port })
    const now = pathTexts(stage).join()
    if (now !== last) moves += 1
    last = now
    await stage.clock.advance(100)
  }
  t.ok(moves >= 3 && moves <= 9, `${moves} moves in 10 s`)
  await stage.clock.advance(10_000)
  t.match(stage.prove(a, b, { at: '198.51.100.3:1', port }), { type: 'bound' }, 'a NAT moves it once')
})

t.test('one member that asks for all others leaves pairs to these', async (t) => {
  const stage = new RelayStage({ limits: { mostPairs: 20 } })
  const paris = stage.end('paris')
  const others = Array.from({ length: 20 }, (_, i) => stage.end(`site-${i}`))
  const answers = others.map((other) => stage.prove(paris, other, { at: A })?.type)
  t.equal(answers.filter((type) => type === 'assigned').length, 5, 'a quarter of twenty pairs')
  const [one, two_] = others as [TestEnd, TestEnd]
  t.match(stage.prove(one, two_, { at: B }), { type: 'assigned' }, 'what paris has begun is not theirs')
  t.ok(stage.bind(one, paris, B) > 0, 'they may be bound where paris has asked')
})

t.test('a member has more pairs that have no other way, and leaves half to others', async (t) => {
  const stage = new RelayStage({ limits: { mostPairs: 20 } })
  const [paris, oslo] = [stage.end('paris'), stage.end('oslo')]
  const others = Array.from({ length: 20 }, (_, i) => stage.end(`site-${i}`))
  const ofParis = (a: string, b: string): boolean => a === 'paris' || b === 'paris'
  stage.allow([paris, oslo, ...others], () => true, ofParis)
  const pairsOf = (end: TestEnd): number => {
    const answers = others.map((other) => stage.prove(end, other, { at: A })?.type)
    return answers.filter((type) => type === 'assigned').length
  }
  t.equal(pairsOf(oslo), 5, 'a quarter of twenty pairs')
  t.equal(pairsOf(paris), 7, 'half of the fifteen that oslo leaves')
})

t.test('no quota ends a pair that has no other way', async (t) => {
  const stage = new RelayStage({ limits: { pairQuota: 1000, memberQuota: 1500 } })
  const [paris, oslo, roma] = [stage.end('paris'), stage.end('oslo'), stage.end('roma')]
  const allow = (isTransit: boolean) =>
    stage.allow(
      [paris, oslo, roma],
      () => true,
      (a, b) => isTransit && [a, b].sort().join() === 'oslo,paris',
    )
  allow(true)
  const port = stage.bind(paris, oslo, A)
  stage.bind(oslo, paris, B)
  const free = stage.bind(paris, roma, C)
  stage.bind(roma, paris, B)
  stage.carry(port, 5000)
  t.equal(stage.bindings.paths().length, 4, 'neither pair has spent anything')
  t.match(stage.prove(paris, oslo, { at: A, port }), { type: 'bound' })
  stage.carry(free, 1200)
  t.equal(stage.bindings.paths().length, 2, 'the other pair has a quota')
  t.match(stage.prove(paris, roma, { at: C, port: free }), { type: 'refused', why: 'quotaSpent' })
})

t.test('a pair at which the far end never arrives has its ports for a minute', async (t) => {
  const { stage, a, b } = two()
  const toA = stage.bind(a, b, A)
  for (let waitedMs = 0; waitedMs < PAIR_ALONE_MS; waitedMs += 10_000) {
    t.match(stage.prove(a, b, { at: A, port: toA }), { type: 'bound' })
    await stage.clock.advance(10_000)
  }
  stage.bindings.apply({ kind: 'time' })
  t.same(stage.bindings.openPorts(), [])
  t.ok(stage.bind(a, b, A) > 0, 'it may ask again')
})

t.test('a pair that begins again has spent what it had', async (t) => {
  const { stage, a, b } = two({ limits: { pairQuota: 1000 } })
  const toA = stage.bind(a, b, A)
  stage.bind(b, a, B)
  stage.carry(toA, 600)
  await stage.clock.advance(PAIR_IDLE_MS)
  stage.bindings.apply({ kind: 'time' })
  t.same(stage.bindings.openPorts(), [])
  const again = stage.bind(a, b, A)
  stage.bind(b, a, B)
  stage.carry(again, 400)
  t.same(stage.bindings.paths(), [])
  t.match(stage.prove(a, b, { at: A }), { type: 'refused', why: 'quotaSpent' })
})

t.test('quotas of a pair and of a member, until the period ends', async (t) => {
  const periodMs = 3_600_000
  for (const [say, limits, isThirdMeant] of [
    ['of the pair', { pairQuota: 1000, periodMs }, false],
    ['of the member', { memberQuota: 1000, periodMs }, true],
  ] as const) {
    const { stage, a, b } = two({ limits })
    const c = stage.end('rome')
    const toA = stage.bind(a, b, A)
    stage.bind(b, a, B)
    stage.bind(c, a, C)
    t.equal(stage.carry(toA, 999).isChanged, false, say)
    t.equal(stage.bindings.paths().length, 2, say)
    t.equal(stage.carry(toA, 1).isChanged, true, say)
    t.same(stage.bindings.paths(), [], say)
    t.match(stage.prove(a, b, { at: A }), { type: 'refused', why: 'quotaSpent' }, say)
    t.match(stage.prove(b, a, { at: B }), { type: 'refused', why: 'quotaSpent' }, `${say}: of the far end`)
    const third = stage.prove(c, a, { at: C })
    t.equal(third?.type, isThirdMeant ? 'refused' : 'assigned', `${say}: another pair of this member`)
    await stage.clock.advance(periodMs)
    t.ok(stage.bind(a, b, A) > 0, `${say}: the next period`)
  }
  const { stage } = two()
  t.equal(stage.carry(1, 5).isChanged, false, 'a port that no pair has')
})

t.test('a port that was given back is the last to be used again', async (t) => {
  const { stage, a, b } = two({ ports: { first: 4601, last: 4608 } })
  const seen: number[] = []
  for (let i = 0; i < 4; i++) {
    stage.prove(a, b, { at: A })
    seen.push(...stage.bindings.openPorts())
    await stage.clock.advance(BIND_LIFE_MS)
    stage.bindings.apply({ kind: 'time' })
  }
  t.same([...new Set(seen)].length, 8)
})

// Whatever happens, in whatever order.

type Step =
  | {
      readonly do: 'ask'
      readonly from: number
      readonly to: number
      readonly at: number
      readonly port: number
      readonly reuse: boolean
    }
  /** Both ask for their ports and bind there. */
  | { readonly do: 'bind'; readonly from: number; readonly to: number; readonly at: number; readonly farAt: number }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'carry'; readonly port: number; readonly octets: number }
  | { readonly do: 'allow'; readonly mask: number }

const AT = ['198.51.100.1:1001', '198.51.100.1:1002', '192.0.2.1:1001', '203.0.113.9:4601']
const index = fc.integer({ min: 0, max: 3 })
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({ do: fc.constant('bind' as const), from: index, to: index, at: index, farAt: index }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('ask' as const),
      from: index,
      to: index,
      at: index,
      port: fc.integer({ min: 4600, max: 4606 }),
      reuse: fc.boolean(),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.integer({ min: 0, max: 40_000 }) }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('carry' as const),
      port: fc.integer({ min: 4600, max: 4606 }),
      octets: fc.integer({ min: 0, max: 400 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('allow' as const), mask: fc.integer({ min: 0, max: 15 }) }) },
)

t.test('invariants hold for any sequence of events', async (t) => {
  let seen = 0
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const stage = new RelayStage({
        ports: { first: 4601, last: 4606 },
        limits: { pairQuota: 1000, mostPairsOfMember: 9 },
      })
      const ends = ['paris', 'oslo', 'rome', 'paris'].map((member) => stage.end(member))
      const proven = new Set<string>()
      let allowed = ends
      let last: BindAnswer | undefined
      for (const one of steps) {
        if (one.do === 'wait') await stage.clock.advance(one.ms)
        if (one.do === 'carry') stage.carry(one.port, one.octets)
        if (one.do === 'allow') {
          allowed = ends.filter((_, i) => (one.mask & (1 << i)) !== 0)
          stage.allow(allowed)
        }
        if (one.do === 'bind') {
          const [a, b] = [ends[one.from] as TestEnd, ends[one.to] as TestEnd]
          for (const [from, to, at = ''] of [
            [a, b, AT[one.at]],
            [b, a, AT[one.farAt]],
          ] as const) {
            const assigned = stage.prove(from, to, { at })
            const port = assigned?.type === 'assigned' ? assigned.port : CONTROL
            if (stage.prove(from, to, { at, port })?.type === 'bound') proven.add(at)
          }
        }
        if (one.do === 'ask') {
          const [from, to, at = ''] = [ends[one.from] as TestEnd, ends[one.to] as TestEnd, AT[one.at]]
          const cookie = one.reuse && last?.type === 'challenge' ? last.cookie : NO_COOKIE
          last = one.reuse
            ? stage.ask(from, to, { at, port: one.port, cookie })
            : stage.prove(from, to, { at, port: one.port })
          if (last?.type === 'bound') proven.add(at)
        }
        const paths = stage.bindings.paths()
        seen += paths.length
        for (const path of paths) {
          const back = paths.find(({ port, from }) => port === path.leaves && from === path.to)
          if (back?.leaves !== path.port || back.to !== path.from) throw new Error('a path without its way back')
          for (const { address, port } of [path.from, path.to]) {
            if (address.value === RELAY_AT.address.value) throw new Error('a path to the relay itself')
            const isProven = [...proven].some((text) => {
              const at = parseAddressPort(text)
              return at.address.value === address.value && at.port === port
            })
            if (!isProven) throw new Error('a path to an address that has not answered a challenge')
          }
        }
        const keys = paths.map(({ from, to }) =>
          JSON.stringify([from, to].map((at) => [String(at.address.value), at.port])),
        )
        if (new Set(keys).size !== keys.length) throw new Error('two paths between the same addresses')
        const senders = stage.bindings.known().map(({ at, port }) => `${String(at.address.value)}:${at.port} ${port}`)
        if (new Set(senders).size !== senders.length) throw new Error('two ends with one address at one port')
        const numbers = paths.map(({ number }) => number)
        if (new Set(numbers).size !== numbers.length) throw new Error('two directions with one number')
        const ports = stage.bindings.openPorts()
        if (new Set(ports).size !== ports.length || ports.some((port) => port < 4601 || port > 4606))
          throw new Error(`ports: ${ports.join(', ')}`)
        if (allowed.length < 2 && ports.length > 0) throw new Error('a pair of ends that may not use the relay')
      }
    }),
    { numRuns: 150 },
  )
  t.comment(`${seen} paths`)
  t.ok(seen > 100, `${seen} paths`)
})
