/** Three clustersets at one port, each with members of the same ids: an identity of one is useless at another. */
import { type IncomingHttpHeaders, connect as connectHttp2 } from 'node:http2'
import { type TLSSocket, createSecureContext, connect as connectTls } from 'node:tls'
import t, { type Test } from 'tap'
import { RefusedError } from '../../../protocol/broker-api.ts'
import { CertificateError } from '../../../protocol/broker-client.ts'
import {
  certificateToPem,
  checkBrokerName,
  fingerprint,
  serverNameOf,
} from '../../../protocol/identity/certificates.ts'
import { keyToPem } from '../../../protocol/identity/keys.ts'
import { createJoinToken } from '../../../protocol/identity/token.ts'
import type { Identity } from '../../../protocol/identity/x509.ts'
import { encodeRenewRequest } from '../../../protocol/codec/messages-codec.ts'
import { methodPath } from '../../../protocol/transport/raw-service.ts'
import { connectBroker, connectForJoin } from '../../../protocol/transport/grpc-client.ts'
import type { HostedClusterset } from '../../../protocol/transport/grpc-server.ts'
import { eventually } from '../../support/eventually.ts'
import { failure } from '../../support/failure.ts'
import { FakeBroker } from '../fake-broker.ts'
import { FACTS } from '../samples.ts'
import { type Authority, authority, clock, member, silent, startSite } from '../site.ts'

const signal = AbortSignal.timeout(60_000)
const NAMES = ['demo', 'blue', 'green'] as const

interface One {
  readonly by: Authority
  readonly api: FakeBroker
  readonly milano: Identity
  readonly hosted: HostedClusterset | undefined
}

const tlsOf = (by: Authority) => ({ ...by.server, ca: [by.ca.certificate], clusterset: by.clusterset })

async function start(t: Test) {
  const [first, ...others] = await Promise.all(NAMES.map((name) => authority(name)))
  if (first === undefined) throw new Error('no authority')
  const site = await startSite(first)
  t.teardown(() => site.close())
  const all = new Map<string, One>()
  all.set('demo', { by: first, api: site.api, milano: await member(first, 'milano'), hosted: undefined })
  for (const by of others) {
    const api = new FakeBroker()
    const hosted = site.server.host({ name: by.clusterset, api, tls: tlsOf(by) })
    all.set(by.clusterset, { by, api, milano: await member(by, 'milano'), hosted })
  }
  const of = (name: string): One => all.get(name) ?? never()
  /** Calls clusterset `at` as a client that trusts it, and shows `identity`. */
  const call = async (at: string, identity: Identity): Promise<unknown> => {
    const { by } = of(at)
    const init = { addresses: [site.address], clusterset: at, ca: [by.ca.certificate], clock, logger: silent, identity }
    const client = connectBroker(init)
    try {
      return await client.renew(new Uint8Array([1]), signal)
    } finally {
      client.close()
    }
  }
  return { site, of, call, all }
}

function never(): never {
  throw new Error('there is no such clusterset')
}

t.test('each member reaches its own, and nobody else', async (t) => {
  const { of, call } = await start(t)
  for (const name of NAMES) await call(name, of(name).milano)
  for (const name of NAMES)
    t.same(
      of(name).api.peers.map(({ cluster }) => cluster),
      ['milano'],
      name,
    )
  for (const at of NAMES) {
    for (const from of NAMES) {
      if (from === at) continue
      const error = await failure(call(at, of(from).milano))
      t.type(error, CertificateError)
      t.match(error, { problem: 'otherClusterset' }, `${from} at ${at}`)
    }
    t.equal(of(at).api.peers.length, 1, `${at} has answered nobody else`)
  }
})

t.test('a certificate that names another clusterset than its authority is of', async (t) => {
  const { of, call } = await start(t)
  // The authority of blue may sign any certificate: green does not trust it, and at blue its clusterset is wrong.
  const forged = await member({ ...of('blue').by, clusterset: 'green' }, 'milano')
  t.match(await failure(call('green', forged)), { problem: 'untrusted' })
  t.match(await failure(call('blue', forged)), { problem: 'otherClusterset' })
  t.match(await failure(call('demo', forged)), { problem: 'otherClusterset' })
  for (const name of NAMES) t.equal(of(name).api.peers.length, 0)
})

