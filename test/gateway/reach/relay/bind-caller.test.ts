/** An end that wants a relay, against a real one, a lost one, and one that lies. */
import fc from 'fast-check'
import t from 'tap'
import { BindCaller } from '../../../../gateway/reach/relay/bind-caller.ts'
import { type BindAnswer, decodeQuestion, encodeAnswer } from '../../../../gateway/reach/frames/bind-frame.ts'
import { type AddressPort, parseAddressPort } from '../../../../model/addresses/addresses.ts'
import { RELAY_AT, RelayStage, type TestEnd } from '../../support/relay-stage.ts'

const A = '198.51.100.1:40001'
const B = '192.0.2.1:50001'

function callerOf(from: TestEnd, to: TestEnd): BindCaller {
  return new BindCaller({ from: from.id, to: to.id, key: from.key, relay: RELAY_AT })
}

interface Ends {
  readonly ends: readonly TestEnd[]
  readonly stage: RelayStage
  readonly calls: readonly { readonly caller: BindCaller; at: string }[]
}

function twoEnds(): Ends {
  const stage = new RelayStage()
  const [a, b] = [stage.end('paris'), stage.end('oslo')]
  return {
    ends: [a, b],
    stage,
    calls: [
      { caller: callerOf(a, b), at: A },
      { caller: callerOf(b, a), at: B },
    ],
  }
}

/** Runs for some time in steps of 50 ms. `isLost` is called for each packet. Returns how many questions were sent. */
async function run(
  { stage, calls }: Ends,
  ms: number,
  isLost: () => boolean = () => false,
  isClosed: (port: number) => boolean = () => false,
): Promise<number> {
  let questions = 0
  for (let passed = 0; passed < ms; passed += 50) {
    for (const { caller, at } of calls) {
      for (;;) {
        const question = caller.next(stage.clock.monotonic(), stage.clock.now())
        if (question === undefined) break
        questions += 1
        if (isLost() || isClosed(question.to.port)) continue
        const { answer } = stage.send(question.bytes, at, question.to.port)
        if (answer !== undefined && !isLost()) caller.take(answer, question.to, stage.clock.monotonic())
      }
    }
    await stage.clock.advance(50)
  }
  return questions
}

t.test('both ends are bound after four questions each, and stay bound', async (t) => {
  const ends = twoEnds()
  t.equal(await run(ends, 50), 8)
  t.equal(ends.stage.bindings.paths().length, 2)
  await run(ends, 2000)
  for (const { caller, at } of ends.calls)
    t.match(caller.state, { is: 'bound', far: { mapping: 'unknown' }, seen: parseAddressPort(at) })
  const order = ends.calls.map(({ caller: { state } }) => state.is === 'bound' && state.far?.wasThere)
  t.same(order.sort(), [false, true], 'the later end knows that it is the later one')
  const a = ends.calls[0]?.caller.state
  t.ok(a?.is === 'bound' && ends.stage.bindings.openPorts().includes(a.at.port))

  const asked = await run(ends, 240_000)
  t.ok(asked <= 2 * (240 / 8 + 2), `${asked} questions in 4 minutes`)
  t.equal(ends.stage.bindings.paths().length, 2)
})

t.test('each end learns where the other is seen, of what kind its NAT is, and since when', async (t) => {
  const { stage, ends } = twoEnds()
  const [a, b] = ends
  if (a === undefined || b === undefined) throw new Error('ends')
  const toA = stage.bind(a, b, A)
  await stage.clock.advance(5000)
  const toB = stage.bind(b, a, B)
  await stage.clock.advance(700)
  const seen = stage.prove(a, b, { at: A, port: toA, mapping: 'addressDependent' })
  t.match(seen, { seen: parseAddressPort(A), far: { at: parseAddressPort(B), mapping: 'unknown', sharedMs: 700 } })
  t.match(stage.prove(b, a, { at: B, port: toB }), { far: { at: parseAddressPort(A), mapping: 'addressDependent' } })
  const moved = '198.51.100.1:40002'
  t.match(stage.prove(a, b, { at: moved, port: toA }), { seen: parseAddressPort(moved), far: { sharedMs: 0 } })
  t.match(stage.prove(b, a, { at: B, port: toB }), { far: { at: parseAddressPort(moved), sharedMs: 0 } })
})

