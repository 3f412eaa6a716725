/** The suite for every NextHopTable driver. It runs on the fake and, in a network namespace, on rtnetlink. */
import type { Test } from 'tap'
import { memberShares, type NextHopGroup, type NextHopTable } from '../../kernel/route/next-hop-table.ts'
import type { RouteTable } from '../../kernel/route/route-table.ts'
import { eventually } from '../support/eventually.ts'
import { nextHopRefusals } from './next-hop-refusals.ts'
import { nextHopRoutes } from './next-hop-routes.ts'
import { clearNextHops, group, hop, hop6, id, resilient, route, wires } from './next-hop-stage.ts'

/** The two tables of one node. */
export interface NextHopNode {
  readonly hops: NextHopTable
  readonly routes: RouteTable
}

/** `make` returns drivers for a namespace with only a loopback device. The suite closes them. */
export function nextHopTableCompliance(t: Test, make: () => NextHopNode): void {
  const stories = {
    'what the kernel has': features,
    'hops and groups are listed as they were made': listed,
    'hops and groups are replaced in place': replaced,
    'a hop that is removed leaves its groups': removed,
    'a device that stops takes its hops along, and routes that have no other way': stopped,
    'a device that goes does so too': deletedDevice,
    'buckets are shared by weight': shares,
    'buckets of members that stay do not move': steady,
    'changes are reported': changes,
    'an aborted signal': aborted,
    ...nextHopRefusals,
    ...nextHopRoutes,
  }
  for (const [name, body] of Object.entries(stories)) {
    t.test(name, async (t) => {
      const node = make()
      t.teardown(() => {
        node.hops.close()
        node.routes.close()
      })
      await clearNextHops(node)
      await body(t, node)
      await clearNextHops(node)
    })
  }
}

async function features(t: Test, { hops }: NextHopNode): Promise<void> {
  t.same(await hops.features(), { objects: true, resilient: true })
  t.same(await hops.list(), { hops: [], groups: [] }, 'asking makes nothing')
}

async function listed(t: Test, node: NextHopNode): Promise<void> {
  await wires(node)
  const { hops } = node
  const wanted = {
    hops: [
      hop(1, 'sl-a', { via: '192.0.2.2' }),
      hop(2, 'sl-b'),
      hop(3, 'sl-b', { via: '203.0.113.9', onlink: true }),
      hop6(4, 'sl-a', { via: 'fd00:7::2' }),
      hop6(5, 'sl-b'),
      hop6(6, 'sl-b', { via: 'fe80::1', onlink: true }),
    ],
    groups: [
      group(10, [{ id: id(1) }, { id: id(2), weight: 255 }]),
      resilient(11, [{ id: id(2), weight: 3 }, { id: id(3) }]),
      resilient(12, [{ id: id(5) }], { buckets: 65_535, idleTimerMs: 120_000, unbalancedTimerMs: 0 }),
      resilient(13, [{ id: id(4) }, { id: id(6) }], { buckets: 1, idleTimerMs: 0, unbalancedTimerMs: 86_400_000 }),
      resilient(14, [{ id: id(1) }], { idleTimerMs: 1_100, unbalancedTimerMs: 300 }),
      group(15, [{ id: id(1) }, { id: id(4) }]),
    ],
  }
  for (const one of [...wanted.hops].reverse()) await hops.replaceHop(one)
  for (const one of [...wanted.groups].reverse()) await hops.replaceGroup(one)
  t.strictSame(await hops.list(), wanted, 'by their ids')
  for (const one of wanted.hops) await hops.replaceHop(one)
  for (const one of wanted.groups) await hops.replaceGroup(one)
  t.strictSame(await hops.list(), wanted, 'the same again is no change')
  await hops.replaceHop({ ...hop6(4, 'sl-a'), via: 'FD00:7:0::2', onlink: false })
  const members = [
    { id: id(2), weight: 255 },
    { id: id(1), weight: 1 },
  ]
  await hops.replaceGroup(group(10, members))
  t.strictSame(await hops.list(), wanted, 'usual addresses, members by their ids, without what is default')
}

