/**
 * Encodes and decodes records. Decoders check types, sizes, counts and known words, and throw CodecError. The broker's
 * admission decides whether a record is allowed. Fields of later versions are ignored.
 */
import { MAX_EVENT_BYTES, MAX_RECORD_BYTES, type MemberKey, type RecordEvent } from '../protocol.ts'
import type {
  ClusterId,
  MemberRecord,
  MemberRecordKind,
  RecordBody,
  RecordKey,
  RecordKind,
  StoredRecord,
} from '../../model/model.ts'
import { CodecError, count, keyPart, oneOf, parseWire, present } from './codec-checks.ts'
import * as wire from '../gen/broker.ts'
import { MAX_ADDRESS_TEXT, pairBytes } from '../../model/grammar/grammar.ts'
import { MAX_PAIRS } from '../../model/values/values.ts'
import { bodyFromWire, bodyToWire } from './record-bodies.ts'

const MEMBER_KINDS: readonly MemberRecordKind[] = ['ServiceExport', 'EndpointSlice', 'Endpoint']
const RECORD_KINDS: readonly RecordKind[] = [...MEMBER_KINDS, 'Cluster', 'ClusterSetIP', 'MemberStatus', 'Topology']

/** Encodes an event for WatchMessage.batch. Throws CodecError if the record is too large. */
export function encodeRecordEvent(event: RecordEvent): Uint8Array {
  const bytes = wire.RecordEvent.encode({ event: eventToWire(event) }).finish()
  if (bytes.length > MAX_EVENT_BYTES) {
    throw new CodecError('event', `${bytes.length} bytes: expected at most ${MAX_EVENT_BYTES}`)
  }
  return bytes
}

/**
 * Encodes a put event like encodeRecordEvent(), from a body that bodyToBytes() has already encoded. Throws CodecError.
 */
export function encodePut({ key, revision, createdAtMs }: Omit<StoredRecord, 'body'>, body: Uint8Array): Uint8Array {
  const { cluster, namespace, name } = key
  const head = wire.StoredRecord.encode({ cluster, namespace, name, revision, createdAtMs, body: undefined }).finish()
  const record = Buffer.concat([head, fieldHead(STORED_BODY, body.length), body])
  const bytes = Buffer.concat([fieldHead(EVENT_PUT, record.length), record])
  if (bytes.length > MAX_EVENT_BYTES) {
    throw new CodecError('event', `${bytes.length} bytes: expected at most ${MAX_EVENT_BYTES}`)
  }
  return bytes
}

/** Encodes a body alone, to save memory where very many are stored. */
export function bodyToBytes(body: RecordBody): Uint8Array {
  return wire.RecordBody.encode(bodyToWire(body)).finish()
}

/** Throws CodecError. */
export function bodyFromBytes(bytes: Uint8Array): RecordBody {
  return bodyFromWire(
    parseWire('body', bytes, MAX_EVENT_BYTES, (b) => wire.RecordBody.decode(b)),
    'body',
  )
}

/** Numbers of the embedded message fields, in StoredRecord and in RecordEvent. */
const STORED_BODY = 6
const EVENT_PUT = 1

/** Returns the tag and length of a length-delimited field. */
function fieldHead(field: number, length: number): Buffer {
  const bytes = [(field << 3) | 2]
  let left = length
  for (; left > 0x7f; left >>>= 7) bytes.push((left & 0x7f) | 0x80)
  bytes.push(left)
  return Buffer.from(bytes)
}

/** Returns undefined for an event or a record kind of a later version. Throws CodecError. */
export function decodeRecordEvent(bytes: Uint8Array): RecordEvent | undefined {
  const { event } = parseWire('event', bytes, MAX_EVENT_BYTES, (b) => wire.RecordEvent.decode(b))
  if (event === undefined) return undefined
  if (event.$case === 'put') {
    if (event.value.body?.body === undefined) return undefined
    return { t: 'put', record: storedFromWire(event.value, 'record') }
  }
  const kind = event.value.key?.kind
  if (kind !== undefined && kind !== '' && !RECORD_KINDS.some((known) => known === kind)) return undefined
  const key = recordKeyFromWire(event.value.key, 'key')
  return { t: 'remove', key, revision: count(event.value.revision, 'revision') }
}

function eventToWire(event: RecordEvent): wire.RecordEvent['event'] {
  if (event.t === 'put') return { $case: 'put', value: storedToWire(event.record) }
  return { $case: 'remove', value: { key: { ...event.key }, revision: event.revision } }
}

/** Encodes a record for a store. Throws CodecError. */
export function encodeStoredRecord(record: StoredRecord): Uint8Array {
  return wire.StoredRecord.encode(storedToWire(record)).finish()
}

export function decodeStoredRecord(bytes: Uint8Array): StoredRecord {
  const record = parseWire('record', bytes, MAX_EVENT_BYTES, (b) => wire.StoredRecord.decode(b))
  return storedFromWire(record, 'record')
}

