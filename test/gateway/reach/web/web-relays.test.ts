/** A gateway's use of a relay on port 443: a way to each far end that is there too, and what a restart leaves. */
import { createSocket } from 'node:dgram'
import { createPublicKey } from 'node:crypto'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { WebSocketServer } from 'ws'
import type { WebRelayDeps } from '../../../../gateway/reach/web/web-relay.ts'
import { WebRelays } from '../../../../gateway/reach/web/web-relays.ts'
import { encodeRelayNotice } from '../../../../model/lanes/relay-address.ts'
import { certificateToPem } from '../../../../protocol/identity/certificates.ts'
import { createKey, keyToPem } from '../../../../protocol/identity/keys.ts'
import { createServerCertificate } from '../../../../protocol/identity/x509.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../../runtime/logging/capturing-logger.ts'
import { FRAMES_VERSION, SUBPROTOCOL, decodeFrame, encodeFrame } from '../../../../runtime/datagrams/frames.ts'
import { proxyChoiceOnCall } from '../../../../runtime/proxy/proxy.ts'
import { createServerOverTls } from '../../../../runtime/http/http.ts'
import { pinOf } from '../../../../runtime/datagrams/relay-connection.ts'
import { authority, clock as realClock, connected, gateway, relay } from '../../../relay/relay-site.ts'
import { connectProxy } from '../../../support/connect-proxy.ts'
import { eventually } from '../../../support/eventually.ts'

t.test('the ways to far ends outlast a restart of the relay, for ends that come back', async (t) => {
  const ca = await authority('demo')
  const [own, paris, roma] = [await gateway(ca, 'oslo'), await gateway(ca, 'paris'), await gateway(ca, 'roma')]
  const server = await createServerCertificate(ca, { clusterset: 'demo', key: createKey(), nowMs: realClock.now() })
  const tls = { certificate: certificateToPem(server.certificate), key: keyToPem(server.key) }
  const pin = pinOf(createPublicKey(server.key).export({ type: 'spki', format: 'der' }))
  const first = await relay(t, [ca], { tls })
  const at = { url: first.url, pin }

  const cable = createSocket('udp4').bind(0, '127.0.0.1')
  await once(cable, 'listening')
  t.teardown(() => cable.close())
  const clock = new FakeClock({ now: realClock.now() })
  let isDue = false
  let fewest = Infinity
  const web = new WebRelays({
    ...{ clock, logger: new CapturingLogger(), proxies: () => undefined, onDropped: () => undefined },
    onChange: () => (fewest = Math.min(fewest, web.places().size)),
    onDue: () => (isDue = true),
  })
  t.teardown(() => web.close())
  const apply = (): void => {
    isDue = false
    web.apply({
      links: Object.entries({ paris, roma }).map(([key, { identity }]) => {
        return { key, remoteLane: 0, identity: identity.toString('base64'), state: 'up' as const }
      }),
      own: { clusterset: 'demo', identity: own.identity.toString('base64'), agree: own.agree },
      notice: encodeRelayNotice({ addresses: [`${first.url.href}#${pin}`], ticket: own.ticket.toString('base64') }),
      ports: new Map([[0, cable.address().port]]),
    })
  }
  const comes = async (who: typeof paris) => {
    const end = await connected(who, at)
    end.connection.want([own.name])
    return end
  }
  const ways = (): string[] => [...web.places().keys()].sort()
  const passes = (key: string, to: { readonly got: readonly string[] }, say: string): Promise<unknown> =>
    eventually(
      () => {
        const port = web.places().get(key)?.[0]?.at.port
        if (port !== undefined) cable.send(say, port, '127.0.0.1')
        return to.got.includes(`${own.name} ${say}`)
      },
      { deadlineMs: 20_000, say: `${say} reaches ${key}` },
    )

  apply()
  await passes('paris', await comes(paris), 'hello')
  await passes('roma', await comes(roma), 'hello')
  t.same(ways(), ['paris', 'roma'])
  const port = (key: string): number | undefined => web.places().get(key)?.[0]?.at.port
  const before = [port('paris'), port('roma')]

  fewest = Infinity
  await first.stop()
  await relay(t, [ca], { tls, port: first.port })
  // The clock goes on no further than to the next call, so what follows is less than a second after the loss.
  await eventually(
    async () => {
      if (!isDue) await clock.advance(100)
      return isDue
    },
    { deadlineMs: 20_000, say: 'the relay is called again' },
  )
  apply()
  const again = await comes(paris)
  await passes('paris', again, 'again')
  t.same([port('paris'), port('roma')], before, 'roma, which is not back yet, keeps its way, and each its port')
  t.equal(fewest < 2, false, 'no way was lost in the meantime')
  // Step by step, so that pings are answered.
  const later = async (ms: number): Promise<void> => {
    const untilMs = clock.monotonic() + ms
    await eventually(
      async () => {
        await clock.advance(Math.min(200, untilMs - clock.monotonic()))
        return clock.monotonic() >= untilMs
      },
      { deadlineMs: 20_000, say: `${ms} ms later` },
    )
  }
  await later(8500)
  t.same(ways(), ['paris', 'roma'], 'a relay may call it back so late')
  await later(5000)
  t.same(ways(), ['paris'], 'it has not come back in time')
  await passes('roma', await comes(roma), 'late')
  t.same(ways(), ['paris', 'roma'])
  again.connection.close()
  await eventually(() => ways().join() === 'roma', { deadlineMs: 20_000, say: 'one that leaves is gone at once' })
})

