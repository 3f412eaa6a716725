/** For how long a NAT keeps a mapping, as a gateway measures it by relays that may lie. */
import t from 'tap'
import { keepaliveSeconds } from '../../../../gateway/cable/plan-keepalive.ts'
import { NO_COOKIE, decodeAnswer, endId } from '../../../../gateway/reach/frames/bind-frame.ts'
import { encodeHold, encodeHoldAnswer, namedHold } from '../../../../gateway/reach/frames/hold-frame.ts'
import {
  LIFE_APART_MS,
  LIFE_COUNTS_MS,
  LIFE_EVERY_MS,
  LIFE_JITTER,
  NatLife,
  WAITS_SECONDS,
  lifeOrder,
} from '../../../../gateway/reach/nat/nat-life.ts'
import type { MeasureFacts } from '../../../../gateway/reach/nat/measure-facts.ts'
import type { ProbeSocketEvents } from '../../../../kernel/probing/probe-socket.ts'
import { formatAddress, parseAddress, parseAddressPort } from '../../../../model/addresses/addresses.ts'
import { CLUSTERSET, CONTROL, RELAY_AT, RelayStage, type TestEnd } from '../../support/relay-stage.ts'

/** What a relay does with a question that it has accepted. */
type Lie = 'none' | 'early' | 'never' | 'twice' | 'packets between' | 'deaf' | 'answers from elsewhere' | 'challenges'

const WAY_MS = 20
const RELAY_TEXT = formatAddress(RELAY_AT.address)

/** A NAT keeps a mapping for longer once packets have passed after this time. */
const YOUNG_MS = 2000

/**
 * An end behind a NAT that forgets a mapping after `lifeMs` without packets, and relays, each of another member. The NAT
 * forgets after `youngLifeMs` if no packet has passed YOUNG_MS after the first one.
 */
class Network {
  lifeMs: number
  youngLifeMs: number | undefined
  /** By the relay, if the NAT has several addresses. */
  addressTo: ReadonlyMap<string, string> = new Map()
  readonly asked: string[] = []
  readonly lieOf: (relay: string) => Lie
  readonly loses: (count: number) => boolean
  readonly stage = new RelayStage()
  readonly end: TestEnd
  readonly life: NatLife
  changes = 0
  questions = 0
  readonly open = new Set<string>()
  address = '198.51.100.1'
  readonly #ports = new Map<string, { readonly events: ProbeSocketEvents; readonly firstMs: number; lastMs: number }>()
  /** The counter of the question whose late answer the relay still owes, by place. */
  readonly #owed = new Map<string, number>()
  #port = 40_000

