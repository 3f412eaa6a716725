/** Relays that lose links, or let nothing through. */
import t from 'tap'
import {
  FLAPS_FORGOTTEN_MS,
  FLAP_HOLD_MS,
  LONGEST_FLAP_HOLD_MS,
  RELAY_FAILS_MS,
  RelayFlaps,
  RelayTurns,
} from '../../../../gateway/reach/relay/relay-failures.ts'
import { movingLinks } from '../../../../gateway/reach/relay/relay-moves.ts'
import { chooseEndpoint } from '../../../../gateway/reach/choose-endpoint.ts'
import type { RelayPlace } from '../../../../gateway/world/gateway-world.ts'
import { formatAddressPort, parseAddressPort } from '../../../../model/addresses/addresses.ts'

const [OSLO, WEB] = ['203.0.113.1:4601', '127.0.0.1:40001']
const PLACES: readonly RelayPlace[] = [OSLO, WEB].map((at) => ({ cluster: 'oslo', at: parseAddressPort(at) }))

type State = 'up' | 'down' | 'connecting'
const link = (state: State, at: string, key = 'roma') => ({ key, state, at: parseAddressPort(at) })
const order = (flaps: RelayFlaps, nowMs: number, key = 'roma'): string =>
  flaps
    .sorted(key, PLACES, nowMs)
    .map(({ at, failed }) => `${formatAddressPort(at)}${failed === true ? ' failed' : ''}`)
    .join(', ')

t.test('one that loses the link comes last, for a time that doubles', async (t) => {
  const flaps = new RelayFlaps()
  let nowMs = 0
  t.equal(order(flaps, nowMs), `${OSLO}, ${WEB}`)
  for (let holdMs = FLAP_HOLD_MS; holdMs <= 2 * LONGEST_FLAP_HOLD_MS; holdMs *= 2) {
    flaps.look([link('up', OSLO)], nowMs)
    t.equal(order(flaps, nowMs), `${OSLO}, ${WEB}`, 'it carries the link')
    nowMs += 1000
    flaps.look([link('down', OSLO)], nowMs)
    flaps.look([link('down', WEB)], nowMs + 10)
    flaps.look([link('up', WEB)], nowMs + 20)
    const untilMs = nowMs + Math.min(holdMs, LONGEST_FLAP_HOLD_MS)
    t.equal(order(flaps, untilMs - 1), `${WEB}, ${OSLO} failed`, `held back for ${holdMs} ms`)
    nowMs = untilMs
    t.equal(order(flaps, nowMs), `${OSLO}, ${WEB}`)
  }
  flaps.look([link('connecting', WEB)], nowMs + FLAPS_FORGOTTEN_MS)
  flaps.look([link('up', OSLO)], nowMs + FLAPS_FORGOTTEN_MS)
  flaps.look([link('down', OSLO)], nowMs + FLAPS_FORGOTTEN_MS)
  t.equal(order(flaps, nowMs + FLAPS_FORGOTTEN_MS + FLAP_HOLD_MS), `${OSLO}, ${WEB}`, 'it begins again')
})

t.test('what is no loss', async (t) => {
  const rows: readonly (readonly [say: string, ...steps: readonly ReturnType<typeof link>[]])[] = [
    ['it moved', link('up', OSLO), link('up', WEB), link('down', '198.51.100.1:4500')],
    ['it was never up', link('connecting', OSLO), link('down', OSLO)],
    ['it was up directly', link('up', '198.51.100.1:4500'), link('down', '198.51.100.1:4500')],
    ['another link', link('up', OSLO, 'bern'), link('down', OSLO, 'bern')],
  ]
  for (const [say, ...steps] of rows) {
    const flaps = new RelayFlaps()
    steps.forEach((one, i) => flaps.look([one], i))
    const first = order(flaps, 10).split(', ')[0]
    t.equal(first, OSLO, say)
  }
})

