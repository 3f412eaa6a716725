/** Two ends guess the port of a symmetric NAT, in time, and send nothing to a victim that relays or far ends name. */
import { createHash } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import {
  ATTEMPT_MS,
  BATCH_MS,
  Batches,
  GUESSES,
  GuessBudget,
  HOLES,
  NAT_PORTS,
  OWN_PORTS,
  type PortRole,
  type Random,
  TRIES_APART_MS,
  portRole,
  portsAtRandom,
} from '../../../../gateway/reach/relay/plan-port-tries.ts'
import { type LanePacket, PortTries, type TriedLink } from '../../../../gateway/reach/relay/port-tries.ts'
import { encodeProbe, namedProbe, probeKey } from '../../../../gateway/reach/relay/punch-frame.ts'
import { ProbeBudget, Punch, TRY_MS } from '../../../../gateway/reach/relay/punch.ts'
import type { OpenProbeSocket, ProbeSocketEvents } from '../../../../kernel/probing/probe-socket.ts'
import {
  type AddressPort,
  formatAddress,
  formatAddressPort,
  parseAddress,
  parseAddressPort,
} from '../../../../model/addresses/addresses.ts'
import { FakeNat, MAPPING_OF, type NatKind, PORT, SYMMETRIC } from '../../support/fake-nat.ts'

t.test('the end that opens, and the one that guesses', (t) => {
  const [alike, each, unknown] = ['endpointIndependent', 'addressDependent', 'unknown'] as const
  const roles: readonly (readonly [Parameters<typeof portRole>[0]['own'], typeof alike, PortRole | undefined])[] = [
    [each, alike, 'opens'],
    [alike, alike, undefined],
    [unknown, alike, undefined],
  ]
  for (const [own, far, role] of roles) t.equal(portRole({ own, far }), role, `${own}, ${far}`)
  t.equal(portRole({ own: alike, far: each }), 'guesses')
  t.equal(portRole({ own: each, far: each }), undefined)
  t.equal(portRole({ own: unknown, far: each }), undefined)
  t.end()
})

/** The same numbers for the same seed. */
function seeded(seed: number): Random {
  let count = 0
  return (below) => {
    const hash = createHash('sha256').update(`${seed} ${count++}`).digest()
    return hash.readUIntBE(0, 6) % below
  }
}

t.test('each port is drawn once', (t) => {
  fc.assert(
    fc.property(fc.nat(65_000), fc.integer({ min: 1, max: 300 }), fc.nat(), (first, count, seed) => {
      const drawn = [...portsAtRandom({ first, last: first + count - 1 }, seeded(seed))]
      return new Set(drawn).size === count && drawn.length === count && Math.min(...drawn) === first
    }),
  )
  t.ok(OWN_PORTS.last - OWN_PORTS.first > 2 * HOLES)
  t.equal(NAT_PORTS.last - NAT_PORTS.first + 1, 64_512)
  t.end()
})

t.test('at most 100 packets in a second, however late or often it is looked at', (t) => {
  fc.assert(
    fc.property(fc.nat(5000), fc.array(fc.nat(700), { maxLength: 200 }), (count, pauses) => {
      const batches = new Batches(count, 0)
      const sent: { readonly atMs: number; readonly many: number }[] = []
      let nowMs = 0
      for (const pause of pauses) {
        sent.push({ atMs: nowMs, many: batches.next(nowMs) })
        nowMs += pause
      }
      const sum = (from: readonly { readonly many: number }[]): number => from.reduce((all, { many }) => all + many, 0)
      const worst = sent.map(({ atMs }) => sum(sent.filter((one) => one.atMs >= atMs && one.atMs < atMs + 1000)))
      return Math.max(0, ...worst) <= 100 && sum(sent) <= count
    }),
  )
  t.end()
})

