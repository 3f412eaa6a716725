/**
 * The suite for every RouteTable driver with IPv6, which covers what equals IPv4 and what the kernel does differently.
 */
import type { Test } from 'tap'
import type { KernelErrorCode } from '../../kernel/errors.ts'
import type { NextHop, Route, RouteTable, Rule } from '../../kernel/route/route-table.ts'
import { eventually } from '../support/eventually.ts'
import { sorted, underlay } from './route-table-stage.ts'

type Story = (t: Test, table: RouteTable) => Promise<void>

export const ipv6RouteTableStories: Readonly<Record<string, Story>> = {
  addresses,
  routes,
  'other ways to say the same': otherForms,
  'routes that are refused': refusedRoutes,
  'routes go with their device': routesGoWithDevice,
  'an address that was a source': sources,
  rules,
  neighbours,
  'look-up': lookup,
  'a device with a small MTU': smallMtu,
  'changes are told': changes,
}

const SOURCE = '2001:db8::1'
const onVxlan: NextHop = { device: 'sl-vx', via: 'fe80::5ea1:c000:202', onlink: true }
const unicast = (destination: string, rest: Partial<Route> = {}): Route => ({
  table: 7312,
  destination,
  type: 'unicast',
  nextHops: [onVxlan],
  ...rest,
})
const unreachable = (destination: string, rest: Partial<Route> = {}): Route => ({
  table: 7312,
  destination,
  type: 'unreachable',
  nextHops: [],
  ...rest,
})
const lane = (device: string, rest: Partial<NextHop> = {}): NextHop => ({
  device,
  via: 'fe80::1',
  onlink: true,
  ...rest,
})

async function bothFamilies(table: RouteTable): Promise<void> {
  await underlay(table)
  await table.addAddress({ device: 'sl-wire', address: `${SOURCE}/64` })
}

async function bridge(table: RouteTable, name: string): Promise<void> {
  await table.addLink({ kind: 'bridge', name, mtu: 1500 })
  await table.setLink(name, { up: true })
}

/** Returns the addresses that the test added, without the link-local address that the kernel gives to each device. */
async function given(table: RouteTable): Promise<unknown> {
  const all = await table.addresses()
  return all.filter(({ device, address }) => device.startsWith('sl-') && !/^fe80::(?!5ea1:)/.test(address))
}

async function addresses(t: Test, table: RouteTable): Promise<void> {
  await bridge(table, 'sl-wire')
  const address = { device: 'sl-wire', address: 'fd53::1/64' }
  const linkLocal = { device: 'sl-wire', address: 'fe80::5ea1:c000:201/64' }
  await table.addAddress({ ...address, address: 'FD53:0::1/64' })
  await table.addAddress(linkLocal)
  t.same(new Set((await given(table)) as object[]), new Set([address, linkLocal]))
  await t.rejects(table.addAddress(address), { code: 'EEXIST' })
  await t.rejects(table.addAddress({ ...address, device: 'sl-none' }), { code: 'ENODEV' })
  await t.rejects(table.addAddress({ ...address, address: 'fd53::1/129' }), { code: 'EINVAL' })
  await table.deleteAddress(linkLocal)
  await t.rejects(table.deleteAddress(linkLocal), { code: 'EADDRNOTAVAIL' })
  await table.setLink('sl-wire', { up: false })
  t.same(await given(table), [], 'they go when the device stops')
}

