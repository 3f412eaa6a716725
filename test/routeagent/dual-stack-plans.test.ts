/** Plans of clusters with IPv6 pod CIDRs as well: as commands, and where they must not interfere with IPv4. */
import t from 'tap'
import fc from 'fast-check'
import { formatAddress, parseAddress, parsePrefix } from '../../model/values/ip.ts'
import type { EndpointSlice, RouteAgent, ServiceImport } from '../../model/objects.ts'
import { describeRouteAgentPlan, describeRoutes } from '../../routeagent/main.ts'
import type { KernelFacts, NodeRouteWorld } from '../../routeagent/world/node-world.ts'
import { planNodeRoutes } from '../../routeagent/routes/plan-node-routes.ts'
import { overlayLinkLocal } from '../../routeagent/world/plan-nodes.ts'
import { planService } from '../../routeagent/balance/plan-service.ts'
import { equalsGolden } from '../support/golden.ts'
import {
  WORKER_LINKS,
  cluster,
  dualStack,
  dualStackNode,
  endpoint,
  gateway,
  node,
  routeAgent,
  routeWorld,
  serviceImport,
  slice,
  slice6,
} from './support/site.ts'

const FACTS: KernelFacts = {
  links: WORKER_LINKS,
  addresses: [
    { device: 'lo', address: '::1/128' },
    { device: 'eth0', address: '192.168.7.11/24' },
    { device: 'eth0', address: 'fe80::7:b/64' },
    { device: 'cni0', address: '10.42.1.1/24' },
    { device: 'cni0', address: 'fd00:10:42:1::1/64' },
    { device: 'cni0', address: 'fe80::1/64' },
  ],
  mainRoutes: [
    { destination: '10.42.1.0/24', type: 'unicast', device: 'cni0' },
    { destination: 'fd00:10:42:1::/64', type: 'unicast', device: 'cni0' },
    { destination: 'fe80::/64', type: 'unicast', device: 'eth0' },
    { destination: 'fe80::/64', type: 'unicast', device: 'cni0' },
    { destination: '::/0', type: 'unicast', device: 'eth0', via: 'fe80::7:1' },
  ],
  bridgeNetfilter: '1',
  bridgeNetfilter6: '1',
}

const NODES = [
  dualStackNode(node('gw-a', '192.168.7.1', '10.42.0.0/24'), 'fd00:10:42::/64'),
  dualStackNode(node('gw-b', '192.168.7.2', '10.42.2.0/24'), 'fd00:10:42:2::/64'),
  dualStackNode(node('worker', '192.168.7.11', '10.42.1.0/24', 'a'), 'fd00:10:42:1::/64'),
]
const MILANO = dualStack(cluster('milano', 1, '244.0.0.0/16'), 'fd00:10:42::/56')
const PARIS = dualStack(cluster('paris', 2, '244.1.0.0/16'), 'fd00:20:42::/56')
const TOKYO = cluster('tokyo', 3, '244.2.0.0/16')

const world = (change: Partial<NodeRouteWorld> = {}): NodeRouteWorld =>
  routeWorld({ nodes: NODES, clusters: [TOKYO, MILANO, PARIS], facts: FACTS, ...change })

const VIP = 'fd53:ea1a:4e00::f500:'
const imports: ServiceImport[] = [
  serviceImport('web', '245.0.0.7', { ips: ['245.0.0.7', `${VIP}7`] }),
  serviceImport('four', '245.0.0.8'),
  serviceImport('mine', `${VIP}a`, { internalTrafficPolicy: 'Local' }),
  serviceImport('close', `${VIP}b`, { trafficDistribution: 'PreferSameZone' }),
  serviceImport('empty', 'fd53:ea1a:4e00:0:0:0:F500:000c'),
  serviceImport('elsewhere', 'fd53:ea1a:4e00::f501:7'),
]
const slices: EndpointSlice[] = [
  slice('web', 'milano', ['10.42.1.5']),
  slice6('web', 'milano', ['fd00:10:42:1::5']),
  slice6('web', 'paris', ['fd00:20:42::5', 'fd00:20:42::6!', '::ffff:10.42.1.5', 'fe80::5']),
  slice('four', 'paris', ['244.1.0.5']),
  slice6('four', 'paris', ['fd00:20:42::8']),
  slice6('mine', 'milano', ['fd00:10:42::a on gw-a']),
  slice6('close', 'milano', ['fd00:10:42:1::b in b', 'FD00:10:42:0:0:0:0:B in a']),
  slice6('close', 'paris', ['fd00:20:42::b in b for a']),
]

