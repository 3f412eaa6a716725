/** Server and client of probes on the loopback of this machine, and what they make of answers of strangers. */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { callProbe, jitterOf, percentiles } from '../../../cli/status/verify/probe-client.ts'
import { serveProbe } from '../../../cli/status/verify/probe-server.ts'
import {
  type ProbeCall,
  type ProbeResult,
  type Target,
  datagramOf,
  parseCall,
  parseDatagram,
  parseHello,
  parseReceived,
  parseTcpRequest,
  readResult,
  tcpRequestLine,
} from '../../../cli/status/verify/probe-wire.ts'
import { FastClock } from '../../support/fast-clock.ts'
import { runCli, startCli } from '../run-cli.ts'

const RUN = '0123456789abcdef'

async function server(t: Test): Promise<Target> {
  const init = { run: RUN, member: 'c2', pod: 'sealane-probe-server', ports: [0, 0], host: '127.0.0.1' }
  const served = await serveProbe(init)
  t.teardown(() => served.close())
  return { host: '127.0.0.1', port: served.ports[0] ?? 0, family: 4 }
}

function call<Call extends ProbeCall>(one: Call, run = RUN): Promise<ProbeResult<Call['op']>> {
  // A call goes through the command line of a pod and back.
  const parsed = parseCall(JSON.stringify(one)) as Call
  return callProbe(parsed, { run, signal: new AbortController().signal }).then((result) =>
    readResult<Call['op']>(one.op, JSON.stringify(result)),
  )
}

t.test('every call is answered and measured', async (t) => {
  const to = await server(t)
  for (const protocol of ['tcp', 'udp'] as const) {
    const said = await call({ op: 'hello', protocol, to, tries: 1, timeoutMs: 5000 })
    t.match(said, { ok: true, value: { member: 'c2', pod: 'sealane-probe-server', from: '127.0.0.1' } }, protocol)
  }
  t.match(await call({ op: 'connect', to, timeoutMs: 5000 }), { ok: true })
  const bulk = await call({ op: 'bulk', to, bytes: 1 << 20, timeoutMs: 20_000 })
  t.match(bulk, { ok: true, value: { bytes: 1 << 20, isSame: true } })
  t.same(await call({ op: 'datagrams', to, sizes: [32_000, 1200] }), { ok: true, value: { passed: [32_000, 1200] } })
  const rate = await call({ op: 'throughput', to, streams: 2, seconds: 1 })
  t.ok(rate.ok && rate.value.bytes > 0 && rate.value.ms >= 1000, JSON.stringify(rate))
  const latency = await call({ op: 'latency', to, count: 20 })
  t.ok(latency.ok && latency.value.count === 20 && latency.value.p50 <= latency.value.p999)
  t.match(await call({ op: 'loss', to, count: 10, intervalMs: 1 }), { ok: true, value: { sent: 10, lost: 0 } })
  t.match(await call({ op: 'steady', to, seconds: 1, intervalMs: 100 }), { ok: true, value: { lost: 0 } })
})

t.test('calls that fail say how', async (t) => {
  const to = await server(t)
  const hello = { op: 'hello', protocol: 'tcp', to, tries: 1, timeoutMs: 3000 } as const
  t.match(await call(hello, 'f'.repeat(16)), { ok: false, failure: 'closed' }, 'another run')
  const udp = { ...hello, protocol: 'udp', timeoutMs: 100 } as const
  t.match(await call(udp, 'f'.repeat(16)), { ok: false, failure: 'timeout' }, 'another run over UDP')
  const free = { ...to, port: await freePort() }
  t.match(await call({ ...hello, to: free }), { ok: false, failure: 'refused' })
  const nobody = { op: 'resolve', name: 'web.invalid', dns: `127.0.0.1:${free.port}` } as const
  t.match(await call(nobody), { ok: false })
  const stranger = createServer((socket) => socket.end('{"run":"x"}\u001b[2J\n'))
  stranger.listen(0, '127.0.0.1')
  await once(stranger, 'listening')
  t.teardown(() => stranger.close())
  const at = { ...to, port: (stranger.address() as AddressInfo).port }
  t.match(await call({ ...hello, to: at }), { ok: false, failure: 'foreign' })
})