async function routes(t: Test, table: RouteTable): Promise<void> {
  await bothFamilies(table)
  await bridge(table, 'sl-two')
  const ipv4: Route = unicast('244.1.0.0/16', { nextHops: [{ device: 'sl-two' }] })
  const wanted: Route[] = [
    unicast('fd01::/48', { mtu: 1370, source: SOURCE }),
    { table: 7311, destination: 'fd02::/48', type: 'unicast', nextHops: [{ device: 'sl-two' }], metric: 50 },
    unicast('fd03::/48', { nextHops: [{ device: 'sl-wire', via: '2001:db8::9' }] }),
    unicast('fd04::/48', { nextHops: [lane('sl-wire', { weight: 3 }), lane('sl-two')], mtu: 1370 }),
    unicast('fd05::/48', { nextHops: [lane('sl-two'), lane('sl-two', { via: 'fe80::2' })], metric: 7 }),
    unicast('::/0', { table: 100, nextHops: [{ device: 'sl-wire' }] }),
    unreachable('fd00::/8', { metric: 4278198272 }),
    unreachable('fd01::/48', { metric: 4278198272 }),
    unreachable('fd06::/48'),
    { table: 7310, destination: 'fd01::9/128', type: 'throw', nextHops: [] },
  ]
  for (const route of [ipv4, ...wanted]) await table.replaceRoute(route)
  t.strictSame(sorted(await table.routes()), sorted([ipv4, ...wanted]))
  for (const route of wanted) await table.replaceRoute(route)
  t.strictSame(sorted(await table.routes()), sorted([ipv4, ...wanted]), 'the same again is no change')

  const multipath = wanted[3]!
  for (const nextHops of [[lane('sl-two')], [{ device: 'sl-two' }], [lane('sl-wire'), lane('sl-two')]]) {
    const replaced = { ...multipath, nextHops }
    await table.replaceRoute(replaced)
    t.strictSame(await of(table, multipath), [replaced], `replaced by ${nextHops.length}`)
  }
  await table.replaceRoute({ ...unreachable(multipath.destination) })
  t.strictSame(await of(table, multipath), [unreachable(multipath.destination)], 'a type is no part of the key')
  await t.rejects(table.deleteRoute(multipath), { code: 'ESRCH' }, 'but a route of another type is not taken away')
  await table.replaceRoute(multipath)
  await table.deleteRoute(multipath)
  await table.deleteRoute(wanted[0]!)
  await t.rejects(table.deleteRoute(wanted[0]!), { code: 'ESRCH' }, 'the one of higher metric is another route')
  await table.deleteRoute(wanted[6]!)
  await t.rejects(table.deleteRoute(wanted[6]!), { code: 'ESRCH' })
  const rest = [ipv4, ...wanted.filter((_, i) => ![0, 3, 6].includes(i))]
  t.strictSame(sorted(await table.routes()), sorted(rest))
  await table.deleteRoute(ipv4)
  t.strictSame(sorted(await table.routes()), sorted(rest.slice(1)))
}

async function of(table: RouteTable, route: Route): Promise<readonly Route[]> {
  return (await table.routes()).filter((item) => item.destination === route.destination)
}

async function otherForms(t: Test, table: RouteTable): Promise<void> {
  await bothFamilies(table)
  const listed = unicast('fd01:0:0:10::/64', { nextHops: [{ device: 'sl-wire', via: '2001:db8::9' }], source: SOURCE })
  const odd = unicast('FD01:0000::10:0:0:0:0/64', {
    nextHops: [{ device: 'sl-wire', via: '2001:db8:0:0::9', onlink: false, weight: 1 }],
    source: '2001:DB8::0001',
  })
  for (const metric of [undefined, 0, 1024]) {
    await table.replaceRoute(metric === undefined ? odd : { ...odd, metric })
    t.strictSame(await table.routes(), [listed], `metric ${metric}`)
  }
  for (const metric of [0, 1024]) {
    await table.deleteRoute({ ...odd, metric })
    t.same(await table.routes(), [])
    await table.replaceRoute(listed)
  }
}

async function refusedRoutes(t: Test, table: RouteTable): Promise<void> {
  await bothFamilies(table)
  await bridge(table, 'sl-two')
  await table.addLink({ kind: 'bridge', name: 'sl-down', mtu: 1500 })
  const rows: readonly (readonly [Partial<Route>, KernelErrorCode, string])[] = [
    [{ nextHops: [{ device: 'sl-none' }] }, 'ENODEV', 'a device that is not there'],
    [{ nextHops: [{ device: 'sl-down' }] }, 'ENETDOWN', 'a device that is down'],
    [{ nextHops: [{ device: 'sl-wire', via: '2001:db8:1::1' }] }, 'EHOSTUNREACH', 'a gateway out of reach'],
    [{ nextHops: [{ device: 'sl-wire', via: '192.0.2.9' }] }, 'EINVAL', 'a gateway of another family'],
    [{ source: '2001:db8::5' }, 'EINVAL', 'a source that is not ours'],
    [{ source: '192.0.2.1' }, 'EINVAL', 'a source of another family'],
    [{ nextHops: [{ device: 'sl-wire' }, { device: 'sl-two' }] }, 'EINVAL', 'several that are devices only'],
    [{ nextHops: [lane('sl-wire'), { device: 'sl-two' }] }, 'EINVAL', 'one of several that is a device only'],
    [{ nextHops: [lane('sl-two'), lane('sl-two')] }, 'EEXIST', 'the same twice'],
    [{ nextHops: [] }, 'EINVAL', 'no next hop'],
    [{ type: 'throw' }, 'EINVAL', 'a throw route with a next hop'],
    [{ destination: 'fd01::1/48' }, 'EINVAL', 'host bits'],
    [{ destination: 'fd01::/129' }, 'EINVAL', 'a length that is none'],
    [{ destination: 'fe80::%sl-wire/64' }, 'EINVAL', 'a zone'],
  ]
  for (const [change, code, say] of rows) {
    await t.rejects(table.replaceRoute(unicast('fd01::/48', change)), { code }, `${say}: ${code}`)
  }
  t.same(await table.routes(), [])
}

