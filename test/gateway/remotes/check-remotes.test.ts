/** Claims of other clusters that are refused, each with the exact message. */
import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import t from 'tap'
import { checkClusters } from '../../../gateway/links/check-remotes.ts'
import { planCandidates } from '../../../gateway/reach/plan-candidates.ts'
import { planDevice } from '../../../gateway/cable/wireguard/plan-device.ts'
import { planLanes } from '../support/wireguard-plans.ts'
import type { Cluster, Endpoint } from '../../../model/objects.ts'
import { formatPrefix, overlaps, parsePrefix, prefixOf } from '../../../model/values/ip.ts'
import { DUAL_MILANO, DUAL_PARIS, cluster, endpoint, key, node, world } from '../support/worlds.ts'

const MILANO = cluster('milano', 1, '10.42.0.0/16', '244.0.0.0/16')
const PARIS = cluster('paris', 2, '10.42.0.0/16', '244.1.0.0/16')

const clusterRows: [say: string, others: Cluster[], want: string[]][] = [
  ['nothing wrong', [PARIS, cluster('tokyo', 3, '10.50.0.0/16')], []],
  [
    'more prefixes than a lane can take',
    [
      cluster(
        'paris',
        2,
        [...Array(65).keys()].map((i) => `10.${100 + i}.0.0/16`),
      ),
      cluster('tokyo', 3, '10.50.0.0/16'),
    ],
    ['Cluster paris: 65 prefixes: expected at most 64'],
  ],
  [
    'our pods',
    [cluster('paris', 2, '10.42.0.0/16')],
    ['Cluster paris: 10.42.0.0/16 overlaps 10.42.0.0/16, a pod CIDR of this cluster'],
  ],
  [
    'a part of our services',
    [cluster('paris', 2, '10.43.7.0/24')],
    ['Cluster paris: 10.43.7.0/24 overlaps 10.43.0.0/16, a service CIDR of this cluster'],
  ],
  [
    'our global prefix',
    [cluster('paris', 2, '10.42.0.0/16', '244.0.0.0/16')],
    ['Cluster paris: 244.0.0.0/16 overlaps 244.0.0.0/16, a global CIDR of this cluster'],
  ],
  [
    'clusterset IPs',
    [cluster('paris', 2, '245.0.0.0/16')],
    ['Cluster paris: 245.0.0.0/16 overlaps 245.0.0.0/16, the range of clusterset IPs'],
  ],
  [
    'lane addresses',
    [cluster('paris', 2, '246.0.2.0/24')],
    ['Cluster paris: 246.0.2.0/24 overlaps 246.0.0.0/8, the range of lane addresses'],
  ],
  [
    'everything',
    [cluster('paris', 2, '0.0.0.0/0')],
    ['Cluster paris: 0.0.0.0/0: expected a prefix length of at least 8'],
  ],
  [
    'loopback',
    [cluster('paris', 2, '127.1.0.0/16')],
    ['Cluster paris: 127.1.0.0/16: loopback addresses cannot be routed'],
  ],
  [
    'our node',
    [cluster('paris', 2, '192.0.2.0/24')],
    ['Cluster paris: 192.0.2.0/24 holds 192.0.2.10, which this node needs outside the tunnels'],
  ],
  [
    'our worker',
    [cluster('paris', 2, '192.0.2.11/32')],
    ['Cluster paris: 192.0.2.11/32 holds 192.0.2.11, which this node needs outside the tunnels'],
  ],
  [
    'another cluster: the first by id keeps',
    [cluster('tokyo', 3, '10.50.0.0/16'), cluster('paris', 2, '10.50.128.0/17')],
    ['Cluster tokyo: 10.50.0.0/16 overlaps 10.50.128.0/17 of cluster paris'],
  ],
  ['our index', [cluster('paris', 1, '10.50.0.0/16')], ['Cluster paris: index 1 belongs to cluster milano']],
  ['another index', [PARIS, cluster('tokyo', 2, '10.50.0.0/16')], ['Cluster tokyo: index 2 belongs to cluster paris']],
  [
    'an index out of range',
    [cluster('paris', 70000, '10.50.0.0/16')],
    ['Cluster paris: cluster index 70000: expected 0 to 65535'],
  ],
  ['no CIDR', [cluster('paris', 2, 'ten')], ['Cluster paris: prefix "ten": expected a CIDR such as 10.42.0.0/16']],
  [
    'too many globals',
    [cluster('paris', 2, '10.42.0.0/16', ['244.1.0.0/16', '244.2.0.0/16'])],
    ['Cluster paris: 2 globalCIDRs for 1 podCIDRs: expected one each'],
  ],
  [
    'twice the same',
    [cluster('paris', 2, ['10.50.0.0/16', '10.50.0.0/24'])],
    ['Cluster paris: 10.50.0.0/24 is claimed twice'],
  ],
  ['both families', [DUAL_PARIS], []],
  [
    'another name',
    [{ ...PARIS, metadata: { name: 'lyon' } }],
    ['Cluster lyon: spec.id "paris": expected the object\'s name'],
  ],
]

