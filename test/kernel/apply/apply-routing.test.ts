/**
 * Routes, rules, neighbours and forwarding entries are brought in line with a plan, for the gateway and for the
 * routeagent.
 */
import fc from 'fast-check'
import t from 'tap'
import { NO_ROUTING, type RoutingPlan, type RoutingScope, applyRouting } from '../../../kernel/apply/apply-routing.ts'
import { Round } from '../../../kernel/apply/round.ts'
import { Drift } from '../../../kernel/drift.ts'
import { KernelError } from '../../../kernel/errors.ts'
import { FakeRouteTable } from '../../../kernel/fake/fake-route-table.ts'
import type { NextHop, Route, Rule } from '../../../kernel/route/route-table.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'

const OVERLAY: RoutingScope = { tables: new Set([7310, 7312]), device: 'sealane-vx' }

class Stage {
  readonly logger = new CapturingLogger()
  readonly table = new FakeRouteTable({
    links: [{ name: 'eth0' }, { name: 'sealane-vx', kind: 'vxlan' }, { name: 'sealane0' }, { name: 'sealane1' }],
    addresses: [{ device: 'eth0', address: '192.0.2.1/24' }],
  })
  readonly repairs: string[] = []
  readonly drift = new Drift({
    clock: new FakeClock(),
    logger: this.logger,
    repairs: { inc: ({ what, reason } = {}) => void this.repairs.push(`${what} ${reason}`) },
  })

  /** Runs one round and returns what it did, in the language of the tools. */
  async apply(plan: RoutingPlan, scope = OVERLAY): Promise<{ done: unknown[]; failure: string | undefined }> {
    const before = this.logger.lines.length
    const round = new Round({ logger: this.logger, drift: this.drift })
    await applyRouting(this.table, plan, scope, round, new AbortController().signal)
    const lines = this.logger.lines.slice(before).filter(({ message }) => message === 'changed')
    return { done: lines.map(({ fields }) => fields['text']), failure: round.failure?.message }
  }
}

function route(table: number, destination: string, ...nextHops: NextHop[]): Route {
  return { table, destination, type: nextHops.length === 0 ? 'unreachable' : 'unicast', nextHops }
}

const VIA = { device: 'sealane-vx', via: '192.0.2.2', onlink: true }
const RULE: Rule = { priority: 7312, table: 7312 }
const PLAN: RoutingPlan = {
  neighbours: [{ device: 'sealane-vx', address: '192.0.2.2', mac: '0a:5e:c0:00:02:02' }],
  forwarding: [{ device: 'sealane-vx', mac: '0a:5e:c0:00:02:02', destination: '192.0.2.2' }],
  routes: [route(7312, '244.1.0.0/16', VIA), route(7312, '244.0.0.0/8')],
  rules: [RULE],
}

t.test('things come in the order in which they need each other, and go in the opposite one', async (t) => {
  const stage = new Stage()
  t.same((await stage.apply(PLAN)).done, [
    'ip neighbour replace 192.0.2.2 lladdr 0a:5e:c0:00:02:02 dev sealane-vx nud permanent',
    'bridge fdb replace 0a:5e:c0:00:02:02 dev sealane-vx dst 192.0.2.2 self permanent',
    'ip route replace unreachable 244.0.0.0/8 table 7312 proto 173',
    'ip route replace 244.1.0.0/16 via 192.0.2.2 dev sealane-vx onlink table 7312 proto 173',
    'ip rule add priority 7312 lookup 7312 protocol 173',
  ])
  t.same((await stage.apply(PLAN)).done, [], 'nothing is done twice')
  t.same((await stage.apply(NO_ROUTING)).done, [
    'ip rule del priority 7312 lookup 7312 protocol 173',
    'ip route del unreachable 244.0.0.0/8 table 7312 proto 173',
    'ip route del 244.1.0.0/16 table 7312 proto 173',
    'bridge fdb del 0a:5e:c0:00:02:02 dev sealane-vx dst 192.0.2.2 self',
    'ip neighbour del 192.0.2.2 dev sealane-vx',
  ])
  t.same(stage.repairs, [], 'all of it was our own doing')
})

