/** Whole plans as text, as a dry run prints them. */
import t from 'tap'
import { podSideAddress } from '../../gateway/lanes/plan-lane-routes.ts'
import { formatNft } from '../../kernel/nft/nft-text.ts'
import type { DeviceState } from '../../kernel/wireguard/wireguard-device.ts'
import type { GatewayWorld } from '../../gateway/world/gateway-world.ts'
import { messageOf } from '../support/failure.ts'
import { equalsGolden } from '../support/golden.ts'
import { describeGatewayPlan, planGateway } from './support/wireguard-plans.ts'
import {
  DUAL_MILANO,
  DUAL_PARIS,
  NOW,
  UPTIME,
  type WorldFacts,
  cluster,
  endpoint,
  key,
  node,
  peerState,
  world,
} from './support/worlds.ts'

const OWN = cluster('milano', 1, '10.42.0.0/16', '244.0.0.0/16')
const PARIS = cluster('paris', 2, '10.42.0.0/16', '244.1.0.0/16')
const TOKYO = cluster('tokyo', 3, '10.42.0.0/16', '244.2.0.0/16')
const PARIS_GW = endpoint('paris', 'gw', 0, ['public 198.51.100.20:4500', 'private 10.0.0.2:4500'])
const TOKYO_GW = endpoint('tokyo', 'gw', 0, [])

const device = (peers: DeviceState['peers']): DeviceState => ({
  name: 'sealane0',
  publicKey: key('own'),
  listenPort: 4500,
  peers,
})

const overlapping = (facts: WorldFacts = {}): GatewayWorld =>
  world({ own: OWN, clusters: [OWN, PARIS, TOKYO], endpoints: [PARIS_GW, TOKYO_GW], ...facts })

t.test('three overlapping sites, nothing heard yet', async (t) => {
  equalsGolden(t, describeGatewayPlan(overlapping()), 'gateway/overlapping-start.txt')
})

t.test('paris answers; tokyo called from behind NAT', async (t) => {
  const facts: WorldFacts = {
    devices: new Map([
      [
        0,
        device([
          peerState(PARIS_GW.spec.publicKey, { endpoint: '198.51.100.20:4500', lastHandshakeMs: NOW - 30_000 }),
          peerState(TOKYO_GW.spec.publicKey, { endpoint: '203.0.113.77:61234', lastHandshakeMs: NOW - 1000 }),
        ]),
      ],
    ]),
    pathMtu: new Map([
      ['198.51.100.20', 1500],
      ['203.0.113.77', 1400],
    ]),
    health: new Map([
      ['0/paris', { state: 'up', sinceMs: UPTIME - 60_000 }],
      ['0/tokyo', { state: 'up', sinceMs: UPTIME - 900 }],
    ]),
  }
  equalsGolden(t, describeGatewayPlan(overlapping(facts)), 'gateway/overlapping-up.txt')
})

t.test('two remote lanes: prefixes over both devices, over one when the link of the other is down', async (t) => {
  const two: Partial<GatewayWorld> = {
    lanes: [{ lane: 0, port: 4500 }],
    clusters: [OWN, PARIS],
    endpoints: [PARIS_GW, endpoint('paris', 'gw2', 1, ['public 198.51.100.21:4501'])],
  }
  const health = (lane0: 'up' | 'down', lane1: 'up' | 'down'): GatewayWorld['health'] =>
    new Map([
      ['0/paris', { state: lane0, sinceMs: UPTIME - 6000 }],
      ['1/paris', { state: lane1, sinceMs: UPTIME - 6000 }],
    ])
  equalsGolden(t, describeGatewayPlan(overlapping({ ...two, health: health('up', 'up') })), 'gateway/two-lanes.txt')
  const routes = (w: GatewayWorld): string[] =>
    planGateway(w)
      .routes.routes.filter((r) => r.destination.startsWith('244'))
      .map((r) => r.nextHops.map((h) => h.device).join('+'))
  t.strictSame(routes(overlapping({ ...two, health: health('up', 'down') })), ['sealane0'])
  t.strictSame(routes(overlapping({ ...two, health: health('down', 'up') })), ['sealane1'])
  t.strictSame(routes(overlapping({ ...two, health: health('down', 'down') })), [])
})