t.test('clusters', async (t) => {
  for (const [say, others, want] of clusterRows) {
    const plan = planLanes(world({ own: MILANO, clusters: [MILANO, ...others] }))
    t.strictSame(
      plan.refusals.map((r) => `${r.subject}: ${r.message}`),
      want,
      say,
    )
  }
})

function cameAt(creationTimestamp: string, one: Endpoint): Endpoint {
  return { ...one, metadata: { ...one.metadata, creationTimestamp } }
}

function ofOneDevice(one: Endpoint): Endpoint {
  return { ...one, spec: { ...one.spec, capabilities: ['wireguard'] } }
}

const endpointRows: [say: string, endpoints: Endpoint[], want: string[], peers: string[]][] = [
  ['nothing wrong', [endpoint('paris', 'gw', 0, [])], [], ['paris.gw-lane0']],
  ['of another lane', [endpoint('paris', 'gw', 1, [])], [], ['paris.gw-lane1']],
  [
    'of another lane, and of a release with one device',
    [7, 1, 1, 9].map((lane, i) => ofOneDevice(endpoint('paris', `gw${i}`, lane, []))),
    ['Cluster paris: its release links only gateways of the same lane number: it has 1, 7, and this node serves 0'],
    [],
  ],
  [
    'the same, beside one that can be linked with',
    [ofOneDevice(endpoint('paris', 'gw', 1, [])), ofOneDevice(endpoint('paris', 'gw', 0, []))],
    [],
    ['paris.gw-lane0'],
  ],
  [
    'of our lane, and of a release with one device',
    [ofOneDevice(endpoint('paris', 'gw', 0, []))],
    [],
    ['paris.gw-lane0'],
  ],
  ['the last lane', [endpoint('paris', 'gw', 7, [])], [], ['paris.gw-lane7']],
  ['a lane too many', [endpoint('paris', 'gw', 8, [])], ['Endpoint paris.gw-lane8: lane 8: expected 0 to 7'], []],
  ['cluster not known yet', [endpoint('oslo', 'gw', 0, [])], [], []],
  [
    'no key',
    [endpoint('paris', 'gw', 0, [], 'short')],
    ['Endpoint paris.gw-lane0: publicKey "short": expected 32 bytes in base64'],
    [],
  ],
  [
    'our key',
    [endpoint('paris', 'gw', 0, [], key('own'))],
    ['Endpoint paris.gw-lane0: publicKey is already the key of this node'],
    [],
  ],
  [
    'a key twice',
    [endpoint('paris', 'gw', 0, [], key('x')), endpoint('tokyo', 'gw', 0, [], key('x'))],
    ['Endpoint tokyo.gw-lane0: publicKey is already the key of Endpoint paris.gw-lane0'],
    ['paris.gw-lane0'],
  ],
  [
    'a lane twice',
    [endpoint('paris', 'b', 0, [], key('b')), endpoint('paris', 'a', 0, [], key('a'))],
    ['Endpoint paris.b-lane0: lane 0 of paris is served by node a, which is newer, or the first by name'],
    ['paris.a-lane0'],
  ],
  [
    'a lane that a later gateway has taken over',
    [
      cameAt('2026-11-20T11:00:00Z', endpoint('paris', 'b', 0, [], key('b'))),
      cameAt('2026-11-20T10:00:00Z', endpoint('paris', 'a', 0, [], key('a'))),
    ],
    ['Endpoint paris.a-lane0: lane 0 of paris is served by node b, which is newer, or the first by name'],
    ['paris.b-lane0'],
  ],
  [
    'the newest must be usable',
    [cameAt('2026-11-20T11:00:00Z', endpoint('paris', 'b', 0, [], 'short')), endpoint('paris', 'a', 0, [], key('a'))],
    ['Endpoint paris.b-lane0: publicKey "short": expected 32 bytes in base64'],
    ['paris.a-lane0'],
  ],
  [
    'another cluster cannot come later with a key',
    [
      cameAt('2026-11-20T11:00:00Z', endpoint('tokyo', 'gw', 0, [], key('x'))),
      cameAt('2026-11-20T10:00:00Z', endpoint('paris', 'gw', 0, [], key('x'))),
    ],
    ['Endpoint tokyo.gw-lane0: publicKey is already the key of Endpoint paris.gw-lane0'],
    ['paris.gw-lane0'],
  ],
  [
    'a false name',
    [{ ...endpoint('paris', 'gw', 0, []), metadata: { name: 'tokyo.gw-lane0' } }],
    ['Endpoint tokyo.gw-lane0: its name does not match its spec: expected paris.gw-lane0'],
    [],
  ],
]

