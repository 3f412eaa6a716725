/** Whole plans as text: what a dry run prints. */
import t from 'tap'
import { describeGatewayPlan } from '../../gateway/describe-plan.ts'
import { planGateway } from '../../gateway/plan-gateway.ts'
import { formatNft } from '../../kernel/format-nft.ts'
import type { DeviceState } from '../../kernel/wireguard.ts'
import type { GatewayWorld } from '../../gateway/world.ts'
import { equalsGolden } from './support/golden.ts'
import { NOW, UPTIME, cluster, endpoint, key, peerState, world } from './support/worlds.ts'

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

const overlapping = (facts: Partial<GatewayWorld> = {}): GatewayWorld =>
  world({ own: OWN, clusters: [OWN, PARIS, TOKYO], endpoints: [PARIS_GW, TOKYO_GW], ...facts })

t.test('three overlapping sites, nothing heard yet', async (t) => {
  equalsGolden(t, describeGatewayPlan(overlapping()), 'overlapping-start.txt')
})

t.test('paris answers; tokyo called from behind NAT', async (t) => {
  const facts: Partial<GatewayWorld> = {
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
  equalsGolden(t, describeGatewayPlan(overlapping(facts)), 'overlapping-up.txt')
})

t.test('two lanes: prefixes over both, over one when the other is down', async (t) => {
  const two: Partial<GatewayWorld> = {
    lanes: [
      { lane: 0, port: 4500 },
      { lane: 1, port: 4501 },
    ],
    clusters: [OWN, PARIS],
    endpoints: [PARIS_GW, endpoint('paris', 'gw2', 1, ['public 198.51.100.21:4501'])],
  }
  const health = (lane0: 'up' | 'down', lane1: 'up' | 'down'): GatewayWorld['health'] =>
    new Map([
      ['0/paris', { state: lane0, sinceMs: UPTIME - 6000 }],
      ['1/paris', { state: lane1, sinceMs: UPTIME - 6000 }],
    ])
  equalsGolden(t, describeGatewayPlan(overlapping({ ...two, health: health('up', 'up') })), 'two-lanes.txt')
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
    const facts: Partial<GatewayWorld> = {
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
        lanes: [
          { lane: 0, port: 4500 },
          { lane: 3, port: 4503 },
        ],
      }),
    ],
    ['no-lanes.nft', overlapping({ lanes: [] })],
  ]
  for (const [file, w] of rows) equalsGolden(t, formatNft(planGateway(w).nft), file)
})
