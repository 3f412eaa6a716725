/**
 * Which links carry traffic, by their health and by the other links: u = up, ? = up and suspect, h = up and held out of
 * use, c = connecting, d = down.
 */
import fc from 'fast-check'
import t from 'tap'
import { carryingLinks, reachedByOthers } from '../../../gateway/health/carrying-links.ts'
import { type PeerHealthView, clusterOfKey } from '../../../gateway/world/gateway-world.ts'
import type { Gateway } from '../../../model/objects.ts'

const VIEWS: Readonly<Record<string, PeerHealthView>> = {
  u: { state: 'up', sinceMs: 0 },
  '?': { state: 'up', sinceMs: 0, suspected: true },
  h: { state: 'up', sinceMs: 0, held: true },
  x: { state: 'up', sinceMs: 0, held: true, suspected: true },
  c: { state: 'connecting', sinceMs: 0 },
  d: { state: 'down', sinceMs: 0 },
}

interface Row {
  readonly say: string
  /** From healthKey() to the state. */
  readonly links: Readonly<Record<string, string>>
  readonly handedOver?: readonly string[]
  readonly byOthers?: readonly string[]
  /** Those of byOthers whose far gateway stays. Absent: all of them. */
  readonly well?: readonly string[]
  readonly draining?: readonly string[]
  readonly withdrawn?: boolean
  readonly carry: readonly string[]
}

const ROWS: readonly Row[] = [
  { say: 'none', links: {}, carry: [] },
  { say: 'those that are up', links: { '0/paris': 'u', '1/paris': 'c', '2/paris': 'd' }, carry: ['0/paris'] },
  { say: 'not a doubted one beside a sound one', links: { '0/paris': '?', '1/paris': 'u' }, carry: ['1/paris'] },
  {
    say: 'all doubted ones where there are no others',
    links: { '0/paris': '?', '1/paris': '?' },
    carry: ['0/paris', '1/paris'],
  },
  { say: 'none where another gateway leads there', links: { '0/paris': '?' }, byOthers: ['paris'], carry: [] },
  {
    say: 'each cluster by itself',
    links: { '0/paris': '?', '0/tokyo': 'u', '1/tokyo': '?' },
    carry: ['0/paris', '0/tokyo'],
  },
  { say: 'none that is handed over', links: { '0/paris': 'u' }, handedOver: ['0/paris'], carry: [] },
  {
    say: 'what is handed over keeps no doubted one away',
    links: { '0/paris': 'u', '1/paris': '?' },
    handedOver: ['0/paris'],
    carry: ['1/paris'],
  },
  { say: 'not one that drains', links: { '0/paris': 'u', '1/paris': 'u' }, draining: ['0/paris'], carry: ['1/paris'] },
  { say: 'one that drains, for want of another', links: { '0/paris': 'u' }, draining: ['0/paris'], carry: ['0/paris'] },
  {
    say: 'unless another gateway leads there',
    links: { '0/paris': 'u' },
    draining: ['0/paris'],
    byOthers: ['paris'],
    carry: [],
  },
  {
    say: 'one that drains rather than one that is silent',
    links: { '0/paris': 'u', '1/paris': '?' },
    draining: ['0/paris'],
    carry: ['0/paris'],
  },
  {
    say: 'none that drains and is down',
    links: { '0/paris': 'd', '1/paris': '?' },
    draining: ['0/paris'],
    carry: ['1/paris'],
  },
  {
    say: 'a node that goes leaves it to others',
    links: { '0/paris': 'u', '0/tokyo': 'u' },
    withdrawn: true,
    byOthers: ['paris'],
    carry: ['0/tokyo'],
  },
  {
    say: 'one that drains, where the others have no better way',
    links: { '0/paris': 'u' },
    draining: ['0/paris'],
    byOthers: ['paris'],
    well: [],
    carry: ['0/paris'],
  },
  {
    say: 'none of a node that goes, where others have a way of any kind',
    links: { '0/paris': 'u' },
    withdrawn: true,
    draining: ['0/paris'],
    byOthers: ['paris'],
    well: [],
    carry: [],
  },
  { say: 'not one that flaps beside a steady one', links: { '0/paris': 'h', '1/paris': 'u' }, carry: ['1/paris'] },
  { say: 'one that flaps and is the only way', links: { '0/paris': 'h', '1/paris': 'd' }, carry: ['0/paris'] },
  {
    say: 'one that flaps is not left to other gateways',
    links: { '0/paris': 'h' },
    byOthers: ['paris'],
    carry: ['0/paris'],
  },
  { say: 'all that flap', links: { '0/paris': 'h', '1/paris': 'h' }, carry: ['0/paris', '1/paris'] },
  {
    say: 'one that flaps rather than one that is silent',
    links: { '0/paris': 'h', '1/paris': '?' },
    carry: ['0/paris'],
  },
  { say: 'one that flaps and is silent, for want of another', links: { '0/paris': 'x' }, carry: ['0/paris'] },
  {
    say: 'one that flaps rather than one that drains',
    links: { '0/paris': 'h', '1/paris': 'u' },
    draining: ['1/paris'],
    carry: ['0/paris'],
  },
  {
    say: 'one that flaps on a node that goes, where nobody else leads there',
    links: { '0/paris': 'h' },
    withdrawn: true,
    carry: ['0/paris'],
  },
]