t.test('endpoints', async (t) => {
  const clusters = [MILANO, PARIS, cluster('tokyo', 3, '10.50.0.0/16')]
  const devices = new Map([[0, { name: 'sealane0', publicKey: key('own'), listenPort: 4500, peers: [] }]])
  for (const [say, endpoints, want, peers] of endpointRows) {
    const plan = planLanes(world({ own: MILANO, clusters, endpoints, devices }))
    t.strictSame(
      plan.refusals.map((r) => `${r.subject}: ${r.message}`),
      want,
      say,
    )
    t.strictSame(
      plan.lanes.flatMap(({ links }) => links.map((link) => link.endpoint)),
      peers,
      `${say}: peers`,
    )
  }
})

t.test('who is called where by a gateway of lane 2, and where it listens', async (t) => {
  const paris = [
    endpoint('paris', 'a', 0, ['public 198.51.100.20:4500', 'private 10.0.0.2:4500']),
    endpoint('paris', 'b', 1, ['observed 203.0.113.7:7001']),
    endpoint('paris', 'c', 2, ['public 198.51.100.22:4502']),
    endpoint('paris', 'd', 7, ['public 198.51.100.23:3']),
  ]
  const lanes = [{ lane: 2, port: 6002, publicAddress: '198.51.100.20' }]
  const plan = planLanes(world({ own: MILANO, clusters: [MILANO, PARIS], endpoints: paris, lanes }))
  t.strictSame(
    plan.lanes.map(({ device, port, ownLane, remoteLane, address, links }) => {
      const called = links.flatMap(({ candidates }) => candidates.map((one) => `${one.address}:${one.port}`))
      return [device, port, ownLane, remoteLane, address, called.join()]
    }),
    [
      ['sealane0', 6000, 2, 0, '246.0.1.2/32', '198.51.100.20:4502,10.0.0.2:4502'],
      ['sealane1', 6001, 2, 1, '246.0.1.2/32', '203.0.113.7:7002'],
      ['sealane2', 6002, 2, 2, '246.0.1.2/32', '198.51.100.22:4502'],
      ['sealane7', 6007, 2, 7, '246.0.1.2/32', ''],
    ],
    'and no port below 1',
  )
  const behindOne = [endpoint('paris', 'a', 0, ['public 198.51.100.20:6000', 'public 198.51.100.20:5000'])]
  const [first] = planLanes(world({ own: MILANO, clusters: [MILANO, PARIS], endpoints: behindOne, lanes })).lanes
  t.strictSame(
    first?.links[0]?.candidates.map(({ port }) => port),
    [5002],
    'not where our own devices are called',
  )
})

