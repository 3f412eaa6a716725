/** Next-hop objects and groups are brought in line with a plan, together with the routes that use them. */
import fc from 'fast-check'
import t from 'tap'
import { NO_ROUTING, type RoutingPlan, applyRouting } from '../../../kernel/apply/apply-routing.ts'
import { planClearance, planGroups } from '../../../kernel/apply/plan-next-hops.ts'
import { Round } from '../../../kernel/apply/round.ts'
import { Drift } from '../../../kernel/drift.ts'
import { KernelError } from '../../../kernel/errors.ts'
import { FakeRouteTable } from '../../../kernel/fake/fake-route-table.ts'
import { memberShares, type NextHopGroup, type NextHopObject } from '../../../kernel/route/next-hop-table.ts'
import { NEXT_HOP_IDS_LANES, NEXT_HOP_IDS_NODE } from '../../../model/kernel-ids.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { anyPlan, plan } from '../../compliance/next-hop-plans.ts'
import { group, hop, hop6, id, resilient, route } from '../../compliance/next-hop-stage.ts'

class Stage {
  readonly logger = new CapturingLogger()
  readonly table = new FakeRouteTable({
    links: [{ name: 'sealane0' }, { name: 'sealane1' }, { name: 'sealane2' }],
  })
  readonly hops = this.table.nextHops
  readonly repairs: string[] = []
  readonly drift = new Drift({
    clock: new FakeClock(),
    logger: this.logger,
    repairs: { inc: ({ what, reason } = {}) => void this.repairs.push(`${what} ${reason}`) },
  })

  /** Runs one round and returns what it did, in the language of the tools. */
  async apply(plan: RoutingPlan, ids = NEXT_HOP_IDS_NODE): Promise<{ done: unknown[]; failure: string | undefined }> {
    const before = this.logger.lines.length
    const round = new Round({ logger: this.logger, drift: this.drift })
    const scope = { tables: new Set([7312]), nextHops: { table: this.hops, ids } }
    await applyRouting(this.table, plan, scope, round, new AbortController().signal)
    const lines = this.logger.lines.slice(before).filter(({ message }) => message === 'changed')
    return { done: lines.map(({ fields }) => fields['text']), failure: round.failure?.message }
  }
}

const HOPS = [hop(1, 'sealane0'), hop(2, 'sealane1')]
const BOTH = [{ id: id(1) }, { id: id(2) }]

const PLAN = plan(HOPS, [resilient(10, BOTH)], route('244.1.0.0/16', 10))
const GROUP = 'group 731400001/731400002 type resilient buckets 32 idle_timer 10 unbalanced_timer 15 proto 173'

t.test('hops come before groups before routes, and go in the opposite order', async (t) => {
  const stage = new Stage()
  t.same((await stage.apply(PLAN)).done, [
    'ip nexthop replace id 731400001 dev sealane0 proto 173',
    'ip nexthop replace id 731400002 dev sealane1 proto 173',
    `ip nexthop replace id 731400010 ${GROUP}`,
    'ip route replace 244.1.0.0/16 nhid 731400010 table 7312 proto 173',
  ])
  t.same(await stage.apply(PLAN), { done: [], failure: undefined }, 'nothing is done twice')
  t.same(await stage.apply(NO_ROUTING), {
    done: [
      'ip route del 244.1.0.0/16 table 7312 proto 173',
      'ip nexthop del id 731400010',
      'ip nexthop del id 731400001',
      'ip nexthop del id 731400002',
    ],
    failure: undefined,
  })
  t.same(stage.repairs, [], 'all of it was our own doing')
})

t.test('a lane that fails is one change of a group, whatever the number of routes', async (t) => {
  const stage = new Stage()
  const routes = Array.from({ length: 100 }, (_, i) => route(`244.1.${i}.0/24`, 10))
  await stage.apply(plan(HOPS, [resilient(10, BOTH)], ...routes))
  const left = plan(HOPS, [resilient(10, [{ id: id(2) }])], ...routes)
  t.equal((await stage.apply(left)).done.length, 1)
  t.same(
    memberShares(await stage.hops.buckets(id(10))).map(({ member }) => member),
    [id(2)],
  )
  const gone = plan(HOPS.slice(1), [resilient(10, [{ id: id(2) }])], ...routes)
  t.same((await stage.apply(gone)).done, ['ip nexthop del id 731400001'])
})

t.test('ids outside the block are never looked at', async (t) => {
  const stage = new Stage()
  const lane = { ...hop(1, 'sealane0'), id: NEXT_HOP_IDS_LANES.first }
  await stage.hops.replaceHop(lane)
  await stage.apply(PLAN)
  await stage.apply(NO_ROUTING)
  t.strictSame(await stage.hops.list(), { hops: [lane], groups: [] })
  const round = new Round({ logger: stage.logger })
  await applyRouting(stage.table, NO_ROUTING, { tables: new Set([7312]) }, round, new AbortController().signal)
  t.equal(round.changes, 0, 'nor any, without a scope for them')
})

t.test('what others changed is put right and counted', async (t) => {
  const stage = new Stage()
  await stage.apply(PLAN)
  await stage.hops.remove(id(1))
  await stage.hops.replaceHop(hop(3, 'sealane2'))
  t.same((await stage.apply(PLAN)).done, [
    'ip nexthop replace id 731400001 dev sealane0 proto 173',
    `ip nexthop replace id 731400010 ${GROUP}`,
    'ip nexthop del id 731400003',
  ])
  t.same(stage.repairs, ['next-hop Missing', 'next-hop Foreign', 'next-hop-group Changed'])
  await stage.hops.remove(id(10))
  t.equal((await stage.apply(PLAN)).done.length, 2, 'the group and the route that went with it')
  t.same(stage.repairs.slice(3), ['next-hop-group Missing', 'route Missing'])
})

