/** Keys that others announce: whose they may be, and which identity a far end is matched by. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import type { PeerState } from '../../../kernel/wireguard/wireguard-device.ts'
import type { Endpoint } from '../../../model/objects.ts'
import type { PeerHealthView } from '../../../gateway/world/gateway-world.ts'
import { planLanes } from '../support/wireguard-plans.ts'
import { UPTIME, cluster, endpoint, key, world } from '../support/worlds.ts'

const MILANO = cluster('milano', 1, '10.42.0.0/16', '244.0.0.0/16')
const PARIS = cluster('paris', 2, '10.42.0.0/16', '244.1.0.0/16')
const TOKYO = cluster('tokyo', 3, '10.50.0.0/16')
const CLUSTERS = [MILANO, PARIS, TOKYO]
const AT = ['public 198.51.100.20:4500']

function announcing(one: Endpoint, nextPublicKey: string): Endpoint {
  return { ...one, spec: { ...one.spec, nextPublicKey } }
}

const paris = (next?: string): Endpoint => {
  const one = endpoint('paris', 'gw', 0, AT, key('paris'))
  return next === undefined ? one : announcing(one, next)
}
const tokyo = (next?: string): Endpoint => {
  const one = endpoint('tokyo', 'gw', 0, AT, key('tokyo'))
  return next === undefined ? one : announcing(one, next)
}

function planned(endpoints: readonly Endpoint[], peers: readonly PeerState[] = [], health?: PeerHealthView) {
  const devices = new Map([[0, { name: 'sealane0', publicKey: key('own'), listenPort: 4500, peers }]])
  const states = health === undefined ? {} : { health: new Map([['0/paris', health]]) }
  return planLanes(world({ own: MILANO, clusters: CLUSTERS, endpoints, devices, ...states }))
}

const refusals = (plan: ReturnType<typeof planned>): string[] =>
  plan.refusals.map(({ subject, reason, message }) => `${subject}: ${reason}: ${message}`)

t.test("what is announced must be nobody else's; the link stays", async (t) => {
  const rows: [say: string, endpoints: readonly Endpoint[], want: string[]][] = [
    ['a key of its own', [paris(key('next')), tokyo()], []],
    ['its own present one', [paris(key('paris')), tokyo()], []],
    ['no key at all', [paris('short'), tokyo()], []],
    [
      'that of a third',
      [paris(key('tokyo')), tokyo()],
      ['Endpoint paris.gw-lane0: PublicKeyTaken: nextPublicKey is already the key of Endpoint tokyo.gw-lane0'],
    ],
    [
      'that of this node',
      [paris(key('own')), tokyo()],
      ['Endpoint paris.gw-lane0: PublicKeyTaken: nextPublicKey is already the key of this node'],
    ],
    [
      'what another has announced',
      [paris(key('next')), tokyo(key('next'))],
      ['Endpoint tokyo.gw-lane0: PublicKeyTaken: nextPublicKey is already the key of Endpoint paris.gw-lane0'],
    ],
  ]
  for (const [say, endpoints, want] of rows) {
    const plan = planned(endpoints)
    t.strictSame(refusals(plan), want, say)
    const links = plan.lanes.flatMap((lane) => lane.links.map(({ identity }) => identity))
    t.strictSame(links, [key('paris'), key('tokyo')], `${say}: links`)
  }
})

const peer = (publicKey: string, carries: boolean, shook = false): PeerState => ({
  publicKey,
  allowedIps: carries ? ['244.1.0.0/16'] : [],
  keepaliveSeconds: 25,
  rxBytes: 0,
  txBytes: 0,
  ...(shook ? { lastHandshakeMs: UPTIME } : {}),
})

t.test('as which one a far end is known', async (t) => {
  const up: PeerHealthView = { state: 'up', sinceMs: UPTIME }
  const suspected = { ...up, suspected: true }
  const [old, next] = [key('paris'), key('next')]
  const rows: [say: string, peers: readonly PeerState[], health: PeerHealthView, links: string[], called: string[]][] =
    [
      ['it answers', [peer(old, true, true)], up, [old], []],
      ['it was followed', [peer(next, true, true)], up, [next], []],
      ['it is silent: perhaps it has changed', [peer(old, true, true)], suspected, [old], [next]],
      ['it has', [peer(old, true, true), peer(next, false, true)], suspected, [next], []],
      ['it has not', [peer(old, true, true), peer(next, false)], suspected, [old], [next]],
      ['followed, and silent', [peer(next, true, true)], suspected, [next], [old]],
      ['down', [peer(old, true, true)], { state: 'down', sinceMs: UPTIME }, [old], [next]],
    ]
  for (const [say, peers, health, links, called] of rows) {
    const plan = planned([paris(next)], peers, health)
    const of = (which: 'links' | 'successors') => plan.lanes.flatMap((lane) => lane[which].map((one) => one.identity))
    t.strictSame(of('links'), links, say)
    t.strictSame(of('successors'), called, `${say}: called beside it`)
  }
})

t.test('whatever a member announces, the links of the others are as if it announced nothing', async () => {
  const keys = ['own', 'tokyo', 'tokyo next', 'paris', 'another'].map(key)
  const carried = fc.constantFrom(key('tokyo'), key('tokyo next'))
  const text = fc.oneof(fc.constantFrom(...keys), fc.string())
  fc.assert(
    fc.property(text, carried, fc.boolean(), (next, carries, shook) => {
      const others = (announced: Endpoint) => {
        const state = { ...peer(carries, true, shook), allowedIps: ['10.50.0.0/16'] }
        const plan = planned(
          [announced, endpoint('zurich', 'gw', 0, AT, key('zurich')), tokyo(key('tokyo next'))],
          [state],
        )
        return plan.lanes.flatMap(({ links, successors }) =>
          [links, successors].map((list) =>
            list
              .filter(({ cluster: id }) => id === 'tokyo')
              .map(({ identity, endpoint: name }) => `${name} ${identity}`),
          ),
        )
      }
      // Tokyo sorts first: when two clusters announce the same key, only the broker knows which was earlier.
      if (next === key('tokyo next')) return
      assert.deepEqual(others(paris(next)), others(paris()))
    }),
  )
})
