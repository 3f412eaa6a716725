/** When a link sleeps and wakes, as tables, and of what WireGuard may count. */
import fc from 'fast-check'
import t from 'tap'
import {
  type AsleepLink,
  type AwakeLink,
  FOLLOW_MS,
  GRACE_MS,
  SILENCE_MS,
  SLEEP_LOOK_MS,
  type SleepLook,
  afterLook,
  asleepFrom,
  fallsAsleep,
  hasContent,
  sleepRule,
  wakesByQuestion,
} from '../../../gateway/health/plan-sleep.ts'

t.test('links sleep in large clustersets, or as stated', async (t) => {
  for (const [stated, members, expected] of [
    [undefined, 50, undefined],
    [undefined, 51, { afterMs: 600_000, follows: true }],
    [0, 500, undefined],
    [60_000, 2, { afterMs: 60_000, follows: false }],
  ] as const) {
    t.strictSame(sleepRule(stated, members), expected, `${stated} ${members}`)
  }
})

const NOW = 1_000_000
const LONG = NOW - 600_000
const IDLE: AwakeLink = {
  ...{ answers: true, busy: false, quietSinceMs: LONG, idleSinceMs: LONG, awakeSinceMs: 0, askedMs: NOW - 900 },
}
const RULE = { afterMs: 600_000, follows: true }

t.test('an idle link sleeps, and so does one whose far end asks no more', async (t) => {
  const recent = { quietSinceMs: NOW - 599_999, idleSinceMs: NOW - 599_999 }
  for (const [name, change, expected] of [
    ['idle for long enough', {}, true],
    ['not for long enough', recent, false],
    ['busy: a status that was delayed', { busy: true }, false],
    ['without answers', { answers: false }, false],
    ['the far end sleeps', { ...recent, askedMs: NOW - FOLLOW_MS }, true],
    ['the far end has just asked', { ...recent, askedMs: NOW - FOLLOW_MS + 1 }, false],
    ['the far end sleeps, but there is traffic', { ...recent, busy: true, askedMs: NOW - FOLLOW_MS }, false],
    ['this end has just woken', { ...recent, askedMs: NOW - 60_000, awakeSinceMs: NOW - FOLLOW_MS + 1 }, false],
  ] as const) {
    t.equal(fallsAsleep({ ...IDLE, ...change }, RULE, NOW), expected, name)
  }
  const stated = { ...RULE, follows: false }
  const asleepThere = { ...IDLE, ...recent, askedMs: NOW - FOLLOW_MS }
  t.equal(fallsAsleep(asleepThere, stated, NOW), false, 'the time of this end is stated')
  t.equal(fallsAsleep({ ...asleepThere, quietSinceMs: LONG }, stated, NOW), true, 'only the far end woke it')
  const { askedMs: _, ...never } = IDLE
  t.equal(fallsAsleep({ ...never, ...recent }, RULE, NOW), false, 'a far end that never asked')
  t.equal(wakesByQuestion(asleepFrom(LOOK), LOOK.atMs + GRACE_MS - 1), false, 'the far end does not know yet')
  t.equal(wakesByQuestion(asleepFrom(LOOK), LOOK.atMs + GRACE_MS), true)
})

t.test('keepalives and handshakes are no traffic, the least packet is', async (t) => {
  for (const [name, rx, tx, expected] of [
    ['nothing', 0, 0, false],
    ['a keepalive each', 32, 32, false],
    ['a call and its answer, with the keepalive that confirms it', 92, 148 + 32, false],
    ['the same at the other end', 148 + 32, 92, false],
    ['a keepalive that makes the call, too', 92, 32 + 148 + 32, false],
    ['a call without answer', 0, 148, false],
    ['a call with the keepalive of the last session', 0, 148 + 32, false],
    ['the least packet', 0, 64, true],
    ['the least packet from there', 64, 0, true],
    ['a SYN', 0, 96, true],
    ['a SYN with a keepalive', 32, 96 + 32, true],
    ['a SYN that makes a call', 92, 96 + 148, true],
    ['the least packet that makes a call', 92, 64 + 148 + 32, true],
    ['a packet as large as the MTU, which is no multiple of 16', 1420 + 32, 0, true],
    ['a probe that was read late', 96, 96, true],
    ['probes that were counted before the device did', -96, -96, false],
  ] as const) {
    t.equal(hasContent(rx, tx), expected, name)
  }
})

const none = { received: 0, sent: 0, paddedOctets: 0 }
const LOOK: SleepLook = { askedMs: 10_000, atMs: 10_010, rxBytes: 5000, txBytes: 7000, least: none, most: none }