  constructor(
    lifeMs: number,
    lieOf: (relay: string) => Lie = () => 'none',
    loses: (count: number) => boolean = () => false,
  ) {
    this.lifeMs = lifeMs
    this.lieOf = lieOf
    this.loses = loses
    this.end = this.stage.end('paris')
    const { clock } = this.stage
    const onChange = (): void => void (this.changes += 1)
    this.life = new NatLife({ clock, onChange, openSocket: (_address, _port, events) => this.#open(events) })
  }

  facts(relays: readonly string[] = [RELAY_TEXT]): MeasureFacts {
    const { identity, secret } = this.end
    return {
      own: { clusterset: CLUSTERSET, identity, agree: () => secret },
      // All of them have the identity of the one relay of the stage.
      relays: relays.map((text) => {
        return { cluster: `of ${text}`, identity: this.stage.keys.publicKey, address: parseAddress(text) }
      }),
      seen: [this.address],
      ownAddresses: new Set(['10.0.0.2']),
    }
  }

  /** Looks each second, as rounds of the gateway do, for so long. */
  async run(ms: number, relays?: readonly string[]): Promise<void> {
    const stepMs = ms > LIFE_APART_MS * 2 ? 30_000 : 1000
    for (let left = ms; left > 0; left -= stepMs) {
      this.life.look(this.facts(relays))
      await this.stage.clock.advance(Math.min(stepMs, left))
    }
  }

  #open(events: ProbeSocketEvents) {
    const outside = `${this.address}:${this.#port++}`
    const one = { events, firstMs: this.stage.clock.monotonic(), lastMs: -Infinity }
    this.#ports.set(outside, one)
    this.open.add(outside)
    events.onReady()
    return {
      send: (bytes: Buffer, to: string, port: number) => {
        this.questions += 1
        this.asked.push(to)
        one.lastMs = this.stage.clock.monotonic()
        if (port === CONTROL) this.#later(WAY_MS, () => this.#atRelay(bytes, outside, to))
      },
      probeTcp: () => () => undefined,
      close: () => void this.open.delete(outside),
    }
  }

  #atRelay(bytes: Buffer, outside: string, relay: string): void {
    const lie = this.lieOf(relay)
    if (lie === 'deaf') return
    const [address = '', port = ''] = outside.split(':')
    const { answer, outcome } = this.stage.send(bytes, `${this.addressTo.get(relay) ?? address}:${port}`)
    const from = lie === 'answers from elsewhere' ? '203.0.113.77' : relay
    if (answer !== undefined && !(lie === 'challenges' && outcome === 'held')) this.#back(answer, outside, from)
    if (outcome !== 'held') return
    const waitMs = bytes.readUInt32BE(48)
    const named = namedHold(bytes)
    const counter = Number(bytes.readBigUInt64BE(24))
    this.#owed.set(outside, counter)
    const late = encodeHoldAnswer(
      {
        ...{ type: 'late', from: named?.from ?? '', to: endId(CLUSTERSET, this.stage.keys.publicKey) },
        ...{ counter, waitMs, seen: parseAddressPort(outside) },
      },
      this.end.key,
    )
    if (lie === 'early') this.#later(500, () => this.#back(late, outside, from))
    if (lie === 'packets between')
      for (let atMs = 4000; atMs < waitMs; atMs += 4000)
        this.#later(atMs, () => this.#back(Buffer.from('x'), outside, from))
    const copies = lie === 'never' || lie === 'early' || lie === 'challenges' ? 0 : lie === 'twice' ? 2 : 1
    this.#later(waitMs, () => {
      this.stage.bindings.apply({ kind: 'late' })
      if (this.#owed.get(outside) !== counter) return
      for (let i = 0; i < copies; i++) this.#back(late, outside, from)
    })
  }

  #back(bytes: Buffer, outside: string, from: string): void {
    if (this.loses(this.questions)) return
    this.#later(WAY_MS, () => {
      const one = this.#ports.get(outside)
      const nowMs = this.stage.clock.monotonic()
      if (one === undefined || nowMs - one.lastMs > this.#lives(one)) return
      one.lastMs = nowMs
      if (this.open.has(outside)) one.events.onMessage(bytes, { address: from, port: CONTROL })
    })
  }

  #lives({ firstMs, lastMs }: { readonly firstMs: number; readonly lastMs: number }): number {
    return lastMs - firstMs <= YOUNG_MS ? (this.youngLifeMs ?? this.lifeMs) : this.lifeMs
  }

  #later(ms: number, then: () => void): void {
    this.stage.clock.setTimer(ms, then)
  }
}

t.test('the longest wait that an answer survives', async (t) => {
  for (const [lifeMs, want, keepalive] of [
    [3000, 0, 5],
    [8000, 0, 5],
    [20_000, 10, 10],
    [40_000, 30, 20],
    [90_000, 60, 20],
    [Infinity, 120, 20],
  ] as const) {
    const network = new Network(lifeMs)
    await network.run(300_000)
    t.equal(network.life.seconds, want, `${lifeMs} ms`)
    t.equal(keepaliveSeconds({ behindNat: true, natLifeSeconds: want, farIsPublic: true }), keepalive, `${lifeMs} ms`)
    t.equal(network.changes, 1)
    t.ok(network.questions <= 6 * WAITS_SECONDS.length, `${network.questions} questions`)
    t.equal(network.open.size, 0, 'no port stays open')
    network.life.close()
  }
})

