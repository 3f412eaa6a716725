/** The suite for every RouteTable driver. It runs on the fake and, in a network namespace, on rtnetlink. */
import type { Test } from 'tap'
import type { KernelErrorCode } from '../../kernel/errors.ts'
import type { NewLink, Route, RouteTable, Rule } from '../../kernel/route/route-table.ts'
import { eventually } from '../support/eventually.ts'
import { ipv6RouteTableStories } from './route-table-ipv6.ts'
import { clear, sorted, underlay, vxlan, wire } from './route-table-stage.ts'

const mac = '0a:5e:c0:00:02:02'
const unicast = (destination: string, rest: Partial<Route> = {}): Route => ({
  table: 7312,
  destination,
  type: 'unicast',
  nextHops: [{ device: 'sl-vx', via: '192.0.2.2', onlink: true }],
  ...rest,
})

/** `make` returns a driver for a namespace with only a loopback device. The suite closes it. */
export function routeTableCompliance(t: Test, make: () => RouteTable | Promise<RouteTable>): void {
  const story = (name: string, body: (t: Test, table: RouteTable) => Promise<void>): void => {
    t.test(name, async (t) => {
      const table = await make()
      t.teardown(() => table.close())
      await clear(table)
      await body(t, table)
      await clear(table)
    })
  }
  story('links', links)
  story('addresses', addresses)
  story('routes', routes)
  story('routes that are refused', refusedRoutes)
  story('routes go with their device', routesGoWithDevice)
  story('rules', rules)
  story('neighbours and forwarding entries', neighbours)
  story('look-up', lookup)
  story('bad names and addresses', badInput)
  story('changes are told, several at once', changes)
  for (const [name, body] of Object.entries(ipv6RouteTableStories)) story(`IPv6: ${name}`, body)
  story('an aborted signal', async (t, table) => {
    await t.rejects(table.links(AbortSignal.abort()), { code: 'EINTR' })
  })
}

async function links(t: Test, table: RouteTable): Promise<void> {
  t.match(
    (await table.links()).find((link) => link.name === 'lo'),
    { kind: '', mtu: 65536, mac: '' },
  )
  await underlay(table)
  const found = await table.links()
  t.match(
    found.find((link) => link.name === 'sl-wire'),
    { kind: 'bridge', mtu: 1500, up: true },
  )
  t.match(
    found.find((link) => link.name === 'sl-vx'),
    {
      kind: 'vxlan',
      mtu: 1450,
      up: true,
      mac: '0a:5e:c0:00:02:01',
      vni: 7399,
      port: 4811,
      local: '192.0.2.1',
    },
  )
  t.equal(new Set(found.map((link) => link.index)).size, found.length, 'each has its own index')
  await t.rejects(table.addLink(wire), { code: 'EEXIST' })
  await table.setLink('sl-vx', { mtu: 1400 })
  await table.setLink('sl-vx', { up: false })
  t.match(
    (await table.links()).find((link) => link.name === 'sl-vx'),
    { mtu: 1400, up: false },
  )
  await table.deleteLink('sl-vx')
  t.notOk((await table.links()).some((link) => link.name === 'sl-vx'))
  await t.rejects(table.deleteLink('sl-vx'), { code: 'ENODEV' })
  await t.rejects(table.setLink('sl-vx', { up: true }), { code: 'ENODEV' })
}

async function addresses(t: Test, table: RouteTable): Promise<void> {
  await table.addLink(wire)
  const address = { device: 'sl-wire', address: '246.0.1.1/32' }
  await table.addAddress(address)
  const ours = async (): Promise<unknown> => (await table.addresses()).filter((item) => item.device === 'sl-wire')
  t.same(await ours(), [address])
  await t.rejects(table.addAddress(address), { code: 'EEXIST' })
  await t.rejects(table.addAddress({ device: 'sl-none', address: '10.0.0.1/32' }), { code: 'ENODEV' })
  await table.deleteAddress(address)
  t.same(await ours(), [])
  await t.rejects(table.deleteAddress(address), { code: 'EADDRNOTAVAIL' })
  await table.addAddress({ ...address, scope: 'host' })
  t.same(await ours(), [address], 'of the scope of a host')
  await table.deleteAddress(address)
}

