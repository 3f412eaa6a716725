/** IPv6 ranges that others claim: each is refused with the exact message, or is harmless here; IPv4 still works. */
import t from 'tap'
import { planDevice } from '../../gateway/cable/wireguard/plan-device.ts'
import { planLanes } from './support/wireguard-plans.ts'
import type { Cluster } from '../../model/objects.ts'
import { DUAL_MILANO, DUAL_PARIS, cluster, endpoint, node, world } from './support/worlds.ts'

const MILANO = cluster('milano', 1, '10.42.0.0/16', '244.0.0.0/16')
const NODES = [
  node('gw', '192.0.2.10', '10.42.0.0/24'),
  { ...node('worker', ''), status: { addresses: addressesOf('192.0.2.11', '2001:db8:5::11') } },
]
const ADDRESSES = [
  { device: 'eth0', address: '192.0.2.10/24' },
  { device: 'eth0', address: '2001:db8:5::10/64' },
  { device: 'eth0', address: 'fe80::10/64' },
]

function addressesOf(...addresses: string[]): { type: string; address: string }[] {
  return addresses.map((address) => ({ type: 'InternalIP', address }))
}

const clusterRows: [say: string, others: Cluster[], want: string[]][] = [
  ['nothing wrong', [DUAL_PARIS], []],
  [
    'everything',
    [cluster('paris', 2, ['10.50.0.0/16', '2000::/3'])],
    ['Cluster paris: its IPv6 is left out: 2000::/3: expected a prefix length of at least 16'],
  ],
  [
    'our node',
    [cluster('paris', 2, ['10.50.0.0/16', '2001:db8:5::/64'])],
    [
      'Cluster paris: its IPv6 is left out: 2001:db8:5::/64 holds 2001:db8:5::10, which this node needs outside the tunnels',
    ],
  ],
  [
    'our worker',
    [cluster('paris', 2, ['10.50.0.0/16', '2001:db8:5::11/128'])],
    [
      'Cluster paris: its IPv6 is left out: 2001:db8:5::11/128 holds 2001:db8:5::11, which this node needs outside the tunnels',
    ],
  ],
  [
    'clusterset IPs',
    [cluster('paris', 2, ['10.50.0.0/16', 'fd53:ea1a::/32'])],
    ['Cluster paris: its IPv6 is left out: fd53:ea1a::/32 overlaps fd53:ea1a:4e00::/96, the range of clusterset IPs'],
  ],
  [
    'link-local',
    [cluster('paris', 2, ['10.50.0.0/16', 'fe80::/64'])],
    ['Cluster paris: its IPv6 is left out: fe80::/64: linkLocal addresses cannot be routed'],
  ],
  [
    'an address that stands for IPv4',
    [cluster('paris', 2, ['10.50.0.0/16', '::ffff:10.60.0.0/112'])],
    ['Cluster paris: its IPv6 is left out: ::ffff:a3c:0/112 overlaps ::/8, loopback and IPv4-mapped addresses'],
  ],
  [
    'NAT64 and what is round about it',
    [cluster('paris', 2, ['10.50.0.0/16', '64::/16'])],
    ['Cluster paris: its IPv6 is left out: 64::/16 overlaps ::/8, loopback and IPv4-mapped addresses'],
  ],
  [
    'another cluster, later by name',
    [cluster('tokyo', 3, ['10.60.0.0/16', 'fd42:2::/32']), cluster('paris', 2, ['10.50.0.0/16', 'fd42:2:7::/48'])],
    ['Cluster tokyo: its IPv6 is left out: fd42:2::/32 overlaps fd42:2:7::/48 of cluster paris'],
  ],
  [
    'twice the same',
    [cluster('paris', 2, ['10.50.0.0/16', 'fd42:2::/48', 'fd42:2::/64'])],
    ['Cluster paris: its IPv6 is left out: fd42:2::/64 is claimed twice'],
  ],
]

t.test('clusters', async (t) => {
  for (const [say, others, want] of clusterRows) {
    const facts = { own: DUAL_MILANO, clusters: [DUAL_MILANO, ...others], nodes: NODES, addresses: ADDRESSES }
    const { clusters, refusals } = planLanes(world(facts))
    t.strictSame(
      refusals.map((r) => `${r.subject}: ${r.message}`),
      want,
      say,
    )
    const leftOut = want.map((text) => text.split(/[ :]/)[1])
    const routed = clusters.map(({ id, prefixes }) => `${id} ${prefixes.map(({ family }) => family).join(' ')}`)
    const expected = others.map(({ spec }) => `${spec.id} ${leftOut.includes(spec.id) ? '4' : '4 6'}`).sort()
    t.strictSame(routed, expected, `${say}: IPv4 is routed`)
  }
})

t.test('what IPv6 of ours others must not claim', async (t) => {
  const dual = cluster('milano', 1, ['10.42.0.0/16', 'fd42:1::/48'])
  const own: Cluster = { ...dual, spec: { ...dual.spec, serviceCIDRs: ['10.43.0.0/16', 'fd43::/112'] } }
  const refused = (podCIDR: string): string[] => {
    const clusters = [own, cluster('paris', 2, ['10.50.0.0/16', podCIDR])]
    return planLanes(world({ own, clusters })).refusals.map((refusal) => refusal.message)
  }
  t.strictSame(refused('fd42:1:0:7::/64'), [
    'its IPv6 is left out: fd42:1:0:7::/64 overlaps fd42:1::/48, a pod CIDR of this cluster',
  ])
  t.strictSame(refused('fd43::/64'), [
    'its IPv6 is left out: fd43::/64 overlaps fd43::/112, a service CIDR of this cluster',
  ])
  t.strictSame(refused('fd42:2::/48'), [])
})

t.test('without an IPv6 pod CIDR here, IPv6 claims of others do no harm to IPv4', async (t) => {
  // Both clusters have the same IPv6 pods: the broker accepts them for paris, and our own bridge has an address among
  // them.
  const addresses = [...ADDRESSES, { device: 'cni0', address: 'fd42:2::1/64' }]
  const paris = cluster('paris', 2, ['10.50.0.0/16', 'fd42:2::/48'])
  const endpoints = [endpoint('paris', 'gw', 0, [])]
  const plan = planLanes(world({ own: MILANO, clusters: [MILANO, paris], endpoints, nodes: NODES, addresses }))
  t.strictSame(plan.refusals, [])
  t.strictSame(planDevice(plan.lanes[0]!).config.peers[0]!.allowedIps, ['10.50.0.0/16', '246.0.2.0/32'])
})

t.test('prefixes of both families are in order, and those of WireGuard too', async (t) => {
  const own = cluster('milano', 1, ['10.42.0.0/16', 'fd42:1::/48'])
  const paris = cluster('paris', 2, ['fd42:2::/48', '10.60.0.0/16', '10.50.0.0/16'])
  const endpoints = [endpoint('paris', 'gw', 0, [])]
  const allowed = (facts: Partial<Parameters<typeof world>[0]> = {}): readonly string[] =>
    planDevice(planLanes(world({ own, clusters: [own, paris], endpoints, ...facts })).lanes[0]!).config.peers[0]!
      .allowedIps
  t.strictSame(allowed(), ['10.50.0.0/16', '10.60.0.0/16', 'fd42:2::/48', '246.0.2.0/32'])
  const alone = { own: MILANO, clusters: [MILANO, paris] }
  t.strictSame(allowed(alone), ['10.50.0.0/16', '10.60.0.0/16', '246.0.2.0/32'], 'without IPv6 here')
})
