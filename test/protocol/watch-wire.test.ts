/** The additions of this release to Watch, which clients of the last release must not receive. */
import { randomBytes } from 'node:crypto'
import { Writable } from 'node:stream'
import type { ServerWritableStream } from '@grpc/grpc-js'
import t from 'tap'
import type { WatchMessage, WatchRequest } from '../../protocol/broker-api.ts'
import * as codec from '../../protocol/codec/messages-codec.ts'
import {
  type Interest as WireInterest,
  WatchMessage as WireMessage,
  WatchRequest as WireRequest,
  WatchMessage_Reset as WireReset,
} from '../../protocol/gen/broker.ts'
import { pack, unpack } from '../../protocol/codec/watch-codec.ts'
import { MAX_CLUSTERS, MAX_MESSAGE_BYTES } from '../../protocol/limits.ts'
import { Replica } from '../../protocol/replica/record-replica.ts'
import { decodeReplica, encodeReplica } from '../../protocol/replica/replica-file.ts'
import { RAW_SERVICE } from '../../protocol/transport/raw-service.ts'
import { PIECE_BYTES, WatchOutput, framed, passFrames } from '../../protocol/transport/watch-output.ts'

const batch: WatchMessage = { t: 'batch', events: [Buffer.from('one'), Buffer.from('two')], revision: 7 }
const packed = (message: WatchMessage): WatchMessage => ({
  t: 'packed',
  zstd: pack(codec.encodeWatchMessage(message)),
})

/** The Reset inside a message, as bytes. */
function resetOf(message: WatchMessage): Uint8Array {
  const read = WireMessage.decode(codec.encodeWatchMessage(message)).message
  if (read?.$case !== 'reset') throw new Error(`the message is ${String(read?.$case)}`)
  return WireReset.encode(read.value).finish()
}

t.test('what a member can read is asked for by words; others are skipped', (t) => {
  const resume = { epoch: 'e', revision: 3 }
  const request: WatchRequest = { resume, takes: ['zstd', 'owners'] }
  t.same(codec.decodeWatchRequest(codec.encodeWatchRequest(request)), request)
  const [old, young] = [codec.encodeWatchRequest({ resume }), codec.encodeWatchRequest(request)]
  t.same(
    Buffer.from(young).subarray(0, old.length),
    Buffer.from(old),
    'a broker of the last release reads the same, and a field behind it that it skips',
  )
  const later = codec.encodeWatchRequest({ resume, takes: ['zstd', 'teleport' as 'owners'] })
  t.same(codec.decodeWatchRequest(later), { resume, takes: ['zstd'] })
  t.same(codec.decodeWatchRequest(old), { resume }, 'one of the last release takes nothing')
  t.end()
})

t.test('a request that lasts holds no more memory than it has bytes', (t) => {
  for (const name of ['watch', 'join', 'renew', 'leave'] as const) {
    for (const size of [0, 1, 300, 100_000]) {
      // The buffer is a few bytes of a pool, as grpc-js passes it.
      const given = Buffer.concat([Buffer.alloc(size, 7)])
      const kept = RAW_SERVICE[name].requestDeserialize(given) as Buffer
      t.ok(kept.equals(given), `${name} of ${size}`)
      t.equal(kept.buffer.byteLength, size, `${name} of ${size} has no pool behind it`)
      given.fill(0)
      t.ok(kept.equals(Buffer.alloc(size, 7)), 'bytes of its own')
    }
  }
  t.end()
})

t.test('a packed message is read as what is in it', (t) => {
  const read = codec.decodeWatchMessage(codec.encodeWatchMessage(packed(batch)))
  t.same(read === undefined ? undefined : codec.encodeWatchMessage(read), codec.encodeWatchMessage(batch))
  const owners: WatchMessage = {
    t: 'ownersChanged',
    revision: 9,
    complete: { added: ['', 'milano'], removed: ['paris'] },
    departed: { added: [], removed: ['tokyo'] },
  }
  t.same(codec.decodeWatchMessage(codec.encodeWatchMessage(owners)), owners)
  t.end()
})

