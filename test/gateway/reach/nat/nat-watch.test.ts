/** Whom a NAT lets in, whether it leads back inside, and whether it drops bursts, as relays that may lie show it. */
import t from 'tap'
import { CHALLENGES_TO_ADDRESS } from '../../../../gateway/reach/relay-server/address-proof.ts'
import { LIFE_APART_MS, LIFE_COUNTS_MS, LIFE_EVERY_MS } from '../../../../gateway/reach/nat/nat-life.ts'
import { NatWatch } from '../../../../gateway/reach/nat/nat-watch.ts'
import type { MeasureFacts } from '../../../../gateway/reach/nat/measure-facts.ts'
import { BURST, type NatSights } from '../../../../gateway/reach/nat/sight-caller.ts'
import type { ProbeSocketEvents } from '../../../../kernel/probing/probe-socket.ts'
import { formatAddress, parseAddress } from '../../../../model/addresses/addresses.ts'
import { generateWireguardKey } from '../../../../kernel/wireguard/wireguard-device.ts'
import { agreementOf } from '../../../../gateway/cable/agreement.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { CLUSTERSET, CONTROL, RelayStage } from '../../support/relay-stage.ts'

const WAY_MS = 20
const OUTSIDE = '198.51.100.1'
const [OSLO, ROMA] = ['203.0.113.9', '203.0.113.10'] as const
/** The other port of a relay. */
const OTHER = 40_999

interface BoxKind {
  readonly lets: 'anyone' | 'address' | 'port'
  readonly maps?: 'each'
  readonly hairpins?: true
  /** Packets at once, and in a second after that. */
  readonly limit?: { readonly burst: number; readonly perSecond: number }
  /** Every so many packets out one is lost. */
  readonly loses?: number
  /** Nothing passes any more once a packet is to come back inside. */
  readonly endsAtHairpin?: true
}

/** What a relay does. Deaf: it is of an earlier release. Silent: it promises second answers and sends none. */
type Lie = 'none' | 'deaf' | 'silent' | 'wrong place' | 'challenges alone' | 'begins again'

/** A node behind a box, and relays of other members. */
class Network {
  box: BoxKind
  address = OUTSIDE
  readonly clock: FakeClock
  readonly watch: NatWatch
  readonly lies = new Map<string, Lie>()
  /** All packets that have left the node: when, and to where. */
  readonly sent: { readonly atMs: number; readonly to: string; readonly inside: number }[] = []
  changes = 0
  readonly open = new Map<number, ProbeSocketEvents>()
  readonly #keys = generateWireguardKey()
  readonly #relays = new Map<string, RelayStage>()
  /** Inside port by port outside, and where that has sent. */
  readonly #mapped = new Map<number, { readonly inside: number; readonly sent: Set<string> }>()
  readonly #ports = new Map<string, number>()
  #inside = 0
  #tokens = { left: Infinity, atMs: 0 }
  #isCut = false