async function routes(t: Test, table: RouteTable): Promise<void> {
  await underlay(table)
  await table.addLink({ kind: 'bridge', name: 'sl-two', mtu: 1420 })
  await table.setLink('sl-two', { up: true })
  const wanted: Route[] = [
    unicast('244.1.0.0/16', { mtu: 1370, source: '192.0.2.1' }),
    { table: 7311, destination: '244.2.0.0/16', type: 'unicast', nextHops: [{ device: 'sl-two' }], metric: 50 },
    unicast('244.3.0.0/16', {
      nextHops: [
        { device: 'sl-vx', via: '192.0.2.2', onlink: true, weight: 3 },
        { device: 'sl-vx', via: '192.0.2.3', onlink: true },
      ],
      mtu: 1370,
    }),
    {
      table: 7311,
      destination: '244.4.0.0/16',
      type: 'unicast',
      nextHops: [{ device: 'sl-wire' }, { device: 'sl-two' }],
    },
    unicast('0.0.0.0/0', { table: 100, nextHops: [{ device: 'sl-wire', via: '192.0.2.9' }] }),
    { table: 7312, destination: '244.0.0.0/8', type: 'unreachable', nextHops: [], metric: 4278198272 },
    { table: 7312, destination: '244.1.0.0/16', type: 'unreachable', nextHops: [], metric: 4278198272 },
    { table: 7310, destination: '10.42.5.9/32', type: 'throw', nextHops: [] },
  ]
  for (const route of wanted) await table.replaceRoute(route)
  t.strictSame(sorted(await table.routes()), sorted(wanted))
  for (const route of wanted) await table.replaceRoute(route)
  t.strictSame(sorted(await table.routes()), sorted(wanted), 'the same again is no change')

  const replaced = unicast('244.1.0.0/16', { nextHops: [{ device: 'sl-two' }] })
  await table.replaceRoute(replaced)
  const rest = wanted.slice(1)
  t.strictSame(sorted(await table.routes()), sorted([replaced, ...rest]), 'equal table, destination and metric replace')

  await table.deleteRoute(replaced)
  t.strictSame(sorted(await table.routes()), sorted(rest))
  await t.rejects(
    table.deleteRoute(replaced),
    { code: 'ESRCH' },
    'the unreachable one of higher metric is another route',
  )
  t.strictSame(sorted(await table.routes()), sorted(rest))
  await table.replaceRoute({ ...replaced, metric: 0, nextHops: [{ device: 'sl-two', onlink: false, weight: 1 }] })
  t.strictSame(sorted(await table.routes()), sorted([replaced, ...rest]), 'what means nothing is not listed')
}

async function refusedRoutes(t: Test, table: RouteTable): Promise<void> {
  await underlay(table)
  await table.addLink({ kind: 'bridge', name: 'sl-down', mtu: 1500 })
  const rows: readonly (readonly [Route, KernelErrorCode, string])[] = [
    [unicast('244.1.0.0/16', { nextHops: [{ device: 'sl-none' }] }), 'ENODEV', 'a device that is not there'],
    [unicast('244.1.0.0/16', { nextHops: [{ device: 'sl-down' }] }), 'ENETDOWN', 'a device that is down'],
    [
      unicast('244.1.0.0/16', { nextHops: [{ device: 'sl-wire', via: '203.0.113.1' }] }),
      'ENETUNREACH',
      'a gateway out of reach',
    ],
    [unicast('244.1.0.0/16', { source: '203.0.113.5' }), 'EINVAL', 'a source that is not ours'],
    [unicast('244.1.0.0/16', { nextHops: [] }), 'EINVAL', 'no next hop'],
    [{ ...unicast('244.1.0.0/16'), type: 'unreachable' }, 'EINVAL', 'an unreachable route with a next hop'],
    [unicast('244.1.0.1/16'), 'EINVAL', 'host bits'],
    [unicast('fd00::/64'), 'EINVAL', 'a gateway of another family'],
    [{ ...unicast('244.1.0.0/16'), type: 'throw' }, 'EINVAL', 'a throw route with a next hop'],
  ]
  for (const [route, code, say] of rows) await t.rejects(table.replaceRoute(route), { code }, `${say}: ${code}`)
  t.same(await table.routes(), [])
}

