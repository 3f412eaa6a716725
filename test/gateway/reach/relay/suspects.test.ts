/** When the packets of a link go two ways, which ones, and for how long. */
import t from 'tap'
import {
  SUSPECTS_APART_MS,
  SUSPECT_MS,
  SUSPECT_SETTLES_MS,
  type SuspectLink,
  Suspects,
  MOST_SUSPECTS,
} from '../../../../gateway/reach/relay/suspects.ts'
import { planSharedPorts } from '../../../../gateway/reach/relay/plan-shared-port.ts'
import { FakeNft } from '../../../../kernel/fake/fake-nft.ts'
import { formatAddressPort, parseAddressPort } from '../../../../model/addresses/addresses.ts'

const [DIRECT, OSLO, RIGA, WEB] = ['198.51.100.1:41000', '203.0.113.1:4601', '203.0.113.2:4605', '127.0.0.1:40001']
const IPV6 = '[2001:db8::1]:4605'

type Moment = readonly [
  ms: number,
  what: 'well' | 'suspect' | 'down',
  at: string | undefined,
  ways: string,
  end?: string,
]

const PLACES = [OSLO, RIGA].map((at) => ({ cluster: 'oslo', at: parseAddressPort(at) }))
const link = (what: Moment[1], at: string | undefined, change: Partial<SuspectLink> = {}): SuspectLink => ({
  ...{ key: 'roma', device: 4500, state: what === 'down' ? 'down' : 'up', isSuspect: what === 'suspect' },
  ...{ at: at === undefined ? undefined : parseAddressPort(at), places: PLACES },
  ...change,
})
const waysOf = (doubts: Suspects): string =>
  doubts.ways.map(({ to, second }) => `${formatAddressPort(to)} and ${formatAddressPort(second)}`).join()

const BOTH = `${DIRECT} and ${OSLO}`
const STORIES: readonly (readonly [say: string, looks: readonly Moment[], places?: readonly string[]])[] = [
  ['well', [[0, 'well', DIRECT, '']]],
  [
    'the first way answers again: for some time longer, and not again at once',
    [
      [0, 'suspect', DIRECT, BOTH],
      [200, 'well', DIRECT, BOTH],
      [200 + SUSPECT_SETTLES_MS - 1, 'well', DIRECT, BOTH],
      [200 + SUSPECT_SETTLES_MS, 'well', DIRECT, '', 'answered'],
      [SUSPECTS_APART_MS - 1, 'suspect', DIRECT, ''],
      [SUSPECTS_APART_MS, 'suspect', DIRECT, BOTH],
    ],
  ],
  [
    'an answer between two silences is no end',
    [
      [0, 'suspect', DIRECT, BOTH],
      [100, 'well', DIRECT, BOTH],
      [1000, 'suspect', DIRECT, BOTH],
      [1200, 'well', DIRECT, BOTH],
      [100 + SUSPECT_SETTLES_MS, 'well', DIRECT, BOTH],
    ],
  ],
  [
    'the link has moved',
    [
      [0, 'suspect', DIRECT, BOTH],
      [60, 'well', DIRECT, BOTH],
      [1000, 'well', OSLO, '', 'moved'],
    ],
  ],
  [
    'the second way is silent, too',
    [
      [0, 'suspect', DIRECT, BOTH],
      [500, 'suspect', OSLO, `${OSLO} and ${RIGA}`],
    ],
  ],
  [
    'the link goes down',
    [
      [0, 'suspect', DIRECT, BOTH],
      [1100, 'down', DIRECT, '', 'down'],
      [1200, 'down', OSLO, ''],
    ],
  ],
  [
    'the time is over',
    [
      [0, 'suspect', DIRECT, BOTH],
      [SUSPECT_MS - 1, 'suspect', DIRECT, BOTH],
      [SUSPECT_MS, 'suspect', DIRECT, '', 'unsettled'],
      [SUSPECT_MS + 1, 'suspect', DIRECT, ''],
    ],
  ],
  ['from one relay to the other', [[0, 'suspect', OSLO, `${OSLO} and ${RIGA}`]]],
  ['no other place', [[0, 'suspect', OSLO, '']], [OSLO]],
  ['nowhere yet', [[0, 'suspect', undefined, '']]],
  ['port 443 is a socket of this node', [[0, 'suspect', DIRECT, '']], [WEB]],
  ['as is the present place', [[0, 'suspect', WEB, '']]],
  ['the table is one of IPv4', [[0, 'suspect', DIRECT, '']], [IPV6]],
]

