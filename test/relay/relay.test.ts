/** A relay on port 443 as gateways and strangers find it. */
import { createPublicKey, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, connect } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import t from 'tap'
import WebSocket from 'ws'
import { RelayRefusedError, connectRelay, pinOf } from '../../runtime/datagrams/relay-connection.ts'
import {
  MAX_FRAME_BYTES,
  MAX_FRAME_PARTS,
  SUBPROTOCOL,
  decodeFrame,
  encodeFrame,
  makeInstance,
} from '../../runtime/datagrams/frames.ts'
import { createServerCertificate } from '../../protocol/identity/x509.ts'
import { createKey, keyToPem } from '../../protocol/identity/keys.ts'
import { certificateToPem } from '../../protocol/identity/certificates.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { serveDatagrams } from '../../runtime/datagrams/datagram-server.ts'
import { againTimes } from '../../relay/main.ts'
import { DEFAULT_END_LIMITS, type EndLimits, Ends } from '../../relay/ends/ends.ts'
import { eventually } from '../support/eventually.ts'
import { connectProxy } from '../support/connect-proxy.ts'
import { silentProxy } from '../support/silent-proxy.ts'
import { parseProxy } from '../../runtime/proxy/proxy.ts'
import { type Gateway, authority, clock, connected, gateway, never, relay } from './relay-site.ts'

const demo = await authority('demo')
const other = await authority('other')
const paris = await gateway(demo, 'paris')
const roma = await gateway(demo, 'roma')
const oslo = await gateway(demo, 'oslo')
const stranger = await gateway(other, 'paris')
const say = (text: string): Buffer => Buffer.from(text)
const soon = { deadlineMs: 5000 }

t.test('two gateways that want each other exchange datagrams, and no third gets any', async (t) => {
  for (const more of [{}, { plain: true as const }]) {
    const at = await relay(t, [demo, other], more)
    const [a, b, c, s] = [
      await connected(paris, at),
      await connected(roma, at),
      await connected(oslo, at),
      await connected(stranger, at),
    ]
    a.connection.want([roma.name, oslo.name, stranger.name])
    b.connection.want([paris.name])
    s.connection.want([paris.name, roma.name])
    await eventually(() => a.present().join() === roma.name && b.present().join() === paris.name, {
      ...soon,
      say: 'both are present',
    })
    c.connection.send(paris.name, say('nobody asked oslo'))
    c.connection.send(roma.name, say('nobody asked oslo'))
    s.connection.send(paris.name, say('another clusterset'))
    for (let i = 0; i < 50; i++) a.connection.send(roma.name, say(`datagram ${i}`))
    b.connection.send(paris.name, say('answer'))
    await eventually(() => b.got.length >= 50 && a.got.length >= 1, { ...soon, say: 'they arrive' })
    await eventually(async () => /outcome="notPaired"[^}]*} 3/.test(await at.metrics()), {
      ...soon,
      say: 'others are counted',
    })
    t.equal(b.got[0], `${paris.name} datagram 0`)
    t.same(a.got, [`${roma.name} answer`])
    t.same([c.got, s.got, s.present()], [[], [], []])
    b.connection.close()
    await eventually(() => a.present().length === 0, { ...soon, say: 'the end of roma shows' })
    await at.stop()
    t.match(await a.connection.ended, { againMs: 500, isReplaced: false }, 'a stop says when to come again')
  }
})

t.test('a new connection of a gateway takes the place of the one before', async (t) => {
  const at = await relay(t, [demo])
  const [a, b, again] = [await connected(paris, at), await connected(roma, at), await connected(paris, at)]
  t.match(await a.connection.ended, { isReplaced: true, againMs: undefined }, 'the relay says so')
  again.connection.want([roma.name])
  b.connection.want([paris.name])
  await eventually(() => again.present().length === 1, { ...soon, say: 'present' })
  b.connection.send(paris.name, say('hello'))
  await eventually(() => again.got.length === 1, { ...soon, say: 'it arrives' })
  for (const one of [b, again]) one.connection.close()
})

