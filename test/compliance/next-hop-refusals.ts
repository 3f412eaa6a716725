/** The objects that every NextHopTable refuses, with the error of each. */
import type { Test } from 'tap'
import type { KernelErrorCode } from '../../kernel/errors.ts'
import type { NextHopGroup, NextHopObject } from '../../kernel/route/next-hop-table.ts'
import { group, hop, hop6, id, resilient, route, wires } from './next-hop-stage.ts'
import type { NextHopNode } from './next-hop-table.ts'

export const nextHopRefusals = {
  'hops that are refused': refusedHops,
  'groups that are refused': refusedGroups,
  'what is there cannot become anything else': otherSorts,
  'IPv6 routes keep IPv4 out': mixedFamilies,
  'bad numbers and names': badInput,
}

type Row<T> = readonly [what: string, item: T, code: KernelErrorCode, message?: RegExp]

async function refusedHops(t: Test, node: NextHopNode): Promise<void> {
  await wires(node)
  const { hops, routes } = node
  await routes.addLink({ kind: 'bridge', name: 'sl-down', mtu: 1500 })
  await routes.addLink({ kind: 'bridge', name: 'sl-small', mtu: 1200 })
  await routes.setLink('sl-small', { up: true })
  const rows: Row<NextHopObject>[] = [
    ['no such device', hop(1, 'sl-none'), 'ENODEV', /no device sl-none/],
    ['a device that is down', hop(1, 'sl-down'), 'ENETDOWN'],
    ['the same of IPv6', hop6(1, 'sl-down'), 'ENETDOWN'],
    ['a gateway out of reach', hop(1, 'sl-a', { via: '203.0.113.9' }), 'ENETUNREACH'],
    ['the same of IPv6', hop6(1, 'sl-a', { via: 'fd00:9::2' }), 'EHOSTUNREACH'],
    ['a gateway of another device', hop(1, 'sl-b', { via: '192.0.2.2' }), 'ENETUNREACH'],
    ['an MTU that is too small for IPv6', hop6(1, 'sl-small'), 'ENODEV'],
  ]
  for (const [what, item, code, message] of rows) {
    await t.rejects(hops.replaceHop(item), { code, ...(message === undefined ? {} : { message }) }, what)
  }
  await hops.replaceHop(hop(1, 'sl-small'))
  t.strictSame(await hops.list(), { hops: [hop(1, 'sl-small')], groups: [] })
}

async function refusedGroups(t: Test, node: NextHopNode): Promise<void> {
  await wires(node)
  const { hops } = node
  await hops.replaceHop(hop(1, 'sl-b'))
  await hops.replaceGroup(group(10, [{ id: id(1) }]))
  await hops.replaceGroup(resilient(11, [{ id: id(1) }]))
  const missing = new RegExp(`no next hop ${id(2)}`)
  const rows: Row<NextHopGroup>[] = [
    ['a member is missing', group(12, [{ id: id(1) }, { id: id(2) }]), 'ENOENT', missing],
    ['the same of a resilient one', resilient(12, [{ id: id(2) }, { id: id(1) }]), 'ENOENT', missing],
    ['a member is a group', group(12, [{ id: id(10) }]), 'EINVAL'],
    ['a member is a resilient group', resilient(12, [{ id: id(11) }]), 'EINVAL'],
  ]
  for (const [what, item, code, message] of rows) {
    await t.rejects(hops.replaceGroup(item), { code, ...(message === undefined ? {} : { message }) }, what)
  }
  t.equal((await hops.list()).groups.length, 2, 'what was refused is not there')
  await t.rejects(hops.replaceGroup(group(10, [{ id: id(1) }, { id: id(2) }])), { code: 'ENOENT' })
  t.strictSame((await hops.list()).groups[0], group(10, [{ id: id(1) }]), 'what was there is as it was')
}

