/** Routes that name a next-hop object or group, in every RouteTable. */
import type { Test } from 'tap'
import type { NextHop, Route } from '../../kernel/route/route-table.ts'
import { group, hop, hop6, id, resilient, route, wires } from './next-hop-stage.ts'
import type { NextHopNode } from './next-hop-table.ts'
import { sorted } from './route-table-stage.ts'

export const nextHopRoutes = {
  'routes that name a hop or a group': routes,
  'routes change between ids and hops of their own': mixed,
  'routes that are refused': refused,
  'look-up over a group': lookup,
  'routes over a group get, change and lose an MTU': mtus,
  'addresses go, routes that name an id stay': sources,
  'a device too small for IPv6 keeps its hops': small,
}

async function stage(node: NextHopNode): Promise<void> {
  await wires(node)
  const { hops } = node
  await hops.replaceHop(hop(1, 'sl-a', { via: '192.0.2.2' }))
  await hops.replaceHop(hop(2, 'sl-b'))
  await hops.replaceHop(hop6(3, 'sl-a', { via: 'fe80::1', onlink: true }))
  await hops.replaceHop(hop6(4, 'sl-b'))
  await hops.replaceGroup(resilient(10, [{ id: id(1), weight: 3 }, { id: id(2) }]))
  await hops.replaceGroup(resilient(11, [{ id: id(3) }, { id: id(4) }]))
}

async function routes(t: Test, node: NextHopNode): Promise<void> {
  await stage(node)
  const { routes } = node
  const wanted = [
    route('244.1.0.0/16', 10, { mtu: 1370, source: '192.0.2.1' }),
    route('244.2.0.0/16', 1),
    route('244.2.0.0/16', 10, { metric: 50 }),
    route('0.0.0.0/0', 10, { table: 100 }),
    route('fd01::/48', 11, { mtu: 1370, source: 'fd00:7::1' }),
    route('fd02::/48', 4),
    route('fd02::/48', 11, { metric: 50 }),
    route('::/0', 11, { table: 100 }),
  ]
  for (const one of wanted) await routes.replaceRoute(one)
  t.strictSame(sorted(await routes.routes()), sorted(wanted))
  for (const one of wanted) await routes.replaceRoute(one)
  t.strictSame(sorted(await routes.routes()), sorted(wanted), 'the same again is no change')
  const [last] = wanted.splice(-1)
  await routes.deleteRoute(last!)
  t.strictSame(sorted(await routes.routes()), sorted(wanted))
  await t.rejects(routes.deleteRoute(last!), { code: 'ESRCH' })
  for (const one of wanted) await routes.deleteRoute(one)
  t.same(await routes.routes(), [])
}

async function mixed(t: Test, node: NextHopNode): Promise<void> {
  await stage(node)
  const own = (destination: string, ...nextHops: readonly NextHop[]): Route => ({
    table: 7312,
    destination,
    type: 'unicast',
    nextHops,
  })
  const onlink = { via: 'fe80::1', onlink: true }
  const ways: Record<string, readonly Route[]> = {
    IPv4: [
      route('244.1.0.0/16', 10),
      own('244.1.0.0/16', { device: 'sl-a' }, { device: 'sl-b', weight: 2 }),
      route('244.1.0.0/16', 2),
      own('244.1.0.0/16', { device: 'sl-b' }),
    ],
    IPv6: [
      route('fd01::/48', 11),
      own('fd01::/48', { device: 'sl-a', ...onlink }, { device: 'sl-b', ...onlink, weight: 2 }),
      route('fd01::/48', 4),
      own('fd01::/48', { device: 'sl-b', ...onlink }),
      own('fd01::/48', { device: 'sl-b' }),
    ],
  }
  for (const [family, each] of Object.entries(ways)) {
    for (const [i, before] of each.entries()) {
      for (const [j, after] of each.entries()) {
        await node.routes.replaceRoute(before)
        await node.routes.replaceRoute(after)
        t.strictSame(await node.routes.routes(), [after], `${family}: ${i} becomes ${j}`)
        await node.routes.deleteRoute(after)
        t.same(await node.routes.routes(), [], `${family}: ${j} goes`)
      }
    }
  }
}