t.test('a worker: services of one family, of the other, of both', async (t) => {
  equalsGolden(t, describeRouteAgentPlan({ ...world(), imports, slices }), 'routeagent/dual-worker.txt')
})

t.test('a gateway node: IPv6 pods of the other nodes are reached out of its lane', async (t) => {
  const facts = {
    ...FACTS,
    addresses: [
      { device: 'eth0', address: '192.168.7.1/24' },
      { device: 'cni0', address: '10.42.0.1/24' },
      { device: 'cni0', address: 'fd00:10:42::1/64' },
    ],
    mainRoutes: [],
    bridgeNetfilter6: undefined,
  }
  const onGateway = world({ node: 'gw-a', facts, gateways: [gateway('gw-a', { paris: 'up' })] })
  equalsGolden(t, describeRouteAgentPlan({ ...onGateway, imports: [], slices: [] }), 'routeagent/dual-gateway.txt')
})

t.test('an affinity of clients looks at their IPv6 addresses', async (t) => {
  const sticky = serviceImport('sticky', `${VIP}9`, { sessionAffinity: 'ClientIP' })
  const slices = [slice6('sticky', 'paris', ['fd00:20:42::9'])]
  const text = describeRouteAgentPlan({ ...world(), imports: [sticky], slices })
  const drawn = 'ip6 daddr . meta l4proto . th dport . jhash ip6 saddr mod 64 seed 0x5ea1a9e'
  t.match(text, `add rule ip6 sealane_node client-64-0 ip6 daddr set ${drawn} map @slots`)
})

/** The stage of an endpoint's life; see slice(). */
const state = fc.constantFrom('', '!', '~')
const place = fc.constantFrom('', ' on worker', ' on other in b', ' in a', ' in b for a')
const endpoints = fc.array(fc.tuple(fc.nat(9), state, place), { maxLength: 5 })
const spec = fc.record({
  internalTrafficPolicy: fc.constantFrom('Cluster', 'Local'),
  trafficDistribution: fc.constantFrom('', 'PreferClose', 'PreferSameNode'),
})

t.test('the same services are planned the same in both families', async () => {
  const context = { node: 'worker', self: 'milano', zone: 'a', reachable: new Set(['milano', 'paris']) }
  fc.assert(
    fc.property(spec, fc.array(endpoints, { minLength: 3, maxLength: 3 }), (said, clusters) => {
      const plan = (make: typeof slice, range: string, vip: string, pod: string): string[] => {
        const service = serviceImport('web', vip, said)
        const slices = ['milano', 'paris', 'tokyo'].map((id, i) =>
          make('web', id, clusters[i]?.map(([host, how, where]) => `${pod}${i}${host}${how}${where}`) ?? []),
        )
        const ports = planService(service, slices, { ...context, clustersetIpRange: parsePrefix(range) })
        return [...ports].map(([key, one]) => JSON.stringify([key, one]).replaceAll(vip, 'VIP').replaceAll(pod, 'POD'))
      }
      const four = plan(slice, '245.0.0.0/16', '245.0.0.7', '10.42.1.1')
      const six = plan(slice6, 'fd53:ea1a:4e00::f500:0/112', `${VIP}7`, 'fd00:10:42::1')
      return four.length === 1 && four.join() === six.join()
    }),
    { numRuns: 1000 },
  )
})

/** The lines of the routes, without the overlay device. */
function lines(change: Partial<NodeRouteWorld>): string[] {
  return describeRoutes(planNodeRoutes(world(change))).split('\n')
}

t.test('IPv4 is planned the same, whatever IPv6 does', async (t) => {
  const isIpv6 = (line: string): boolean => /^ip -6 |net\/ipv6\/|fd00:/.test(line)
  const alone = {
    nodes: NODES.map(({ spec = {}, ...rest }) => ({ ...rest, spec: { podCIDR: spec.podCIDRs?.[0] ?? '' } })),
    clusters: [TOKYO, cluster('milano', 1, '244.0.0.0/16'), cluster('paris', 2, '244.1.0.0/16')],
  }
  for (const node of ['worker', 'gw-a']) {
    const facts = { ...FACTS, addresses: [...FACTS.addresses, { device: 'eth0', address: '192.168.7.1/24' }] }
    t.strictSame(
      lines({ node, facts }).filter((line) => !isIpv6(line)),
      lines({ ...alone, node, facts }),
      node,
    )
  }
})

