/**
 * Floods against a broker, by clients made from protocol/broker.proto. Each continues until the signal, at a bounded
 * rate.
 */
import type { Client } from '@grpc/grpc-js'
import { randomBytes } from 'node:crypto'
import { type ClientHttp2Session, connect as connectHttp2, constants } from 'node:http2'
import { type Socket, connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect as connectTls } from 'node:tls'
import { BrokerService, type PublishMessage, WatchRequest } from '../../protocol/gen/broker.ts'
import { type RawBroker, type RawIdentity, callUnary, openChannel } from '../../test/hostile/support/raw-channel.ts'
import { joinBytes } from '../../test/hostile/support/raw-join.ts'
import { RawPublish } from '../../test/hostile/support/raw-publish.ts'
import { sayingRecord } from '../../test/hostile/support/raw-records.ts'
import { RawWatch } from '../../test/hostile/support/raw-watch.ts'

export interface FloodInit {
  readonly broker: RawBroker
  /** A member whose certificate the attacker has. */
  readonly member: RawIdentity
  readonly signal: AbortSignal
  /** How many connections one member opens. The default is 4,096. */
  readonly connections?: number
}

export type Flood = (init: FloodInit) => Promise<void>

const NAME = 'broker.sealane.internal'

/** Thirty connections that hold as many unfinished Join bodies of 4 MiB as they may; closed ones are opened again. */
const joinBodies: Flood = async ({ broker, signal }) => {
  const body = Buffer.alloc(5 + 4 * 1024 * 1024 - 1)
  body.writeUInt32BE(4 * 1024 * 1024, 1)
  await holding(30, signal, () => {
    const session = stranger(broker)
    for (let i = 0; i < 16; i += 1) request(session, BrokerService.join.path).write(body)
    return session
  })
}

/** Two thousand connections that begin a handshake and do not continue it. */
const handshakes: Flood = async ({ broker, signal }) => {
  const hello = Buffer.concat([Buffer.from([0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]), randomBytes(300)])
  await holding(2000, signal, () => {
    const socket = dial(broker)
    socket.write(hello)
    return socket
  })
}

/** A thousand connections a second that are reset as soon as they are established. */
const resets: Flood = async ({ broker, signal }) => {
  await paced(1000, signal, () => {
    const socket = dial(broker)
    socket.once('connect', () => socket.resetAndDestroy())
  })
}

/** Streams that are opened and reset at once, as many as one connection allows, over twenty connections at a time. */
const rapidReset: Flood = async ({ broker, signal }) => {
  await holding(20, signal, () => {
    const session = stranger(broker)
    const burst = (): void => {
      if (session.destroyed || session.closed || signal.aborted) return
      for (let i = 0; i < 50; i += 1) request(session, BrokerService.join.path).close(constants.NGHTTP2_CANCEL)
      setTimeout(burst, 5)
    }
    session.once('connect', burst)
    return session
  })
}

/** Joins with secrets of no token, over twenty connections, as fast as they are answered. */
const joins: Flood = async ({ broker, signal }) => {
  const one = async (): Promise<void> => {
    const request = await joinBytes(randomBytes(32).toString('base64url'), 'stranger')
    while (!isOver(signal)) {
      const channel = openChannel(broker)
      for (let i = 0; i < 50 && !isOver(signal); i += 1) {
        const answer = await callUnary(channel, BrokerService.join.path, request)
        if (!Buffer.isBuffer(answer) && answer.code === 14) break
      }
      channel.close()
      await sleep(20)
    }
  }
  await Promise.all(Array.from({ length: 20 }, one))
}