t.test('the MTU of a lane follows the addresses in use, not those that are only tried', async (t) => {
  const pathMtu = new Map([
    ['198.51.100.20', 1500],
    ['10.0.0.2', 1300],
    ['203.0.113.77', 1400],
  ])
  const mtu = (parisSeconds: number, tokyoUp: boolean): number | undefined => {
    const tokyo = peerState(TOKYO_GW.spec.publicKey, { endpoint: '203.0.113.77:61234', lastHandshakeMs: NOW - 1000 })
    const facts: WorldFacts = {
      ...(tokyoUp ? {} : { endpoints: [PARIS_GW] }),
      devices: new Map([[0, device(tokyoUp ? [tokyo] : [])]]),
      pathMtu,
      health: new Map([
        ['0/paris', { state: 'connecting', sinceMs: UPTIME - parisSeconds * 1000 }],
        ['0/tokyo', { state: 'up', sinceMs: UPTIME - 9000 }],
      ]),
    }
    return planGateway(overlapping(facts)).lanes.lanes[0]?.mtu
  }
  t.equal(mtu(0, true), 1340, 'first candidate tried')
  t.equal(mtu(1, true), 1340, 'second candidate tried')
  t.equal(mtu(0, false), 1440, 'nothing in use: the one that is tried')
  t.equal(mtu(1, false), 1240)
})

t.test('the nft table', async (t) => {
  const flat = cluster('milano', 1, '10.10.0.0/16')
  const rows: [file: string, world: GatewayWorld][] = [
    ['translated.nft', overlapping()],
    ['alone.nft', world({ own: OWN })],
    [
      'flat.nft',
      world({ own: flat, clusters: [flat, cluster('paris', 2, '10.20.0.0/16')], endpoints: [PARIS_GW], nodes: [] }),
    ],
    [
      'two-prefixes.nft',
      overlapping({
        own: cluster('milano', 1, ['10.42.0.0/16', '10.99.32.0/20'], ['244.0.0.0/16', '244.9.16.0/20']),
        endpoints: [PARIS_GW, endpoint('paris', 'gw3', 3, [])],
      }),
    ],
    ['no-lanes.nft', overlapping({ lanes: [] })],
  ]
  for (const [file, w] of rows) {
    const { nft, nft6 } = planGateway(w)
    equalsGolden(t, formatNft(nft, 'ip'), `gateway/${file}`)
    t.strictSame(nft6, [], `${file}: nothing of IPv6`)
  }
})

t.test('calls of pods whose node is not known are tracked where all answers come by this node', async (t) => {
  const passing = (facts: WorldFacts): string[] =>
    [...formatNft(planGateway(overlapping(facts)).nft, 'ip').matchAll(/iifname sealane-vx (.*) notrack/g)].map(
      ([, match = '']) => match,
    )
  const remotes = 'ip daddr { 244.1.0.0/16, 244.2.0.0/16 }'
  t.strictSame(passing({ isOnlyGateway: true }), [`ip saddr @elsewhere ${remotes}`], 'one gateway')
  t.strictSame(passing({}), [remotes], 'several: nothing of other nodes is tracked')
})

const UP: GatewayWorld['health'] = new Map([
  ['0/paris', { state: 'up', sinceMs: UPTIME - 6000 }],
  ['1/paris', { state: 'up', sinceMs: UPTIME - 6000 }],
])

/** Milano and paris are dual-stack, tokyo is not. */
const dual = (facts: WorldFacts = {}): GatewayWorld =>
  overlapping({
    own: DUAL_MILANO,
    clusters: [DUAL_MILANO, DUAL_PARIS, TOKYO],
    nodes: [
      node('gw', '192.0.2.10', '10.42.0.0/24', 'fd42:1::/64'),
      node('worker', '192.0.2.11', '10.42.1.0/24', 'fd42:1:0:1::/64'),
    ],
    addresses: [
      { device: 'eth0', address: '192.0.2.10/24' },
      { device: 'eth0', address: '2001:db8:5::10/64' },
      { device: 'eth0', address: 'fe80::5054:ff:fe00:1/64' },
      { device: 'cni0', address: '10.42.0.1/24' },
      { device: 'cni0', address: 'fd42:1::1/64' },
    ],
    health: UP,
    ...facts,
  })

const TWO_LANES: Partial<GatewayWorld> = {
  endpoints: [PARIS_GW, TOKYO_GW, endpoint('paris', 'gw2', 1, ['public 198.51.100.21:4501'])],
}

