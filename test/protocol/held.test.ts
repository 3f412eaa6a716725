/**
 * The records that a member still holds from before a restore: on the wire, in the replica, and when they are reported.
 */
import t from 'tap'
import type { ClusterId } from '../../model/ids.ts'
import type { StoredRecord } from '../../model/records.ts'
import type { PublishMessage } from '../../protocol/broker-api.ts'
import {
  decodePublishMessage,
  decodePublishReply,
  encodePublishMessage,
  encodePublishReply,
} from '../../protocol/codec/messages-codec.ts'
import { encodeRecordEvent } from '../../protocol/codec/records-codec.ts'
import { inMemoryBroker } from '../../protocol/transport/in-memory.ts'
import { MAX_HELD_RECORDS } from '../../protocol/limits.ts'
import { Replica } from '../../protocol/replica/record-replica.ts'
import { HeldRecords } from '../../protocol/sessions/held-records.ts'
import { PublishSession } from '../../protocol/sessions/publish-session.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { messageOf } from '../support/failure.ts'
import { FakeBroker } from './fake-broker.ts'
import { byKey, slice } from './samples.ts'

const PEER = { cluster: 'milano' as ClusterId, address: '192.0.2.1', serial: '01' }

function address(name: string, ip: string): StoredRecord {
  return {
    key: { cluster: '', kind: 'ClusterSetIP', namespace: 'shop', name },
    revision: 7,
    createdAtMs: 1,
    body: { kind: 'ClusterSetIP', ips: [ip] },
  }
}

t.test('there and back, and from and to earlier releases', (t) => {
  const held: PublishMessage = { t: 'held', records: [address('web', '245.0.0.1')], last: true }
  t.same(decodePublishMessage(encodePublishMessage(held)), held)
  const declare: PublishMessage = { t: 'declare', setHash: new Uint8Array(32), count: 1, givesHeld: true }
  t.same(decodePublishMessage(encodePublishMessage(declare)), declare)
  for (const kind of ['inSync', 'sendDigest'] as const) {
    t.same(decodePublishReply(encodePublishReply({ t: kind, asksHeld: 'e1' })), { t: kind, asksHeld: 'e1' })
    t.same(decodePublishReply(encodePublishReply({ t: kind })), { t: kind })
  }
  const many = { ...held, records: Array.from({ length: MAX_HELD_RECORDS + 1 }, () => address('web', '245.0.0.1')) }
  t.throws(() => decodePublishMessage(encodePublishMessage(many)), /records/)
  t.end()
})

/** One complete stream of the epoch with these records. */
function snapshot(replica: Replica, epoch: string, records: readonly StoredRecord[], removed?: StoredRecord): void {
  const events = records.map((record) => encodeRecordEvent({ t: 'put', record }))
  if (removed !== undefined) events.push(encodeRecordEvent({ t: 'remove', key: removed.key, revision: 8 }))
  replica.begin()
  replica.apply({ t: 'reset', epoch, resumed: false })
  replica.apply({ t: 'batch', events, revision: 9 })
  replica.apply({ t: 'synced', revision: 9, complete: [], departed: [] })
}

t.test('what an earlier epoch had and this one has not, or has otherwise', (t) => {
  const replica = new Replica()
  const [web, db, mail, chat] = ['web', 'db', 'mail', 'chat'].map((name, i) => address(name, `245.0.0.${i + 1}`))
  if (web === undefined || db === undefined || mail === undefined || chat === undefined) throw new Error('four of them')
  const status: StoredRecord = {
    ...{
      key: { cluster: PEER.cluster, kind: 'MemberStatus', namespace: '', name: 'milano' },
      revision: 7,
      createdAtMs: 1,
    },
    body: { kind: 'MemberStatus', notImported: [], leftOut: 0 },
  }
  snapshot(replica, 'e1', [web, db, mail, chat, status])
  t.same(replica.displaced, [])
  snapshot(replica, 'e1', [web])
  t.same(replica.displaced, [], 'nothing of the same epoch')
  snapshot(replica, 'e2', [web, address('db', '245.0.0.99')], chat)
  t.same(
    replica.displaced.map(({ key, body }) => [key.name, body]),
    [
      ['db', db.body],
      ['mail', mail.body],
    ],
  )
  t.end()
})

t.test('it is known once the snapshot of that epoch is there, or after a while', async (t) => {
  const clock = new FakeClock()
  const replica = { displaced: [address('web', '245.0.0.1')], epoch: 'e1' }
  const held = new HeldRecords(clock, replica)
  const signal = new AbortController().signal
  let answer: readonly StoredRecord[] | undefined
  const asked = held.records('e2', signal).then((records) => (answer = records))
  held.onWatch()
  await Promise.resolve()
  t.equal(answer, undefined, 'the snapshot is still that of before')
  replica.epoch = 'e2'
  held.onWatch()
  await asked
  t.equal(answer?.length, 1)
  const late = held.records('e3', signal)
  await clock.advance(15_000)
  t.equal((await late).length, 1)
  const stop = new AbortController()
  const broken = messageOf(held.records('e4', stop.signal))
  stop.abort(new Error('the stream has ended'))
  t.equal(await broken, 'the stream has ended')
})

t.test('it is said where it is asked for, before the digest, and else not', async (t) => {
  const broker = new FakeBroker()
  const records = Array.from({ length: MAX_HELD_RECORDS + 1 }, (_, i) => address(`s${i}`, '245.0.0.1'))
  const asked: string[] = []
  const link = inMemoryBroker(broker, PEER)
  const deps = { connect: () => link.connect(), clock: new SystemClock(), logger: new CapturingLogger() }
  const held = (epoch: string) => {
    asked.push(epoch)
    return Promise.resolve(records)
  }
  const publish = new PublishSession({ ...deps, held }, { retryMinMs: 1, retryMaxMs: 5 })
  const stop = new AbortController()
  const run = publish.run(stop.signal)
  publish.setDesired(byKey(slice('a')))
  await publish.whenSettled(stop.signal)
  t.same(broker.held, [])
  broker.asksHeld = 'e2'
  broker.received.length = 0
  link.cut()
  link.mend()
  publish.setDesired(byKey(slice('a'), slice('b')))
  await publish.whenSettled(stop.signal)
  t.same(asked, ['e2'])
  t.equal(broker.held.length, MAX_HELD_RECORDS + 1)
  t.same(broker.received.map((message) => message.t).slice(0, 4), ['declare', 'held', 'held', 'digest'])
  stop.abort()
  await run
})
