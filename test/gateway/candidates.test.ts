/** The candidate addresses that a gateway publishes, and which of them other gateways accept: one row per situation. */
import fc from 'fast-check'
import t from 'tap'
import { type LinkState, linkKey } from '../../gateway/cable/cable-driver.ts'
import {
  checkAnswer,
  isBehindNat,
  isOwnLaneHidden,
  linkPort,
  planCandidates,
  rangesOfOwn,
  seeksRelays,
} from '../../gateway/reach/plan-candidates.ts'
import type { GatewayLaneConfig } from '../../gateway/world/config.ts'
import { planLanes } from './support/wireguard-plans.ts'
import { planStatus } from '../../gateway/status/plan-status.ts'
import type { GatewayWorld } from '../../gateway/world/gateway-world.ts'
import { formatAddressPort, parseAddressPort } from '../../model/addresses/address-port.ts'
import type { Cluster, Endpoint, Node } from '../../model/objects.ts'
import { NOW, UPTIME, cluster, endpoint, keyOf, node, world } from './support/worlds.ts'

const MILANO = cluster('milano', 1, '10.42.0.0/16', '244.0.0.0/16')
const PARIS = cluster('paris', 2, '10.42.0.0/16', '244.1.0.0/16')
const TOKYO = cluster('tokyo', 3, '10.62.0.0/16')

/** This node is gw with the address 192.0.2.10; its bridge is 10.42.0.1. */
function withAddresses(...addresses: readonly (readonly [type: string, address: string])[]): Node[] {
  const status = { addresses: addresses.map(([type, address]) => ({ type, address })) }
  return [{ ...node('gw', ''), status }, node('worker', '192.0.2.11')]
}

const NODES = withAddresses(['InternalIP', '192.0.2.10'])
const PRIVATE = 'private 192.0.2.10'

interface OwnRow {
  readonly say: string
  readonly observed?: string
  readonly publicAddress?: string
  readonly nodes?: readonly Node[]
  readonly clusters?: readonly Cluster[]
  readonly endpoints?: readonly Endpoint[]
  /** Addresses of additional interfaces. */
  readonly addresses?: readonly string[]
  readonly reported: readonly string[]
  readonly nat?: true
}