t.test('a relay that lies, and what its lie is taken for', async (t) => {
  const lies: readonly (readonly [Lie, readonly [number | undefined, number | undefined]])[] = [
    // What comes of it behind a NAT that forgets after 20 s, and behind one that never does.
    ['none', [10, 120]],
    ['early', [undefined, undefined]],
    ['never', [0, 0]],
    ['twice', [10, 120]],
    ['packets between', [undefined, undefined]],
    ['deaf', [undefined, undefined]],
    ['answers from elsewhere', [undefined, undefined]],
    ['challenges', [undefined, undefined]],
  ]
  for (const [lie, wants] of lies) {
    for (const [i, lifeMs] of [20_000, Infinity].entries()) {
      const network = new Network(lifeMs, () => lie)
      await network.run(300_000)
      t.equal(network.life.seconds, wants[i], `${lie}, ${lifeMs} ms`)
      t.ok(network.questions <= 36 * WAITS_SECONDS.length, `${lie}: ${network.questions} questions`)
      t.equal(network.open.size, 0, `${lie}: no port stays open`)
      network.life.close()
    }
  }
})

t.test('of two relays one lies', async (t) => {
  for (const lie of ['never', 'early', 'deaf', 'packets between'] as const) {
    for (const relays of [
      [RELAY_TEXT, '203.0.113.10'],
      ['203.0.113.10', RELAY_TEXT],
    ]) {
      const network = new Network(40_000, (relay) => (relay === RELAY_TEXT ? lie : 'none'))
      await network.run(500_000, relays)
      // One that serves no measurement is as good as none. Otherwise both have to agree on more than the shortest wait.
      t.equal(network.life.seconds, lie === 'deaf' ? 30 : 10, `${lie}, ${relays[0] ?? ''} is first`)
      network.life.close()
    }
  }
})

t.test('what one measurement makes of a network', async (t) => {
  const [first, second, third] = [RELAY_TEXT, '203.0.113.11', '203.0.113.12']
  const all = [first, second, third]
  // The first answers are four challenges and twice four of `held`; the next one is late.
  let lost = 0
  const young = new Network(180_000)
  young.youngLifeMs = 30_000
  const moved = new Network(40_000)
  moved.addressTo = new Map([[first, '198.51.100.7']])
  const one = (capable: string) => new Network(6000, (relay) => (relay === capable ? 'none' : 'deaf'))
  const rows: readonly (readonly [string, Network, number, (readonly string[])?])[] = [
    ['a packet that is lost does not count', new Network(20_000, undefined, () => lost++ === 12), 10],
    ['a mapping that is older than two seconds counts, since those of links are', young, 120],
    ['a NAT with another address for each relay', moved, 30],
    ['more than the shortest wait, by relays of two members', new Network(90_000), 60, all],
    ...all.map(
      (capable) => [`it forgets soon, and ${capable} alone serves a measurement`, one(capable), 0, all] as const,
    ),
  ]
  for (const [say, network, want, relays] of rows) {
    await network.run(relays === undefined ? 300_000 : 900_000, relays)
    t.equal(network.life.seconds, want, say)
    t.equal(network.changes, 1, `${say}: it is told once`)
    if (relays !== undefined) t.ok(new Set(network.asked).size >= 2, say)
    network.life.close()
  }
})

t.test('it is measured again after six hours, or soon when the address outside has changed', async (t) => {
  const network = new Network(40_000)
  await network.run(300_000)
  const asked = network.questions
  await network.run(LIFE_EVERY_MS - 310_000)
  t.equal(network.questions, asked, 'not before')
  for (let leftMs = LIFE_EVERY_MS * LIFE_JITTER + 30_000; leftMs > 0 && network.questions === asked; leftMs -= 10_000)
    await network.run(10_000)
  t.ok(network.questions > asked, 'again')
  await network.run(300_000)
  t.equal(network.life.seconds, 30)
  const before = network.questions
  network.address = '198.51.100.200'
  await network.run(1000)
  t.equal(network.life.seconds, undefined, 'what was known is of another NAT')
  t.equal(network.questions, before, 'not at once')
  await network.run(LIFE_APART_MS * (1 + LIFE_JITTER) + 300_000)
  t.equal(network.life.seconds, 30)
  network.life.look(undefined)
  t.equal(network.life.seconds, undefined, 'no NAT any more')
  network.life.close()
})

