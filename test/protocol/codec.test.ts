import fc from 'fast-check'
import t from 'tap'
import type { PublishMessage, PublishReply, WatchMessage } from '../../protocol/broker-api.ts'
import type { MemberRecord, StoredRecord } from '../../model/records.ts'
import { CodecError } from '../../protocol/codec/codec-checks.ts'
import { canonicalJson, contentHash, setHash, storedContentHash } from '../../protocol/codec/content-hash.ts'
import * as wire from '../../protocol/gen/broker.ts'
import * as messages from '../../protocol/codec/messages-codec.ts'
import * as records from '../../protocol/codec/records-codec.ts'
import { decodeReplica } from '../../protocol/replica/replica-file.ts'
import { anyMemberRecord, anyStoredRecord } from './arbitraries.ts'
import { FACTS, slice } from './samples.ts'

const hash = Buffer.alloc(32, 7)

t.test('records survive the wire, and so does their hash', (t) => {
  fc.assert(
    fc.property(anyStoredRecord, (record: StoredRecord) => {
      const event = records.decodeRecordEvent(records.encodeRecordEvent({ t: 'put', record }))
      t.strictSame(canonicalJson(event), canonicalJson({ t: 'put', record }))
      const back = records.decodeStoredRecord(records.encodeStoredRecord(record))
      return Buffer.from(storedContentHash(back)).equals(storedContentHash(record))
    }),
    { numRuns: 300 },
  )
  t.end()
})

t.test('a put survives the wire', (t) => {
  fc.assert(
    fc.property(anyMemberRecord, fc.nat(), (record: MemberRecord, sequence) => {
      records.checkMemberRecord(record)
      const message: PublishMessage = { t: 'put', sequence, record }
      const back = messages.decodePublishMessage(messages.encodePublishMessage(message))
      return (
        canonicalJson(back) === canonicalJson(message) &&
        back.t === 'put' &&
        Buffer.from(contentHash(back.record)).equals(contentHash(record))
      )
    }),
    { numRuns: 300 },
  )
  t.end()
})

t.test('every message survives the wire', (t) => {
  const key = { kind: 'EndpointSlice', namespace: 'shop', name: 'web-1' } as const
  const publish: PublishMessage[] = [
    { t: 'declare', setHash: hash, count: 3 },
    { t: 'digest', entries: [{ key, hash }], last: true },
    { t: 'put', sequence: 1, record: slice('web-1') },
    { t: 'remove', sequence: 2 ** 40, key },
    { t: 'facts', sequence: 3, facts: FACTS },
  ]
  for (const message of publish) t.same(messages.decodePublishMessage(messages.encodePublishMessage(message)), message)
  const replies: PublishReply[] = [
    { t: 'inSync' },
    { t: 'inSync', takesStatus: true, keepsToOffers: true },
    { t: 'sendDigest' },
    { t: 'need', keys: [key] },
    { t: 'ack', sequence: 9 },
    { t: 'refused', sequence: 9, key, field: 'body', reason: 'InvalidValue', message: 'because' },
    {
      t: 'refused',
      sequence: 9,
      key: { kind: 'Endpoint', namespace: '', name: '' },
      field: 'facts',
      reason: 'RangesOverlap',
      message: 'no',
    },
  ]
  for (const reply of replies) t.same(messages.decodePublishReply(messages.encodePublishReply(reply)), reply)
  const watch: WatchMessage[] = [
    { t: 'reset', epoch: 'e1', resumed: true },
    { t: 'reset', epoch: 'e1', resumed: true, accessDefault: 'deny' },
    { t: 'access', accessDefault: 'allow' },
    { t: 'batch', events: [Buffer.from('x')], revision: 2 ** 45 },
    { t: 'synced', revision: 7, complete: ['', 'milano'], departed: [] },
    { t: 'contact', silent: [] },
    { t: 'contact', silent: [{ cluster: 'milano', forMs: 2 ** 45 }], nowMs: 1_767_225_600_000 },
  ]
  for (const message of watch) t.same(messages.decodeWatchMessage(messages.encodeWatchMessage(message)), message)
  t.same(messages.decodeWatchRequest(messages.encodeWatchRequest({})), {})
  const resume = { resume: { epoch: 'e1', revision: 12 } }
  t.same(messages.decodeWatchRequest(messages.encodeWatchRequest(resume)), resume)
  const remove = { t: 'remove', key: { cluster: 'milano', ...key }, revision: 5 } as never
  t.same(records.decodeRecordEvent(records.encodeRecordEvent(remove)), remove)
  t.end()
})

