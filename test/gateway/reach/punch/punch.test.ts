/** Two ends behind NATs find a place to call each other, or do not, and send no more than they may. */
import fc from 'fast-check'
import t from 'tap'
import type { NatMapping } from '../../../../gateway/reach/frames/bind-frame.ts'
import { PROBE_BYTES, decodeProbe, encodeProbe, probeKey } from '../../../../gateway/reach/frames/punch-frame.ts'
import {
  FIRST_TRY_MS,
  LONGEST_TRY_PAUSE_MS,
  PROBES_TO_ADDRESS,
  ProbeBudget,
  Punch,
  ReplayWindow,
  TRY_MS,
  observedMapping,
  placesToTry,
  triesSince,
  tryTimes,
} from '../../../../gateway/reach/punch/punch.ts'
import { type AddressPort, formatAddressPort, parseAddressPort } from '../../../../model/addresses/addresses.ts'
import { ADDRESS, FakeNat, MAPPING_OF, type NatKind, OPEN, PORT, SYMMETRIC } from '../../support/fake-nat.ts'

const KEY = probeKey({ secret: Buffer.alloc(32, 7), clusterset: 'alps', identities: ['paris', 'oslo'] })
const [PARIS, OSLO] = ['11'.repeat(8), '22'.repeat(8)]
const RELAY = '203.0.113.9:4601'

interface End {
  readonly punch: Punch
  readonly nat: FakeNat
  readonly seen: AddressPort
  readonly mapping: NatMapping
}

class Pair {
  nowMs = 5000
  packets = 0
  /** A packet was answered by a longer one. */
  isAmplified = false
  readonly ends: readonly [End, End]
  readonly #isLost: () => boolean

  constructor([a, b]: readonly [NatKind, NatKind], { isLost = (): boolean => false, provesMs = 0 } = {}) {
    const end = (kind: NatKind, address: string, own: string, far: string): End => {
      const nat = new FakeNat(kind, address)
      const mapping = MAPPING_OF[kind.maps]
      const punch = new Punch({ own, far, key: KEY, budget: new ProbeBudget(), mayProbe: () => true, provesMs })
      return { punch, nat, mapping, seen: parseAddressPort(nat.out(RELAY)) }
    }
    this.ends = [end(a, '198.51.100.1', PARIS, OSLO), end(b, '192.0.2.1', OSLO, PARIS)]
    this.#isLost = isLost
    const sharedSinceMs = this.nowMs
    for (const [i, one] of this.ends.entries()) {
      const far = this.ends[i === 0 ? 1 : 0]
      one.punch.know({ places: [far.seen], own: one.mapping, far: far.mapping, sharedSinceMs })
    }
  }

  /** The second end is `lateMs` behind the first. */
  run(ms: number, lateMs = 0): void {
    for (const untilMs = this.nowMs + ms; this.nowMs < untilMs; this.nowMs += 50) {
      for (const [i, { punch }] of this.ends.entries())
        this.#send(i, punch.next(i === 1 ? this.nowMs - lateMs : this.nowMs, this.nowMs))
    }
  }

  #send(i: number, packets: readonly { readonly bytes: Buffer; readonly to: AddressPort }[]): void {
    const [end, far] = i === 0 ? this.ends : [this.ends[1], this.ends[0]]
    for (const { bytes, to } of packets) {
      this.packets += 1
      const text = formatAddressPort(to)
      const from = end.nat.out(text)
      if (this.#isLost() || !far.nat.lets(from, text)) continue
      const taken = far.punch.take(bytes, parseAddressPort(from), { nowMs: this.nowMs, wallMs: this.nowMs })
      this.isAmplified ||= taken.packets.some((one) => one.bytes.length > bytes.length)
      this.#send(1 - i, taken.packets)
    }
  }
}