async function routesGoWithDevice(t: Test, table: RouteTable): Promise<void> {
  await underlay(table)
  await table.addLink({ kind: 'bridge', name: 'sl-two', mtu: 1500 })
  await table.setLink('sl-two', { up: true })
  const both = unicast('244.1.0.0/16', { nextHops: [{ device: 'sl-wire' }, { device: 'sl-two' }] })
  const one = unicast('244.2.0.0/16', { nextHops: [{ device: 'sl-two' }] })
  await table.replaceRoute(both)
  await table.replaceRoute(one)
  await table.setLink('sl-two', { up: false })
  t.strictSame(await table.routes(), [both], 'a device that stops takes routes that have no other')
  await table.setLink('sl-two', { up: true })
  await table.deleteLink('sl-two')
  t.same(await table.routes(), [], 'a device that goes takes all that use it')

  await table.addAddress({ device: 'sl-wire', address: '10.42.0.1/24' })
  const sourced = unicast('244.3.0.0/16', { nextHops: [{ device: 'sl-wire' }], source: '10.42.0.1' })
  await table.replaceRoute(sourced)
  await table.deleteAddress({ device: 'sl-wire', address: '10.42.0.1/24' })
  t.strictSame(await table.routes(), [sourced], 'a route in a table of ours outlives its source address')
  await table.deleteAddress({ device: 'sl-wire', address: '192.0.2.1/24' })
  t.same(await table.routes(), [], 'a device that loses its last address takes its routes')
}

async function rules(t: Test, table: RouteTable): Promise<void> {
  const closed = { priority: 71, table: 0, action: 'blackhole', inputDevice: 'sl-vx', withoutMark: 0x2000 } as const
  const wanted: Rule[] = [
    { priority: 7310, table: 7310, inputDevice: 'sealane0' },
    { priority: 7310, table: 7310, inputDevice: 'sealane1' },
    { priority: 7312, table: 7312 },
    { priority: 74, table: 7311, exceptMark: 0x1073 },
    { priority: 75, table: 7314, exceptInputDevice: 'lo' },
    { priority: 76, table: 7314, inputDevice: 'lo', source: '10.42.1.1' },
    { priority: 32_764, table: 254, inputDevice: 'sealane0', exceptDefault: true },
    { family: 6, priority: 32_764, table: 254, inputDevice: 'sealane0', exceptDefault: true },
    { priority: 72, table: 7315, inputDevice: 'lo', protocol: 'udp', destinationPort: 4498 },
    { priority: 72, table: 7315, inputDevice: 'lo', protocol: 'tcp', destinationPort: 4498 },
    { priority: 72, table: 7315, protocol: 'tcp', sourcePort: 4498 },
    { family: 6, priority: 76, table: 7314, inputDevice: 'lo', source: 'fd42::1' },
    { priority: 71, table: 0, action: 'blackhole', inputDevice: 'sealane0', withoutMark: 0x2000 },
    { family: 6, priority: 71, table: 0, action: 'blackhole', inputDevice: 'sealane0', withoutMark: 0x2000 },
    { ...closed, destination: '10.42.0.0/16' },
    { ...closed, destination: '10.43.7.9/32' },
    { ...closed, family: 6, destination: 'fd42:1::/32' },
  ]
  for (const rule of wanted) await table.addRule(rule)
  const inOrder = (rule: Rule): [string, unknown][] => Object.entries(rule).sort(([a], [b]) => (a < b ? -1 : 1))
  const byText = (list: readonly Rule[]): unknown => list.map((rule) => JSON.stringify(inOrder(rule))).sort()
  t.same(byText(await table.rules()), byText(wanted), 'also for devices that are not there yet')
  for (const rule of wanted) await t.rejects(table.addRule(rule), { code: 'EEXIST' })
  await table.deleteRule(wanted[0]!)
  t.same(byText(await table.rules()), byText(wanted.slice(1)))
  await t.rejects(table.deleteRule(wanted[0]!), { code: 'ENOENT' })
  await table.deleteRule(wanted.at(-1)!)
  t.same(byText(await table.rules()), byText(wanted.slice(1, -1)), 'a rule that drops')
  await t.rejects(table.deleteRule(wanted.at(-1)!), { code: 'ENOENT' })
}