t.test('hostile packing', (t) => {
  const read = (zstd: Uint8Array): unknown => codec.decodeWatchMessage(codec.encodeWatchMessage({ t: 'packed', zstd }))
  t.throws(() => read(Buffer.from('no zstd')), { name: 'CodecError', field: 'packed', problem: 'no zstd' })
  const bomb = pack(Buffer.alloc(MAX_MESSAGE_BYTES + 1))
  t.ok(bomb.length < 2000)
  t.throws(() => read(bomb), { name: 'CodecError', problem: `more than ${MAX_MESSAGE_BYTES} bytes` })
  const twice = pack(codec.encodeWatchMessage(packed(batch)))
  t.throws(() => read(twice), { name: 'CodecError', problem: 'packed twice' })
  t.throws(() => read(pack(Buffer.from([0x12, 0xff]))), { name: 'CodecError' }, 'no message in it')
  t.equal(unpack(pack(Buffer.from('x')), 1).toString(), 'x')
  // The frame has no content, and asks for a window of 2^10 to 2^27 bytes (RFC 8878, section 3.1.1).
  const frame = (log: number) => Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0, (log - 10) << 3, 1, 0, 0])
  for (const log of [10, 20, 23]) t.equal(unpack(frame(log), 1).length, 0, `2^${log}`)
  for (const log of [24, 26, 27]) t.throws(() => unpack(frame(log), 1), { name: 'CodecError' }, `2^${log}`)
  t.end()
})

t.test('an interest is asked for in a field that a broker of the last release skips', (t) => {
  const resume = { epoch: 'e', revision: 3 }
  const interest = { namespaces: new Set(['shop', 'blue', 'red']), missing: new Set(['red']) }
  const bytes = codec.encodeWatchRequest({ resume, interest })
  t.same(codec.decodeWatchRequest(bytes), { resume, interest })
  const old = codec.encodeWatchRequest({ resume })
  t.same(Buffer.from(bytes).subarray(0, old.length), Buffer.from(old))
  const empty = { namespaces: new Set<string>(), missing: new Set<string>() }
  t.same(
    codec.decodeWatchRequest(codec.encodeWatchRequest({ interest: empty })),
    { interest: empty },
    'none is not all',
  )
  t.notOk('interest' in codec.decodeWatchRequest(old), 'one of the last release asks for all')
  for (const message of [
    { t: 'reset', epoch: 'e', resumed: true, keepsToInterest: true },
    { t: 'added', events: [Buffer.from('one'), Buffer.from('two')] },
    { t: 'exportedNamespaces', whole: true, added: ['blue', 'shop'], removed: [] },
    { t: 'exportedNamespaces', whole: false, added: [], removed: ['blue'] },
  ] as const satisfies readonly WatchMessage[])
    t.same(codec.decodeWatchMessage(codec.encodeWatchMessage(message)), message)
  t.end()
})

