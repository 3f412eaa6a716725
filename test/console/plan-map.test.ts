/** The map of clusters: what is drawn, by region above 30 clusters, and the table that says the same. */
import fc from 'fast-check'
import t from 'tap'
import { MOST_SEPARATE, type MapFacts, type PlannedMap, placesOf, planMap } from '../../console/page/plan-map.ts'
import type { ClusterCard, GatewayRow, LinkRow } from '../../console/state/state.ts'

function card(cluster: string, change: Partial<ClusterCard> = {}): ClusterCard {
  const ranges = { podCIDRs: [], globalCIDRs: [], labels: [] }
  return { cluster, state: 'reached', contact: 'heard', linksUp: 1, links: 1, ...ranges, ...change }
}

function gateway(node: string, state: GatewayRow['state'] = 'reporting'): GatewayRow {
  return { node, state, linksUp: 1, links: 1 }
}

function link(node: string, cluster: string, change: Partial<LinkRow> = {}): LinkRow {
  return { node, lane: 0, cluster, remoteLane: 0, state: 'up', cable: 'kernel', message: '', ...change }
}

const NONE: ReadonlySet<string> = new Set()
const HERE = card('milano', { state: 'here' })

t.test('two clusters: every link is a line and a row', async (t) => {
  const found = planMap(
    {
      clusters: [HERE, card('paris', { state: 'cut off' }), card('tokyo')],
      gateways: [gateway('gw0'), gateway('gw1', 'silent')],
      links: [
        link('gw0', 'paris', { state: 'down', loss: 1, since: '2026-11-25T12:00:00Z' }),
        link('gw0', 'tokyo', { rttMs: 12.5, loss: 0.034 }),
        link('gw0', 'tokyo', { remoteLane: 1, state: 'connecting' }),
      ],
    },
    NONE,
  )
  t.same(
    found.nodes.map(({ what, label }) => `${what}: ${label.replace('\n', ' ')}`),
    ['gateway: gw0 ● reporting', 'gateway: gw1 ✕ silent', 'cluster: paris ✕ cut off', 'cluster: tokyo ● reached'],
  )
  t.same(
    found.lines.map(({ label }) => label),
    ['✕ down', '● 12.5 ms 3 % lost', '▲ connecting'],
    'each has a sign',
  )
  t.same(
    found.rows.map(({ from, to, state, since = '-', cables }) => `${from} > ${to} ${state} ${since} ${cables.join()}`),
    [
      'gw0 lane 0 > paris lane 0 down 2026-11-25T12:00:00Z kernel',
      'gw0 lane 0 > tokyo lane 0 up - kernel',
      'gw0 lane 0 > tokyo lane 1 connecting - kernel',
    ],
  )
  t.equal(found.text, '2 gateways, 2 other clusters, 1 of 3 links up')
})

t.test('a region of which nothing is known is not cut off', async (t) => {
  const cards = Array.from({ length: 40 }, (_, i): ClusterCard => {
    const far = { region: i < 20 ? 'eu' : 'us', links: 0, linksUp: 0 }
    return card(`c${i}`, { ...far, state: i < 20 || i === 30 ? 'unknown' : 'cut off' })
  })
  const { nodes } = planMap({ clusters: [HERE, ...cards], gateways: [], links: [], areLinksKnown: false }, NONE)
  t.same(
    nodes.map(({ label, state }) => [label, state]),
    [
      ['eu\n? 0 of 20 reached', 'unknown'],
      ['us\n✕ 0 of 20 reached', 'cut off'],
    ],
  )
})

/** `n` clusters, a third of them in each of three regions, each with a link that is up unless it is the first. */
function many(n: number, regionOf = (i: number): string => ['eu', 'us', 'asia'][i % 3] ?? ''): MapFacts {
  const names = Array.from({ length: n }, (_, i) => `c${i}`)
  return {
    clusters: [
      HERE,
      ...names.map((name, i) => card(name, { region: regionOf(i), state: i === 0 ? 'cut off' : 'reached' })),
    ],
    gateways: [gateway('gw0')],
    links: names.map((name, i) => link('gw0', name, i === 0 ? { state: 'down' } : { rttMs: i })),
  }
}