/** Slices of 27,000 addresses, each in another record. */
const slices: Flood = async ({ broker, member, signal }) => {
  const endpoints = Array.from({ length: 270 }, (_, i) => ({
    addresses: Array.from({ length: 100 }, (_, j) => `10.42.${i % 256}.${1 + j + 100 * Math.floor(i / 256)}`),
    zoneHints: [],
  }))
  const value = { service: 'web', addressType: 'IPv4', ports: [], endpoints }
  const record = (name: string) => ({
    namespace: 'shop',
    name,
    body: { body: { $case: 'endpointSlice' as const, value } },
  })
  await publishing({ broker, member, signal }, (sequence) => ({
    $case: 'put',
    value: { sequence, record: record(`web-${sequence}`) },
  }))
}

/** Up to a million records, each a new one. */
const records: Flood = async (init) => {
  await publishing(init, (sequence) => ({
    $case: 'put',
    value: { sequence, record: sayingRecord(`web-${sequence % 1_000_000}`) },
  }))
}

/** Reports of a member about itself, of 64 KiB and different each time. */
const statuses: Flood = async (init) => {
  await publishing(init, (sequence) => {
    const name = (i: number): string => `s${sequence}-${i}-${'x'.repeat(30)}`
    const notImported = Array.from({ length: 600 }, (_, i) => ({
      ...{ reason: 'NameTaken', namespace: 'shop', name: name(i), cluster: 'milano' },
    }))
    return { $case: 'status', value: { sequence, status: { notImported, leftOut: 0 } } }
  })
}

/** 4,096 connections of one member, each with a watch. */
const connections: Flood = async ({ broker, member, signal, connections: count = 4096 }) => {
  await holding(count, signal, () => {
    const session = asMember(broker, member)
    session.once('connect', () => void request(session, BrokerService.watch.path).end(Buffer.alloc(5)))
    return session
  })
}

/** As many watches as are allowed, which read nothing, while the same member keeps changing large records. */
const slowReaders: Flood = async ({ broker, member, signal }) => {
  const watching = holding(8, signal, () => {
    const session = connectHttp2(`https://${broker.address}`, {
      ...{ key: member.key, cert: member.cert, ca: member.ca, servername: NAME },
      settings: { initialWindowSize: 0 },
    })
    session.on('error', () => undefined)
    for (let i = 0; i < 8; i += 1) request(session, BrokerService.watch.path).end(Buffer.alloc(5))
    return session
  })
  const says = 'x'.repeat(4000)
  const publish = publishing({ broker, member, signal }, (sequence) => ({
    $case: 'put',
    value: { sequence, record: sayingRecord(`big-${sequence % 5000}`, `${sequence}${says}`) },
  }))
  await Promise.all([watching, publish])
}

/** Fifty clients with one member's certificate that reconnect each second for a whole snapshot. */
const reconnecting: Flood = async ({ broker, member, signal }) => {
  const one = async (): Promise<void> => {
    while (!signal.aborted) {
      const channel = openChannel(broker, member)
      new RawWatch(channel, () => undefined)
      await sleep(1000)
      channel.close()
    }
  }
  await Promise.all(Array.from({ length: 50 }, one))
}

/** An endless set that is changed as fast as the broker accepts it, and hundreds of watches on two more connections. */
const greedy: Flood = async (init) => {
  const { broker, member, signal } = init
  const watching = holding(2, signal, () => {
    const session = asMember(broker, member)
    session.once('connect', () => {
      for (let i = 0; i < 300; i += 1) request(session, BrokerService.watch.path).end(Buffer.alloc(5))
    })
    return session
  })
  const changing = publishing(init, (sequence) => {
    const record = sayingRecord(`web-${sequence % 60_000}`, `${'x'.repeat(1000)} ${sequence}`)
    return { $case: 'put', value: { sequence, record } }
  })
  await Promise.all([watching, changing])
}