const OWN_ROWS: readonly OwnRow[] = [
  { say: 'nothing was observed', reported: [PRIVATE] },
  { say: 'behind NAT', observed: '203.0.113.1', reported: [PRIVATE, 'observed 203.0.113.1'], nat: true },
  { say: 'seen as it is', observed: '192.0.2.10', reported: [PRIVATE] },
  {
    say: 'the node has an external address',
    nodes: withAddresses(['InternalIP', '192.0.2.10'], ['ExternalIP', '198.51.100.9'], ['Hostname', 'gw']),
    reported: ['public 198.51.100.9', PRIVATE],
  },
  {
    say: 'an external address that the broker saw: one to one',
    observed: '198.51.100.9',
    nodes: withAddresses(['ExternalIP', '198.51.100.9'], ['InternalIP', '192.0.2.10']),
    reported: ['public 198.51.100.9', PRIVATE],
  },
  {
    say: 'the external address is of IPv6',
    nodes: withAddresses(['InternalIP', '192.0.2.10'], ['ExternalIP', '2001:db8::9']),
    reported: [PRIVATE],
  },
  {
    say: 'a port is forwarded',
    observed: '203.0.113.1',
    publicAddress: '203.0.113.1',
    reported: ['public 203.0.113.1', PRIVATE],
    nat: true,
  },
  {
    say: 'what the operator says comes first',
    publicAddress: '203.0.113.7',
    nodes: withAddresses(['InternalIP', '192.0.2.10'], ['ExternalIP', '198.51.100.9']),
    reported: ['public 203.0.113.7', 'public 198.51.100.9', PRIVATE],
  },
  {
    say: 'an address of this node that its Node does not tell',
    observed: '198.51.100.9',
    addresses: ['198.51.100.9/24'],
    reported: ['public 198.51.100.9', PRIVATE],
  },
  { say: 'the own bridge', observed: '10.42.0.1', reported: [PRIVATE] },
  {
    say: "the hub's bridge, where the hub is a member",
    observed: '10.62.0.1',
    clusters: [MILANO, TOKYO],
    reported: [PRIVATE],
  },
  { say: "a Service's address", observed: '10.43.0.1', reported: [PRIVATE] },
  {
    say: 'a pod of a translated cluster, as that says: no NAT follows, and it is told last',
    observed: '10.52.3.4',
    clusters: [MILANO, cluster('paris', 2, '10.52.0.0/16', '244.1.0.0/16')],
    reported: [PRIVATE, 'observed 10.52.3.4'],
  },
  { say: 'a global address of a member', observed: '244.1.2.3', clusters: [MILANO, PARIS], reported: [PRIVATE] },
  { say: 'a global address that no member has yet', observed: '244.77.2.3', reported: [PRIVATE] },
  { say: 'an address inside the lanes', observed: '246.0.1.0', reported: [PRIVATE] },
  { say: 'another node of this cluster', observed: '192.0.2.11', reported: [PRIVATE] },
  { say: 'somebody in the network of this node', observed: '192.0.2.1', reported: [PRIVATE] },
  {
    say: 'the external address of another node of this cluster',
    observed: '198.51.100.8',
    nodes: [
      ...NODES.slice(0, 1),
      { ...node('worker', ''), status: { addresses: [{ type: 'ExternalIP', address: '198.51.100.8' }] } },
    ],
    reported: [PRIVATE],
  },
  {
    say: 'a node of another member, as that says: no NAT follows, and it is told last',
    observed: '198.51.100.20',
    clusters: [MILANO, PARIS],
    endpoints: [endpoint('paris', 'gw', 0, ['private 198.51.100.20:4500'])],
    reported: [PRIVATE, 'observed 198.51.100.20'],
  },
  {
    say: 'another member tells it in every way, which takes it from nobody',
    observed: '203.0.113.1',
    clusters: [MILANO, cluster('paris', 2, '203.0.113.0/24', '244.1.0.0/16')],
    endpoints: [
      endpoint('paris', 'gw', 0, ['public 203.0.113.1:4500', 'private 203.0.113.1:4500', 'observed 203.0.113.1:4500']),
    ],
    reported: [PRIVATE, 'observed 203.0.113.1'],
  },
  {
    say: 'another member is seen under it too: it is told, for that is how all find out, but nothing follows from it',
    observed: '203.0.113.1',
    clusters: [MILANO, PARIS],
    endpoints: [endpoint('paris', 'gw', 0, ['private 10.0.0.2:4500', 'observed 203.0.113.1:4500'])],
    reported: [PRIVATE, 'observed 203.0.113.1'],
  },
  { say: 'loopback', observed: '127.0.0.1', reported: [PRIVATE] },
  { say: 'IPv6, which no lane is called at', observed: '2001:db8::7', reported: [PRIVATE] },
  { say: 'no address at all', observed: 'somewhere', reported: [PRIVATE] },
  { say: 'a node without addresses', nodes: withAddresses(), reported: [] },
  {
    say: 'a node without addresses, behind NAT',
    observed: '203.0.113.1',
    nodes: withAddresses(),
    reported: ['observed 203.0.113.1'],
    nat: true,
  },
  {
    say: 'a member whose ranges cannot be read hides nothing',
    observed: '203.0.113.1',
    clusters: [MILANO, cluster('bad', 4, 'everything')],
    reported: [PRIVATE, 'observed 203.0.113.1'],
    nat: true,
  },
]

t.test('candidates of this node, and whether it is behind NAT', async (t) => {
  for (const row of OWN_ROWS) {
    const { observed, publicAddress, nodes = NODES, clusters = [MILANO], endpoints = [] } = row
    const plain = world()
    const more = (row.addresses ?? []).map((address) => ({ device: 'eth1', address }))
    const facts: GatewayWorld = {
      ...world({ own: MILANO, nodes, clusters, endpoints, addresses: [...plain.addresses, ...more] }),
      ...(observed === undefined ? {} : { observedAddress: observed }),
    }
    const lane = { lane: 0, port: 4500, ...(publicAddress === undefined ? {} : { publicAddress }) }
    const reported = planCandidates(facts, lane).map(({ kind, address }) => `${kind} ${address}`)
    t.strictSame(reported, row.reported, row.say)
    t.equal(isBehindNat(facts), row.nat ?? false, `${row.say}: behind NAT`)
  }
})

interface RemoteRow {
  readonly say: string
  /** The candidates that paris publishes, without the port. */
  readonly reported: readonly string[]
  readonly also?: readonly Endpoint[]
  readonly observed?: string
  readonly called: readonly string[]
}

