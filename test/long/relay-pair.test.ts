/** Several processes that relay with one key: at addresses of their own, and behind one address. */
import { createPublicKey } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, type Socket, connect, createServer } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import t, { type Test } from 'tap'
import { WebSocketServer } from 'ws'
import { WebRelays } from '../../gateway/reach/web/web-relays.ts'
import { encodeRelayNotice } from '../../model/lanes/relay-address.ts'
import { certificateToPem } from '../../protocol/identity/certificates.ts'
import { createKey, keyToPem } from '../../protocol/identity/keys.ts'
import { createServerCertificate } from '../../protocol/identity/x509.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import {
  FRAMES_VERSION,
  INSTANCE_HEADER,
  SUBPROTOCOL,
  decodeFrame,
  encodeFrame,
} from '../../runtime/datagrams/frames.ts'
import { askInstance, pinOf } from '../../runtime/datagrams/relay-connection.ts'
import { createServerOverTls } from '../../runtime/http/http.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import {
  type Authority,
  type Gateway,
  authority,
  connected,
  gateway,
  never,
  clock as realClock,
  relay,
} from '../relay/relay-site.ts'
import { eventually } from '../support/eventually.ts'

const long = { deadlineMs: 60_000 }
const ca = await authority('demo')

async function sharedKey(by: Authority) {
  const server = await createServerCertificate(by, { clusterset: 'demo', key: createKey(), nowMs: realClock.now() })
  const pin = pinOf(createPublicKey(server.key).export({ type: 'spki', format: 'der' }))
  return { tls: { certificate: certificateToPem(server.certificate), key: keyToPem(server.key) }, pin }
}

type Tls = Awaited<ReturnType<typeof sharedKey>>['tls']

const nameOf = (url: string): string => `tcp-443 ${new URL(url).host}`

/** So many relays with one key. */
async function siblings(t: Test, count: number) {
  const { tls, pin } = await sharedKey(ca)
  const relays = await Promise.all(Array.from({ length: count }, () => relay(t, [ca], { tls })))
  return { pin, relays, addresses: relays.map(({ url }) => `${url.href}#${pin}`) }
}

/** A gateway that has links with others by relays, on a clock that does not go on by itself. */
function endOf(t: Test, own: Gateway, far: Readonly<Record<string, Gateway>>, addresses: () => readonly string[]) {
  const clock = new FakeClock({ now: realClock.now() })
  const logger = new CapturingLogger()
  const web = new WebRelays({
    ...{ clock, logger, proxies: () => undefined, onDropped: () => undefined },
    ...{ onChange: () => undefined, onDue: () => undefined },
  })
  t.teardown(() => web.close())
  const apply = (): void => {
    web.apply({
      links: Object.entries(far).map(([key, { identity }]) => {
        return { key, remoteLane: 0, identity: identity.toString('base64'), state: 'up' as const }
      }),
      own: { clusterset: 'demo', identity: own.identity.toString('base64'), agree: own.agree },
      notice: encodeRelayNotice({ addresses: addresses(), ticket: own.ticket.toString('base64') }),
      ports: new Map([[0, 4500]]),
    })
  }
  apply()
  const by = (key: string): string[] => (web.places().get(key) ?? []).map(({ cluster }) => cluster)
  return { web, clock, logger, apply, by, ended: () => logger.messages('info').filter((one) => one.includes('ended')) }
}

type End = ReturnType<typeof endOf>

/** Lets time pass in steps, so that pings are answered, until it is so. */
const passes = (ends: readonly End[], isSo: () => boolean, say: string): Promise<unknown> =>
  eventually(
    async () => {
      for (const { apply, clock } of ends) {
        await clock.advance(200)
        apply()
      }
      return isSo()
    },
    { ...long, intervalMs: 8, say },
  )