t.test('refused, with the reason', async (t) => {
  const at = await relay(t, [demo], { limits: { ends: 2, endsOfMember: 1 } })
  const nowMs = clock.now()
  const hour = 3_600_000
  const cases: Readonly<Record<string, Gateway>> = {
    foreignClusterset: stranger,
    expired: await gateway(demo, 'paris', { issuedMs: nowMs - 3 * hour, untilMs: nowMs - hour }),
    wrongClock: await gateway(demo, 'paris', { issuedMs: nowMs + hour, untilMs: nowMs + 2 * hour }),
    notListed: await gateway(demo, 'paris', { identities: [roma.identity.toString('base64')] }),
    malformed: { ...paris, prove: (challenge) => ({ ...paris.prove(challenge), ticket: randomBytes(300) }) },
    badProof: {
      ...paris,
      prove: (challenge) => ({ ...paris.prove(challenge), identity: roma.identity, ticket: roma.ticket }),
    },
  }
  for (const [why, by] of Object.entries(cases)) {
    await t.rejects(connected(by, at), { name: 'RelayRefusedError', why }, why)
  }
  const held = await connected(paris, at)
  await t.rejects(connected(await gateway(demo, 'paris'), at), { name: 'RelayRefusedError', why: 'memberFull' })
  const second = await connected(roma, at)
  await t.rejects(connected(oslo, at), { name: 'RelayRefusedError', why: 'full' })
  // A gateway that connects in a loop is told to stop, and its place stays.
  let refused = 0
  for (let i = 0; i < 60 && refused === 0; i++) {
    try {
      ;(await connected(roma, at)).connection.close()
    } catch (error) {
      t.equal(error instanceof RelayRefusedError && error.why, 'tooFast')
      refused++
    }
  }
  t.equal(refused, 1)
  for (const one of [held, second]) one.connection.close()
})

t.test('a proof for one challenge is of no use for another', async (t) => {
  const at = await relay(t, [demo])
  let first: ReturnType<Gateway['prove']> | undefined
  const replayed = {
    ...paris,
    prove: (challenge: Parameters<Gateway['prove']>[0]) => (first ??= paris.prove(challenge)),
  }
  ;(await connected(replayed, at)).connection.close()
  await t.rejects(connected(replayed, at), { name: 'RelayRefusedError', why: 'badProof' })
})

t.test('the relay is the one that its address states', async (t) => {
  const at = await relay(t, [demo])
  await t.rejects(connected(paris, { ...at, pin: 'ab'.repeat(32) }), { name: 'RelayUnreachableError' })
  await t.rejects(
    connectRelay(
      {
        ...{ clock, url: at.url, proxies: () => undefined, prove: paris.prove },
        ...{ onDatagram: () => undefined, onPresent: () => undefined },
      },
      never,
    ),
    { name: 'RelayUnreachableError' },
    'without a pin its certificate is that of nobody',
  )
})

t.test('through a proxy of the network, with a password', async (t) => {
  const at = await relay(t, [demo])
  const proxy = await connectProxy(t, { login: 'ana:secret' })
  const by = await connected(paris, at, { proxies: () => parseProxy(proxy.url, 'HTTPS_PROXY') })
  by.connection.close()
  const wrong = parseProxy(proxy.url.replace('ana:', 'ben:'), 'HTTPS_PROXY')
  await t.rejects(connected(paris, at, { proxies: () => wrong }), { name: 'ProxyError' })
})

t.test('a connection that is cut in the middle, without an end, is noticed within 7 s', async (t) => {
  const at = await relay(t, [demo], { plain: true })
  const middle = await silentProxy(t, { host: '127.0.0.1', port: at.port })
  const time = new FakeClock({ now: clock.now() })
  const url = new URL(`ws://127.0.0.1:${middle.port}/`)
  const [a, b] = [await connected(paris, { ...at, url }, { clock: time }), await connected(roma, at)]
  a.connection.want([roma.name])
  b.connection.want([paris.name])
  await eventually(() => b.present().length === 1, { ...soon, say: 'both are present' })
  const ended: string[] = []
  void a.connection.ended.then(({ why }) => ended.push(why))
  for (let i = 1; i <= 5; i++) {
    await time.advance(2000)
    b.connection.send(paris.name, say('hello'))
    await eventually(() => a.got.length === i, { ...soon, say: 'it is well as long as something comes' })
  }
  t.same(ended, [])
  middle.silence()
  await time.advance(7000)
  await eventually(() => ended.length === 1, { ...soon, say: 'it ends' })
  t.same(ended, ['the relay is silent'])
  b.connection.close()
})