t.test('dual-stack', async (t) => {
  equalsGolden(t, describeGatewayPlan(dual()), 'gateway/dual-stack.txt')
  equalsGolden(t, describeGatewayPlan(dual(TWO_LANES)), 'gateway/dual-stack-two-lanes.txt')
  const rows: [file: string, world: GatewayWorld][] = [
    ['dual-stack.nft', dual(TWO_LANES)],
    ['dual-stack-alone.nft', dual({ clusters: [DUAL_MILANO], endpoints: [] })],
    ['dual-stack-closed.nft', dual({ clusters: [DUAL_MILANO], endpoints: [], exposure: 'exports' })],
  ]
  for (const [file, w] of rows) {
    const { nft, nft6 } = planGateway(w)
    equalsGolden(t, formatNft(nft, 'ip') + formatNft(nft6, 'ip6'), `gateway/${file}`)
  }
})

t.test('IPv6 of others is nothing to a cluster without, and IPv4 is planned as if there were none', async (t) => {
  const others = [OWN, DUAL_PARIS, TOKYO]
  t.equal(
    describeGatewayPlan(overlapping({ clusters: others, health: UP })),
    describeGatewayPlan(overlapping({ health: UP })),
  )
  const { nft } = planGateway(dual())
  t.equal(formatNft(nft, 'ip'), formatNft(planGateway(dual({ own: OWN, clusters: others })).nft, 'ip'))
})

t.test('without a lane there is no IPv6 in the plan', async (t) => {
  const { routes, nft6 } = planGateway(dual({ lanes: [] }))
  t.strictSame(
    routes.rules.map((rule) => rule.family),
    [undefined],
  )
  t.strictSame(nft6, [])
})

t.test('a lane that is too narrow for IPv6 carries IPv4 alone', async (t) => {
  const over = (pathMtu: number): string[] => {
    const facts = { ...TWO_LANES, pathMtu: new Map([['198.51.100.21', pathMtu]]) }
    const route = planGateway(dual(facts)).routes.routes.find(({ destination }) => destination === 'fd42:2::/48')
    return route?.nextHops.map(({ device, via }) => `${via ?? ''} ${device}`) ?? []
  }
  t.strictSame(over(1340), ['fe80::1 sealane0', 'fe80::1 sealane1'], 'an MTU of 1280')
  t.strictSame(over(1339), [' sealane0'], 'an MTU of 1279')
})

t.test('pod CIDRs that are called by their own name are not rewritten', async (t) => {
  const mixed = cluster('milano', 1, ['10.42.0.0/16', '10.99.0.0/16'], ['244.0.0.0/16', '10.99.0.0/16'])
  const text = formatNft(planGateway(overlapping({ own: mixed, clusters: [mixed, PARIS] })).nft, 'ip')
  t.match(text, 'ip daddr != { 244.0.0.0/16, 10.99.0.0/16, 246.0.1.0 }')
  t.strictSame(
    [...text.matchAll(/ip (?:saddr|daddr) \S+ ip (?:saddr|daddr) set .*/g)].map(([rule]) => rule),
    [
      'ip daddr 244.0.0.0/16 ip daddr set ip daddr & 0.0.255.255 | 10.42.0.0',
      'ip saddr 10.42.0.0/16 ip saddr set ip saddr & 0.0.255.255 | 244.0.0.0',
    ],
  )
  const moved = cluster('milano', 1, ['10.42.0.0/16', 'fd42:1::/48'], ['244.0.0.0/16', 'fd42:9::/48'])
  t.equal(
    await messageOf(() => planGateway(dual({ own: moved, clusters: [moved] }))),
    'globalCIDRs[1] "fd42:9::/48": expected podCIDRs[1] itself, fd42:1::/48: IPv6 is not translated',
  )
})

t.test('the node sends from an address of its pods, in each family', async (t) => {
  const w = dual()
  t.equal(podSideAddress(w, 4), '10.42.0.1')
  t.equal(podSideAddress(w, 6), 'fd42:1::1')
  const elsewhere = { ...w, addresses: [...w.addresses.slice(0, 4), { device: 'cni0', address: 'fd42:1:0:7::1/64' }] }
  t.equal(podSideAddress(elsewhere, 6), 'fd42:1:0:7::1', 'outside its own range, inside the cluster')
  t.equal(podSideAddress({ ...w, addresses: w.addresses.slice(0, 4) }, 6), undefined)
  const flannel = { device: 'flannel-v6.1', address: 'fd42:1::/128' }
  t.equal(podSideAddress({ ...w, addresses: [flannel, ...w.addresses] }, 6), 'fd42:1::1', 'not what all routers have')
  t.equal(podSideAddress({ ...w, addresses: [flannel] }, 6), 'fd42:1::', 'unless there is no other')
})
