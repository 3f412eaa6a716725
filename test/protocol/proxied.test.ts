/** The broker behind a proxy of the member's environment: mutual TLS passes through it, and its refusals are said. */
import t from 'tap'
import { BrokerUnreachableError, CertificateError } from '../../protocol/broker-client.ts'
import { fingerprint } from '../../protocol/identity/certificates.ts'
import { createKey } from '../../protocol/identity/keys.ts'
import { createJoinToken } from '../../protocol/identity/token.ts'
import { createCsr } from '../../protocol/identity/x509.ts'
import { connectBroker, connectForJoin } from '../../protocol/transport/grpc-client.ts'
import { probeServer } from '../../protocol/transport/probe-server.ts'
import { connectProxy } from '../support/connect-proxy.ts'
import { failure } from '../support/failure.ts'
import { FACTS } from './samples.ts'
import { authority, clock, member, silent, startSite } from './site.ts'

const signal = AbortSignal.timeout(60_000)
const by = await authority('demo')
const site = await startSite(by)
t.teardown(() => site.close())
const milano = await member(by, 'milano')
/** A name that only the proxy knows. */
const address = site.address.replace('127.0.0.1', 'broker.test')

t.test('joins and watches through each kind of proxy', async (t) => {
  site.api.joinAnswer = (request, peerAddress) => ({
    certificate: request.csr,
    caBundle: [by.ca.certificate],
    clusterset: 'demo',
    clusterIndex: 3,
    podCIDRs: [],
    serviceCIDRs: [],
    globalCIDRs: [],
    globalRange: '244.0.0.0/8',
    clustersetIpRange: '245.0.0.0/16',
    observedAddress: peerAddress,
    observedCounts: true,
  })
  for (const init of [{}, { login: 'ana:secret' }, { scheme: 'socks5' as const, login: 'ana:secret' }]) {
    const proxy = await connectProxy(t, init)
    const env = { HTTPS_PROXY: proxy.url, NO_PROXY: 'other.test' }
    const token = createJoinToken({
      addresses: [address],
      caPin: fingerprint(by.ca.certificate),
      clusterset: 'demo',
      expiresAtMs: clock.now() + 60_000,
    })
    const joining = await connectForJoin({ token, clock, logger: silent, env }, signal)
    const csr = await createCsr(createKey())
    const answer = await joining.join(
      { secret: token.secret(), cluster: 'milano', csr, facts: FACTS, nowMs: 1 },
      signal,
    )
    joining.close()
    t.equal(answer.clusterIndex, 3)
    const ca = [by.ca.certificate]
    const init2 = { addresses: [address], clusterset: 'demo', ca, identity: milano, clock, logger: silent, env }
    const client = connectBroker(init2)
    for await (const message of client.watch({}, signal)) {
      t.ok(message.t, 'the broker knows the certificate of the member')
      break
    }
    client.close()
    t.ok(proxy.asked.length >= 3 && proxy.asked.every((one) => one === address), proxy.asked.join())
  }
})

t.test('what is wrong on the way is said', async (t) => {
  const proxy = await connectProxy(t, { login: 'ana:secret' })
  const env = { HTTPS_PROXY: proxy.url }
  const said = async (more: object = {}): Promise<Error> => {
    const ca = [by.ca.certificate]
    const limits = { connectTimeoutMs: 2000, probeTimeoutMs: 500 }
    const init = { addresses: [address], clusterset: 'demo', ca, identity: milano, clock, logger: silent, env, limits }
    const client = connectBroker({ ...init, ...more })
    const error = await failure(client.leave(signal))
    client.close()
    t.notMatch(error.message, 'secret')
    return error
  }
  proxy.fault = 'HTTP/1.1 403 Forbidden'
  const refused = await said()
  t.type(refused, BrokerUnreachableError)
  t.match(refused, { reason: 'ProxyRefused' })
  t.match(
    refused.message,
    /^broker at broker\.test:\d+: proxy http:\/\/127.*: it does not connect to .* \(status 403\)$/,
  )
  proxy.fault = 'garbage'
  t.match((await said()).message, /its answer is not HTTP$/)
  proxy.fault = 'silent'
  t.match((await said()).message, /no connection/)
  proxy.fault = undefined
  t.match((await said({ env: { HTTPS_PROXY: proxy.url.replace('ana:', 'ben:') } })).message, /refuses the user/)
  const other = await authority('other')
  const probe = { address: { host: 'broker.test', port: site.server.address.port }, clusterset: 'other', clock }
  const wrong = await failure(probeServer({ ...probe, ca: [other.ca.certificate], timeoutMs: 2000, env }, signal))
  t.type(wrong, CertificateError, 'the broker behind the proxy is checked as any other')
  t.throws(
    () =>
      connectBroker({
        addresses: [address],
        clusterset: 'demo',
        ca: [],
        clock,
        logger: silent,
        env: { HTTPS_PROXY: 'x y' },
      }),
    {
      message: 'HTTPS_PROXY: expected the URL of a proxy, such as http://proxy.example:3128',
    },
  )
})