t.test('without a word from others there is the device towards lane 0', async (t) => {
  const devices = (endpoints: readonly Endpoint[]): string[] =>
    planLanes(world({ own: MILANO, clusters: [MILANO, PARIS], endpoints, lanes: [{ lane: 3, port: 4503 }] })).lanes.map(
      ({ device, port }) => `${device} ${port}`,
    )
  t.strictSame(devices([]), ['sealane0 4500'])
  t.strictSame(devices([endpoint('paris', 'gw', 1, [])]), ['sealane1 4501'])
})

t.test(
  'a gateway among its pods is called there, unless its cluster is translated; what another states has no say',
  async (t) => {
    const called = (paris: ReturnType<typeof cluster>, ...candidates: string[]): string[] => {
      const own = cluster('milano', 1, '10.42.0.0/16')
      const clusters = [own, paris, cluster('tokyo', 3, '10.50.0.0/16')]
      const endpoints = [endpoint('paris', 'gw', 0, candidates)]
      return planLanes(world({ own, clusters, endpoints })).lanes[0]!.links[0]!.candidates.map((c) => c.address)
    }
    const flat = cluster('paris', 2, '10.44.0.0/16')
    t.strictSame(called(flat, 'private 10.44.200.20:4500', 'private 10.50.0.1:4500', 'private 10.42.0.9:4500'), [
      '10.44.200.20',
      '10.50.0.1',
    ])
    t.strictSame(called(cluster('paris', 2, '10.44.0.0/16', '244.1.0.0/16'), 'private 244.1.0.20:4500'), [])
  },
)

t.test('what this machine needs is in nobody’s pods', async (t) => {
  const machine = { nextHops: ['198.51.100.1'], nameServers: ['9.9.9.9'] }
  const refused = (range: string): string[] => {
    const clusters = [cluster('milano', 1, '10.42.0.0/16'), cluster('paris', 2, range)]
    return checkClusters(world({ own: clusters[0]!, clusters, machine })).refusals.map(({ message }) => message)
  }
  const rows: [string, string[]][] = [
    ['192.0.3.0/24', []],
    ['172.17.0.0/16', []],
    ['192.0.2.0/28', ['192.0.2.0/28 holds 192.0.2.10, which this node needs outside the tunnels']],
    [
      '192.0.2.128/28',
      ['192.0.2.128/28 overlaps 192.0.2.0/24, a network of this node: this node needs that outside the tunnels'],
    ],
    [
      '198.51.100.0/30',
      ['198.51.100.0/30 holds 198.51.100.1, a default gateway of this node: this node needs that outside the tunnels'],
    ],
    ['9.0.0.0/8', ['9.0.0.0/8 holds 9.9.9.9, a name server of this node: this node needs that outside the tunnels']],
  ]
  for (const [range, reasons] of rows) t.strictSame(refused(range), reasons, range)
})

t.test('where a node among its own pods can be called', async (t) => {
  const own = cluster('milano', 1, '10.42.0.0/16')
  const offered = (...addresses: string[]): string[] => {
    const nodes = [
      {
        ...node('gw', ''),
        status: { addresses: addresses.map((address) => ({ type: 'InternalIP', address })) },
      },
    ]
    return planCandidates(world({ own, nodes }), { lane: 0, port: 4500 }).map((c) => `${c.kind} ${c.address}`)
  }
  t.strictSame(offered('fd00::1', '10.42.200.10'), ['private 10.42.200.10'])
  t.strictSame(offered('10.42.200.10', '192.0.2.10'), ['private 192.0.2.10'], 'rather elsewhere')
  t.strictSame(offered('fd00::1'), [])
})