/** Four connections that request 10,000 namespaces, never the same, as soon as they are answered; and 2,000 records. */
const interests: Flood = async (init) => {
  const { broker, member, signal } = init
  let asked = 0
  const asking = async (): Promise<void> => {
    const channel = openChannel(broker, member)
    while (!isOver(signal)) {
      const run = String((asked += 1)).padStart(6, '0')
      const names = Array.from({ length: 9999 }, (_, i) => `n${run}-${String(i).padStart(5, '0')}`)
      const interest = { namespaces: [...names, 'shop'], missing: [] }
      await new Promise<void>((resolve) => {
        const request = { resume: undefined, takes: ['zstd'], followsAuthorities: false, interest }
        const watch = new RawWatch(channel, () => undefined, WatchRequest.encode(request).finish())
        watch.call.once('data', () => watch.call.cancel())
        watch.call.once('status', resolve)
      })
    }
    channel.close()
  }
  const changing = publishing(init, (sequence) => {
    const record = sayingRecord(`web-${sequence % 2000}`, `${'x'.repeat(100)} ${sequence}`)
    return { $case: 'put', value: { sequence, record } }
  })
  await Promise.all([changing, ...Array.from({ length: 4 }, asking)])
}

export const FLOODS: Readonly<Record<string, Flood>> = {
  joinBodies,
  handshakes,
  resets,
  rapidReset,
  joins,
  slices,
  records,
  statuses,
  connections,
  slowReaders,
  reconnecting,
  greedy,
  interests,
}

function dial({ address }: RawBroker): Socket {
  const [host = '', port = ''] = address.split(':')
  return connect(Number(port), host).on('error', () => undefined)
}

function stranger(broker: RawBroker): ClientHttp2Session {
  return overTls(broker, {})
}

function asMember(broker: RawBroker, { key, cert }: RawIdentity): ClientHttp2Session {
  return overTls(broker, { key, cert })
}

function overTls({ address }: RawBroker, own: { readonly key?: string; readonly cert?: string }): ClientHttp2Session {
  const [host = '', port = ''] = address.split(':')
  const socket = connectTls({
    ...{ host, port: Number(port), servername: NAME, ALPNProtocols: ['h2'], rejectUnauthorized: false },
    ...own,
  })
  socket.on('error', () => undefined)
  const session = connectHttp2(`https://${address}`, { createConnection: () => socket })
  return session.on('error', () => undefined)
}

function request(session: ClientHttp2Session, path: string) {
  const headers = { ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' }
  return session.request(headers).on('error', () => undefined)
}

/** Keeps this many open: closed ones are opened again, at most 500 in a second. */
async function holding(
  count: number,
  signal: AbortSignal,
  open: () => { once(event: 'close', listener: () => void): unknown; destroy(): unknown },
): Promise<void> {
  const held = new Set<{ destroy(): unknown }>()
  await paced(500, signal, () => {
    if (held.size >= count) return
    const one = open()
    held.add(one)
    one.once('close', () => held.delete(one))
  })
  for (const one of held) one.destroy()
}

/** This is a function because the value changes during a wait. */
function isOver(signal: AbortSignal): boolean {
  return signal.aborted
}

async function paced(perSecond: number, signal: AbortSignal, work: () => void): Promise<void> {
  let due = performance.now()
  while (!signal.aborted) {
    for (; due <= performance.now(); due += 1000 / perSecond) work()
    await sleep(5)
  }
}

/** Sends a message for each sequence number as fast as the broker takes it; a stream that ends is opened again. */
async function publishing(
  { broker, member, signal }: FloodInit,
  message: (sequence: number) => PublishMessage['message'],
): Promise<void> {
  let channel: Client | undefined
  for (let sequence = 1; !signal.aborted;) {
    channel ??= openChannel(broker, member)
    const publish = await new RawPublish(channel).open().catch(() => undefined)
    while (publish !== undefined && publish.status === undefined && !isOver(signal)) {
      publish.replies.length = 0
      if (!publish.send(message((sequence += 1)))) await sleep(1)
      else if (sequence % 50 === 0) await sleep(0)
    }
    await sleep(50)
  }
  channel?.close()
}