function lookAfter(before: SleepLook, ms: number, rx: number, tx: number, probes = none): SleepLook {
  const askedMs = before.askedMs + ms
  const counts = { rxBytes: before.rxBytes + rx, txBytes: before.txBytes + tx }
  return { askedMs, atMs: askedMs + 10, ...counts, least: probes, most: probes }
}

t.test('a look', async (t) => {
  const link = asleepFrom(LOOK)
  const asks = { received: 2, sent: 1, paddedOctets: 1440 }
  for (const [name, look, expected] of [
    ['nothing', lookAfter(LOOK, 400, 0, 0), 'asleep'],
    ['a SYN', lookAfter(LOOK, 400, 0, 96), 'traffic'],
    ['a question, a padded one and an answer', lookAfter(LOOK, 400, 96 + 1472, 96, asks), 'asleep'],
    ['the same, and a SYN', lookAfter(LOOK, 400, 96 + 1472, 96 + 96, asks), 'traffic'],
    ['the device has no such link', undefined, 'gone'],
    ['a link that was created again', lookAfter(LOOK, 400, -5000, -7000), 'gone'],
    ['one that was asked for before it fell asleep', lookAfter(LOOK, -400, -96, -96), 'asleep'],
    ['no keepalive for long', lookAfter(LOOK, SILENCE_MS, 0, 32), 'silence'],
    ['a keepalive at last', lookAfter(LOOK, SILENCE_MS, 32, 32), 'asleep'],
  ] as const) {
    const next = afterLook(link, look)
    t.equal(typeof next === 'string' ? next : 'asleep', expected, name)
  }
  const heard = afterLook(link, lookAfter(LOOK, 60_000, 32, 0)) as AsleepLink
  t.equal(typeof afterLook(heard, lookAfter(heard.seen, SILENCE_MS - 11, 0, 0)), 'object', 'silence begins again')
  t.equal(afterLook(heard, lookAfter(heard.seen, SILENCE_MS, 0, 0)), 'silence')
})

interface Interval {
  /** What WireGuard itself sends. */
  readonly keepalive: { readonly rx: boolean; readonly tx: boolean }
  /** Probes of the far end. */
  readonly questions: number
  /** Octets of packets with content. */
  readonly rx: readonly number[]
  readonly tx: readonly number[]
}

const interval: fc.Arbitrary<Interval> = fc.record({
  keepalive: fc.record({ rx: fc.boolean(), tx: fc.boolean() }),
  questions: fc.nat(3),
  rx: fc.array(fc.integer({ min: 20, max: 1440 }), { maxLength: 3 }),
  tx: fc.array(fc.integer({ min: 20, max: 1440 }), { maxLength: 3 }),
})
const counted = (octets: number): number => Math.min(1440, Math.ceil(octets / 16) * 16) + 32
const sum = (values: readonly number[]): number => values.reduce((all, one) => all + one, 0)

/** Looks at these intervals in turn. `call`: the interval in which the session is renewed, by this end or the other. */
function looksUntilAwake(
  intervals: readonly Interval[],
  call: { readonly at: number; readonly byUs: boolean },
): number | undefined {
  let link = asleepFrom(LOOK)
  for (const [i, { keepalive, questions, rx, tx }] of intervals.entries()) {
    const [out, back] = call.at === i ? [148 + 32, 92] : [0, 0]
    const [own, far] = call.byUs ? [out, back] : [back, out]
    const { least } = link.seen
    const probes = { ...least, received: least.received + questions, sent: least.sent + questions }
    const rxBytes = far + (keepalive.rx ? 32 : 0) + questions * 96 + sum(rx.map(counted))
    const txBytes = own + (keepalive.tx ? 32 : 0) + questions * 96 + sum(tx.map(counted))
    const next = afterLook(link, lookAfter(link.seen, SLEEP_LOOK_MS, rxBytes, txBytes, probes))
    if (typeof next === 'string') return i + 1
    link = next
  }
  return undefined
}

const calls = fc.record({ at: fc.nat(40), byUs: fc.boolean() })

t.test('a link with packets sleeps for two looks at most, one without sleeps on', async () => {
  fc.assert(
    fc.property(fc.array(interval, { minLength: 3, maxLength: 40 }), calls, (all, call) => {
      const carrying = all.map((one) => (one.rx.length + one.tx.length > 0 ? one : { ...one, tx: [20] }))
      return (looksUntilAwake(carrying, call) ?? Infinity) <= 2
    }),
  )
  fc.assert(
    fc.property(fc.array(interval, { maxLength: 40 }), calls, (all, call) => {
      // A keepalive that crosses the call of the other end is one more than expected, and wakes the link for nothing.
      const idle = all.map((one, i) => {
        const quiet = { ...one, rx: [], tx: [] }
        return i === call.at ? { ...quiet, keepalive: { rx: false, tx: false } } : quiet
      })
      return looksUntilAwake(idle, call) === undefined
    }),
  )
})
