/** What a member reports about itself on the wire, between this release and others in both directions. */
import t from 'tap'
import {
  MAX_NOT_IMPORTED,
  type MemberStatus,
  type NotImported,
  type OpenConnections,
} from '../../model/member-status.ts'
import { MAX_OPEN_CONNECTIONS } from '../../model/values/limits.ts'
import type { ClusterId } from '../../model/ids.ts'
import type { StoredRecord } from '../../model/records.ts'
import type { PublishMessage, Renumbered } from '../../protocol/broker-api.ts'
import { CodecError } from '../../protocol/codec/codec-checks.ts'
import * as wire from '../../protocol/gen/broker.ts'
import { inMemoryBroker } from '../../protocol/transport/in-memory.ts'
import {
  decodeJoinLook,
  decodePublishMessage,
  decodePublishReply,
  encodeJoinLook,
  encodePublishMessage,
  encodePublishReply,
} from '../../protocol/codec/messages-codec.ts'
import { PublishSession } from '../../protocol/sessions/publish-session.ts'
import { decodeRecordEvent, encodeRecordEvent } from '../../protocol/codec/records-codec.ts'
import { decodeReplica, encodeReplica } from '../../protocol/replica/replica-file.ts'
import { Replica } from '../../protocol/replica/record-replica.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { eventually } from '../support/eventually.ts'
import { byKey, slice } from './samples.ts'
import { FakeBroker } from './fake-broker.ts'

const SHOP: NotImported = { reason: 'NamespaceMissing', namespace: 'shop', name: '', cluster: '' }
const STATUS: MemberStatus = { notImported: [SHOP], leftOut: 3 }
const PEER = { cluster: 'milano' as ClusterId, address: '192.0.2.1', serial: '01' }
const RECORD: StoredRecord = {
  key: { cluster: PEER.cluster, kind: 'MemberStatus', namespace: '', name: 'milano' },
  revision: 7,
  createdAtMs: 1,
  body: { kind: 'MemberStatus', ...STATUS },
}

t.test('there and back', (t) => {
  const message: PublishMessage = { t: 'status', sequence: 4, status: STATUS }
  t.same(decodePublishMessage(encodePublishMessage(message)), message)
  t.same(decodeRecordEvent(encodeRecordEvent({ t: 'put', record: RECORD })), { t: 'put', record: RECORD })
  t.end()
})

t.test('how many connections are open', (t) => {
  const reported = (openConnections: OpenConnections | undefined): PublishMessage => {
    const value = { sequence: 1, status: { notImported: [], leftOut: 0, openConnections } }
    return decodePublishMessage(wire.PublishMessage.encode({ message: { $case: 'status', value } }).finish())
  }
  const rows: [name: string, openConnections: OpenConnections | undefined][] = [
    ['not known, or from an earlier release', undefined],
    ['none', { count: 0, atLeast: false }],
    ['some', { count: 12, atLeast: false }],
    ['at least so many', { count: 200_000, atLeast: true }],
    ['more than there can be: admission refuses it', { count: 2 ** 32 - 1, atLeast: false }],
  ]
  for (const [name, openConnections] of rows) {
    const status = { notImported: [], leftOut: 0, ...(openConnections === undefined ? {} : { openConnections }) }
    t.strictSame(reported(openConnections), { t: 'status', sequence: 1, status }, name)
    const message: PublishMessage = { t: 'status', sequence: 4, status }
    t.strictSame(decodePublishMessage(encodePublishMessage(message)), message, `${name}: there and back`)
  }
  t.end()
})

t.test('whom a join renumbers, and what breaks', (t) => {
  const milano = { cluster: 'milano', globalCIDRs: ['244.0.0.0/16'] }
  const rows: Renumbered[] = [
    milano,
    { ...milano, openConnections: { count: 0, atLeast: false } },
    { ...milano, openConnections: { count: MAX_OPEN_CONNECTIONS, atLeast: true } },
  ]
  for (const one of rows) {
    const look = { globalCIDRs: [], renumbered: [one] }
    t.strictSame(decodeJoinLook(encodeJoinLook(look)), look, JSON.stringify(one))
  }
  const absurd = { ...milano, openConnections: { count: MAX_OPEN_CONNECTIONS + 1, atLeast: false } }
  const answer = encodeJoinLook({ globalCIDRs: [], renumbered: [absurd] })
  t.throws(() => decodeJoinLook(answer), { message: /^renumbered\[0\]\.openConnections: count 2147483648/ })
  t.end()
})