async function routesGoWithDevice(t: Test, table: RouteTable): Promise<void> {
  await underlay(table)
  for (const name of ['sl-one', 'sl-two']) await bridge(table, name)
  const both = unicast('fd01::/48', { nextHops: [lane('sl-two', { weight: 2 }), lane('sl-one')] })
  const one = unicast('fd02::/48', { nextHops: [{ device: 'sl-two' }] })
  const none = unreachable('fd03::/48')
  for (const route of [both, one, none]) await table.replaceRoute(route)
  await table.setLink('sl-two', { up: false })
  t.strictSame(sorted(await table.routes()), sorted([both, none]), 'a device that stops takes those that have no other')
  await table.setLink('sl-two', { up: true })
  await table.deleteLink('sl-two')
  const left = { ...both, nextHops: [lane('sl-one')] }
  t.strictSame(sorted(await table.routes()), sorted([left, none]), 'one that goes takes only its own way: unlike IPv4')
  await table.deleteLink('sl-one')
  t.strictSame(await table.routes(), [none])
}

async function sources(t: Test, table: RouteTable): Promise<void> {
  await bothFamilies(table)
  await bridge(table, 'sl-two')
  const route = unicast('fd01::/48', { nextHops: [{ device: 'sl-two' }], source: SOURCE })
  const bare = unicast('fd01::/48', { nextHops: [{ device: 'sl-two' }] })
  await table.replaceRoute(route)
  await table.setLink('sl-wire', { up: false })
  t.strictSame(await table.routes(), [route], 'it outlives an address that goes with its device')
  await table.setLink('sl-wire', { up: true })
  await table.addAddress({ device: 'sl-wire', address: `${SOURCE}/64` })
  await table.deleteAddress({ device: 'sl-wire', address: `${SOURCE}/64` })
  t.strictSame(await table.routes(), [bare], 'one that is taken away is forgotten: unlike IPv4')
}

async function rules(t: Test, table: RouteTable): Promise<void> {
  const wanted: Rule[] = [
    { priority: 74, table: 7311, exceptMark: 0x1073 },
    { family: 6, priority: 73, table: 7310, inputDevice: 'sealane0' },
    { family: 6, priority: 73, table: 7310, inputDevice: 'sealane1' },
    { family: 6, priority: 74, table: 7311, exceptMark: 0x1073 },
    { family: 6, priority: 75, table: 7312 },
  ]
  await table.addRule({ ...wanted[0]!, family: 4 })
  for (const rule of wanted.slice(1)) await table.addRule(rule)
  t.strictSame(await table.rules(), wanted, 'IPv4 first, where the family is not said')
  for (const rule of wanted) await t.rejects(table.addRule(rule), { code: 'EEXIST' })
  await table.deleteRule(wanted[3]!)
  await t.rejects(table.deleteRule(wanted[3]!), { code: 'ENOENT' }, 'the same rule of IPv4 is another')
  t.strictSame(await table.rules(), wanted.toSpliced(3, 1))
}

async function neighbours(t: Test, table: RouteTable): Promise<void> {
  await underlay(table)
  const mac = '0a:5e:c0:00:02:02'
  const ipv4 = { device: 'sl-vx', address: '192.0.2.2', mac }
  const neighbour = { device: 'sl-vx', address: 'fe80::5ea1:c000:202', mac }
  await table.replaceNeighbour(ipv4)
  await table.replaceNeighbour({ ...neighbour, address: 'FE80:0::5ea1:c000:202' })
  t.strictSame(await table.neighbours('sl-vx'), [ipv4, neighbour])
  const moved = { ...neighbour, mac: '0a:5e:c0:00:02:03' }
  await table.replaceNeighbour(moved)
  t.strictSame(await table.neighbours('sl-vx'), [ipv4, moved])
  t.same(await table.neighbours('sl-wire'), [])
  await table.deleteNeighbour(moved)
  t.strictSame(await table.neighbours('sl-vx'), [ipv4])
  await t.rejects(table.deleteNeighbour(moved), { code: 'ENOENT' })
  await table.replaceNeighbour(neighbour)
  await table.setLink('sl-vx', { up: false })
  t.same(await table.neighbours('sl-vx'), [], 'they go when the device stops')
  await t.rejects(table.replaceNeighbour(neighbour), { code: 'ENETDOWN' })
}

