/** The prober and the size of packets: which far ends it asks, which answers it follows, and what it answers itself. */
import t from 'tap'
import { PROBE_BYTES, decodeProbe, encodeProbe } from '../../../kernel/probing/probe-packet.ts'
import type { ProbedPeer } from '../../../kernel/probing/prober.ts'
import { OWN, PARIS, TOKYO, setUp } from './prober-stage.ts'

const SIZED: ProbedPeer = { ...PARIS, sizes: { floor: 576, base: 1216, most: 1440 } }

t.test('which packets get there: only asked of who understands it, and followed within two seconds', async (t) => {
  const { clock, probes, prober, busy, sizes, counts } = setUp(t)
  probes.alive.add(PARIS.address)
  busy.add('paris')
  const padded = (): number => probes.sent.filter(({ bytes }) => bytes.length > PROBE_BYTES).length
  const size = (): number | undefined => prober.health().get('paris')?.sendSize
  await clock.advance(3000)
  t.strictSame([padded(), size()], [0, undefined], 'a release that would not answer is not asked')
  probes.carries = 1300
  prober.setPeers([SIZED])
  await clock.advance(1000)
  t.equal(size(), 1440)
  t.equal(prober.health().get('paris')?.receiveSize, 1300, 'as the far end says')
  probes.widths.set(PARIS.address, 1240)
  await clock.advance(2000)
  t.equal(size(), 1232)
  t.equal(prober.health().get('paris')?.state, 'up')
  t.equal(sizes.at(-1), 1232)
  probes.widths.clear()
  await clock.advance(12_000)
  t.equal(size(), 1440)
  t.equal(counts.ignored, 0)
  prober.setPeers([PARIS])
  const before = padded()
  await clock.advance(12_000)
  t.strictSame([padded(), size()], [before, undefined], 'it has an earlier release again')
})

t.test('where one way becomes narrow the others are looked at, also those without traffic', async (t) => {
  const { clock, probes, prober, busy } = setUp(t)
  const tokyo = { ...SIZED, key: 'tokyo', address: TOKYO.address }
  prober.setPeers([SIZED, tokyo])
  for (const { address } of [SIZED, tokyo]) probes.alive.add(address)
  await clock.advance(11_000)
  busy.add('paris')
  for (const { address } of [SIZED, tokyo]) probes.widths.set(address, 1240)
  await clock.advance(3000)
  t.strictSame(
    [...prober.health().values()].map(({ sendSize }) => sendSize),
    [1232, 1232],
  )
  probes.widths.clear()
  await clock.advance(13_000)
  t.strictSame(
    [...prober.health().values()].map(({ sendSize }) => sendSize),
    [1440, 1440],
    'and where one becomes wide again',
  )
})

t.test('a silent far end is not asked for sizes, and keeps its own', async (t) => {
  const { clock, probes, prober, busy, sizes } = setUp(t)
  prober.setPeers([SIZED])
  probes.alive.add(PARIS.address)
  busy.add('paris')
  probes.widths.set(PARIS.address, 1240)
  await clock.advance(3000)
  t.equal(prober.health().get('paris')?.sendSize, 1232)
  probes.alive.clear()
  await clock.advance(5000)
  const padded = (): number => probes.sent.filter(({ bytes }) => bytes.length > PROBE_BYTES).length
  const before = padded()
  await clock.advance(30_000)
  t.equal(padded(), before)
  t.equal(prober.health().get('paris')?.sendSize, 1232)
  probes.alive.add(PARIS.address)
  await clock.advance(2000)
  t.equal(prober.health().get('paris')?.sendSize, 1232)
  t.equal(sizes.at(-1), 1232)
})

t.test('a far end whose process is away is not asked for sizes', async (t) => {
  const { clock, probes, prober, busy } = setUp(t)
  prober.setPeers([SIZED])
  probes.alive.add(PARIS.address)
  busy.add('paris')
  await clock.advance(3000)
  probes.kernels.add(PARIS.address)
  probes.alive.delete(PARIS.address)
  await clock.advance(5000)
  t.match(prober.health().get('paris'), { state: 'up', kernelOnly: true })
  const padded = (): number => probes.sent.filter(({ bytes }) => bytes.length > PROBE_BYTES).length
  const before = padded()
  await clock.advance(20_000)
  t.equal(padded(), before)
  probes.alive.add(PARIS.address)
  await clock.advance(15_000)
  t.ok(padded() > before, 'it is again when it answers')
})

t.test('what is said beside the probes counts as probes', async (t) => {
  const { clock, probes, prober } = setUp(t)
  probes.alive.add(PARIS.address)
  await clock.advance(2000)
  const probed = (): number => prober.health().get('paris')?.probes ?? NaN
  const before = probed()
  prober.notify(new Set(['paris']), { mark: 7, step: 'known' })
  t.equal(probed() - before, 1)
})

t.test('questions about a size are answered shortly, with what gets there', async (t) => {
  const { clock, probes, prober } = setUp(t)
  prober.setPeers([SIZED])
  probes.alive.add(PARIS.address)
  await clock.advance(1000)
  probes.sent.length = 0
  const question = { type: 'sizedQuestion', lane: 0, session: 7, sequence: 8, sentMicros: 9n, size: 1400 } as const
  probes.receive(OWN, '246.0.9.0', encodeProbe({ ...question, carries: 1200 }))
  t.equal(probes.sent.length, 0, 'not of somebody else')
  probes.receive(OWN, PARIS.address, encodeProbe({ ...question, carries: 1200 }))
  t.equal(probes.sent[0]?.bytes.length, PROBE_BYTES)
  t.strictSame(decodeProbe(probes.sent[0]!.bytes), { ...question, type: 'sizedAnswer', carries: 1440 })
  t.equal(prober.health().get('paris')?.receiveSize, 1200)
})

t.test('many ways that become narrow at once are not all tried at once', async (t) => {
  const { clock, probes, prober, busy } = setUp(t)
  const peers = Array.from({ length: 60 }, (_, i): ProbedPeer => {
    return { key: `c${i}`, number: 0, address: `246.0.${i + 2}.0`, sizes: { floor: 576, base: 1216, most: 1440 } }
  })
  prober.setPeers(peers)
  for (const { key, address } of peers) {
    probes.alive.add(address)
    busy.add(key)
  }
  await clock.advance(2000)
  for (const { address } of peers) probes.widths.set(address, 1240)
  let most = 0
  for (let i = 0; i < 100; i += 1) {
    await clock.advance(50)
    const trying = [...prober.health().values()].filter(({ isTryingSizes }) => isTryingSizes).length
    most = Math.max(most, trying)
  }
  t.ok(most > 0 && most <= 16, `${most} at once`)
  t.ok([...prober.health().values()].every(({ sendSize }) => sendSize === 1232))
})