  constructor(box: BoxKind, relays: readonly string[] = [OSLO, ROMA]) {
    this.box = box
    for (const relay of relays) {
      const stage = new RelayStage()
      stage.allow([{ member: 'paris', identity: this.#keys.publicKey }])
      this.#relays.set(relay, stage)
    }
    this.clock = new FakeClock()
    this.watch = new NatWatch({
      clock: this.clock,
      openSocket: (_address, _port, events) => this.#open(events),
      onChange: () => void (this.changes += 1),
      mayProbe: ({ address }) => formatAddress(address) !== '203.0.113.66',
    })
  }

  facts(): MeasureFacts {
    const { privateKey, publicKey } = this.#keys
    return {
      own: { clusterset: CLUSTERSET, identity: publicKey, agree: agreementOf(privateKey) },
      relays: [...this.#relays].map(([text, { keys }]) => {
        return { cluster: `of ${text}`, identity: keys.publicKey, address: parseAddress(text) }
      }),
      ...{ seen: [this.address], ownAddresses: new Set(['10.0.0.2']) },
    }
  }

  async run(ms: number, facts = this.facts()): Promise<NatSights> {
    for (let left = ms; left > 0; left -= 1000) {
      this.watch.look(facts)
      const stepMs = Math.min(1000, left)
      await this.clock.advance(stepMs)
      for (const { clock } of this.#relays.values()) await clock.advance(stepMs)
    }
    return this.watch.sights
  }

  #open(events: ProbeSocketEvents) {
    const inside = ++this.#inside
    this.open.set(inside, events)
    events.onReady()
    return {
      send: (bytes: Buffer, to: string, port: number) => this.#out(inside, bytes, `${to}:${port}`),
      probeTcp: () => () => undefined,
      close: () => void this.open.delete(inside),
    }
  }

  #out(inside: number, bytes: Buffer, to: string): void {
    this.sent.push({ atMs: this.clock.monotonic(), to, inside })
    const { maps, loses, hairpins } = this.box
    const name = `${inside}${maps === 'each' ? to : ''}`
    const outside = this.#ports.get(name) ?? 20_000 + this.#ports.size
    this.#ports.set(name, outside)
    const mapped = this.#mapped.get(outside) ?? { inside, sent: new Set<string>() }
    this.#mapped.set(outside, mapped)
    mapped.sent.add(to)
    if (!this.#passes() || (loses !== undefined && this.sent.length % loses === 0)) return
    const copy = Buffer.from(bytes)
    const from = `${this.address}:${outside}`
    const [address = '', port = ''] = to.split(':')
    this.#isCut ||= address === this.address && this.box.endsAtHairpin === true
    if (this.#isCut) return
    if (address === this.address && hairpins === true) this.#later(() => this.#in(copy, from, Number(port)))
    if (this.#relays.has(address) && Number(port) === CONTROL) this.#later(() => this.#atRelay(copy, from, address))
  }

  #passes(): boolean {
    const { limit } = this.box
    if (limit === undefined) return true
    const nowMs = this.clock.monotonic()
    const left = Math.min(limit.burst, this.#tokens.left + ((nowMs - this.#tokens.atMs) * limit.perSecond) / 1000)
    this.#tokens = { left: left >= 1 ? left - 1 : left, atMs: nowMs }
    return left >= 1
  }

  #atRelay(bytes: Buffer, from: string, relay: string): void {
    const lie = this.lies.get(relay) ?? 'none'
    const stage = this.#relays.get(relay)
    if (lie === 'deaf' || stage === undefined) return
    // Without a valid cookie, the answer is a challenge.
    const isBurst = this.sent.filter(({ atMs }) => atMs === this.clock.monotonic() - WAY_MS).length >= BURST
    if (lie === 'challenges alone' || (lie === 'begins again' && isBurst)) {
      const port = Number(from.split(':')[1])
      const challenge = stage.challengeTo(bytes, this.#keys.publicKey)
      this.#later(() => this.#in(challenge, `${relay}:${CONTROL}`, port))
      return
    }
    const { answer, second } = stage.send(bytes, lie === 'wrong place' ? '203.0.113.66:4444' : from)
    const port = Number(from.split(':')[1])
    if (answer !== undefined) this.#later(() => this.#in(answer, `${relay}:${CONTROL}`, port))
    if (second === undefined || lie === 'silent') return
    const leaves = second.leaves === 'other port' ? OTHER : CONTROL
    this.#later(() => this.#in(second.answer, `${relay}:${leaves}`, second.to.port))
  }

  #in(bytes: Buffer, from: string, port: number): void {
    const mapped = this.#mapped.get(port)
    if (mapped === undefined) return
    const { lets } = this.box
    const isKnown = [...mapped.sent].some((one) => one.split(':')[0] === from.split(':')[0])
    if (lets === 'port' && !mapped.sent.has(from)) return
    if (lets === 'address' && !isKnown) return
    const [address = '', fromPort = ''] = from.split(':')
    this.open.get(mapped.inside)?.onMessage(bytes, { address, port: Number(fromPort) })
  }

  #later(then: () => void): void {
    this.clock.setTimer(WAY_MS, then)
  }
}

const MEASURED_MS = 150_000

interface Measured {
  readonly relays?: readonly string[]
  readonly lies?: Readonly<Record<string, Lie>>
  readonly ms?: number
}

/** What one node behind the box knows after this time, and what it has sent for that. */
async function measured(box: BoxKind, { relays, lies = {}, ms = MEASURED_MS }: Measured = {}) {
  const network = new Network(box, relays)
  for (const [relay, lie] of Object.entries(lies)) network.lies.set(relay, lie)
  const sights = await network.run(ms)
  const openPorts = network.open.size
  network.watch.close()
  return { sights, openPorts, sent: network.sent }
}

t.test('kinds of NAT', async (t) => {
  const rows: readonly (readonly [string, BoxKind, NatSights])[] = [
    ['any sender', { lets: 'anyone' }, { filter: 'anyone', hairpins: false, bursts: 'pass' }],
    ['known addresses', { lets: 'address' }, { filter: 'address', hairpins: false, bursts: 'pass' }],
    ['known ports', { lets: 'port' }, { filter: 'port', hairpins: false, bursts: 'pass' }],
    ['any sender, and back', { lets: 'anyone', hairpins: true }, { filter: 'anyone', hairpins: true, bursts: 'pass' }],
    ['known ports, and back', { lets: 'port', hairpins: true }, { filter: 'port', hairpins: true, bursts: 'pass' }],
    ['symmetric', { lets: 'port', maps: 'each' }, { filter: 'port', hairpins: false, bursts: 'pass' }],
    [
      'four at once, and two in a second',
      { lets: 'port', limit: { burst: 4, perSecond: 2 } },
      { filter: 'port', hairpins: false, bursts: 'limited' },
    ],
    [
      'one in two seconds: as loss, that is not called a limit',
      { lets: 'port', limit: { burst: 4, perSecond: 0.5 } },
      { filter: 'port', hairpins: false },
    ],
    [
      'fifty at once',
      { lets: 'address', limit: { burst: 50, perSecond: 9 } },
      { filter: 'address', hairpins: false, bursts: 'pass' },
    ],
    ['half of all is lost', { lets: 'anyone', loses: 2 }, { filter: 'anyone' }],
  ]
  for (const [say, box, want] of rows) {
    const { sights, sent, openPorts } = await measured(box)
    const { filter, bursts, hairpins } = sights
    t.equal(filter, want.filter, `${say}: filter`)
    t.equal(bursts, want.bursts, `${say}: bursts`)
    if (want.hairpins !== undefined) t.equal(hairpins, want.hairpins, `${say}: hairpins`)
    t.ok(sent.length <= 60, `${say}: ${sent.length} packets`)
    t.equal(openPorts, 0, `${say}: no port stays open`)
  }
})

t.test('what no packet has shown is not claimed', async (t) => {
  const cut = await measured({ lets: 'anyone', endsAtHairpin: true })
  t.strictSame(cut.sights, { filter: 'anyone' }, 'the network was away when nothing came back')
  const moved = new Network({ lets: 'anyone' })
  for (let i = 0; i < 150 && moved.sent.length === 0; i++) await moved.run(1000)
  moved.address = '198.51.100.77'
  moved.box = { lets: 'port' }
  t.strictSame(await moved.run(MEASURED_MS), {}, 'one measurement does not hold for two NATs')
  t.equal((await moved.run(1.5 * LIFE_APART_MS)).filter, 'port', 'and is repeated before long')
  moved.watch.close()
  const begun = await measured({ lets: 'port' }, { lies: { [OSLO]: 'begins again', [ROMA]: 'begins again' } })
  t.strictSame(begun.sights, { filter: 'port', hairpins: false, bursts: 'pass' }, 'a challenge passes')
})

t.test('many nodes behind one address do not measure at one time', async (t) => {
  const begun: number[] = []
  for (let i = 0; i < 40; i++) {
    const { sent } = await measured({ lets: 'port' })
    begun.push(sent[0]?.atMs ?? 0)
  }
  const atOnce = begun.map((one) => begun.filter((other) => Math.abs(other - one) < 2000).length)
  t.ok(Math.max(...atOnce) <= 10, `${Math.max(...atOnce)} of 40 in the same four seconds`)
})

t.test('with one relay, what two have to show is not known', async (t) => {
  const rows: readonly (readonly [string, BoxKind, NatSights])[] = [
    ['any sender', { lets: 'anyone', hairpins: true }, { bursts: 'pass' }],
    ['known addresses', { lets: 'address', hairpins: true }, { bursts: 'pass' }],
    ['known ports', { lets: 'port', hairpins: true }, { filter: 'port', bursts: 'pass' }],
    ['the relay may be the one that drops', { lets: 'port', limit: { burst: 4, perSecond: 2 } }, { filter: 'port' }],
  ]
  for (const [say, box, want] of rows) t.strictSame((await measured(box, { relays: [OSLO] })).sights, want, say)
})

t.test('relays of the last release, and relays that lie', async (t) => {
  const of = (lies: Readonly<Record<string, Lie>>) => measured({ lets: 'anyone' }, { lies, ms: LIFE_APART_MS })
  const none = await of({ [OSLO]: 'deaf', [ROMA]: 'deaf' })
  t.strictSame(none.sights, {}, 'none serves it')
  t.ok(none.sent.length <= 12, `${none.sent.length} packets`)
  for (const deaf of [OSLO, ROMA]) t.equal((await of({ [deaf]: 'deaf' })).sights.bursts, 'pass', `all but ${deaf}`)
  for (const silent of [OSLO, ROMA]) {
    const { filter } = (await of({ [silent]: 'silent' })).sights
    t.ok(filter === 'anyone' || filter === 'address', `the other one alone: ${filter ?? ''}`)
  }
  const busy = await of({ [OSLO]: 'challenges alone', [ROMA]: 'challenges alone' })
  t.ok(busy.sent.length <= 48, `${busy.sent.length} packets for challenges`)
  const wrong = await of({ [OSLO]: 'wrong place', [ROMA]: 'wrong place' })
  t.strictSame(
    wrong.sent.filter(({ to }) => to.startsWith('203.0.113.66')),
    [],
    'nothing goes to a place that may not be called',
  )
})

t.test('a relay alone cannot make this node send to a third party', async (t) => {
  const { sent } = await measured({ lets: 'anyone' }, { lies: { [OSLO]: 'wrong place' } })
  const to = new Set(sent.map((one) => one.to.split(':')[0]))
  t.strictSame([...to].sort(), [ROMA, OSLO].sort())
})

t.test('how often it is measured', async (t) => {
  const network = new Network({ lets: 'port' })
  await network.run(MEASURED_MS)
  const once = network.sent.length
  t.ok(network.sent.filter(({ to }) => to === `${OSLO}:${CONTROL}`).length < 2 * BURST + CHALLENGES_TO_ADDRESS)
  await network.run(1_800_000)
  t.equal(network.sent.length, once, 'not again')
  network.box = { lets: 'anyone' }
  network.address = '198.51.100.77'
  t.strictSame(await network.run(1000), {}, 'what was known is of another NAT')
  t.equal((await network.run(MEASURED_MS)).filter, 'anyone', 'and it is measured soon')
  const twice = network.sent.length
  network.address = '198.51.100.78'
  await network.run(LIFE_APART_MS - MEASURED_MS - 100_000)
  t.equal(network.sent.length, twice, 'a network that changes all the time is measured at most once in ten minutes')
  await network.run(400_000)
  t.ok(network.sent.length > twice)
  network.watch.look(undefined)
  t.strictSame(network.watch.sights, {}, 'no NAT any more')
  network.watch.close()
})

t.test('what was measured holds for half a day without relays', async (t) => {
  const network = new Network({ lets: 'port' })
  await network.run(MEASURED_MS)
  const facts = { ...network.facts(), relays: [] }
  const look = async (ms: number) => {
    network.watch.look(facts)
    await network.clock.advance(ms)
    network.watch.look(facts)
  }
  await look(LIFE_EVERY_MS)
  t.equal(network.watch.sights.filter, 'port')
  await look(LIFE_COUNTS_MS - LIFE_EVERY_MS)
  t.strictSame(network.watch.sights, {})
  t.equal(network.open.size, 0)
  network.watch.close()
})

t.test('a node that relays see at its own address is behind no NAT', async (t) => {
  const network = new Network({ lets: 'anyone' })
  await network.run(MEASURED_MS, { ...network.facts(), ownAddresses: new Set([OUTSIDE]) })
  t.strictSame(network.watch.sights, {})
  t.equal(network.changes, 0)
  network.watch.close()
})
