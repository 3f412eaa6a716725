/**
 * When the server opens a listen address: once it has read the objects, or because no other process serves the port.
 */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import t from 'tap'
import { isPortServed, untilDue } from '../../../dns/server/port-handover.ts'
import { parseAddress } from '../../../model/values/ip.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { failure } from '../../support/failure.ts'

const AT = { address: parseAddress('127.0.0.1'), port: 53 }
const ALONE = 'services have not been read yet; listening anyway, and answering SERVFAIL'
const SERVED = 'services have not been read yet; meanwhile another process serves the port'

interface Case {
  readonly name: string
  /**
   * The time when the objects are read and, in the next field, when the other process ends; milliseconds from the
   * start.
   */
  readonly syncedAt?: number
  readonly servedUntil?: number
  readonly openedAt: number | undefined
  readonly says: readonly string[]
}

const CASES: readonly Case[] = [
  { name: 'read at once', syncedAt: 0, openedAt: 0, says: [] },
  { name: 'read within the wait', syncedAt: 400, openedAt: 400, says: [] },
  { name: 'never read, nobody else there', openedAt: 1000, says: [ALONE] },
  { name: 'read late, another one serves', syncedAt: 30_000, servedUntil: 60_000, openedAt: 30_000, says: [SERVED] },
  { name: 'never read, another one serves and goes', servedUntil: 5050, openedAt: 5100, says: [SERVED, ALONE] },
  { name: 'never read, another one goes within the wait', servedUntil: 500, openedAt: 1000, says: [ALONE] },
  { name: 'never read, another one stays', servedUntil: 1e9, openedAt: undefined, says: [SERVED] },
]

for (const { name, syncedAt, servedUntil = 0, openedAt, says } of CASES) {
  t.test(name, async (t) => {
    const clock = new FakeClock()
    const start = clock.monotonic()
    const now = (): number => clock.monotonic() - start
    const logger = new CapturingLogger()
    const stop = new AbortController()
    let opened: number | undefined
    const whenSynced = (signal: AbortSignal): Promise<void> =>
      syncedAt === 0 ? Promise.resolve() : clock.sleep(syncedAt ?? 1e12, signal)
    const due = untilDue(
      { clock, logger, index: { whenSynced }, isServed: () => now() < servedUntil },
      { at: AT, mostMs: 1000 },
      stop.signal,
    ).then(() => (opened = now()))
    const ended = failure(due)
    await Promise.resolve()
    for (let i = 0; i < 1200; i += 1) await clock.advance(50)
    t.equal(opened, openedAt)
    t.same(
      logger.lines.map(({ message }) => message),
      says,
    )
    stop.abort(new Error('told to end'))
    if (openedAt === undefined) t.match(await ended, { message: 'told to end' })
  })
}

t.test('a port counts as served by sockets of its own address, and of all addresses', async (t) => {
  for (const [bound, asked, isServed] of [
    ['127.0.0.1', '127.0.0.1', true],
    ['127.0.0.2', '127.0.0.1', false],
    ['0.0.0.0', '127.0.0.1', true],
    ['::1', '::1', true],
    ['::', '::1', true],
    ['127.0.0.1', '::1', false],
  ] as const) {
    const socket = createSocket({ type: bound.includes(':') ? 'udp6' : 'udp4', ipv6Only: bound.includes(':') })
    socket.bind(0, bound)
    await once(socket, 'listening')
    const at = { address: parseAddress(asked), port: socket.address().port }
    t.equal(isPortServed(at), isServed, `${bound}, asked for ${asked}`)
    socket.close()
    await once(socket, 'close')
    t.equal(isPortServed(at), false, `${bound} has gone`)
  }
})
