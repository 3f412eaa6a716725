import { type Socket, createSocket } from 'node:dgram'
import { once } from 'node:events'
import { type Server, createServer } from 'node:net'
import t, { type Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import { Forwarder } from '../../../dns/forward/forwarder.ts'
import { dnsConfig } from '../../../dns/config/dns-config.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { askTcp, askUdp, startDns } from '../dns-server.ts'
import { TYPE, decode, query, uint16s } from '../wire.ts'
import { workedExamples } from '../zone-fixture.ts'

type Reply = (query: Buffer, send: (answer: Buffer) => void) => void

interface Upstream {
  readonly address: string
  readonly seen: Buffer[]
  readonly ports: Set<number>
}

/** Starts a name server on UDP and, if `tcp` is given, on TCP. */
async function startUpstream(t: Test, udp: Reply, tcp?: Reply): Promise<Upstream> {
  const { socket, server } = await bindBoth()
  const seen: Buffer[] = []
  const ports = new Set<number>()
  socket.on('message', (bytes, source) => {
    seen.push(bytes)
    ports.add(source.port)
    udp(bytes, (answer) => socket.send(answer, source.port, source.address))
  })
  t.teardown(() => socket.close())
  const { port } = socket.address()
  server.on('connection', (connection) => {
    connection.on('error', () => undefined)
    connection.once('data', (data: Buffer) => {
      tcp?.(data.subarray(2), (answer) => connection.end(Buffer.concat([uint16s(answer.length), answer])))
    })
  })
  if (tcp === undefined) server.close()
  else t.teardown(() => server.close())
  return { address: `127.0.0.1:${port}`, seen, ports }
}

/** Binds one port for UDP and TCP. If another process has the TCP port, it tries the next port. */
async function bindBoth(): Promise<{ readonly socket: Socket; readonly server: Server }> {
  for (;;) {
    const socket = createSocket('udp4').bind(0, '127.0.0.1')
    await once(socket, 'listening')
    const server = createServer().listen(socket.address().port, '127.0.0.1')
    try {
      await once(server, 'listening')
      return { socket, server }
    } catch (error) {
      socket.close()
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error
    }
  }
}

/** Returns the question with `count` A records, one by default. */
function positive(asked: Buffer, count = 1, address: readonly number[] = [192, 0, 2, 80]): Buffer {
  const end = asked.length
  const record = Buffer.concat([uint16s(0xc00c, 1, 1, 0, 60, 4), Buffer.from(address)])
  const answer = Buffer.concat([asked.subarray(0, end), ...Array.from({ length: count }, () => record)])
  answer.writeUInt16BE(0x8180, 2)
  answer.writeUInt16BE(count, 6)
  return answer
}

/** A forwarder with `ask`, which gives id, name and address of the answer, and the results that it has counted. */
function forwarderTo(upstream: Upstream): {
  readonly forwarder: Forwarder
  readonly ask: (bytes: Buffer, transport?: 'udp' | 'tcp') => Promise<string>
  readonly results: readonly string[]
} {
  const { upstreams } = dnsConfig({ clusterId: 'west', listen: ['127.0.0.1:0'], upstreams: [upstream.address] })
  const results: string[] = []
  const forwarder = new Forwarder(
    { clock: new SystemClock(), onResult: (result) => results.push(result), onFailure: () => undefined },
    { upstreams, timeoutMs: 5000, maxInFlight: 100, clientPerSecond: 1000 },
  )
  const ask = async (bytes: Buffer, transport: 'udp' | 'tcp' = 'udp'): Promise<string> => {
    const answer = await forwarder.forward(bytes, { transport, client: 'one' }, new AbortController().signal)
    if (!Buffer.isBuffer(answer)) return 'none'
    const got = decode(answer)
    return `${got.id} ${got.question} ${got.answers[0]?.data}`
  }
  return { forwarder, ask, results }
}

const never: Reply = () => undefined
const good: Reply = (asked, send) => send(positive(asked))

t.test('names outside the zone come from the upstream, with the id and letter case of the client', async (t) => {
  const upstream = await startUpstream(t, (asked, send) => {
    // Some servers do not preserve the letter case of the question.
    const answer = positive(asked)
    answer.write(answer.toString('latin1', 12, asked.length - 4).toLowerCase(), 12, 'latin1')
    send(answer)
  })
  const { port } = await startDns(t, workedExamples(), { upstreams: [upstream.address] })
  for (let id = 1; id <= 8; id += 1) {
    const got = await askUdp(port, query('WWW.Example.ORG.', { id }))
    t.same([got.id, got.question, got.answers[0]?.data], [id, 'WWW.Example.ORG.', '192.0.2.80'])
  }
  t.ok(upstream.ports.size > 4, 'each from its own port')
  t.ok(new Set(upstream.seen.map((bytes) => bytes.readUInt16BE(0))).size > 6, 'under its own id')
  const got = await askUdp(port, query('7.0.42.10.in-addr.arpa.', { type: TYPE.PTR }))
  t.equal(got.answers.length, 1, 'reverse names likewise')
  t.equal((await askUdp(port, query('web.shop.svc.clusterset.local.'))).answers[0]?.data, '243.0.0.7')
  t.equal(upstream.seen.length, 9, 'our own names never')
})

t.test('answers that do not fit are passed over', async (t) => {
  const upstream = await startUpstream(t, (asked, send) => {
    const forged = positive(asked, 1, [6, 6, 6, 6])
    const otherId = Buffer.from(forged)
    otherId.writeUInt16BE(asked.readUInt16BE(0) ^ 1, 0)
    const otherName = Buffer.from(forged)
    otherName.write('x', 13)
    const notAnAnswer = Buffer.from(forged)
    notAnAnswer.writeUInt16BE(0x0100, 2)
    for (const bad of [otherId, otherName, notAnAnswer, Buffer.alloc(3), Buffer.alloc(0)]) send(bad)
    send(positive(asked))
  })
  const { port } = await startDns(t, workedExamples(), { upstreams: [upstream.address] })
  t.equal((await askUdp(port, query('www.example.org.'))).answers[0]?.data, '192.0.2.80')
})

t.test('the next upstream is asked when one is silent or not there; then SERVFAIL', async (t) => {
  const silent = await startUpstream(t, never)
  const working = await startUpstream(t, good)
  const closed = createSocket('udp4').bind(0, '127.0.0.1')
  await once(closed, 'listening')
  const nobody = `127.0.0.1:${closed.address().port}`
  closed.close()
  const clock = new FakeClock()
  const three = {
    upstreams: [nobody, silent.address, working.address],
    upstreamTimeoutMs: 100,
  }
  const both = await startDns(t, workedExamples(), three, clock)
  const first = askUdp(both.port, query('a.example.'))
  await eventually(() => silent.seen.length === 1)
  await clock.advance(100)
  t.equal((await first).answers.length, 1)
  t.equal((await askUdp(both.port, query('b.example.'))).answers.length, 1)
  t.equal(silent.seen.length, 1, 'the one that answered is asked first from then on')
  const two = { upstreams: [nobody, silent.address], upstreamTimeoutMs: 100 }
  const none = await startDns(t, workedExamples(), two, clock)
  const last = askUdp(none.port, query('c.example.'))
  await eventually(() => silent.seen.length === 2)
  await clock.advance(100)
  t.equal((await last).flags, 'qr rd ra SERVFAIL')
})

t.test('an upstream that says it cannot is passed over, and heard when no other can', async (t) => {
  const failing =
    (code: number): Reply =>
    (asked, send) => {
      const answer = positive(asked, 0)
      answer.writeUInt16BE(0x8180 | code, 2)
      send(answer)
    }
  for (const [say, code] of [
    ['SERVFAIL', 2],
    ['NOTIMP', 4],
    ['REFUSED', 5],
  ] as const) {
    const bad = await startUpstream(t, failing(code))
    const working = await startUpstream(t, good)
    const both = await startDns(t, workedExamples(), { upstreams: [bad.address, bad.address, working.address] })
    t.equal((await askUdp(both.port, query('a.example.'))).answers.length, 1, `${say}: the next one is asked`)
    t.equal((await askUdp(both.port, query('b.example.'))).answers.length, 1)
    t.equal(bad.seen.length, 2, 'the one that answered is asked first from then on')
    const other = await startUpstream(t, failing(2))
    const none = await startDns(t, workedExamples(), { upstreams: [bad.address, other.address] })
    t.equal((await askUdp(none.port, query('c.example.'))).flags, `qr rd ra ${say}`, 'what the first of them said')
  }
  const unknown = await startUpstream(t, failing(3))
  const working = await startUpstream(t, good)
  const { port } = await startDns(t, workedExamples(), { upstreams: [unknown.address, working.address] })
  t.equal((await askUdp(port, query('d.example.'))).flags, 'qr rd ra NXDOMAIN', '"no such name" is an answer')
})

t.test('a lone upstream is asked once more when it is silent', async (t) => {
  const silent = await startUpstream(t, never)
  const clock = new FakeClock()
  const { port } = await startDns(t, workedExamples(), { upstreams: [silent.address], upstreamTimeoutMs: 100 }, clock)
  const asked = askUdp(port, query('a.example.'))
  await eventually(() => silent.seen.length === 1)
  await clock.advance(50)
  await eventually(() => silent.seen.length === 2)
  t.same(silent.seen[1], silent.seen[0], 'the same question under the same id')
  await clock.advance(50)
  t.equal((await asked).flags, 'qr rd ra SERVFAIL')
})

t.test('answers that were cut, and answers larger than the client takes', async (t) => {
  const cut: Reply = (asked, send) => {
    const answer = positive(asked, 0)
    answer.writeUInt16BE(0x8380, 2)
    send(answer)
  }
  const cutting = await startUpstream(t, cut, (asked, send) => send(positive(asked, 100)))
  const { port } = await startDns(t, workedExamples(), { upstreams: [cutting.address] })
  t.equal((await askUdp(port, query('big.example.'))).flags, 'qr tc rd ra NOERROR', 'UDP: the client is told')
  t.equal((await askTcp(port, [query('big.example.')]))[0]?.answers.length, 100, 'TCP: asked again over TCP')

  const careless = await startUpstream(t, (asked, send) => send(positive(asked, 100)))
  const other = await startDns(t, workedExamples(), { upstreams: [careless.address] })
  const got = await askUdp(other.port, query('big.example.'))
  t.same([got.flags, got.answers.length, got.question], ['qr tc rd ra NOERROR', 0, 'big.example.'])
  const asked = careless.seen.length
  const large = await askUdp(other.port, query('big.example.', { edns: { size: 65_535, dnssecOk: true } }))
  const opt = large.additionals.map(({ type, class: size, ttl }) => ({ type, size, ttl }))
  t.same(
    [large.flags, large.answers.length, opt],
    ['qr tc rd ra NOERROR', 0, [{ type: TYPE.OPT, size: 1232, ttl: 0x8000 }]],
  )
  t.equal(careless.seen[asked]?.readUInt16BE(12 + 'big.example.'.length + 1 + 4 + 3), 1232, 'upstreams hear our size')
})

t.test('questions under way are bounded', async (t) => {
  const silent = await startUpstream(t, never)
  const clock = new FakeClock()
  const init = { upstreams: [silent.address], upstreamTimeoutMs: 2000, maxForwards: 3 }
  const { port, metrics } = await startDns(t, workedExamples(), init, clock)
  // The queries come from three clients, because one client may use at most half of the free places.
  const first = [1, 2, 3].map((id) => askUdp(port, query(`q${id}.example.`, { id }), 5000, `127.0.0.${id}`))
  await eventually(() => silent.seen.length === 3)
  t.equal((await askUdp(port, query('q4.example.', { id: 4 }))).flags, 'qr rd ra SERVFAIL')
  t.match(await metrics.text(), 'sealane_dns_forwarded_total{result="overloaded"')
  await clock.advance(2000)
  t.same(
    (await Promise.all(first)).map((got) => got.flags),
    Array(3).fill('qr rd ra SERVFAIL'),
  )
})

t.test('clients that ask the same at the same time wait for one answer', async (t) => {
  let answerFirst = (): void => undefined
  const upstream = await startUpstream(
    t,
    (asked, send) => {
      const answer = (): void => send(positive(asked))
      if (upstream.seen.length === 1) answerFirst = answer
      else answer()
    },
    (asked, send) => send(positive(asked)),
  )
  const { forwarder, ask, results } = forwarderTo(upstream)
  const spell = (id: number): string => (id % 2 === 0 ? 'Busy.example.' : 'busy.EXAMPLE.')
  const first = ask(query('busy.example.'))
  await eventually(() => upstream.seen.length === 1)
  // A client with the id of our own query is in the next test.
  const ids = Array.from({ length: 300 }, (_, id) => id).filter((id) => id !== upstream.seen[0]?.readUInt16BE(0))
  const many = ids.map((id) => ask(query(spell(id), { id })))
  const others = [
    ask(query('busy.example.', { type: TYPE.TXT })),
    // The type numbers 65 and 97 are the octets of `A` and `a`, so a comparison that ignores case would confuse them.
    ask(query('busy.example.', { type: 65 })),
    ask(query('busy.example.', { type: 97 })),
    ask(query('busy.example.', { edns: { size: 1232 } })),
    ask(query('busy.example.', { recursionDesired: false })),
    ask(query('busy.example.'), 'tcp'),
  ]
  t.equal(forwarder.inFlight, 7, 'another type, EDNS, flag or transport is another question')
  t.notOk((await Promise.all(others)).includes('none'))
  answerFirst()
  t.same(
    await Promise.all(many),
    ids.map((id) => `${id} ${spell(id)} 192.0.2.80`),
    'each under its own id and letter case',
  )
  t.equal(await first, '4660 busy.example. 192.0.2.80')
  t.equal(upstream.seen.length, 7, 'one query for all of them')
  t.same(results, Array(7 + ids.length).fill('answered'))
  t.equal(forwarder.inFlight, 0)
  await ask(query('busy.example.'))
  t.equal(upstream.seen.length, 8, 'nothing is kept: the next one is asked anew')
})

t.test('a client whose id is the one of our own query gets its answer', async (t) => {
  const answers: (() => void)[] = []
  const upstream = await startUpstream(t, (asked, send) => answers.push(() => send(positive(asked))))
  const { forwarder, ask, results } = forwarderTo(upstream)
  const first = ask(query('same.example.', { id: 0x1234 }))
  await eventually(() => answers.length === 1)
  const own = upstream.seen[0]?.readUInt16BE(0) ?? 0
  const others = [0, 1].map(() => ask(query('same.example.', { id: own })))
  t.equal(forwarder.inFlight, 2, 'both wait for one more query')
  await eventually(() => answers.length === 2)
  for (const answer of answers) answer()
  t.same(
    await Promise.all([first, ...others]),
    [0x1234, own, own].map((id) => `${id} same.example. 192.0.2.80`),
  )
  t.same(results, Array(3).fill('answered'))
})

t.test('one client has half of the places at most, and so many questions a second', async (t) => {
  const silent = await startUpstream(t, never)
  const clock = new FakeClock()
  const init = {
    upstreams: [silent.address],
    upstreamTimeoutMs: 2000,
    maxForwards: 8,
    clientForwardsPerSecond: 5,
  }
  const { port, metrics } = await startDns(t, workedExamples(), init, clock)
  const one = Array.from({ length: 11 }, (_, id) =>
    askUdp(port, query(`q${id}.example.`, { id, edns: { size: 1232 } })),
  )
  const counted = async (result: string, count: number): Promise<boolean> =>
    (await metrics.text()).includes(`sealane_dns_forwarded_total{result="${result}",component="dns"} ${count}`)
  await eventually(async () => (await counted('client_places', 6)) && (await counted('client_rate', 1)), {
    say: '4 of 8 places, and 10 questions at once',
  })
  const other = askUdp(port, query('other.example.'), 5000, '127.0.0.2')
  await eventually(() => silent.seen.length === 5, { say: 'another client has its place' })
  await clock.advance(2000)
  const answers = await Promise.all(one)
  t.same(new Set(answers.map(({ flags }) => flags)), new Set(['qr rd ra SERVFAIL']))
  const why = answers.map(({ additionals }) => additionals[0]?.data ?? '').sort()
  t.equal(why.filter((data) => Buffer.from(data, 'hex').toString('latin1', 6) === 'client_places').length, 6)
  t.equal(why.filter((data) => Buffer.from(data, 'hex').toString('latin1', 6) === 'client_rate').length, 1)
  t.equal((await other).flags, 'qr rd ra SERVFAIL')
})

t.test('those who wait together are bounded too', async (t) => {
  const held: (() => void)[] = []
  const upstream = await startUpstream(t, (asked, send) => void held.push(() => send(positive(asked))))
  const { port, metrics } = await startDns(t, workedExamples(), {
    upstreams: [upstream.address],
    upstreamTimeoutMs: 5000,
    maxForwards: 2,
  })
  const many = Array.from({ length: 40 }, (_, id) =>
    askUdp(port, query('busy.example.', { id }), 5000, `127.0.1.${id}`),
  )
  const overloaded = async (): Promise<boolean> =>
    (await metrics.text()).includes('sealane_dns_forwarded_total{result="overloaded",component="dns"} 8')
  await eventually(overloaded, { say: '2 x 16 may wait, the rest is told at once' })
  // The server may count the refusals before the query has reached the upstream.
  const answer = await eventually(() => held[0], { say: 'the query' })
  answer()
  const flags = (await Promise.all(many)).map((one) => one.flags)
  t.equal(flags.filter((one) => one === 'qr rd ra SERVFAIL').length, 8)
  t.equal(flags.filter((one) => one === 'qr rd ra NOERROR').length, 32)
  t.equal(upstream.seen.length, 1)
})

t.test('a loop ends: an upstream that sends our own question back to us', async (t) => {
  let backTo = 0
  const asked: Buffer[] = []
  const mirror = createSocket('udp4').bind(0, '127.0.0.1')
  await once(mirror, 'listening')
  t.teardown(() => mirror.close())
  // The mirror sends each query back to the server, and returns the server's answer to the sender.
  mirror.on('message', (bytes, source) => {
    if (source.port === backTo) return
    asked.push(bytes)
    const relay = createSocket('udp4')
    relay.on('message', (answer) => {
      mirror.send(answer, source.port, source.address)
      relay.close()
    })
    relay.send(bytes, backTo, '127.0.0.1')
  })
  const server = await startDns(t, workedExamples(), { upstreams: [`127.0.0.1:${mirror.address().port}`] })
  backTo = server.port
  t.equal((await askUdp(server.port, query('loop.example.'))).flags, 'qr rd ra SERVFAIL')
  t.equal(asked.length, 2, 'asked once, and once more because a client may have the same id')
  t.match(await server.metrics.text(), 'sealane_dns_forwarded_total{result="loop"')
})
