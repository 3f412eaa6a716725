/** How often an end sends a keepalive, by what is known of the NAT in front of it. */
import fc from 'fast-check'
import t from 'tap'
import { keepaliveSeconds } from '../../../gateway/cable/plan-keepalive.ts'
import { planDevice } from '../../../gateway/cable/wireguard/plan-device.ts'
import { planLanes } from '../support/wireguard-plans.ts'
import { cluster, endpoint, world } from '../support/worlds.ts'

t.test('by the NAT, and by the far end', async (t) => {
  const rows = [
    ['no NAT', { behindNat: false }, 25],
    ['a NAT that was not measured', { behindNat: true }, 10],
    ['one that forgets within 10 s', { behindNat: true, natLifeSeconds: 0 }, 5],
    ['one that keeps for 10 s', { behindNat: true, natLifeSeconds: 10 }, 10],
    ['one that keeps for 30 s', { behindNat: true, natLifeSeconds: 30, farIsPublic: true }, 20],
    ['one that keeps for 120 s', { behindNat: true, natLifeSeconds: 120, farIsPublic: true }, 20],
    ['the far end may be behind NAT, too', { behindNat: true, natLifeSeconds: 120 }, 10],
    ['and this one forgets', { behindNat: true, natLifeSeconds: 0 }, 5],
    ['one that keeps for 10 s, and a public far end', { behindNat: true, natLifeSeconds: 10, farIsPublic: true }, 10],
    ['no NAT, and a public far end', { behindNat: false, farIsPublic: true }, 25],
  ] as const
  for (const [say, init, want] of rows) t.equal(keepaliveSeconds(init), want, say)
})

t.test('whatever was measured, far ends hear often enough, and not too often', async (t) => {
  fc.assert(
    fc.property(
      fc.boolean(),
      fc.integer({ min: 0, max: 1000 }),
      fc.boolean(),
      (behindNat, natLifeSeconds, farIsPublic) => {
        const seconds = keepaliveSeconds({ behindNat, natLifeSeconds, farIsPublic })
        t.ok(seconds >= 5 && seconds <= 25)
        if (behindNat && natLifeSeconds >= 10) t.ok(seconds <= natLifeSeconds)
      },
    ),
    { numRuns: 100 },
  )
})

t.test('a plan sets it for each far end, by what the world knows', async (t) => {
  const own = cluster('milano', 1, '10.1.0.0/16')
  const clusters = [own, cluster('paris', 2, '10.2.0.0/16'), cluster('oslo', 3, '10.3.0.0/16')]
  const endpoints = [
    endpoint('paris', 'gw', 0, ['public 203.0.113.20:4500']),
    endpoint('oslo', 'gw', 0, ['private 192.168.1.2:4500', 'observed 203.0.113.30:4500']),
  ]
  const of = (facts: object): Record<string, number | undefined> => {
    const [lane] = planLanes(world({ own, clusters, endpoints, ...facts })).lanes
    if (lane === undefined) throw new Error('no lane')
    const { peers } = planDevice(lane).config
    return Object.fromEntries(lane.links.map(({ cluster: far }, i) => [far, peers[i]?.keepaliveSeconds]))
  }
  const observedAddress = '198.51.100.1'
  t.strictSame(of({}), { paris: 25, oslo: 25 })
  t.strictSame(of({ observedAddress }), { paris: 10, oslo: 10 }, 'no relay has measured')
  t.strictSame(of({ observedAddress, natLifeSeconds: 60 }), { paris: 20, oslo: 10 })
  t.strictSame(of({ observedAddress, natLifeSeconds: 0 }), { paris: 5, oslo: 5 })
  t.strictSame(of({ natLifeSeconds: 0 }), { paris: 5, oslo: 5 }, 'others claim the address outside')
})

t.test('a far end that may send every 10 s itself gets one every 10 s', async (t) => {
  const own = cluster('milano', 1, '10.1.0.0/16')
  const rows: readonly (readonly [
    say: string,
    candidates: readonly string[],
    seconds: number,
    capabilities?: string[],
  ])[] = [
    ['public alone', ['public 203.0.113.20:4500', 'private 203.0.113.21:4500'], 20],
    ['a port of its NAT leads to it', ['public 203.0.113.20:4500', 'private 192.168.1.2:4500'], 10],
    ['a router maps its port', ['public 203.0.113.20:4500'], 10, ['wireguard', 'port-mapped']],
    ['seen from outside', ['public 203.0.113.20:4500', 'observed 203.0.113.30:4500'], 10],
    ['in a private network', ['private 192.168.1.2:4500'], 10],
  ]
  for (const [say, candidates, seconds, capabilities] of rows) {
    const far = endpoint('paris', 'gw', 0, [...candidates])
    const endpoints = [capabilities === undefined ? far : { ...far, spec: { ...far.spec, capabilities } }]
    const facts = { observedAddress: '198.51.100.1', natLifeSeconds: 60 }
    const [lane] = planLanes(
      world({ own, clusters: [own, cluster('paris', 2, '10.2.0.0/16')], endpoints, ...facts }),
    ).lanes
    t.equal(lane === undefined ? 0 : planDevice(lane).config.peers[0]?.keepaliveSeconds, seconds, say)
  }
})