t.test('which pairs of NATs find a place', async (t) => {
  const kinds = { OPEN, ADDRESS, PORT, SYMMETRIC }
  const fails = ['PORT SYMMETRIC', 'SYMMETRIC PORT', 'SYMMETRIC SYMMETRIC']
  for (const [nameA, a] of Object.entries(kinds)) {
    for (const [nameB, b] of Object.entries(kinds)) {
      for (const lateMs of [0, 1000]) {
        const pair = new Pair([a, b])
        pair.run(9000, lateMs)
        const isFound = pair.ends.some(({ punch }) => punch.place !== undefined)
        t.notOk(pair.isAmplified)
        t.equal(isFound, !fails.includes(`${nameA} ${nameB}`), `${nameA} ${nameB}, ${lateMs} ms apart`)
      }
    }
  }
  const hopeless = new Pair([SYMMETRIC, SYMMETRIC])
  hopeless.run(120_000)
  t.equal(hopeless.packets, 0, 'not tried at all')
})

t.test('two symmetric NATs, of which one has a router that leads calls inside', async (t) => {
  const pair = new Pair([SYMMETRIC, SYMMETRIC])
  pair.run(30_000)
  t.equal(pair.packets, 0, 'not tried before')
  const [a, b] = pair.ends
  const [sharedSinceMs, far] = [pair.nowMs - 30_000, 'addressDependent'] as const
  const mapped = parseAddressPort('198.51.100.1:4500')
  a.nat.leads(mapped.port)
  b.punch.know({ places: [mapped, a.seen], own: far, far, sharedSinceMs, isMapped: true })
  a.punch.know({ places: [b.seen], own: far, far, sharedSinceMs, isMapped: true })
  pair.run(1500)
  t.match(b.punch.place, mapped, 'found at once, not at the next time of the schedule')
  t.ok(a.punch.place, 'by both ends')

  const alone = new Pair([SYMMETRIC, SYMMETRIC])
  const [end] = alone.ends
  end.punch.know({ places: [mapped], own: far, far, sharedSinceMs: undefined, isMapped: true })
  t.equal(end.punch.dueMs(alone.nowMs), Infinity, 'nothing is due while the ends share no relay')
})

t.test('a place that has to answer for longer', async (t) => {
  const pair = new Pair([PORT, PORT], { provesMs: 5000 })
  const isFound = (): boolean => pair.ends.some(({ punch }) => punch.place !== undefined)
  pair.run(FIRST_TRY_MS + 4900)
  t.notOk(isFound())
  pair.run(2000)
  t.ok(isFound())
  t.ok(pair.packets < 60, `${pair.packets} packets`)
  let isClosed = false
  const lost = new Pair([PORT, PORT], { provesMs: 5000, isLost: () => isClosed })
  lost.run(FIRST_TRY_MS + 2000)
  isClosed = true
  lost.run(10_000)
  t.ok(
    lost.ends.every(({ punch }) => punch.place === undefined && punch.hasFailed),
    'one that answers no longer is not proven',
  )
})

t.test('lost packets', async (t) => {
  let state = 7
  const isLost = (): boolean => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    return (state >>> 16) % 10 < 2
  }
  let found = 0
  for (let i = 0; i < 50; i++) {
    const pair = new Pair([PORT, PORT], { isLost })
    pair.run(9000)
    if (pair.ends.some(({ punch }) => punch.place !== undefined)) found += 1
  }
  t.ok(found >= 45, `${found} of 50 at the first try with a fifth lost`)
})

t.test('times of tries are the same for both ends', async (t) => {
  t.strictSame(tryTimes(FIRST_TRY_MS - 1), { lastMs: undefined, nextMs: FIRST_TRY_MS })
  t.strictSame(tryTimes(FIRST_TRY_MS), { lastMs: FIRST_TRY_MS, nextMs: 61_000 })
  t.strictSame(tryTimes(420_999), { lastMs: 181_000, nextMs: 421_000 })
  fc.assert(
    fc.property(fc.integer({ min: FIRST_TRY_MS, max: 0xffffffff }), (ms) => {
      const { lastMs = Infinity, nextMs } = tryTimes(ms)
      t.ok(lastMs <= ms && ms < nextMs && nextMs - lastMs <= LONGEST_TRY_PAUSE_MS)
    }),
    { numRuns: 20 },
  )
})