t.test('candidates that cannot be called are left out', async (t) => {
  const bad = [
    'public 127.0.0.1:4500',
    'public 0.0.0.0:4500',
    'public 224.0.0.1:4500',
    'public nowhere:4500',
    'public 198.51.100.1:0',
    'public 198.51.100.1:70000',
    'private 10.42.0.7:4500',
    'private 244.1.0.9:4500',
    'public 246.0.2.0:4500',
  ]
  const plan = planLanes(
    world({
      own: MILANO,
      clusters: [MILANO, PARIS],
      endpoints: [endpoint('paris', 'gw', 0, [...bad, 'public 198.51.100.20:4500'])],
    }),
  )
  t.strictSame(
    plan.lanes[0]!.links[0]!.candidates.map((c) => c.address),
    ['198.51.100.20'],
  )
})

t.test('whatever is claimed, allowed addresses are disjoint and none is ours; order does not matter', async (t) => {
  const claim = fc.record({
    index: fc.integer({ min: 0, max: 6 }),
    base: fc.nat(),
    length: fc.integer({ min: 0, max: 32 }),
    more: fc.boolean(),
    six: fc.option(fc.record({ net: fc.integer({ min: 0, max: 7 }), length: fc.integer({ min: 14, max: 128 }) })),
  })
  const ours = ['10.42.0.0/16', '10.43.0.0/16', '244.0.0.0/16', '246.0.1.0/32', 'fd42:1::/48']
  /** The prefixes lie within fd42:0::/32 to fd42:7::/32, so that many of them overlap. */
  const toCidr6 = ({ net, length }: { net: number; length: number }): string =>
    formatPrefix(prefixOf({ family: 6, value: (0xfd42n << 112n) | (BigInt(net) << 96n) }, length))
  const toCidr = (base: number, length: number): string => {
    const value = length === 0 ? 0 : (base << (32 - length)) >>> 0
    return `${[24, 16, 8, 0].map((shift) => (value >>> shift) & 255).join('.')}/${length}`
  }
  let carried6 = 0
  fc.assert(
    fc.property(
      fc.array(claim, { maxLength: 6 }),
      fc.array(fc.nat(), { minLength: 6, maxLength: 6 }),
      (claims, order) => {
        const others = claims.map((c, i) =>
          cluster(`c${i}`, c.index, [
            toCidr(c.base, c.length),
            ...(c.more ? [toCidr(c.base + 1, c.length)] : []),
            ...(c.six === null ? [] : [toCidr6(c.six)]),
          ]),
        )
        const endpoints = others.map((other) => endpoint(other.spec.id, 'gw', 0, []))
        const plan = planLanes(world({ own: DUAL_MILANO, clusters: [DUAL_MILANO, ...others], endpoints }))
        const all = planDevice(plan.lanes[0]!).config.peers.flatMap((peer) =>
          peer.allowedIps.map((text) => parsePrefix(text)),
        )
        for (const [i, a] of all.entries()) {
          if (all.some((b, j) => j < i && overlaps(a, b))) throw new Error('two peers, one address')
          for (const one of ours) if (overlaps(a, parsePrefix(one))) throw new Error(`ours: ${one}`)
          if (a.family === 6) carried6 += 1
        }
        const shuffled = others
          .map((other, i) => [order[i]!, other] as const)
          .sort((a, b) => a[0] - b[0])
          .map(([, other]) => other)
        const clusters = [...shuffled, DUAL_MILANO]
        const again = planLanes(world({ own: DUAL_MILANO, clusters, endpoints: [...endpoints].reverse() }))
        if (!isDeepStrictEqual(again, plan)) throw new Error('the order of objects shows')
      },
    ),
    { numRuns: 1000 },
  )
  t.ok(carried6 > 0, `prefixes of IPv6 that were let through: ${carried6}`)
})