t.test('lost packets delay an end', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1 }), async (seed) => {
      const ends = twoEnds()
      let state = seed
      const isLost = (): boolean => {
        state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
        return (state >>> 16) % 10 < 3
      }
      await run(ends, 30_000, isLost)
      await run(ends, 20_000)
      t.equal(ends.stage.bindings.paths().length, 2)
    }),
    { numRuns: 20 },
  )
})

t.test('an end behind a NAT that gives it another address', async (t) => {
  const ends = twoEnds()
  await run(ends, 2000)
  const [first] = ends.calls
  if (first !== undefined) first.at = '198.51.100.2:41000'
  await run(ends, 9000)
  t.match(first?.caller.state, { is: 'bound', seen: parseAddressPort('198.51.100.2:41000') })
  t.equal(ends.stage.bindings.paths().length, 2)
})

t.test('a relay that is started again, and one that is gone', async (t) => {
  const before = twoEnds()
  await run(before, 2000)
  // It knows the same ends, and has forgotten their pair.
  const stage = new RelayStage({ keys: before.stage.keys, ports: { first: 4701, last: 4799 } })
  await stage.clock.advance(before.stage.clock.monotonic())
  stage.allow(before.ends)
  const ends: Ends = { ...before, stage }
  // Nothing listens at the ports of its earlier run.
  const isClosed = (port: number): boolean => port !== RELAY_AT.port && !stage.bindings.openPorts().includes(port)
  await run(ends, 20_000, () => false, isClosed)
  t.equal(stage.bindings.paths().length, 2)
  const asked = await run(ends, 120_000, () => true)
  t.ok(asked < 80, `${asked} questions in 2 minutes without an answer`)
  for (const { caller } of ends.calls) t.equal(caller.state.is, 'asking')
  await run(ends, 8000)
  t.equal(stage.bindings.paths().length, 2, 'it is back')
})

t.test('a relay that learns a moment later that the two may be linked', async (t) => {
  const rows: readonly (readonly [lateMs: number, withinMs: number])[] = [
    [150, 150],
    [300, 400],
    [1200, 500],
    [60_000, 10_000],
  ]
  for (const [lateMs, withinMs] of rows) {
    const ends = twoEnds()
    const { stage, ends: known } = ends
    stage.allow(known, () => false)
    const asked = await run(ends, lateMs)
    t.equal(stage.bindings.paths().length, 0)
    t.ok(asked <= 2 * 2 * (5 + lateMs / 10_000), `${asked} questions in ${lateMs} ms`)
    stage.allow(known)
    await run(ends, withinMs)
    t.equal(stage.bindings.paths().length, 2, `${lateMs} ms late: bound ${withinMs} ms later`)
  }
})

t.test('a clock that goes back', async (t) => {
  const { stage, calls } = twoEnds()
  const [one] = calls
  const caller = one?.caller as BindCaller
  const ask = (wallMs: number): void => {
    for (let i = 0; i < 10; i++) {
      const question = caller.next(stage.clock.monotonic(), wallMs)
      if (question === undefined) return
      const { answer } = stage.send(question.bytes, A, question.to.port)
      if (answer !== undefined) caller.take(answer, question.to, stage.clock.monotonic())
    }
  }
  ask(2_100_000_000_000)
  t.equal(caller.state.is, 'bound')
  await stage.clock.advance(8000)
  ask(1_800_000_000_000)
  t.equal(caller.state.is, 'bound')
})