t.test('long round trips: as many as half a minute allows', async (t) => {
  const to = await server(t)
  const init = { run: RUN, signal: new AbortController().signal, clock: new FastClock(500) }
  const result = await callProbe({ op: 'latency', to, count: 20_000 }, init)
  t.match(result, { ok: true })
  t.ok(result.ok && result.value.count > 0 && result.value.count < 20_000, JSON.stringify(result))
})

t.test('calls go on until one is refused', async (t) => {
  let left = 2
  const inner = await server(t)
  const gate = createServer((socket) => {
    left -= 1
    if (left < 0) socket.destroy()
    else socket.pipe(connect(inner.port, '127.0.0.1')).pipe(socket)
    socket.on('error', () => undefined)
  })
  gate.listen(0, '127.0.0.1')
  await once(gate, 'listening')
  t.teardown(() => gate.close())
  const to = { ...inner, port: (gate.address() as AddressInfo).port }
  const said = await call({ op: 'refused', to, timeoutMs: 5000, limitMs: 60_000 })
  t.match(said, { ok: true, value: { failure: 'closed' } })
  t.equal(left, -1)
  const open = await call({ op: 'refused', to: inner, timeoutMs: 5000, limitMs: 1 })
  t.ok(open.ok && open.value.failure === undefined, 'still answered')
})

t.test('a resolver that is silent is the failure of the name', async (t) => {
  const silent = createSocket('udp4')
  silent.bind(0, '127.0.0.1')
  await once(silent, 'listening')
  t.teardown(() => silent.close())
  const dns = `127.0.0.1:${silent.address().port}`
  const to = { host: 'web.shop.svc.clusterset.local', port: 1, family: 4, dns } as const
  for (const protocol of ['tcp', 'udp'] as const) {
    const said = await call({ op: 'hello', protocol, to, tries: 1, timeoutMs: 50 })
    t.match(said, { ok: false, failure: 'no-name', message: /the resolver does not answer/ }, protocol)
  }
  t.match(await call({ op: 'connect', to, timeoutMs: 50 }), { ok: false, failure: 'no-name' })
})

async function freePort(): Promise<number> {
  const one = createServer().listen(0, '127.0.0.1')
  await once(one, 'listening')
  const { port } = one.address() as AddressInfo
  await new Promise((resolve) => one.close(resolve))
  return port
}

t.test('the server answers its own run alone, and never with more than it got', async (t) => {
  const { port } = await server(t)
  for (const text of [
    'GET / HTTP/1.1\r\n\r\n',
    'x'.repeat(4096),
    tcpRequestLine('f'.repeat(16), { op: 'sink', bytes: 0 }),
  ]) {
    const socket = connect({ port, host: '127.0.0.1' })
    let said = 0
    socket.on('data', (part: Buffer) => (said += part.length))
    socket.on('error', () => undefined)
    socket.write(text)
    await once(socket, 'close')
    t.equal(said, 0, text.slice(0, 20))
  }
  const socket = createSocket('udp4')
  t.teardown(() => socket.close())
  const answers: Buffer[] = []
  socket.on('message', (data) => answers.push(data))
  const short = datagramOf(RUN, { op: 'hello', sequence: 1 }, 60)
  const answered = datagramOf(RUN, { op: 'echo', sequence: 2 }, 60)
  answered.write('SLR1')
  const good = datagramOf(RUN, { op: 'echo', sequence: 3 }, 60)
  for (const data of [short, answered, good]) socket.send(data, port, '127.0.0.1')
  await once(socket, 'message')
  t.same(
    answers.map((data) => parseDatagram(data, RUN, 'answered')?.sequence),
    [3],
    'a hello that is too short, and the answer of another server, get none',
  )
  t.equal(answers[0]?.length, 60)
})