t.test('tokens find the authority that they name, whatever name is on them', async (t) => {
  const { site, of } = await start(t)
  for (const name of NAMES) {
    const caPin = fingerprint(of(name).by.ca.certificate)
    const init = { addresses: [site.address], caPin, clusterset: name, expiresAtMs: clock.now() + 60_000 }
    const client = await connectForJoin({ token: createJoinToken(init), clock, logger: silent }, signal)
    client.close()
    // The name on the token does not decide.
    const renamed = createJoinToken({ ...init, clusterset: name === 'blue' ? 'green' : 'blue' })
    const named = await connectForJoin({ token: renamed, clock, logger: silent }, signal)
    of(name).api.joinAnswer = () => {
      throw new RefusedError('TokenUnknown', 'token', `unknown at ${name}`)
    }
    const request = { secret: renamed.secret(), cluster: 'x', csr: new Uint8Array([1]), facts: FACTS, nowMs: 1 }
    t.match(await failure(named.join(request, signal)), { message: `unknown at ${name}` })
    named.close()
  }
})

/** The certificate that the server shows for `servername`, with a session that can be resumed. */
function shown(
  address: string,
  servername: string,
  init: { readonly identity?: Identity; readonly session?: Buffer } = {},
): Promise<{ readonly by: string; readonly session: Buffer | undefined; readonly resumed: boolean }> {
  const [host = '', port = ''] = address.split(':')
  const { identity, session } = init
  const own =
    identity === undefined ? {} : { cert: certificateToPem(identity.certificate), key: keyToPem(identity.key) }
  return new Promise((resolve, reject) => {
    const socket = connectTls({
      ...{ host, port: Number(port), servername, rejectUnauthorized: false, ALPNProtocols: ['h2'] },
      ...(session === undefined ? {} : { session }),
      secureContext: createSecureContext(own),
    })
    let kept: Buffer | undefined
    socket.on('session', (one) => (kept = one))
    socket.on('error', reject)
    socket.once('secureConnect', () => {
      const resumed = socket.isSessionReused()
      const by = String(socket.getPeerCertificate().issuer.CN)
      // The session ticket comes after the handshake, with the first data of the server.
      socket.once('data', () => {
        resolve({ by, session: kept, resumed })
        socket.destroy()
      })
    })
  })
}

/** The negotiated protocol, or the code of the refusal. */
function agreed(address: string, ALPNProtocols: string[]): Promise<string> {
  const [host = '', port = ''] = address.split(':')
  return new Promise((resolve) => {
    const socket = connectTls({ host, port: Number(port), rejectUnauthorized: false, ALPNProtocols })
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(String(error.code)))
    socket.once('close', () => resolve('closed'))
    socket.once('secureConnect', () => {
      if (socket.alpnProtocol !== 'h2') return
      resolve('h2')
      socket.destroy()
    })
  })
}

t.test('HTTP/2 is all that is spoken', async (t) => {
  const { site } = await start(t)
  for (const protocols of [['h2'], ['http/1.1', 'h2'], ['h2', 'spdy/3'], ['x'.repeat(255), 'h2']])
    t.equal(await agreed(site.address, protocols), 'h2')
  for (const protocols of [['http/1.1'], ['h2c', 'H2'], ['x'.repeat(255)]])
    t.equal(await agreed(site.address, protocols), 'ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL')
  t.equal(await agreed(site.address, []), 'closed', 'who asks for nothing')
  t.equal(await agreed(site.address, ['h2']), 'h2')
})

t.test('who asks for no clusterset, or for one that is not there, gets the first one', async (t) => {
  const { site, of } = await start(t)
  const name = (one: string): string => serverNameOf(fingerprint(of(one).by.ca.certificate))
  t.equal((await shown(site.address, name('blue'))).by, 'Sealane CA blue')
  t.equal((await shown(site.address, name('green'))).by, 'Sealane CA green')
  t.equal((await shown(site.address, name('demo'))).by, 'Sealane CA demo')
  const others = [serverNameOf(undefined), 'blue', 'blue.broker.sealane.internal', 'localhost', 'x'.repeat(200)]
  const half = name('blue').slice(1)
  for (const other of [...others, half, `${name('blue')}.`, `a.${name('blue')}`]) {
    t.equal((await shown(site.address, other)).by, 'Sealane CA demo', other)
  }
  t.match(
    name('blue'),
    /^[0-9a-f]{32}\.broker\.sealane\.internal$/,
    'the name of a clusterset does not go over the wire',
  )
})

/**
 * Renews over a connection that resumes `session`, if the server allows it. Returns the status, and whether it was
 * resumed.
 */
