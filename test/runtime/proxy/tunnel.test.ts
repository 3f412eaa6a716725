/** Connections through real proxies over real sockets, and what a proxy may do wrong. */
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { SystemClock } from '../../../reconcile/clock.ts'
import { parseProxy } from '../../../runtime/proxy/proxy-rules.ts'
import { type TunnelInit, openTunnel, proxySchemes } from '../../../runtime/proxy/tunnel.ts'
import { type ConnectProxyInit, type ProxyFault, connectProxy } from '../../support/connect-proxy.ts'
import { messageOf } from '../../support/failure.ts'

const clock = new SystemClock()
const never = new AbortController().signal

/** A server that speaks first and repeats what it hears. Returns its port. */
async function greeter(t: Test): Promise<number> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined)
    socket.write('hello\n')
    socket.pipe(socket)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  return (server.address() as AddressInfo).port
}

function through(url: string, to: { host: string; port: number }, more: Partial<TunnelInit> = {}) {
  return openTunnel({ clock, proxy: parseProxy(url, 'HTTPS_PROXY'), to, timeoutMs: 5000, ...more }, never)
}

t.test('through each kind of proxy, with and without a password', async (t) => {
  const port = await greeter(t)
  const inits: readonly ConnectProxyInit[] = [
    {},
    { login: 'ana:p%w' },
    { scheme: 'socks5' },
    { scheme: 'socks5', login: 'ana:secret' },
  ]
  for (const init of inits) {
    const proxy = await connectProxy(t, init)
    for (const host of ['broker.test', '192.0.2.1', '2001:db8::1']) {
      const socket = await through(proxy.url.replace('p%w', 'p%25w'), { host, port })
      const [first] = (await once(socket, 'data')) as [Buffer]
      t.equal(first.toString(), 'hello\n', 'what the server said first is not lost')
      socket.write('ping')
      const [second] = (await once(socket, 'data')) as [Buffer]
      t.equal(second.toString(), 'ping')
      socket.destroy()
    }
    const v6 = init.scheme === 'socks5' ? '20010db8000000000000000000000001' : '[2001:db8::1]'
    t.strictSame(proxy.asked, [`broker.test:${port}`, `192.0.2.1:${port}`, `${v6}:${port}`])
  }
})

t.test('the schemes that a proxy offers', async (t) => {
  const rows: readonly (readonly [lines: readonly string[], schemes: readonly string[]])[] = [
    [['Via: NTLM'], []],
    [['Proxy-Authenticate: NTLM'], ['ntlm']],
    [['PROXY-AUTHENTICATE:Negotiate oYG2MIGz=='], ['negotiate']],
    [['Proxy-Authenticate: Basic realm="x, NTLM"'], ['basic']],
    [['Proxy-Authenticate: Basic realm="a \\"q\\", Digest"'], ['basic']],
    [['Proxy-Authenticate: Digest realm="x", qop="auth,auth-int", nonce = "y", NTLM'], ['digest', 'ntlm']],
    [
      ['Proxy-Authenticate: NTLM', 'Proxy-Authenticate: Basic realm=x'],
      ['basic', 'ntlm'],
    ],
    [['Proxy-Authenticate: '], []],
    [[`Proxy-Authenticate: ${'x'.repeat(500)}`], []],
    [['Proxy-Authenticate: \u001b[31mred'], []],
  ]
  for (const [lines, schemes] of rows)
    t.same(proxySchemes(['HTTP/1.1 407 x', ...lines].join('\r\n')), schemes, lines.join())
  fc.assert(
    fc.property(fc.array(fc.string()), (texts) => {
      const lines = texts.map((text) => `Proxy-Authenticate: ${text.replaceAll('\r\n', '')}`)
      const found = proxySchemes(['HTTP/1.1 407 x', ...lines, 'Proxy-Authenticate: Basic'].join('\r\n'))
      return found[0] === 'basic' && found.length <= 8 && found.every((one) => /^[\x21-\x7e]{1,32}$/.test(one))
    }),
  )
})

