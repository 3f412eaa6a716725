import { once } from 'node:events'
import { type Socket, connect } from 'node:net'
import { networkInterfaces } from 'node:os'
import t, { type Test } from 'tap'
import { serveStatus } from '../../../runtime/http/http-status.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../../runtime/component.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { eventually } from '../../support/eventually.ts'
import { failure, messageOf } from '../../support/failure.ts'

const clock = new SystemClock()

async function start(
  t: Test,
  status = new StatusBoard(),
): Promise<{ status: StatusBoard; get: (path: string, init?: RequestInit) => Promise<string>; port: number }> {
  const server = await serveStatus({ listen: ':0', status, metrics: createMetrics('test'), clock })
  t.teardown(() => server.close())
  t.equal(server.address.host, '127.0.0.1', 'loopback by default')
  const get = async (path: string, init?: RequestInit): Promise<string> => {
    const response = await fetch(`http://127.0.0.1:${server.address.port}${path}`, init)
    return `${response.status} ${await response.text()}`
  }
  return { status, get, port: server.address.port }
}

t.test('health and readiness', async (t) => {
  const { status, get } = await start(t)
  t.equal(await get('/healthz'), '200 ok\n')
  t.equal(await get('/readyz'), '200 ready\n')
  let reason: string | undefined = 'not synced'
  status.readiness('cluster', () => reason)
  status.readiness('lanes', () => undefined)
  t.equal(await get('/readyz'), '503 cluster: not synced\n')
  reason = undefined
  t.equal(await get('/readyz?verbose'), '200 ready\n')
})

t.test('plans, all or one', async (t) => {
  const { status, get } = await start(t)
  status.plan('nft', () => 'table ip sealane_node {}')
  status.plan('routes', () => 'ip route add …\n')
  t.equal(await get('/debug/plan'), '200 # nft\ntable ip sealane_node {}\n\n# routes\nip route add …\n')
  t.equal(await get('/debug/plan?name=nft'), '200 table ip sealane_node {}\n')
  t.equal(await get('/debug/plan?name=x'), '404 no plan "x"; plans are: nft, routes\n')
  status.plan('broken', () => {
    throw new Error('no plan yet')
  })
  t.equal(await get('/debug/plan'), '500 no plan yet\n')
})

t.test('what a process reports about itself, for programs', async (t) => {
  const { status, get } = await start(t)
  const said = async (): Promise<string> => (await get('/status')).replace(/"now":"[\d:.TZ-]+"/, '"now":NOW')
  t.equal(await said(), '200 {"ready":true,"now":NOW}\n')
  let broker: object | undefined = { watch: 'live' }
  status.report('part', () => 'agent')
  status.report('broker', () => broker)
  status.readiness('agent', () => 'waits')
  t.equal(await said(), '200 {"part":"agent","broker":{"watch":"live"},"ready":false,"now":NOW}\n')
  broker = undefined
  t.equal(await said(), '200 {"part":"agent","ready":false,"now":NOW}\n', 'nothing to say now')
})

t.test('metrics, strangers and wrong methods', async (t) => {
  const { get } = await start(t)
  t.match(await get('/metrics'), /^200 [^]*process_resident_memory_bytes/)
  t.equal(await get('/'), '404 try /healthz, /readyz, /status, /metrics or /debug/plan\n')
  t.equal(await get('//'), '404 try /healthz, /readyz, /status, /metrics or /debug/plan\n')
  t.equal(await get('/healthz', { method: 'POST' }), '405 only GET\n')
  t.equal(await get('/healthz', { method: 'HEAD' }), '200 ')
})

t.test('a taken port, a foreign address and nonsense are told plainly', async (t) => {
  const { port } = await start(t)
  const init = { status: new StatusBoard(), metrics: createMetrics('test'), clock }
  const error = await failure(serveStatus({ ...init, listen: `:${port}` }))
  t.equal(error.message, `status address 127.0.0.1:${port}: another process uses the port`)
  t.match(error, { name: 'UserError', hint: `find it with: ss -ltnp 'sport = :${port}'` })
  t.equal(
    await messageOf(serveStatus({ ...init, listen: '192.0.2.1:0' })),
    'status address 192.0.2.1:0: this machine has no such address',
  )
  t.equal(
    await messageOf(serveStatus({ ...init, listen: '127.0.0.1:http' })),
    'status address "127.0.0.1:http": expected a port from 0 to 65535',
  )
})

/** An address of this machine that is not loopback, as another pod would call it; undefined if there is none. */
function otherAddress(): string | undefined {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? [])
  return all.find(({ family, internal }) => family === 'IPv4' && !internal)?.address
}