function renewWith(address: string, servername: string, { certificate, key }: Identity, session: Buffer | undefined) {
  const own = { cert: certificateToPem(certificate), key: keyToPem(key) }
  return new Promise<{ readonly status: string; readonly resumed: boolean }>((resolve, reject) => {
    const more = session === undefined ? {} : { session }
    const channel = connectHttp2(`https://${address}`, { ...own, ...more, servername, rejectUnauthorized: false })
    channel.on('error', reject)
    const headers = {
      ':method': 'POST',
      ':path': methodPath('renew'),
      'content-type': 'application/grpc',
      te: 'trailers',
    }
    const stream = channel.request(headers)
    stream.on('error', reject)
    const done = (found: IncomingHttpHeaders): void => {
      if (found['grpc-status'] === undefined) return
      resolve({ status: String(found['grpc-status']), resumed: (channel.socket as TLSSocket).isSessionReused() })
      channel.destroy()
    }
    stream.on('response', done)
    stream.on('trailers', done)
    const body = Buffer.from(encodeRenewRequest(new Uint8Array([1])))
    const frame = Buffer.alloc(5)
    frame.writeUInt32BE(body.length, 1)
    stream.end(Buffer.concat([frame, body]))
    stream.resume()
  })
}

t.test('a TLS session of one clusterset opens nothing at another', async (t) => {
  const { site, of } = await start(t)
  const name = (one: string): string => serverNameOf(fingerprint(of(one).by.ca.certificate))
  const { milano } = of('blue')
  const { session } = await shown(site.address, name('blue'), { identity: milano })
  t.ok(session, 'the broker gives out sessions')
  t.match(await renewWith(site.address, name('blue'), milano, undefined), { status: '0' })
  t.equal(of('blue').api.peers.length, 1)
  for (const at of ['green', 'demo']) {
    const found = await renewWith(site.address, name(at), milano, session)
    t.comment(`at ${at}: ${JSON.stringify(found)}`)
    t.equal(found.status, '16', 'UNAUTHENTICATED')
    t.equal(of(at).api.peers.length, 0, `nobody is let in at ${at}`)
  }
  t.equal(of('blue').api.peers.length, 1)
})

t.test('one is taken away: its streams end, the others go on', async (t) => {
  const { site, of, call } = await start(t)
  const ended: string[] = []
  const heard: string[] = []
  const open = (name: string): void => {
    const { by, milano: identity } = of(name)
    const client = connectBroker({
      ...{ addresses: [site.address], clusterset: name, ca: [by.ca.certificate], clock, logger: silent, identity },
    })
    t.teardown(() => client.close())
    const watch = async (): Promise<void> => {
      for await (const message of client.watch({}, signal)) heard.push(message.t)
    }
    watch().catch(() => void ended.push(name))
  }
  for (const name of NAMES) open(name)
  await eventually(() => NAMES.every((name) => of(name).api.openStreams === 1), { say: 'three streams' })
  await of('blue').hosted?.close()
  await eventually(() => ended.length > 0, { say: 'the stream of blue ends' })
  t.same(ended, ['blue'])
  for (const name of ['demo', 'green']) await call(name, of(name).milano)
  t.match(await failure(call('blue', of('blue').milano)), { problem: 'otherClusterset' }, 'it is not here any more')
  t.same(ended, ['blue'])

  // The clusterset is hosted again, with the same authority.
  const { by, api } = of('blue')
  const again = site.server.host({ name: 'blue', api, tls: tlsOf(by) })
  const before = api.peers.length
  await call('blue', of('blue').milano)
  t.equal(api.peers.length, before + 1)

  // Another authority takes its place: the name of the previous one is not served any more.
  const next = await authority('blue')
  again.setTls(tlsOf(next))
  t.match(await failure(call('blue', of('blue').milano)), { problem: 'otherClusterset' })
  again.setTls({ ...tlsOf(next), removed: [by.ca.certificate] })
  t.match(await failure(call('blue', of('blue').milano)), { name: 'CertificateError' }, 'told why, not of another one')
})

t.test('the certificate is for the same name whatever it was called by', (t) => {
  const certificate = (name: string) =>
    ({ subject: { CN: name }, subjectaltname: `DNS:${name}` }) as unknown as Parameters<typeof checkBrokerName>[0]
  t.equal(checkBrokerName(certificate('broker.sealane.internal')), undefined)
  t.match(checkBrokerName(certificate('other.sealane.internal')), { code: 'ERR_TLS_CERT_ALTNAME_INVALID' })
  t.end()
})
