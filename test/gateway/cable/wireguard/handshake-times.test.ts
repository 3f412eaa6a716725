/** The age of a handshake, whatever happens to the wall clock. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { HandshakeTimes, WireguardCable, laneStateOf } from '../../../../gateway/cable/wireguard/wireguard-cable.ts'
import { wireguardRules } from '../../../../gateway/cable/wireguard/plan-device.ts'
import { handedOverHealth } from '../../../../gateway/health/carrying-links.ts'
import { FakeRouteTable } from '../../../../kernel/fake/fake-route-table.ts'
import { FakeSysctl } from '../../../../kernel/fake/fake-sysctl.ts'
import { FakeWireguard } from '../../../../kernel/fake/fake-wireguard.ts'
import type { DeviceState } from '../../../../kernel/wireguard/wireguard-device.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { connectionTo, gatewayObject } from '../../../support/objects/node-objects.ts'
import { NOW, UPTIME, endpoint, farEndOf, key, peerState } from '../../support/worlds.ts'

const PARIS = key('paris0')
const HOUR = 3_600_000

function device(lastHandshakeMs?: number): DeviceState {
  const facts = { endpoint: '198.51.100.20:4500', ...(lastHandshakeMs === undefined ? {} : { lastHandshakeMs }) }
  return { name: 'sealane0', publicKey: key('own'), listenPort: 4500, peers: [peerState(PARIS, facts)] }
}

type KernelLook = readonly [
  say: string,
  atS: number,
  wallS: number,
  handshakeS: number | undefined,
  ageS: number | undefined,
]

/** In seconds: the monotonic clock, the wall clock, the date of the handshake, and the expected age. */
const STORIES: readonly (readonly KernelLook[])[] = [
  [
    ['there is none', 0, 0, undefined, undefined],
    ['it came since', 2, 2, 1, 1],
    ['and grows old', 60, 60, 1, 59],
    ['the wall clock goes forward', 62, 3662, 1, 61],
    ['and back', 64, -3536, 1, 63],
    ['another, dated by the clock that was set back', 66, -3534, -3535, 1],
    ['set forward again: the next one is no older than the last look', 68, 3668, -3000, 2],
    ['the next one is of the future, as far as can be seen', 70, -3530, 5, 0],
  ],
  [
    ['of before the first look', 0, 0, -40, 40],
    ['the same', 5, 5, -40, 45],
  ],
  [
    ['of before the first look, and of the future: of just now', 0, 0, 3600, 0],
    ['the same', 5, 5, 3600, 5],
  ],
]

t.test('stories', async (t) => {
  for (const looks of STORIES) {
    const times = new HandshakeTimes()
    for (const [say, atS, wallS, handshakeS, ageS] of looks) {
      const monotonicMs = UPTIME + atS * 1000
      const state = device(handshakeS === undefined ? undefined : NOW + handshakeS * 1000)
      const atMs = times.look([state], { nowMs: NOW + wallS * 1000, monotonicMs }).get(PARIS)
      t.equal(atMs === undefined ? undefined : (monotonicMs - atMs) / 1000, ageS, say)
    }
  }
})

t.test('a peer that was made anew has no handshake, and its next one is new', async (t) => {
  const times = new HandshakeTimes()
  const look = (atMs: number, lastHandshakeMs?: number) =>
    times.look([device(lastHandshakeMs)], { nowMs: NOW + atMs, monotonicMs: UPTIME + atMs }).get(PARIS)
  t.equal(look(0, NOW - 5000), UPTIME - 5000)
  t.equal(look(1000), undefined)
  t.equal(look(2000, NOW + 1500), UPTIME + 1500)
})

t.test('no jump of the wall clock makes a handshake older or younger than the looks allow', async (t) => {
  const step = fc.record({
    passMs: fc.integer({ min: 1, max: 60_000 }),
    jumpMs: fc.constantFrom(0, 0, 0, HOUR, -HOUR, 30_000, -30_000, 400 * 24 * HOUR),
    shakes: fc.boolean(),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const times = new HandshakeTimes()
      let [monotonicMs, nowMs] = [UPTIME, NOW]
      let shaken: { readonly dated: number; readonly atMs: number; readonly lookedMs: number } | undefined
      times.look([device()], { nowMs, monotonicMs })
      for (const { passMs, jumpMs, shakes } of steps) {
        const lookedMs = monotonicMs
        if (shakes) shaken = { dated: nowMs + 1, atMs: monotonicMs + 1, lookedMs }
        monotonicMs += passMs
        nowMs += passMs + jumpMs
        const atMs = times.look([device(shaken?.dated)], { nowMs, monotonicMs }).get(PARIS)
        assert.equal(atMs === undefined, shaken === undefined)
        if (atMs === undefined || shaken === undefined) continue
        assert.ok(atMs >= shaken.lookedMs && atMs <= monotonicMs, `${atMs - shaken.atMs} ms off`)
        if (shakes && jumpMs === 0) assert.equal(atMs, shaken.atMs, 'and it is right where nothing jumped')
      }
    }),
    // Two handshakes with the same date cannot be told apart, but no wall clock is set back so exactly.
    { numRuns: 300 },
  )
  t.pass()
})

t.test('a reading of some devices leaves the handshakes of the others as old as they are', async (t) => {
  const [clock, routes] = [new FakeClock(), new FakeRouteTable()]
  const wireguard = new FakeWireguard({ routes })
  const state = device(clock.now() - 100_000)
  wireguard.read = (name) => Promise.resolve(name === 'sealane0' ? state : { ...state, name, peers: [] })
  const cable = new WireguardCable({ clock, routes, wireguard, sysctl: new FakeSysctl() }, { stateDir: '/nowhere' })
  const ends = [{ ...farEndOf(endpoint('paris', 'gw', 0, [], PARIS)), identity: PARIS }]
  const observe = async (lanes: readonly number[]) => {
    const states = await cable.observe(lanes, ends, new AbortController().signal)
    return [...(states.get(0)?.links.values() ?? [])][0]?.handshakeMs
  }
  const first = await observe([0, 1])
  t.type(first, 'number')
  await clock.advance(5000)
  t.equal(await observe([1]), undefined)
  await clock.advance(5000)
  t.equal(await observe([0, 1]), first)
})

t.test('what a restart takes over', async (t) => {
  const connections = [connectionTo('paris', 'up', { endpoint: 'paris.gw-lane0' })]
  const gateway = gatewayObject('gw', { up: '1/1', conditions: [], connections })
  const taken = (lastHandshakeMs?: number, lane = 0): boolean => {
    const seen = device(lastHandshakeMs)
    const monotonicMs = 200
    const handshakes = new HandshakeTimes().look([seen], { nowMs: NOW, monotonicMs })
    const endpoints = [endpoint('paris', 'gw', 0, ['public 198.51.100.20:4500'])]
    const laneStates = new Map([[0, laneStateOf(seen, endpoints.map(farEndOf), handshakes)]])
    return (
      handedOverHealth({ monotonicMs, gateway, lanes: [{ lane }], endpoints, laneStates, rules: wireguardRules }).size >
      0
    )
  }
  t.equal(taken(NOW - 100_000), true, 'the session counts')
  t.equal(taken(NOW - 100_000, 1), false, 'this node has another number, and so another key')
  t.equal(taken(NOW - 181_000), false, 'it does not')
  t.equal(taken(), false, 'the device was made anew')
  t.equal(taken(NOW + HOUR), true, 'the wall clock was set back: nothing speaks against the session')
})