async function refused(t: Test, node: NextHopNode): Promise<void> {
  await stage(node)
  const EINVAL = { code: 'EINVAL' }
  const rows: readonly (readonly [what: string, route: Route])[] = [
    ['no such id', route('244.1.0.0/16', 77)],
    ['the same of IPv6', route('fd01::/48', 77)],
    ['both an id and a hop', { ...route('244.1.0.0/16', 10), nextHops: [{ device: 'sl-b' }] }],
    ['a refusal with an id', { ...route('244.1.0.0/16', 10), type: 'unreachable' }],
    ['id 0', { ...route('244.1.0.0/16', 10), nextHopId: 0 }],
    ['a source of somebody else', route('244.1.0.0/16', 10, { source: '192.0.2.77' })],
    ['the same of IPv6', route('fd01::/48', 11, { source: 'fd00:7::77' })],
  ]
  for (const [what, one] of rows) await t.rejects(node.routes.replaceRoute(one), EINVAL, what)
  t.same(await node.routes.routes(), [])
}

async function lookup(t: Test, node: NextHopNode): Promise<void> {
  await stage(node)
  const { hops, routes } = node
  await routes.addRule({ priority: 7312, table: 7312 })
  await routes.addRule({ family: 6, priority: 7312, table: 7312 })
  await hops.replaceGroup(group(12, [{ id: id(2) }]))
  await routes.replaceRoute(route('244.1.0.0/16', 12, { mtu: 1370, source: '192.0.2.1' }))
  await routes.replaceRoute(route('fd01::/48', 4, { mtu: 1370, source: 'fd00:7::1' }))
  t.match(await routes.lookup('244.1.0.7'), { device: 'sl-b', source: '192.0.2.1', mtu: 1370 })
  t.match(await routes.lookup('fd01::7'), { device: 'sl-b', source: 'fd00:7::1', mtu: 1370 })
  await hops.replaceGroup(group(12, [{ id: id(1) }]))
  t.match(await routes.lookup('244.1.0.7'), { device: 'sl-a' }, 'the group alone has changed')
}

async function mtus(t: Test, node: NextHopNode): Promise<void> {
  await stage(node)
  const { routes } = node
  for (const [destination, nextHop] of [
    ['244.1.0.0/16', 10],
    ['fd01::/48', 11],
  ] as const) {
    const made = (more: Partial<Route>): Route => route(destination, nextHop, more)
    for (const one of [made({ mtu: 1370 }), made({}), made({ mtu: 1400 }), made({ mtu: 1300 }), made({})]) {
      await routes.replaceRoute(one)
      t.strictSame(await routes.routes(), [one])
    }
    await routes.deleteRoute(made({}))
  }
  const [narrow, wide] = [route('244.1.0.0/16', 10, { mtu: 1370 }), route('244.2.0.0/16', 10)]
  for (const one of [narrow, wide]) await routes.replaceRoute(one)
  t.strictSame(await routes.routes(), [narrow, wide], 'each has its own')
}

async function sources(t: Test, node: NextHopNode): Promise<void> {
  await stage(node)
  const { routes } = node
  const [plain, own] = [route('244.1.0.0/16', 10), route('fd01::/48', 11, { source: 'fd00:7::1' })]
  const own4 = route('244.2.0.0/16', 10, { source: '192.0.2.7' })
  await routes.addAddress({ device: 'sl-b', address: '192.0.2.7/32' })
  for (const one of [plain, own4, own]) await routes.replaceRoute(one)
  await routes.deleteAddress({ device: 'sl-b', address: '192.0.2.7/32' })
  await routes.deleteAddress({ device: 'sl-a', address: 'fd00:7::1/64' })
  t.strictSame(await routes.routes(), [plain, own4, own], 'unlike one with hops of its own, it keeps its source')
  await routes.deleteAddress({ device: 'sl-a', address: '192.0.2.1/24' })
  t.strictSame(await routes.routes(), [plain, own4, own], 'the last address of IPv4 takes no hop along')
  t.equal((await node.hops.list()).hops.length, 4)
}

async function small(t: Test, node: NextHopNode): Promise<void> {
  await stage(node)
  const { hops, routes } = node
  const over = route('fd01::/48', 11)
  await routes.replaceRoute(over)
  await routes.setLink('sl-b', { mtu: 1279 })
  t.strictSame(await routes.routes(), [over])
  t.strictSame((await hops.list()).hops[3], hop6(4, 'sl-b'), 'as members of groups that lead nowhere')
  await t.rejects(hops.replaceHop(hop6(4, 'sl-b')), { code: 'ENODEV' }, 'though none is made anew')
}
