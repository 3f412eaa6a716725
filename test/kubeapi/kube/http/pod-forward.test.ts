/** Connections to ports of pods over real sockets: data, back-pressure, ends and failures. */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type IncomingMessage, createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { type WebSocket, WebSocketServer } from 'ws'
import { PortChannels, dataMessages, forwardToPod } from '../../../../kubeapi/kube/http/pod-forward.ts'
import type { ServerAccess } from '../../../../kubeapi/kube/server-access.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { reasonOf } from '../../../../runtime/errors.ts'
import { eventually } from '../../../support/eventually.ts'
import { failure } from '../../../support/failure.ts'

const PORT = 9472
const TARGET = { namespace: 'shop', pod: 'web-0', port: PORT }
const HEAD = Buffer.of(PORT & 0xff, PORT >> 8)
const LINE = 'forward Pod shop/web-0 port 9472'

interface Forwarding {
  readonly url: string
  readonly asked: IncomingMessage[]
  /** The connections that are open. */
  readonly open: ReadonlySet<Duplex>
}

interface ForwardingInit {
  /** Talks for the node on a connection, after the node has sent the port on both channels. */
  readonly talk?: (socket: WebSocket) => void
  /** Returns the status and the body with which a request is refused. With status 0 there is no answer. */
  readonly refuse?: (request: IncomingMessage) => readonly [number, unknown] | undefined
}