t.test('gateways at different processes with one key meet', async (t) => {
  const { addresses, relays, pin } = await siblings(t, 2)
  const [first = '', second = ''] = addresses
  const [oslo, paris, roma] = [await gateway(ca, 'oslo'), await gateway(ca, 'paris'), await gateway(ca, 'roma')]
  const names = relays.map(({ url }) => `tcp-443 ${url.host}`)
  // Both have the addresses, each in an order of its own. A gateway of the last release keeps to one of them.
  const a = endOf(t, oslo, { paris, roma }, () => [first, second])
  const b = endOf(t, paris, { oslo, roma }, () => [second, first])
  const [, at] = relays
  if (at === undefined) throw new Error('relays')
  const earlier = await connected(roma, { ...at, pin })
  earlier.connection.want([oslo.name, paris.name])
  await passes([a, b], () => a.by('paris').length === 2 && b.by('oslo').length === 2, 'both meet at both')
  await passes([a, b], () => a.by('roma').length === 1 && b.by('roma').length === 1, 'they meet the third at one')
  t.same([a.by('roma'), b.by('roma')], [[names[1]], [names[1]]])
  t.same(a.by('paris'), names, 'in the order of the addresses')
  t.match(a.web.views(), [
    { name: names[0], is: 'connected' },
    { name: names[1], is: 'connected' },
  ])
  t.same([a.ended(), b.ended()], [[], []])
  earlier.connection.close()
})

t.test('two addresses of one process are used one at a time, and the other one once the first fails', async (t) => {
  const { pin, relays } = await siblings(t, 1)
  const [at] = relays
  if (at === undefined) throw new Error('relays')
  const [oslo, paris] = [await gateway(ca, 'oslo'), await gateway(ca, 'paris')]
  const front = await frontOf(t, [at.port])
  const far = await connected(paris, { ...at, pin })
  far.connection.want([oslo.name])
  const a = endOf(t, oslo, { paris }, () => [`wss://localhost:${front.port}/#${pin}`, `${at.url.href}#${pin}`])
  await passes([a], () => a.by('paris').length === 1, 'by one of them')
  const used = a.by('paris')
  await passes([a], () => a.clock.monotonic() > 20_000, 'some time')
  t.same(a.by('paris'), used)
  const [one, other] = [`tcp-443 localhost:${front.port}`, `tcp-443 ${at.url.host}`]
  const byName = new Map(a.web.views().map((view) => [view.name, view]))
  const spare = used[0] === one ? other : one
  t.match(byName.get(used[0] ?? ''), { is: 'connected', sameAs: undefined })
  t.strictSame(byName.get(spare), { name: spare, is: 'idle', sameAs: used[0] })
  t.same(a.ended(), [], 'no connection has ended the other')
  await front.close()
  await passes([a], () => a.by('paris').join() === `tcp-443 ${at.url.host}`, 'by the other one')
  far.connection.close()
})

t.test('one address of several processes: it is said, and gateways meet', async (t) => {
  const { pin, relays } = await siblings(t, 3)
  const front = await frontOf(
    t,
    relays.map(({ port }) => port),
  )
  const address = `wss://127.0.0.1:${front.port}/#${pin}`
  const [oslo, paris] = [await gateway(ca, 'oslo'), await gateway(ca, 'paris')]
  const [, second] = relays
  if (second === undefined) throw new Error('relays')
  // A gateway that stays at the second of them.
  const far = await connected(paris, { ...second, pin })
  far.connection.want([oslo.name])
  front.only = 0
  const a = endOf(t, oslo, { paris }, () => [address])
  await passes([a], () => a.web.views()[0]?.is === 'connected', 'connected to the first')
  t.same([a.by('paris'), a.web.views()[0]?.trouble], [[], undefined])
  front.only = undefined
  await passes([a], () => a.web.views()[0]?.trouble !== undefined, 'it is noticed')
  t.match(a.web.views(), [{ is: 'connected', trouble: { reason: 'RelayAddressShared', why: /several relays answer/ } }])
  await passes([a], () => a.by('paris').length === 1, 'they meet')
  t.equal(a.logger.messages('warn').filter((one) => one.includes('several relays')).length, 1, 'it is said once')
  await passes([a], () => front.open() >= 3, 'one connection to each')
  // The first of its connections ends, and no other one can be made.
  front.only = 9
  front.dropFirst()
  await passes([a], () => a.ended().length > 0, 'one has ended')
  t.match(a.web.views(), [{ is: 'connected', trouble: { reason: 'RelayAddressShared' } }], 'by the others')
  t.ok(front.most() <= 5, `${front.most()} at once: they are bounded`)
  far.connection.close()
})