const REMOTE_ROWS: readonly RemoteRow[] = [
  {
    say: 'all of it',
    reported: ['public 198.51.100.20', 'private 10.0.0.2', 'observed 203.0.113.9'],
    called: ['198.51.100.20', '10.0.0.2', '203.0.113.9'],
  },
  {
    say: 'the address of this very node',
    reported: ['private 192.0.2.10', 'observed 203.0.113.9'],
    called: ['203.0.113.9'],
  },
  { say: 'also as a public one', reported: ['public 192.0.2.10', 'private 10.0.0.2'], called: ['10.0.0.2'] },
  { say: 'the address of another node here', reported: ['private 192.0.2.11'], called: [] },
  { say: 'a neighbour of this node', reported: ['private 192.0.2.77'], called: ['192.0.2.77'] },
  {
    say: "among somebody's pods: last",
    reported: ['observed 10.62.0.1', 'private 10.0.0.2'],
    called: ['10.0.0.2', '10.62.0.1'],
  },
  {
    say: 'seen where tokyo is seen: last, whatever comes first',
    reported: ['observed 203.0.113.9', 'private 10.0.0.2', 'public 198.51.100.20'],
    also: [endpoint('tokyo', 'gw', 0, ['private 10.0.0.3:4500', 'observed 203.0.113.9:4500'])],
    called: ['10.0.0.2', '198.51.100.20', '203.0.113.9'],
  },
  {
    say: 'seen where tokyo says that it has a node: last',
    reported: ['observed 203.0.113.9', 'private 10.0.0.2'],
    also: [endpoint('tokyo', 'gw', 0, ['public 203.0.113.9:4500'])],
    called: ['10.0.0.2', '203.0.113.9'],
  },
  {
    say: 'the only address that it has, which tokyo tells as well',
    reported: ['observed 203.0.113.9'],
    also: [endpoint('tokyo', 'gw', 0, ['public 203.0.113.9:4500', 'observed 203.0.113.9:4500'])],
    called: ['203.0.113.9'],
  },
  {
    say: 'two gateways of its own are seen under one address',
    reported: ['private 10.0.0.2', 'observed 203.0.113.9'],
    also: [endpoint('paris', 'gw2', 1, ['private 10.0.0.3:4501', 'observed 203.0.113.9:4501'])],
    called: ['10.0.0.2', '203.0.113.9'],
  },
  {
    say: 'behind the same NAT: privately first',
    reported: ['private 10.0.0.2', 'observed 203.0.113.1'],
    observed: '203.0.113.1',
    called: ['10.0.0.2', '203.0.113.1'],
  },
]

function facing(
  row: Pick<RemoteRow, 'reported' | 'also' | 'observed'>,
  facts: Partial<GatewayWorld> = {},
): GatewayWorld {
  const paris = endpoint(
    'paris',
    'gw',
    0,
    row.reported.map((text) => `${text}:4500`),
  )
  return {
    ...world({ own: MILANO, nodes: NODES, lanes: [{ lane: 0, port: 4500 }], ...facts }),
    clusters: [MILANO, PARIS, TOKYO],
    endpoints: [paris, ...(row.also ?? [])],
    ...(row.observed === undefined ? {} : { observedAddress: row.observed }),
  }
}

t.test('which ends ask relays for links that do not come up, alike at both ends', (t) => {
  const rows = [
    ['each behind a NAT', 'observed 203.0.113.9', '203.0.113.1', true, true],
    ['both behind one', 'observed 203.0.113.1', '203.0.113.1', true, true],
    ['the far end can be called', 'public 203.0.113.9', '203.0.113.1', true, false],
    ['this one was seen as it is', 'observed 203.0.113.9', '192.0.2.10', false, true],
  ] as const
  for (const [say, reported, observedAddress, here, there] of rows) {
    const facts = facing({ reported: ['private 10.0.0.2', reported] }, { observedAddress })
    const [link] = planLanes(facts).lanes[0]?.links ?? []
    const lane = { lane: 0, port: 4500 }
    const own = { hidden: isOwnLaneHidden(facts, lane), candidates: planCandidates(facts, lane) }
    t.equal(seeksRelays(own), here, `${say}: this end`)
    t.equal(link && seeksRelays(link), there, `${say}: the far end`)
  }
  t.end()
})

