/** What keeps other clusters out if every nft table is lost: by exposure, family and address. */
import t from 'tap'
import { describeRoutes } from '../../../routeagent/main.ts'
import { planNodeRoutes } from '../../../routeagent/routes/plan-node-routes.ts'
import { planNodeSends } from '../../../routeagent/routes/plan-overlay-drops.ts'
import type { NodeRouteWorld } from '../../../routeagent/world/node-world.ts'
import { parsePrefix } from '../../../model/values/ip.ts'
import { cluster, dualStack, routeWorld } from '../support/site.ts'

/** The lines of the plan that drop or refuse because of the exposure. */
function drops(change: Partial<NodeRouteWorld>): string[] {
  const lines = describeRoutes(planNodeRoutes(routeWorld({ failClosed: true, ...change }))).split('\n')
  return lines.filter(
    (line) => /blackhole|local|table 7318|lookup (7318|255)/.test(line) && !/^(sysctl|ip link)/.test(line),
  )
}

t.test('by exposure', async (t) => {
  t.strictSame(drops({}), [], 'all pods may be called')
  t.strictSame(drops({ exposure: 'pods' }), [])
  t.strictSame(drops({ exposure: 'exports', failClosed: false }), [], 'the site file asks for it')
  const closed = drops({ exposure: 'exports' })
  t.strictSame(closed, [
    'ip rule add priority 70 iif sealane-vx lookup 255 protocol 173',
    'ip rule add priority 71 to 10.42.0.0/16 fwmark 0/0x2000 iif sealane-vx blackhole protocol 173',
    'ip route replace unreachable 244.1.0.0/16 table 7318 proto 173',
    'ip route replace unreachable 244.2.0.0/16 table 7318 proto 173',
    'ip rule add priority 69 from 192.168.7.11 iif lo lookup 7318 protocol 173',
  ])
  t.strictSame(drops({ exposure: 'nothing' }), closed)
})

t.test('IPv6 has the same rules', async (t) => {
  const clusters = [dualStack(cluster('milano', 1), 'fd42:1::/48'), dualStack(cluster('paris', 2), 'fd42:2::/48')]
  const six = drops({ exposure: 'exports', clusters }).filter((line) => line.startsWith('ip -6'))
  t.match(six, [
    'ip -6 rule add priority 70 iif sealane-vx lookup 255 protocol 173',
    'ip -6 rule add priority 71 to fd42:1::/48 fwmark 0/0x2000 iif sealane-vx blackhole protocol 173',
  ])
})

t.test('the sources from which a node sends nothing to other clusters', async (t) => {
  const sources = (family: 4 | 6, ...addresses: string[]): unknown => {
    const { rules } = planNodeSends({
      family,
      addresses: addresses.map((address) => ({ device: 'any', address })),
      pods: [parsePrefix(family === 4 ? '10.42.0.0/16' : 'fd42:1::/48')],
      destinations: [family === 4 ? '244.1.0.0/16' : 'fd42:2::/48'],
    })
    return rules.map(({ source }) => source)
  }
  t.strictSame(
    sources(4, '127.0.0.1/8', '192.168.7.3/24', '10.42.1.1/24', '246.0.1.0/32', '169.254.231.2/32', 'fd77::1/64'),
    ['192.168.7.3'],
    'neither pods, lanes, nor what never leaves the machine',
  )
  t.strictSame(sources(6, '::1/128', 'fe80::1/64', 'fd42:1:0:1::1/64', 'FD77:0::1/64', '192.168.7.3/24'), ['fd77::1'])
  t.strictSame(sources(4, '192.0.2.1/24', '192.0.2.1/32'), ['192.0.2.1'], 'on two devices')
  const many = Array.from({ length: 100 }, (_, i) => `10.96.0.${i}/32`)
  t.equal((sources(4, ...many) as unknown[]).length, 32, 'few enough for every packet')
  t.strictSame(
    planNodeSends({ family: 4, addresses: [{ device: 'eth0', address: '192.0.2.1/24' }], pods: [], destinations: [] }),
    { routes: [], rules: [] },
    'without another cluster',
  )
})
