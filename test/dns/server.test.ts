import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import t from 'tap'
import { dnsConfig } from '../../dns/config/dns-config.ts'
import { ListenError } from '../../dns/server/listener.ts'
import { runDns } from '../../dns/main.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/component.ts'
import { eventually } from '../support/eventually.ts'
import { failure, messageOf } from '../support/failure.ts'
import { askTcp, askUdp, startDns } from './dns-server.ts'
import { TYPE, query, uint16s } from './wire.ts'
import { clusterSetIp, gateway, workedExamples } from './zone-fixture.ts'

const S = 'shop.svc.clusterset.local.'

t.test('the story of one server: SERVFAIL, answers, changes, a cluster that goes down', async (t) => {
  const api = workedExamples({ hold: true })
  const { port, status, metrics } = await startDns(t, api)
  const flags = async (name: string) => (await askUdp(port, query(name))).flags
  const data = async (name: string) =>
    (await askUdp(port, query(name))).answers
      .map((r) => r.data)
      .sort()
      .join(' ')

  t.equal(await flags(`web.${S}`), 'qr rd SERVFAIL')
  t.same(status.notReady(), ['dns synced: the services have not been read yet'])
  api.release()
  t.equal(await flags(`web.${S}`), 'qr aa rd NOERROR')
  t.same(status.notReady(), [])
  t.equal(await data(`db.${S}`), '10.1.0.5 10.1.0.6 10.2.0.9')
  api.put(gateway([], ['east']))
  t.equal(await data(`db.${S}`), '10.2.0.9')
  api.drop('ServiceImport', 'web', 'shop')
  t.equal(await flags(`web.${S}`), 'qr aa rd NXDOMAIN')
  api.put(clusterSetIp('web', ['243.0.0.7'], []))
  t.equal(await data(`web.${S}`), '243.0.0.7')
  t.match(status.plans().get('dns'), `web.${S} 5 IN A 243.0.0.7`)
  await eventually(async () => (await metrics.text()).includes('sealane_dns_queries_total{type="A",rcode="NOERROR"'))
})

t.test('TCP: many queries on one connection, in pieces, and names in the same order', async (t) => {
  const { port } = await startDns(t, workedExamples())
  const names = Array.from({ length: 500 }, (_, i) =>
    i % 3 === 0 ? `db.${S}` : i % 3 === 1 ? `web.${S}` : `nope.${S}`,
  )
  const queries = names.map((name, id) => query(name, { id }))
  for (const chunk of [65_536, 7]) {
    const answers = await askTcp(port, chunk === 7 ? queries.slice(0, 30) : queries, chunk)
    t.equal(answers.length, chunk === 7 ? 30 : 500)
    t.ok(answers.every((answer, id) => answer.id === id && answer.question === names[id]))
  }
})

t.test('TCP: connections are bounded and the quietest makes room', async (t) => {
  const { port } = await startDns(t, workedExamples(), { maxConnections: 2 })
  const quiet = connect(port, '127.0.0.1')
  await once(quiet, 'connect')
  const busy = connect(port, '127.0.0.1')
  await once(busy, 'connect')
  const bytes = query(`web.${S}`)
  busy.write(Buffer.concat([uint16s(bytes.length), bytes]))
  await once(busy, 'data')
  const closed = once(quiet, 'close')
  quiet.resume()
  t.equal((await askTcp(port, [bytes])).length, 1)
  await closed
  t.equal(busy.destroyed, false)
  busy.destroy()
})

t.test('TCP: a quiet connection and one that announces too much are ended', async (t) => {
  const { port } = await startDns(t, workedExamples(), { idleTimeoutMs: 100 })
  for (const opening of [Buffer.alloc(0), uint16s(100), uint16s(65_535)]) {
    const socket = connect(port, '127.0.0.1')
    socket.resume()
    socket.on('error', () => undefined)
    socket.write(opening)
    await once(socket, 'close', { signal: AbortSignal.timeout(5000) })
  }
  t.pass('all ended')
})

t.test('names outside the zone are refused without upstreams', async (t) => {
  const { port } = await startDns(t, workedExamples())
  t.equal((await askUdp(port, query('example.org.'))).flags, 'qr rd REFUSED')
  t.equal((await askUdp(port, query('7.0.42.10.in-addr.arpa.', { type: TYPE.PTR }))).flags, 'qr rd REFUSED')
})

function run(listen: readonly string[], signal: AbortSignal, logger = new CapturingLogger()): Promise<void> {
  const deps = {
    api: workedExamples(),
    clock: new SystemClock(),
    logger,
    metrics: createMetrics('dns'),
    status: new StatusBoard(),
  }
  return runDns(deps, dnsConfig({ clusterId: 'west', listen, listenRetryMs: 10 }), signal)
}

t.test('a port that is taken', async (t) => {
  const udp = createSocket('udp4').bind(0, '127.0.0.1')
  await once(udp, 'listening')
  t.teardown(() => udp.close())
  const { port } = udp.address()
  const error = await failure(run([`127.0.0.1:${port}`], AbortSignal.timeout(5000)))
  t.match(error, { name: 'ListenError', code: 'EADDRINUSE', exitCode: 1 })
  t.equal(error.message, `dns: cannot listen on 127.0.0.1:${port}/udp: another process uses the port`)
  const tcp = createServer().listen(0, '127.0.0.1')
  await once(tcp, 'listening')
  t.teardown(() => tcp.close())
  const address = tcp.address()
  const tcpPort = typeof address === 'object' ? address?.port : 0
  t.equal(
    await messageOf(run([`127.0.0.1:${tcpPort}`], AbortSignal.timeout(5000))),
    `dns: cannot listen on 127.0.0.1:${tcpPort}/tcp: another process uses the port`,
  )
  t.ok(new ListenError('X', 'y', { cause: undefined }) instanceof Error)
})

t.test('an address that is not there yet is waited for, and the others serve meanwhile', async (t) => {
  const stop = new AbortController()
  const logger = new CapturingLogger()
  // 192.0.2.1 is in TEST-NET-1, and no interface of this machine has it.
  const running = run(['192.0.2.1:0', '127.0.0.1:0'], stop.signal, logger)
  await eventually(() => logger.messages('warn').length > 0 && logger.messages('info').length > 0)
  t.same(logger.messages('warn'), [
    'dns: cannot listen on 192.0.2.1:0/udp: this node does not have the address; waiting for it',
  ])
  t.same(logger.messages('info'), ['listening'])
  stop.abort()
  await running
})

t.test('many datagrams by one system call, on every address, unless it is switched off', async (t) => {
  for (const batch of [true, false]) {
    const listen = ['127.0.0.1:0', '127.0.0.2:0', '[::1]:0']
    const { logger, status } = await startDns(t, workedExamples(), { listen, ...(batch ? {} : { batch }) })
    await eventually(() => status.notReady().length === 0)
    const reported = logger.lines.filter(({ message }) => message === 'listening')
    t.same(
      reported.map(({ fields }) => fields['batch']),
      [batch, batch, batch],
    )
  }
})

t.test('two servers may share a port while one takes over', async (t) => {
  const first = await startDns(t, workedExamples())
  const second = await startDns(t, workedExamples(), { listen: [`127.0.0.1:${first.port}`] })
  await first.stop()
  t.equal((await askUdp(second.port, query(`web.${S}`))).answers[0]?.data, '243.0.0.7')
})