t.test('30 clusters are drawn one by one, 31 by region', async (t) => {
  t.equal(planMap(many(MOST_SEPARATE), NONE).nodes.filter(({ what }) => what === 'cluster').length, 30)
  const { nodes, lines, rows, text } = planMap(many(31), NONE)
  t.same(
    nodes.filter(({ what }) => what === 'region').map(({ label }) => label),
    ['asia\n● 10 of 10 reached', 'eu\n▲ 10 of 11 reached', 'us\n● 10 of 10 reached'],
  )
  t.same(
    rows.map(({ to, up, links, state, isOpen }) => [to, up, links, state, isOpen]),
    [
      ['asia', 10, 10, 'up', false],
      ['eu', 10, 11, 'connecting', false],
      ['us', 10, 10, 'up', false],
    ],
  )
  t.same(
    lines.map(({ label }) => label),
    ['▲ connecting 10 of 11 3.0 ms', '● 10 of 10 1.0 ms', '● 10 of 10 2.0 ms'],
  )
  t.match(text, /31 other clusters by region/)
})

t.test('an open region shows its clusters, and can be closed', async (t) => {
  const { nodes, rows } = planMap(many(31), new Set(['eu', 'gone']))
  t.equal(nodes.filter(({ what }) => what === 'cluster').length, 11)
  t.equal(nodes.filter(({ what }) => what === 'region').length, 2)
  t.same(
    rows.filter(({ isOpen }) => isOpen === true).map(({ to, links }) => [to, links]),
    [['eu', 11]],
  )
  const large = planMap(many(300), new Set(['eu']))
  const region = large.nodes.find(({ label }) => label.startsWith('eu'))
  t.match(region?.label, /^eu, 70 more\n/, 'at most 30 of a region are drawn one by one')
})

t.test('clusters without a region, and as many regions as clusters', async (t) => {
  const { region: _, ...bare } = card('c0')
  const { nodes } = planMap({ ...many(31), clusters: Array.from({ length: 31 }, () => bare) }, NONE)
  t.ok(nodes.some(({ label }) => label.startsWith('no region')))
  const spread = planMap(
    many(1000, (i) => `r${String(i).padStart(4, '0')}`),
    NONE,
  )
  t.equal(spread.nodes.length, 32)
  t.match(spread.nodes.at(-1)?.label, /^970 more regions\n/)
  t.equal(spread.rows.at(-1)?.isOpen, undefined, 'these are not opened')
})

const name = fc.oneof(fc.constantFrom('a', 'b', 'a b', 'g0', '', '__proto__', '<b>', 'x'.repeat(128)), fc.string())
const facts = fc.record({
  clusters: fc.array(
    fc
      .record({ name, region: fc.option(name, { nil: undefined }), state: fc.constantFrom('reached', 'cut off') })
      .map(({ name, region, state }) => {
        return card(name, { state: state as 'reached', ...(region === undefined ? {} : { region }) })
      }),
    { maxLength: 60 },
  ),
  gateways: fc.array(
    name.map((one) => gateway(one)),
    { maxLength: 30 },
  ),
  links: fc.array(
    fc
      .tuple(name, name, fc.constantFrom('up', 'down', 'connecting'))
      .map(([node, cluster, state]) => link(node, cluster, { state: state as 'up' })),
    { maxLength: 60 },
  ),
})

function isDrawable({ nodes, lines }: PlannedMap): boolean {
  const ids = [...nodes, ...lines].map(({ id }) => id)
  const known = new Set(nodes.map(({ id }) => id))
  return (
    new Set(ids).size === ids.length &&
    lines.every(({ from, to }) => known.has(from) && known.has(to)) &&
    nodes.every(({ label }) => label.length < 70) &&
    nodes.length <= 16 + 31 * 31
  )
}

t.test('whatever members are called: ids are unique, lines have ends, places are inside', async (t) => {
  fc.assert(
    fc.property(facts, fc.array(name), fc.integer({ min: 280, max: 2000 }), (input, open, width) => {
      const found = planMap(input, new Set(open))
      const { height, places } = placesOf(found.nodes, width)
      return (
        isDrawable(found) &&
        found.nodes.every(({ id }) => {
          const { x, y } = places.get(id) ?? { x: -1, y: -1 }
          return x >= 0 && x <= width && y >= 0 && y <= height
        })
      )
    }),
  )
  t.pass('100 runs')
})

t.test('nodes of one column do not cover each other', async (t) => {
  for (const width of [358, 1200]) {
    const { nodes } = planMap(many(30), NONE)
    const { places } = placesOf(nodes, width)
    const all = [...places.values()]
    const isNear = all.some((a, i) => all.some((b, j) => i < j && a.x === b.x && Math.abs(a.y - b.y) < 44))
    t.notOk(isNear, `${width} px`)
    t.equal(new Set(all.map(({ x }) => x)).size, width < 700 ? 2 : 3)
  }
})