async function neighbours(t: Test, table: RouteTable): Promise<void> {
  await underlay(table)
  const neighbour = { device: 'sl-vx', address: '192.0.2.2', mac }
  await table.replaceNeighbour(neighbour)
  t.strictSame(await table.neighbours('sl-vx'), [neighbour])
  t.same(await table.neighbours('sl-wire'), [])
  const moved = { ...neighbour, mac: '0a:5e:c0:00:02:03' }
  await table.replaceNeighbour(moved)
  t.strictSame(await table.neighbours('sl-vx'), [moved])
  await table.deleteNeighbour(moved)
  t.same(await table.neighbours('sl-vx'), [])
  await t.rejects(table.deleteNeighbour(moved), { code: 'ENOENT' })
  await t.rejects(table.neighbours('sl-none'), { code: 'ENODEV' })

  const entry = { device: 'sl-vx', mac, destination: '192.0.2.2' }
  await table.replaceForwardingEntry(entry)
  t.strictSame(await table.forwardingEntries('sl-vx'), [entry])
  const elsewhere = { ...entry, destination: '192.0.2.7' }
  await table.replaceForwardingEntry(elsewhere)
  t.strictSame(await table.forwardingEntries('sl-vx'), [elsewhere])
  await table.deleteForwardingEntry(elsewhere)
  t.same(await table.forwardingEntries('sl-vx'), [])
  await t.rejects(table.deleteForwardingEntry(elsewhere), { code: 'ENOENT' })
  await t.rejects(table.replaceForwardingEntry({ ...entry, device: 'sl-wire' }), { code: 'EOPNOTSUPP' })
  await t.rejects(table.replaceForwardingEntry({ ...entry, device: 'sl-none' }), { code: 'ENODEV' })

  await table.replaceNeighbour(neighbour)
  await table.replaceForwardingEntry(entry)
  await table.setLink('sl-vx', { up: false })
  t.same(await table.neighbours('sl-vx'), [], 'neighbours go when the device stops')
  t.strictSame(await table.forwardingEntries('sl-vx'), [entry], 'forwarding entries stay')
  await t.rejects(table.replaceNeighbour(neighbour), { code: 'ENETDOWN' })
}