t.test('an address that always leads to one process comes first', async (t) => {
  const { pin, relays, addresses } = await siblings(t, 2)
  const front = await frontOf(
    t,
    relays.map(({ port }) => port),
  )
  const [oslo, paris] = [await gateway(ca, 'oslo'), await gateway(ca, 'paris')]
  const [first, second] = relays
  if (first === undefined || second === undefined) throw new Error('relays')
  const fars = [await connected(paris, { ...first, pin })]
  for (const { connection } of fars) connection.want([oslo.name])
  const nobody = await gateway(ca, 'roma')
  const a = endOf(t, oslo, { paris, nobody }, () => [`wss://127.0.0.1:${front.port}/#${pin}`, addresses[0] ?? ''])
  await passes([a], () => a.web.views().some(({ trouble }) => trouble !== undefined), 'it is noticed')
  const seenMs = a.clock.monotonic()
  const steady = `tcp-443 ${first.url.host}`
  await passes([a], () => a.by('paris')[0] === steady, 'the steady one is used')
  await passes([a], () => a.clock.monotonic() > seenMs + 60_000, 'a minute more')
  t.equal(a.by('paris')[0], steady)
  t.ok(a.ended().length <= 2, 'connections do not end each other again and again')
  for (const { connection } of fars) connection.close()
})

interface OtherRelay {
  readonly tls: Tls
  /** Its header. */
  readonly instance?: string
  /** It answers a call after that. */
  readonly slow?: Promise<unknown>
  /** It refuses a gateway that has proven itself, after that. */
  readonly refuses?: () => Promise<unknown>
}

