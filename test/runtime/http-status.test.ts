import t, { type Test } from 'tap'
import { serveStatus } from '../../runtime/http-status.ts'
import { createMetrics } from '../../runtime/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/status-board.ts'
import { failure, messageOf } from '../support/failure.ts'

async function start(
  t: Test,
  status = new StatusBoard(),
): Promise<{ status: StatusBoard; get: (path: string, init?: RequestInit) => Promise<string>; port: number }> {
  const server = await serveStatus({ listen: ':0', status, metrics: createMetrics('test') })
  t.teardown(() => server.close())
  t.equal(server.address.host, '127.0.0.1', 'loopback by default')
  const get = async (path: string, init?: RequestInit): Promise<string> => {
    const response = await fetch(`http://127.0.0.1:${server.address.port}${path}`, init)
    return `${response.status} ${await response.text()}`
  }
  return { status, get, port: server.address.port }
}

t.test('health and readiness', async (t) => {
  const { status, get } = await start(t)
  t.equal(await get('/healthz'), '200 ok\n')
  t.equal(await get('/readyz'), '200 ready\n')
  let reason: string | undefined = 'not synced'
  status.readiness('cluster', () => reason)
  status.readiness('lanes', () => undefined)
  t.equal(await get('/readyz'), '503 cluster: not synced\n')
  reason = undefined
  t.equal(await get('/readyz?verbose'), '200 ready\n')
})

t.test('plans, all or one', async (t) => {
  const { status, get } = await start(t)
  status.plan('nft', () => 'table ip sealane_node {}')
  status.plan('routes', () => 'ip route add …\n')
  t.equal(await get('/debug/plan'), '200 # nft\ntable ip sealane_node {}\n\n# routes\nip route add …\n')
  t.equal(await get('/debug/plan?name=nft'), '200 table ip sealane_node {}\n')
  t.equal(await get('/debug/plan?name=x'), '404 no plan "x"; there is: nft, routes\n')
  status.plan('broken', () => {
    throw new Error('no plan yet')
  })
  t.equal(await get('/debug/plan'), '500 no plan yet\n')
})

t.test('metrics, strangers and wrong methods', async (t) => {
  const { get } = await start(t)
  t.match(await get('/metrics'), /^200 [^]*process_resident_memory_bytes/)
  t.equal(await get('/'), '404 try /healthz, /readyz, /metrics or /debug/plan\n')
  t.equal(await get('//'), '404 try /healthz, /readyz, /metrics or /debug/plan\n')
  t.equal(await get('/healthz', { method: 'POST' }), '405 only GET\n')
  t.equal(await get('/healthz', { method: 'HEAD' }), '200 ')
})

t.test('a taken port, a foreign address and nonsense are told plainly', async (t) => {
  const { port } = await start(t)
  const init = { status: new StatusBoard(), metrics: createMetrics('test') }
  const error = await failure(serveStatus({ ...init, listen: `:${port}` }))
  t.equal(error.message, `status address 127.0.0.1:${port}: the port is taken by another process`)
  t.match(error, { name: 'UserError', hint: `see who has it with: ss -ltnp 'sport = :${port}'` })
  t.equal(
    await messageOf(serveStatus({ ...init, listen: '192.0.2.1:0' })),
    'status address 192.0.2.1:0: this machine has no such address',
  )
  t.equal(
    await messageOf(serveStatus({ ...init, listen: '127.0.0.1:http' })),
    'status address "127.0.0.1:http": expected a port from 0 to 65535',
  )
})