t.test('a relay that speaks early, and wants to be called again in weeks', async (t) => {
  const ca = await authority('demo')
  const [own, paris] = [await gateway(ca, 'oslo'), await gateway(ca, 'paris')]
  const key = createKey()
  const server = await createServerCertificate(ca, { clusterset: 'demo', key, nowMs: realClock.now() })
  const tls = { certificate: certificateToPem(server.certificate), key: keyToPem(server.key) }
  const pin = pinOf(createPublicKey(server.key).export({ type: 'spki', format: 'der' }))
  const hostile = createServerOverTls({ cert: tls.certificate, key: tls.key }, (_request, response) => response.end())
  const sockets = new WebSocketServer({ server: hostile, handleProtocols: () => SUBPROTOCOL })
  let calls = 0
  sockets.on('connection', (socket, request) => {
    calls++
    const challenge = { version: FRAMES_VERSION, nonce: Buffer.alloc(32, 1), key: own.identity, timeMs: 0 }
    socket.send(encodeFrame({ t: 'challenge', ...challenge }))
    socket.on('message', (data) => {
      const frame = decodeFrame(data as Buffer)
      if (frame?.t === 'proof') {
        // Both in one segment.
        request.socket.cork()
        socket.send(encodeFrame({ t: 'welcome' }))
        socket.send(encodeFrame({ t: 'present', ends: [paris.name] }))
        request.socket.uncork()
      } else if (frame?.t === 'wants') {
        socket.send(encodeFrame({ t: 'restarting', againMs: 0xffffffff }), () => socket.close())
      }
    })
  })
  hostile.listen(0, '127.0.0.1')
  await once(hostile, 'listening')
  t.teardown(() => {
    sockets.close()
    hostile.close()
  })
  const { port } = hostile.address() as AddressInfo
  const clock = new FakeClock({ now: realClock.now() })
  const logger = new CapturingLogger()
  let isDue = false
  let most = 0
  const web = new WebRelays({
    ...{ clock, logger, proxies: () => undefined, onDropped: () => undefined },
    onChange: () => (most = Math.max(most, web.places().size)),
    onDue: () => (isDue = true),
  })
  t.teardown(() => web.close())
  web.apply({
    links: [{ key: 'paris', remoteLane: 0, identity: paris.identity.toString('base64'), state: 'up' }],
    own: { clusterset: 'demo', identity: own.identity.toString('base64'), agree: own.agree },
    notice: encodeRelayNotice({
      addresses: [`wss://127.0.0.1:${port}/#${pin}`],
      ticket: own.ticket.toString('base64'),
    }),
    ports: new Map([[0, 4500]]),
  })
  await eventually(() => logger.messages('info').length === 2, {
    ...{ deadlineMs: 20_000, say: 'the connection ends' },
  })
  t.same([calls, most, isDue], [1, 1, false])
  t.match(web.views(), [{ is: 'waiting', trouble: { reason: 'RelayUnreachable', why: /./ } }], 'it says so until then')
  await clock.advance(12_000)
  t.equal(isDue, true, 'it is called again soon')
})

/** What a gateway makes of relays on a clock that does not go on by itself. */
async function alone(t: Test, more: Partial<WebRelayDeps> = {}) {
  const ca = await authority('demo')
  const [own, paris] = [await gateway(ca, 'oslo'), await gateway(ca, 'paris')]
  const clock = new FakeClock({ now: realClock.now() })
  const logger = new CapturingLogger()
  const web = new WebRelays({
    ...{ clock, logger, proxies: () => undefined, onDropped: () => undefined },
    ...{ onChange: () => undefined, onDue: () => undefined },
    ...more,
  })
  t.teardown(() => web.close())
  const apply = (addresses: readonly string[], ticket = own.ticket): void => {
    web.apply({
      links: [{ key: 'paris', remoteLane: 0, identity: paris.identity.toString('base64'), state: 'up' }],
      own: { clusterset: 'demo', identity: own.identity.toString('base64'), agree: own.agree },
      notice: encodeRelayNotice({ addresses, ticket: ticket.toString('base64') }),
      ports: new Map([[0, 4500]]),
    })
  }
  const places = () => web.places().get('paris') ?? []
  return { ca, own, paris, clock, logger, apply, places }
}

const addressOf = ({ url, pin }: { readonly url: URL; readonly pin: string }): string => `${url.href}#${pin}`
const long = { deadlineMs: 20_000 }