t.test('ends that count from different times try together after an hour', async () => {
  const ms = fc.integer({ min: 2 * LONGEST_TRY_PAUSE_MS + 100_000, max: 1e9 })
  const clock = fc.integer({ min: 0, max: 1e9 })
  fc.assert(
    fc.property(ms, ms, clock, clock, clock, (oneAge, otherAge, oneNowMs, otherNowMs, time) => {
      const wallMs = 1_800_000_000_000 + time
      const nextMs = (age: number, nowMs: number): number => {
        const triedMs = nowMs - triesSince(nowMs - age, nowMs, wallMs)
        return wallMs + tryTimes(triedMs).nextMs - triedMs
      }
      return nextMs(oneAge, oneNowMs) === nextMs(otherAge, otherNowMs)
    }),
  )
  // The first tries are not moved.
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 1_860_000 }), clock, (age, nowMs) => {
      return triesSince(nowMs - age, nowMs, 1_800_000_000_000) === nowMs - age
    }),
  )
})

t.test('a relay that lies makes an end send a third party ten packets, then ever fewer', async (t) => {
  const budget = new ProbeBudget()
  const punches = Array.from({ length: 20 }, () => {
    return new Punch({ own: PARIS, far: OSLO, key: KEY, budget, mayProbe: () => true })
  })
  const sent: number[] = []
  let port = 1024
  for (let nowMs = 0; nowMs < 3_600_000; nowMs += 500) {
    for (const punch of punches) {
      port = port >= 65_535 ? 1024 : port + 1
      const places = [parseAddressPort(`192.0.2.66:${port}`)]
      punch.know({ places, own: 'unknown', far: 'unknown', sharedSinceMs: nowMs - FIRST_TRY_MS })
      for (const _packet of punch.next(nowMs, nowMs)) sent.push(nowMs)
    }
  }
  t.equal(sent.filter((ms) => ms < 60_000).length, PROBES_TO_ADDRESS)
  t.ok(sent.length <= 7 * PROBES_TO_ADDRESS, `${sent.length} in an hour`)
  const refusing = new Punch({ own: PARIS, far: OSLO, key: KEY, budget: new ProbeBudget(), mayProbe: () => false })
  refusing.know({ places: [parseAddressPort('10.42.0.1:4500')], own: 'unknown', far: 'unknown', sharedSinceMs: 0 })
  t.strictSame(refusing.next(FIRST_TRY_MS, 0), [])
})

t.test('a place that is lost is tried again after a pause', async (t) => {
  const pair = new Pair([PORT, PORT])
  pair.run(9000)
  const [{ punch }] = pair.ends
  t.ok(punch.place)
  t.equal(punch.dueMs(pair.nowMs), Infinity)
  punch.lost(pair.nowMs)
  t.equal(punch.place, undefined)
  const dueMs = punch.dueMs(pair.nowMs) - pair.nowMs
  t.ok(dueMs > 20_000 && dueMs <= 60_000, `${dueMs} ms`)
  pair.run(dueMs + TRY_MS)
  t.ok(punch.place, 'and found again')
})