/** Throws CodecError if the record cannot be sent. A member checks this before it publishes. */
export function checkMemberRecord(record: MemberRecord): void {
  const asWire = memberRecordToWire(record)
  memberRecordFromWire(asWire, 'record')
  checkSize(wire.MemberRecord.encode(asWire).finish().length)
}

/**
 * Returns the bytes of the encoded record, of which MAX_RECORD_BYTES may be sent. Encodes only records with much content;
 * for others, it returns an upper bound.
 */
export function memberRecordBytes(record: MemberRecord): number {
  const bound = mostBytes(record)
  return bound <= MAX_RECORD_BYTES ? bound : wire.MemberRecord.encode(memberRecordToWire(record)).finish().length
}

/** The most bytes that the fields of a record may take, with the tags and lengths of the encoding. */
function mostBytes({ body }: MemberRecord): number {
  const fixed = 4096
  switch (body.kind) {
    case 'ServiceExport': {
      const { ports, exportedLabels, exportedAnnotations } = body
      const pairs = pairBytes(exportedLabels) + pairBytes(exportedAnnotations)
      return fixed + ports.length * PORT_BYTES + pairs + 2 * MAX_PAIRS * PAIR_HEAD_BYTES
    }
    case 'EndpointSlice': {
      const addresses = body.endpoints.reduce((sum, one) => sum + one.addresses.length, 0)
      const endpoints = body.endpoints.length * ENDPOINT_BYTES
      return fixed + body.ports.length * PORT_BYTES + addresses * (MAX_ADDRESS_TEXT + 2) + endpoints
    }
    case 'Endpoint':
      return fixed
  }
}

/** Bounds of the parts of a record: names of 253 characters and the like, with tags and lengths. */
const PORT_BYTES = 640
const ENDPOINT_BYTES = 1536
const PAIR_HEAD_BYTES = 12

export function memberRecordToWire(record: MemberRecord): wire.MemberRecord {
  return { namespace: record.namespace, name: record.name, body: bodyToWire(record.body) }
}

export function memberRecordFromWire(record: wire.MemberRecord | undefined, field: string): MemberRecord {
  const { namespace, name, body } = present(record, field)
  const decoded = bodyFromWire(body, `${field}.body`)
  if (!isOfMember(decoded)) {
    throw new CodecError(
      `${field}.body`,
      `${decoded.kind} records are the broker's: expected one of ${MEMBER_KINDS.join(', ')}`,
    )
  }
  return {
    namespace: keyPart(namespace, `${field}.namespace`, 0),
    name: keyPart(name, `${field}.name`, 1),
    body: decoded,
  }
}

/** False for records that the broker alone writes. */
function isOfMember(body: RecordBody): body is MemberRecord['body'] {
  return (MEMBER_KINDS as readonly RecordKind[]).includes(body.kind)
}

export function checkSize(bytes: number): void {
  if (bytes > MAX_RECORD_BYTES) throw new CodecError('record', `${bytes} bytes: expected at most ${MAX_RECORD_BYTES}`)
}

export function storedToWire(record: StoredRecord): wire.StoredRecord {
  const { cluster, namespace, name } = record.key
  const { revision, createdAtMs, body } = record
  return { cluster, namespace, name, revision, createdAtMs, body: bodyToWire(body) }
}

export function storedFromWire(record: wire.StoredRecord, field: string): StoredRecord {
  const body = bodyFromWire(record.body, `${field}.body`)
  return {
    key: {
      cluster: keyPart(record.cluster, `${field}.cluster`, 0) as ClusterId | '',
      kind: body.kind,
      namespace: keyPart(record.namespace, `${field}.namespace`, 0),
      name: keyPart(record.name, `${field}.name`, 1),
    },
    revision: count(record.revision, `${field}.revision`),
    createdAtMs: count(record.createdAtMs, `${field}.createdAtMs`),
    body,
  }
}

export function recordKeyFromWire(key: wire.RecordKey | undefined, field: string): RecordKey {
  const { cluster, kind, namespace, name } = present(key, field)
  return {
    cluster: keyPart(cluster, `${field}.cluster`, 0) as ClusterId | '',
    kind: oneOf(kind, `${field}.kind`, RECORD_KINDS),
    namespace: keyPart(namespace, `${field}.namespace`, 0),
    name: keyPart(name, `${field}.name`, 1),
  }
}

/** `minName` is 0 only if the key may be empty, as in the refusal of `facts`. */
export function memberKeyFromWire(key: wire.MemberKey | undefined, field: string, minName: 0 | 1 = 1): MemberKey {
  const { kind, namespace, name } = present(key, field)
  return {
    kind: oneOf(kind, `${field}.kind`, MEMBER_KINDS),
    namespace: keyPart(namespace, `${field}.namespace`, 0),
    name: keyPart(name, `${field}.name`, minName),
  }
}