const elsewhere = otherAddress()
const skip = elsewhere === undefined ? 'this machine has no address but loopback' : false

t.test('who asks from elsewhere gets metrics where an address is named, and no plan or reason', { skip }, async (t) => {
  const status = new StatusBoard()
  status.plan('wg', () => 'peer of 192.0.2.7')
  const init = { status, metrics: createMetrics('test'), clock }
  for (const listen of [`${elsewhere}:0`, '0.0.0.0:0']) {
    const server = await serveStatus({ ...init, listen })
    t.teardown(() => server.close())
    const ask = async (host: string, path: string): Promise<string> => {
      const response = await fetch(`http://${host}:${server.address.port}${path}`)
      return `${response.status} ${await response.text()}`
    }
    const far = (path: string): Promise<string> => ask(elsewhere ?? '', path)
    t.equal(await far('/healthz'), '200 ok\n')
    if (listen.startsWith('0.')) t.match(await far('/metrics'), /^403 metrics are available on loopback only/, listen)
    else t.match(await far('/metrics'), /^200 [^]*process_resident_memory_bytes/, listen)
    t.match(await far('/debug/plan'), /^403 plans contain addresses/)
    t.match(await far('/debug/plan?name=wg'), /^403 /)
    t.match(await far('//debug/plan'), /^404 try \/readyz/)
    t.match(await far('/debug/../debug/plan'), /^403 /)
    status.readiness('agent', () => 'no broker at 192.0.2.7')
    t.equal(await far('/readyz'), '503 not ready\n')
    status.readiness('agent', () => undefined)
    t.equal(await far('/readyz'), '200 ready\n')
    if (!listen.startsWith('0.')) continue
    t.match(await ask('127.0.0.1', '/debug/plan'), /^200 /, 'a forwarded port is loopback')
    t.match(await ask('127.0.0.1', '/metrics'), /^200 /)
  }
  for (const listen of ['[::]:0', '[0:0:0:0:0:0:0:0]:0', '0.0.0.0:0']) {
    for (const metricsFor of ['namedAddresses', 'everywhere'] as const) {
      const server = await serveStatus({ ...init, listen, metricsFor })
      t.teardown(() => server.close())
      const { status: code } = await fetch(`http://${elsewhere}:${server.address.port}/metrics`)
      t.equal(code, metricsFor === 'everywhere' ? 200 : 403, `${listen} ${metricsFor}`)
    }
  }
})

/** Returns everything that the server sends until it closes the connection. */
async function talk(port: number, send: (socket: Socket) => void): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  let heard = ''
  socket.on('data', (bytes: Buffer) => (heard += bytes.toString('latin1')))
  socket.on('error', () => undefined)
  send(socket)
  await new Promise((resolve) => socket.once('close', resolve))
  return heard
}

t.test('a client that is slow, large or silent is hung up on', async (t) => {
  const status = new StatusBoard()
  status.plan('large', () => 'x'.repeat(64 << 20))
  const limits = { headersMs: 300, answerMs: 600, idleMs: 300 }
  const server = await serveStatus({ listen: ':0', status, metrics: createMetrics('test'), clock, limits })
  t.teardown(() => server.close())
  const { port } = server.address
  t.match(
    await talk(port, (socket) => socket.write('GET /healthz HTTP/1.1\r\nhost: a\r\n')),
    /^(HTTP\/1.1 408|$)/,
    'half a request',
  )
  const large = `GET /healthz HTTP/1.1\r\nhost: a\r\nx: ${'y'.repeat(9000)}\r\n\r\n`
  t.match(await talk(port, (socket) => socket.write(large)), /^HTTP\/1.1 431/, 'headers of 9,000 octets')
  const idle = 'GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n'
  t.match(await talk(port, (socket) => socket.write(idle)), /^HTTP\/1.1 200[^]*ok\n/, 'nothing after the first request')
  const body = 'POST /healthz HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\nabc'
  t.match(await talk(port, (socket) => socket.write(body)), /^HTTP\/1.1 405/, 'a body that never ends')
  const got = await talk(port, (socket) => {
    socket.write('GET /debug/plan HTTP/1.1\r\nhost: a\r\n\r\n')
    // The client reads a little now and then, so that the connection is never idle.
    socket.pause()
    const sips = setInterval(() => {
      socket.resume()
      socket.once('data', () => socket.pause())
    }, 50)
    socket.once('close', () => clearInterval(sips))
  })
  t.ok(got.length < 64 << 20, 'a slow reader does not get to the end')
  t.equal(await (await fetch(`http://127.0.0.1:${port}/healthz`)).text(), 'ok\n', 'the next one is served')
})