t.test('links that carry', async (t) => {
  for (const { say, links, handedOver, byOthers, well, draining, withdrawn, carry } of ROWS) {
    const found = carryingLinks({
      health: new Map(Object.entries(links).map(([key, is]) => [key, VIEWS[is]!])),
      ...(handedOver === undefined ? {} : { handedOver: new Set(handedOver) }),
      ...(byOthers === undefined ? {} : { reachedWell: new Set(well ?? byOthers) }),
      ...(draining === undefined ? {} : { draining: new Set(draining) }),
      ...(withdrawn === undefined ? {} : { withdrawn }),
      ...(byOthers === undefined ? {} : { reachedByOthers: new Set(byOthers) }),
    })
    t.strictSame([...found].sort(), carry, say)
  }
})

t.test('to be held out of use never takes the last way, and changes nothing for other clusters', async () => {
  const keys = ['0/paris', '1/paris', '2/paris', '0/tokyo', '1/tokyo']
  const links = fc.tuple(...keys.map(() => fc.constantFrom('u', '?', 'h', 'x', 'c', 'd')))
  const some = fc.subarray(keys)
  const clusters = fc.subarray(['paris', 'tokyo'])
  fc.assert(
    fc.property(links, some, some, clusters, fc.boolean(), (states, handed, goes, byOthers, withdrawn) => {
      const facts = {
        handedOver: new Set(handed),
        draining: new Set(goes),
        reachedByOthers: new Set(byOthers),
        reachedWell: new Set(byOthers),
        withdrawn,
      }
      const carried = (held: boolean): ReadonlySet<string> => {
        const views = keys.map((key, i): [string, PeerHealthView] => {
          const { held: isHeld, ...view } = VIEWS[states[i]!]!
          return [key, held && isHeld === true ? { ...view, held: true } : view]
        })
        return carryingLinks({ health: new Map(views), ...facts })
      }
      const reached = (found: ReadonlySet<string>): string => [...new Set([...found].map(clusterOfKey))].sort().join()
      const [without, withHeld] = [carried(false), carried(true)]
      return reached(without) === reached(withHeld) && [...withHeld].every((key) => !handed.includes(key))
    }),
  )
})

t.test('what other gateways reach is what they report as up', async (t) => {
  const gateway = (name: string, states: Readonly<Record<string, string>>): Gateway =>
    ({
      metadata: { name },
      status: { connections: Object.entries(states).map(([cluster, state]) => ({ cluster, state, lane: 0 })) },
    }) as unknown as Gateway
  const all = [gateway('a', { paris: 'up' }), gateway('b', { tokyo: 'up', lyon: 'down' }), gateway('c', {})]
  t.strictSame([...reachedByOthers('a', all)], ['tokyo'])
  t.strictSame([...reachedByOthers('c', all)], ['paris', 'tokyo'])
  t.strictSame([...reachedByOthers('a', [])], [])
  t.strictSame(
    [...reachedByOthers('c', all, new Set(), new Set(['0/paris']))],
    ['tokyo'],
    'not by links that do not count',
  )
  t.strictSame([...reachedByOthers('c', all, new Set(['a']))], ['tokyo'], 'not what one that goes reaches')
})