t.test('what is wrong is said, and never the password', async (t) => {
  const to = { host: 'broker.test', port: 7443 }
  const said = async (proxy: { url: string; port: number }, url: string, more: Partial<TunnelInit> = {}) => {
    const message = await messageOf(through(url, to, more))
    t.notMatch(message, 'secret')
    return message.replace(`127.0.0.1:${proxy.port}`, 'P')
  }
  const plain = await connectProxy(t, { login: 'ana:secret' })
  const without = plain.url.replace('ana:secret@', '')
  t.equal(await said(plain, without), 'proxy http://P: it wants a user and a password (status 407)')
  const wrong = plain.url.replace('ana:', 'ben:')
  t.equal(await said(plain, wrong), 'proxy http://P: it refuses the user or the password (status 407)')
  const faults: readonly (readonly [fault: ProxyFault, message: string])[] = [
    ['garbage', 'its answer is not HTTP'],
    ['endless', 'its answer has more than 16384 bytes'],
    ['close', 'it closed the connection'],
    ['silent', 'no connection to broker.test:7443 within 0.2 s'],
    ['HTTP/1.1 403 Forbidden', 'it does not connect to broker.test:7443 (status 403)'],
    ['HTTP/1.1 502 secret', 'it does not connect to broker.test:7443 (status 502)'],
    ['HTTP/1.1 99999 x', 'its answer is not HTTP'],
  ]
  for (const [fault, message] of faults) {
    plain.fault = fault
    const timeoutMs = fault === 'silent' ? 200 : 5000
    t.equal(await said(plain, plain.url, { timeoutMs }), `proxy http://P: ${message}`)
  }
  const ntlm = 'HTTP/1.1 407 x\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: NTLM'
  const unsupported = 'it wants negotiate or ntlm, which Sealane does not support: expected basic (status 407)'
  const both = `${ntlm}\r\nproxy-authenticate: Basic realm="a, b"` as ProxyFault
  const login = 'it refuses the user or the password (status 407)'
  for (const [fault, message, reason] of [
    [ntlm, unsupported, 'ProxyAuthUnsupported'],
    [both, login, 'ProxyRefused'],
    ['HTTP/1.1 407 x', login, 'ProxyRefused'],
  ] as const) {
    plain.fault = fault
    t.equal(await said(plain, plain.url), `proxy http://P: ${message}`)
    await t.rejects(through(plain.url, to), { name: 'ProxyError', reason })
  }
  plain.fault = ntlm
  t.equal(await said(plain, without), `proxy http://P: ${unsupported}`, 'also without a password')
  const socks = await connectProxy(t, { scheme: 'socks5', login: 'ana:secret' })
  t.equal(await said(socks, socks.url.replace('ana:secret@', '')), 'proxy socks5://P: it wants a user and a password')
  t.equal(await said(socks, socks.url.replace('ana:', 'ben:')), 'proxy socks5://P: it refuses the user or the password')
  t.match(
    await messageOf(through(socks.url, { host: 'refused.test', port: 1 })),
    /: it does not connect to refused\.test:1: its rules do not allow it$/,
  )
  socks.fault = 'garbage'
  t.equal(await said(socks, socks.url), 'proxy socks5://P: its answer is not SOCKS5')
  const gone = await connectProxy(t)
  t.match(await messageOf(through('http://127.0.0.1:1', to)), /connection refused: nothing listens there$/)
  t.match(await messageOf(through(gone.url, { host: 'a\r\nb', port: 1 })), /characters that no name has$/)
  t.strictSame(gone.asked, [])
  const end = new AbortController()
  const pending = openTunnel({ clock, proxy: parseProxy(gone.url, 'x'), to, timeoutMs: 5000 }, end.signal)
  end.abort(new Error('stopped'))
  t.equal(await messageOf(pending), 'stopped')
})