async function lookup(t: Test, table: RouteTable): Promise<void> {
  await t.rejects(table.lookup('244.1.0.7'), { code: 'ENETUNREACH' })
  await underlay(table)
  t.match(await table.lookup('192.0.2.77'), { device: 'sl-wire', source: '192.0.2.1', mtu: 1500 })
  await table.addRule({ priority: 7312, table: 7312 })
  await table.replaceRoute(unicast('244.1.0.0/16', { mtu: 1370, source: '192.0.2.1' }))
  await table.replaceRoute({ table: 7312, destination: '244.0.0.0/8', type: 'unreachable', nextHops: [] })
  t.match(await table.lookup('244.1.0.7'), { device: 'sl-vx', source: '192.0.2.1', mtu: 1370 })
  await t.rejects(table.lookup('244.2.0.7'), { code: 'EHOSTUNREACH' })
  await table.replaceRoute({ table: 7312, destination: '192.0.2.0/24', type: 'throw', nextHops: [] })
  t.match(await table.lookup('192.0.2.77'), { device: 'sl-wire' }, 'thrown back to the tables that follow')

  await table.addRule({ priority: 74, table: 7311, exceptMark: 0x1073 })
  await table.replaceRoute({ ...unicast('192.0.2.64/26'), table: 7311, mtu: 1300 })
  t.match(await table.lookup('192.0.2.77'), { device: 'sl-vx', mtu: 1300 })
  t.match(await table.lookup('192.0.2.77', undefined, 0x1073), { device: 'sl-wire', mtu: 1500 }, 'by its mark')
  t.match(await table.lookup('192.0.2.77', undefined, 7), { device: 'sl-vx' }, 'another mark')

  const closed = { priority: 71, table: 0, action: 'blackhole', destination: '192.0.2.64/26' } as const
  await table.addRule({ ...closed, withoutMark: 0x2000 })
  await t.rejects(table.lookup('192.0.2.77'), { code: 'EINVAL' }, 'dropped without its mark')
  t.match(await table.lookup('192.0.2.77', undefined, 0x2001), { device: 'sl-vx' }, 'one bit of the mark is enough')
  t.match(await table.lookup('192.0.2.7'), { device: 'sl-wire' }, 'another destination')
}

async function badInput(t: Test, table: RouteTable): Promise<void> {
  const EINVAL = { code: 'EINVAL' }
  await t.rejects(table.addLink({ ...wire, name: 'a-name-that-is-too-long' }), EINVAL)
  await t.rejects(table.addLink({ ...wire, name: 'a/b' }), EINVAL)
  await t.rejects(table.addLink({ ...vxlan, mac: '0a:5e' } as NewLink), EINVAL)
  await t.rejects(table.addLink({ ...vxlan, local: 'here' } as NewLink), EINVAL)
  await table.addLink(wire)
  await t.rejects(table.addAddress({ device: 'sl-wire', address: '10.0.0.1' }), EINVAL)
  await t.rejects(table.addAddress({ device: 'sl-wire', address: '10.0.0.1/33' }), EINVAL)
  await t.rejects(table.replaceNeighbour({ device: 'sl-wire', address: '10.0.0.1', mac: 'x' }), EINVAL)
  await t.rejects(table.lookup('nowhere'), EINVAL)
  const rule = { priority: 71, table: 7319 }
  await t.rejects(table.addRule({ ...rule, destination: '10.42.0.0' }), EINVAL)
  await t.rejects(table.addRule({ ...rule, destination: '0.0.0.0/0' }), EINVAL)
  await t.rejects(table.addRule({ ...rule, family: 6, destination: '10.42.0.0/16' }), EINVAL)
  await t.rejects(table.addRule({ ...rule, withoutMark: 0 }), EINVAL)
  await t.rejects(table.addRule({ ...rule, withoutMark: 0x2000, exceptMark: 0x1073 }), EINVAL)
  await t.rejects(table.addRule({ ...rule, action: 'blackhole' }), EINVAL)
  await t.rejects(table.addRule({ ...rule, table: 0 }), EINVAL)
  await t.rejects(table.addRule({ ...rule, table: 0, action: 'blackhole', exceptDefault: true }), EINVAL)
}

async function changes(t: Test, table: RouteTable): Promise<void> {
  let calls = 0
  const stop = table.onChange(() => (calls += 1))
  await table.addLink(wire)
  await eventually(() => calls > 0, { say: 'a call after a new link' })
  calls = 0
  await table.addRule({ priority: 7312, table: 7312 })
  await eventually(() => calls > 0, { say: 'a call after a new rule' })
  stop()
  calls = 0
  await table.setLink('sl-wire', { up: true })
  for (let i = 0; i < 5; i++) await table.links()
  t.equal(calls, 0, 'none after it was stopped')
}
