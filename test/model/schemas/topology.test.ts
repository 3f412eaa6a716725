/** Reading a topology that an operator wrote: what is wrong is named with its field, and sizes are bounded. */
import fc from 'fast-check'
import t from 'tap'
import { readTopology } from '../../../model/schemas/topology.ts'

const names = (count: number): string[] => Array.from({ length: count }, (_, i) => `c${i}`)
const group = (name: string, clusters: unknown) => ({ name, clusters })

t.test('what is refused, and how', async (t) => {
  const rows: readonly (readonly [value: unknown, wrong: RegExp])[] = [
    [undefined, /^topology: expected a map$/],
    ['full', /^topology: expected a map$/],
    [{}, /^mode: expected one of full, groups, hub-and-spoke, pairs$/],
    [{ mode: 'ring' }, /^mode: expected one of full/],
    [{ mode: 'full', hubs: ['a'] }, /^hubs: expected none with mode full$/],
    [{ mode: 'groups' }, /^groups: expected at least one with mode groups$/],
    [{ mode: 'hub-and-spoke', hubs: [] }, /^hubs: expected at least one/],
    [{ mode: 'hub-and-spoke', hubs: ['a'], hub: ['b'] }, /^hub: unknown field$/],
    [{ mode: 'full', via: ['a'] }, /^via: expected none with mode full$/],
    [{ mode: 'hub-and-spoke', hubs: ['a'], via: [] }, /^via: expected at least one hub, or no such field$/],
    [{ mode: 'hub-and-spoke', hubs: ['a'], via: ['a', 'b'] }, /^via: "b": expected one of hubs$/],
    [
      { mode: 'pairs', pairs: [{ between: { clusters: ['a'] }, and: { clusters: ['b'] }, via: [] }] },
      /^pairs\[0\]\.via: expected at least one cluster, or no such field$/,
    ],
    [
      { mode: 'pairs', pairs: [{ between: { clusters: ['a'] }, and: { clusters: ['b'] }, via: ['No'] }] },
      /^pairs\[0\]\.via\[0\]: expected an RFC 1123 label/,
    ],
    [{ mode: 'hub-and-spoke', hubs: ['No'] }, /^hubs\[0\]: expected an RFC 1123 label/],
    [{ mode: 'hub-and-spoke', hubs: 'a' }, /^hubs: expected a list$/],
    [{ mode: 'groups', groups: [group('x', ['a']), group('x', ['b'])] }, /^groups\[1\]\.name: "x": another group/],
    [{ mode: 'groups', groups: [{ ...group('x', ['a']), color: 1 }] }, /^groups\[0\]\.color: unknown field$/],
    [{ mode: 'groups', groups: [group('x', ['__proto__'])] }, /^groups\[0\]\.clusters\[0\]: expected/],
    [
      { mode: 'pairs', pairs: [{ between: {}, and: { clusters: ['a'] } }] },
      /^pairs\[0\]\.between: expected clusters or/,
    ],
    [
      {
        mode: 'pairs',
        pairs: [
          { between: { clusters: ['a'] }, and: { selector: { matchExpressions: [{ key: 'a', operator: 'In' }] } } },
        ],
      },
      /^pairs\[0\]\.and\.selector: expected values with In/,
    ],
    [{ mode: 'pairs', pairs: [{ between: { clusters: ['a'] } }] }, /^pairs\[0\]\.and: expected a map$/],
    [{ mode: 'hub-and-spoke', hubs: names(1001) }, /^hubs: expected at most 1000 entries$/],
    [
      { mode: 'groups', groups: names(101).map((name) => group(name, ['a'])) },
      /^groups: expected at most 100 entries$/,
    ],
    [
      { mode: 'groups', groups: [group('x', names(1000)), group('y', ['other'])] },
      /^topology: 1001 clusters: expected at most 1000$/,
    ],
    [
      { mode: 'groups', groups: names(4).map((name) => group(name, names(800))) },
      /^topology: 3200 names: expected at most 3000$/,
    ],
  ]
  for (const [value, wrong] of rows) {
    const read = readTopology(value)
    t.match('wrong' in read ? read.wrong : 'accepted', wrong, JSON.stringify({ value }).slice(0, 100))
  }
})

t.test('two that say the same are equal', async (t) => {
  const one = readTopology({ mode: 'groups', groups: [group('b', ['y', 'x', 'y']), group('a', ['z'])] })
  const other = readTopology({ mode: 'groups', groups: [group('a', ['z']), group('b', ['x', 'y'])] })
  t.same(one, other)
  t.match(one, { topology: { groups: [{ name: 'a' }, { name: 'b', clusters: ['x', 'y'] }] } })
})

t.test('pairs that link directly come first, as on the wire', async (t) => {
  const [a, b] = [{ clusters: ['a'] }, { clusters: ['b'] }]
  const read = readTopology({
    mode: 'pairs',
    pairs: [
      { between: a, and: b, via: ['d', 'c', 'd'] },
      { between: b, and: b },
    ],
  })
  t.match(read, { topology: { pairs: [{ between: b }, { between: a, via: ['c', 'd'] }] } })
})

t.test('nothing makes it throw', async (t) => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.jsonValue(),
        fc.record({ mode: fc.constantFrom('groups', 'pairs'), groups: fc.jsonValue(), pairs: fc.jsonValue() }),
      ),
      (value) => {
        const read = readTopology(value)
        return 'topology' in read || read.wrong.startsWith(read.field)
      },
    ),
  )
  t.pass('it always answers')
})
