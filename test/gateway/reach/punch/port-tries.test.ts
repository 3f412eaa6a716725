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
  LONGEST_TRIES_APART_MS,
  NAT_PORTS,
  OWN_PORTS,
  PortGuesses,
  type PortRole,
  REST_MS,
  type Random,
  TRIES_APART_MS,
  attemptsApartMs,
  portRole,
  portsAtRandom,
} from '../../../../gateway/reach/punch/plan-port-tries.ts'
import { type LanePacket, PortTries, type TriedLink } from '../../../../gateway/reach/punch/port-tries.ts'
import { decodeProbe, encodeProbe, namedProbe, probeKey } from '../../../../gateway/reach/frames/punch-frame.ts'
import { PROBES_TO_ADDRESS, ProbeBudget, Punch, TRY_MS } from '../../../../gateway/reach/punch/punch.ts'
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
  readonly budget = new ProbeBudget()
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
    this.punch = new Punch({ own, far, key: KEY, budget: this.budget, mayProbe: () => true })
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
    if (namedProbe(bytes)?.isRelayed === true) this.sendAll(this.tries.take(this.link.name, bytes, at))
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

t.test('the port is found although earlier tries have spent the packets of both addresses', async (t) => {
  const pair = new Pair(1)
  await pair.run(TRY_MS)
  for (const [end, far] of [
    [pair.paris, pair.roma],
    [pair.roma, pair.paris],
  ] as const) {
    for (let i = 0; i < PROBES_TO_ADDRESS; i += 1) end.budget.take(far.seen, pair.nowMs)
  }
  await pair.run(ATTEMPT_MS + 3 * TRY_MS, () => pair.isFound)
  t.ok(pair.isFound)
})

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
    t.match(pair.roma.punch.place, pair.paris.seen)
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
    paris.tries.take(paris.link.name, bytes, parseAddressPort(from)).length
  t.equal(take(encodeProbe(message, Buffer.alloc(32))), 0, 'another key')
  t.equal(take(encodeProbe({ ...message, from: PARIS, to: ROMA }, KEY)), 0, 'its own request')
  t.equal(take(encodeProbe({ ...message, type: 'probe' }, KEY)), 0, 'a probe')
  t.equal(take(encodeProbe(message, KEY), '203.0.113.9:4602'), 0, 'from elsewhere')
  t.equal(take(encodeProbe(message, KEY).subarray(1)), 0, 'too short')
  t.equal(take(encodeProbe(message, KEY)), 2, 'a reply, and a request of its own')
  t.equal(take(encodeProbe(message, KEY)), 0, 'a second time')
  t.equal(formatAddress(pair.roma.seen.address), '192.0.2.1')
})

/** One end alone, with links of which a test makes the messages of the far ends. */
class Alone {
  nowMs = 5000
  readonly sockets = new Map<number, ProbeSocketEvents>()
  readonly sent: { readonly port: number; readonly to: string }[] = []
  readonly tries: PortTries
  mayProbe: (at: AddressPort) => boolean = () => true
  /** What the end itself has requested, by the name of the link. */
  readonly requests = new Map<string, { readonly counter: number; readonly at: AddressPort }>()
  links: readonly TriedLink[] = []
  used: Parameters<PortTries['look']>[1] = []

  constructor() {
    const openSocket: OpenProbeSocket = (_, port, events) => {
      this.sockets.set(port, events)
      queueMicrotask(() => this.sockets.has(port) && events.onReady())
      const send = (_bytes: Buffer, to: string, toPort: number): void =>
        void this.sent.push({ port, to: `${to}:${toPort}` })
      return { send, probeTcp: () => () => undefined, close: () => void this.sockets.delete(port) }
    }
    const now = (): { nowMs: number; wallMs: number } => ({ nowMs: this.nowMs, wallMs: this.nowMs })
    const mayProbe = (at: AddressPort): boolean => this.mayProbe(at)
    this.tries = new PortTries({ openSocket, random: seeded(9), mayProbe, now, onDue: () => undefined })
  }

  /** A link whose first try has failed. `far`: where the relays see its far end. */
  link(name: string, role: PortRole, far: readonly string[]): TriedLink {
    const [own, other] = role === 'opens' ? (['addressDependent', 'endpointIndependent'] as const) : SAME_FIRST
    const punch = new Punch({ own: ROMA, far: name, key: KEY, budget: new ProbeBudget(), mayProbe: () => true })
    const ways = far.map((place, i) => {
      const at = { ...parseAddressPort(RELAY), port: 4601 + i }
      return { at, seen: parseAddressPort('192.0.2.1:20000'), far: parseAddressPort(place) }
    })
    punch.know({ places: [], own, far: other, sharedSinceMs: this.nowMs - 2000 })
    punch.next(this.nowMs, this.nowMs)
    punch.next(this.nowMs + TRY_MS, this.nowMs + TRY_MS)
    return { ...{ name, remoteLane: 0, from: ROMA, to: name, key: KEY, punch, role, ways } }
  }