t.test('ports: inner ones where this node is itself, outer ones elsewhere', async (t) => {
  const nodes = withAddresses(['InternalIP', '192.0.2.10'], ['ExternalIP', '198.51.100.9'])
  const facts = { ...world({ own: MILANO, nodes, clusters: [MILANO] }), observedAddress: '203.0.113.1' }
  const published = (lane: Partial<GatewayLaneConfig>, more: Partial<GatewayWorld> = {}) =>
    planCandidates({ ...facts, ...more }, { lane: 2, port: 4502, ...lane }).map(
      ({ kind, address, port }) => `${kind} ${address}:${port}`,
    )
  t.strictSame(published({ port: 51822 }), [
    'public 198.51.100.9:51822',
    'private 192.0.2.10:51822',
    'observed 203.0.113.1:51822',
  ])
  t.strictSame(published({ publicPort: 60000, publicAddress: '203.0.113.7' }), [
    'public 203.0.113.7:60002',
    'public 198.51.100.9:60002',
    'private 192.0.2.10:4502',
    'observed 203.0.113.1:60002',
  ])
  const addresses = [...facts.addresses, { device: 'eth1', address: '198.51.100.9/24' }]
  t.strictSame(published({ publicPort: 60000 }, { addresses }).slice(0, 1), ['public 198.51.100.9:4502'])
  t.strictSame(linkPort({ stated: 60002, of: 2, from: 5 }), 60005, 'every release computes the port for its number')
})

t.test('a public name: the addresses that it resolved to', async (t) => {
  const facts = world({ own: MILANO, nodes: NODES, clusters: [MILANO] })
  const lane = { lane: 0, port: 4500, publicAddress: 'gw.example.org' }
  const published = (name: string, ...addresses: string[]) =>
    planCandidates({ ...facts, publicName: { name, addresses, isAsked: true } }, lane).map((one) => one.address)
  t.strictSame(
    planCandidates(facts, lane).map((one) => one.address),
    ['192.0.2.10'],
    'not asked yet',
  )
  t.strictSame(published('gw.example.org', '203.0.113.7', '203.0.113.8'), ['203.0.113.7', '203.0.113.8', '192.0.2.10'])
  t.strictSame(published('other.example.org', '203.0.113.7'), ['192.0.2.10'], 'those of another name')
  t.strictSame(published('gw.example.org', '10.42.0.9', '244.0.0.1', '246.0.1.0', '127.0.0.1'), ['192.0.2.10'])
  const inside = planCandidates(
    { ...facts, publicName: { name: 'gw.example.org', addresses: ['192.0.2.10'], isAsked: true } },
    lane,
  )
  t.strictSame(inside, [{ kind: 'private', address: '192.0.2.10', port: 4500 }], 'as it resolves inside a cloud')
})

t.test('answers for a public name', async (t) => {
  const ranges = rangesOfOwn(MILANO)
  const rows: readonly (readonly [answer: readonly string[], used: readonly string[], problem?: string])[] = [
    [['203.0.113.7'], ['203.0.113.7']],
    [
      ['203.0.113.10', '203.0.113.9', '203.0.113.9', '2001:db8::1'],
      ['203.0.113.9', '203.0.113.10'],
    ],
    [[], [], 'PublicNameUnresolved gw.example has no address'],
    [['2001:db8::1'], [], 'PublicNameUnusable gw.example has addresses that others cannot call: 2001:db8::1 (IPv6)'],
    [
      ['127.0.0.1', '203.0.113.7', '10.42.0.9'],
      ['203.0.113.7'],
      'PublicNameUnusable gw.example has addresses that others cannot call: 127.0.0.1 (loopback), 10.42.0.9 (inside the lanes)',
    ],
    [
      ['0.0.0.0', '169.254.169.254', '224.0.0.1', '255.255.255.255', 'x\u0000y'],
      [],
      'PublicNameUnusable gw.example has addresses that others cannot call: ',
    ],
  ]
  for (const [answer, used, wanted = ''] of rows) {
    const { addresses, problem } = checkAnswer('gw.example', answer, ranges)
    t.strictSame(addresses, used)
    const said = problem === undefined ? '' : `${problem.reason} ${problem.message}`
    t.ok(wanted === '' ? said === '' : said.startsWith(wanted), `${answer.join()}: ${said}`)
    t.notMatch(said, /[^\x20-\x7e]/)
  }
  const many = Array.from({ length: 10_000 }, (_, i) => `203.${i >> 8}.${i & 255}.7`)
  const found = checkAnswer('gw.example', many, ranges)
  t.strictSame(found.addresses, ['203.0.0.7', '203.0.1.7', '203.0.2.7', '203.0.3.7'])
  t.match(found.problem, { message: 'gw.example has 10000 addresses: expected at most 4, the lowest are used' })
  t.strictSame(checkAnswer('gw.example', many.toReversed(), ranges), found, 'in any order')
  fc.assert(
    fc.property(fc.array(fc.oneof(fc.ipV4(), fc.ipV6(), fc.string()), { maxLength: 20 }), (answer) => {
      const { addresses, problem } = checkAnswer('gw.example', answer, ranges)
      t.ok(addresses.length <= 4 && addresses.every((one) => answer.includes(one)))
      t.ok(addresses.length > 0 || problem !== undefined, 'nothing is used without a word')
      t.ok((problem?.message ?? '').length < 500)
    }),
  )
})