t.test('the node of a pod has places of its own, which nobody else takes', async (t) => {
  const server = await serveStatus({
    listen: '0.0.0.0:0',
    status: new StatusBoard(),
    metrics: createMetrics('test'),
    clock,
    near: ['127.0.0.1'],
  })
  const { port } = server.address
  const from = async (localAddress: string): Promise<Socket> => {
    const socket = connect({ port, host: '127.0.0.1', localAddress })
    socket.on('error', () => undefined)
    await once(socket, 'connect')
    return socket.resume()
  }
  // A probe whose request is slow, and more callers than there are places, each from an address of its own.
  const probe = await from('127.0.0.1')
  const crowd: Socket[] = []
  for (let n = 1; n <= 200; n += 1) crowd.push(await from(`127.0.1.${n}`))
  await eventually(() => crowd.some(({ closed }) => closed), { say: 'strangers make room for strangers' })
  const answers = once(probe, 'close')
  probe.write('GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n')
  let answer = ''
  probe.on('data', (part: Buffer) => void (answer += part.toString()))
  await answers
  t.match(answer, 'HTTP/1.1 200 OK')
  // The node's own connections are bounded too, and take no place from other callers.
  const near: Socket[] = []
  for (let n = 0; n < 40; n += 1) near.push(await from('127.0.0.1'))
  await eventually(() => near.filter(({ closed }) => !closed).length <= 16, { say: '16 are held for the node' })
  t.equal(await (await fetch(`http://127.0.0.1:${port}/healthz`, CLOSING)).text(), 'ok\n')
  for (const socket of [...crowd, ...near]) socket.destroy()
  await server.close()
})

t.test('who is turned away gets no answer and no place, and its node is never turned away', async (t) => {
  const status = new StatusBoard()
  const metrics = createMetrics('test')
  const server = await serveStatus({ listen: '0.0.0.0:0', status, metrics, clock, near: ['127.0.0.1'] })
  t.teardown(() => server.close())
  const { port } = server.address
  const from = (localAddress: string): Socket => {
    const socket = connect({ port, host: '127.0.0.1', localAddress })
    return socket.on('error', () => undefined).resume()
  }
  const answerTo = async (localAddress: string): Promise<string> => {
    const socket = from(localAddress)
    let answer = ''
    socket.on('data', (part: Buffer) => void (answer += part.toString()))
    socket.write('GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n')
    await new Promise((resolve) => socket.once('close', resolve))
    return answer
  }
  // This caller is not the node and has sent half of a request, so it is the first to lose its place.
  const held = from('127.0.2.1')
  await once(held, 'connect')
  held.write('GET /healthz HTTP/1.1\r\n')
  status.turnAway((source) => source.startsWith('127.0.1.') || source === '127.0.0.1')
  for (let n = 1; n <= 100; n += 1) t.equal(await answerTo(`127.0.1.${n}`), '')
  t.equal(held.closed, false, 'nobody had to make room')
  t.match(await answerTo('127.0.2.2'), 'HTTP/1.1 200 OK')
  t.match(await answerTo('127.0.0.1'), 'HTTP/1.1 200 OK')
  t.match(await metrics.text(), /^sealane_status_turned_away_total\{.*\} 100$/m)
  held.destroy()
})

/** The kubelet makes each probe on a connection of its own. */
const CLOSING = { headers: { connection: 'close' } }

t.test('who holds all connections there are keeps nobody out, from one address or from many', async (t) => {
  for (const sources of [1, 64]) {
    const server = await serveStatus({
      listen: '0.0.0.0:0',
      status: new StatusBoard(),
      metrics: createMetrics('test'),
      clock,
    })
    const { port } = server.address
    const held: Socket[] = []
    let over = false
    const hold = async (n: number): Promise<void> => {
      const socket = connect({ port, host: '127.0.0.1', localAddress: `127.0.1.${1 + (n % sources)}` })
      socket.on('error', () => undefined)
      held.push(socket)
      await once(socket, 'connect')
      // Half of a request makes the server wait for the rest. A client that is cut off connects again.
      socket.write('GET /healthz HTTP/1.1\r\n')
      socket.on('close', () => {
        if (!over) void hold(n + 1).catch(() => undefined)
      })
    }
    for (let n = 0; n < 150; n += 1) await hold(n)
    for (let n = 0; n < 30; n += 1) {
      const [probe] = await Promise.all([fetch(`http://127.0.0.1:${port}/healthz`, CLOSING), hold(n)])
      t.equal(await probe.text(), 'ok\n', `${sources} addresses hold all, probe ${n}`)
    }
    over = true
    await eventually(() => held.filter(({ destroyed }) => !destroyed).length <= 64, {
      say: 'no more than that are held',
    })
    for (const socket of held) socket.destroy()
    await server.close()
  }
})
