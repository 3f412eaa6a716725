/** Objects of a cluster may contain anything, and no content may make discovery throw, hang or control a terminal. */
import fc from 'fast-check'
import t from 'tap'
import { advice } from '../../../cli/discovery/advice/advice.ts'
import { describeAdvice, describeDiscovery } from '../../../cli/discovery/describe.ts'
import { discover } from '../../../cli/discovery/discover.ts'
import { lenientPrefix, prefixesIn, smallestCover } from '../../../cli/discovery/prefix-texts.ts'
import { formatPrefix, parsePrefix } from '../../../model/values/ip.ts'
import type { ClusterSnapshot } from '../../../cli/discovery/snapshot.ts'
import { FIXTURES, fixture } from './support/fixtures.ts'

function account(snapshot: ClusterSnapshot): string[] {
  const discovery = discover(snapshot)
  return [...describeDiscovery(discovery), ...describeAdvice(advice(discovery), { all: true })]
}

/** Returns the path of every value inside a value. */
function paths(value: unknown, prefix: readonly string[] = []): (readonly string[])[] {
  if (typeof value !== 'object' || value === null) return [prefix]
  return [prefix, ...Object.entries(value).flatMap(([key, inner]) => paths(inner, [...prefix, key]))]
}

function replaced(value: unknown, path: readonly string[], by: unknown): unknown {
  const [key, ...rest] = path
  if (key === undefined) return by
  if (Array.isArray(value)) return value.map((one, i): unknown => (String(i) === key ? replaced(one, rest, by) : one))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([k, inner]) => [k, k === key ? replaced(inner, rest, by) : inner]),
  )
}

const junk = fc.oneof(
  fc.jsonValue(),
  fc.string({ unit: 'binary' }),
  fc.constantFrom(
    '0.0.0.0/0',
    '::/0',
    '10.0.0.0/99',
    '-1',
    '\u001b[31m',
    '&a [*a,*a]',
    '__proto__',
    '{"a":',
    '245.0.0.0/8',
    null,
    1e308,
    [],
    {},
  ),
)

const WHOLE = FIXTURES.map((name) => fixture(name))
const PLACES = WHOLE.map((snapshot) => paths(snapshot.objects))

t.test('one or more places of a real cluster hold anything at all', async () => {
  const change = fc.tuple(fc.nat(), junk)
  fc.assert(
    fc.property(fc.nat({ max: WHOLE.length - 1 }), fc.array(change, { minLength: 1, maxLength: 4 }), (i, changes) => {
      const snapshot = WHOLE[i] ?? WHOLE[0]!
      const places = PLACES[i] ?? []
      const objects = changes.reduce<unknown>(
        (all, [place, by]) => replaced(all, places[place % places.length] ?? [], by),
        snapshot.objects,
      )
      const lines = account({ ...snapshot, objects: Array.isArray(objects) ? (objects as unknown[]) : [objects] })
      return lines.every((line) => !/[\p{Cc}\u2028\u2029\u202e]/u.test(line))
    }),
    { numRuns: 400 },
  )
})

t.test('nothing but junk', async () => {
  fc.assert(
    fc.property(fc.array(junk), junk, fc.array(fc.string({ unit: 'binary' })), (objects, version, texts) => {
      account({ version, objects, crds: texts, serviceProbes: texts, unread: [] })
    }),
  )
})

t.test('the same cluster gives the same account, in whatever order its objects come', async () => {
  fc.assert(
    fc.property(fc.nat({ max: WHOLE.length - 1 }), fc.infiniteStream(fc.nat()), (i, chance) => {
      const snapshot = WHOLE[i] ?? WHOLE[0]!
      const objects = snapshot.objects
        .map((object) => ({ object, place: chance.next().value as number }))
        .sort((a, b) => a.place - b.place)
        .map(({ object }) => object)
      return account({ ...snapshot, objects }).join('\n') === account(snapshot).join('\n')
    }),
    { numRuns: 60 },
  )
})

t.test('networks in texts: canonical or nothing', async (t) => {
  t.same(prefixesIn(['10.1.2.3/16, fd00::1/48', undefined, '10.1.0.0/16 x 1.2.3/8 10.0.0.0/33']), [
    '10.1.0.0/16',
    'fd00::/48',
  ])
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.stringMatching(/^[0-9a-f:.]{1,20}\/\d{1,3}$/)), (text) => {
      const prefix = lenientPrefix(text)
      return prefix === undefined || formatPrefix(parsePrefix(formatPrefix(prefix))) === formatPrefix(prefix)
    }),
  )
  t.same(smallestCover(['10.244.0.0/24', '10.244.3.0/24', 'fd00::/64']), ['10.244.0.0/22', 'fd00::/64'])
})