t.test('where this cluster has IPv4 alone, nothing of IPv6 is planned, though others have it', async (t) => {
  const clusters = [cluster('milano', 1, '244.0.0.0/16'), PARIS]
  const text = describeRouteAgentPlan({ ...world({ clusters }), imports, slices })
  t.notMatch(text, /ip6|-6|ipv6|::/)
})

t.test('the address of all routers of a network is no source', async (t) => {
  const flannel = { device: 'flannel-v6.1', address: 'fd00:10:42:1::/128' }
  const source = (facts: KernelFacts): string | undefined =>
    / src (fd\S+)/.exec(lines({ facts }).find((line) => line.startsWith('ip -6 route')) ?? '')?.[1]
  t.equal(source({ ...FACTS, addresses: [flannel, ...FACTS.addresses] }), 'fd00:10:42:1::1')
  const alone = FACTS.addresses.filter(({ address }) => !address.startsWith('fd00:'))
  t.equal(source({ ...FACTS, addresses: [flannel, ...alone] }), 'fd00:10:42:1::', 'unless there is no other')
  t.equal(source({ ...FACTS, addresses: alone }), undefined)
})

t.test('an overlay that is too narrow for IPv6 goes on with IPv4', async (t) => {
  const mtu = (narrow: number): KernelFacts => ({
    ...FACTS,
    links: FACTS.links.map((link) => ({ ...link, mtu: narrow })),
  })
  const left =
    '# left out: Node worker: MtuTooSmallForIPv6: MTU 1279 of the overlay: IPv6 needs at least 1280, so only IPv4 is routed'
  const narrow = lines({ facts: mtu(1329) })
  t.equal(narrow[0], left)
  t.notMatch(narrow.join(), 'net/ipv6')
  t.strictSame(
    narrow.filter((line) => line.startsWith('ip -6 ')),
    [
      'ip -6 route replace unreachable fd53:ea1a:4e00::f500:0/112 table 7312 proto 173 metric 2147483647',
      'ip -6 route replace unreachable fd00:20:42::/56 table 7312 proto 173 metric 2147483647',
      'ip -6 rule add not fwmark 0x1073 priority 75 lookup 7312 protocol 173',
    ],
    'nothing of ours takes the way of the underlay',
  )
  t.match(lines({ facts: mtu(1330) }).join(), /ip -6 route replace fd00:20:42::\/56/)
})

t.test('a node whose kernel says otherwise about IPv6 keeps its word about IPv4', async (t) => {
  const from = (agents: RouteAgent[]): string[] =>
    lines({ endpoints: [endpoint('milano', 'worker')], routeAgents: agents })
      .filter((line) => line.includes('table 7310'))
      .map((line) => / replace (.*) dev/.exec(line)?.[1] ?? line)
  t.strictSame(from([routeAgent('gw-a', '10.42.0.0/24', 'fd00:10:42:7::/64'), routeAgent('gw-b', '10.42.2.0/24')]), [
    '10.42.0.0/24 via 192.168.7.1',
    '10.42.2.0/24 via 192.168.7.2',
    'fd00:10:42:2::/64 via fe80::5ea1:c0a8:702',
    'fd00:10:42:7::/64 via fe80::5ea1:c0a8:701',
  ])
})

t.test('what a node is called in IPv6 routes of the overlay', async (t) => {
  t.equal(formatAddress(overlayLinkLocal(parseAddress('192.168.7.11'))), 'fe80::5ea1:c0a8:70b')
  const ipv4 = fc.integer({ min: 0, max: 2 ** 32 - 1 }).map((n) => ({ family: 4 as const, value: BigInt(n) }))
  fc.assert(
    fc.property(ipv4, (address) => {
      const name = overlayLinkLocal(address)
      return (
        name.family === 6 &&
        name.value >> 32n === 0xfe80_0000_0000_0000_0000_5ea1n &&
        name.value % 2n ** 32n === address.value
      )
    }),
  )
})