async function replaced(t: Test, node: NextHopNode): Promise<void> {
  await wires(node)
  const { hops, routes } = node
  await hops.replaceHop(hop(1, 'sl-a', { via: '192.0.2.2' }))
  await hops.replaceHop(hop(2, 'sl-b'))
  await hops.replaceGroup(resilient(10, [{ id: id(1) }]))
  await routes.replaceRoute(route('244.1.0.0/16', 10))
  await hops.replaceHop(hop(1, 'sl-b', { via: '203.0.113.9', onlink: true }))
  const after = resilient(10, [{ id: id(1) }, { id: id(2), weight: 2 }], { idleTimerMs: 500, unbalancedTimerMs: 700 })
  await hops.replaceGroup(after)
  t.strictSame(await hops.list(), {
    hops: [hop(1, 'sl-b', { via: '203.0.113.9', onlink: true }), hop(2, 'sl-b')],
    groups: [after],
  })
  t.strictSame(await routes.routes(), [route('244.1.0.0/16', 10)], 'the route does not notice')
  await hops.replaceHop(hop6(2, 'sl-b'))
  t.strictSame((await hops.list()).hops[1], hop6(2, 'sl-b'), 'of another family, where no IPv6 route minds')
}

async function removed(t: Test, node: NextHopNode): Promise<void> {
  await wires(node)
  const { hops, routes } = node
  for (const one of [1, 2]) await hops.replaceHop(hop(one, 'sl-b'))
  await hops.replaceGroup(resilient(10, [{ id: id(1) }, { id: id(2) }]))
  await hops.replaceGroup(group(11, [{ id: id(1) }]))
  const wanted = [route('244.1.0.0/16', 10), route('244.2.0.0/16', 11), route('244.3.0.0/16', 2)]
  for (const one of wanted) await routes.replaceRoute(one)
  await hops.remove(id(1))
  t.strictSame((await hops.list()).groups, [resilient(10, [{ id: id(2) }])], 'the group without members is gone')
  t.strictSame(await routes.routes(), [wanted[0], wanted[2]], 'and with it what named it')
  await t.rejects(hops.remove(id(1)), { code: 'ENOENT' })
  await t.rejects(hops.remove(id(11)), { code: 'ENOENT' })
  await hops.remove(id(10))
  t.strictSame(await routes.routes(), [wanted[2]])
  await hops.remove(id(2))
  t.strictSame([await routes.routes(), await hops.list()], [[], { hops: [], groups: [] }])
}

async function stopped(t: Test, node: NextHopNode): Promise<void> {
  const wanted = await twoWays(node)
  const { hops, routes } = node
  await routes.setLink('sl-b', { up: false })
  t.strictSame(await hops.list(), {
    hops: [hop(1, 'sl-a', { via: '192.0.2.2' }), hop6(3, 'sl-a', { via: 'fe80::1', onlink: true })],
    groups: [resilient(10, [{ id: id(1) }]), group(11, [{ id: id(3) }])],
  })
  t.strictSame(await routes.routes(), wanted, 'another way is left')
  await t.rejects(hops.replaceHop(hop(2, 'sl-b')), { code: 'ENETDOWN' })
  await routes.setLink('sl-a', { up: false })
  t.strictSame([await hops.list(), await routes.routes()], [{ hops: [], groups: [] }, []], 'none is left')
  await routes.setLink('sl-a', { up: true })
  t.strictSame([await hops.list(), await routes.routes()], [{ hops: [], groups: [] }, []], 'nothing comes back')
}

async function deletedDevice(t: Test, node: NextHopNode): Promise<void> {
  const wanted = await twoWays(node)
  const { hops, routes } = node
  await routes.deleteLink('sl-a')
  t.strictSame(await hops.list(), {
    hops: [hop(2, 'sl-b'), hop6(4, 'sl-b')],
    groups: [resilient(10, [{ id: id(2) }]), group(11, [{ id: id(4) }])],
  })
  t.strictSame(await routes.routes(), wanted, 'of neither family')
  await routes.deleteLink('sl-b')
  t.strictSame([await hops.list(), await routes.routes()], [{ hops: [], groups: [] }, []])
}

