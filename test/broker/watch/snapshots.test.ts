/** A stream delivers what the log holds, from the start to the live phase, whatever changes meanwhile. */
import fc from 'fast-check'
import t from 'tap'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import type { GroupedLog } from '../../../broker/store/grouped-log.ts'
import { LiveBatches } from '../../../broker/sessions/live-batches.ts'
import { Snapshots } from '../../../broker/sessions/snapshots.ts'
import type { RecordRow } from '../../../broker/store/rows.ts'
import { recordKeyText } from '../../../model/records.ts'
import type { WatchMessage } from '../../../protocol/broker-api.ts'
import { decodeWatchMessage, encodeWatchMessage } from '../../../protocol/codec/messages-codec.ts'
import { decodeRecordEvent } from '../../../protocol/codec/records-codec.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { aSlice, anExport } from '../support/harness.ts'

const counter = { inc: (): void => undefined }
const metrics = { encoded: counter }

function row(i: number): RecordRow {
  return { createdAtMs: i, body: i % 3 === 0 ? anExport('web').body : aSlice('web', `10.42.0.${i % 250}`).body }
}

const key = (i: number): string => `milano/${i % 3 === 0 ? 'ServiceExport' : 'EndpointSlice'}/shop/r${i}`

async function put(log: GroupedLog, i: number, says: number): Promise<void> {
  await log.transact((tx) => tx.put('record', key(i), { ...row(i), createdAtMs: says }))
}

/** The copy of a member: key and time of each record. */
class Copy {
  readonly records = new Map<string, number>()

  take(message: WatchMessage | undefined): void {
    const plain = message?.t === 'packed' ? decodeWatchMessage(encodeWatchMessage(message)) : message
    if (plain?.t !== 'batch') throw new Error(`no batch: ${String(plain?.t)}`)
    for (const bytes of plain.events) {
      const event = decodeRecordEvent(bytes)
      if (event?.t === 'put') this.records.set(recordKeyText(event.record.key), event.record.createdAtMs)
      if (event?.t === 'remove') this.records.delete(recordKeyText(event.key))
    }
  }
}

function held(log: GroupedLog): Map<string, number> {
  return new Map(log.list('record').map(({ key: one, value }) => [one, value.createdAtMs]))
}

const step = fc.oneof(
  fc.record({ t: fc.constant('put' as const), i: fc.nat(700), says: fc.nat() }),
  fc.record({ t: fc.constant('remove' as const), i: fc.nat(700) }),
  fc.record({ t: fc.constant('part' as const), reader: fc.nat(2) }),
)

t.test('three readers of one snapshot, each at its own pace, end with what the log holds', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), fc.boolean(), fc.nat(700), async (steps, packed, count) => {
      const log = openMemoryLog()
      await log.transact((tx) => {
        for (let i = 0; i < count; i += 1) tx.put('record', key(i), row(i))
      })
      const batches = new LiveBatches(log, metrics)
      const clock = new FakeClock()
      const snapshots = new Snapshots({ log, clock, encode: (change) => batches.encode(change) })
      const readers = [0, 1, 2].map(() => ({ copy: new Copy(), of: snapshots.take({ packed }), next: 0 }))
      const read = async (reader: (typeof readers)[number] | undefined): Promise<boolean> => {
        const part = await reader?.of.part(reader.next)
        if (reader === undefined || part === undefined) return false
        reader.next += 1
        reader.copy.take(part.message)
        return true
      }
      for (const one of steps) {
        if (one.t === 'put') await put(log, one.i, one.says)
        else if (one.t === 'remove') await log.transact((tx) => tx.remove('record', key(one.i)))
        else await read(readers[one.reader])
      }
      for (const reader of readers) {
        while (await read(reader));
        let { floor: at } = reader.of
        for (let batch = batches.after(at); batch !== undefined; batch = batches.after(at)) {
          reader.copy.take(packed ? batches.packed(batch) : batch.plain)
          at = batch.revision
        }
        const [mine, whole] = [reader.copy.records, held(log)]
        if (mine.size !== whole.size) return false
        for (const [one, says] of whole) if (mine.get(one) !== says) return false
      }
      return true
    }),
    { numRuns: 40 },
  )
})

t.test(
  'a snapshot is made once for all who come, anew after much has changed, and let go when nobody reads',
  async (t) => {
    const log = openMemoryLog()
    for (let i = 0; i < 10; i += 1) await put(log, i, i)
    let encoded = 0
    const batches = new LiveBatches(log, { encoded: { inc: () => void (encoded += 1) } })
    const clock = new FakeClock()
    const snapshots = new Snapshots({ log, clock, encode: (change) => batches.encode(change) })
    const take = (isPacked: boolean) => snapshots.take({ packed: isPacked })
    const [one, two, packed] = [take(false), take(false), take(true)]
    t.equal(one, two)
    t.not(one, packed, 'a member of the last release cannot unpack')
    t.equal((await one.part(0))?.message, (await two.part(0))?.message, 'one object')
    t.equal(encoded, 10)
    for (let i = 0; i < 2001; i += 1) await put(log, 0, i)
    const later = snapshots.take({ packed: false })
    t.not(later, one, 'too much has changed since')
    later.release()
    await clock.advance(9000)
    t.equal(snapshots.take({ packed: false }), later, 'kept for a while')
    later.release()
    await clock.advance(10_001)
    t.not(snapshots.take({ packed: false }), later)
  },
)

t.test('what is forgotten is no part of a snapshot that is given out', async (t) => {
  const log = openMemoryLog({ keepRemoved: 4 })
  for (let i = 0; i < 12; i += 1) await put(log, i, i)
  const batches = new LiveBatches(log, metrics)
  const snapshots = new Snapshots({ log, clock: new FakeClock(), encode: (change) => batches.encode(change) })
  const old = snapshots.take({ packed: false })
  for (let i = 0; i < 10; i += 1) await log.transact((tx) => tx.remove('record', key(i)))
  t.ok(log.compactedRevision > old.floor)
  t.not(snapshots.take({ packed: false }), old)
})
