/**
 * The backends of a service that `sealane service add` has written are checked, and one that dies leaves all sites: the
 * slices, DNS, and what the commands show. Broker, agents, DNS servers and checks are real, on loopback; only the
 * addresses of the backends stand for ports on this machine.
 */
import { once } from 'node:events'
import { type AddressInfo, type Server, type Socket, createServer } from 'node:net'
import t, { type Test } from 'tap'
import { type CheckBackend, backendChecker } from '../../agent/backends/check-backend.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { type CliResult, runCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { StorySite } from './site.ts'

const INTERVAL_MS = 200
const FALL = 2

const DB = `
apiVersion: v1
kind: Service
metadata: { name: db, namespace: shop }
spec: { clusterIP: None, ports: [{ name: sql, port: 5432 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: db-1
  namespace: shop
  labels: { kubernetes.io/service-name: db }
  annotations: { sealane.io/check: tcp interval=200ms }
addressType: IPv4
ports: [{ name: sql, port: 5432 }]
endpoints: [{ addresses: [10.42.1.30] }]
`

class Backend {
  port = 0
  #server: Server | undefined
  readonly #sockets = new Set<Socket>()

  async start(t: Test): Promise<void> {
    const server = createServer((socket) => {
      this.#sockets.add(socket)
      socket.on('error', () => undefined).once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'))
    })
    server.listen(this.port, '127.0.0.1')
    await once(server, 'listening')
    this.port = (server.address() as AddressInfo).port
    this.#server = server
    t.teardown(() => this.stop())
  }

  async stop(): Promise<void> {
    const server = this.#server
    this.#server = undefined
    if (server === undefined) return
    for (const socket of this.#sockets) socket.destroy()
    server.close()
    await once(server, 'close')
  }
}

t.test('a backend that dies leaves all sites within its interval, and comes back', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const milano = await StorySite.join(t, 'milano', broker)
  const paris = await StorySite.join(t, 'paris', broker)
  const backends = { '10.42.1.30': new Backend(), '10.42.2.30': new Backend() }
  for (const one of Object.values(backends)) await one.start(t)
  const real = backendChecker(new SystemClock())
  const checkBackend: CheckBackend = (target, signal) => {
    const port = backends[target.address as keyof typeof backends].port
    return real({ ...target, address: '127.0.0.1', port }, signal)
  }
  await Promise.all([milano.start({ checkBackend }), paris.start()])
  await paris.tunnel('milano', 'up')
  paris.write('shop.yaml', 'apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n')

  const service = (...words: string[]): Promise<CliResult> =>
    runCli(['service', ...words, '--site', milano.folder.file])
  const flags = ['-n', 'shop', '--port', 'http:80:8080', '--interval', `${INTERVAL_MS}ms`, '--fall', String(FALL)]
  const both = ['--backend', '10.42.1.30,10.42.2.30', '--check', 'http:/healthz']
  const added = await service('add', 'web', ...flags, ...both, '--export')
  t.equal(added.code, 0, added.stderr)

  const slice = (): string => paris.imports().find((line) => line.startsWith('web<-milano')) ?? ''
  /** Waits for the slice in paris, and gives how long it took. */
  const becomes = async (want: string): Promise<number> => {
    const started = performance.now()
    await eventually(() => slice() === want, { intervalMs: 5 }).catch(() => undefined)
    t.equal(slice(), want)
    return performance.now() - started
  }
  const states = async (): Promise<string> => {
    const { stdout } = await service('list', '-o', 'json')
    const { items } = JSON.parse(stdout) as {
      items: { name: string; backend: string; state: string; message?: string }[]
    }
    return items
      .filter(({ name }) => name === 'web')
      .map(({ backend, state, message = '' }) => `${backend} ${state} ${message}`.trim())
      .join(', ')
  }
  await becomes('web<-milano http:8080 244.0.1.30(10-42-1-30) 244.0.2.30(10-42-2-30)')
  await eventually(async () => (await states()) === '10.42.1.30 up, 10.42.2.30 up', { say: 'both are checked' })

  await backends['10.42.2.30'].stop()
  const ms = await becomes('web<-milano http:8080 244.0.1.30(10-42-1-30) !244.0.2.30(10-42-2-30)')
  t.comment(`dead to not ready in another site: ${ms.toFixed(0)} ms, with ${INTERVAL_MS} ms and fall ${FALL}`)
  t.equal(await states(), '10.42.1.30 up, 10.42.2.30 down connection refused')
  const status = await runCli(['status', '--site', milano.folder.file, '--timeout', '5s'])
  t.match(status.stdout, /BackendDown/)
  t.match(status.stdout, /Service shop\/web/)
  t.match(status.stdout, /the check fails for 1 of 2 backends: 10\.42\.2\.30 \(connection refused\)/)

  // The agent is lost, and the last state stays; the broker too.
  await milano.stop()
  await broker.stop()
  t.equal(await states(), '10.42.1.30 up, 10.42.2.30 down connection refused')
  await milano.start({ checkBackend })
  t.equal(slice(), 'web<-milano http:8080 244.0.1.30(10-42-1-30) !244.0.2.30(10-42-2-30)')
  await backends['10.42.2.30'].start(t)
  await eventually(async () => (await states()) === '10.42.1.30 up, 10.42.2.30 up', { say: 'checks need no broker' })
  await eventually(() =>
    milano.imports().includes('web<-milano http:8080 10.42.1.30(10-42-1-30) 10.42.2.30(10-42-2-30)'),
  )
  await broker.start()
  await becomes('web<-milano http:8080 244.0.1.30(10-42-1-30) 244.0.2.30(10-42-2-30)')

  // Slices that the user writes may have a check too. A headless answer names ready backends, so DNS follows at once.
  milano.write('db.yaml', DB)
  t.equal((await runCli(['export', 'db', '-n', 'shop', '--site', milano.folder.file])).code, 0)
  const db = async (): Promise<string> => paris.dig('db.shop.svc.clusterset.local')
  await eventually(async () => (await db()) === '244.0.1.30', { say: 'the headless service answers' })
  for (const one of Object.values(backends)) await one.stop()
  await eventually(async () => (await db()) === 'NXDOMAIN', { say: 'without a backend it has no answer' })
  await becomes('web<-milano http:8080 !244.0.1.30(10-42-1-30) !244.0.2.30(10-42-2-30)')

  const removed = await service('remove', 'web', '-n', 'shop')
  t.equal(removed.stdout, 'service shop/web removed\n')
  await eventually(() => !paris.imports().join().includes('web'), { say: 'the service leaves all sites' })
})