async function forwarding(t: Test, { talk, refuse }: ForwardingInit): Promise<Forwarding> {
  const asked: IncomingMessage[] = []
  const open = new Set<Duplex>()
  const sockets = new WebSocketServer({ noServer: true })
  const server = createServer()
  server.on('upgrade', (request, connection, head) => {
    asked.push(request)
    open.add(connection)
    connection.on('error', () => undefined).on('close', () => open.delete(connection))
    const [status, body] = refuse?.(request) ?? [undefined]
    if (status === 0) connection.on('end', () => connection.destroy()).resume()
    else if (status !== undefined) {
      const text = JSON.stringify(body)
      connection.end(`HTTP/1.1 ${status} No\r\nContent-Length: ${text.length}\r\nConnection: close\r\n\r\n${text}`)
    } else {
      sockets.handleUpgrade(request, connection, head, (socket) => {
        socket.on('error', () => undefined)
        socket.send(Buffer.concat([Buffer.of(0), HEAD]))
        socket.send(Buffer.concat([Buffer.of(1), HEAD]))
        talk?.(socket)
      })
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    for (const connection of open) connection.destroy()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked, open }
}

function accessTo(url: string, token = (): string => 'abc', forget = (): void => undefined): ServerAccess {
  return {
    server: new URL(url),
    namespace: undefined,
    title: 'fake',
    credentials: () => Promise.resolve({ headers: { authorization: `Bearer ${token()}` } }),
    forget,
  }
}

function forward(url: string, clock = new FakeClock(), signal = new AbortController().signal): Promise<Duplex> {
  return forwardToPod({ clock, access: accessTo(url) }, TARGET, signal)
}

/** The error with which a stream ends. */
async function errorOf(stream: Duplex): Promise<Error> {
  return stream.errored ?? ((await once(stream, 'error')) as [Error])[0]
}

const data = (part: Buffer | string): Buffer => Buffer.concat([Buffer.of(0), Buffer.from(part)])

/** Lets sockets transfer as much as they can without a reader. */
async function someTurns(): Promise<void> {
  for (let turn = 0; turn < 300; turn += 1) await new Promise((resolve) => setImmediate(resolve))
}

t.test('large data both ways, until the pod ends the connection', async (t) => {
  const size = 4 << 20
  const place = await forwarding(t, {
    talk: (socket) => {
      let bytes = 0
      socket.on('message', (message: Buffer) => {
        if (message[0] !== 0 || message.length > 65_537) t.fail('it is data, in small messages')
        bytes += message.length - 1
        socket.send(data(message.subarray(1)))
        if (bytes === size) socket.close(1000)
      })
    },
  })
  const clock = new FakeClock()
  const stream = await forward(place.url, clock)
  const [asked] = place.asked
  t.equal(asked?.url, '/api/v1/namespaces/shop/pods/web-0/portforward?ports=9472')
  t.equal(asked?.method, 'GET')
  t.equal(asked?.headers['sec-websocket-protocol'], 'v4.channel.k8s.io')
  t.equal(asked?.headers.authorization, 'Bearer abc')
  const sent = randomBytes(size)
  const closed = once(stream, 'close')
  const got = buffer(stream)
  stream.write(sent.subarray(0, size / 2))
  stream.write(sent.subarray(size / 2))
  t.ok((await got).equals(sent))
  await closed
  t.equal(stream.errored, null)
  await eventually(() => place.open.size === 0)
  t.same(clock.pending('timer'), [], 'no timer stays')
})

t.test('a reader that does not read holds the pod up', async (t) => {
  const part = randomBytes(64 << 10)
  const place = await forwarding(t, {
    talk: (socket) => {
      for (let count = 0; count < 320; count += 1) socket.send(data(part))
      socket.close(1000)
    },
  })
  const stream = await forward(place.url)
  stream.read(0)
  await eventually(() => stream.readableLength > 0)
  await someTurns()
  t.ok(stream.readableLength < 1 << 20, `${stream.readableLength} bytes are held`)
  t.equal((await buffer(stream)).length, 320 * part.length, 'nothing is lost, also after the end')
})

t.test('a pod that does not read holds the writer up', async (t) => {
  const nodes: WebSocket[] = []
  let bytes = 0
  const place = await forwarding(t, {
    talk: (socket) => {
      nodes.push(socket)
      socket.pause()
      socket.on('message', (message: Buffer) => {
        bytes += message.length - 1
        if (bytes === 20 << 20) socket.close(1000)
      })
    },
  })
  const stream = await forward(place.url)
  for (let count = 0; count < 320; count += 1) stream.write(randomBytes(64 << 10))
  await someTurns()
  t.ok(stream.writableLength > 1 << 20, `${stream.writableLength} bytes wait`)
  t.ok(stream.writableNeedDrain)
  await eventually(() => nodes.length === 1)
  nodes[0]?.resume()
  await buffer(stream)
  t.equal(bytes, 20 << 20)
})

t.test('what a server refuses', async (t) => {
  const forbidden = { kind: 'Status', reason: 'Forbidden', message: 'pods "web-0" is forbidden' }
  const gone = { kind: 'Status', reason: 'NotFound', message: 'pods "web-0" not found' }
  for (const [status, body, code] of [
    [403, forbidden, 'Forbidden'],
    [404, gone, 'NotFound'],
  ] as const) {
    const clock = new FakeClock()
    const place = await forwarding(t, { refuse: () => [status, body] })
    const error = await failure(forward(place.url, clock))
    t.equal(error.message, `${LINE}: the API server says: ${body.message} (${status} ${body.reason})`)
    t.match(error, { name: 'KubeError', code, status })
    t.same(clock.pending('timer'), [], 'no timer stays')
  }
  const nobody = await failure(forward('http://127.0.0.1:1'))
  t.match(nobody, { code: 'Unavailable', reason: 'NoConnection' })
})

t.test('a login that the server does not take is made again', async (t) => {
  const place = await forwarding(t, {
    refuse: ({ headers }) => (headers.authorization === 'Bearer new' ? undefined : [401, { reason: 'Unauthorized' }]),
  })
  let token = 'old'
  const access = accessTo(
    place.url,
    () => token,
    () => (token = 'new'),
  )
  const open = () => forwardToPod({ clock: new FakeClock(), access }, TARGET, new AbortController().signal)
  t.match(await failure(open()), { code: 'Unauthorized', status: 401 })
  const stream = await open()
  stream.destroy()
  await eventually(() => place.open.size === 0, { say: 'the connection is closed' })
})

t.test('an error of the node', async (t) => {
  const text = 'error forwarding port 9472 to pod abc:\n connection refused'
  const place = await forwarding(t, {
    talk: (socket) => socket.send(Buffer.concat([Buffer.of(1), Buffer.from(text)])),
  })
  const stream = await forward(place.url)
  stream.resume()
  const error = await errorOf(stream)
  t.equal(error.message, `${LINE}: error forwarding port 9472 to pod abc: connection refused`)
  t.match(error, { name: 'KubeError', passing: true })
  t.equal(reasonOf(error), 'ForwardFailed')
  await eventually(() => place.open.size === 0)
})

t.test('a server that dies in between', async (t) => {
  const nodes: WebSocket[] = []
  const place = await forwarding(t, {
    talk: (socket) => {
      nodes.push(socket)
      socket.send(data('half'))
    },
  })
  const clock = new FakeClock()
  const stream = await forward(place.url, clock)
  t.equal(String((await once(stream, 'data'))[0]), 'half')
  nodes[0]?.terminate()
  t.equal((await errorOf(stream)).message, `${LINE}: the connection ended before the pod closed it`)
  t.same(clock.pending('timer'), [])
})

t.test('a server that ends the connection with an error code', async (t) => {
  const place = await forwarding(t, { talk: (socket) => socket.close(1011) })
  const stream = await forward(place.url)
  stream.resume()
  t.match(await errorOf(stream), { reason: 'ForwardFailed' })
})

t.test('messages that are not of this protocol', async (t) => {
  for (const [message, said] of [
    [Buffer.of(2, 1, 2), 'message of unknown channel 2'],
    [Buffer.alloc(0), 'message of unknown channel none'],
  ] as const) {
    const place = await forwarding(t, { talk: (socket) => socket.send(message) })
    const stream = await forward(place.url)
    stream.resume()
    t.equal((await errorOf(stream)).message, `${LINE}: ${said}`)
  }
  t.throws(() => new PortChannels(80).take(Buffer.of(0, 81, 0)), /^data of port 81$/)
})

t.test('a stop: before, in the handshake, and later', async (t) => {
  const stop = new AbortController()
  const silent = await forwarding(t, { refuse: () => [0, undefined] })
  const clock = new FakeClock()
  const opening = failure(forward(silent.url, clock, stop.signal))
  await eventually(() => silent.open.size === 1)
  stop.abort(new Error('stopped'))
  t.equal((await opening).message, 'stopped')
  await eventually(() => silent.open.size === 0, { say: 'the socket is closed' })
  t.equal((await failure(forward(silent.url, clock, stop.signal))).message, 'stopped')
  const later = new AbortController()
  const place = await forwarding(t, {})
  const stream = await forward(place.url, clock, later.signal)
  const ended = errorOf(stream)
  later.abort(new Error('enough'))
  t.equal((await ended).message, 'enough')
  await eventually(() => place.open.size === 0)
  t.same(clock.pending('timer'), [], 'no timer stays')
})

t.test('a server that accepts and says nothing', async (t) => {
  const place = await forwarding(t, { refuse: () => [0, undefined] })
  const clock = new FakeClock()
  const failed = failure(forward(place.url, clock))
  await eventually(() => place.open.size === 1)
  await clock.advance(10_000)
  const error = await failed
  t.equal(error.message, `${LINE}: the API server at ${place.url} did not answer within 10 s`)
  t.match(error, { code: 'Unavailable', reason: 'NoAnswer' })
  await eventually(() => place.open.size === 0, { say: 'the socket is closed' })
})

t.test('our side ends: the rest is read, and a silent pod is not waited for', async (t) => {
  const nodes: WebSocket[] = []
  const heard: string[] = []
  const place = await forwarding(t, {
    talk: (socket) => {
      nodes.push(socket)
      socket.on('message', (message: Buffer) => heard.push(message.subarray(1).toString()))
    },
  })
  const clock = new FakeClock()
  const stream = await forward(place.url, clock)
  stream.end('question')
  await once(stream, 'finish')
  await eventually(() => heard.length === 1)
  t.same(heard, ['question'])
  await clock.advance(9000)
  const next = once(stream, 'data')
  nodes[0]?.send(data('answer'))
  t.equal(String((await next)[0]), 'answer')
  await clock.advance(9000)
  t.equal(stream.errored, null, 'data begins the time again')
  const failed = errorOf(stream)
  await clock.advance(1000)
  t.equal((await failed).message, `${LINE}: the pod sent nothing for 10 s after our side had ended`)
  await eventually(() => place.open.size === 0)
  t.same(clock.pending('timer'), [])
})

t.test('what a pod sent before it ended is read, although our side still writes', async (t) => {
  const part = randomBytes(64 << 10)
  const place = await forwarding(t, {
    talk: (socket) => {
      for (let count = 0; count < 8; count += 1) socket.send(data(part))
      socket.close(1000)
    },
  })
  const stream = await forward(place.url)
  stream.read(0)
  await eventually(() => stream.readableLength > 0)
  await someTurns()
  stream.write('more')
  t.equal((await buffer(stream)).length, 8 * part.length)
})

t.test('framing: however a channel is divided into messages, its bytes are the same', (t) => {
  const parts = fc.array(fc.tuple(fc.constantFrom(0, 1), fc.uint8Array({ maxLength: 5 })), { maxLength: 20 })
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 65_535 }), parts, (port, list) => {
      const channels = new PortChannels(port)
      const expected = [Buffer.alloc(0), Buffer.alloc(0)]
      const got = [Buffer.alloc(0), Buffer.alloc(0)]
      const streams = [0, 1].map((channel) => {
        const payload = Buffer.concat(list.filter(([of]) => of === channel).map(([, bytes]) => bytes))
        expected[channel] = payload
        return Buffer.concat([Buffer.of(port & 0xff, port >> 8), payload])
      })
      const at = [0, 0]
      const deliver = (channel: number, size: number): void => {
        const stream = streams[channel] ?? Buffer.alloc(0)
        const from = at[channel] ?? 0
        at[channel] = Math.min(stream.length, from + size)
        const { channel: name, bytes } = channels.take(
          Buffer.concat([Buffer.of(channel), stream.subarray(from, at[channel])]),
        )
        const index = name === 'data' ? 0 : 1
        got[index] = Buffer.concat([got[index] ?? Buffer.alloc(0), bytes])
      }
      for (const [channel, { length }] of list) deliver(channel, length)
      for (const channel of [0, 1]) deliver(channel, Number.MAX_SAFE_INTEGER)
      return got.every((bytes, channel) => bytes.equals(expected[channel] ?? Buffer.alloc(0)))
    }),
  )
  t.end()
})

t.test('framing: messages to the pod carry all data, in order', (t) => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 200_000 }), (size) => {
      const sent = randomBytes(size)
      const messages = [...dataMessages(sent)]
      const whole = Buffer.concat(messages.map((message) => message.subarray(1)))
      return whole.equals(sent) && messages.every((message) => message[0] === 0 && message.length > 1)
    }),
    { numRuns: 30 },
  )
  t.end()
})