async function lookup(t: Test, table: RouteTable): Promise<void> {
  await t.rejects(table.lookup('fd01::7'), { code: 'ENETUNREACH' })
  await bothFamilies(table)
  t.match(await table.lookup('2001:db8::77'), { device: 'sl-wire', source: SOURCE, mtu: 1500 })
  await table.addRule({ priority: 75, table: 7312 })
  await table.replaceRoute(unicast('fd01::/48', { mtu: 1370 }))
  await t.rejects(table.lookup('fd01::7'), { code: 'ENETUNREACH' }, 'a rule of IPv4 leads nowhere')
  await table.addRule({ family: 6, priority: 75, table: 7312 })
  t.match(await table.lookup('fd01::7'), { device: 'sl-vx', source: SOURCE, mtu: 1370 })
  await table.replaceRoute(unreachable('fd00::/8'))
  await t.rejects(table.lookup('fd02::7'), { code: 'EHOSTUNREACH' })
  await table.replaceRoute({ table: 7312, destination: '2001:db8::/64', type: 'throw', nextHops: [] })
  t.match(await table.lookup('2001:db8::77'), { device: 'sl-wire' }, 'thrown back to the tables that follow')
  await table.addRule({ family: 6, priority: 74, table: 7311, exceptMark: 0x1073 })
  await table.replaceRoute({ ...unicast('2001:db8::/96'), table: 7311, mtu: 1300 })
  t.match(await table.lookup('2001:db8::77'), { device: 'sl-vx', mtu: 1300 })
  t.match(await table.lookup('2001:db8::77', undefined, 0x1073), { device: 'sl-wire', mtu: 1500 }, 'by its mark')
}

async function smallMtu(t: Test, table: RouteTable): Promise<void> {
  await underlay(table)
  await bridge(table, 'sl-two')
  const address = { device: 'sl-two', address: 'fd53::1/64' }
  const neighbour = { device: 'sl-two', address: 'fe80::7', mac: '0a:5e:c0:00:02:02' }
  const route = unicast('fd01::/48', { nextHops: [{ device: 'sl-two' }] })
  const ipv4 = unicast('244.1.0.0/16', { nextHops: [{ device: 'sl-two' }] })
  await table.addAddress(address)
  await table.replaceNeighbour(neighbour)
  for (const item of [route, ipv4]) await table.replaceRoute(item)
  await table.setLink('sl-two', { mtu: 1279 })
  t.strictSame(await table.routes(), [ipv4], 'below 1280 a device has no IPv6')
  t.same(await table.neighbours('sl-two'), [])
  t.same(
    ((await given(table)) as { device: string }[]).filter(({ device }) => device === 'sl-two'),
    [],
  )
  await t.rejects(table.replaceRoute(route), { code: 'ENODEV' })
  await t.rejects(table.addAddress(address), { code: 'EINVAL' })
  await t.rejects(table.replaceNeighbour(neighbour), { code: 'EINVAL' })
  await table.setLink('sl-two', { mtu: 1280 })
  await table.replaceRoute(route)
  t.strictSame(sorted(await table.routes()), sorted([ipv4, route]))
}

async function changes(t: Test, table: RouteTable): Promise<void> {
  let calls = 0
  t.teardown(table.onChange(() => (calls += 1)))
  const route = unreachable('fd01::/48')
  const rule: Rule = { family: 6, priority: 75, table: 7312 }
  // No step changes a device, because the kernel would report its own addresses for that device later.
  const steps: Readonly<Record<string, () => Promise<void>>> = {
    'new rule': () => table.addRule(rule),
    'new route': () => table.replaceRoute(route),
    'rule that went': () => table.deleteRule(rule),
    'route that went': () => table.deleteRoute(route),
  }
  for (const [what, step] of Object.entries(steps)) {
    const before = calls
    await step()
    await eventually(() => calls > before, { say: `a call after a ${what}` })
  }
}