t.test('what is beyond the limits is named', (t) => {
  const record = slice('web-1')
  const body = record.body as MemberRecord['body'] & { kind: 'EndpointSlice' }
  const port = { name: 'http', protocol: 'TCP' as const, port: 80 }
  const cases: [MemberRecord, string][] = [
    [{ ...record, name: 'x'.repeat(254) }, 'record.name: 254 characters: expected at most 253'],
    [{ ...record, name: '' }, 'record.name: empty: expected a value'],
    [{ ...record, name: 'a/b' }, `record.name: "a/b": expected no '/'`],
    [
      { ...record, body: { ...body, ports: Array.from({ length: 20_001 }, () => port) } },
      'record.body.ports: 20001 entries: expected at most 20000',
    ],
    [
      { ...record, body: { ...body, ports: [{ ...port, port: 65_536 }] } },
      'record.body.ports[0].port: 65536: expected a whole number from 1 to 65535',
    ],
    [
      { ...record, body: { ...body, ports: [{ ...port, protocol: 'ICMP' as never }] } },
      'record.body.ports[0].protocol: "ICMP": expected one of TCP, UDP, SCTP',
    ],
    [
      { ...record, body: { ...body, addressType: 'FQDN' as never } },
      'record.body.addressType: "FQDN": expected one of IPv4, IPv6',
    ],
    [
      { ...record, body: { ...body, endpoints: [{ addresses: ['x'.repeat(65)] }] } },
      'record.body.endpoints[0].addresses[0]: 65 characters: expected at most 64',
    ],
    [{ ...record, body: { ...body, service: 'half \ud800' } }, 'record.body.service: not valid Unicode text'],
    [
      { ...record, body: { kind: 'ClusterSetIP', ips: ['245.0.0.1'] } as never },
      "record.body: ClusterSetIP records are the broker's: expected one of ServiceExport, EndpointSlice, Endpoint",
    ],
    [
      {
        ...record,
        body: {
          ...body,
          endpoints: Array.from({ length: 1000 }, (_, i) => ({
            addresses: Array.from({ length: 100 }, (_, j) => `10.${i >> 8}.${i & 255}.${j}`),
          })),
        },
      },
      'record: 1249048 bytes: expected at most 524288',
    ],
  ]
  for (const [bad, want] of cases) t.throws(() => records.checkMemberRecord(bad), { name: 'CodecError', message: want })
  const oversized: [() => unknown, string][] = [
    [
      () => messages.decodePublishMessage(Buffer.alloc(5 * 1024 * 1024)),
      'publish message: 5242880 bytes: expected at most 4194304',
    ],
    [() => messages.decodeJoinRequest(Buffer.alloc(65 * 1024)), 'join request: 66560 bytes: expected at most 65536'],
    [
      () => messages.encodeWatchMessage({ t: 'batch', events: [Buffer.alloc(5_000_000)], revision: 1 }),
      'message: 5000012 bytes: expected at most 4194304',
    ],
  ]
  for (const [act, want] of oversized) t.throws(act, { message: new RegExp(`^${want}$`) }, want)
  t.end()
})