t.test('an interrupt ends a call with its own reason', async (t) => {
  const to = await server(t)
  const stop = new AbortController()
  const running = callProbe({ op: 'throughput', to, streams: 1, seconds: 60 }, { run: RUN, signal: stop.signal })
  stop.abort(new Error('interrupted'))
  await t.rejects(running, { message: 'interrupted' })
})

t.test('the hidden command serves until it is stopped', async (t) => {
  const port = await freePort()
  const words = ['--run', RUN, '--member', 'c2', '--pod', 'p', '--port', String(port)]
  const started = startCli(['probe', 'serve', ...words])
  await started.remarked(/answers on port/)
  const to = { host: '127.0.0.1', port, family: 4 } as const
  for (const protocol of ['tcp', 'udp'] as const) {
    const said = await call({ op: 'hello', protocol, to, tries: 1, timeoutMs: 5000 })
    t.match(said, { ok: true, value: { member: 'c2', from: '127.0.0.1' } }, protocol)
  }
  started.stop()
  t.equal((await started.result).code, 0)
})

t.test('the hidden command prints the result', async (t) => {
  const to = await server(t)
  const text = JSON.stringify({ op: 'connect', to, timeoutMs: 5000 })
  const { code, stdout } = await runCli(['probe', 'call', '--run', RUN, text])
  t.equal(code, 0)
  t.match(readResult('connect', stdout), { ok: true })
  const two = await runCli(['probe', 'call', '--run', RUN, text, text])
  t.equal(two.stdout.trim().split('\n').length, 2, 'a line for each call')
  const bad = await runCli(['probe', 'call', '--run', RUN, '{"op":"bulk","bytes":99999999}'])
  t.match(bad.stderr, /call: to nothing: expected host, port, family 4 or 6, and perhaps dns/)
  t.match((await runCli(['probe', 'call', '--run', 'x', text])).stderr, /--run "x": expected 16 hexadecimal digits/)
})

t.test('whatever another cluster answers is a result or a failed call', async (t) => {
  const texts = fc.oneof(fc.string({ unit: 'binary' }), fc.json())
  fc.assert(
    fc.property(texts, (text) => {
      parseHello(text, RUN)
      parseTcpRequest(text, RUN)
      parseDatagram(Buffer.from(text), RUN, 'asked')
      const received = parseReceived(text, 1000)
      const results = (['hello', 'resolve', 'throughput', 'steady'] as const).map((op) => readResult(op, text))
      return (received ?? 0) <= 1000 && results.every((one) => one.ok || one.message.length <= 200)
    }),
  )
  t.equal(parseReceived('{"received":5000}', 1000), 1000, 'never more than was sent')
  const hello = { run: RUN, member: 'c2', pod: 'p', from: '10.42.0.1' }
  t.match(parseHello(JSON.stringify(hello), RUN), { member: 'c2' })
  for (const bad of [{ member: 'A\u001b' }, { pod: 'x'.repeat(400) }, { from: 'nowhere' }, { run: 'other' }]) {
    t.equal(parseHello(JSON.stringify({ ...hello, ...bad }), RUN), undefined, JSON.stringify(bad))
  }
  const said = readResult(
    'hello',
    JSON.stringify({ ok: false, failure: 'mine', message: `\u001b[2J${'x'.repeat(999)}` }),
  )
  t.match(said, { ok: false, failure: 'other', message: /^\?\[2Jx+…$/ })
})

t.test('figures', async (t) => {
  const times = Array.from({ length: 1000 }, (_, i) => 1000 - i)
  t.same(percentiles(times), { p50: 500, p99: 990, p999: 999 })
  t.same(percentiles([]), { p50: 0, p99: 0, p999: 0 })
  t.equal(jitterOf([1, 3, 2]), 1.5)
  t.equal(jitterOf([1]), 0)
})