t.test('a gateway of an earlier release finds nothing that it does not know', async (t) => {
  const at = await relay(t, [demo], { plain: true })
  const socket = new WebSocket(at.url, SUBPROTOCOL)
  t.teardown(() => socket.terminate())
  const frames: Buffer[] = []
  socket.on('message', (data) => {
    frames.push(data as Buffer)
    const frame = decodeFrame(data as Buffer)
    if (frame?.t === 'challenge') socket.send(encodeFrame({ t: 'proof', ...paris.prove(frame) }))
    if (frame?.t === 'welcome') socket.send(encodeFrame({ t: 'wants', ends: [roma.name] }))
  })
  await eventually(() => frames.length === 2, { ...soon, say: 'it is let in' })
  const far = await connected(roma, at)
  far.connection.want([paris.name])
  await eventually(() => frames.length === 3, { ...soon, say: 'the other end is there' })
  t.same(
    frames.map((frame) => [frame[0], frame.length]),
    [
      [1, 74],
      [3, 1],
      [6, 9],
    ],
    'their types and lengths are those of the first release',
  )
  far.connection.close()
})

t.test('a certificate that is not valid yet, or no longer, with what this gateway takes for the time', async (t) => {
  const day = 24 * 3_600_000
  const issuedMs = clock.now()
  const rows: readonly (readonly [offsetMs: number, text: RegExp, code: string])[] = [
    [
      400 * day,
      /its certificate is not valid yet: it is \d{4}-\d\d-\d\d \(UTC\) by the clock of/,
      'CERT_NOT_YET_VALID',
    ],
    [-4000 * day, /its certificate has expired: it is/, 'CERT_HAS_EXPIRED'],
  ]
  for (const [offsetMs, message, code] of rows) {
    const init = { clusterset: 'demo', key: createKey(), nowMs: issuedMs + offsetMs, hosts: ['127.0.0.1'] }
    const { certificate, key } = await createServerCertificate(demo, init)
    const tls = { certificate: certificateToPem(certificate), key: keyToPem(key) }
    const { url } = await relay(t, [demo], { tls })
    const calls = { clock, url, proxies: () => undefined, prove: paris.prove }
    const events = { onDatagram: () => undefined, onPresent: () => undefined }
    const called = connectRelay({ ...calls, ...events, ca: certificateToPem(demo.certificate) }, never)
    await t.rejects(called, { name: 'RelayUnreachableError', message, cause: { code } })
    // With a pin the key alone counts.
    const pin = pinOf(createPublicKey(key).export({ type: 'spki', format: 'der' }))
    ;(await connected(paris, { url, pin })).connection.close()
  }
})

t.test('strangers hold little, and disturb nobody', async (t) => {
  const at = await relay(t, [demo], { plain: true })
  const [a, b] = [await connected(paris, at), await connected(roma, at)]
  a.connection.want([roma.name])
  b.connection.want([paris.name])
  const ended = (act: (socket: WebSocket) => void): Promise<string> =>
    new Promise((resolve) => {
      let said = 'ended'
      const socket = new WebSocket(at.url, SUBPROTOCOL)
      socket.on('message', (data) => {
        const frame = decodeFrame(data as Buffer)
        if (frame?.t === 'challenge') act(socket)
        if (frame?.t === 'refused') said = frame.why
      })
      socket.on('error', () => undefined)
      socket.on('close', () => resolve(said))
    })
  t.equal(await ended((one) => one.send(randomBytes(200))), 'malformed', 'octets')
  t.equal(await ended((one) => one.send('text')), 'malformed', 'a text')
  t.equal(await ended((one) => one.send(encodeFrame({ t: 'wants', ends: [paris.name] }))), 'malformed', 'unproven')
  t.equal(await ended((one) => one.send(Buffer.alloc(MAX_FRAME_BYTES + 1))), 'ended', 'a frame that is too long')
  t.equal(await ended(() => undefined), 'ended', 'one that says nothing')
  const plain = (text: string): Promise<string> =>
    new Promise((resolve) => {
      let said = ''
      const socket = connect(at.port, '127.0.0.1', () => socket.write(text))
      socket.on('data', (data) => (said += data.toString()))
      socket.on('error', () => undefined)
      socket.on('close', () => resolve(said))
    })
  t.match(await plain('GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n'), /^HTTP\/1.1 426/)
  t.match(await plain('CONNECT example.com:443 HTTP/1.1\r\nHost: a\r\n\r\n'), /^$|^HTTP\/1.1 4/, 'no open proxy')
  t.match(await plain(`GET / HTTP/1.1\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`), /^HTTP\/1.1 431/)
  t.match(await plain('GET / HTTP/1.1\r\nHost: a\r\n\r\n'), /^HTTP\/1.1 426[^]*connection: close/i, 'one request')
  // One that never closes its side: what it writes after the end is answered by a reset.
  const halfOpen = connect({ port: at.port, host: '127.0.0.1', allowHalfOpen: true })
  halfOpen.on('error', () => undefined).resume()
  halfOpen.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n')
  await eventually(() => halfOpen.readableEnded, { ...soon, say: 'an upgrade to another protocol is refused' })
  await eventually(() => !halfOpen.write('x') && halfOpen.destroyed, { ...soon, say: 'and leaves no connection' })
  await eventually(() => a.present().length === 1, { ...soon, say: 'present' })
  a.connection.send(roma.name, say('still here'))
  await eventually(() => b.got.length === 1, { ...soon, say: 'it arrives' })
  for (const one of [a, b]) one.connection.close()
})