async function otherSorts(t: Test, node: NextHopNode): Promise<void> {
  await wires(node)
  const { hops } = node
  await hops.replaceHop(hop(1, 'sl-b'))
  await hops.replaceHop(hop(2, 'sl-b'))
  await hops.replaceGroup(group(10, [{ id: id(1) }]))
  await hops.replaceGroup(resilient(11, [{ id: id(1) }]))
  const before = await hops.list()
  const sort = { code: 'EINVAL', message: /a next hop cannot become a group, nor a group a next hop/ }
  await t.rejects(hops.replaceHop(hop(10, 'sl-b')), sort)
  await t.rejects(hops.replaceGroup(group(1, [{ id: id(2) }])), sort)
  const kind = { code: 'EINVAL', message: /kind of a group cannot be changed from/ }
  await t.rejects(hops.replaceGroup(resilient(10, [{ id: id(1) }])), kind)
  await t.rejects(hops.replaceGroup(group(11, [{ id: id(1) }])), kind)
  await t.rejects(hops.replaceGroup(resilient(11, [{ id: id(1) }], { buckets: 64 })), {
    code: 'EINVAL',
    message: /number of buckets cannot be changed from 32 to 64/,
  })
  t.strictSame(await hops.list(), before)
}

async function mixedFamilies(t: Test, node: NextHopNode): Promise<void> {
  await wires(node)
  const { hops, routes } = node
  await hops.replaceHop(hop(1, 'sl-b'))
  await hops.replaceHop(hop6(2, 'sl-b'))
  await hops.replaceGroup(group(10, [{ id: id(1) }, { id: id(2) }]))
  await hops.replaceGroup(resilient(11, [{ id: id(2) }]))
  const EINVAL = { code: 'EINVAL' }
  await t.rejects(routes.replaceRoute(route('fd01::/48', 10)), EINVAL, 'one member is IPv4')
  await t.rejects(routes.replaceRoute(route('fd01::/48', 1)), EINVAL)
  const wanted = [route('244.1.0.0/16', 10), route('244.2.0.0/16', 11), route('fd01::/48', 11)]
  for (const one of wanted) await routes.replaceRoute(one)
  t.strictSame(await routes.routes(), wanted, 'IPv4 goes over IPv6 hops')
  await t.rejects(hops.replaceGroup(resilient(11, [{ id: id(1) }, { id: id(2) }])), EINVAL, 'not while IPv6 uses it')
  await t.rejects(hops.replaceHop(hop(2, 'sl-b')), EINVAL, 'nor by way of a member')
  await routes.deleteRoute(wanted[2]!)
  await hops.replaceGroup(resilient(11, [{ id: id(1) }, { id: id(2) }]))
  await hops.replaceHop(hop(2, 'sl-b'))
}

async function badInput(t: Test, { hops }: NextHopNode): Promise<void> {
  const member = [{ id: id(1) }]
  const badHops: readonly NextHopObject[] = [
    { ...hop(1, 'sl-b'), id: 1 },
    { ...hop(1, 'sl-b'), id: id(0.5) },
    hop(1, 'a/b'),
    hop(1, 'sl-b', { via: 'here' }),
    hop(1, 'sl-b', { via: 'fe80::1' }),
    hop6(1, 'sl-b', { via: '192.0.2.2' }),
    hop(1, 'sl-b', { onlink: true }),
  ]
  for (const one of badHops) await t.rejects(hops.replaceHop(one), { code: 'EINVAL' }, JSON.stringify(one))
  const badGroups: readonly NextHopGroup[] = [
    { ...group(10, member), id: 10 },
    group(10, []),
    group(10, [{ id: 1 }]),
    group(10, [...member, ...member]),
    group(10, [{ id: id(10) }]),
    group(10, [{ id: id(1), weight: 0 }]),
    group(10, [{ id: id(1), weight: 256 }]),
    group(10, [{ id: id(1), weight: 1.5 }]),
    resilient(10, member, { buckets: 0 }),
    resilient(10, member, { buckets: 65_536 }),
    resilient(10, member, { idleTimerMs: -100 }),
    resilient(10, member, { idleTimerMs: 50 }),
    resilient(10, member, { unbalancedTimerMs: 43_000_000_000 }),
  ]
  for (const one of badGroups) await t.rejects(hops.replaceGroup(one), { code: 'EINVAL' }, JSON.stringify(one))
  await t.rejects(hops.remove(1), {
    code: 'EINVAL',
    message: 'ip nexthop del id 1: id 1: expected 731000000 to 731999999',
  })
  await t.rejects(hops.buckets(1), { code: 'EINVAL' })
}