t.test('an address gets so many guesses in ten minutes, from all links', (t) => {
  const step = fc.record({ pauseMs: fc.nat(200_000), count: fc.nat(3000) })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const [budget, at] = [new GuessBudget(), parseAddress('192.0.2.1')]
      let [nowMs, sinceMs, sum] = [0, -Infinity, 0]
      return steps.every(({ pauseMs, count }) => {
        nowMs += pauseMs
        if (nowMs - sinceMs >= TRIES_APART_MS) [sinceMs, sum] = [Infinity, 0]
        const taken = budget.take(at, count, nowMs)
        if (taken > 0) [sinceMs, sum] = [Math.min(sinceMs, nowMs), sum + taken]
        return taken <= count && sum <= GUESSES
      })
    }),
  )
  const [budget, at] = [new GuessBudget(), parseAddress('192.0.2.1')]
  t.equal(budget.take(at, GUESSES + 1, 0), GUESSES)
  t.equal(budget.left(at, TRIES_APART_MS - 1), 0)
  t.equal(budget.left(at, TRIES_APART_MS), GUESSES)
  budget.answered(at)
  t.equal(budget.left(at, 1), GUESSES, 'after an answer')
  for (let i = 0; i < 256; i += 1) budget.take(parseAddress(`198.51.100.${i}`), 1, 0)
  t.equal(budget.take(at, 1, 0), 0, 'of not too many addresses')
  t.end()
})

const KEY = probeKey({ secret: Buffer.alloc(32, 7), clusterset: 'alps', identities: ['paris', 'roma'] })
const [PARIS, ROMA] = ['11'.repeat(8), '22'.repeat(8)]
const RELAY = '203.0.113.9:4601'
const VICTIM = '192.0.2.66'
const DEVICE = 4500
const STEP_MS = 50

class End {
  readonly tries: PortTries
  readonly punch: Punch
  readonly nat: FakeNat
  readonly seen: AddressPort
  readonly sockets = new Map<number, ProbeSocketEvents>()
  /** Packets by destination address. */
  readonly sent = new Map<string, number>()
  /** The table of the node. */
  others: ReturnType<PortTries['others']> = []
  role: PortRole | undefined
  seenFar: AddressPort
  readonly #pair: Pair
  readonly #ids: readonly [string, string]

  constructor(pair: Pair, kind: NatKind, address: string, [own, far]: readonly [string, string]) {
    this.#pair = pair
    this.#ids = [own, far]
    this.nat = new FakeNat(kind, address)
    this.seen = parseAddressPort(this.nat.out(RELAY, DEVICE))
    this.seenFar = this.seen
    this.punch = new Punch({ own, far, key: KEY, budget: new ProbeBudget(), mayProbe: () => true })
    const openSocket: OpenProbeSocket = (_, port, events) => {
      this.sockets.set(port, events)
      queueMicrotask(() => events.onReady())
      const send = (bytes: Buffer, to: string, toPort: number): void => this.send(bytes, `${to}:${toPort}`, port)
      return { send, probeTcp: () => () => undefined, close: () => void this.sockets.delete(port) }
    }
    this.tries = new PortTries({
      ...{ openSocket, random: pair.random, mayProbe: () => true, onDue: () => undefined },
      now: () => ({ nowMs: pair.nowMs, wallMs: pair.nowMs }),
    })
  }

  get link(): TriedLink {
    const [from, to] = this.#ids
    const ways = [{ at: parseAddressPort(RELAY), seen: this.seen, far: this.seenFar }]
    return { ...{ name: to, remoteLane: 0, from, to, key: KEY, punch: this.punch, role: this.role, ways } }
  }

  /** A packet of the socket of the device. */
  send(bytes: Buffer, to: string, inner = DEVICE): void {
    const [address = ''] = to.split(':')
    this.sent.set(address, (this.sent.get(address) ?? 0) + 1)
    const other = this.others.find((one) => formatAddressPort(one.to) === to && inner === one.device)
    this.#pair.carry(this, bytes, { to, inner: other?.port ?? inner })
  }

  sendAll(packets: readonly Omit<LanePacket, 'remoteLane'>[]): void {
    for (const { bytes, to } of packets) this.send(bytes, formatAddressPort(to))
  }

