/** Streams that end while the broker is about to answer: each must still get its status. */
import { once } from 'node:events'
import { connect } from 'node:http2'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import type { Test } from 'tap'
import { openBrokerStore } from '../support/broker-store.ts'
import { BrokerService, PublishMessage } from '../../protocol/gen/broker.ts'
import { SERVER_NAME } from '../../protocol/identity/certificates.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { eventually } from '../support/eventually.ts'
import { type BrokerHere, brokerHere } from './support/broker-here.ts'
import { attack } from './support/attack.ts'
import { openChannel } from './support/raw-channel.ts'
import { NO_FACTS, rawJoin } from './support/raw-join.ts'
import { RawPublish } from './support/raw-publish.ts'
import { sayingRecord } from './support/raw-records.ts'

const SIX = 'fd00:42::/48'
const withSix = (four: string) => ({ ...NO_FACTS, podCidrs: [four, SIX] })

async function publisher(broker: BrokerHere, cluster: string, four: string) {
  const identity = await rawJoin(broker, cluster, four === '' ? NO_FACTS : withSix(four))
  const channel = openChannel(broker, identity)
  return { identity, channel, publish: await new RawPublish(channel).open() }
}

await attack('publish-range-regained', async (t) => {
  const broker = await brokerHere(t)
  const milano = await publisher(broker, 'milano', '')
  const paris = await publisher(broker, 'paris', '10.50.0.0/16')
  t.teardown(() => [milano, paris].forEach(({ channel }) => channel.close()))
  for (let round = 1; round <= 3; round += 1) {
    const [first, second] = await Promise.all([milano, paris].map(({ channel }) => new RawPublish(channel).open()))
    if (first === undefined || second === undefined) return
    // The member that stated a range later gives way: that is paris, until milano withdraws the range.
    second.sendFacts({ ...NO_FACTS, podCidrs: ['10.50.0.0/16'] })
    await second.settled()
    first.sendFacts({ ...NO_FACTS, podCidrs: ['10.42.0.0/16', SIX] })
    await first.settled()
    second.sendFacts({ ...NO_FACTS, podCidrs: ['10.50.0.0/16', SIX] })
    await second.settled()
    first.sendFacts(NO_FACTS)
    for (let i = 0; i < 300; i += 1) second.sendPut(sayingRecord(`web-${round}-${i}`, 'x'.repeat(1000)))
    const { code, details } = await second.ended()
    t.equal(code, 9, `round ${round}: FAILED_PRECONDITION`)
    t.match(details, /podCIDRs: fd00:42::\/48 of this cluster is carried again/)
    await first.settled()
  }
})

await attack('publish-half-closed', async (t) => {
  const broker = await brokerHere(t)
  const { channel, publish } = await publisher(broker, 'milano', '')
  t.teardown(() => channel.close())
  for (let i = 0; i < 300; i += 1) publish.sendPut(sayingRecord(`web-${i}`, 'x'.repeat(300)))
  publish.call.end()
  const { code } = await publish.ended()
  t.equal(code, 0)
  t.equal(publish.acknowledged(), 300, 'after the last acknowledgement')
})

await attack('publish-replaced-unasked', async (t) => {
  const broker = await brokerHere(t)
  const { channel, publish } = await publisher(broker, 'milano', '')
  t.teardown(() => channel.close())
  const second = await new RawPublish(channel).open()
  const { code, details } = await publish.ended()
  t.equal(code, 9)
  t.match(details, /a newer publish stream of cluster "milano" has taken over/)
  second.sendPut(sayingRecord('web'))
  await second.settled()
})

await attack('publish-disk-full', async (t) => {
  const broker = await brokerHere(t)
  const { channel, publish } = await publisher(broker, 'milano', '')
  t.teardown(() => channel.close())
  // A second writer that never commits blocks the store as a full disk would.
  const other = new DatabaseSync(join(broker.state, 'broker.db'))
  t.teardown(() => other.close())
  other.exec('BEGIN IMMEDIATE')
  for (let i = 0; i < 1500; i += 1) publish.sendPut(sayingRecord(`web-${i}`))
  await eventually(() => /cannot write to the store/.test(JSON.stringify(broker.logger.lines)), { deadlineMs: 10_000 })
  const stopped = broker.stop()
  const { code, details } = await publish.ended()
  t.equal(code, 14, 'UNAVAILABLE')
  t.match(details, /the broker is stopping/)
  t.ok(publish.acknowledged() < publish.sequence, 'what was not written was not acknowledged')
  other.exec('ROLLBACK')
  await stopped
})

/**
 * Evicts a member that reads no answer, on a connection with a window of 0. True if the broker then closes the
 * connection.
 */
async function closedWhenEvicted(t: Test, path: string, body: Buffer): Promise<boolean> {
  const broker = await brokerHere(t)
  const { cluster, ...own } = await rawJoin(broker, 'milano')
  const settings = { initialWindowSize: 0 }
  const session = connect(`https://${broker.address}`, { ...own, servername: SERVER_NAME, settings })
  const closed = new Promise((resolve) => session.once('close', resolve))
  session.on('error', () => undefined)
  t.teardown(() => session.destroy())
  const stream = session.request({
    ...{ ':method': 'POST', ':path': path },
    ...{ 'content-type': 'application/grpc', te: 'trailers' },
  })
  stream.on('error', () => undefined)
  // A watch begins when its request is complete; a publish stream that ends has sent its last message.
  if (path === BrokerService.watch.path) stream.end(framed(body))
  else stream.write(framed(body))
  // The headers arrive, but no data of the answer fits into a window of 0.
  await once(stream, 'response')
  const store = await openBrokerStore(broker.state, new SystemClock())
  await store.evict({ cluster, force: true })
  await store.close()
  const late = AbortSignal.timeout(15_000)
  await Promise.race([closed, once(late, 'abort')])
  return !late.aborted
}

await attack('publish-unread-and-evicted', async (t) => {
  const declare = { setHash: Buffer.alloc(32), count: 1, tellsStatus: true, takesQuota: false, givesHeld: false }
  const message = PublishMessage.encode({ message: { $case: 'declare', value: declare } }).finish()
  const closed = await closedWhenEvicted(t, BrokerService.publish.path, Buffer.from(message))
  t.ok(closed, 'the broker has closed the connection')
})

await attack('watch-unread-and-evicted', async (t) => {
  const closed = await closedWhenEvicted(t, BrokerService.watch.path, Buffer.alloc(0))
  t.ok(closed, 'the broker has closed the connection')
})

function framed(bytes: Buffer): Buffer {
  const head = Buffer.alloc(5)
  head.writeUInt32BE(bytes.length, 1)
  return Buffer.concat([head, bytes])
}
