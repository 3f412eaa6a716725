/** Commands in containers over real sockets: their results, and servers that never answer. */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { type IncomingMessage, createServer as createHttpServer } from 'node:http'
import type { Duplex } from 'node:stream'
import { type AddressInfo, type Server, type Socket, createServer } from 'node:net'
import t, { type Test } from 'tap'
import { WebSocketServer } from 'ws'
import { type PodCommand, execInPod } from '../../../../kubeapi/kube/http/pod-exec.ts'
import type { RequestHeaders, ServerAccess } from '../../../../kubeapi/kube/server-access.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { reasonOf } from '../../../../runtime/errors.ts'
import { eventually } from '../../../support/eventually.ts'
import { failure } from '../../../support/failure.ts'
import { impersonationIn } from '../../../support/fake-api-server.ts'

const COMMAND = { namespace: 'shop', pod: 'web-0', container: 'web', command: ['echo', 'a b&c'] }

interface Listening {
  readonly url: string
  /** The sockets that are open. */
  readonly open: ReadonlySet<Socket>
}

async function listening(t: Test, server: Server): Promise<Listening> {
  const open = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    open.add(socket)
    // The data must be read, since a socket that is not read never sees the end.
    socket
      .on('error', () => undefined)
      .on('close', () => open.delete(socket))
      .resume()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    for (const socket of open) socket.destroy()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, open }
}

/** A server that accepts connections to commands; `talk` writes its answers. */
async function commands(
  t: Test,
  talk: (socket: Duplex) => void,
): Promise<Listening & { readonly asked: IncomingMessage[] }> {
  const asked: IncomingMessage[] = []
  const server = createHttpServer()
  server.on('upgrade', (request, socket) => {
    asked.push(request)
    const key = `${request.headers['sec-websocket-key'] ?? ''}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`
    const accept = createHash('sha1').update(key).digest('base64')
    const lines = ['101 Switching Protocols', 'Upgrade: websocket', 'Connection: Upgrade']
    const more = [`Sec-WebSocket-Accept: ${accept}`, 'Sec-WebSocket-Protocol: v5.channel.k8s.io']
    socket.write(`HTTP/1.1 ${[...lines, ...more].join('\r\n')}\r\n\r\n`)
    socket.on('end', () => socket.destroy()).resume()
    talk(socket)
  })
  return { ...(await listening(t, server)), asked }
}

/** One message of a stream, as a server frames it (RFC 6455 section 5.2). */
function frame(stream: number, text: string): Buffer {
  const payload = Buffer.concat([Buffer.of(stream), Buffer.from(text)])
  const size = Buffer.of(0x82, 126, payload.length >> 8, payload.length & 0xff)
  return Buffer.concat([size, payload])
}

const CLOSE = Buffer.of(0x88, 2, 0x03, 0xe8)

function run(
  clock: FakeClock,
  url: string,
  headers: RequestHeaders = {},
  signal = new AbortController().signal,
  more: Partial<PodCommand> = {},
) {
  const access: ServerAccess = {
    server: new URL(url),
    namespace: undefined,
    title: 'fake',
    credentials: () => Promise.resolve({ headers }),
    forget: () => undefined,
  }
  return execInPod({ clock, access }, { ...COMMAND, ...more }, signal)
}

t.test('what a command says, and how it ends', async (t) => {
  const place = await commands(t, (socket) => {
    const end = {
      status: 'Failure',
      reason: 'NonZeroExitCode',
      details: { causes: [{ reason: 'ExitCode', message: '3' }] },
    }
    socket.end(
      Buffer.concat([frame(1, 'one '), frame(2, 'oops'), frame(1, 'two'), frame(3, JSON.stringify(end)), CLOSE]),
    )
  })
  const clock = new FakeClock()
  const headers = { authorization: 'Bearer abc', 'impersonate-user': 'ben', 'impersonate-group': ['dev', 'ops'] }
  t.same(await run(clock, place.url, headers), { status: 3, stdout: 'one two', stderr: 'oops' })
  const [asked] = place.asked
  t.equal(
    asked?.url,
    '/api/v1/namespaces/shop/pods/web-0/exec?container=web&stdout=true&stderr=true&command=echo&command=a%20b%26c',
  )
  t.equal(asked?.headers.authorization, 'Bearer abc')
  t.same(impersonationIn(asked?.rawHeaders ?? []), [
    'impersonate-user: ben',
    'impersonate-group: dev',
    'impersonate-group: ops',
  ])
  t.same(clock.pending('timer'), [], 'no timer stays')
})