t.test('one pair gets its rate and no more', async (t) => {
  const at = await relay(t, [demo], { limits: { pairBytesPerSecond: 100_000 } })
  const [a, b] = [await connected(paris, at), await connected(roma, at)]
  a.connection.want([roma.name])
  b.connection.want([paris.name])
  await eventually(() => a.present().length === 1, { ...soon, say: 'present' })
  for (let i = 0; i < 100; i++) a.connection.send(roma.name, Buffer.alloc(1000))
  await eventually(async () => b.got.length >= 9 && /outcome="pairRate"[^}]*} [5-9]\d/.test(await at.metrics()), {
    ...soon,
    say: 'the rest is dropped',
  })
  t.ok(b.got.length < 50, `${b.got.length} arrived`)
  for (const one of [a, b]) one.connection.close()
})

t.test('strangers who prove nothing do not keep a gateway out', async (t) => {
  const at = await relay(t, [demo], { plain: true })
  const said: string[] = []
  const strangers = await Promise.all(
    Array.from({ length: 256 }, (_, i) => {
      const socket = new WebSocket(at.url, SUBPROTOCOL)
      socket.on('error', () => undefined)
      return new Promise<WebSocket>((resolve) => {
        socket.on('message', (data) => {
          const frame = decodeFrame(data as Buffer)
          if (frame?.t === 'refused') said.push(frame.why)
          if (frame?.t === 'challenge') resolve(socket)
        })
        socket.on('close', () => said.push(`${i} ended`))
      })
    }),
  )
  const by = await connected(paris, at)
  await eventually(() => said.length === 2, { ...soon, say: 'one of the strangers goes' })
  t.equal(said[0], 'full')
  by.connection.close()
  for (const one of strangers) one.terminate()
})

t.test('what a member asks for costs little, however often it asks', async (t) => {
  const time = new FakeClock()
  const ends = new Ends(time, { ...DEFAULT_END_LIMITS, memberBytesPerSecond: 10_000 })
  const enter = (name: string) => {
    const said: string[] = []
    const port = { deliver: () => undefined, present: (of: readonly string[]) => said.push(of.join()) }
    const end = ends.enter({ clusterset: 'demo', cluster: name, name }, { ...port, replaced: () => undefined })
    if (typeof end === 'string') throw new Error(end)
    return { ...end, said }
  }
  const [a, b, c] = [enter('a'), enter('b'), enter('c')]
  a.want(['b', 'c'])
  a.want(['c', 'b'])
  b.want(['a'])
  c.want(['a'])
  t.same([a.said, b.said, c.said], [['b', 'b,c'], ['a'], ['a']])
  for (let i = 0; i < 1000; i++) b.want(i % 2 === 0 ? [] : ['a'])
  t.equal(b.said.length, 10, 'ten in a row')
  t.equal(c.said.length, 1, 'the others hear nothing of it')
  await time.advance(200)
  t.same(b.said.slice(10), ['a'], 'the newest counts a little later')
  b.want([])
  await time.advance(200)
  t.same([a.said.at(-1), c.said.length], ['c', 1])
  b.leave()
  t.equal(ends.count, 2)
  t.same(
    Array.from({ length: 20 }, () => c.forward('x', Buffer.alloc(1))).filter((one) => one === 'notPaired').length,
    15,
    'small datagrams to ends that are not there use up the rate too',
  )
})

