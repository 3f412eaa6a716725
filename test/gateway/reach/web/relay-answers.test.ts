/** When an address counts as one that leads to several processes of relays. */
import t from 'tap'
import { RelayNotWantedError, RelayRefusedError } from '../../../../runtime/datagrams/relay-connection.ts'
import { RelayUnreachableError } from '../../../../runtime/datagrams/relay-connection.ts'
import { InstanceWatch, KeysThatYield, reasonOfFailure } from '../../../../gateway/reach/web/relay-answers.ts'

/** What answers at a second, while a connection to `held` is open. */
type Sight = readonly [atS: number, instance: string | undefined, held?: string]

t.test('restarts are none, and ways back are', (t) => {
  const rows: readonly (readonly [what: string, sights: readonly Sight[], variesAtS: number, varies: boolean])[] = [
    ['nothing was seen', [], 0, false],
    [
      'one process',
      [
        [0, 'a'],
        [60, 'a', 'a'],
        [120, 'a', 'a'],
      ],
      120,
      false,
    ],
    [
      'restarts',
      [
        [0, 'a'],
        [60, 'b'],
        [120, 'c'],
        [180, 'd'],
      ],
      180,
      false,
    ],
    [
      'a way back',
      [
        [0, 'a'],
        [60, 'b'],
        [120, 'a'],
      ],
      120,
      true,
    ],
    [
      'a way back over a third',
      [
        [0, 'a'],
        [60, 'b'],
        [120, 'c'],
        [180, 'a'],
      ],
      180,
      true,
    ],
    [
      'a way back after a long time',
      [
        [0, 'a'],
        [60, 'b'],
        [660, 'a'],
      ],
      660,
      false,
    ],
    [
      'just before that',
      [
        [0, 'a'],
        [60, 'b'],
        [659, 'a'],
      ],
      659,
      true,
    ],
    [
      'no word of it',
      [
        [0, undefined],
        [5, undefined],
        [9, undefined],
      ],
      9,
      false,
    ],
    [
      'a successor, while a connection ends',
      [
        [0, 'a'],
        [5, 'b', 'a'],
        [10, 'b', 'a'],
      ],
      10,
      false,
    ],
    [
      'another one besides',
      [
        [0, 'a'],
        [5, 'b', 'a'],
        [15, 'b', 'a'],
      ],
      15,
      true,
    ],
    [
      'another connection meanwhile',
      [
        [0, 'a'],
        [5, 'b', 'a'],
        [15, 'b', 'b'],
        [30, 'b', 'b'],
      ],
      30,
      false,
    ],
    [
      'after ten minutes',
      [
        [0, 'a'],
        [60, 'b'],
        [120, 'a'],
        [180, 'a', 'a'],
        [240, 'a', 'a'],
      ],
      720,
      false,
    ],
    [
      'just before',
      [
        [0, 'a'],
        [60, 'b'],
        [120, 'a'],
        [180, 'a', 'a'],
        [240, 'a', 'a'],
      ],
      719,
      true,
    ],
    [
      'one that has become one',
      [
        [0, 'a'],
        [5, 'b', 'a'],
        [15, 'a', 'a'],
        [700, 'a', 'a'],
      ],
      701,
      false,
    ],
  ]
  for (const [what, sights, atS, varies] of rows) {
    const watch = new InstanceWatch()
    for (const [s, instance, held] of sights) watch.saw(instance, held, s * 1000)
    t.equal(watch.varies(atS * 1000), varies, what)
  }
  t.end()
})

t.test('ever new processes are not remembered without end', (t) => {
  const watch = new InstanceWatch()
  for (let i = 0; i < 100; i++) watch.saw(`i${i}`, undefined, i)
  watch.saw('i0', undefined, 100)
  t.equal(watch.varies(100), false, 'the first is forgotten')
  watch.saw('i98', undefined, 101)
  t.equal(watch.varies(101), true, 'a recent one is not')
  t.end()
})

t.test('a key gives way by its own word, and the oldest words are forgotten', (t) => {
  const keys = new KeysThatYield()
  keys.yields('a', 'b')
  t.same([keys.doesYield('a', 'b'), keys.doesYield('b', 'a'), keys.doesYield('a', 'c')], [true, false, false])
  keys.yields('b', 'c')
  t.same([keys.doesYield('a', 'c'), keys.doesYield('c', 'a'), keys.doesYield('c', 'c')], [true, false, false])
  keys.yields('c', 'a')
  t.same([keys.doesYield('b', 'a'), keys.doesYield('d', 'a')], [true, false], 'a circle ends')
  keys.yields(undefined, 'b')
  for (let i = 0; i < 63; i++) keys.yields(`k${i}`, 'b')
  t.same([keys.doesYield('a', 'b'), keys.doesYield(undefined, 'b'), keys.doesYield('k62', 'b')], [false, true, true])
  t.end()
})

t.test('the reason of a failed call, and by how much clocks differ', (t) => {
  const coded = (code: string) =>
    new RelayUnreachableError('r', 'x', { cause: Object.assign(new Error('x'), { code }) })
  const hour = 3_600_000
  const rows: readonly (readonly [error: Error, reason: string, text: RegExp])[] = [
    [coded('CERT_NOT_YET_VALID'), 'RelayWrongClock', /./],
    [coded('CERT_HAS_EXPIRED'), 'RelayUnreachable', /./],
    [coded('ECONNREFUSED'), 'RelayUnreachable', /./],
    [new RelayRefusedError('r', 'wrongClock', -2 * hour), 'RelayWrongClock', /relay is 120 min behind that of this ga/],
    [new RelayRefusedError('r', 'expired', 2 * hour), 'RelayWrongClock', /relay is 120 min ahead of that of this ga/],
    [new RelayRefusedError('r', 'expired', 1000), 'RelayRefused', /has expired$/],
    [new RelayRefusedError('r', 'full', hour), 'RelayRefused', /no room$/],
    [new RelayRefusedError('r', 'foreignClusterset', hour), 'RelayForeignClusterset', /cluster$/],
    [new RelayNotWantedError('r'), 'RelayUnreachable', /same process/],
  ]
  for (const [error, reason, text] of rows) {
    t.equal(reasonOfFailure(error), reason, error.message)
    t.match(error.message, text)
  }
  t.end()
})