t.test('relays on port 443 are in a field that a member of the last release skips', (t) => {
  const relays = ['wss://relay.example/', `wss://192.0.2.1:8443/r#${'0a'.repeat(32)}`]
  const message: WatchMessage = { t: 'relays', relays }
  const bytes = Buffer.from(codec.encodeWatchMessage(message))
  t.same(codec.decodeWatchMessage(bytes), message)
  // Field 51 of the message, by its length. A field that this release does not know is what 51 is to the last one.
  const tag = (field: number): Buffer => Buffer.from([((field << 3) & 0x7f) | 0x82, field >> 4])
  t.same(bytes.subarray(0, 2), tag(51))
  const unknown = Buffer.concat([tag(61), bytes.subarray(2)])
  t.equal(codec.decodeWatchMessage(unknown), undefined, 'it is skipped, and does not end the watch')

  const reset: WatchMessage = { t: 'reset', epoch: 'e', resumed: true }
  for (const stated of [relays, []]) {
    const young: WatchMessage = { ...reset, relays: stated }
    const read = codec.decodeWatchMessage(codec.encodeWatchMessage(young))
    t.same(read, young)
    const { epoch, resumed, addresses, relays: field } = WireReset.decode(resetOf(young))
    const old = WireReset.encode({ epoch, resumed, addresses }).finish()
    t.same(Buffer.from(resetOf(young)).subarray(0, old.length), Buffer.from(old), 'all else is as it was')
    t.same(Buffer.from(resetOf(young)).subarray(old.length, old.length + 2), tag(51))
    t.same(field?.addresses, stated)
  }
  t.notOk('relays' in (codec.decodeWatchMessage(codec.encodeWatchMessage(reset)) ?? {}), 'none were ever stated')

  const odd = [
    ...relays,
    'ws://plain.example/',
    'wss://x@y/',
    'no address',
    `wss://${'x'.repeat(600)}/`,
    relays[0] ?? '',
  ]
  t.same(
    codec.decodeWatchMessage(codec.encodeWatchMessage({ t: 'relays', relays: odd })),
    message,
    'invalid addresses are left out',
  )
  t.end()
})

t.test('hostile interests', (t) => {
  const read = (interest: Partial<WireInterest>): unknown =>
    codec.decodeWatchRequest(
      WireRequest.encode({
        ...{ resume: undefined, takes: [], followsAuthorities: false },
        interest: { namespaces: [], missing: [], ...interest },
      }).finish(),
    )
  const rows: [what: string, Partial<WireInterest>, field: string][] = [
    ['twice', { namespaces: ['a', 'a'] }, 'interest.namespaces[1]'],
    ['not in order', { namespaces: ['b', 'a'] }, 'interest.namespaces[1]'],
    ['empty', { namespaces: [''] }, 'interest.namespaces[0]'],
    ['no label', { namespaces: ['a/b'] }, 'interest.namespaces'],
    ['capitals', { namespaces: ['Shop'] }, 'interest.namespaces'],
    ['a character that is none', { namespaces: ['\ud800'] }, 'interest.namespaces'],
    ['long', { namespaces: ['a'.repeat(64)] }, 'interest.namespaces'],
    ['very long', { namespaces: ['a'.repeat(100_000)] }, 'interest.namespaces[0]'],
    ['lacks what it does not name', { namespaces: ['a'], missing: [1] }, 'interest.missing[0]'],
    ['lacks more than it names', { namespaces: ['a'], missing: [0, 0] }, 'interest.missing'],
    ['lacks one twice', { namespaces: ['a', 'b'], missing: [1, 1] }, 'interest.missing[1]'],
    ['10,001', { namespaces: numbered(10_001) }, 'interest.namespaces'],
    ['a million', { namespaces: numbered(1_000_000) }, 'watch request'],
  ]
  for (const [what, interest, field] of rows) t.throws(() => read(interest), { name: 'CodecError', field }, what)
  t.doesNotThrow(() => read({ namespaces: numbered(10_000), missing: Array.from({ length: 10_000 }, (_, i) => i) }))
  t.end()
})

function numbered(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `n${String(i).padStart(6, '0')}`)
}

t.test('a message is framed once for all streams', (t) => {
  const frame = framed(batch)
  t.equal(framed(batch), frame)
  t.equal(frame.readUInt32BE(1), frame.length - 5)
  t.same(frame.subarray(5), Buffer.from(codec.encodeWatchMessage(batch)))
  const whole = { serializeMessage: () => frame, sendMessage: () => undefined, sendStatus: () => undefined }
  for (const gone of Object.keys(whole))
    t.throws(() => passFrames({ ...whole, [gone]: undefined }), /grpc-js has no serializeMessage, sendMessage or/, gone)
  t.doesNotThrow(() => passFrames(whole))
  t.end()
})