t.test('messages that prove nothing', async (t) => {
  const at = parseAddressPort('192.0.2.1:20000')
  const [own, far] = [PARIS, OSLO]
  const now = { nowMs: 100, wallMs: 100 }
  const punch = new Punch({ own, far, key: KEY, budget: new ProbeBudget(), mayProbe: () => true })
  const probe = { type: 'probe', from: far, to: own, counter: 5000, place: at } as const
  t.equal(punch.take(encodeProbe(probe, KEY), at, now).packets[0]?.bytes.length, PROBE_BYTES)
  t.strictSame(punch.take(encodeProbe(probe, KEY), at, now).packets, [], 'the same again')
  t.strictSame(punch.take(encodeProbe({ ...probe, counter: 1000 }, KEY), at, now).packets, [], 'an old one')
  const mirrored = { ...probe, counter: 6000, from: own, to: far }
  t.strictSame(punch.take(encodeProbe(mirrored, KEY), at, now).packets, [], 'one of its own')
  t.strictSame(punch.take(encodeProbe({ ...probe, counter: 6000 }, Buffer.alloc(32)), at, now).packets, [], 'no key')
  const answers = Array.from({ length: 40 }, (_, i) => {
    const taken = punch.take(
      encodeProbe({ ...probe, counter: 7000 + i }, KEY),
      parseAddressPort(`192.0.2.66:${i + 1}`),
      now,
    )
    return taken.packets.filter(({ bytes }) => decodeProbe(bytes, KEY)?.type === 'answer').length
  })
  t.equal(answers.filter((count) => count === 1).length, PROBES_TO_ADDRESS, 'probes with a source that does not answer')
  const refusing = new Punch({ own, far, key: KEY, budget: new ProbeBudget(), mayProbe: () => false })
  t.strictSame(refusing.take(encodeProbe(probe, KEY), at, now).packets, [], 'from a place that may not be probed')
  for (let counter = 90; counter < 120; counter++)
    punch.take(encodeProbe({ ...mirrored, type: 'answer', counter }, KEY), parseAddressPort('192.0.2.7:1'), now)
  t.equal(punch.place, undefined, 'answers from elsewhere')
})

t.test('octets', async (t) => {
  const one = { type: 'answer', from: PARIS, to: OSLO, counter: 7, place: parseAddressPort('192.0.2.1:20000') } as const
  const bytes = encodeProbe(one, KEY)
  t.strictSame(decodeProbe(bytes, KEY), one)
  for (let i = 0; i < bytes.length; i++) {
    const changed = Buffer.from(bytes)
    changed.writeUInt8(changed.readUInt8(i) ^ 1, i)
    t.equal(decodeProbe(changed, KEY), undefined)
  }
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 100 }), (octets) => {
      t.equal(decodeProbe(Buffer.from(octets), KEY), undefined)
    }),
  )
  const window = new ReplayWindow()
  t.strictSame(
    [5, 3, 5, 3, 9000, 4, 8999].map((counter) => window.accept(counter)),
    [...[true, true, false, false, true, false, true]],
  )
})

t.test('of what kind a NAT is', async (t) => {
  const see = (lane: number, relay: string, seen: string) => {
    return { lane, relay: parseAddressPort(relay).address, seen: parseAddressPort(seen) }
  }
  const [one, two] = ['203.0.113.1:1', '203.0.113.2:1']
  const cases: readonly (readonly [NatMapping, ReturnType<typeof see>[]])[] = [
    ['unknown', []],
    ['unknown', [see(0, one, '198.51.100.1:1')]],
    ['unknown', [see(0, one, '198.51.100.1:1'), see(0, one, '198.51.100.1:2')]],
    ['unknown', [see(0, one, '198.51.100.1:1'), see(1, two, '198.51.100.1:2')]],
    ['endpointIndependent', [see(0, one, '198.51.100.1:1'), see(0, two, '198.51.100.1:1')]],
    ['addressDependent', [see(0, one, '198.51.100.1:1'), see(0, two, '198.51.100.1:2')]],
    ['addressDependent', [see(0, one, '198.51.100.1:1'), see(0, two, '198.51.100.2:1')]],
  ]
  for (const [want, observations] of cases) t.equal(observedMapping(observations), want)
})

t.test('a mapping that passes nothing leaves probes for what a relay sees', async (t) => {
  const [led, private_, kept, seen] = ['192.0.2.9:51000', '10.0.0.2:4500', '192.0.2.9:4500', '192.0.2.9:20000'].map(
    (text) => parseAddressPort(text),
  )
  if (led === undefined || private_ === undefined || kept === undefined || seen === undefined) throw new Error('places')
  const tried = (place: AddressPort | undefined): string[] =>
    placesToTry({ led: place, seen: [seen], stated: [private_, led, kept] }).map(formatAddressPort)
  t.strictSame(tried(undefined), [seen, private_, led, kept].map(formatAddressPort))
  t.strictSame(tried(led), [led, seen, private_, kept].map(formatAddressPort))
})
