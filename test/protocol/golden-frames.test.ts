/**
 * The bytes of 0.1.0, recorded before anything was added to the wire. A broker and members of that release still run:
 * their messages must be decoded as before, and what they are sent must be these bytes. The file also has the bytes of
 * later additions, which must not change once they are released.
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

const FIRST = 'protocol/frames-0.1.0.txt'
const ADDED = 'protocol/frames-added.txt'
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

const ADDED_WATCH_REQUESTS: readonly WatchRequest[] = [
  { takes: ['zstd', 'owners'], followsAuthorities: true },
  { interest: { namespaces: new Set(), missing: new Set() } },
  { interest: { namespaces: new Set(['bank', 'shop']), missing: new Set() } },
  {
    resume: { epoch: 'e1', revision: 300 },
    interest: { namespaces: new Set(['a', 'bank', 'shop']), missing: new Set(['a', 'shop']) },
  },
]
const ADDED_WATCH: readonly WatchMessage[] = [
  { t: 'reset', epoch: 'e1', resumed: true, addresses: ['10.0.0.1:8443', '[2001:db8::1]:8443'], keepsToInterest: true },
  { t: 'added', events: [encodeRecordEvent({ t: 'put', record: stored })] },
  { t: 'exportedNamespaces', whole: true, added: ['bank', 'shop'], removed: [] },
  { t: 'exportedNamespaces', whole: false, added: [], removed: ['shop'] },
  {
    t: 'ownersChanged',
    revision: 302,
    complete: { added: ['osaka'], removed: ['milano'] },
    departed: { added: ['milano'], removed: [] },
  },
  { t: 'authorities', bundle: ['a'.repeat(64), 'b'.repeat(64)], signing: 'b'.repeat(64), withinMs: 600_000 },
  { t: 'contact', silent: [{ cluster: 'tokyo', forMs: 60_000 }], nowMs: 1_767_225_600_000 },
]
const ADDED_PUBLISH: readonly PublishMessage[] = [
  {
    t: 'status',
    sequence: 4,
    status: {
      notImported: [{ reason: 'NamespaceMissing', namespace: 'shop', name: 'web', cluster: 'paris' }],
      leftOut: 2,
      openConnections: { count: 7, atLeast: false },
      report: {
        versions: ['0.1.0', '0.2.0'],
        lanes: { up: 2, of: 3 },
        exports: { count: 9, failed: 1 },
        problems: [{ code: 'LaneDown', severity: 'degraded', count: 1 }],
      },
    },
  },
]

interface Frame {
  readonly what: string
  readonly bytes: Uint8Array
  readonly read: (bytes: Uint8Array) => unknown
  readonly message: unknown
}

interface Messages {
  readonly requests: readonly WatchRequest[]
  readonly watch: readonly WatchMessage[]
  readonly publish: readonly PublishMessage[]
  readonly replies: readonly PublishReply[]
}

const framesOf = ({ requests, watch, publish, replies }: Messages): readonly Frame[] => [
  ...requests.map((message) => ({
    what: 'watch request',
    message,
    bytes: messages.encodeWatchRequest(message),
    read: messages.decodeWatchRequest,
  })),
  ...watch.map((message) => ({
    what: `watch ${message.t}`,
    message,
    bytes: messages.encodeWatchMessage(message),
    read: messages.decodeWatchMessage,
  })),
  ...publish.map((message) => ({
    what: `publish ${message.t}`,
    message,
    bytes: messages.encodePublishMessage(message),
    read: messages.decodePublishMessage,
  })),
  ...replies.map((message) => ({
    what: `reply ${message.t}`,
    message,
    bytes: messages.encodePublishReply(message),
    read: messages.decodePublishReply,
  })),
]

const FRAMES: Readonly<Record<string, readonly Frame[]>> = {
  [FIRST]: framesOf({ requests: WATCH_REQUESTS, watch: WATCH, publish: PUBLISH, replies: REPLIES }),
  [ADDED]: framesOf({ requests: ADDED_WATCH_REQUESTS, watch: ADDED_WATCH, publish: ADDED_PUBLISH, replies: [] }),
}

/** The message as text, with bytes in hex wherever they are. */
function textOf(message: unknown): string {
  return JSON.stringify(message, (_, value: unknown) => {
    if (value instanceof Set) return [...(value as Set<unknown>)]
    return ArrayBuffer.isView(value) ? Buffer.from(value as Uint8Array).toString('hex') : value
  }).replaceAll(/{"type":"Buffer","data":\[([\d,]*)\]}/g, (_, bytes: string) =>
    JSON.stringify(Buffer.from(bytes.split(',').map(Number)).toString('hex')),
  )
}

for (const [file, frames] of Object.entries(FRAMES)) {
  t.test(`what is sent are the bytes of ${file}`, (t) => {
    const lines = frames.map(({ what, bytes }) => `${what} ${Buffer.from(bytes).toString('hex')}`)
    equalsGolden(t, `${lines.join('\n')}\n`, file)
    t.end()
  })

  t.test(`what comes as in ${file} is read as it was meant`, (t) => {
    const recorded = readFileSync(join(GOLDEN, file), 'utf8').trimEnd().split('\n')
    t.equal(recorded.length, frames.length)
    for (const [i, line] of recorded.entries()) {
      const frame = frames[i]
      const bytes = Buffer.from(line.slice(line.lastIndexOf(' ') + 1), 'hex')
      t.same(JSON.parse(textOf(frame?.read(bytes))), JSON.parse(textOf(frame?.message)), line)
    }
    t.end()
  })
}

t.test('an event of a batch is read as it was meant', (t) => {
  t.same(decodeRecordEvent(encodeRecordEvent({ t: 'put', record: stored })), { t: 'put', record: stored })
  t.end()
})
