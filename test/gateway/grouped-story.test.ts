/** A gateway on a kernel with next-hop objects: its routes to paris use one group, which links join and leave. */
import t, { type Test } from 'tap'
import { FakeRouteTable } from '../../kernel/fake/fake-route-table.ts'
import { MILANO, PARIS, PARIS_GW, STAGE_ROUTES, Stage } from './support/stage.ts'
import { membership } from './support/netns-sites.ts'
import { endpoint } from './support/worlds.ts'

const SECOND = endpoint('paris', 'gw2', 1, ['public 198.51.100.21:4501'])

async function withTwoLinks(t: Test): Promise<Stage> {
  const stage = new Stage(t)
  stage.grouped = true
  stage.put(MILANO, PARIS, PARIS_GW, SECOND)
  for (const address of ['246.0.2.0', '246.0.2.1']) stage.probes.alive.add(address)
  stage.start()
  await stage.until(() => members(stage) === '731100000/731100002', 'two links carry')
  return stage
}

/** The members of the group that leads to paris, which has index 2. */
function members(stage: Stage): string | undefined {
  return /id 731101004 group (\S+) /.exec(stage.kernel())?.[1]
}

const wayToParis = (stage: Stage): string => stage.routed().find((line) => line.includes('244.1.0.0/16')) ?? ''

t.test('a silent link leaves the group at once, and no route changes', async (t) => {
  const stage = await withTwoLinks(t)
  t.match(wayToParis(stage), / nhid 731101004 /)
  const way = wayToParis(stage)
  stage.probes.alive.delete('246.0.2.1')
  const beforeMs = stage.clock.monotonic()
  await stage.until(() => members(stage) === '731100000', 'one link carries')
  t.ok(stage.clock.monotonic() - beforeMs < 1000, 'before the link counts as down')
  t.equal(stage.connection('paris')?.state, 'up')
  t.equal(wayToParis(stage), way)
  stage.probes.alive.add('246.0.2.1')
  await stage.until(() => members(stage) === '731100000/731100002', 'both again')
  t.equal(wayToParis(stage), way)
})

t.test('it does not wait for a round that is under way', async (t) => {
  const stage = await withTwoLinks(t)
  const { promise: held, resolve: goOn } = Promise.withResolvers<undefined>()
  const list = stage.routes.addresses.bind(stage.routes)
  let waits = 0
  stage.routes.addresses = async (signal) => {
    waits += 1
    await held
    return list(signal)
  }
  stage.put({ ...PARIS, metadata: { ...PARIS.metadata, labels: { changed: 'true' } } })
  await stage.until(() => waits === 1, 'a round hangs')
  stage.probes.alive.delete('246.0.2.1')
  await stage.until(() => members(stage) === '731100000', 'one link carries')
  t.equal(waits, 1, 'the same round still hangs')
  goOn(undefined)
  await stage.passSlowly(1000)
  t.equal(members(stage), '731100000', 'and does not bring back what it had read')
  stage.probes.alive.add('246.0.2.1')
  await stage.until(() => members(stage) === '731100000/731100002', 'both again')
})

t.test('without any link the route goes, and the group after it', async (t) => {
  const stage = await withTwoLinks(t)
  stage.probes.alive.clear()
  await stage.until(() => wayToParis(stage) === '', 'no way to paris')
  await stage.until(() => members(stage) === undefined, 'no group')
})

t.test('a hop that the kernel took away with its device is made again', async (t) => {
  const stage = await withTwoLinks(t)
  await stage.routes.setLink('sealane1', { up: false })
  await stage.routes.setLink('sealane1', { up: true })
  await stage.until(() => members(stage) === '731100000/731100002', 'made again')
  t.match(wayToParis(stage), / nhid 731101004 /)
})

t.test('leaving takes hops and groups out', async (t) => {
  const stage = await withTwoLinks(t)
  stage.put(membership('milano', 'leaving'))
  await stage.ended
  t.notMatch(stage.kernel(), 'nexthop')
})

t.test('a kernel of before resilient groups has plain ones', async (t) => {
  const stage = new Stage(t, {
    routes: new FakeRouteTable({ ...STAGE_ROUTES, nextHopFeatures: { objects: true, resilient: false } }),
  })
  stage.grouped = true
  stage.put(MILANO, PARIS, PARIS_GW)
  stage.probes.alive.add('246.0.2.0')
  stage.start()
  await stage.until(() => stage.kernel().includes('id 731101004 group 731100000 proto'), 'a plain group')
})