t.test('a link goes on at once by another relay, and waits where there is none', async (t) => {
  const { ca, own, paris, clock, logger, apply, places } = await alone(t)
  const [first, second] = [await relay(t, [ca]), await relay(t, [ca])]
  apply([addressOf(first), addressOf(second)])
  const ends = [await connected(paris, first), await connected(paris, second)]
  for (const { connection } of ends) connection.want([own.name])
  await eventually(() => places().length === 2, { ...long, say: 'paris is at both' })
  const [, other] = places()
  await first.stop()
  await eventually(() => places().length === 1, { ...long, say: 'the way by the first is gone, without any time' })
  t.same(places(), [other])
  await second.stop()
  const lost = () => logger.messages('info').filter((one) => one.includes('has ended'))
  await eventually(() => lost().length === 2, { ...long, say: 'the second ends too' })
  await clock.advance(13_000)
  t.same(places(), [other], 'it may come again')
  await clock.advance(500)
  t.same(places(), [])
})

t.test('a ticket that is refused is not shown again soon, and the next one at once', async (t) => {
  const { ca, own, paris, logger, apply } = await alone(t)
  const at = await relay(t, [ca])
  const other = await gateway(ca, 'oslo', { identities: [paris.identity.toString('base64')] })
  apply([addressOf(at)], other.ticket)
  await eventually(() => logger.messages('warn').length === 1, { ...long, say: 'it is refused' })
  apply([addressOf(at)], other.ticket)
  apply([addressOf(at)], own.ticket)
  await eventually(() => logger.messages('info').length === 1, { ...long, say: 'it is let in' })
  t.match(await at.metrics(), /why="notListed"[^}]*} 1\n/)
})

t.test('a proxy that cannot be used has a reason, and is not passed by', async (t) => {
  const proxy = await connectProxy(t)
  proxy.fault = 'HTTP/1.1 407 x\r\nProxy-Authenticate: NTLM'
  const rows: readonly (readonly [text: string, reason: string])[] = [
    [proxy.url, 'ProxyAuthUnsupported'],
    ['http://127.0.0.1:1', 'ProxyRefused'],
    ['gopher://user:secret@proxy.test', 'InvalidValue'],
  ]
  for (const [text, reason] of rows) {
    const choice = proxyChoiceOnCall({ HTTPS_PROXY: text })
    // Addresses of this machine are never called through a proxy.
    const proxies = () => choice({ host: 'relay.test', port: 443 })
    const { ca, logger, apply } = await alone(t, { proxies })
    const at = await relay(t, [ca])
    apply([addressOf(at)])
    await eventually(() => logger.lines.length > 0, { ...long, say: 'it is reported' })
    t.match(logger.lines[0], { level: 'warn', fields: { reason } }, text)
    t.notMatch(JSON.stringify(logger.lines), 'secret')
  }
})

t.test('two addresses of one relay, of which one or both are right', async (t) => {
  const ca = await authority('demo')
  const [own, paris] = [await gateway(ca, 'oslo'), await gateway(ca, 'paris')]
  const at = await relay(t, [ca])
  const cable = createSocket('udp4').bind(0, '127.0.0.1')
  await once(cable, 'listening')
  t.teardown(() => cable.close())
  const far = await connected(paris, at)
  far.connection.want([own.name])
  t.teardown(() => far.connection.close())
  const named = new URL(at.url)
  named.hostname = 'localhost'
  // The same relay by another name, which is what two advertised addresses of a broker are.
  const [direct, byName] = [at.url.href, named.href]
  const rows: readonly (readonly [right: string, pin: string, other: string])[] = [
    ['both', at.pin.toUpperCase(), direct],
    ['the second', 'ab'.repeat(32), direct],
    ['both hosts', at.pin, byName],
    ['the second host', 'ab'.repeat(32), byName],
  ]
  for (const [right, pin, other] of rows) {
    const logger = new CapturingLogger()
    const web = new WebRelays({
      ...{ clock: realClock, logger, proxies: () => undefined, onDropped: () => undefined },
      ...{ onChange: () => undefined, onDue: () => undefined },
    })
    t.teardown(() => web.close())
    const apply = (): void => {
      web.apply({
        links: [{ key: 'paris', remoteLane: 0, identity: paris.identity.toString('base64'), state: 'up' }],
        own: { clusterset: 'demo', identity: own.identity.toString('base64'), agree: own.agree },
        notice: encodeRelayNotice({
          addresses: [`${at.url.href}#${pin}`, `${other}#${at.pin}`],
          ticket: own.ticket.toString('base64'),
        }),
        ports: new Map([[0, cable.address().port]]),
      })
    }
    let sent = 0
    await eventually(
      () => {
        apply()
        for (const { at: place } of web.places().get('paris') ?? [])
          cable.send(`${right} ${sent++}`, place.port, '127.0.0.1')
        return far.got.filter((one) => one.startsWith(`${own.name} ${right} `)).length >= 20
      },
      { deadlineMs: 20_000, say: `${right}: datagrams pass` },
    )
    t.equal(web.places().get('paris')?.length, 1, right)
    const said = logger.messages('info').filter((one) => one.includes('ended'))
    t.same(said, [], `${right}: no connection ends the other`)
    web.close()
    await eventually(() => far.present().length === 0, { say: 'it is gone' })
  }
})