t.test('a peer that never reads is cut off', async (t) => {
  const ended = Promise.withResolvers<undefined>()
  const server = await serveDatagrams({
    ...{ clock, host: '127.0.0.1', port: 0, maxConnections: 4, instance: makeInstance() },
    onPeer: (peer) => ({
      // Each datagram of the peer makes the relay say something long.
      onFrame: () => peer.send(Buffer.alloc(MAX_FRAME_BYTES)),
      onSign: () => undefined,
      onEnd: () => ended.resolve(undefined),
    }),
  })
  t.teardown(() => server.close())
  const socket = new WebSocket(`ws://127.0.0.1:${server.port}/`, SUBPROTOCOL)
  socket.on('error', () => undefined)
  await new Promise((resolve) => socket.once('open', resolve))
  socket.pause()
  for (let i = 0; i < 2000; i++) socket.send(encodeFrame({ t: 'welcome' }))
  await ended.promise
  socket.terminate()
})

t.test('after a stop gateways come again one by one, and none late', async (t) => {
  const rows: readonly (readonly [count: number, betweenMs: number, last: number])[] = [
    [1, 2, 500],
    [2, 2, 502],
    [100, 2, 698],
    [100, 10, 1490],
    [1024, 10, 8492],
    [4352, 2, 8498],
    [10_000, 2, 8499],
  ]
  t.same(againTimes(0, 2), [])
  for (const [count, betweenMs, last] of rows) {
    const times = againTimes(count, betweenMs)
    t.same([times.length, times[0], times.at(-1)], [count, 500, last])
    t.ok(times.every((ms, i) => i === 0 || ms >= (times[i - 1] ?? 0)))
  }
})

t.test('behind a proxy that ends TLS', async (t) => {
  const at = await relay(t, [demo], { plain: true })
  const named = await createServerCertificate(demo, {
    ...{ clusterset: 'demo', key: createKey(), nowMs: clock.now(), hosts: ['127.0.0.1'] },
  })
  const front = createTlsServer(
    { cert: certificateToPem(named.certificate), key: keyToPem(named.key), ALPNProtocols: ['http/1.1'] },
    (socket) => {
      const far = connect(at.port, '127.0.0.1')
      for (const one of [socket, far]) one.on('error', () => undefined)
      socket.pipe(far).pipe(socket)
      socket.once('close', () => far.destroy())
    },
  )
  front.listen(0, '127.0.0.1')
  await once(front, 'listening')
  t.teardown(() => front.close())
  const pin = pinOf(createPublicKey(named.key).export({ type: 'spki', format: 'der' }))
  const url = new URL(`wss://127.0.0.1:${(front.address() as AddressInfo).port}/`)
  const [a, b] = [await connected(paris, { url, pin }), await connected(roma, { url, pin })]
  a.connection.want([roma.name])
  b.connection.want([paris.name])
  await eventually(() => a.present().length === 1 && b.present().length === 1, { ...soon, say: 'both are present' })
  for (let i = 0; i < 60; i++) a.connection.send(roma.name, Buffer.alloc(1000, i))
  await eventually(() => b.got.length === 60, { ...soon, say: 'all arrive' })
  for (const one of [a, b]) one.connection.close()
})

