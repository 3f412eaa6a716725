/** What is remembered of the places of a link, and the candidates that the status lists of it. */
import fc from 'fast-check'
import t from 'tap'
import { LinkPlaces, PLACE_FAILS_MS, type PlacedLink } from '../../../gateway/status/link-places.ts'
import { linkCandidates } from '../../../gateway/status/plan-link-candidates.ts'
import { type AddressPort, parseAddress } from '../../../model/addresses/addresses.ts'
import { whyNotBetter } from '../../../model/lanes/lanes.ts'
import { MAX_LINK_CANDIDATES } from '../../../model/model.ts'

const place = (text: string, port = 4500): AddressPort => ({ address: parseAddress(text), port })
const [A, B] = [place('198.51.100.7'), place('10.0.0.5')]
const [RELAY, WEB] = [place('203.0.113.9', 4601), place('127.0.0.1', 999)]
const START = Date.parse('2026-11-25T12:00:00Z')

const up = (at: AddressPort, more: Partial<PlacedLink> = {}): PlacedLink => ({
  ...{ key: 'k', state: 'up', at, choice: { how: 'keep', at }, figures: { rttMs: 12.3456, loss: 0.05, mtu: 1420 } },
  ...more,
})
const calling = (at: AddressPort, more: Partial<PlacedLink> = {}): PlacedLink => ({
  ...{ key: 'k', state: 'connecting', at, choice: { how: 'try', at } },
  ...more,
})

/** A look at one link each second. */
function seen(...links: readonly PlacedLink[]): LinkPlaces {
  const places = new LinkPlaces()
  for (const [i, link] of links.entries()) places.look([link], START + i * 1000, i * 1000)
  return places
}

const PLANNED = {
  candidates: [
    { kind: 'public', address: '198.51.100.7', port: 4500 },
    { kind: 'private', address: '10.0.0.5', port: 4500 },
  ],
} as const
type Init = Parameters<typeof linkCandidates>[0]
const INIT = { planned: PLANNED, state: 'up', at: B, figures: { rttMs: 3 }, trips: [] } as const

t.test('in use, proven, failed and untried', (t) => {
  const rows: readonly [title: string, links: readonly PlacedLink[], want: object[]][] = [
    [
      'only the one in use is known',
      [up(B)],
      [
        { kind: 'private', state: 'in-use' },
        { kind: 'public', state: 'untried' },
      ],
    ],
    [
      'one that carried the link before',
      [up(A), up(B)],
      [
        { at: '10.0.0.5:4500', state: 'in-use', rttMs: 3, measuredTime: undefined },
        {
          ...{ at: '198.51.100.7:4500', state: 'proven', since: '2026-11-25T12:00:00.000Z' },
          ...{ rttMs: 12.35, loss: 0.05, mtu: 1420, measuredTime: '2026-11-25T12:00:00.000Z' },
        },
      ],
    ],
    [
      'one that never answered',
      [calling(A), calling(B), up(B)],
      [{ state: 'in-use' }, { state: 'failed', reason: 'LaneConnecting', since: '2026-11-25T12:00:01.000Z' }],
    ],
    [
      'one that answers no more',
      [up(A), calling(A, { state: 'down' }), calling(B, { state: 'down' }), up(B)],
      [{ state: 'in-use' }, { state: 'failed', reason: 'LaneProbeTimeout', rttMs: 12.35 }],
    ],
    [
      'a failure ends when it answers again',
      [calling(A), calling(B), up(A), up(B)],
      [{ state: 'in-use' }, { state: 'proven', reason: undefined }],
    ],
    [
      'a try while the link counts as up proves nothing',
      [up(B), up(A, { choice: { how: 'try', at: A } }), up(B)],
      [{ state: 'in-use' }, { state: 'failed', reason: 'LaneConnecting' }],
    ],
  ]
  for (const [title, links, want] of rows) {
    const found = linkCandidates({ ...INIT, places: seen(...links).of('k') })
    t.equal(found.length, want.length, title)
    t.match(found, want, title)
  }
  t.end()
})

t.test('a call is given its time, and a link that is gone is forgotten', (t) => {
  const places = new LinkPlaces()
  places.look([calling(A)], START, 0)
  places.look([calling(B)], START + 1, PLACE_FAILS_MS - 1)
  t.equal(places.of('k').size, 0, 'too short to have failed')
  places.look([calling(B)], START + 2, 2 * PLACE_FAILS_MS)
  t.same([...places.of('k').keys()], ['10.0.0.5:4500'])
  places.look([], START + 3, 3 * PLACE_FAILS_MS)
  t.equal(places.of('k').size, 0)
  t.end()
})