t.test('gateways of this cluster behind one public address', async (t) => {
  const at = (name: string, ...annotations: readonly string[]): Node => {
    const keys = ['sealane.io/public-address', 'sealane.io/public-port']
    const stated = Object.fromEntries(annotations.map((value, i) => [keys[i] ?? '', value]))
    const one = node(name, '192.0.2.10')
    return { ...one, metadata: { ...one.metadata, labels: { 'sealane.io/gateway': 'true' }, annotations: stated } }
  }
  const published = (own: Node, ...others: Node[]) =>
    planLanes(world({ own: MILANO, nodes: [own, ...others], clusters: [MILANO] }))
      .refusals.filter(({ reason }) => reason === 'PublicPortsOverlap')
      .map(({ message }) => message)
  const own = at('gw', 'gw.example.org', '51820')
  t.strictSame(published(own, at('b', 'gw.example.org', '51828'), at('c', 'other.example.org', '51820'), at('d')), [])
  t.strictSame(published(own, at('b', 'gw.example.org', '51827')), [
    'the public address gw.example.org leads to node b too, on ports 51827 to 51834; this node states 51820 to 51827',
  ])
  t.strictSame(published(at('gw', '203.0.113.1'), at('b', '203.0.113.1')), [], 'an address that moves with the gateway')
})

t.test('candidates of others', async (t) => {
  for (const row of REMOTE_ROWS) {
    const peer = planLanes(facing(row)).lanes[0]?.links.find((one) => one.cluster === 'paris')
    t.strictSame(
      peer?.candidates.map(({ address }) => address),
      row.called,
      row.say,
    )
  }
})

t.test(
  'the place where this lane is told to be is not called, nor one that was called from and is now here',
  async (t) => {
    const lanes = [{ lane: 0, port: 4500, publicAddress: '203.0.113.50' }]
    const facts = { ...facing({ reported: [] }), lanes }
    const paris = endpoint('paris', 'gw', 0, ['public 203.0.113.50:4500', 'public 203.0.113.50:4501'])
    const peerOf = (more: Partial<GatewayWorld>) =>
      planLanes({ ...facts, endpoints: [paris], ...more }).lanes[0]?.links[0]
    t.strictSame(
      peerOf({})?.candidates.map(({ port }) => port),
      [4501],
      'the same address with another port is a neighbour behind the same NAT',
    )
    const health = new Map([['0/paris', { state: 'down', sinceMs: UPTIME - 60_000 } as const]])
    const called = (address: string): (string | undefined)[] =>
      [0, 1, 2, 3].map((s) => {
        const roamed = new Map([[keyOf(paris), { at: parseAddressPort(`${address}:61000`), sinceMs: 0 }]])
        const monotonicMs = UPTIME + s * 5000
        const { at } = peerOf({ health, roamed, monotonicMs })?.choice ?? {}
        return at && formatAddressPort(at)
      })
    t.ok(called('203.0.113.77').includes('203.0.113.77:61000'), 'where it called from has its turn')
    t.notOk(called('192.0.2.10').includes('192.0.2.10:61000'), 'not so where this node is there now')
  },
)

