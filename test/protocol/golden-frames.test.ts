/**
 * The bytes of 0.1.0, as they were recorded before anything was added to the wire. A broker and members of that release
 * are out there: what they send is read as it was, and what they are sent are these bytes.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { PublishMessage, PublishReply, WatchMessage, WatchRequest } from '../../protocol/broker-api.ts'
import type { StoredRecord } from '../../model/records.ts'
import * as messages from '../../protocol/codec/messages-codec.ts'
import { decodeRecordEvent, encodeRecordEvent } from '../../protocol/codec/records-codec.ts'
import { GOLDEN, equalsGolden } from '../support/golden.ts'
import { FACTS, slice } from './samples.ts'

const FILE = 'protocol/frames-0.1.0.txt'
const hash = Buffer.alloc(32, 7)
const key = { kind: 'EndpointSlice', namespace: 'shop', name: 'web-1' } as const
const stored = {
  key: { cluster: 'milano', ...key },
  revision: 300,
  createdAtMs: 1_767_225_600_000,
  body: slice('web-1').body,
} as StoredRecord

const WATCH_REQUESTS: readonly WatchRequest[] = [{}, { resume: { epoch: 'e1', revision: 2 ** 40 } }]
const WATCH: readonly WatchMessage[] = [
  { t: 'reset', epoch: 'e1', resumed: false },
  { t: 'reset', epoch: 'e1', resumed: true },
  { t: 'batch', events: [encodeRecordEvent({ t: 'put', record: stored })], revision: 300 },
  { t: 'synced', revision: 301, complete: ['', 'milano'], departed: ['paris'] },
  { t: 'contact', silent: [{ cluster: 'tokyo', forMs: 60_000 }] },
]
const PUBLISH: readonly PublishMessage[] = [
  { t: 'declare', setHash: hash, count: 3 },
  { t: 'declare', setHash: hash, count: 3, tellsStatus: true },
  { t: 'digest', entries: [{ key, hash }], last: true },
  { t: 'put', sequence: 1, record: slice('web-1') },
  { t: 'remove', sequence: 2 ** 40, key },
  { t: 'facts', sequence: 3, facts: FACTS },
]
const REPLIES: readonly PublishReply[] = [
  { t: 'inSync', takesStatus: true },
  { t: 'sendDigest' },
  { t: 'need', keys: [key] },
  { t: 'ack', sequence: 9 },
  { t: 'refused', sequence: 9, key, field: 'body', reason: 'InvalidValue', message: 'because' },
]

interface Frame {
  readonly what: string
  readonly bytes: Uint8Array
  readonly read: (bytes: Uint8Array) => unknown
  readonly message: unknown
}

const frames: readonly Frame[] = [
  ...WATCH_REQUESTS.map((message) => ({
    what: 'watch request',
    message,
    bytes: messages.encodeWatchRequest(message),
    read: messages.decodeWatchRequest,
  })),
  ...WATCH.map((message) => ({
    what: `watch ${message.t}`,
    message,
    bytes: messages.encodeWatchMessage(message),
    read: messages.decodeWatchMessage,
  })),
  ...PUBLISH.map((message) => ({
    what: `publish ${message.t}`,
    message,
    bytes: messages.encodePublishMessage(message),
    read: messages.decodePublishMessage,
  })),
  ...REPLIES.map((message) => ({
    what: `reply ${message.t}`,
    message,
    bytes: messages.encodePublishReply(message),
    read: messages.decodePublishReply,
  })),
]

/** Bytes in hex, whatever holds them. */
function textOf(message: unknown): string {
  return JSON.stringify(message, (_, value: unknown) =>
    ArrayBuffer.isView(value) ? Buffer.from(value as Uint8Array).toString('hex') : value,
  ).replaceAll(/{"type":"Buffer","data":\[([\d,]*)\]}/g, (_, bytes: string) =>
    JSON.stringify(Buffer.from(bytes.split(',').map(Number)).toString('hex')),
  )
}

t.test('what is sent to 0.1.0 are the bytes that it was sent', (t) => {
  const lines = frames.map(({ what, bytes }) => `${what} ${Buffer.from(bytes).toString('hex')}`)
  equalsGolden(t, `${lines.join('\n')}\n`, FILE)
  t.end()
})

t.test('what 0.1.0 sends is read as it was meant', (t) => {
  const recorded = readFileSync(join(GOLDEN, FILE), 'utf8').trimEnd().split('\n')
  t.equal(recorded.length, frames.length)
  for (const [i, line] of recorded.entries()) {
    const frame = frames[i]
    const bytes = Buffer.from(line.slice(line.lastIndexOf(' ') + 1), 'hex')
    t.same(JSON.parse(textOf(frame?.read(bytes))), JSON.parse(textOf(frame?.message)), line)
  }
  t.same(decodeRecordEvent(encodeRecordEvent({ t: 'put', record: stored })), { t: 'put', record: stored })
  t.end()
})