t.test('relays, by their names and what they answer', (t) => {
  const trips = [
    { relay: 'oslo', at: RELAY, is: 'bound', hasFar: true, rttMs: 7 },
    { relay: 'lima', at: place('203.0.113.1'), is: 'bound', hasFar: false, rttMs: 9 },
    { relay: 'rome', at: place('203.0.113.2'), is: 'asking', hasFar: false },
    { relay: 'bonn', at: place('203.0.113.3'), is: 'refuses', hasFar: false, why: 'full\u001b[2J' },
  ] as const
  const relayPlaces = [
    { cluster: 'oslo', at: RELAY },
    { cluster: 'tcp-443 relay.example', at: WEB },
  ]
  const init = { ...INIT, at: RELAY, usingRelay: 'oslo', planned: { candidates: [], relayPlaces }, trips }
  const found = linkCandidates({ ...init, places: new Map(), punched: A })
  t.match(found, [
    { kind: 'relay', relay: 'oslo', state: 'in-use', relayRttMs: 7, rttMs: 3 },
    { kind: 'punched', at: '198.51.100.7:4500', state: 'untried' },
    { kind: 'tcp-443', relay: 'tcp-443 relay.example', at: undefined, state: 'untried' },
    { relay: 'lima', state: 'untried', note: 'the far end is not at this relay', relayRttMs: 9 },
    { relay: 'rome', state: 'untried', note: 'the relay has not answered yet' },
    { relay: 'bonn', state: 'failed', note: 'the relay refuses: full?[2J' },
  ])
  t.equal(found.length, 6)
  const trouble = { reason: 'RelayUnreachable', why: 'no answer' } as const
  const webRelays = [
    { name: 'tcp-443 relay.example', is: 'connected', rttMs: 40 },
    { name: 'tcp-443 far.example', is: 'waiting', trouble },
  ] as const
  const web = linkCandidates({ ...init, places: new Map(), webRelays }).filter(({ kind }) => kind === 'tcp-443')
  t.match(web, [
    { relay: 'tcp-443 relay.example', state: 'untried', relayRttMs: 40 },
    { relay: 'tcp-443 far.example', state: 'failed', reason: 'RelayUnreachable', note: 'no answer' },
  ])
  t.equal(linkCandidates({ ...INIT, places: new Map(), webRelays }).length, 2, 'not of a direct link')
  t.end()
})

t.test('a relay that was seen keeps its name, and is no place from which the far end calls', (t) => {
  const relayed = { relay: 'oslo' } as const
  const rows: readonly [title: string, links: readonly PlacedLink[], more: Partial<Init>, want: object[]][] = [
    [
      'it carried the link, and is asked no more',
      [up(RELAY, relayed), up(B)],
      {},
      [{ at: '203.0.113.9:4601', kind: 'relay', relay: 'oslo', state: 'proven' }],
    ],
    [
      'it answers no more, and is asked again',
      [up(RELAY, relayed), calling(RELAY, { ...relayed, state: 'down' }), calling(B, { state: 'down' }), up(B)],
      { trips: [{ relay: 'oslo', at: place('203.0.113.9', 4600), is: 'asking', hasFar: false }] },
      [
        { kind: 'relay', relay: 'oslo', state: 'failed', reason: 'LaneProbeTimeout' },
        { kind: 'relay', relay: 'oslo', state: 'untried' },
      ],
    ],
    [
      'it is bound again, at another port',
      [up(RELAY, relayed), up(B)],
      { trips: [{ relay: 'oslo', at: place('203.0.113.9', 4602), is: 'bound', hasFar: true }] },
      [{ at: '203.0.113.9:4602', kind: 'relay', relay: 'oslo' }],
    ],
    [
      'it carries the link',
      [up(RELAY, relayed)],
      { at: RELAY, usingRelay: 'oslo' },
      [{ relay: 'oslo', state: 'in-use' }],
    ],
    ['a relay whose name was not known', [up(RELAY), up(B)], {}, []],
  ]
  for (const [title, links, more, want] of rows) {
    const found = linkCandidates({ ...INIT, ...more, places: seen(...links).of('k') })
    const relays = found.filter(({ kind }) => kind === 'relay' || kind === 'called')
    t.equal(relays.length, want.length, title)
    t.match(relays, want, title)
  }
  const links = [up(RELAY, relayed), calling(RELAY, { ...relayed, state: 'down' }), calling(WEB), up(WEB)]
  const candidates = linkCandidates({ ...INIT, at: WEB, usingRelay: 'tcp-443 x', places: seen(...links).of('k') })
  const why = whyNotBetter({
    ...{ connection: { state: 'up', candidates }, rung: 'tcp-443', own: undefined, far: undefined, conditions: [] },
  })
  t.match(why.at(-1), { rung: 'relayed', reason: 'LaneProbeTimeout', why: /^oslo: nothing has answered at 203/ })
  t.end()
})