t.test('who calls first: who cannot be called; else the order of ids, alike at both ends', async (t) => {
  const first = (reported: string, facts: Partial<GatewayWorld>): boolean => {
    const { lanes } = planLanes(facing({ reported: reported === '' ? [] : ['private 10.0.0.2', reported] }, facts))
    return lanes[0]?.links[0]?.choice.why !== 'the remote gateway connects first'
  }
  const hidden = { observedAddress: '203.0.113.1' }
  const later = { own: { ...MILANO, metadata: { name: 'zagreb' }, spec: { ...MILANO.spec, id: 'zagreb' } } }
  t.equal(first('public 198.51.100.20', {}), true, 'milano before paris')
  t.equal(first('public 198.51.100.20', later), false, 'zagreb after paris')
  t.equal(first('public 198.51.100.20', { ...later, ...hidden }), true, 'zagreb is behind NAT')
  t.equal(first('observed 203.0.113.9', {}), false, 'paris is behind NAT')
  t.equal(first('observed 203.0.113.9', hidden), true, 'both are')
  t.equal(
    first('observed 203.0.113.1', { ...later, ...hidden }),
    false,
    'seen under one address: neither counts as hidden',
  )
  t.equal(first('observed 203.0.113.9', { ...later, ...hidden }), false, 'both are')
})

t.test('the order at a relay is alike at both ends if one of them can call no address of the other one', async (t) => {
  const later = { own: { ...MILANO, metadata: { name: 'zagreb' }, spec: { ...MILANO.spec, id: 'zagreb' } } }
  const place = { cluster: 'oslo', at: parseAddressPort('203.0.113.1:4601'), sinceMs: UPTIME - 50 }
  const health = new Map([['0/paris', { state: 'connecting', sinceMs: UPTIME - 600 } as const]])
  const calls = (reported: readonly string[], facts: Partial<GatewayWorld>): boolean => {
    const paris = endpoint('paris', 'gw', 0, [])
    const relayPlaces = new Map([[keyOf(paris), [place]]])
    const { lanes } = planLanes(facing({ reported }, { health, relayPlaces, ...facts }))
    const { attempt, how } = lanes[0]?.links[0]?.choice ?? {}
    t.equal(how, attempt === undefined ? 'wait' : 'try')
    return attempt !== undefined
  }
  // Paris has an address that this node has too. It does not count itself as behind NAT, so the ids decide for it.
  t.equal(calls(['private 192.0.2.10'], {}), true, 'milano before paris')
  t.equal(calls(['private 192.0.2.10'], later), false, 'zagreb after paris')
  t.equal(calls([], {}), false, 'an end without addresses is first')
  t.equal(calls(['observed 203.0.113.9'], {}), false, 'so is one behind NAT')
  const shared = { observedAddress: '203.0.113.1' }
  t.equal(calls(['observed 203.0.113.1'], shared), true, 'seen under one address alone: milano before paris')
  t.equal(calls(['observed 203.0.113.1'], { ...later, ...shared }), false, 'zagreb after paris')
})

const STATUS = {
  node: 'gw',
  version: '1',
  driver: 'kernel',
  sessionMs: 180_000,
  nowMs: NOW,
  monotonicMs: 0,
  heardMs: () => undefined,
  conditions: [],
  failure: undefined,
} as const

const ADVICE =
  'give one gateway a public address, or forward UDP 4500 to it, and publish that address ' +
  '(annotation sealane.io/public-address of its Node, publicAddress in site.yaml), ' +
  'or let a member that both reach relay (sealane.io/relay, relay in site.yaml)'

t.test('ends that tell addresses of private networks alone', async (t) => {
  const doubt = (reported: readonly string[], own: string, interfaces: readonly string[] = [`${own}/24`]) => {
    const nodes = withAddresses(['InternalIP', own])
    const addresses = interfaces.map((address) => ({ device: 'eth0', address }))
    return planLanes(facing({ reported }, { nodes, addresses })).lanes[0]?.links[0]?.suspicion?.text
  }
  const rows: readonly (readonly [say: string, want: boolean, ...args: Parameters<typeof doubt>])[] = [
    ['two networks', true, ['private 10.0.0.2'], '192.168.7.11'],
    ['behind a carrier', true, ['private 100.64.0.2'], '172.31.7.11'],
    ['one network', false, ['private 192.168.7.12'], '192.168.7.11'],
    ['a network of another interface', false, ['private 10.0.0.2'], '192.168.7.11', ['192.168.7.11/24', '10.0.0.1/8']],
    ['this one is public', false, ['private 10.0.0.2'], '198.51.100.9'],
    ['the other one is', false, ['private 10.0.0.2', 'public 198.51.100.20'], '192.168.7.11'],
    ['it was seen as another', false, ['private 10.0.0.2', 'observed 203.0.113.9'], '192.168.7.11'],
    ['it tells none', false, [], '192.168.7.11'],
  ]
  const text = `both gateways publish only private addresses; if these do not reach each other: ${ADVICE}`
  for (const [say, want, ...args] of rows) t.equal(doubt(...args), want ? text : undefined, say)
})