t.test('a try of another place that fails is no loss of the relay, wherever the far end draws the link', async (t) => {
  for (const [say, lastAt] of [
    ['it stays at the other place', '198.51.100.1:4500'],
    ['the far end draws it back', OSLO],
  ] as const) {
    const flaps = new RelayFlaps()
    flaps.look([link('up', OSLO)], 0)
    for (const ms of [400, 800]) flaps.look([link('up', lastAt)], ms, new Set(['roma']))
    flaps.look([link('down', lastAt)], 1200, new Set(['roma']))
    t.equal(order(flaps, 1200), `${OSLO}, ${WEB}`, say)
    flaps.look([link('up', OSLO)], 2000)
    flaps.look([link('down', OSLO)], 3000)
    t.equal(order(flaps, 3000), `${WEB}, ${OSLO} failed`, 'without a try it is one')
  }
})

t.test('a link goes on by another relay at once, does not move back, and makes do with what there is', async (t) => {
  const flaps = new RelayFlaps()
  flaps.look([link('up', OSLO)], 0)
  flaps.look([link('down', OSLO)], 1500)
  const facts = { monotonicMs: 1500, rotateMs: 5000, jitter: 0, sessionMs: 180_000, callsFirst: true, callable: false }
  const session = { at: parseAddressPort(OSLO), carries: true, rxBytes: 1, txBytes: 1, handshakeMs: 0 }
  const health = { state: 'down', sinceMs: 1500 } as const
  const chosen = (relays: readonly RelayPlace[]): string => {
    const { at } = chooseEndpoint({ ...facts, candidates: [], relays, link: session, health })
    return at === undefined ? 'none' : formatAddressPort(at)
  }
  t.equal(chosen(flaps.sorted('roma', PLACES, 1500)), WEB)
  t.equal(chosen(flaps.sorted('roma', PLACES.slice(0, 1), 1500)), OSLO, 'there is no other one')

  const inUse = { remoteLane: 0, cluster: 'roma', endpoint: 'roma.gw-lane0', identity: 'roma', hidden: true } as const
  const moving = (nowMs: number): number => {
    const places = new Map([['roma', flaps.sorted('roma', PLACES, nowMs)]])
    const links = [{ ...inUse, ...link('up', WEB) }]
    const [one] = movingLinks({ links, places, own: { rttMs: new Map() }, ownEndpoint: 'bern.gw-lane0' })
    return one?.ways.length ?? 0
  }
  t.equal(moving(1500), 1, 'it is no way to move to')
  t.equal(moving(1500 + FLAP_HOLD_MS), 2)
})

t.test('what is remembered is bounded', async (t) => {
  const flaps = new RelayFlaps()
  const at = (i: number) => `203.0.113.1:${4601 + i}`
  for (let i = 0; i < 40; i++) for (const state of ['up', 'down'] as const) flaps.look([link(state, at(i))], i)
  const places = Array.from({ length: 40 }, (_, i) => ({ cluster: 'oslo', at: parseAddressPort(at(i)) }))
  t.equal(flaps.sorted('roma', places, 50).filter(({ failed }) => failed === true).length, 8)
  flaps.look([], 60)
  t.equal(flaps.sorted('roma', places, 70).filter(({ failed }) => failed === true).length, 0, 'the link is gone')
})

t.test('a relay through which nothing comes has failed', async (t) => {
  const turns = new RelayTurns()
  const at = parseAddressPort('203.0.113.1:4607')
  const look = (nowMs: number, change: { readonly at?: typeof at; readonly state?: State } = {}) =>
    turns.look([{ key: 'roma', state: 'connecting', at, ...change }], nowMs).length
  t.equal(look(0), 0)
  t.equal(look(RELAY_FAILS_MS - 1), 0)
  t.equal(look(RELAY_FAILS_MS), 1)
  t.equal(look(RELAY_FAILS_MS + 1, { at: parseAddressPort('203.0.113.2:4609') }), 0, 'another relay')
  t.equal(look(5000, { at: parseAddressPort('10.0.0.1:4500') }), 0, 'a call without a relay')
  t.equal(look(6000), 0, 'its turn begins')
  t.equal(look(9000, { state: 'up' }), 0, 'an answer')
  t.equal(look(9001), 0)
  const slow = new RelayTurns()
  const lookSlow = (nowMs: number) => slow.look([link('connecting', '203.0.113.1:4607')], nowMs, () => 4).length
  t.strictSame(
    [0, 4 * RELAY_FAILS_MS - 1, 4 * RELAY_FAILS_MS].map(lookSlow),
    [0, 0, 1],
    'a slow one is given more time',
  )
})
