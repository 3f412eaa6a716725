/** When links that are up move from one relay to another one. */
import fc from 'fast-check'
import t from 'tap'
import {
  MOVES_APART_MS,
  MOVE_SETTLES_MS,
  MOVE_STAYS_MS,
  type MovingLink,
  RelayMoves,
  WAY_NEARER_MS,
  WAY_PROVEN_MS,
  movingLinks,
} from '../../../../gateway/reach/relay/relay-moves.ts'
import { relayMark } from '../../../../model/lanes/lanes.ts'
import { formatAddressPort, parseAddressPort } from '../../../../model/addresses/address-port.ts'

const WEB = parseAddressPort('127.0.0.1:9000')
const [OSLO, RIGA] = [parseAddressPort('203.0.113.1:4601'), parseAddressPort('203.0.113.2:4605')]
const way = (at: typeof WEB, costMs?: number, load = 0) => ({ at, isWeb: at === WEB, costMs, load })

function story(base: Partial<MovingLink>) {
  const moves = new RelayMoves()
  return (nowMs: number, change: Partial<MovingLink> = {}): string => {
    const link = { key: 'roma', isUp: true, at: WEB, isMover: true, ways: [], ...base, ...change }
    const to = moves.look([link], nowMs).get('roma')
    return to === undefined ? '' : formatAddressPort(to)
  }
}

t.test('from port 443 to datagrams, once both ends have been bound for some time', async (t) => {
  const look = story({ at: WEB, ways: [way(OSLO), way(WEB)] })
  t.equal(look(0, { ways: [way(WEB)] }), '', 'no relay')
  t.equal(look(1000), '')
  t.equal(look(1000 + WAY_PROVEN_MS - 1), '')
  t.equal(look(1000 + WAY_PROVEN_MS), formatAddressPort(OSLO))
  t.equal(look(1100 + WAY_PROVEN_MS), formatAddressPort(OSLO), 'the far end draws it back at first')
  t.equal(look(1200 + WAY_PROVEN_MS, { at: OSLO }), '')
  t.equal(look(60_000, { at: OSLO }), '', 'it stays')
})

t.test('a relay that goes away and comes back begins again', async (t) => {
  const look = story({ at: WEB, ways: [way(OSLO), way(WEB)] })
  look(0)
  look(3000, { ways: [way(WEB)] })
  t.equal(look(WAY_PROVEN_MS), '')
  t.equal(look(2 * WAY_PROVEN_MS), formatAddressPort(OSLO))
})

t.test('to a relay that is clearly nearer', async (t) => {
  const rows = [
    ['nearer', 100, 70, true],
    ['by less than a fifth', 100, 85, false],
    ['by less than 10 ms', 20, 11, false],
    ['farther', 70, 100, false],
    ['not known', 100, undefined, false],
  ] as const
  for (const [say, present, other, moves] of rows) {
    const look = story({ at: OSLO, ways: [way(OSLO, present), way(RIGA, other)] })
    look(0)
    t.equal(look(WAY_NEARER_MS - 1), '', say)
    t.equal(look(WAY_NEARER_MS), moves ? formatAddressPort(RIGA) : '', say)
  }
})

t.test('load holds links back, and they do not swing together', async (t) => {
  const moves = new RelayMoves()
  const links = Array.from({ length: 10 }, (_, i) => ({ key: `link${i}`, at: OSLO }))
  const moved: string[] = []
  for (let nowMs = 0; nowMs < 20 * MOVES_APART_MS; nowMs += 1000) {
    const load = links.filter(({ at }) => at === RIGA).length / links.length
    const ways = [way(OSLO, 60, 1 - load), way(RIGA, 30, load)]
    const looked = moves.look(
      links.map(({ key, at }) => ({ key, isUp: true, isMover: true, at, ways })),
      nowMs,
    )
    for (const [key, to] of looked) moved.push(`${key} ${formatAddressPort(to)}`)
    for (const link of links) link.at = looked.get(link.key) ?? link.at
  }
  t.equal(moved.length, links.length, moved.join(', '))
  const look = story({ at: OSLO, ways: [way(OSLO, 60), way(RIGA, 30, 0.8)] })
  look(0)
  t.equal(look(WAY_NEARER_MS), '', 'a full one draws none')
})