t.test('what the status says of ends that cannot call each other', async (t) => {
  const said = (reported: readonly string[], facts: Partial<GatewayWorld> = {}): string => {
    const { lanes } = planLanes(facing({ reported }, facts))
    const init = { ...STATUS, laneStates: new Map() }
    const none = { health: new Map(), routed: new Set<string>() }
    return planStatus({ ...init, ...none, lanes }).status?.connections[0]?.message ?? ''
  }
  const hidden = { observedAddress: '203.0.113.1' }
  const trying =
    'no handshake yet: this gateway starts to send to UDP 10.0.0.2:4500 and receives nothing: open UDP 4500 at the other gateway ' +
    '(private address, candidate 1 of 2)'
  const waiting =
    'no handshake yet: this gateway has no address to send to, and nothing received: open UDP 4500 here, so that the remote gateway can connect ' +
    '(none of its addresses is reachable from here; it must connect to this gateway)'
  t.equal(
    said(['private 10.0.0.2', 'observed 203.0.113.9'], hidden),
    `${trying}; neither gateway is reachable from outside (observed address here 203.0.113.1, there 203.0.113.9): ${ADVICE}`,
  )
  const mapped = { ...hidden, mapped: parseAddressPort('203.0.113.1:4500') }
  t.equal(
    said(['private 10.0.0.2', 'observed 203.0.113.9'], mapped),
    `${trying}; neither gateway is reachable from outside (observed address here 203.0.113.1, there 203.0.113.9); a router is said to lead calls to the gateway here: ${ADVICE}`,
    'a claim takes no advice away',
  )
  t.equal(said(['private 192.0.2.10']), waiting)
  t.equal(
    said(['private 192.0.2.10'], hidden),
    `${waiting}; neither gateway is reachable from outside (observed address here 203.0.113.1): ${ADVICE}`,
  )
  t.notMatch(said(['private 10.0.0.2', 'public 198.51.100.20'], hidden), 'neither end')
  const long = { observedAddress: '203.0.113.1'.padEnd(2000, '1'), nodes: withAddresses() }
  t.equal(said(['observed 203.0.113.9'], long).length, 1024, 'never longer than the CRD takes')
  t.notMatch(said(['private 10.0.0.2', 'observed 203.0.113.9']), 'neither end')
})

t.test('which links are relayed is found without a look at all links for each of them', async (t) => {
  const relays = 4
  const links = Array.from({ length: 200 }, (_, i) => {
    const [one] = planLanes(facing({ reported: ['private 10.0.0.2'] })).lanes[0]?.links ?? []
    if (one === undefined) throw new Error('no link')
    return { ...one, cluster: `far${i}`, endpoint: `far${i}`, ...(i < relays ? { relays: true as const } : {}) }
  })
  const [lane] = planLanes(facing({ reported: ['private 10.0.0.2'] })).lanes
  if (lane === undefined) throw new Error('no lane')
  let looks = 0
  class Counting extends Map<string, LinkState> {
    override get(name: string): LinkState | undefined {
      looks += 1
      return super.get(name)
    }
  }
  const state = (at: string): LinkState => ({ at: parseAddressPort(at), carries: true, rxBytes: 0, txBytes: 0 })
  const states = new Counting(
    links.map((one, i) => [linkKey(one), state(i < relays ? `203.0.113.${i}:4500` : '203.0.113.2:4607')] as const),
  )
  const laneStates = new Map([[0, { identity: 'own', links: states }]])
  const lanes = [{ ...lane, links }]
  const { status } = planStatus({ ...STATUS, health: new Map(), lanes, laneStates, routed: new Set() })
  t.equal(status?.connections.at(relays)?.usingRelay, 'far2')
  t.equal(status?.connections[0]?.usingRelay, undefined)
  t.ok(looks <= 3 * links.length, `${looks} looks`)
})