t.test('a far end with many addresses hides neither the punched place nor relays', (t) => {
  const candidates = Array.from({ length: 16 }, (_, i) => {
    return { kind: 'public', address: `192.0.2.${i + 1}`, port: 4500 } as const
  })
  const trips = Array.from({ length: 6 }, (_, i) => {
    return { relay: `r${i}`, at: place(`203.0.113.${i + 1}`), is: 'asking', hasFar: false } as const
  })
  const init = { ...INIT, planned: { candidates }, at: WEB, usingRelay: 'tcp-443 x', places: new Map(), punched: B }
  const kinds = (found: ReturnType<typeof linkCandidates>): object =>
    Object.fromEntries([...Map.groupBy(found, ({ kind }) => kind)].map(([kind, { length }]) => [kind, length]))
  const found = linkCandidates({ ...init, trips })
  t.equal(found.length, MAX_LINK_CANDIDATES)
  t.equal(found[0]?.state, 'in-use')
  t.strictSame(kinds(found), { 'tcp-443': 1, public: 10, punched: 1, relay: 4 })
  t.strictSame(kinds(linkCandidates({ ...init, trips: [] })), { 'tcp-443': 1, public: 14, punched: 1 })
  t.strictSame(kinds(linkCandidates({ ...init, trips, planned: PLANNED })), {
    ...{ 'tcp-443': 1, public: 1, private: 1, relay: 6 },
  })
  t.strictSame(kinds(linkCandidates({ ...init, trips, most: 4 })), { 'tcp-443': 1, public: 1, punched: 1, relay: 1 })
  t.end()
})

t.test('a relay on port 443 without a connection, and probes through both NATs', (t) => {
  const rows = [
    ['connected', 'not both ends are at this relay'],
    ['connecting', 'the relay has not answered yet'],
    ['waiting', 'the connection to the relay has ended; it is made again'],
    ['idle', 'the relay is not called yet'],
  ] as const
  for (const [is, note] of rows) {
    const init = { ...INIT, at: RELAY, usingRelay: 'oslo', places: new Map(), webRelays: [{ name: 'tcp-443 x', is }] }
    t.match(linkCandidates(init).at(-1), { relay: 'tcp-443 x', state: 'untried', note }, is)
  }
  const init = { ...INIT, at: RELAY, usingRelay: 'oslo', places: new Map(), unpunched: 'BothNatsVary' } as const
  const failed = { kind: 'punched', state: 'failed', reason: 'BothNatsVary', at: undefined }
  t.match(
    linkCandidates(init).filter(({ kind }) => kind === 'punched'),
    [failed],
  )
  t.match(
    linkCandidates({ ...init, punched: place('192.0.2.9') }).filter(({ kind }) => kind === 'punched'),
    [{ state: 'untried', at: '192.0.2.9:4500' }],
  )
  t.end()
})

t.test('whatever happens, a link has few candidates, each once, and one in use at most', (t) => {
  const at = fc.integer({ min: 1, max: 60 }).map((n) => place(`192.0.2.${n}`))
  const link = fc.record({ at, isUp: fc.boolean(), isTry: fc.boolean() })
  fc.assert(
    fc.property(fc.array(link, { maxLength: 80 }), at, (links, now) => {
      const all = links.map((one) => {
        const choice = { how: one.isTry ? ('try' as const) : ('keep' as const), at: one.at }
        return up(one.at, { choice, state: one.isUp ? 'up' : 'down' })
      })
      const found = linkCandidates({ ...INIT, at: now, places: seen(...all).of('k') })
      const names = found.map((one) => one.at)
      const used = found.filter(({ state }) => state === 'in-use')
      return found.length <= MAX_LINK_CANDIDATES && new Set(names).size === names.length && used.length === 1
    }),
  )
  t.end()
})