t.test('a reason of a later release is counted, not refused', (t) => {
  const later = { ...SHOP, reason: 'MoonTooFull' }
  const bytes = wire.PublishMessage.encode({
    message: {
      $case: 'status',
      value: {
        sequence: 1,
        status: { notImported: [SHOP, later], leftOut: 3, openConnections: undefined, report: undefined },
      },
    },
  }).finish()
  t.same(decodePublishMessage(bytes), { t: 'status', sequence: 1, status: { notImported: [SHOP], leftOut: 4 } })
  t.end()
})

t.test('how the member does: from an earlier release, and from a later one', (t) => {
  const received = (report: wire.MemberReport | undefined): MemberStatus => {
    const value = { sequence: 1, status: { notImported: [], leftOut: 0, openConnections: undefined, report } }
    const message = decodePublishMessage(wire.PublishMessage.encode({ message: { $case: 'status', value } }).finish())
    if (message.t !== 'status') throw new Error(`it came as ${message.t}`)
    return message.status
  }
  t.strictSame(received(undefined), { notImported: [], leftOut: 0 }, 'an earlier release has none')
  const problem = { code: 'MoonTooFull', severity: 'tide', count: 2 }
  const report = { versions: ['9.0.0'], lanesUp: 1, lanes: 2, exports: 3, exportsFailed: 0, problems: [problem] }
  t.strictSame(received(report).report, {
    versions: ['9.0.0'],
    lanes: { up: 1, of: 2 },
    exports: { count: 3, failed: 0 },
    problems: [{ code: 'MoonTooFull', severity: 'degraded', count: 2 }],
  })
  const beyond: [field: RegExp, change: Partial<wire.MemberReport>][] = [
    [/report\.problems$/, { problems: Array.from({ length: 33 }, (_, i) => ({ ...problem, code: `C${i}` })) }],
    [/report\.versions$/, { versions: Array.from({ length: 9 }, (_, i) => `${i}`) }],
    [/report\.versions\[0\]$/, { versions: ['9'.repeat(64)] }],
    [/report\.problems\[0\]\.code$/, { problems: [{ ...problem, code: 'C'.repeat(64) }] }],
    [/report\.problems\[0\]\.severity$/, { problems: [{ ...problem, severity: 's'.repeat(64) }] }],
  ]
  for (const [field, change] of beyond)
    t.match(
      fieldOfRefusal(() => received({ ...report, ...change })),
      field,
    )
  t.end()
})

t.test('what is beyond the limits ends the stream', (t) => {
  const status = (notImported: wire.MemberStatus['notImported']): Uint8Array =>
    wire.PublishMessage.encode({
      message: {
        $case: 'status',
        value: { sequence: 1, status: { notImported, leftOut: 0, openConnections: undefined, report: undefined } },
      },
    }).finish()
  const rows: [name: string, bytes: Uint8Array, want: RegExp][] = [
    ['10,000 findings', status(Array.from({ length: 10_000 }, () => ({ ...SHOP }))), /^status$/],
    ['one too many', status(Array.from({ length: MAX_NOT_IMPORTED + 1 }, () => ({ ...SHOP }))), /notImported$/],
    ['64 KiB', status(Array.from({ length: 300 }, () => ({ ...SHOP, namespace: 'n'.repeat(250) }))), /^status$/],
    ['a slash', status([{ ...SHOP, namespace: 'a/b' }]), /namespace$/],
    ['no reason', status([{ ...SHOP, reason: '' }]), /reason$/],
  ]
  for (const [name, bytes, want] of rows) {
    t.match(refusedField(bytes), want, name)
  }
  t.end()
})

function refusedField(bytes: Uint8Array): string {
  return fieldOfRefusal(() => decodePublishMessage(bytes))
}

function fieldOfRefusal(decode: () => unknown): string {
  try {
    decode()
  } catch (error) {
    if (error instanceof CodecError) return error.field
    throw error
  }
  return 'taken'
}

/** A length-delimited field of protobuf with short content. */
function field(number: number, content: Uint8Array): Buffer {
  const tag = (number << 3) | 2
  const head = tag < 0x80 ? [tag] : [(tag & 0x7f) | 0x80, tag >> 7]
  return Buffer.concat([Buffer.from([...head, content.length]), content])
}

