/** Single checks with real sockets on loopback: healthy, dead, slow and hostile backends. */
import { once } from 'node:events'
import { createServer as createHttp, type RequestListener } from 'node:http'
import { createServer as createHttps } from 'node:https'
import { type AddressInfo, type Server, type Socket, createServer } from 'node:net'
import t, { type Test } from 'tap'
import { type CheckResult, backendChecker } from '../../../agent/backends/check-backend.ts'
import { parseBackendCheck } from '../../../model/services/backend-check.ts'
import { createKey } from '../../../protocol/identity/keys.ts'
import { createCa } from '../../../protocol/identity/x509.ts'
import { SystemClock } from '../../../reconcile/clock.ts'

const NEVER = new AbortController().signal
const check = backendChecker(new SystemClock())

async function listening(t: Test, server: Server, host = '127.0.0.1'): Promise<number> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => sockets.add(socket))
  server.listen(0, host)
  await once(server, 'listening')
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

function run(text: string, port: number, address = '127.0.0.1', signal = NEVER): Promise<CheckResult> {
  return check({ key: 'k', address, port, check: parseBackendCheck(text) }, signal)
}

const shown = (result: CheckResult): string =>
  result === undefined ? 'not run' : result.passed ? 'passed' : result.message

/** A raw server that answers every connection with these bytes. */
const raw = (text: string): Server =>
  createServer((socket) => {
    socket.on('error', () => undefined)
    socket.write(text)
  })

t.test('TCP: a listener passes, a closed port is refused, IPv6 too', async (t) => {
  const port = await listening(t, createServer())
  t.equal(shown(await run('tcp', port)), 'passed')
  const six = await listening(t, createServer(), '::1')
  t.equal(shown(await run('tcp', six, '::1')), 'passed')
  const closed = createServer()
  const gone = await listening(t, closed)
  closed.close()
  await once(closed, 'close')
  t.equal(shown(await run('tcp', gone)), 'connection refused')
})

t.test('HTTP: 200 to 399 passes, redirects are not followed, the rest is told by its number', async (t) => {
  const asked: string[] = []
  const answer: RequestListener = (request, response) => {
    asked.push(`${request.method ?? ''} ${request.url ?? ''} ${request.headers['user-agent'] ?? ''}`)
    const status = Number(request.url?.slice(1))
    response.writeHead(status, { Location: '/500' }).end('x'.repeat(10))
  }
  const port = await listening(t, createHttp(answer))
  const rows = [
    [200, 'passed'],
    [204, 'passed'],
    [302, 'passed'],
    [399, 'passed'],
    [400, 'HTTP status 400'],
    [404, 'HTTP status 404'],
    [503, 'HTTP status 503'],
  ] as const
  for (const [status, want] of rows) t.equal(shown(await run(`http:/${status}`, port)), want, `${status}`)
  t.same(
    asked,
    rows.map(([status]) => `GET /${status} sealane-check`),
    'one request each',
  )
})

t.test('HTTPS: the certificate is not verified, but TLS is wanted', async (t) => {
  const { certificate, key: ca } = await createCa({ clusterset: 'test', key: createKey(), nowMs: Date.now() })
  const cert = `-----BEGIN CERTIFICATE-----\n${Buffer.from(certificate).toString('base64')}\n-----END CERTIFICATE-----\n`
  const key = ca.export({ type: 'pkcs8', format: 'pem' })
  const port = await listening(
    t,
    createHttps({ key, cert }, (_request, response) => response.end('ok')),
  )
  t.equal(shown(await run('https:/healthz', port)), 'passed')
  const plain = await listening(
    t,
    createHttp((_request, response) => response.end('ok')),
  )
  t.not(shown(await run('https:/healthz', plain)), 'passed')
})

t.test('hostile backends: silence, no HTTP, endless headers, an endless body, an upgrade', async (t) => {
  const silent = await listening(t, createServer())
  const started = performance.now()
  t.equal(shown(await run('http:/ timeout=100ms', silent)), 'no answer within 100ms')
  t.ok(performance.now() - started < 5000, 'the timeout ends it')
  const rows: readonly (readonly [what: string, text: string, want: RegExp])[] = [
    ['SMTP', '220 mail.example ESMTP\r\n', /^no HTTP$/],
    ['control characters', '\u001b[2J\u0000\u0001', /^no HTTP$/],
    ['a header without end', `HTTP/1.1 200 OK\r\nA: ${'x'.repeat(100_000)}`, /^its HTTP header is too long$/],
    ['an unlimited body', `HTTP/1.1 200 OK\r\n\r\n${'x'.repeat(1_000_000)}`, /^passed$/],
    ['an upgrade', 'HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n', /^HTTP status 101$/],
    ['interim answers alone', 'HTTP/1.1 100 Continue\r\n\r\n', /^no answer within 300ms$/],
    ['status 999', 'HTTP/1.1 999 x\r\n\r\n', /^HTTP status 999$/],
  ]
  for (const [what, text, want] of rows) {
    t.match(shown(await run('http:/ timeout=300ms', await listening(t, raw(text)))), want, what)
  }
  const closing = await listening(
    t,
    createServer((socket) => void socket.destroy()),
  )
  t.match(shown(await run('http:/', closing)), /^connection reset$/)
})

t.test('a signal ends a check without a result', async (t) => {
  const stop = new AbortController()
  const port = await listening(t, createServer())
  const running = run('http:/ interval=10s timeout=10s', port, '127.0.0.1', stop.signal)
  stop.abort()
  t.equal(await running, undefined)
  t.equal(await run('tcp', port, '127.0.0.1', stop.signal), undefined, 'none starts afterwards')
})