t.test('later versions may say more', (t) => {
  // This is field 99, length-delimited, with the text "new".
  const unknown = Buffer.from([0x9a, 0x06, 0x03, 0x6e, 0x65, 0x77])
  const message: PublishMessage = { t: 'put', sequence: 1, record: slice('web-1') }
  t.same(messages.decodePublishMessage(Buffer.concat([messages.encodePublishMessage(message), unknown])), message)
  t.equal(messages.decodePublishReply(unknown), undefined)
  t.equal(messages.decodeWatchMessage(unknown), undefined)
  t.equal(records.decodeRecordEvent(unknown), undefined)
  const newKind = wire.RecordEvent.encode({
    event: { $case: 'remove', value: { key: { cluster: 'a', kind: 'Policy', namespace: '', name: 'x' }, revision: 1 } },
  }).finish()
  t.equal(records.decodeRecordEvent(newKind), undefined)
  t.throws(() => messages.decodePublishMessage(unknown), { name: 'CodecError', message: 'publish message: missing' })
  t.end()
})

t.test('bytes that nobody meant never crash a decoder', (t) => {
  const decoders: ((bytes: Uint8Array) => unknown)[] = [
    records.decodeRecordEvent,
    records.decodeStoredRecord,
    messages.decodeJoinRequest,
    messages.decodeJoinResponse,
    messages.decodeJoinLook,
    messages.decodeRenewRequest,
    messages.decodeRenewResponse,
    messages.decodePublishMessage,
    messages.decodePublishReply,
    messages.decodeWatchRequest,
    messages.decodeWatchMessage,
    decodeReplica,
  ]
  const seeds = [
    messages.encodePublishMessage({ t: 'put', sequence: 1, record: slice('web-1') }),
    messages.encodePublishMessage({ t: 'facts', sequence: 1, facts: FACTS }),
    messages.encodeJoinRequest({ secret: 's', cluster: 'milano', csr: hash, facts: FACTS, nowMs: 1 }),
    messages.encodeWatchMessage({ t: 'synced', revision: 7, complete: ['milano'], departed: [] }),
  ]
  const tolerant = (decode: (bytes: Uint8Array) => unknown, bytes: Uint8Array): boolean => {
    try {
      decode(bytes)
      return true
    } catch (error) {
      return error instanceof CodecError
    }
  }
  const mutated = fc
    .tuple(
      fc.constantFrom(...seeds),
      fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 8 }),
      fc.nat(),
    )
    .map(([seed, changes, cut]) => {
      const bytes = Uint8Array.from(seed)
      for (const [at, value] of changes) bytes[at % bytes.length] = value
      return cut % 4 === 0 ? bytes.subarray(0, cut % bytes.length) : bytes
    })
  const bytes = fc.oneof(fc.uint8Array({ maxLength: 300 }), mutated)
  fc.assert(
    fc.property(bytes, (b) => decoders.every((decode) => tolerant(decode, b))),
    { numRuns: 20_000 },
  )
  t.end()
})

t.test('hashes say what differs and nothing else', (t) => {
  const a = slice('web-1')
  const reordered = { body: { ...a.body }, name: a.name, namespace: a.namespace }
  t.same(contentHash(a), contentHash(reordered))
  t.notSame(contentHash(a), contentHash({ ...a, name: 'web-2' }))
  t.notSame(contentHash(a), contentHash(slice('web-1', '10.42.0.8')))
  const body = a.body as MemberRecord['body'] & { kind: 'EndpointSlice' }
  t.notSame(
    contentHash({ ...a, body: { ...body, endpoints: [{ addresses: ['10.42.0.7'] }] } }),
    contentHash({ ...a, body: { ...body, endpoints: [{ addresses: ['10.42.0.7'], conditions: {} }] } }),
    'absent and empty differ',
  )
  const [x, y] = [contentHash(a), contentHash(slice('web-2'))]
  t.same(setHash([x, y]), setHash([y, x]))
  t.notSame(setHash([x]), setHash([x, y]))
  t.equal(Buffer.from(setHash([])).toString('hex'), 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')
  t.end()
})