t.test('the relay as a whole gets its rate, however many members send, and one that floods is not read', async (t) => {
  const time = new FakeClock()
  const ends = new Ends(time, { ...DEFAULT_END_LIMITS, totalBytesPerSecond: 100_000 })
  const enter = (name: string) => {
    const port = { deliver: () => undefined, present: () => undefined, replaced: () => undefined }
    const end = ends.enter({ clusterset: 'demo', cluster: name, name }, port)
    if (typeof end === 'string') throw new Error(end)
    return end
  }
  const [a, b, c] = [enter('a'), enter('b'), enter('c')]
  a.want(['b'])
  b.want(['a', 'c'])
  c.want(['b'])
  const sent = [a, c].flatMap((from) => Array.from({ length: 20 }, () => from.forward('b', Buffer.alloc(488))))
  t.equal(sent.filter((one) => one === 'forwarded').length, 10)
  t.equal(sent.filter((one) => one === 'relayRate').length, 30)
  await time.advance(100)
  t.equal(b.forward('a', Buffer.alloc(488)), 'forwarded', 'and goes on')

  const at = await relay(t, [demo], { limits: { memberBytesPerSecond: 10_000 } })
  const [x, y] = [await connected(paris, at), await connected(roma, at)]
  x.connection.want([roma.name])
  y.connection.want([paris.name])
  await eventually(() => x.present().length === 1 && y.present().length === 1, { ...soon, say: 'present' })
  for (let i = 0; i < 100; i++) x.connection.send(roma.name, Buffer.alloc(1000))
  await eventually(async () => /outcome="memberRate"[^}]*} \d/.test(await at.metrics()), { ...soon, say: 'dropped' })
  y.connection.send(paris.name, say('others go on'))
  await eventually(() => x.got.length === 1, { ...soon, say: 'it arrives' })
  for (const one of [x, y]) one.connection.close()
})

/** Members whose gateways send to one that wants them all, at a relay with a limit for all of them. */
function crowd(time: FakeClock, limits: Partial<EndLimits>) {
  const ends = new Ends(time, { ...DEFAULT_END_LIMITS, ...limits })
  const enter = (name: string) => {
    const port = { deliver: () => undefined, present: () => undefined, replaced: () => undefined }
    const end = ends.enter({ clusterset: 'demo', cluster: name, name }, port)
    if (typeof end === 'string') throw new Error(end)
    return end
  }
  const hub = enter('hub')
  const names = ['flood', 'other', 'third', 'honest']
  hub.want(names)
  const members = names.map((name) => {
    const end = enter(name)
    end.want(['hub'])
    const counts = { sent: 0, forwarded: 0 }
    const send = (count: number, size: number, to = 'hub'): void => {
      for (let i = 0; i < count; i++) {
        counts.sent++
        if (end.forward(to, Buffer.alloc(size)) === 'forwarded') counts.forwarded++
      }
    }
    return { send, counts }
  })
  return { hub, members }
}

t.test('no member starves the others, whatever it sends', async (t) => {
  const limits = { memberBytesPerSecond: 1_700_000, totalBytesPerSecond: 5_000_000 }
  const floods: Readonly<Record<string, readonly [count: number, size: number, to?: string]>> = {
    'small datagrams': [200, 1],
    'small datagrams to ends that are not there': [200, 1, 'nowhere'],
    'large datagrams': [20, 1400],
  }
  for (const [what, flood] of Object.entries(floods)) {
    for (const flooding of [1, 3]) {
      const time = new FakeClock()
      const { members } = crowd(time, limits)
      for (let step = 0; step < 200; step++) {
        for (const one of members.slice(0, flooding)) one.send(...flood)
        // 0.8 MB in a second: less than a fourth of all.
        members.at(-1)?.send(step % 2, 1088)
        await time.advance(1)
      }
      t.same(members.at(-1)?.counts, { sent: 100, forwarded: 100 }, `${flooding} with ${what}`)
    }
  }
})

t.test('what a share leaves over is for the others', async (t) => {
  const time = new FakeClock()
  const { members } = crowd(time, { memberBytesPerSecond: 10_000_000, totalBytesPerSecond: 5_000_000 })
  const [flood, other, , honest] = members
  for (let step = 0; step < 1000; step++) {
    flood?.send(10, 1488)
    if (step % 100 === 0) other?.send(1, 1488)
    if (step % 100 === 0) honest?.send(1, 1488)
    await time.advance(1)
  }
  // 2500 datagrams in a second are the whole.
  t.ok((flood?.counts.forwarded ?? 0) > 2200, `${flood?.counts.forwarded} of 2500`)
  t.same([other?.counts.forwarded, honest?.counts.forwarded], [10, 10])
})