/** A relay that is not of this release, or lets nobody in. */
async function otherRelay(t: Test, { tls, instance, slow, refuses }: OtherRelay) {
  const at = { proofs: 0, calls: 0, url: '', drop: (): void => undefined }
  const server = createServerOverTls({ cert: tls.certificate, key: tls.key }, (_request, response) => response.end())
  const sockets = new WebSocketServer({ noServer: true, handleProtocols: () => SUBPROTOCOL })
  if (instance !== undefined) sockets.on('headers', (headers) => headers.push(`${INSTANCE_HEADER}: ${instance}`))
  server.on('upgrade', (request, stream, head) => {
    at.calls++
    void (slow ?? Promise.resolve()).then(() =>
      sockets.handleUpgrade(request, stream, head, (socket) => sockets.emit('connection', socket, request)),
    )
  })
  const key = (await gateway(ca, 'relay')).identity
  sockets.on('connection', (socket) => {
    socket.send(encodeFrame({ t: 'challenge', version: FRAMES_VERSION, nonce: Buffer.alloc(32, 1), key, timeMs: 0 }))
    socket.on('message', (data) => {
      if (decodeFrame(data as Buffer)?.t !== 'proof') return
      at.proofs++
      if (refuses === undefined) socket.send(encodeFrame({ t: 'welcome' }))
      else
        void refuses().then(() => {
          socket.send(encodeFrame({ t: 'refused', why: 'full', timeMs: realClock.now() }), () => socket.close())
        })
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  at.drop = () => {
    for (const one of sockets.clients) one.terminate()
  }
  t.teardown(() => {
    at.drop()
    server.close()
  })
  at.url = `wss://127.0.0.1:${(server.address() as AddressInfo).port}/`
  return at
}

t.test('relays of the last release say nothing of it: a key is one relay, at its first address', async (t) => {
  const { tls, pin } = await sharedKey(ca)
  const [oslo, paris] = [await gateway(ca, 'oslo'), await gateway(ca, 'paris')]
  const answers = Promise.withResolvers<undefined>()
  const [first, second] = [await otherRelay(t, { tls, slow: answers.promise }), await otherRelay(t, { tls })]
  const addresses = [first, second].map(({ url }) => `${url}#${pin}`)
  const a = endOf(t, oslo, { paris }, () => addresses)
  // It is called, and its handshake has ended when it is called again.
  await eventually(() => second.calls === 1, { ...long, say: 'the second is called' })
  await passes([a], () => second.calls >= 2 || second.proofs > 0, 'the second has answered')
  t.same([first.proofs, second.proofs], [0, 0], 'the first may still answer')
  answers.resolve(undefined)
  await passes([a], () => a.clock.monotonic() > 30_000, 'some time')
  t.same([first.proofs, second.proofs], [1, 0])
  t.match(a.web.views(), [
    { name: nameOf(first.url), is: 'connected', trouble: undefined },
    { name: nameOf(second.url), is: 'idle', sameAs: nameOf(first.url) },
  ])
  first.drop()
  await eventually(() => a.ended().length === 1, { ...long, say: 'the first ends the connection' })
  a.apply()
  await eventually(() => second.proofs === 1, { ...long, say: 'the second at once, without any time' })
})

t.test('a relay that says that it is another one keeps nothing from that', async (t) => {
  const { relays, addresses } = await siblings(t, 1)
  const [honest] = relays
  if (honest === undefined) throw new Error('relays')
  const target = { clock: realClock, proxies: () => undefined, url: honest.url, pin: honest.pin }
  const instance = await askInstance({ ...target, pin: addresses[0]?.split('#')[1] ?? '' }, never)
  if (instance === undefined) throw new Error('instance')
  const own = await sharedKey(ca)
  const copying = await otherRelay(t, { tls: own.tls, instance })
  const [oslo, paris] = [await gateway(ca, 'oslo'), await gateway(ca, 'paris')]
  const listed: string[] = [`${copying.url}#${own.pin}`]
  const a = endOf(t, oslo, { paris }, () => listed)
  await passes([a], () => copying.proofs === 1, 'it answers first')
  listed.push(addresses[0] ?? '')
  await passes([a], () => a.web.views().filter(({ is }) => is === 'connected').length === 2, 'both are used')
  t.equal(a.logger.messages('warn').length, 0)
})

t.test('a relay that cannot be reached wakes the spare ones once', async (t) => {
  const { pin, relays } = await siblings(t, 1)
  const [at] = relays
  if (at === undefined) throw new Error('relays')
  const [oslo, paris] = [await gateway(ca, 'oslo'), await gateway(ca, 'paris')]
  const front = await frontOf(t, [at.port])
  const away = `wss://127.0.0.1:1/#${'a'.repeat(64)}`
  const a = endOf(t, oslo, { paris }, () => [`${at.url.href}#${pin}`, `wss://localhost:${front.port}/#${pin}`, away])
  await passes([a], () => a.clock.monotonic() > 60_000, 'a minute, in which it fails some twenty times')
  // 5, 10, 20 and 40 s apart, and less by chance.
  t.ok(front.calls() <= 9, `${front.calls()} calls`)
})

t.test('what a process refuses is said once for each of its addresses', async (t) => {
  const { tls, pin } = await sharedKey(ca)
  let answer = Promise.withResolvers<undefined>()
  const refusing = await otherRelay(t, { tls, instance: 'a'.repeat(16), refuses: () => answer.promise })
  const [oslo, paris] = [await gateway(ca, 'oslo'), await gateway(ca, 'paris')]
  const addresses = [refusing.url, refusing.url.replace('127.0.0.1', 'localhost')].map((url) => `${url}#${pin}`)
  const a = endOf(t, oslo, { paris }, () => addresses)
  for (let round = 1; round <= 3; round++) {
    await passes([a], () => a.web.views().every(({ is }) => is !== 'waiting'), 'both are called')
    // The first that comes waits for its answer, so the other one is not wanted.
    const isSpare = () => refusing.proofs === 2 * round - 1 && a.web.views().some(({ is }) => is === 'idle')
    await eventually(isSpare, { ...long, say: 'one proves itself, and the other one is spare' })
    answer.resolve(undefined)
    answer = Promise.withResolvers()
    await eventually(
      () => {
        a.apply()
        return refusing.proofs === 2 * round
      },
      { ...long, say: 'the other one at once' },
    )
    answer.resolve(undefined)
    answer = Promise.withResolvers()
    await eventually(() => a.web.views().every(({ is }) => is === 'waiting'), { ...long, say: 'both are refused' })
  }
  t.equal(a.logger.messages('warn').length, 2)
})

t.test('addresses of one process behind proxies that show different keys: one of them is used', async (t) => {
  for (const count of [2, 3]) {
    const at = await relay(t, [ca], { plain: true })
    const keys = await Promise.all(Array.from({ length: count }, () => sharedKey(ca)))
    const fronts = await Promise.all(keys.map(({ tls }) => tlsFrontOf(t, tls, at.port)))
    const addresses = fronts.map(({ port }, i) => `wss://127.0.0.1:${port}/#${keys[i]?.pin ?? ''}`)
    const [oslo, paris] = [await gateway(ca, 'oslo'), await gateway(ca, 'paris')]
    const far = await connected(paris, at)
    far.connection.want([oslo.name])
    const listed: string[] = []
    const a = endOf(t, oslo, { paris }, () => listed)
    const connections = () => a.logger.messages('info').filter((one) => one.startsWith('connected to')).length
    for (const [i, address] of addresses.entries()) {
      listed.push(address)
      await passes([a], () => connections() === i + 1, 'the new one takes the place of the one before')
    }
    const listedMs = a.clock.monotonic()
    await passes([a], () => a.clock.monotonic() - listedMs > 30_000, 'some time')
    t.equal(connections(), count, 'no other one took a place')
    t.same(a.ended(), [])
    const [used = ''] = a.by('paris')
    const views = a.web.views()
    t.match(
      views.find(({ name }) => name === used),
      { is: 'connected', trouble: undefined },
    )
    for (const spare of views.filter(({ name }) => name !== used)) t.match(spare, { is: 'idle', sameAs: used })
    const front = fronts[views.findIndex(({ name }) => name === used)]
    await front?.close()
    await passes([a], () => a.by('paris').join() !== used && a.by('paris').length === 1, 'by another one')
    if (count === 2) t.equal(connections(), 3)
    far.connection.close()
  }
})

t.test('after a restart, far ends are awaited where the relay is used, and nowhere once they are there', async (t) => {
  const { tls, pin } = await sharedKey(ca)
  const before = await relay(t, [ca], { tls })
  const fronts = await Promise.all(
    [0, 1].map(async () => {
      const ports = [before.port]
      return { ports, front: await frontOf(t, ports) }
    }),
  )
  const [oslo, paris, roma] = [await gateway(ca, 'oslo'), await gateway(ca, 'paris'), await gateway(ca, 'roma')]
  for (const one of [paris, roma]) (await connected(one, { ...before, pin })).connection.want([oslo.name])
  const addresses = fronts.map(({ front }) => `wss://127.0.0.1:${front.port}/#${pin}`)
  const a = endOf(t, oslo, { paris, roma }, () => addresses)
  await passes([a], () => a.by('paris').length === 1 && a.by('roma').length === 1, 'by one of them')
  const [was = ''] = a.by('paris')
  const names = addresses.map((one) => nameOf(one))
  const [used, spare] = names[0] === was ? fronts : fronts.toReversed()
  const is = names.find((one) => one !== was)
  if (used === undefined || spare === undefined || is === undefined) throw new Error('fronts')
  await passes([a], () => a.web.views().some(({ sameAs }) => sameAs === was), 'the other one is spare')
  // The next process is reached by the address that was spare.
  const next = await relay(t, [ca], { tls })
  used.ports[0] = 0
  spare.ports[0] = next.port
  const back = await connected(paris, { ...next, pin })
  back.connection.want([oslo.name])
  await before.stop()
  await eventually(() => a.ended().length === 1, { ...long, say: 'the process ends' })
  t.same([a.by('paris'), a.by('roma')], [[was], [was]])
  await a.clock.advance(700)
  await eventually(
    () => {
      a.apply()
      return a.by('paris').join() === is
    },
    { ...long, say: 'paris is found by the other one, and is awaited no longer' },
  )
  t.same(a.by('roma'), [was], 'roma may come again')
  used.ports[0] = next.port
  const calls = used.front.calls()
  await eventually(
    async () => {
      if (used.front.calls() === calls) await a.clock.advance(100)
      a.apply()
      return a.by('roma').join() === is
    },
    { ...long, say: 'roma is awaited where the relay is used' },
  )
  await passes([a], () => a.by('roma').length === 0, 'not for ever')
  t.same(a.by('paris'), [is])
  back.connection.close()
})

t.test('each process has another instance, which it says before anything is proven', async (t) => {
  const { pin, relays } = await siblings(t, 2)
  const ask = (url: URL) => askInstance({ clock: realClock, proxies: () => undefined, url, pin }, never)
  const [first, second] = relays
  if (first === undefined || second === undefined) throw new Error('relays')
  const said = [await ask(first.url), await ask(second.url), await ask(first.url)]
  t.match(said[0], /^[0-9a-f]{16}$/)
  t.equal(said[2], said[0])
  t.not(said[1], said[0])
  const oslo = await gateway(ca, 'oslo')
  const refused = connected(oslo, { ...first, pin }, { wants: ({ instance }) => instance !== said[0] })
  await t.rejects(refused, { name: 'RelayNotWantedError' })
  t.notMatch(await first.metrics(), /sealane_relay_connected_gateways[^\n]* [1-9]/)
})

/** A proxy that ends TLS. */
async function tlsFrontOf(t: Test, { certificate, key }: Tls, port: number) {
  const open = new Set<Socket>()
  const server = createTlsServer({ cert: certificate, key, ALPNProtocols: ['http/1.1'] }, (socket) => {
    const to = connect(port, '127.0.0.1')
    open.add(socket)
    socket.pipe(to).pipe(socket)
    for (const [one, other] of [[socket, to] as const, [to, socket] as const]) {
      one.on('error', () => undefined)
      one.once('close', () => {
        other.destroy()
        open.delete(socket)
      })
    }
  })
  async function close(): Promise<void> {
    for (const socket of open) socket.destroy()
    if (server.listening) await new Promise((resolve) => server.close(resolve))
  }
  t.teardown(close)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { port: (server.address() as AddressInfo).port, close }
}

/** A load balancer: connections go to each port in turn, or to one of them. */
async function frontOf(t: Test, ports: readonly number[]) {
  let next = 0
  let most = 0
  let calls = 0
  const open = new Set<Socket>()
  const front = {
    only: undefined as number | undefined,
    port: 0,
    open: () => open.size,
    most: () => most,
    calls: () => calls,
    dropFirst,
    close,
  }
  const server = createServer((socket) => {
    const to = connect(ports[front.only ?? next++ % ports.length] ?? 0, '127.0.0.1')
    open.add(socket)
    calls++
    most = Math.max(most, open.size)
    socket.pipe(to).pipe(socket)
    for (const [one, other] of [[socket, to] as const, [to, socket] as const]) {
      one.on('error', () => undefined)
      one.once('close', () => {
        other.destroy()
        open.delete(socket)
      })
    }
  })
  function dropFirst(): void {
    const [first] = open
    first?.destroy()
  }
  async function close(): Promise<void> {
    for (const socket of open) socket.destroy()
    if (server.listening) await new Promise((resolve) => server.close(resolve))
  }
  t.teardown(close)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  front.port = (server.address() as AddressInfo).port
  return front
}