async function shares(t: Test, node: NextHopNode): Promise<void> {
  await wires(node)
  const { hops } = node
  for (const one of [1, 2, 3]) await hops.replaceHop(hop(one, 'sl-b'))
  const held = async (wanted: NextHopGroup): Promise<readonly number[]> => {
    await hops.replaceGroup(wanted)
    return memberShares(await hops.buckets(wanted.id)).map(({ buckets }) => buckets)
  }
  t.same(
    await held(
      resilient(10, [
        { id: id(1), weight: 3 },
        { id: id(2), weight: 2 },
      ]),
    ),
    [19, 13],
  )
  t.same(await held(resilient(11, [{ id: id(1) }, { id: id(2) }, { id: id(3) }])), [11, 10, 11])
  t.same(await held(resilient(12, [{ id: id(1) }], { buckets: 1 })), [1])
  const all = await hops.buckets(id(11))
  t.same(
    all.map(({ index }) => index),
    all.map((_, index) => index),
    'each once, in order',
  )
  t.ok(
    all.every(({ idleMs }) => Number.isInteger(idleMs) && idleMs >= 0),
    'each with its idle time',
  )
  await hops.replaceGroup(group(13, [{ id: id(1) }]))
  for (const one of [1, 13]) await t.rejects(hops.buckets(id(one)), { code: 'EINVAL' }, 'has no buckets')
  await t.rejects(hops.buckets(id(9)), { code: 'ENOENT' })
}

async function steady(t: Test, node: NextHopNode): Promise<void> {
  await wires(node)
  const { hops } = node
  const three = [{ id: id(1) }, { id: id(2) }, { id: id(3) }]
  for (const one of [1, 2, 3]) await hops.replaceHop(hop(one, 'sl-b'))
  const held = async (): Promise<readonly number[]> => (await hops.buckets(id(10))).map(({ member }) => member)
  const moved = (before: readonly number[], after: readonly number[]): readonly (number | undefined)[] =>
    [...new Set(before.filter((member, index) => member !== after[index]))].sort((a, b) => a - b)
  await hops.replaceGroup(resilient(10, three))
  const before = await held()
  await hops.replaceGroup(resilient(10, three, { idleTimerMs: 20_000 }))
  t.same(moved(before, await held()), [], 'replaced by the same')
  await hops.replaceGroup(resilient(10, [{ id: id(1) }, { id: id(3) }]))
  const without = await held()
  t.same([moved(before, without), without.includes(id(2))], [[id(2)], false], 'a member is left out')
  await hops.replaceGroup(resilient(10, three))
  const again = await held()
  t.same(moved(without, again), [id(1), id(3)], 'it is back, and nothing has flowed')
  t.equal(again.filter((member) => member === id(2)).length, 10)
  await hops.remove(id(1))
  t.same(moved(again, await held()), [id(1)], 'a hop is removed')
}

async function changes(t: Test, node: NextHopNode): Promise<void> {
  await wires(node)
  const { hops, routes } = node
  const calls = { hops: 0, routes: 0 }
  const stop = hops.onChange(() => (calls.hops += 1))
  const stopRoutes = routes.onChange(() => (calls.routes += 1))
  const both = async (say: string): Promise<void> => {
    await eventually(() => calls.hops > 0 && calls.routes > 0, { say })
    Object.assign(calls, { hops: 0, routes: 0 })
  }
  await hops.replaceHop(hop(1, 'sl-b'))
  await both('a call after a new hop')
  await routes.setLink('sl-b', { up: false })
  await both('a call after a device has stopped')
  stop()
  stopRoutes()
  await routes.setLink('sl-b', { up: true })
  for (let i = 0; i < 5; i++) await hops.list()
  t.same(calls, { hops: 0, routes: 0 }, 'none after it was stopped')
}

async function aborted(t: Test, { hops }: NextHopNode): Promise<void> {
  await t.rejects(hops.list(AbortSignal.abort()), { code: 'EINTR' })
  await t.rejects(hops.remove(id(1), AbortSignal.abort()), { code: 'EINTR' })
}

/** Adds a group over two devices for each family, and a route over each group. Returns the routes. */
async function twoWays(node: NextHopNode): Promise<readonly unknown[]> {
  await wires(node)
  const { hops, routes } = node
  await hops.replaceHop(hop(1, 'sl-a', { via: '192.0.2.2' }))
  await hops.replaceHop(hop(2, 'sl-b'))
  await hops.replaceHop(hop6(3, 'sl-a', { via: 'fe80::1', onlink: true }))
  await hops.replaceHop(hop6(4, 'sl-b'))
  await hops.replaceGroup(resilient(10, [{ id: id(1) }, { id: id(2) }]))
  await hops.replaceGroup(group(11, [{ id: id(3) }, { id: id(4) }]))
  const wanted = [route('244.1.0.0/16', 10), route('fd01::/48', 11)]
  for (const one of wanted) await routes.replaceRoute(one)
  return wanted
}
