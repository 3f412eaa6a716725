import { execFileSync } from 'node:child_process'
import t from 'tap'
import {
  formatAddress,
  formatForwardingEntry,
  formatLink,
  formatLinkChange,
  formatNeighbour,
  formatNeighbourDeletion,
  formatRoute,
  formatRouteDeletion,
  formatRule,
  formatRuleDeletion,
} from '../../kernel/route/format-ip.ts'
import type { NewLink, Route } from '../../kernel/route/route-table.ts'
import { Rtnetlink } from '../../kernel/route/rtnetlink.ts'
import { routeTableCompliance } from '../compliance/route-table.ts'
import { eventually } from '../support/eventually.ts'
import { inPrivateNetns } from '../support/netns.ts'

/** Runs one printed command without a change. */
const sh = (line: string): string => {
  const [tool = '', ...args] = line.split(' ')
  return execFileSync(tool, args, { encoding: 'utf8' })
}
const json = (line: string): Record<string, unknown>[] => JSON.parse(sh(line)) as Record<string, unknown>[]

inPrivateNetns(t, import.meta.url, () => {
  routeTableCompliance(t, () => new Rtnetlink())

  t.test('an address that the network has not confirmed yet is none', async (t) => {
    const table = new Rtnetlink()
    t.teardown(() => table.close())
    sh('ip link add sl-a type veth peer name sl-b')
    t.teardown(() => void sh('ip link del sl-a'))
    // Its other end is down, and without a carrier the kernel resolves no neighbour.
    sh('ip link set sl-a up')
    sh('ip -6 addr add fd00:7::1/64 dev sl-a')
    sh('ip -6 addr add fd00:7::2/64 dev sl-a nodad')
    const own = async (): Promise<string[]> => {
      const all = await table.addresses()
      return all.filter(({ address }) => address.startsWith('fd00:7:')).map(({ address }) => address)
    }
    t.strictSame(await own(), ['fd00:7::2/64'])
    sh('ip link set sl-b up')
    await eventually(async () => (await own()).length === 2, { deadlineMs: 10_000, say: 'it is confirmed' })
  })

  const vx: NewLink = {
    kind: 'vxlan',
    name: 'sl-vx',
    vni: 7300,
    port: 4810,
    local: '192.0.2.1',
    mac: '0a:5e:c0:00:02:01',
    mtu: 1450,
  }
  const hop = { device: 'sl-vx', onlink: true }
  const routes: readonly Route[] = [
    {
      table: 7312,
      destination: '244.1.0.0/16',
      type: 'unicast',
      nextHops: [{ ...hop, via: '192.0.2.2' }],
      mtu: 1370,
      source: '192.0.2.1',
    },
    {
      table: 7312,
      destination: '244.2.0.0/16',
      type: 'unicast',
      nextHops: [
        { ...hop, via: '192.0.2.2', weight: 3 },
        { ...hop, via: '192.0.2.3' },
      ],
      metric: 7,
    },
    { table: 7312, destination: '244.0.0.0/8', type: 'unreachable', nextHops: [], metric: 4278198272 },
    { table: 7311, destination: '0.0.0.0/0', type: 'unicast', nextHops: [{ device: 'sl-vx' }] },
    { table: 7310, destination: '10.42.5.9/32', type: 'throw', nextHops: [] },
    {
      table: 7312,
      destination: 'fd01::/48',
      type: 'unicast',
      nextHops: [{ ...hop, via: 'fe80::5ea1:c000:202' }],
      mtu: 1370,
      source: 'fd53::1',
    },
    {
      table: 7312,
      destination: 'fd02::/48',
      type: 'unicast',
      nextHops: [
        { ...hop, via: 'fe80::5ea1:c000:202', weight: 3 },
        { ...hop, via: 'fe80::5ea1:c000:203' },
      ],
      metric: 7,
    },
    { table: 7312, destination: 'fd00::/8', type: 'unreachable', nextHops: [], metric: 4278198272 },
    { table: 7311, destination: '::/0', type: 'unicast', nextHops: [{ device: 'sl-vx' }] },
    { table: 7310, destination: 'fd01::9/128', type: 'throw', nextHops: [] },
  ]

  t.test('what the printed commands make is what the driver makes and lists', async (t) => {
    const table = new Rtnetlink()
    t.teardown(() => table.close())
    const snapshot = (): unknown => ({
      links: json('ip -j -d link show dev sl-vx').map(({ ifindex: _ifindex, ...rest }) => rest),
      routes: ['ip', 'ip -6'].map((ip) => json(`${ip} -j -d route show table all proto 173`)),
      addresses: json('ip -j -6 address show dev sl-vx scope global').map(({ addr_info: info }) => info),
      rules: ['ip', 'ip -6'].map((ip) =>
        json(`${ip} -j rule show`).filter((rule) => Number(rule['priority']) > 7000 && Number(rule['priority']) < 8000),
      ),
      neighbours: json('ip -j neighbour show dev sl-vx nud permanent'),
      forwarding: json('bridge -j fdb show dev sl-vx'),
    })
    sh('ip link add sl-wire type bridge')
    sh('ip link set sl-wire up')
    sh('ip address add 192.0.2.1/24 dev sl-wire')
    const address = { device: 'sl-vx', address: '246.0.0.1/32' }
    const address6 = { device: 'sl-vx', address: 'fd53::1/128' }
    const neighbour = { device: 'sl-vx', address: '192.0.2.2', mac: '0a:5e:c0:00:02:02' }
    const neighbour6 = { ...neighbour, address: 'fe80::5ea1:c000:202' }
    const entry = { device: 'sl-vx', mac: '0a:5e:c0:00:02:02', destination: '192.0.2.2' }
    const rules = [
      { priority: 7310, table: 7310, inputDevice: 'sealane0' },
      { priority: 7312, table: 7312 },
      { priority: 7399, table: 7311, exceptMark: 0x1073 },
      { priority: 7399, table: 0, action: 'blackhole', inputDevice: 'sealane0', withoutMark: 0x2000 },
      {
        priority: 7399,
        table: 0,
        action: 'blackhole',
        inputDevice: 'sl-vx',
        destination: '10.42.0.0/16',
        withoutMark: 0x2000,
      },
      { family: 6, priority: 7310, table: 7310, inputDevice: 'sealane0' },
      { family: 6, priority: 7399, table: 7311, exceptMark: 0x1073 },
    ] as const
    const print = (route: Route): string => formatRoute(route)
    const commands = [
      formatLink(vx),
      formatLinkChange('sl-vx', { up: true }),
      formatAddress(address),
      formatAddress(address6),
      ...routes.map(print),
      ...rules.map((rule) => formatRule(rule)),
      formatNeighbour(neighbour),
      formatNeighbour(neighbour6),
      formatForwardingEntry(entry),
    ]
    commands.forEach(sh)
    const byTools = snapshot()
    t.strictSame((await table.routes()).map(print).sort(), routes.map(print).sort(), 'routes made by ip are read right')
    t.strictSame(await table.rules(), rules)
    t.strictSame(await table.neighbours('sl-vx'), [neighbour, neighbour6])
    t.strictSame(await table.forwardingEntries('sl-vx'), [entry])
    rules.forEach((rule) => sh(formatRuleDeletion(rule)))
    routes.forEach((route) => sh(formatRouteDeletion(route)))
    t.same(await table.routes(), [], 'the printed deletions delete')
    sh(formatNeighbourDeletion(neighbour6))
    t.strictSame(await table.neighbours('sl-vx'), [neighbour])
    sh('ip link del sl-vx')

    await table.addLink(vx)
    await table.setLink('sl-vx', { up: true })
    await table.addAddress(address)
    await table.addAddress(address6)
    for (const route of routes) await table.replaceRoute(route)
    for (const rule of rules) await table.addRule(rule)
    await table.replaceNeighbour(neighbour)
    await table.replaceNeighbour(neighbour6)
    await table.replaceForwardingEntry(entry)
    t.strictSame(snapshot(), byTools, 'and the driver makes the same')
  })

  t.test('routes and rules of others are not listed', async (t) => {
    const table = new Rtnetlink()
    t.teardown(() => table.close())
    const before = [(await table.routes()).length, (await table.rules()).length]
    sh('ip route add 198.51.100.0/24 dev lo table 7312')
    sh('ip rule add priority 7399 lookup 7312')
    sh('ip -6 route add fd09::/48 dev lo table 7312')
    sh('ip -6 rule add priority 7399 lookup 7312')
    t.same([(await table.routes()).length, (await table.rules()).length], before)
  })

  t.test('what others have in the main table', async (t) => {
    const table = new Rtnetlink()
    t.teardown(() => table.close())
    sh('ip link add sl-pods type bridge')
    sh('ip link set sl-pods up')
    sh('ip address add 10.42.5.1/24 dev sl-pods')
    sh('ip route add 10.42.6.0/24 via 10.42.5.9 dev sl-pods')
    sh('ip route add 10.42.8.0/24 nexthop via 10.42.5.9 dev sl-pods nexthop via 10.42.5.10 dev sl-pods')
    sh('ip route add blackhole 10.42.7.0/26 proto 80')
    sh('ip route add prohibit 10.42.9.0/26')
    sh('ip route add 10.42.10.0/24 dev sl-pods table 100')
    sh('ip route add 10.42.11.0/24 dev sl-pods proto 173')
    sh('ip address add fd42:5::1/64 dev sl-pods nodad')
    sh('ip -6 route add fd42:6::/64 via fd42:5::9 dev sl-pods')
    sh('ip -6 route add fd42:8::/64 nexthop via fd42:5::9 dev sl-pods nexthop via fd42:5::10 dev sl-pods')
    sh('ip -6 route add blackhole fd42:7::/64')
    sh('ip -6 route add prohibit fd42:9::/64')
    sh('ip -6 route add fd42:10::/64 dev sl-pods table 100')
    sh('ip -6 route add fd42:11::/64 dev sl-pods proto 173')
    sh('ip -6 route add default via fe80::1 dev sl-pods')
    const device = 'sl-pods'
    t.strictSame(
      (await table.mainRoutes()).filter((route) => route.destination.startsWith('10.42.')),
      [
        { destination: '10.42.5.0/24', type: 'unicast', device },
        { destination: '10.42.6.0/24', type: 'unicast', device, via: '10.42.5.9' },
        { destination: '10.42.7.0/26', type: 'blackhole' },
        { destination: '10.42.8.0/24', type: 'unicast', device, via: '10.42.5.9' },
        { destination: '10.42.9.0/26', type: 'other' },
      ],
    )
    t.strictSame(
      (await table.mainRoutes()).filter(({ destination }) => /^fd42:|^::/.test(destination)),
      [
        { destination: 'fd42:5::/64', type: 'unicast', device },
        { destination: 'fd42:6::/64', type: 'unicast', device, via: 'fd42:5::9' },
        { destination: 'fd42:7::/64', type: 'blackhole' },
        { destination: 'fd42:8::/64', type: 'unicast', device, via: 'fd42:5::9' },
        { destination: 'fd42:9::/64', type: 'other' },
        { destination: '::/0', type: 'unicast', device, via: 'fe80::1' },
      ],
    )
    sh('ip route del 10.42.11.0/24 proto 173')
    sh('ip link del sl-pods')
  })

  t.test('1,000 routes are listed whole', async (t) => {
    const table = new Rtnetlink()
    t.teardown(() => table.close())
    for (let i = 0; i < 1000; i++) {
      await table.replaceRoute({
        table: 7313,
        destination: `245.1.${i >> 8}.${i & 255}/32`,
        type: 'unreachable',
        nextHops: [],
      })
    }
    t.equal((await table.routes()).filter((route) => route.table === 7313).length, 1000)
    const many = await Promise.all(Array.from({ length: 20 }, () => table.routes()))
    t.ok(
      many.every((list) => list.length === many[0]?.length),
      'also by many callers at once',
    )
  })

  t.test('a closed driver says so', async (t) => {
    const table = new Rtnetlink()
    table.close()
    table.close()
    await t.rejects(table.links(), { code: 'EINTR' })
  })
})