t.test('a node that relays see at its own address is behind no NAT', async (t) => {
  const network = new Network(Infinity)
  network.address = '198.51.100.9'
  const facts = { ...network.facts(), seen: [], ownAddresses: new Set(['198.51.100.9']) }
  for (let i = 0; i < 150; i++) {
    network.life.look(facts)
    await network.stage.clock.advance(1000)
  }
  t.equal(network.life.seconds, undefined)
  t.ok(network.questions > 0)
  network.life.close()
})

t.test('one failure alone is not silence', async (t) => {
  const network = new Network(3000)
  // There is no relay any more when the first attempts are over.
  await network.run(5000)
  t.equal(network.questions, 3 * WAITS_SECONDS.length)
  for (let i = 0; i < 200; i++) {
    network.life.look({ ...network.facts(), relays: [] })
    await network.stage.clock.advance(1000)
  }
  t.equal(network.open.size, 0, 'it is over')
  t.equal(network.life.seconds, undefined)
  network.life.close()
})

t.test(
  'what was measured counts as the shortest wait if the next measurement gives nothing, or there is none',
  async (t) => {
    let lie: Lie = 'none'
    const network = new Network(40_000, () => lie)
    await network.run(300_000)
    t.equal(network.life.seconds, 30)
    lie = 'deaf'
    await network.run(LIFE_EVERY_MS * (1 + LIFE_JITTER) + 60_000)
    t.equal(network.life.seconds, 10, 'it gave nothing')
    lie = 'none'
    await network.run(LIFE_APART_MS * (1 + LIFE_JITTER) + 300_000)
    t.equal(network.life.seconds, 30)
    await network.run(LIFE_COUNTS_MS - 1_200_000, [])
    t.equal(network.life.seconds, 30, 'no relay is there')
    await network.run(1_300_000, [])
    t.equal(network.life.seconds, 10, 'for too long')
    network.life.close()
  },
)

t.test('a relay counts on from where the clock of this node was before it went back', async (t) => {
  const network = new Network(40_000)
  const { stage, end } = network
  const ask = (cookie: Buffer) => {
    const init = { from: end.id, to: endId(CLUSTERSET, stage.keys.publicKey), counter: 4_000_000_000_000, cookie }
    return stage.send(encodeHold({ ...init, waitMs: 10_000 }, end.key), '198.51.100.1:9999').answer ?? Buffer.alloc(0)
  }
  const challenge = decodeAnswer(ask(NO_COOKIE), end.key)
  ask(challenge?.type === 'challenge' ? challenge.cookie : NO_COOKIE)
  await network.run(300_000)
  t.equal(network.life.seconds, 30)
  network.life.close()
})

t.test('nodes begin with different relays, and all go round', async (t) => {
  const relays = ['oslo', 'roma', 'bern'].flatMap((cluster) =>
    [1, 2].map((i) => ({ cluster, identity: `${cluster}${i}` })),
  )
  const firsts = Array.from({ length: 40 }, (_, i) => lifeOrder(`node ${i}`, relays, 1)[0]?.identity)
  t.ok(new Set(firsts).size >= 5, `${new Set(firsts).size} of six are first`)
  const turns = Array.from({ length: 6 }, (_, i) => lifeOrder('node', relays, i)[0]?.identity)
  t.equal(new Set(turns).size, 6, 'each is first once')
  for (let count = 0; count < 6; count++) {
    const order = lifeOrder('node', relays, count)
    t.strictSame(
      [...order].sort((a, b) => (a.identity < b.identity ? -1 : 1)),
      relays.toSorted((a, b) => (a.identity < b.identity ? -1 : 1)),
    )
    t.equal(new Set(order.slice(0, 3).map(({ cluster }) => cluster)).size, 3, 'members take turns')
  }
  t.strictSame(lifeOrder('node', [], 3), [])
})
