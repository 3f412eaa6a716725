/** For how long a NAT keeps a mapping, as a gateway measures it by relays that may lie. */
import t from 'tap'
import { keepaliveSeconds } from '../../../../gateway/cable/plan-keepalive.ts'
import { endId } from '../../../../gateway/reach/relay/bind-frame.ts'
import { encodeHoldAnswer, namedHold } from '../../../../gateway/reach/relay/hold-frame.ts'
import {
  LIFE_APART_MS,
  LIFE_EVERY_MS,
  type LifeFacts,
  NatLife,
  WAITS_SECONDS,
} from '../../../../gateway/reach/relay/nat-life.ts'
import type { ProbeSocketEvents } from '../../../../kernel/probing/probe-socket.ts'
import { formatAddress, parseAddress, parseAddressPort } from '../../../../model/addresses/addresses.ts'
import { CLUSTERSET, CONTROL, RELAY_AT, RelayStage, type TestEnd } from '../../support/relay-stage.ts'

/** What a relay does with a question that it has accepted. */
type Lie = 'none' | 'early' | 'never' | 'twice' | 'packets between' | 'deaf' | 'answers from elsewhere' | 'challenges'

const WAY_MS = 20
const RELAY_TEXT = formatAddress(RELAY_AT.address)

/** An end behind a NAT that forgets a mapping after `lifeMs` without packets, and a relay. */
class Network {
  readonly lifeMs: number
  readonly lieOf: (relay: string) => Lie
  readonly loses: (count: number) => boolean
  readonly stage = new RelayStage()
  readonly end: TestEnd
  readonly life: NatLife
  changes = 0
  questions = 0
  readonly open = new Set<string>()
  address = '198.51.100.1'
  readonly #ports = new Map<string, { readonly events: ProbeSocketEvents; lastMs: number }>()
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

  facts(relays: readonly string[] = [RELAY_TEXT]): LifeFacts {
    const { identity, secret } = this.end
    return {
      own: { clusterset: CLUSTERSET, identity, agree: () => secret },
      // All of them have the identity of the one relay of the stage.
      relays: relays.map((text) => ({ identity: this.stage.keys.publicKey, address: parseAddress(text) })),
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
    const one = { events, lastMs: -Infinity }
    this.#ports.set(outside, one)
    this.open.add(outside)
    events.onReady()
    return {
      send: (bytes: Buffer, to: string, port: number) => {
        this.questions += 1
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
    const { answer, outcome } = this.stage.send(bytes, outside)
    const from = lie === 'answers from elsewhere' ? '203.0.113.77' : relay
    if (answer !== undefined && !(lie === 'challenges' && outcome === 'held')) this.#back(answer, outside, from)
    if (outcome !== 'held') return
    const waitMs = bytes.readUInt32BE(48)
    const named = namedHold(bytes)
    const late = encodeHoldAnswer(
      {
        ...{ type: 'late', from: named?.from ?? '', to: endId(CLUSTERSET, this.stage.keys.publicKey) },
        ...{ counter: Number(bytes.readBigUInt64BE(24)), waitMs, seen: parseAddressPort(outside) },
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
      for (let i = 0; i < copies; i++) this.#back(late, outside, from)
    })
  }

  #back(bytes: Buffer, outside: string, from: string): void {
    if (this.loses(this.questions)) return
    this.#later(WAY_MS, () => {
      const one = this.#ports.get(outside)
      const nowMs = this.stage.clock.monotonic()
      if (one === undefined || nowMs - one.lastMs > this.lifeMs) return
      one.lastMs = nowMs
      if (this.open.has(outside)) one.events.onMessage(bytes, { address: from, port: CONTROL })
    })
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
    t.equal(keepaliveSeconds({ behindNat: true, natLifeSeconds: want }), keepalive, `${lifeMs} ms`)
    t.equal(network.changes, 1)
    t.ok(network.questions <= 4 * WAITS_SECONDS.length, `${network.questions} questions`)
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
      t.ok(network.questions <= 12 * WAITS_SECONDS.length, `${lie}: ${network.questions} questions`)
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
      await network.run(300_000, relays)
      t.equal(network.life.seconds, 30, `${lie}, ${relays[0] ?? ''} is first`)
      network.life.close()
    }
  }
})

t.test('it is measured again after six hours, or soon when the address outside has changed', async (t) => {
  const network = new Network(40_000)
  await network.run(300_000)
  const asked = network.questions
  await network.run(LIFE_EVERY_MS - 310_000)
  t.equal(network.questions, asked, 'not before')
  await network.run(20_000)
  t.ok(network.questions > asked, 'again')
  await network.run(300_000)
  t.equal(network.life.seconds, 30)
  const before = network.questions
  network.address = '198.51.100.200'
  await network.run(1000)
  t.equal(network.life.seconds, undefined, 'what was known is of another NAT')
  t.equal(network.questions, before, 'not at once')
  await network.run(LIFE_APART_MS + 300_000)
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

t.test('a packet that is lost does not count', async (t) => {
  // The first answers are four challenges and four of `held`; the next one is late.
  let lost = 0
  const network = new Network(20_000, undefined, () => lost++ === 8)
  await network.run(300_000)
  t.equal(network.life.seconds, 10)
  network.life.close()
})