t.test('stories', (t) => {
  for (const [say, looks, places] of STORIES) {
    const doubts = new Suspects()
    const change = places && { places: places.map((at) => ({ cluster: 'oslo', at: parseAddressPort(at) })) }
    for (const [ms, what, at, ways, end = ''] of looks) {
      t.equal(doubts.look([link(what, at, change)], ms).join(), end, `${say}, ${ms} ms`)
      t.equal(waysOf(doubts), ways, `${say}, ${ms} ms`)
    }
  }
  t.end()
})

t.test('what is due, and which links may have moved', (t) => {
  const doubts = new Suspects()
  t.equal(doubts.dueMs, Infinity)
  doubts.look([link('suspect', DIRECT)], 100)
  t.equal(doubts.dueMs, 100 + SUSPECT_MS)
  doubts.look([link('well', DIRECT)], 300)
  t.equal(doubts.dueMs, 300 + SUSPECT_SETTLES_MS)
  doubts.look([link('well', OSLO)], 1000)
  t.equal(doubts.dueMs, Infinity)
  t.same([...doubts.recent(99 + SUSPECT_MS)], ['roma'], 'also after its end')
  t.same([...doubts.recent(100 + SUSPECT_MS)], [])
  doubts.look([], 1001)
  t.same([...doubts.recent(1001)], [], 'a link that is gone')
  t.end()
})

t.test('two far ends that have called from one place, as any of them can', async (t) => {
  const doubts = new Suspects()
  const others = [
    { key: 'bern', places: PLACES.slice(1) },
    { key: 'wien', device: 4501 },
  ]
  doubts.look([link('suspect', DIRECT), ...others.map((change) => link('suspect', DIRECT, change))], 0)
  t.strictSame(
    doubts.ways.map(({ device, second }) => `${device} ${formatAddressPort(second)}`),
    [`4500 ${OSLO}`, `4501 ${OSLO}`],
    'the place of a device has one second place',
  )
  await new FakeNft().run(planSharedPorts([{ device: 4500, socket: 4590 }], [], doubts.ways))
})

t.test('the far end may have moved the link to its proven place since that was last read', (t) => {
  const doubts = new Suspects()
  const looks = [
    [0, 'suspect', OSLO, `${OSLO} and ${RIGA},${BOTH}`, ''],
    [1000, 'suspect', DIRECT, BOTH, ''],
    [1200, 'well', OSLO, '', 'moved'],
  ] as const
  for (const [ms, what, at, ways, end] of looks) {
    t.equal(doubts.look([link(what, at, { punched: parseAddressPort(DIRECT) })], ms).join(), end)
    t.equal(waysOf(doubts), ways, `${ms} ms`)
  }
  const one = new Suspects()
  one.look([link('suspect', OSLO, { places: PLACES.slice(0, 1), punched: parseAddressPort(DIRECT) })], 0)
  t.equal(waysOf(one), BOTH, 'a single relay')
  t.end()
})

t.test('places that failed come last, and not every silent link has a second one', (t) => {
  const failed = PLACES.map((place, i) => (i === 0 ? { ...place, failed: true as const } : place))
  const one = new Suspects()
  one.look([link('suspect', DIRECT, { places: failed })], 0)
  t.equal(waysOf(one), `${DIRECT} and ${RIGA}`)
  const last = new Suspects()
  last.look([link('suspect', DIRECT, { places: failed.slice(0, 1) })], 0)
  t.equal(waysOf(last), BOTH, 'a relay that failed may be well by now, and both ends are there')
  const many = new Suspects()
  const links = Array.from({ length: MOST_SUSPECTS + 5 }, (_, i) =>
    link('suspect', `198.51.100.1:${41_000 + i}`, { key: `roma${i}` }),
  )
  many.look(links, 0)
  t.equal(many.ways.length, MOST_SUSPECTS)
  many.look(links, 100)
  t.equal(many.ways.length, MOST_SUSPECTS)
  many.look(links, SUSPECT_MS)
  many.look(links, SUSPECT_MS + 1)
  t.equal(many.ways.length, 5, 'the others have their time')
  t.end()
})
