import t from 'tap'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import { LiveBatches } from '../../../broker/sessions/live-batches.ts'
import { decodeWatchMessage, encodeWatchMessage } from '../../../protocol/codec/messages-codec.ts'
import { aSlice, anExport } from '../support/harness.ts'

async function opened() {
  const log = openMemoryLog()
  const counted = { encoded: 0 }
  const batches = new LiveBatches(log, { encoded: { inc: () => void (counted.encoded += 1) } })
  const put = (name: string) =>
    log.transact((tx) =>
      tx.put('record', `milano/ServiceExport/shop/${name}`, { createdAtMs: 1, body: anExport(name).body }),
    )
  return { log, batches, counted, put }
}

t.test('three streams at different revisions: each change is encoded once, each message made once', async (t) => {
  const { log, batches, counted, put } = await opened()
  const stands = [log.revision]
  for (const name of ['a', 'b', 'c']) {
    await put(name)
    stands.push(log.revision)
  }
  // A thousand streams stand at three different revisions.
  const messages = Array.from({ length: 1000 }, (_, i) => batches.after(stands[i % 3] ?? 0))
  t.same(
    messages.slice(0, 3).map((one) => one?.events),
    [3, 2, 1],
  )
  t.equal(new Set(messages.map((one) => one?.plain)).size, 3)
  t.equal(counted.encoded, 3)
  t.equal(batches.after(log.revision), undefined, 'one that has all is given nothing')
})

t.test('what moved the log without a record does not part streams that stand alike', async (t) => {
  const { log, batches, put } = await opened()
  await put('a')
  const before = log.revision
  await log.transact((tx) => tx.put('contact', 'milano', { lastSeenMs: 1 }))
  const after = log.revision
  await put('b')
  t.ok(after > before)
  t.equal(batches.after(before)?.plain, batches.after(after)?.plain)
})

t.test('a stream that is told later is told of what came meanwhile', async (t) => {
  const { log, batches, put } = await opened()
  const from = log.revision
  await put('a')
  t.equal(batches.after(from)?.events, 1)
  await put('b')
  const batch = batches.after(from)
  t.equal(batch?.events, 2)
  t.equal(batch?.revision, log.revision)
})

t.test('small messages stay as they are, large ones are packed once', async (t) => {
  const { log, batches, put } = await opened()
  const from = log.revision
  await put('a')
  const small = batches.after(from)
  t.equal(small === undefined ? undefined : batches.packed(small), small?.plain)
  await log.transact((tx) => {
    for (let i = 0; i < 100; i += 1) {
      const record = aSlice(`s${i}`, `10.42.0.${i}`)
      tx.put('record', `milano/EndpointSlice/shop/${record.name}`, { createdAtMs: 1, body: record.body })
    }
  })
  const large = batches.after(from)
  if (large === undefined) throw new Error('nothing has changed')
  const packed = batches.packed(large)
  t.equal(packed.t, 'packed')
  t.equal(batches.packed(large), packed)
  const plain = encodeWatchMessage(large.plain)
  t.ok(encodeWatchMessage(packed).length < plain.length / 4)
  const read = decodeWatchMessage(encodeWatchMessage(packed))
  t.same(read === undefined ? undefined : Buffer.from(encodeWatchMessage(read)), Buffer.from(plain))
})

t.test('many large slices are several messages, each of as much as is packed well', async (t) => {
  const { log, batches } = await opened()
  const conditions = { ready: true, serving: true, terminating: false }
  const addressOf = (n: number): string => `10.42.${(n >> 8) & 0xff}.${n & 0xff}`
  const put = (i: number) => {
    const { body } = aSlice(`wide${i}`, '10.42.0.1')
    if (body.kind !== 'EndpointSlice') throw new Error(body.kind)
    const endpoints = Array.from({ length: 100 }, (_, n) => ({
      ...{ addresses: [addressOf(n * 37 + i * 7)], nodeName: `node-${n % 10}.cluster.example`, zone: `zone-${n % 3}` },
      conditions,
    }))
    const row = { createdAtMs: 1, body: { ...body, endpoints } }
    return log.transact((tx) => tx.put('record', `milano/EndpointSlice/shop/wide${i}`, row))
  }
  const COUNT = 30
  for (let i = 0; i < COUNT; i += 1) await put(i)
  let [events, bytes, revision] = [0, 0, 0]
  for (let batch = batches.after(0); batch !== undefined; batch = batches.after(revision)) {
    t.ok(encodeWatchMessage(batch.plain).length <= 128 * 1024)
    bytes += encodeWatchMessage(batches.packed(batch)).length
    events += batch.events
    revision = batch.revision
  }
  t.equal(events, COUNT, 'nothing is left out')
  t.ok(bytes / COUNT < 300, `${bytes / COUNT} bytes for 100 endpoints`)
})
