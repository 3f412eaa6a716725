/** The broker probe takes the way that the agent takes: through the proxy of the environment, and never past it. */
import { once } from 'node:events'
import { type AddressInfo, type Socket, createServer } from 'node:net'
import t, { type Test } from 'tap'
import { probeBroker } from '../../../cli/status/probes/broker-probe.ts'
import { SILENT_PROGRESS } from '../../../cli/status/probes/progress.ts'
import { parseClusterId } from '../../../model/ids.ts'
import { authority, member, startSite } from '../../protocol/site.ts'
import { type ConnectProxy, connectProxy } from '../../support/connect-proxy.ts'

const signal = AbortSignal.timeout(60_000)
const by = await authority('demo')
const site = await startSite(by)
t.teardown(() => site.close())
const milano = await member(by, 'milano')

/** What the probe finds at this address, with this proxy. */
async function called(t: Test, address: string, { url }: Pick<ConnectProxy, 'url'>): Promise<object | undefined> {
  const before = process.env['HTTPS_PROXY']
  process.env['HTTPS_PROXY'] = url
  t.teardown(() => {
    if (before === undefined) delete process.env['HTTPS_PROXY']
    else process.env['HTTPS_PROXY'] = before
  })
  const identity = {
    ...{ cluster: parseClusterId('milano'), clusterset: 'demo', brokerAddresses: [address], observedAddress: '' },
    ...{ ...milano, caBundle: [by.ca.certificate] },
  }
  const place = { place: 'test', read: () => Promise.resolve(identity) }
  const facts = await probeBroker(place, SILENT_PROGRESS, signal)
  const fact = facts.find((one) => one.t === 'probe' && one.kind === 'broker-call')
  return fact?.t === 'probe' ? fact.items[0] : undefined
}

/** A server whose connections are counted, and end at once. */
async function closing(t: Test): Promise<{ readonly port: number; readonly count: () => number }> {
  let count = 0
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    count += 1
    sockets.add(socket.on('error', () => undefined))
    socket.destroy()
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => void server.close())
  return { port: (server.address() as AddressInfo).port, count: () => count }
}

t.test('a broker whose name only the proxy knows', async (t) => {
  const proxy = await connectProxy(t)
  const address = `broker.test:${site.server.address.port}`
  t.match(await called(t, address, proxy), { stage: 'tls', address })
  t.strictSame(proxy.asked, [address])
})

t.test('what listens behind the proxy is no broker: TCP is answered, and only through the proxy', async (t) => {
  const proxy = await connectProxy(t)
  const { port, count } = await closing(t)
  t.match(await called(t, `broker.test:${port}`, proxy), { stage: 'tcp' })
  t.equal(count(), 1, 'one connection')
  t.strictSame(proxy.asked, [`broker.test:${port}`])
})

t.test('a proxy that refuses: no way to the broker, and nothing goes past the proxy', async (t) => {
  const proxy = await connectProxy(t)
  proxy.fault = 'HTTP/1.1 403 Forbidden'
  const { port, count } = await closing(t)
  const found = await called(t, `localhost.test:${port}`, proxy)
  t.match(found, { stage: 'nothing', reason: 'ProxyRefused', message: /status 403/ })
  t.equal(count(), 0)
})

t.test('one connection tells also without a proxy', async (t) => {
  const { port, count } = await closing(t)
  t.match(await called(t, `127.0.0.1:${port}`, { url: '' }), { stage: 'tcp' })
  t.equal(count(), 1)
})