t.test('a server that accepts and says nothing', async (t) => {
  const place = await listening(t, createServer())
  const clock = new FakeClock()
  const failed = failure(run(clock, place.url))
  await eventually(() => place.open.size === 1)
  await clock.advance(10_000)
  const error = await failed
  t.equal(error.message, `exec Pod shop/web-0: the API server at ${place.url} did not answer within 10 s`)
  t.match(error, { code: 'Unavailable', reason: 'NoAnswer' })
  await eventually(() => place.open.size === 0, { say: 'the socket is closed' })
})

t.test('a login that does not end', async (t) => {
  const clock = new FakeClock()
  const access: ServerAccess = {
    server: new URL('https://a.example:6443'),
    namespace: undefined,
    title: 'fake',
    credentials: () => new Promise(() => undefined),
    forget: () => undefined,
  }
  const failed = failure(execInPod({ clock, access }, COMMAND, new AbortController().signal))
  await clock.advance(10_000)
  t.equal(
    (await failed).message,
    'exec Pod shop/web-0: the API server at https://a.example:6443 did not answer within 10 s',
  )
  const stop = new AbortController()
  const stopped = failure(execInPod({ clock, access }, COMMAND, stop.signal))
  stop.abort(new Error('stopped'))
  t.equal((await stopped).message, 'stopped')
  t.same(clock.pending('timer'), [], 'no timer stays')
})

t.test('a command that does not end', async (t) => {
  const place = await commands(t, (socket) => socket.write(frame(1, 'I work')))
  const clock = new FakeClock()
  const failed = failure(run(clock, place.url))
  await eventually(() => place.asked.length === 1)
  let error: Error | undefined
  void failed.then((one) => (error = one))
  // The answer to the handshake may still be on its way.
  await eventually(async () => {
    await clock.advance(5000)
    return error !== undefined
  })
  t.equal(error?.message, 'exec Pod shop/web-0: the command did not end within 60 s')
  await eventually(() => place.open.size === 0, { say: 'the socket is closed' })
})

t.test('a stop ends it at once', async (t) => {
  const place = await listening(t, createServer())
  const stop = new AbortController()
  const failed = failure(run(new FakeClock(), place.url, {}, stop.signal))
  await eventually(() => place.open.size === 1)
  stop.abort(new Error('stopped'))
  t.equal((await failed).message, 'stopped')
  t.equal((await failure(run(new FakeClock(), place.url, {}, stop.signal))).message, 'stopped', 'also before it began')
  await eventually(() => place.open.size === 0)
})

t.test('a login that fails, and one that the server does not take', async (t) => {
  let forgotten = 0
  const access: ServerAccess = {
    server: new URL('https://a.example:6443'),
    namespace: undefined,
    title: 'fake',
    credentials: () => Promise.reject(new Error('the plugin ended with 1')),
    forget: () => void (forgotten += 1),
  }
  const clock = new FakeClock()
  const error = await failure(execInPod({ clock, access }, COMMAND, new AbortController().signal))
  t.equal(
    error.message,
    'exec Pod shop/web-0: authentication at the API server https://a.example:6443 failed: the plugin ended with 1',
  )
  t.match(error, { name: 'KubeError', code: 'Unauthorized', reason: 'NoLogin' })
  t.equal(forgotten, 0)
  const place = await listening(
    t,
    createHttpServer((_request, response) => response.writeHead(401).end()),
  )
  const taken = { ...access, server: new URL(place.url), credentials: () => Promise.resolve({ headers: {} }) }
  const refused = await failure(execInPod({ clock, access: taken }, COMMAND, new AbortController().signal))
  t.match(refused, { name: 'KubeError', code: 'Unauthorized', status: 401 })
  t.equal(forgotten, 1, 'the next command asks for a new one')
  t.same(clock.pending('timer'), [], 'no timer stays')
})

