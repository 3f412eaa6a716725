/** A link between two NATs comes back, whatever NATs, relays and the network between them do. */
import { randomBytes } from 'node:crypto'
import t, { type Test } from 'tap'
import { PROBES_TO_ADDRESS } from '../../../../gateway/reach/punch/punch.ts'
import { ADDRESS, type NatKind, OPEN, PORT, SYMMETRIC } from '../../support/fake-nat.ts'
import { ReachWorld } from '../../support/reach-world.ts'

/** A link has its rung after this time, whatever has happened. */
const SETTLED_MS = 10_000
/** How often a NAT takes another port. */
const TIMES = 6

const PAIRS: Readonly<Record<string, readonly [NatKind, NatKind]>> = {
  'any sender, known ports': [OPEN, PORT],
  'known addresses, symmetric': [ADDRESS, SYMMETRIC],
  'known ports twice': [PORT, PORT],
  'symmetric twice': [SYMMETRIC, SYMMETRIC],
}

async function linked(t: Test, kinds: readonly [NatKind, NatKind], relays = 2): Promise<ReachWorld> {
  const world = new ReachWorld(kinds, relays)
  t.teardown(() => world.close())
  await world.begin()
  t.ok((await world.untilPasses(SETTLED_MS)) <= SETTLED_MS, 'linked')
  await world.run(5000)
  t.ok(world.passes(), 'with the rung that it keeps')
  return world
}

t.test('NATs restart, and ends move', async (t) => {
  const faults: Readonly<Record<string, (world: ReachWorld) => void>> = {
    'one NAT restarts': ({ ends: [one] }) => one.nat.restart(),
    'both NATs restart': ({ ends }) => ends.forEach(({ nat }) => nat.restart()),
    'one end moves': ({ ends: [one] }) => one.nat.restart('198.51.100.77'),
    'both ends move at once': ({ ends: [one, other] }) => {
      one.nat.restart('198.51.100.78')
      other.nat.restart('192.0.2.78')
    },
  }
  for (const [pair, kinds] of Object.entries(PAIRS)) {
    const world = await linked(t, kinds)
    for (const [fault, act] of Object.entries(faults)) {
      act(world)
      t.notOk(world.passes(), `${pair}, ${fault}: nothing passes at first`)
      const ms = await world.untilPasses(SETTLED_MS)
      t.ok(ms <= SETTLED_MS, `${pair}, ${fault}: ${ms} ms`)
      await world.run(5000)
      t.ok(world.passes(), `${pair}, ${fault}: and stays`)
    }
  }
})

t.test('a NAT that takes another port every 30 s', async (t) => {
  for (const [pair, kinds] of Object.entries(PAIRS)) {
    const world = await linked(t, kinds)
    const [{ nat, sent }] = world.ends
    let [worstMs, sumMs] = [0, 0]
    const before = sent.length
    for (let i = 0; i < TIMES; i++) {
      nat.restart()
      const ms = await world.untilPasses(30_000)
      worstMs = Math.max(worstMs, ms)
      sumMs += ms
      await world.run(30_000 - ms)
    }
    t.ok(worstMs <= SETTLED_MS, `${pair}: at most ${worstMs} ms each time`)
    // Not by the next renewal, but because the link does not work.
    t.ok(sumMs / TIMES < 5000, `${pair}: ${sumMs / TIMES} ms on average`)
    const perSecond = (sent.length - before) / (30 * TIMES)
    t.ok(perSecond < 4, `${pair}: ${perSecond.toFixed(2)} packets a second`)
    t.comment(`${pair}: ${Math.round(sumMs / TIMES)} ms on average, ${perSecond.toFixed(2)} packets a second`)
  }
})

t.test('relays restart, and go', async (t) => {
  const world = await linked(t, [SYMMETRIC, SYMMETRIC])
  const [first, second] = world.relays
  if (first === undefined || second === undefined) throw new Error('relays')
  for (const relay of world.relays) world.restart(relay)
  const ms = await world.untilPasses(SETTLED_MS)
  t.ok(ms <= SETTLED_MS, `both relays at once: ${ms} ms`)
  await world.run(5000)
  first.isDeaf = true
  t.ok(world.passes(), 'one that forwards nothing leaves the other')
  second.isGone = true
  t.notOk(world.passes(), 'and there are two')
  first.isDeaf = false
  t.ok(world.passes())
})

t.test('a network that loses, delays, reorders and doubles', async (t) => {
  for (const [pair, kinds] of Object.entries(PAIRS)) {
    const world = new ReachWorld(kinds, 2)
    t.teardown(() => world.close())
    const random = (most: number): number => Math.floor(world.clock.random() * most)
    world.delays = () => {
      if (random(10) === 0) return []
      return Array.from({ length: 1 + random(3) }, () => 10 + random(400))
    }
    await world.begin()
    const ms = await world.untilPasses(2 * SETTLED_MS)
    t.ok(ms <= SETTLED_MS, `${pair}: ${ms} ms`)
    await world.run(40_000)
    t.ok(world.passes(), `${pair}: and stays`)
    for (const { name, sent } of world.ends) t.ok(sent.length < 300, `${pair}: ${name} has sent ${sent.length} packets`)
  }
})

t.test('floods of octets and of answers that are sent again neither make an end send more nor less', async (t) => {
  const world = await linked(t, [SYMMETRIC, SYMMETRIC], 2)
  const [end] = world.ends
  const calm = end.sent.length
  await world.run(60_000)
  const usual = end.sent.length - calm
  const floods = end.sent.length
  for (let second = 0; second < 60; second++) {
    const again = end.heard
    for (let i = 0; i < 200; i++) {
      const bytes = randomBytes(88)
      bytes.write('SLR1')
      bytes.writeUInt8(i % 8, 4)
      world.deliver(end, bytes, `203.0.113.1:${4600 + (i % 3)}`)
      for (const one of i % 10 === 0 ? again : []) world.deliver(end, one.bytes, one.from)
    }
    await world.run(1000)
  }
  const sent = end.sent.length - floods
  t.ok(Math.abs(sent - usual) <= 2, `${sent} packets, ${usual} otherwise`)
  t.ok(world.passes(), 'the relay has not forgotten the end')
})

t.test('a member that states the places of a victim makes others send it ten packets', async (t) => {
  const world = new ReachWorld([PORT, PORT], 1)
  t.teardown(() => world.close())
  const victim = '203.0.113.66'
  await world.begin(Array.from({ length: 8 }, (_, i) => `${victim}:${53 + i}`))
  await world.run(50_000)
  for (const { name, sent } of world.ends) {
    const count = sent.filter((to) => to.startsWith(`${victim}:`)).length
    t.ok(count > 0 && count <= PROBES_TO_ADDRESS, `${name}: ${count} packets`)
  }
  t.ok(world.passes(), 'and the link has its place')
})