t.test('a frame goes out in pieces, each when the one before has gone', (t) => {
  const { call, sent, waiting } = fakeCall()
  for (const length of [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 7]) {
    const frame = randomBytes(length)
    let done = 0
    sent.length = 0
    call.sendMessage(frame, () => (done += 1))
    const pieces = Math.max(1, Math.ceil(length / PIECE_BYTES))
    for (let i = 1; i <= pieces; i += 1) {
      t.same([sent.length, done], [i, 0], `${length} octets`)
      waiting.shift()?.()
    }
    t.same([sent.length, done, Buffer.concat(sent).equals(frame)], [pieces, 1, true], `${length} octets`)
    t.ok(sent.every((piece) => piece.length <= PIECE_BYTES))
  }
  t.end()
})

t.test('a frame that is larger than a message may be is for grpc-js to refuse', (t) => {
  const { call, sent } = fakeCall()
  const largest = Buffer.alloc(5 + MAX_MESSAGE_BYTES)
  call.sendMessage(largest, () => undefined)
  call.sendMessage(Buffer.concat([largest, Buffer.alloc(1)]), () => undefined)
  t.same(
    sent.map(({ length }) => length),
    [PIECE_BYTES, largest.length + 1],
  )
  t.end()
})

t.test('nothing of a frame goes out after the status', (t) => {
  const { call, sent, waiting, statuses } = fakeCall()
  call.sendMessage(Buffer.alloc(3 * PIECE_BYTES), () => t.fail('it has not gone out'))
  call.sendStatus('DEADLINE_EXCEEDED')
  for (const flushed of waiting) flushed()
  t.same([sent.length, statuses], [1, ['DEADLINE_EXCEEDED']])
  t.end()
})

/** A call as grpc-js makes it, which passFrames() changes. */
function fakeCall() {
  const [sent, waiting, statuses]: [Buffer[], (() => void)[], unknown[]] = [[], [], []]
  const call = {
    serializeMessage: (frame: Buffer) => Buffer.concat([frame, frame]),
    sendMessage(frame: Buffer, flushed: () => void): void {
      sent.push(this.serializeMessage(frame))
      waiting.push(flushed)
    },
    sendStatus: (status: unknown) => void statuses.push(status),
  }
  passFrames(call)
  return { call, sent, waiting, statuses }
}

t.test('a reader that stands still has two messages, and not a copy of either', async (t) => {
  const taken: Buffer[] = []
  let go: () => void = () => undefined
  const stream = new Writable({
    objectMode: true,
    write: (chunk: Buffer, _encoding, done) => {
      taken.push(chunk)
      go = done
    },
  })
  const output = new WatchOutput(stream as unknown as ServerWritableStream<Buffer, Buffer>)
  const frame = framed(batch)
  output.write(frame)
  t.notOk(output.isFull)
  output.write(frame)
  t.ok(output.isFull, 'who writes has to wait')
  const room = output.room()
  go()
  await room
  t.notOk(output.isFull)
  t.ok(taken.every((one) => one === frame))
})

t.test('a clusterset of as many members as there may be, and the broker itself', (t) => {
  const complete = ['', ...Array.from({ length: MAX_CLUSTERS }, (_, i) => `c${i}`)]
  const departed = complete.slice(1)
  const synced: WatchMessage = { t: 'synced', revision: 9, complete, departed }
  t.same(codec.decodeWatchMessage(codec.encodeWatchMessage(synced)), synced)
  const change: WatchMessage = {
    t: 'ownersChanged',
    revision: 9,
    complete: { added: complete, removed: complete },
    departed: { added: departed, removed: departed },
  }
  t.same(codec.decodeWatchMessage(codec.encodeWatchMessage(change)), change)
  const replica = new Replica()
  replica.apply({ t: 'reset', epoch: 'e', resumed: false })
  replica.apply(synced)
  t.equal(decodeReplica(encodeReplica(replica)).complete.size, complete.length)
  for (const more of [{ complete: [...complete, 'x'] }, { departed: [...departed, 'x'] }])
    t.throws(() => codec.decodeWatchMessage(codec.encodeWatchMessage({ ...synced, ...more })), { name: 'CodecError' })
  t.end()
})