t.test('a relay that lies cannot make an end ask without a pause', async (t) => {
  const stage = new RelayStage()
  const [a, b] = [stage.end('paris'), stage.end('oslo')]
  const lies: readonly ((counter: number) => BindAnswer)[] = [
    (counter) => ({ from: a.id, to: b.id, counter, type: 'challenge', cookie: Buffer.alloc(16, counter & 255) }),
    (counter) => ({ from: a.id, to: b.id, counter, type: 'refused', why: 'stale', port: 0, newest: counter + 5 }),
    (counter) => ({ from: a.id, to: b.id, counter, type: 'refused', why: 'wrongPort', port: 0, newest: 0 }),
    (counter) =>
      counter % 2 === 0
        ? { from: a.id, to: b.id, counter, type: 'assigned', port: 5000 }
        : { from: a.id, to: b.id, counter, type: 'refused', why: 'wrongPort', port: 0, newest: 0 },
    (counter) => ({ from: a.id, to: b.id, counter, type: 'assigned', port: 22 }),
    (counter) => ({ from: a.id, to: b.id, counter, type: 'refused', why: 'full', port: 0, newest: 0 }),
    (counter) => ({ from: a.id, to: b.id, counter, type: 'refused', why: 'notAllowed', port: 0, newest: 0 }),
    (counter) =>
      counter % 2 === 0
        ? { from: a.id, to: b.id, counter, type: 'assigned', port: 5000 }
        : { from: a.id, to: b.id, counter, type: 'refused', why: 'notAllowed', port: 0, newest: 0 },
  ]
  for (const [i, lie] of lies.entries()) {
    const caller = callerOf(a, b)
    let asked = 0
    for (let ms = 0; ms < 60_000; ms += 10) {
      const question = caller.next(ms, 0)
      if (question === undefined) continue
      asked += 1
      const { counter = 0 } = decodeQuestion(question.bytes, a.key) ?? {}
      caller.take(encodeAnswer(lie(counter), a.key), question.to, ms)
    }
    t.ok(asked <= 60, `lie ${i}: ${asked} questions in a minute`)
    t.not(caller.state.is, 'bound')
  }
})

t.test('a relay that lets each binding end at once is not asked more often for that', (t) => {
  const stage = new RelayStage()
  const [a, b] = [stage.end('paris'), stage.end('oslo')]
  const caller = callerOf(a, b)
  const seen = parseAddressPort(A)
  let asked = 0
  for (let ms = 0; ms < 60_000; ms += 1) {
    const question = caller.next(ms, 0)
    if (question === undefined) continue
    asked += 1
    const { counter = 0 } = decodeQuestion(question.bytes, a.key) ?? {}
    const of = { from: a.id, to: b.id, counter }
    const bound = { type: 'bound', port: 5000, seen, lifeMs: 1, cookie: Buffer.alloc(16, 1) } as const
    const far = { at: parseAddressPort(B), mapping: 'unknown', sharedMs: 10_000 } as const
    const isAsking = question.to.port === RELAY_AT.port
    const answer: BindAnswer = isAsking ? { ...of, type: 'assigned', port: 5000 } : { ...of, ...bound, far }
    caller.take(encodeAnswer(answer, a.key), question.to, ms)
  }
  t.ok(asked <= 65, `${asked} questions in a minute`)
  t.end()
})

t.test('answers that are not for this question', async (t) => {
  const { stage, calls } = twoEnds()
  const [one, other] = calls
  const caller = one?.caller as BindCaller
  const question = caller.next(0, 1000)
  const { answer } = stage.send(question?.bytes ?? Buffer.alloc(0), A)
  if (answer === undefined || question === undefined) throw new Error('no answer')
  const change = (bytes: Buffer): Buffer => {
    const copy = Buffer.from(bytes)
    copy.writeUInt8(copy.readUInt8(40) ^ 1, 40)
    return copy
  }
  t.equal(caller.take(change(answer), question.to, 1), false, 'changed')
  t.equal(caller.take(answer, parseAddressPort('203.0.113.10:4600'), 1), false, 'from elsewhere')
  t.equal(caller.take(answer, { ...question.to, port: 4601 }, 1), false, 'from another port')
  t.equal(other?.caller.take(answer, question.to, 1), false, 'for another end')
  t.equal(caller.next(1, 1000), undefined, 'none of them counts')
  caller.take(answer, question.to, 1)
  const next = caller.next(1, 1000)
  t.ok(next !== undefined, 'the true one does')
  caller.take(answer, question.to, 1)
  t.equal(caller.next(1, 1000), undefined, 'an old answer does not')
})