t.test('what is new is there before what is old goes', async (t) => {
  const stage = new Stage()
  await stage.apply({ routes: [route(7312, '244.1.0.0/16', VIA)], rules: [RULE] })
  const next = { routes: [route(7310, '10.1.0.0/16', VIA)], rules: [{ ...RULE, priority: 7310 }] }
  t.same((await stage.apply(next)).done, [
    'ip route replace 10.1.0.0/16 via 192.0.2.2 dev sealane-vx onlink table 7310 proto 173',
    'ip rule add priority 7310 lookup 7312 protocol 173',
    'ip rule del priority 7312 lookup 7312 protocol 173',
    'ip route del 244.1.0.0/16 table 7312 proto 173',
  ])
})

t.test('tables and devices of others are never looked at', async (t) => {
  const stage = new Stage()
  await stage.apply(PLAN)
  const lanes: RoutingScope = { tables: new Set([7311]) }
  await stage.apply({ routes: [route(7311, '244.2.0.0/16', { device: 'sealane0' })], rules: [] }, lanes)
  t.same((await stage.apply(NO_ROUTING, lanes)).done, ['ip route del 244.2.0.0/16 table 7311 proto 173'])
  t.same((await stage.apply(PLAN)).done, [], 'the other part has all it had')
})

t.test('a route is the same whatever the order in which the kernel lists its next hops', async () => {
  const hop = fc.record({
    device: fc.constantFrom('sealane0', 'sealane1'),
    via: fc.option(fc.constantFrom('192.0.2.2', '192.0.2.3'), { nil: undefined }),
    weight: fc.option(fc.integer({ min: 1, max: 3 }), { nil: undefined }),
  })
  const hops = fc.uniqueArray(hop, { minLength: 2, maxLength: 4, selector: ({ device, via }) => `${device} ${via}` })
  await fc.assert(
    fc.asyncProperty(hops, fc.boolean(), async (some, changes) => {
      const nextHops = some.map(({ device, via, weight }) => ({
        device,
        ...(via === undefined ? {} : { via, onlink: true }),
        ...(weight === undefined ? {} : { weight }),
      }))
      const stage = new Stage()
      await stage.apply({ routes: [route(7312, '244.1.0.0/16', ...nextHops)], rules: [] })
      const turned = [...nextHops].reverse()
      if (changes) turned.pop()
      const { done } = await stage.apply({ routes: [route(7312, '244.1.0.0/16', ...turned)], rules: [] })
      return done.length === (changes ? 1 : 0)
    }),
    { numRuns: 100 },
  )
})

t.test('what others changed is put right, counted, and told from changes of the plan', async (t) => {
  const stage = new Stage()
  await stage.apply(PLAN)
  await stage.table.deleteRule(RULE)
  await stage.table.replaceRoute(route(7312, '244.1.0.0/16', { ...VIA, via: '192.0.2.9' }))
  await stage.table.replaceRoute(route(7312, '244.9.0.0/16'))
  t.same((await stage.apply(PLAN)).done, [
    'ip route replace 244.1.0.0/16 via 192.0.2.2 dev sealane-vx onlink table 7312 proto 173',
    'ip rule add priority 7312 lookup 7312 protocol 173',
    'ip route del unreachable 244.9.0.0/16 table 7312 proto 173',
  ])
  t.same(stage.repairs, ['route Changed', 'route Foreign', 'rule Missing'])
  await stage.apply({ ...PLAN, routes: [] })
  await stage.apply(PLAN)
  t.equal(stage.repairs.length, 3, 'the plan may change its mind')
})

t.test('one step that fails holds no other up, and is no drift when it is done later', async (t) => {
  const stage = new Stage()
  stage.table.failNext(new KernelError('EBUSY', 'ip neighbour replace', 'not now'))
  const first = await stage.apply(PLAN)
  t.equal(first.failure, 'ip neighbour replace: not now')
  t.equal(first.done.length, 4)
  t.same((await stage.apply(PLAN)).done.length, 1)
  t.same(stage.repairs, [])
})

t.test('without the device there are no entries to find', async (t) => {
  const stage = new Stage()
  const scope = { ...OVERLAY, device: 'sealane-gone' }
  const { failure, done } = await stage.apply({ routes: [route(7312, '244.0.0.0/8')], rules: [] }, scope)
  t.same([failure, done.length], [undefined, 1])
})

t.test('when something cannot be read, nothing is changed', async (t) => {
  const stage = new Stage()
  stage.table.rules = () => Promise.reject(new KernelError('TIMEOUT', 'ip rule', 'no answer from the kernel'))
  t.same(await stage.apply(PLAN), { done: [], failure: 'ip rule: no answer from the kernel' })
})