t.test('an agent of an earlier release skips the record', (t) => {
  // To that release, field 6 of RecordBody is as unknown as field 100 is to this one.
  const { cluster, namespace, name } = RECORD.key
  const { revision, createdAtMs } = RECORD
  const known = wire.StoredRecord.encode({ cluster, namespace, name, revision, createdAtMs, body: undefined }).finish()
  const body = field(6, field(100, Buffer.from([1, 2, 3])))
  t.equal(decodeRecordEvent(field(1, Buffer.concat([known, body]))), undefined)
  // Its removal comes with the name of its kind.
  const removal = wire.RecordEvent.encode({
    event: { $case: 'remove', value: { key: { ...RECORD.key, kind: 'MoonPhase' }, revision: 8 } },
  }).finish()
  t.equal(decodeRecordEvent(removal), undefined)
  t.end()
})

t.test('an agent of an earlier release, put back in place, reads the replica file', (t) => {
  const other: StoredRecord = {
    key: { cluster: PEER.cluster, kind: 'EndpointSlice', namespace: 'shop', name: 'web-1' },
    revision: 5,
    createdAtMs: 1,
    body: slice('web-1').body,
  }
  const replica = new Replica({
    epoch: 'e',
    revision: 7,
    records: [RECORD, other],
    unconfirmed: ['milano/MemberStatus//milano'],
    complete: [],
    departed: [],
  })
  const bytes = encodeReplica(replica)
  const again = decodeReplica(bytes)
  t.same([...again.records.keys()].sort(), ['milano/EndpointSlice/shop/web-1', 'milano/MemberStatus//milano'])
  t.same([...again.unconfirmed], ['milano/MemberStatus//milano'])
  const payload = wire.SavedReplica.decode(Buffer.from(bytes).subarray('sealane-replica-1\n'.length + 32))
  t.same(
    payload.records.map(({ body }) => body?.body?.$case),
    ['endpointSlice'],
    'the part that it knows has only kinds that it knows',
  )
  t.same(payload.unconfirmed, [1], 'beyond the part that it knows')
  t.end()
})

t.test('flags of the first messages are not there for whoever does not know them', (t) => {
  const declare: PublishMessage = { t: 'declare', setHash: new Uint8Array(32), count: 1 }
  t.same(decodePublishMessage(encodePublishMessage(declare)), declare)
  t.same(decodePublishReply(encodePublishReply({ t: 'inSync' })), { t: 'inSync' })
  t.same(decodePublishReply(encodePublishReply({ t: 'sendDigest', takesStatus: true })), {
    t: 'sendDigest',
    takesStatus: true,
  })
  t.end()
})

function session(broker: FakeBroker) {
  const link = inMemoryBroker(broker, PEER)
  const clock = new SystemClock()
  const deps = { connect: () => link.connect(), clock, logger: new CapturingLogger() }
  const publish = new PublishSession(deps, { retryMinMs: 1, retryMaxMs: 5 })
  return { link, publish }
}

t.test('told once on each stream, and when it changes', async (t) => {
  const broker = new FakeBroker()
  const { link, publish } = session(broker)
  const stop = new AbortController()
  const run = publish.run(stop.signal)
  publish.setDesired(byKey(slice('a')))
  publish.setStatus(STATUS)
  await publish.whenSettled(stop.signal)
  t.same(broker.statuses, [STATUS])
  publish.setStatus({ ...STATUS })
  publish.setStatus({ notImported: [], leftOut: 0 })
  await eventually(() => broker.statuses.length === 2)
  t.same(broker.statuses[1], { notImported: [], leftOut: 0 })
  link.cut()
  link.mend()
  await eventually(() => broker.statuses.length === 3, { say: 'the next broker may have lost its memory' })
  stop.abort()
  await run
})

t.test('a broker of an earlier release is told nothing, and keeps the stream', async (t) => {
  const broker = new FakeBroker()
  broker.takesStatus = false
  const { link, publish } = session(broker)
  const stop = new AbortController()
  const run = publish.run(stop.signal)
  publish.setDesired(byKey(slice('a')))
  publish.setStatus(STATUS)
  await publish.whenSettled(stop.signal)
  publish.setDesired(byKey(slice('a'), slice('b')))
  await eventually(() => broker.records.size === 2)
  await publish.whenSettled(stop.signal)
  t.notOk(
    broker.received.some((message) => message.t === 'status'),
    'a message that it does not know would end the stream',
  )
  t.equal(broker.openStreams, 1)
  // The broker is replaced by one of this release.
  broker.takesStatus = true
  link.cut()
  link.mend()
  await eventually(() => broker.statuses.length === 1)
  stop.abort()
  await run
})
