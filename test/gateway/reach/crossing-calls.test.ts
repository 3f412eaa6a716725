/**
 * How soon two ends agree on a session at a place that both get to know at about the same moment, at each rung: with the
 * real choices of both ends, and WireGuard as far as calls go. Two calls that cross complete nothing, and WireGuard
 * repeats none within REKEY_TIMEOUT.
 */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { HandshakeRetries, RoamedPeers } from '../../../gateway/reach/call-history.ts'
import { type EndpointChoiceInit, chooseEndpoint } from '../../../gateway/reach/choose-endpoint.ts'
import type { RelayPlace } from '../../../gateway/world/gateway-world.ts'
import { type AddressPort, parseAddressPort, sameAddressPort } from '../../../model/addresses/addresses.ts'
import { endpoint } from '../support/worlds.ts'

const REKEY_TIMEOUT_MS = 5000
/** Something in the tunnel wants to be sent so often: probes of health. */
const TRAFFIC_MS = 200
const STEP_MS = 5
/** A world that has no session by then has failed. */
const LAST_MS = 30_000
const START_MS = 1_000_000
const FAR = endpoint('paris', 'gw', 0, ['public 198.51.100.20:4500'])
const KEY = 'paris.gw-lane0 key'

type Rung = 'direct' | 'relayed' | 'tcp-443' | 'punched'

/** Where an end sends to reach the other one by each rung, and where it sees the other's packets come from. */
const PLACES: Readonly<Record<Rung, string>> = {
  direct: '198.51.100.20:4500',
  relayed: '203.0.113.1:4601',
  'tcp-443': '127.0.0.1:40001',
  punched: '203.0.113.77:61234',
}

interface Message {
  readonly is: 'initiation' | 'response' | 'data'
  readonly id: number
}

/** One peer on a device of WireGuard. */
class Peer {
  at: AddressPort | undefined
  rxBytes = 0
  handshakeAtMs: number | undefined
  /** The own initiation that waits for its response. */
  #asked: number | undefined
  #askedMs = -Infinity
  #keys = new Set<number>()

  constructor(at: AddressPort | undefined) {
    this.at = at
  }