  take(bytes: Buffer, from: string, inner: number): void {
    const at = parseAddressPort(from)
    const other = this.others.find((one) => formatAddressPort(one.to) === from && inner === one.port)
    if (inner !== DEVICE && other === undefined) {
      const [address = '', port] = from.split(':')
      this.sockets.get(inner)?.onMessage(bytes, { address, port: Number(port) })
      return
    }
    const now = { nowMs: this.#pair.nowMs, wallMs: this.#pair.nowMs }
    if (namedProbe(bytes)?.isRelayed === true) this.sendAll(this.tries.take(this.link, bytes, at))
    else {
      const { packets } = this.punch.take(bytes, at, now)
      this.sendAll(packets)
      if (packets.length > 0) this.tries.heard(this.link.name, at)
    }
  }

  round(): void {
    this.others = this.tries.others(() => DEVICE)
    this.tries.applied(this.others)
    this.sendAll(this.tries.look([this.link], []))
    this.sendAll(this.punch.next(this.#pair.nowMs, this.#pair.nowMs))
  }
}

/** Paris takes known ports, Roma is symmetric. A relay sees both. */
class Pair {
  nowMs = 5000
  readonly random: Random
  readonly paris: End
  readonly roma: End
  /** What the relay forwarded. */
  readonly relayed: { readonly to: End; readonly bytes: Buffer }[] = []
  isLost = (): boolean => false
  /** Whether the relay forwards it. */
  forwards = (_: End): boolean => true
  readonly #inner = new Map<string, number>()

  constructor(seed: number) {
    this.random = seeded(seed)
    this.paris = new End(this, PORT, '198.51.100.1', [PARIS, ROMA])
    this.roma = new End(this, SYMMETRIC, '192.0.2.1', [ROMA, PARIS])
    const [paris, roma] = [MAPPING_OF[PORT.maps], MAPPING_OF[SYMMETRIC.maps]]
    for (const [end, far, own, farMapping] of [
      [this.paris, this.roma, paris, roma],
      [this.roma, this.paris, roma, paris],
    ] as const) {
      end.role = portRole({ own, far: farMapping })
      end.seenFar = far.seen
      end.punch.know({ places: [far.seen], own, far: farMapping, sharedSinceMs: this.nowMs })
    }
  }

  carry(end: End, bytes: Buffer, { to, inner }: { readonly to: string; readonly inner: number }): void {
    const far = end === this.paris ? this.roma : this.paris
    if (this.isLost()) return
    if (to === RELAY) {
      if (namedProbe(bytes)?.isRelayed !== true || !this.forwards(end)) return
      this.relayed.push({ to: far, bytes })
      far.take(bytes, RELAY, DEVICE)
      return
    }
    const from = end.nat.out(to, inner)
    this.#inner.set(from, inner)
    if (far.nat.lets(from, to)) far.take(bytes, from, this.#inner.get(to) ?? DEVICE)
  }

  async run(ms: number, isOver = (): boolean => false): Promise<number> {
    const startMs = this.nowMs
    for (; this.nowMs < startMs + ms && !isOver(); this.nowMs += STEP_MS) {
      for (const end of [this.paris, this.roma]) end.round()
      await Promise.resolve()
    }
    return this.nowMs - startMs
  }

  get isFound(): boolean {
    return this.paris.punch.place !== undefined && this.roma.punch.place !== undefined
  }

  /** How many packets the end has sent to this address. */
  sent(end: End, address: string): number {
    return end.sent.get(address) ?? 0
  }
}

t.test('the port is found soon, at the first attempt', async (t) => {
  const counts: number[] = []
  for (let seed = 1; seed <= 20; seed += 1) {
    const pair = new Pair(seed)
    const ms = await pair.run(ATTEMPT_MS + 3 * TRY_MS, () => pair.isFound)
    t.ok(pair.isFound, `found after ${ms} ms, seed ${seed}`)
    counts.push(pair.sent(pair.paris, '192.0.2.1'))
    t.ok(pair.sent(pair.roma, '198.51.100.1') <= HOLES + 25, 'a packet for each hole, and probes')
    // One of the guesses may have been the port that the device has itself.
    t.equal(pair.roma.sockets.size, pair.roma.others.length, 'the hole stays whose port the device has')
    t.ok(pair.roma.others.length <= 1)
    t.match(pair.roma.punch.place, pair.paris.seen ?? {})
  }
  t.ok(counts.filter((count) => count <= 1024).length >= 18, counts.join(' '))
})

t.test('a quarter of all packets is lost', async (t) => {
  let found = 0
  for (let seed = 1; seed <= 20; seed += 1) {
    const pair = new Pair(seed)
    const random = seeded(seed + 1000)
    pair.isLost = () => random(4) === 0
    await pair.run(ATTEMPT_MS + 3 * TRY_MS, () => pair.isFound)
    if (pair.isFound) found += 1
  }
  t.ok(found >= 17, `${found} of 20`)
})

t.test('the place is lost: the device has its own port at once, and later another attempt is made', async (t) => {
  const pair = new Pair(3)
  await pair.run(60_000, () => pair.isFound)
  await pair.run(1000)
  pair.roma.nat.restart()
  for (const { punch } of [pair.paris, pair.roma]) punch.lost(pair.nowMs)
  await pair.run(2 * STEP_MS)
  t.equal(pair.roma.others.length, 0)
  t.equal(pair.roma.sockets.size, 0)
  t.notOk(pair.isFound)
  await pair.run(180_000, () => pair.isFound)
  t.ok(pair.isFound, 'found again')
})

t.test('an attempt that finds nothing', async (t) => {
  const pair = new Pair(1)
  // Nothing passes but what goes through the relay.
  pair.roma.nat.lets = () => false
  pair.paris.nat.lets = () => false
  await pair.run(60_000)
  t.equal(pair.roma.sockets.size, 0, 'the holes are closed')
  const [guessed, opened] = [pair.sent(pair.paris, '192.0.2.1'), pair.sent(pair.roma, '198.51.100.1')]
  t.ok(guessed >= GUESSES && guessed <= GUESSES + 10, `${guessed} guesses`)
  t.ok(opened >= HOLES && opened <= HOLES + 10, `${opened} holes`)
  await pair.run(TRIES_APART_MS - 70_000)
  t.ok(pair.sent(pair.paris, '192.0.2.1') <= guessed + 20, 'none but probes for ten minutes')
  await pair.run(60_000)
  t.ok(pair.sent(pair.paris, '192.0.2.1') > guessed + 1000, 'then again')
})

t.test('who names a victim', async (t) => {
  const victim = { address: parseAddress(VICTIM), port: 5000 }
  const packetsTo = async (act: (pair: Pair) => void): Promise<number> => {
    const pair = new Pair(5)
    act(pair)
    await pair.run(120_000)
    return pair.sent(pair.paris, VICTIM) + pair.sent(pair.roma, VICTIM)
  }
  t.equal(await packetsTo((pair) => (pair.paris.seenFar = victim)), 0, 'a relay, to the end that guesses')
  t.equal(await packetsTo((pair) => (pair.roma.seenFar = victim)), 0, 'a relay, to the end that opens')
  const roma = await packetsTo((pair) => Object.defineProperty(pair.roma, 'seen', { value: victim }))
  t.equal(roma, 0, 'a far end that says it is there')

  const pair = new Pair(5)
  pair.forwards = (end) => end === pair.roma
  const counter = 10_000
  for (let i = 0; i < 50; i += 1) {
    const bytes = encodeProbe(
      { type: 'request', from: ROMA, to: PARIS, counter: counter + i, place: pair.roma.seen },
      KEY,
    )
    pair.paris.take(bytes, RELAY, DEVICE)
    pair.paris.take(bytes, RELAY, DEVICE)
    await pair.run(BATCH_MS)
  }
  t.ok(
    pair.sent(pair.paris, '192.0.2.1') <= 10,
    'requests without a reply to one of this end, as a relay may repeat them',
  )
  t.ok(pair.sent(pair.paris, '203.0.113.9') <= 2 * 50, 'no more answers than requests')
})

t.test('what is not a message of the far end that came through a relay is left alone', async (t) => {
  const pair = new Pair(5)
  const { paris } = pair
  await pair.run(STEP_MS)
  const message = { type: 'request', from: ROMA, to: PARIS, counter: 10_000, place: pair.roma.seen } as const
  const take = (bytes: Buffer, from = RELAY): number =>
    paris.tries.take(paris.link, bytes, parseAddressPort(from)).length
  t.equal(take(encodeProbe(message, Buffer.alloc(32))), 0, 'another key')
  t.equal(take(encodeProbe({ ...message, from: PARIS, to: ROMA }, KEY)), 0, 'its own request')
  t.equal(take(encodeProbe({ ...message, type: 'probe' }, KEY)), 0, 'a probe')
  t.equal(take(encodeProbe(message, KEY), '203.0.113.9:4602'), 0, 'from elsewhere')
  t.equal(take(encodeProbe(message, KEY).subarray(1)), 0, 'too short')
  t.equal(take(encodeProbe(message, KEY)), 2, 'a reply, and a request of its own')
  t.equal(take(encodeProbe(message, KEY)), 0, 'a second time')
  t.equal(formatAddress(pair.roma.seen.address), '192.0.2.1')
})