  round(): void {
    this.#note(this.tries.look(this.links, this.used))
    for (const { punch } of this.links) punch.next(this.nowMs, this.nowMs)
  }

  async run(ms: number): Promise<void> {
    for (const untilMs = this.nowMs + ms; this.nowMs < untilMs; this.nowMs += BATCH_MS) {
      this.round()
      await Promise.resolve()
    }
  }

  /** The far end replies to the last request by the way, and says that it is where the relay of that sees it. */
  reply({ name, from, to, ways }: TriedLink, i = 0): void {
    const [way, request] = [ways[i], this.requests.get(name)]
    if (way === undefined || request === undefined) return
    this.requests.delete(name)
    const { counter } = request
    this.tries.take(name, encodeProbe({ type: 'reply', from, to, counter, place: way.far }, KEY), way.at)
  }

  /** The far end requests. Returns whether this end replies. */
  request({ name, from, to, ways: [way] }: TriedLink): boolean {
    if (way === undefined) return false
    const message = { type: 'request', from: to, to: from, counter: this.nowMs, place: way.far } as const
    const packets = this.tries.take(name, encodeProbe(message, KEY), way.at)
    this.#note(packets)
    return packets.length > 0
  }

  /** A probe of the far end comes in at the newest of the holes. */
  guess({ from, to, ways: [way] }: TriedLink): void {
    const [port, events] = [...this.sockets].at(-1) ?? []
    if (way === undefined || port === undefined || events === undefined) return
    const message = { type: 'probe', from: to, to: from, counter: this.nowMs, place: way.far } as const
    events.onMessage(encodeProbe(message, KEY), { address: formatAddress(way.far.address), port: way.far.port })
  }

  #note(packets: readonly LanePacket[]): void {
    for (const { bytes, to } of packets) {
      const message = decodeProbe(bytes, KEY)
      const { name = '' } = this.links.find((link) => link.to === message?.to) ?? {}
      if (message?.type === 'request') this.requests.set(name, { counter: message.counter, at: to })
    }
  }
}

const SAME_FIRST = ['endpointIndependent', 'addressDependent'] as const
const FARS = [1, 2, 3].map((i) => `${i}${i}`.repeat(8))
const NATS = ['198.51.100.1:41000', '198.51.100.1:41001', '198.51.100.2:41000'] as const

t.test('the table never gets two ports of a device for one place', async (t) => {
  const alone = new Alone()
  const links = FARS.map((name) => alone.link(name, 'opens', [NATS[0]]))
  // The first port is one of an earlier run, and its link is not at the place any more.
  alone.tries.adopt(0, { port: 50_001, to: parseAddressPort(NATS[0]) })
  const keys = (): number => alone.tries.others(() => DEVICE).length
  alone.links = links
  alone.used = [{ remoteLane: 0, at: parseAddressPort(NATS[0]) }]
  await alone.run(2000)
  for (const link of links) alone.reply(link)
  await alone.run(2000)
  for (const link of links) alone.guess(link)
  t.equal(keys(), 1, 'the adopted one')
  alone.used = []
  await alone.run(2000)
  t.equal(keys(), 0)
  // Then three far ends are said to be at the place, and each gets through.
  for (let i = 0; i < 60; i += 1) {
    await alone.run(2000)
    for (const link of links) alone.reply(link)
    await alone.run(1000)
    for (const link of links) alone.guess(link)
    t.ok(keys() <= 1, `${keys()} ports`)
    alone.used = keys() === 0 ? [] : [{ remoteLane: 0, at: parseAddressPort(NATS[0]) }]
    alone.tries.applied(alone.tries.others(() => DEVICE))
  }
  t.equal(keys(), 1)
  alone.tries.close()
  t.equal(alone.sockets.size, 0)
})

t.test('a reply through another relay than the request names no place that may not be probed', async (t) => {
  const inside = '10.43.0.10:5353'
  for (const role of ['opens', 'guesses'] as const) {
    const alone = new Alone()
    alone.mayProbe = ({ address }) => formatAddress(address) !== '10.43.0.10'
    const link = alone.link(FARS[0] ?? '', role, [NATS[0], inside])
    alone.links = [link]
    await alone.run(BATCH_MS)
    if (role === 'guesses') t.ok(alone.request(link))
    alone.reply(link, 1)
    await alone.run(2000)
    t.strictSame([alone.sent, link.punch.state.is], [[], 'idle'], role)
  }
})

t.test('no guess goes where no probe may go', (t) => {
  const mayProbe = ({ port }: AddressPort): boolean => port % 2 === 0
  const punch = new Punch({ own: PARIS, far: ROMA, key: KEY, budget: new ProbeBudget(), mayProbe })
  const init = { address: parseAddress('192.0.2.1'), budget: new GuessBudget(), random: seeded(4), nowMs: 0 }
  punch.guess(new PortGuesses(init), 0)
  const ports: number[] = []
  for (let nowMs = 0; nowMs < ATTEMPT_MS; nowMs += BATCH_MS) {
    ports.push(...punch.next(nowMs, nowMs).map(({ to }) => to.port))
  }
  t.ok(ports.length > GUESSES / 3)
  t.strictSame(
    ports.filter((port) => port % 2 === 1),
    [],
  )
  t.end()
})