  /** Sends data, or an initiation if there is no session. */
  send(nowMs: number, nextId: () => number): Message | undefined {
    if (this.handshakeAtMs !== undefined) return { is: 'data', id: [...this.#keys].at(-1) ?? 0 }
    if (this.at === undefined || nowMs - this.#askedMs < REKEY_TIMEOUT_MS) return undefined
    this.#asked = nextId()
    this.#askedMs = nowMs
    return { is: 'initiation', id: this.#asked }
  }

  /** Returns the answer. */
  take({ is, id }: Message, from: AddressPort, nowMs: number): Message | undefined {
    switch (is) {
      case 'initiation':
        this.#heard(148, from)
        // There is one handshake at a time: what this end has asked is forgotten.
        this.#asked = undefined
        this.#keys.add(id)
        return { is: 'response', id }
      case 'response':
        if (this.#asked !== id) return undefined
        this.#heard(92, from)
        this.#asked = undefined
        this.#keys.add(id)
        this.handshakeAtMs = nowMs
        return { is: 'data', id }
      case 'data':
        if (!this.#keys.has(id)) return undefined
        this.#heard(32, from)
        this.handshakeAtMs ??= nowMs
        return undefined
    }
  }

  #heard(bytes: number, from: AddressPort): void {
    this.rxBytes += bytes
    this.at = from
  }
}

interface EndInit {
  readonly callsFirst: boolean
  readonly jitter: number
  /** When it gets to know the link, and the place beyond direct ones. */
  readonly linkMs: number
  readonly placeMs: number
  /** RelayPlace.farWasThere. */
  readonly farWasThere?: boolean
}

interface Story {
  readonly rung: Rung
  /** Only relays may carry the link. */
  readonly isTransit?: true
  readonly ends: readonly [EndInit, EndInit]
  /** How long a message travels. */
  readonly wayMs: number
  /** How much longer or shorter each one does, from -1 to 1 in turn. Absent: none. */
  readonly varies?: readonly number[]
  /** RelayPlace.roundTripMs. */
  readonly roundTripMs?: number
  /** Which messages are lost, counted from 0 at the first that could arrive. */
  readonly lost?: readonly number[]
}

class End {
  readonly init: EndInit
  readonly #story: Story
  readonly #retries = new HandshakeRetries()
  readonly #roamed = new RoamedPeers()
  peer = new Peer(undefined)
  #nextMs = 0
  #before = ''
  readonly calls: number[] = []

  constructor(init: EndInit, story: Story) {
    this.init = init
    this.#story = story
    this.#nextMs = init.linkMs
  }

  knows(nowMs: number): boolean {
    return nowMs >= this.init.linkMs
  }

  /** Plans if something has changed or is due. Returns whether WireGuard calls at once. */
  plan(nowMs: number): boolean {
    const { peer } = this
    const places = nowMs >= this.init.placeMs
    const seen = `${places} ${peer.handshakeAtMs ?? ''} ${peer.at?.port ?? ''}`
    if (!this.knows(nowMs) || (nowMs < this.#nextMs && seen === this.#before)) return false
    const choice = chooseEndpoint(this.#facts(nowMs, places))
    const link = { cluster: 'paris', endpoint: 'paris.gw-lane0', identity: 'key', remoteLane: 0, choice }
    this.#roamed.reported([link])
    const isDue = this.#retries.due([link]).size > 0
    this.#nextMs = choice.nextAtMs ?? Infinity
    this.#before = seen
    if (choice.how !== 'try' || choice.at === undefined) return false
    const calls = isDue || peer.at === undefined
    if (calls) this.peer = new Peer(choice.at)
    else if (!sameAddressPort(peer.at, choice.at)) peer.at = choice.at
    if (calls) this.calls.push(nowMs)
    return calls
  }

  #facts(nowMs: number, hasPlaces: boolean): EndpointChoiceInit {
    const { rung, isTransit, roundTripMs } = this.#story
    const { callsFirst, jitter, linkMs, placeMs } = this.init
    const { at, rxBytes, handshakeAtMs } = this.peer
    const link = {
      ...{ carries: true, rxBytes, txBytes: 0 },
      ...(at === undefined ? {} : { at }),
      ...(handshakeAtMs === undefined ? {} : { handshakeMs: handshakeAtMs }),
    }
    const lanes = [{ identity: 'own', links: new Map([[KEY, link]]) }]
    const roamed = this.#roamed.seen(lanes, nowMs).get(KEY)
    const { farWasThere } = this.init
    const order = farWasThere === undefined ? {} : { farWasThere }
    const trip = roundTripMs === undefined ? {} : { roundTripMs }
    const place = { at: parseAddressPort(PLACES[rung]), sinceMs: placeMs, ...order, ...trip }
    const isRelay = rung === 'relayed' || rung === 'tcp-443'
    const relays: RelayPlace[] = isRelay && hasPlaces ? [{ cluster: 'oslo', ...place }] : []
    return {
      ...{ monotonicMs: nowMs, rotateMs: 5000, jitter, sessionMs: 180_000, callsFirst, callable: true },
      ...{ candidates: isTransit === true ? [] : FAR.spec.candidates, relays, link },
      ...(isTransit === true ? { isTransit } : { roamed }),
      ...(rung === 'punched' && hasPlaces ? { punched: { ...place.at, sinceMs: placeMs } } : {}),
      health: { state: 'connecting', sinceMs: linkMs },
    }
  }
}

/** Returns how long after both ends knew the place each had the session, in milliseconds. Infinity: never. */
function agreedAfterMs(story: Story): number {
  const ends = [new End(story.ends[0], story), new End(story.ends[1], story)] as const
  const rungAt = parseAddressPort(PLACES[story.rung])
  let travelling: { readonly atMs: number; readonly to: End; readonly message: Message }[] = []
  let [ids, arriving] = [0, 0]
  const send = (from: End, message: Message | undefined, nowMs: number): void => {
    const to = ends[0] === from ? ends[1] : ends[0]
    if (message === undefined || !sameAddressPort(from.peer.at, rungAt)) return
    // Nothing passes before this end is there; what has arrived shows that it is.
    if (story.rung !== 'direct' && nowMs < from.init.placeMs && from.peer.rxBytes === 0) return
    const { wayMs, varies = [0] } = story
    const share = 1 + (varies[arriving % varies.length] ?? 0)
    if (story.lost?.includes(arriving++) !== true) travelling.push({ atMs: nowMs + share * wayMs, to, message })
  }
  const last = story.ends.filter(({ farWasThere }) => farWasThere)
  const knownMs = Math.max(
    ...(last.length > 0 ? last : story.ends).map(({ linkMs, placeMs }) => Math.max(linkMs, placeMs)),
  )
  for (let nowMs = START_MS; nowMs < knownMs + LAST_MS; nowMs += STEP_MS) {
    const due = travelling.filter(({ atMs }) => atMs <= nowMs)
    travelling = travelling.filter(({ atMs }) => atMs > nowMs)
    // A key that the device does not have is not answered.
    for (const { to, message } of due) if (to.knows(nowMs)) send(to, to.peer.take(message, rungAt, nowMs), nowMs)
    for (const end of ends) {
      const calls = end.plan(nowMs)
      if (calls || nowMs % TRAFFIC_MS === 0)
        send(
          end,
          end.peer.send(nowMs, () => ids++),
          nowMs,
        )
    }
    if (ends.every(({ peer }) => peer.handshakeAtMs !== undefined)) return nowMs - knownMs
  }
  return Infinity
}

function ends(apartMs: number, jitter: number, linkMs = 0, placeMs = 900): readonly [EndInit, EndInit] {
  const at = (callsFirst: boolean, laterMs: number): EndInit => {
    const knownMs = START_MS + laterMs
    return { callsFirst, jitter, linkMs: knownMs + linkMs, placeMs: knownMs + placeMs }
  }
  return [at(true, Math.max(0, -apartMs)), at(false, Math.max(0, apartMs))]
}

const APART_MS = [-400, -100, -10, 0, 10, 100, 400]
const JITTERS = [0, 0.5, 0.99]
const WAYS_MS = [5, 120]
/** From a place that both know to the session, besides the ways: none waits for the other. */
const SOON_MS = 50
/** One of the calls is lost, or two have crossed: the next one of an end is due in this time. */
const AGAIN_MS = 1300

function worst(rows: readonly Story[]): { readonly ms: number; readonly row: string } {
  const all = rows.map((story) => {
    const spareMs = agreedAfterMs(story) - 3 * story.wayMs
    return { ms: spareMs, row: JSON.stringify(story) }
  })
  return all.reduce((a, b) => (b.ms > a.ms ? b : a))
}

function stories(more: Pick<Story, 'rung'> & Partial<Story>, placeMs?: number): Story[] {
  return APART_MS.flatMap((apartMs) =>
    JITTERS.flatMap((jitter) =>
      WAYS_MS.map((wayMs) => {
        const isStated = more.rung === 'relayed'
        const trip = isStated ? { roundTripMs: 2 * wayMs } : {}
        return { ...{ wayMs, ends: ends(apartMs, jitter, 0, placeMs), ...trip }, ...more }
      }),
    ),
  )
}

t.test('both ends get to know a place at once, and agree at once', async (t) => {
  for (const rung of ['relayed', 'tcp-443', 'punched'] as const) {
    for (const placeMs of [600, 900, 1690, 2300, 6100]) {
      const atOnce = stories({ rung }, placeMs).filter(({ ends: [a, b] }) => Math.abs(a.placeMs - b.placeMs) <= 10)
      const { ms, row } = worst(atOnce)
      t.ok(ms <= SOON_MS, `${rung} after ${placeMs} ms: ${ms} ms and three ways (${row})`)
    }
  }
  const transit = stories({ rung: 'relayed', isTransit: true }, 2300)
  const { ms, row } = worst(transit.filter(({ ends: [a, b] }) => Math.abs(a.placeMs - b.placeMs) <= 10))
  t.ok(ms <= SOON_MS, `only by relays: ${ms} ms and three ways (${row})`)
})

t.test('the end that comes to a relay last calls at once, before the other one knows', async (t) => {
  for (const isFirst of [true, false]) {
    const rows = [5, 50, 150, 400, 1000].flatMap((laterMs) =>
      JITTERS.flatMap((jitter) =>
        WAYS_MS.map((wayMs): Story => {
          // Both have the link long before.
          const known = { jitter, linkMs: START_MS - 600, placeMs: START_MS }
          const last: EndInit = { ...known, callsFirst: isFirst, farWasThere: true }
          const there: EndInit = { ...known, callsFirst: !isFirst, placeMs: START_MS + laterMs, farWasThere: false }
          return { rung: 'relayed', wayMs, roundTripMs: 2 * wayMs, ends: isFirst ? [last, there] : [there, last] }
        }),
      ),
    )
    const { ms, row } = worst(rows)
    t.ok(ms <= SOON_MS, `${ms} ms and three ways (${row})`)
  }
})

t.test('one of them gets to know it later, or a message is lost', async (t) => {
  for (const rung of ['direct', 'relayed', 'tcp-443', 'punched'] as const) {
    const later = worst(stories({ rung }, 1200))
    t.ok(later.ms <= AGAIN_MS, `${rung}, one later: ${later.ms} ms (${later.row})`)
    // The initiation, the response, or the data that confirms it.
    for (const lost of [0, 1, 2]) {
      const { ms, row } = worst(stories({ rung, lost: [lost] }, 1200))
      t.ok(ms <= 2 * AGAIN_MS, `${rung}, message ${lost} is lost: ${ms} ms (${row})`)
    }
  }
})

const SLOW_SPARE_MS = 1000
/** Ends that know of each other how far the relay is, or do not, and get to know the place about half a way apart. */
const SLOW = fc.record({
  // With what it varies, an answer takes at most five seconds.
  roundTripMs: fc.integer({ min: 1, max: 3300 }),
  varies: fc.array(fc.double({ min: -0.5, max: 0.5, noNaN: true }), { minLength: 1, maxLength: 9 }),
  apart: fc.double({ min: -0.5, max: 0.5, noNaN: true }),
  jitter: fc.double({ min: 0, max: 0.99, noNaN: true }),
  isTransit: fc.boolean(),
})

type SlowInit = typeof SLOW extends fc.Arbitrary<infer T> ? T : never

function slowStory(init: SlowInit): Story {
  const { roundTripMs, varies, apart, jitter, isTransit } = init
  const wayMs = roundTripMs / 2
  return {
    ...{ rung: 'relayed', wayMs, varies, roundTripMs, ends: ends(Math.round(apart * wayMs), jitter) },
    ...(isTransit ? { isTransit } : {}),
  }
}

t.test('a slow path takes three round trips and the wait of a usual one, however much it varies', async (t) => {
  fc.assert(
    fc.property(SLOW, (init) => {
      const ms = agreedAfterMs(slowStory(init))
      assert.ok(ms <= 3 * init.roundTripMs + SLOW_SPARE_MS, `${ms} ms`)
    }),
    { numRuns: 300 },
  )
  t.pass()
})