t.test('after a device has stopped and started, all is made again', async (t) => {
  const stage = new Stage()
  const before = (await stage.apply(PLAN), stage.table.toString())
  for (const name of ['sealane0', 'sealane1']) {
    await stage.table.setLink(name, { up: false })
    await stage.table.setLink(name, { up: true })
  }
  t.same((await stage.hops.list()).hops, [], 'the kernel has forgotten it')
  t.equal((await stage.apply(PLAN)).failure, undefined)
  t.equal(stage.table.toString(), before)
})

t.test('a hop that cannot be made holds up none of the others', async (t) => {
  const stage = new Stage()
  await stage.table.setLink('sealane0', { up: false })
  const first = await stage.apply(PLAN)
  t.equal(first.failure, 'ip nexthop replace id 731400001 dev sealane0 proto 173: sealane0 is down')
  t.strictSame((await stage.hops.list()).groups, [resilient(10, [{ id: id(2) }])])
  t.strictSame(await stage.table.routes(), PLAN.routes)
  await stage.table.setLink('sealane0', { up: true })
  await stage.apply(PLAN)
  t.strictSame((await stage.hops.list()).groups, [resilient(10, BOTH)])
  t.same(stage.repairs, [], 'it was never there')
})

t.test('a group of which no member can be made stays as it is', async (t) => {
  const stage = new Stage()
  const one = plan([HOPS[0]!], [resilient(10, [{ id: id(1) }])], route('244.1.0.0/16', 10))
  await stage.apply(one)
  stage.table.failNext(new KernelError('TIMEOUT', 'ip nexthop replace', 'no answer from the kernel'))
  const moved = plan([hop(1, 'sealane1')], [resilient(10, [{ id: id(1) }])], route('244.1.0.0/16', 10))
  t.same(await stage.apply(moved), { done: [], failure: 'ip nexthop replace: no answer from the kernel' })
  t.strictSame(await stage.table.routes(), one.routes)
  t.equal((await stage.apply(moved)).done.length, 1)
})

t.test('what cannot be replaced in place goes first, and is no drift', async (t) => {
  const stage = new Stage()
  await stage.apply(PLAN)
  const wider = plan(HOPS, [resilient(10, BOTH, { buckets: 64 })], ...PLAN.routes)
  t.same((await stage.apply(wider)).done, [
    'ip nexthop del id 731400010',
    `ip nexthop replace id 731400010 ${GROUP.replace('32', '64')}`,
    'ip route replace 244.1.0.0/16 nhid 731400010 table 7312 proto 173',
  ])
  t.same(await stage.apply(wider), { done: [], failure: undefined })
  t.same(stage.repairs, [])
})

t.test('when something cannot be read, nothing is changed', async (t) => {
  const stage = new Stage()
  stage.hops.list = () => Promise.reject(new KernelError('TIMEOUT', 'ip nexthop show', 'no answer from the kernel'))
  t.same(await stage.apply(PLAN), { done: [], failure: 'ip nexthop show: no answer from the kernel' })
})

t.test('what has to be removed first', (t) => {
  const six = [hop6(3, 'sealane0'), hop6(4, 'sealane1')]
  const of = (hops: readonly NextHopObject[], ...groups: readonly NextHopGroup[]) => ({ hops, groups })
  const ids = (...sides: Parameters<typeof planClearance>): readonly number[] =>
    planClearance(...sides).map((item) => item.id - id(0))
  const there = of([...HOPS, ...six], resilient(10, BOTH), group(11, [{ id: id(3) }]))
  t.same(ids(there, there), [])
  t.same(ids(of([]), there), [], 'what is not desired goes last')
  t.same(ids(of([hop(1, 'sealane2', { via: '246.0.0.1', onlink: true })]), there), [], 'another way')
  t.same(ids(of(HOPS, group(10, BOTH)), there), [10], 'another kind')
  t.same(ids(of([...HOPS, hop(11, 'sealane0')], group(1, [{ id: id(2) }])), there), [11, 1], 'another sort')
  t.same(ids(of([hop6(1, 'sealane0')]), there), [], 'IPv6 is no trouble to routes of IPv4')
  t.same(ids(of([hop(3, 'sealane0')]), there), [3], 'IPv4 is to those of IPv6')
  t.same(ids(of([...HOPS, ...six], group(11, [{ id: id(1) }, { id: id(3) }])), there), [11])
  t.same(planGroups([group(10, BOTH), group(11, [{ id: id(1) }]), group(12, [])], new Set([id(1)])), {
    groups: [group(10, [{ id: id(2) }]), group(12, [])],
    kept: new Set([id(11)]),
  })
  t.end()
})

t.test('from any plan to any other in one round, with nothing refused', async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(anyPlan(['sealane0', 'sealane1', 'sealane2']), { minLength: 1, maxLength: 4 }),
      async (plans) => {
        const stage = new Stage()
        for (const one of plans) {
          const { failure } = await stage.apply(one)
          t.equal(failure, undefined)
          const fresh = new Stage()
          await fresh.apply(one)
          t.equal(stage.table.toString(), fresh.table.toString(), 'as if there had never been another')
          t.same((await stage.apply(one)).done, [], 'and then there is nothing to do')
        }
        t.same(stage.repairs, [])
      },
    ),
    { numRuns: 300 },
  )
})