t.test('one end moves the link', async (t) => {
  const look = story({ at: WEB, ways: [way(OSLO), way(WEB)], isMover: false })
  look(0)
  t.equal(look(10 * WAY_PROVEN_MS), '')
})

t.test('a move that fails is tried again after pauses that grow', async (t) => {
  const look = story({ at: WEB, ways: [way(OSLO), way(WEB)] })
  look(0)
  const moved: number[] = []
  let untilMs = 0
  for (let nowMs = 1000; nowMs < 10 * MOVES_APART_MS; nowMs += 1000) {
    const isMoving = look(nowMs, nowMs < untilMs ? { isUp: false, at: OSLO } : {}) !== ''
    if (isMoving && nowMs >= untilMs) {
      moved.push(nowMs)
      untilMs = nowMs + 3000
    }
  }
  t.equal(moved.length, 3, moved.join(' '))
  const [first = 0, second = 0, third = 0] = moved
  t.ok(second - first >= 2 * MOVES_APART_MS)
  t.ok(third - second >= 4 * MOVES_APART_MS)
})

t.test('a move has failed if the far end draws the link back', async (t) => {
  const startMs = WAY_PROVEN_MS
  const again = (...looks: readonly (readonly [ms: number, at: typeof WEB])[]): number => {
    const look = story({ at: WEB, ways: [way(OSLO), way(WEB)] })
    look(0)
    look(startMs)
    for (const [ms, at] of looks) look(startMs + ms, { at })
    let nowMs = startMs + MOVE_SETTLES_MS + MOVE_STAYS_MS
    while (look(nowMs) === '') nowMs += 1000
    return nowMs - startMs
  }
  const drawn = [0, 1, 2, 3, 4].flatMap((i) => [[900 * i + 400, OSLO] as const, [900 * i + 800, WEB] as const])
  t.equal(again(...drawn, [4900, OSLO], [5000, OSLO], [5600, WEB]), 2 * MOVES_APART_MS, 'it was there for a moment')
  t.equal(again(...drawn, [4900, OSLO], [6900, OSLO]), MOVES_APART_MS, 'the far end has followed late')
  t.equal(again([400, OSLO], [5000, OSLO], [5600, WEB]), MOVES_APART_MS, 'it left later')
})

t.test('a move has failed as soon as a link is back that answered no probes at the other relay', async (t) => {
  const ways = [way(OSLO, 100), way(RIGA, 60)]
  const isSuspect = { isSuspect: true } as const
  const moved = (): ((afterMs: number, change?: Partial<MovingLink>) => string) => {
    const look = story({ at: OSLO, ways })
    look(0)
    t.equal(look(WAY_NEARER_MS), formatAddressPort(RIGA))
    return (afterMs, change) => look(WAY_NEARER_MS + afterMs, change)
  }
  const silent = moved()
  silent(400, { at: RIGA })
  t.equal(silent(700, { at: RIGA, ...isSuspect }), '')
  t.equal(silent(900, isSuspect), '', 'it is not sent there again')
  t.equal(silent(MOVES_APART_MS), '', 'and has to wait for longer')
  const drawn = moved()
  drawn(400, { at: RIGA })
  t.equal(drawn(800), formatAddressPort(RIGA), 'the far end has not followed yet, and nothing was in doubt')
  const before = story({ at: OSLO, ways })
  before(0)
  t.equal(before(WAY_NEARER_MS, isSuspect), '', 'no move begins in doubt')
  before(WAY_NEARER_MS + 1000)
  t.equal(before(2 * WAY_NEARER_MS + 999), '')
  t.equal(before(2 * WAY_NEARER_MS + 1000), formatAddressPort(RIGA))
  t.strictSame(
    movingLinks({
      ...{ links: ['roma', 'bern'].map(doubtful), places: new Map(), own: { rttMs: new Map() } },
      ...{ ownEndpoint: 'paris.gw-lane0', suspected: new Set(['roma']) },
    }).map((one) => one.isSuspect),
    [true, undefined],
  )
})

function doubtful(key: string) {
  const base = { key, remoteLane: 0, cluster: key, endpoint: `${key}.gw-lane0`, identity: `${key}-identity` }
  return { ...base, hidden: true, state: 'up' as const, at: OSLO }
}