t.test('holes are closed in time, also if the rounds of the node fail', async (t) => {
  const alone = new Alone()
  const link = alone.link(FARS[0] ?? '', 'opens', [NATS[0]])
  alone.links = [link]
  await alone.run(BATCH_MS)
  alone.reply(link)
  await alone.run(4000)
  t.equal(alone.sockets.size, HOLES)
  alone.nowMs += ATTEMPT_MS
  alone.tries.expire()
  t.equal(alone.sockets.size, 0)
})

t.test('a table that is refused is tried without ports that are new', async (t) => {
  const alone = new Alone()
  const link = alone.link(FARS[0] ?? '', 'opens', [NATS[0]])
  alone.links = [link]
  const applied = { port: 50_001, to: parseAddressPort(NATS[2]) }
  alone.used = [{ remoteLane: 0, at: applied.to }]
  alone.tries.adopt(0, applied)
  await alone.run(BATCH_MS)
  alone.reply(link)
  await alone.run(1000)
  alone.guess(link)
  t.equal(alone.tries.others(() => DEVICE).length, 2)
  alone.tries.refused()
  t.strictSame(
    alone.tries.others(() => DEVICE),
    [{ ...applied, device: DEVICE }],
  )
  t.strictSame([...alone.sockets.keys()], [applied.port])
  await alone.run(TRIES_APART_MS - 10_000)
  t.strictSame([...alone.requests.keys()], [], 'it is not repeated soon')
})

t.test('attempts that find nothing: pauses grow, and the holes of all links to an address have a bound', async (t) => {
  t.strictSame([1, 2, 3, 4, 99].map(attemptsApartMs), [
    TRIES_APART_MS,
    2 * TRIES_APART_MS,
    4 * TRIES_APART_MS,
    ...[4, 99].map(() => LONGEST_TRIES_APART_MS),
  ])
  const alone = new Alone()
  const names = Array.from({ length: 20 }, (_, i) => (4096 + i).toString(16).repeat(4))
  // A member with many gateways, all of which say that they are at the address of a victim.
  alone.links = names.map((name, i) => alone.link(name, 'opens', [`${VICTIM}:${41_000 + i}`]))
  const step = async (): Promise<void> => {
    alone.round()
    await Promise.resolve()
    for (const link of alone.links) alone.reply(link)
    alone.nowMs += 1000
  }
  for (let i = 0; i < 590; i += 1) await step()
  const first = alone.sent.length
  t.ok(first > HOLES && first <= GUESSES, `${first} packets in ten minutes`)
  for (let i = 0; i < 3 * 3600; i += 1) await step()
  t.ok(alone.sent.length - first <= 20 * 5 * HOLES, `${alone.sent.length - first} packets in three hours`)
  t.equal(new Set(alone.sent.map(({ to }) => to)).size, 20, 'each link gets its turn')
})

t.test('of far ends that never reply, each has its turn', async (t) => {
  const alone = new Alone()
  const names = Array.from({ length: 20 }, (_, i) => (4096 + i).toString(16).repeat(4))
  alone.links = names.map((name, i) => alone.link(name, 'opens', [`198.51.100.${i}:41000`]))
  // As long as one that is asked again after a minute takes the turns of those after it.
  for (let i = 0; i < 200; i += 1) {
    alone.round()
    await Promise.resolve()
    alone.nowMs += 1000
  }
  t.equal(alone.requests.size, 20)
})

t.test('a far end that requests for ever and never replies leaves the end that guesses to others', async (t) => {
  const alone = new Alone()
  const [silent, honest] = FARS.map((name, i) => alone.link(name, 'guesses', [NATS[i] ?? NATS[0]]))
  if (silent === undefined || honest === undefined) throw new Error('links')
  alone.links = [silent, honest]
  let isGuessing = false
  for (let i = 0; i < 60 && !isGuessing; i += 1) {
    alone.request(silent)
    await alone.run(500)
    alone.request(silent)
    alone.request(honest)
    alone.reply(honest)
    const { state } = honest.punch
    isGuessing = state.is === 'trying' && state.guesses !== undefined
    await alone.run(500)
  }
  t.ok(isGuessing, 'the other link had its turn')
})

t.test('after guesses that found nothing the mappings of a small router are left to end', async (t) => {
  const alone = new Alone()
  const [one, two] = FARS.map((name, i) => alone.link(name, 'guesses', [i === 0 ? NATS[0] : NATS[2]]))
  if (one === undefined || two === undefined) throw new Error('links')
  alone.links = [one, two]
  await alone.run(BATCH_MS)
  t.ok(alone.request(one))
  alone.reply(one)
  await alone.run(ATTEMPT_MS + BATCH_MS)
  t.equal(one.punch.state.is, 'idle')
  t.notOk(alone.request(two))
  await alone.run(REST_MS - 1000)
  t.notOk(alone.request(two))
  await alone.run(2000)
  t.ok(alone.request(two))
})
