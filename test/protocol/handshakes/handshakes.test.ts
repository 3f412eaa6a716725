/**
 * Which connections may begin a handshake, and when the others should try again: the pure parts, and the limits around
 * them.
 */
import { PassThrough } from 'node:stream'
import type { Socket } from 'node:net'
import fc from 'fast-check'
import t from 'tap'
import { BrokerBusyError } from '../../../protocol/broker-client.ts'
import { reconnectMs, reconnectSpreadMs } from '../../../protocol/sessions/session-timing.ts'
import { Connections, DEFAULT_CONNECTION_LIMITS } from '../../../protocol/transport/connections.ts'
import {
  HandshakeTurns,
  MAX_COME_BACK_MS,
  comeBackAlert,
  comeBackMs,
} from '../../../protocol/transport/handshake-rate-limiter.ts'
import { serverMetrics } from '../../../protocol/transport/server-metrics.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

t.test('what is told by an alert is understood, and never less', (t) => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 60_000 }), (ms) => {
      const number = comeBackAlert(ms)[6] ?? 0
      const saidMs = comeBackMs(`read: error: ssl/record/rec_layer_s3.c:916: SSL alert number ${number}`) ?? -1
      return number >= 224 && number <= 255 && saidMs >= Math.min(ms, MAX_COME_BACK_MS) && saidMs <= MAX_COME_BACK_MS
    }),
  )
  t.equal(comeBackMs('SSL alert number 40'), undefined, 'an alert of somebody else')
  t.equal(comeBackMs('connect ECONNREFUSED'), undefined)
  t.end()
})

t.test('turns come with time, and a broker that is late gives no more for it', async (t) => {
  const clock = new FakeClock()
  const turns = new HandshakeTurns(clock, 200)
  t.equal(turns.take(1000), 8, 'those that were saved up')
  t.equal(turns.take(1000), 0)
  let given = 0
  for (let i = 0; i < 50; i += 1) {
    await clock.advance(20)
    given += turns.take(1000)
  }
  t.equal(given, 200, 'two hundred in a second')
  await clock.advance(2000)
  t.equal(turns.take(1000), 8, 'what it did not get to in two seconds is not begun at once')
})

t.test('those that are sent away are told times one after another, at the pace that the broker has', async (t) => {
  const clock = new FakeClock()
  const turns = new HandshakeTurns(clock, 200)
  const times = Array.from({ length: 800 }, () => turns.comeBackMs(200))
  t.equal(times[0], 1000)
  t.ok(times.every((ms, i) => i === 0 || ms > (times[i - 1] ?? 0)))
  t.ok(Math.abs((times.at(-1) ?? 0) - 5000) < 100, 'a thousand in five seconds')
  // This broker manages eight handshakes a second.
  const slow = new HandshakeTurns(clock, 200)
  for (let i = 0; i < 40; i += 1) {
    slow.take(500)
    await clock.advance(1000)
  }
  t.ok(slow.comeBackMs(100) > 5000, `${slow.comeBackMs(100)} ms`)
})

t.test('when members come back', (t) => {
  const clock = { random: () => 0.5 }
  const lost = { wasLive: true, error: new Error('gone'), backoffMs: 60 }
  t.equal(reconnectMs({ ...lost, spreadMs: reconnectSpreadMs(3) }, clock), 60, 'three do not wait for each other')
  t.equal(reconnectMs({ ...lost, spreadMs: reconnectSpreadMs(1000) }, clock), 2500)
  t.equal(reconnectSpreadMs(100_000), 5000)
  t.equal(reconnectMs({ ...lost, wasLive: false, spreadMs: 5000 }, clock), 60, 'only the first time')
  const busy = new BrokerBusyError('broker:7443', 2000)
  t.equal(reconnectMs({ ...lost, error: busy, spreadMs: 5000 }, clock), 2200, 'who was told a time keeps to it')
  t.end()
})

/** As much of a socket as Connections uses. */
class FakeSocket extends PassThrough {
  readonly remoteAddress = '192.0.2.1'
  readonly remotePort: number
  readonly said: Buffer[] = []

  constructor(port: number) {
    super()
    this.remotePort = port
  }

  override end(bytes?: unknown): this {
    if (Buffer.isBuffer(bytes)) this.said.push(bytes)
    this.destroy()
    return this
  }
}

t.test('a flood of those that begin: few wait, none is left without a word, and turns go on', async (t) => {
  const clock = new FakeClock()
  let begun = 0
  const connections = new Connections({
    clock,
    metrics: serverMetrics(undefined),
    limits: DEFAULT_CONNECTION_LIMITS,
    startHandshake: () => void (begun += 1),
  })
  const sockets = Array.from({ length: 1500 }, (_, i) => new FakeSocket(i + 1))
  for (const socket of sockets) {
    connections.accept(socket as unknown as Socket)
    socket.write('hello')
  }
  await new Promise((resolve) => setTimeout(resolve, 50))
  const sentAway = sockets.filter(({ said }) => said.length > 0)
  t.equal(begun, 8)
  t.equal(sentAway.length, 1500 - 8 - DEFAULT_CONNECTION_LIMITS.maxReady)
  t.ok(sentAway.every(({ said }) => said[0]?.[0] === 0x15))
  for (let i = 0; i < 110; i += 1) await clock.advance(20)
  t.equal(begun, 8 + DEFAULT_CONNECTION_LIMITS.maxReady, 'all that waited had their turn')
  connections.destroyAll()
})