t.test('refused, cut, nobody there', async (t) => {
  const status = { kind: 'Status', reason: 'Forbidden', message: 'pods "web-0" is forbidden' }
  const refusing = createHttpServer((_request, response) => response.writeHead(403).end(JSON.stringify(status)))
  const place = await listening(t, refusing)
  const refused = await failure(run(new FakeClock(), place.url))
  t.equal(refused.message, 'exec Pod shop/web-0: the API server says: pods "web-0" is forbidden (403 Forbidden)')
  t.match(refused, { code: 'Forbidden', status: 403 })
  const cutting = await commands(t, (socket) => socket.end(frame(1, 'half')))
  const cut = await failure(run(new FakeClock(), cutting.url))
  t.equal(cut.message, 'exec Pod shop/web-0: the connection ended before the command did')
  const nobody = await failure(run(new FakeClock(), 'http://127.0.0.1:1'))
  t.equal(
    nobody.message,
    'exec Pod shop/web-0: the API server at http://127.0.0.1:1 is unreachable: connect ECONNREFUSED 127.0.0.1:1',
  )
})

t.test('a command that fails has a reason, and only what may pass is worth another try', async (t) => {
  const cutting = await commands(t, (socket) => socket.end(frame(1, 'half')))
  const cut = await failure(run(new FakeClock(), cutting.url))
  t.equal(reasonOf(cut), 'ExecFailed')
  t.match(cut, { passing: true })
  const part = frame(1, 'x'.repeat(60_000))
  const talking = await commands(t, (socket) => socket.end(Buffer.concat([...Array<Buffer>(80).fill(part), CLOSE])))
  const long = await failure(run(new FakeClock(), talking.url))
  t.equal(long.message, 'exec Pod shop/web-0: more than 4194304 bytes of output')
  t.equal(reasonOf(long), 'TooLarge')
  t.match(long, { passing: false }, 'it is as long the next time')
})

t.test('what a command is given, and output that is taken as it comes', async (t) => {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', handleProtocols: () => 'v4.channel.k8s.io' })
  t.teardown(() => server.close())
  await once(server, 'listening')
  let asked = ''
  let heard = ''
  server.on('connection', (socket, request) => {
    asked = request.url ?? ''
    socket.on('message', (data: Buffer) => {
      t.equal(data[0], 0, 'it is standard input')
      heard += data.subarray(1).toString()
      // An older server cannot be told that the input has ended, so the command itself detects it.
      if (!heard.endsWith('.')) return
      socket.send(Buffer.concat([Buffer.of(1), Buffer.from('took ')]))
      socket.send(Buffer.concat([Buffer.of(1), Buffer.from(String(heard.length))]))
      socket.send(Buffer.concat([Buffer.of(3), Buffer.from('{"status":"Success"}')]))
      socket.close()
    })
  })
  async function* input(): AsyncGenerator<Buffer> {
    for (const word of ['one ', 'two ', '.']) yield await Promise.resolve(Buffer.from(word))
  }
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const clock = new FakeClock()
  let taken = ''
  const more = { input: input(), onStdout: (part: Buffer) => void (taken += part.toString()) }
  t.same(await run(clock, url, {}, undefined, more), { status: 0, stdout: '', stderr: '' })
  t.equal(taken, 'took 9')
  t.match(asked, /exec\?container=web&stdin=true&stdout=true&/)
  const full = {
    input: input(),
    onStdout: () => {
      throw new Error('the disk is full')
    },
  }
  heard = ''
  t.equal((await failure(run(clock, url, {}, undefined, full))).message, 'the disk is full')
  await eventually(() => clock.pending('timer').length === 0, { say: 'no timer stays' })
})