t.test('an answer that is sent again does not put off the next question', async (t) => {
  const { stage, calls } = twoEnds()
  await run({ stage, calls, ends: [] }, 3000)
  const [call] = calls
  if (call === undefined) throw new Error('no call')
  const { caller } = call
  let last: { readonly answer: Buffer; readonly from: AddressPort } | undefined
  let questions = 0
  for (let passed = 0; passed < 60_000; passed += 500) {
    const question = caller.next(stage.clock.monotonic(), stage.clock.now())
    if (question !== undefined) {
      questions += 1
      const { answer } = stage.send(question.bytes, call.at, question.to.port)
      if (answer === undefined) throw new Error('no answer')
      last = { answer, from: question.to }
    }
    if (last !== undefined) caller.take(last.answer, last.from, stage.clock.monotonic())
    await stage.clock.advance(500)
  }
  t.ok(questions >= 6, `${questions} questions in a minute`)
  t.equal(caller.state.is, 'bound')
})

t.test('an end whose link does not work asks at once', async (t) => {
  const ends = twoEnds()
  await run(ends, 6000)
  const caller = ends.calls[0]?.caller as BindCaller
  const { clock } = ends.stage
  t.equal(caller.next(clock.monotonic(), clock.now()), undefined)
  caller.renew(clock.monotonic())
  t.ok(caller.next(clock.monotonic(), clock.now()))
  caller.renew(clock.monotonic())
  t.equal(caller.next(clock.monotonic(), clock.now()), undefined, 'and waits for the answer')
  let asked = 0
  for (let i = 0; i < 10; i++) {
    await run(ends, 4000)
    caller.renew(clock.monotonic())
    if (caller.next(clock.monotonic(), clock.now()) !== undefined) asked += 1
  }
  t.equal(asked, 3, 'and not much more often, however long the link does not work')
})

t.test('sixteen links of one end to a relay that answers late', async (t) => {
  for (const [delayMs, withinMs] of [
    [300, 3000],
    [600, 6000],
    [2000, 20_000],
  ] as const) {
    const stage = new RelayStage()
    const own = stage.end('paris')
    const far = Array.from({ length: 16 }, (_, i) => ({ end: stage.end(`far${i}`), at: `192.0.2.${i + 1}:50001` }))
    stage.allow([own, ...far.map(({ end }) => end)])
    const calls = far.flatMap(({ end, at }) => [
      { caller: callerOf(own, end), at: A },
      { caller: callerOf(end, own), at },
    ])
    let late: { readonly dueMs: number; readonly take: () => void }[] = []
    for (let passed = 0; passed < withinMs; passed += 50) {
      const nowMs = stage.clock.monotonic()
      for (const { take } of late.filter(({ dueMs }) => dueMs <= nowMs)) take()
      late = late.filter(({ dueMs }) => dueMs > nowMs)
      for (const { caller, at } of calls) {
        const question = caller.next(nowMs, stage.clock.now())
        if (question === undefined) continue
        const { answer } = stage.send(question.bytes, at, question.to.port)
        if (answer === undefined) continue
        late.push({
          dueMs: nowMs + delayMs,
          take: () => void caller.take(answer, question.to, stage.clock.monotonic()),
        })
      }
      await stage.clock.advance(50)
    }
    t.equal(stage.bindings.paths().length, 32, `bound within ${withinMs} ms, with answers after ${delayMs} ms`)
    const [first] = calls
    t.equal(first?.caller.rttMs, delayMs, 'the time is that of the question which was answered')
  }
})