t.test('the status lists few ways of a direct link, and not too many of all links', async (t) => {
  const reported = Array.from({ length: 10 }, (_, i) => `public 198.51.100.${i + 20}`)
  const [lane] = planLanes(facing({ reported })).lanes
  const [link] = lane?.links ?? []
  if (lane === undefined || link === undefined) throw new Error('no link')
  const listed = (count: number, at: string): readonly number[] => {
    const links = Array.from({ length: count }, (_, i) => ({ ...link, cluster: `far${i}`, endpoint: `far${i}` }))
    const state: LinkState = { at: parseAddressPort(at), carries: true, rxBytes: 0, txBytes: 0 }
    const keys = links.map(({ cluster }) => `0/${cluster}`)
    const health = { state: 'up', sinceMs: 0, held: false, figures: {} }
    const { status } = planStatus({
      ...{ ...STATUS, placesOf: () => new Map(), routed: new Set(keys) },
      health: new Map(keys.map((key) => [key, health as never])),
      lanes: [{ ...lane, links }],
      laneStates: new Map([[0, { identity: 'own', links: new Map(links.map((one) => [linkKey(one), state])) }]]),
    })
    return status?.connections.map(({ candidates = [] }) => candidates.length) ?? []
  }
  t.same(listed(1, '198.51.100.20:4500'), [4], 'direct')
  t.same(listed(1, '203.0.113.5:61000'), [9], 'through a NAT')
  const all = listed(100, '203.0.113.5:61000')
  t.equal(all.filter((count) => count > 0).length, 14, 'of the first links')
  t.ok(all.reduce((sum, one) => sum + one, 0) <= 128)
})

t.test('why a link has no better way', async (t) => {
  const { lanes } = planLanes(facing({ reported: ['private 10.0.0.2', 'public 198.51.100.20'] }))
  const [link] = lanes[0]?.links ?? []
  if (link === undefined) throw new Error('no link')
  const relayLink = { ...link, cluster: 'oslo', endpoint: 'oslo.gw-lane0', relays: true as const }
  const said = (at: string, why: 'searching' | 'bothDependent' | 'unanswered'): string => {
    const state = (text: string): LinkState => ({
      ...{ at: parseAddressPort(text), carries: true, rxBytes: 0, txBytes: 0 },
    })
    const states = new Map([
      [linkKey(link), state(at)],
      [linkKey(relayLink), state('203.0.113.1:4500')],
    ])
    const key = `0/${link.cluster}`
    const health = { state: 'up', sinceMs: 0, held: false, figures: {} }
    const { status } = planStatus({
      ...{ ...STATUS, whyRelayed: () => why, routed: new Set([key]), health: new Map([[key, health as never]]) },
      lanes: lanes.map((lane) => ({ ...lane, links: [link, relayLink] })),
      laneStates: new Map([[0, { identity: 'own', links: states }]]),
    })
    return status?.connections[0]?.message ?? 'none'
  }
  const [relay, web] = ['203.0.113.1:4607', '127.0.0.1:9000']
  t.equal(said(relay, 'searching'), '')
  t.match(said(relay, 'bothDependent'), 'BothNatsVary')
  t.match(said(relay, 'unanswered'), 'PunchUnanswered')
  t.match(said(web, 'unanswered'), 'UdpUnanswered')
  t.equal(said('198.51.100.20:4500', 'unanswered'), '', 'it has the best way')
})

t.test('a far end at the address that the broker saw is behind NAT, also with the same port', async (t) => {
  const { lanes } = planLanes(facing({ reported: ['private 10.0.0.2', 'observed 203.0.113.9'] }))
  const nat = (text: string): boolean | undefined => {
    const link: LinkState = { at: parseAddressPort(text), carries: true, rxBytes: 0, txBytes: 0 }
    const links = new Map(lanes[0]?.links.map((one) => [linkKey(one), link]))
    const laneStates = new Map([[0, { identity: 'own', links }]])
    const status = planStatus({ ...STATUS, health: new Map(), lanes, laneStates, routed: new Set() }).status
    return status?.connections[0]?.usingNat
  }
  t.equal(nat('203.0.113.9:4500'), true)
  t.equal(nat('203.0.113.9:61000'), true)
  t.equal(nat('10.0.0.2:4500'), false)
})
