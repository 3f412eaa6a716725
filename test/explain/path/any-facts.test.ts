/** Whatever the facts are, explaining ends with one of the outcomes, and says a failing step exactly if it is UNREACHABLE. */
import fc from 'fast-check'
import t from 'tap'
import { type PathExplanation, PATH_DOCUMENT, STATIONS } from '../../../explain/path/document.ts'
import { explainPath } from '../../../explain/path/explain-path.ts'
import { parseFrom, parseTo } from '../../../explain/path/path-ends.ts'
import { SELF, factSet } from '../../support/objects/member-facts.ts'
import { memberObjects, pathObjects } from './two-members.ts'

/** Gives the value with some of its parts replaced, removed or turned. */
function broken(value: unknown, cuts: readonly (readonly [depth: number, pick: number, by: unknown])[]): unknown {
  const copy = JSON.parse(JSON.stringify(value)) as unknown
  for (const [depth, pick, by] of cuts) {
    let at = copy
    for (let i = 0; i <= depth; i += 1) {
      if (typeof at !== 'object' || at === null) break
      const keys = Object.keys(at)
      const key = keys[(pick + i * 7) % Math.max(1, keys.length)]
      if (key === undefined) break
      const fields = at as Record<string, unknown>
      if (i === depth || typeof fields[key] !== 'object') {
        fields[key] = by
        break
      }
      at = fields[key]
    }
  }
  return copy
}

const text = fc.constantFrom('', '10.42.0.0/16', '244.2.2.5', 'paris', 'down', '\u001b[2J\u202e', '::1', '300.1.1.1/99')
const cutsOf = (by: fc.Arbitrary<unknown>) => fc.array(fc.tuple(fc.nat(8), fc.nat(200), by), { maxLength: 12 })
const cuts = cutsOf(fc.oneof(text, fc.jsonValue()))
/** The API server sees to it that a text is a text; what it says may be anything. */
const textCuts = cutsOf(text)
const from = fc.constantFrom('shop/front-0', 'w0', '10.42.2.7', '192.0.2.1', 'bank/x')
const to = fc.constantFrom(
  'db.shop:5432',
  'db.shop',
  'db.shop:1/udp',
  '245.0.0.9:5432',
  '244.2.2.5:5433',
  'h.paris.db.shop',
)

function isSound(found: PathExplanation): boolean {
  const first = found.steps.find(({ decision }) => decision === 'fails')
  const isUnreachable = found.outcome === 'UNREACHABLE'
  const isFailing =
    isUnreachable === (found.failing !== undefined) && (!isUnreachable || found.failing?.seq === first?.seq)
  const isOrdered = found.steps.every(({ seq }, i) => seq === i + 1)
  return (
    isFailing && isOrdered && found.steps.length <= 100 && !/[\u0000-\u0008\u001b\u202e]/.test(JSON.stringify(found))
  )
}

t.test('any facts', async (t) => {
  const sides = { here: factSet(memberObjects(SELF)), far: factSet(memberObjects('paris')) }
  let outcomes = new Set<string>()
  fc.assert(
    fc.property(from, to, cuts, cuts, textCuts, fc.boolean(), (caller, called, here, far, own, asks) => {
      const objects = broken(pathObjects(SELF), own) as never
      const found = explainPath(
        { from: parseFrom(caller), to: parseTo(called) },
        {
          here: { facts: broken(sides.here, here), objects },
          far: asks ? [{ facts: broken(sides.far, far), objects: pathObjects('paris') }] : [],
        },
      )
      if ('wrong' in found) return true
      outcomes.add(found.outcome)
      return isSound(found) && PATH_DOCUMENT.safeParse(found).success
    }),
    { numRuns: 300 },
  )
  t.ok(outcomes.size >= 2, [...outcomes].join(' '))
  outcomes = new Set()
  fc.assert(
    fc.property(fc.jsonValue(), (facts) => {
      const found = explainPath({ from: parseFrom('w0'), to: parseTo('db.shop') }, { here: { facts } })
      return 'wrong' in found || isSound(found)
    }),
    { numRuns: 50 },
  )
})

t.test('stations are in the order of the packet', async (t) => {
  const found = explainPath(
    { from: parseFrom('shop/front-0'), to: parseTo('db.shop') },
    { here: { facts: factSet(memberObjects(SELF)), objects: pathObjects(SELF) } },
  )
  if ('wrong' in found) throw new Error(found.wrong)
  const there = found.steps.filter(({ direction }) => direction === 'forward').map(({ station }) => station)
  t.same(
    there,
    STATIONS.filter((station) => there.includes(station)),
  )
})

t.test('ends of a call', async (t) => {
  const rows: readonly [text: string, found: object][] = [
    ['db.shop', { what: 'service', namespace: 'shop', name: 'db', protocol: 'tcp' }],
    [
      'db.shop.svc.clusterset.local.:53/udp',
      { what: 'service', namespace: 'shop', name: 'db', protocol: 'udp', port: 53 },
    ],
    ['h.paris.db.shop', { host: { hostname: 'h', cluster: 'paris' }, name: 'db' }],
    ['10.0.0.1:80', { what: 'address', address: '10.0.0.1', port: 80 }],
    ['fd00::1', { what: 'address', address: 'fd00::1' }],
    ['[fd00::1]:80/udp', { what: 'address', address: 'fd00::1', port: 80, protocol: 'udp' }],
  ]
  for (const [text, found] of rows) t.match(parseTo(text), found, text)
  for (const bad of [
    '',
    'db',
    'db.shop:0',
    'db.shop:99999',
    'db.shop/sctp',
    '_a._tcp.db.shop',
    'paris.db.shop',
    'a b.c',
  ])
    t.throws(() => parseTo(bad), /TO/, bad)
  t.same(parseFrom('shop/a'), { what: 'pod', namespace: 'shop', name: 'a' })
  t.same(parseFrom('gw.example'), { what: 'node', name: 'gw.example' })
  t.same(parseFrom('10.0.0.1'), { what: 'address', address: '10.0.0.1' })
  for (const bad of ['', 'a/b/c', 'A B', 'shop/']) t.throws(() => parseFrom(bad), /FROM/, bad)
  fc.assert(
    fc.property(fc.string(), (text) => {
      for (const parse of [parseFrom, parseTo]) {
        try {
          parse(text)
        } catch (error) {
          if (!/expected/.test(String(error))) return false
        }
      }
      return true
    }),
  )
})

t.test('questions about what is not there', async (t) => {
  const ask = (caller: string, called: string): unknown =>
    explainPath(
      { from: parseFrom(caller), to: parseTo(called) },
      { here: { facts: factSet(memberObjects(SELF)), objects: pathObjects(SELF) } },
    )
  t.match(ask('shop/none', 'db.shop'), { wrong: 'pod shop/none: not in this cluster' })
  t.match(ask('w9', 'db.shop'), { wrong: 'node w9: not in this cluster' })
  t.match(ask('244.2.0.1', 'db.shop'), { wrong: '244.2.0.1: an address of paris', hint: /paris/ })
  t.match(ask('w0', '10.42.0.1'), { wrong: /within which Sealane carries nothing/ })
  t.match(ask('w0', '9.9.9.9'), { wrong: '9.9.9.9: no member has this address' })
  t.match(ask('w0', 'none.shop'), { outcome: 'UNREACHABLE', failing: { station: 'name', reason: 'NameUnknown' } })
  t.match(ask('w0', 'db.shop:1'), { outcome: 'UNREACHABLE', failing: { station: 'backends', reason: 'PortUnknown' } })
})
