/** What a client does with a connection that is closed, and with one that is silent. */
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import t from 'tap'
import { BrokerSilentError } from '../../protocol/broker-client.ts'
import { keyToPem } from '../../protocol/identity/keys.ts'
import { certificateToPem } from '../../protocol/identity/certificates.ts'
import { failure } from '../support/failure.ts'
import { silentProxy } from '../support/silent-proxy.ts'
import { type Site, authority, member, startSite } from './site.ts'

const signal = AbortSignal.timeout(60_000)
const by = await authority('demo')
const site: Site = await startSite(by)
t.teardown(() => site.close())
const milano = await member(by, 'milano')

async function firstWatched(client: ReturnType<Site['client']>, until = signal): Promise<string | undefined> {
  for await (const message of client.watch({}, until)) return message.t
  return undefined
}

t.test(
  'a broker that goes between two calls, and one behind its address that says nothing after the handshake',
  async (t) => {
    const { certificate, key } = by.server
    const mute = createTlsServer({ cert: certificateToPem(certificate), key: keyToPem(key), ALPNProtocols: ['h2'] })
    mute.on('secureConnection', (socket) => socket.on('error', () => undefined).resume())
    await once(mute.listen(0, '127.0.0.1'), 'listening')
    t.teardown(() => mute.close())
    const own = await startSite(by)
    let { port } = own.server.address
    const proxy = await silentProxy(t, () => ({ host: '127.0.0.1', port }))
    const client = site.client(milano, { address: `127.0.0.1:${proxy.port}`, limits: { connectTimeoutMs: 3000 } })
    await client.renew(Buffer.from('csr'), signal)
    port = (mute.address() as AddressInfo).port
    // The server closes in good order: the connection ends once the client has closed it too.
    await own.server.close()
    for (let i = 0; i < 2; i++) {
      const error = await failure(firstWatched(client))
      t.equal(error.message, `broker at 127.0.0.1:${proxy.port}: no connection within 3000 ms`)
    }
    port = site.server.address.port
    t.equal(await firstWatched(client), 'reset', 'the next call finds the broker')
  },
)

t.test('a connection on which a session heard nothing in time is used no more', async (t) => {
  const proxy = await silentProxy(t, () => site.server.address)
  const client = site.client(milano, { address: `127.0.0.1:${proxy.port}` })
  await client.renew(Buffer.from('csr'), signal)
  proxy.silence()
  const late = new AbortController()
  const watching = failure(firstWatched(client, late.signal))
  late.abort(new BrokerSilentError())
  t.equal((await watching).message, 'the broker does not answer')
  t.equal(await firstWatched(client), 'reset', 'the next call makes a new one')
  t.equal(proxy.accepted(), 2)
})