t.test('a member that sends frames without datagrams waits, and no longer than a second', async (t) => {
  const time = new FakeClock()
  const { hub } = crowd(time, { memberBytesPerSecond: 100_000 })
  const waits = Array.from({ length: 10_000 }, () => hub.charge(0))
  t.same([waits[0], waits[155], waits.at(-1)], [0, 0, 1000])
  t.ok(waits.every((ms, i) => i === 0 || ms >= (waits[i - 1] ?? 0)))
  t.equal(hub.forward('honest', Buffer.alloc(1)), 'memberRate')
  await time.advance(1100)
  t.equal(hub.charge(0), 0)
  t.ok(hub.charge(1024) > 0, 'long lists of wants cost more')
})

t.test('signs of life and repeated wants of one gateway are not read without end', async (t) => {
  const held: number[] = []
  const frames: string[] = []
  const time = new FakeClock()
  const server = await serveDatagrams({
    ...{ clock: time, host: '127.0.0.1', port: 0, maxConnections: 4, instance: makeInstance() },
    onPeer: (peer) => ({
      onFrame: (frame) => {
        frames.push(frame?.t ?? 'none')
        if (frame?.t !== 'welcome') return
        for (const ms of [100, 300, 200]) peer.hold(ms)
      },
      onSign: () => held.push(frames.length),
      onEnd: () => undefined,
    }),
  })
  t.teardown(() => server.close())
  const socket = new WebSocket(`ws://127.0.0.1:${server.port}/`, SUBPROTOCOL)
  socket.on('error', () => undefined)
  await new Promise((resolve) => socket.once('open', resolve))
  socket.ping()
  socket.pong()
  await eventually(() => held.length === 2, { ...soon, say: 'pings and pongs count' })
  socket.send(encodeFrame({ t: 'welcome' }))
  await eventually(() => frames.length === 1, { ...soon, say: 'the peer is held' })
  socket.send(encodeFrame({ t: 'wants', ends: [] }))
  await time.advance(250)
  t.same(frames, ['welcome'], 'the longest time counts')
  await time.advance(100)
  await eventually(() => frames.length === 2, { ...soon, say: 'then it is read' })
  socket.terminate()
})

t.test('a stranger that pings is refused', async (t) => {
  const at = await relay(t, [demo], { plain: true })
  const socket = new WebSocket(at.url, SUBPROTOCOL)
  const said: string[] = []
  socket.on('error', () => undefined).on('close', () => said.push('ended'))
  socket.on('message', (data) => {
    const frame = decodeFrame(data as Buffer)
    said.push(frame?.t === 'refused' ? frame.why : (frame?.t ?? ''))
    if (frame?.t === 'challenge') socket.ping()
  })
  await eventually(() => said.includes('ended'), { ...soon, say: 'one that has not proven itself sends none' })
  t.same(said, ['challenge', 'malformed', 'ended'])
})

t.test('a frame has few parts, so that empty ones are charged too', async (t) => {
  const at = await relay(t, [demo], { plain: true })
  /** Proves itself and sends a frame in so many parts, of which all but the first are empty. */
  const sent = (parts: number): Promise<string> =>
    new Promise((resolve) => {
      const socket = new WebSocket(at.url, SUBPROTOCOL)
      const whole = encodeFrame({ t: 'wants', ends: [roma.name] })
      socket.on('error', () => undefined).on('close', () => resolve('ended'))
      socket.on('pong', () => {
        socket.terminate()
        resolve('read')
      })
      socket.on('message', (data) => {
        const frame = decodeFrame(data as Buffer)
        if (frame?.t === 'challenge') socket.send(encodeFrame({ t: 'proof', ...paris.prove(frame) }))
        if (frame?.t !== 'welcome') return
        for (let i = 1; i < parts; i++) socket.send(i === 1 ? whole : '', { fin: false, binary: true })
        socket.send(parts === 1 ? whole : '', { fin: true, binary: true })
        socket.ping()
      })
    })
  const malformed = async (): Promise<boolean> =>
    /refused_total\{[^}]*why="malformed"[^}]*\} 1/.test(await at.metrics())
  t.equal(await sent(1), 'read')
  t.equal(await sent(MAX_FRAME_PARTS), 'read', 'a proxy may split a frame')
  t.notOk(await malformed())
  t.equal(await sent(MAX_FRAME_PARTS + 1), 'ended', 'but not into any number of parts')
  await eventually(malformed, { ...soon, say: 'it is counted' })
})