t.test('which ways links have', async (t) => {
  const relay = (cluster: string, change: object) => {
    const base = {
      key: cluster,
      remoteLane: 0,
      cluster,
      endpoint: `${cluster}.gw-lane0`,
      identity: `${cluster}-identity`,
    }
    return { ...base, hidden: false, state: 'up' as const, ...change }
  }
  const rtts = (ms: number) => ({ rttMs: new Map([[relayMark('oslo-identity'), ms]]) })
  const at = (address: string) => parseAddressPort(`${address}:4500`)
  const oslo = relay('oslo', { relays: true, at: at('203.0.113.1'), relayCosts: { rttMs: new Map(), load: 0.8 } })
  const looked = (where: typeof WEB) => {
    const roma = relay('roma', { at: where, relayCosts: rtts(20) })
    const places = new Map([['roma', [OSLO, WEB].map((place) => ({ cluster: 'oslo', at: place }))]])
    return movingLinks({ links: [oslo, roma], places, own: rtts(10), ownEndpoint: 'paris.gw-lane0' }).at(1)
  }
  t.strictSame(
    looked(OSLO)?.ways,
    [
      { at: OSLO, isWeb: false, costMs: 30, load: 0.8 },
      { at: WEB, isWeb: true, costMs: undefined },
    ],
    'load does not count as distance',
  )
  t.ok(looked(OSLO)?.isMover)
  t.strictSame(looked(at('192.0.2.1'))?.ways, [], 'no relay carries it')
})

t.test('a link that leaves its relay for a moment keeps its pauses', async (t) => {
  const look = story({ at: WEB, ways: [way(OSLO), way(WEB)] })
  look(0)
  look(WAY_PROVEN_MS)
  look(WAY_PROVEN_MS + 3000, { isUp: false })
  look(20_000, { at: parseAddressPort('192.0.2.1:4500'), ways: [] })
  for (let nowMs = 21_000; nowMs < WAY_PROVEN_MS + 2 * MOVES_APART_MS; nowMs += 1000) t.equal(look(nowMs), '')
  t.equal(look(WAY_PROVEN_MS + 2 * MOVES_APART_MS), formatAddressPort(OSLO))
})

t.test('it says which relay a failed move has shown to be dead', async (t) => {
  const moves = new RelayMoves()
  const link = { key: 'roma', isUp: true, at: WEB, isMover: true, ways: [way(OSLO), way(WEB)] }
  moves.look([link], 0)
  moves.look([link], WAY_PROVEN_MS)
  t.strictSame(moves.failed, [])
  moves.look([{ ...link, isUp: false }], WAY_PROVEN_MS + 3000)
  t.strictSame(moves.failed, [{ key: 'roma', at: OSLO }])
  moves.look([{ ...link, isUp: false }], WAY_PROVEN_MS + 3100)
  t.strictSame(moves.failed, [], 'once')
})

t.test('whatever is measured, a link moves at most once in a minute', async () => {
  const cost = fc.option(fc.integer({ min: 0, max: 300 }), { nil: undefined })
  const look = fc.record({ ms: fc.integer({ min: 1, max: 20_000 }), oslo: cost, riga: cost, isUp: fc.boolean() })
  fc.assert(
    fc.property(fc.array(look, { maxLength: 60 }), (looks) => {
      const moves = new RelayMoves()
      const began: number[] = []
      let [nowMs, at, moving] = [0, OSLO, '']
      for (const { ms, oslo, riga, isUp } of looks) {
        nowMs += ms
        const ways = [way(OSLO, oslo), way(RIGA, riga), way(WEB)]
        const to = moves.look([{ key: 'a', isUp, at, isMover: true, ways }], nowMs).get('a')
        const text = to === undefined ? '' : formatAddressPort(to)
        if (text !== '' && moving === '') began.push(nowMs)
        moving = text
        if (to !== undefined) [at, moving] = [to, '']
      }
      return began.every((one, i) => one - (began[i - 1] ?? -Infinity) >= MOVES_APART_MS)
    }),
  )
})

t.test('it says when to look again', async (t) => {
  const moves = new RelayMoves()
  t.equal(moves.dueMs, Infinity)
  const link = { key: 'roma', isUp: true, at: WEB, isMover: true, ways: [way(OSLO), way(WEB)] }
  moves.look([link], 100)
  t.equal(moves.dueMs, 100 + WAY_PROVEN_MS)
  moves.look([link], 100 + WAY_PROVEN_MS)
  t.equal(moves.dueMs, 100 + WAY_PROVEN_MS + MOVE_SETTLES_MS)
})
