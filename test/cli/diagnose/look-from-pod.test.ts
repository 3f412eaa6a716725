/**
 * `sealane machine-facts` in a pod of the agent, with a real broker, real DNS servers, and the Secret of an API server.
 */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { type Socket, createServer } from 'node:net'
import t, { type Test } from 'tap'
import { joinWithToken } from '../../../agent/membership/join-with-token.ts'
import type { Fact } from '../../../explain/facts/fact.ts'
import { MembershipChanges } from '../../../kubeapi/membership.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { parseClusterId } from '../../../model/ids.ts'
import { secretIdentity } from '../../../protocol/membership/secret-identity.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../../runtime/component.ts'
import { startDns } from '../../dns/dns-server.ts'
import { type FakeApiServer, fakeApiServer } from '../../support/fake-api-server.ts'
import { freePort } from '../../support/free-port.ts'
import { MemorySecret } from '../../support/memory-secret.ts'
import { LoopbackBroker } from '../loopback-broker.ts'
import { type CliResult, runCli } from '../run-cli.ts'

type Parts = Readonly<Record<string, string>>

/** Returns the data of the Secret of a member that has joined. */
async function joined(broker: LoopbackBroker): Promise<Parts> {
  const secret = new MemorySecret({ token: await broker.token() })
  const store = secretIdentity(secret)
  const status = new StatusBoard()
  const deps = { clock: new SystemClock(), logger: new CapturingLogger(), metrics: createMetrics('agent'), status }
  const facts = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16'], labels: {}, version: 'test' }
  const init = { cluster: parseClusterId('milano'), facts, identity: store, store }
  const api = new MemoryApi()
  await joinWithToken({ ...deps, api, changes: new MembershipChanges(api) }, init, new AbortController().signal)
  return secret.content?.data ?? {}
}

function putSecret(server: FakeApiServer, parts: Parts): void {
  const place = { resource: 'v1/secrets', apiVersion: 'v1', kind: 'Secret', namespace: 'sealane-system' }
  const name = 'sealane-identity'
  const data = Object.fromEntries(
    Object.entries(parts).map(([key, text]) => [key, Buffer.from(text).toString('base64')]),
  )
  const metadata = { name, namespace: 'sealane-system' }
  server.objects.put({ ...place, name }, { apiVersion: 'v1', kind: 'Secret', metadata, type: 'Opaque', data })
}

interface Looked extends CliResult {
  readonly facts: readonly Fact[]
}

async function look(server: FakeApiServer, ...words: readonly string[]): Promise<Looked> {
  const result = await runCli(['machine-facts', ...words], { env: { KUBECONFIG: server.kubeconfig } })
  const { facts } = (result.stdout === '' ? { facts: [] } : JSON.parse(result.stdout)) as { facts: readonly Fact[] }
  return { ...result, facts }
}

/** Starts a DNS server that never answers. */
async function silentServer(t: Test): Promise<string> {
  const socket = createSocket('udp4').bind(0, '127.0.0.1')
  await once(socket, 'listening')
  t.teardown(() => socket.close())
  return `127.0.0.1:${socket.address().port}`
}

/** Returns the lines of the private key, none of which may be printed. */
function keyLines(parts: Parts): readonly string[] {
  return (parts['cluster.key'] ?? '').split('\n').filter((line) => line !== '' && !line.startsWith('-----'))
}

t.test('the broker is called with the identity of the Secret, which is read once', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const parts = await joined(broker)
  const server = await fakeApiServer(t)
  putSecret(server, parts)
  const well = await look(server, '--broker')
  t.equal(well.code, 0, well.stderr)
  t.match(well.facts, [
    { kind: 'identity', items: [{ begins: /Z$/, ends: /Z$/ }] },
    { kind: 'broker-call', items: [{ address: broker.address, stage: 'tls' }] },
  ])
  t.strictSame(server.requests, ['GET /api/v1/namespaces/sealane-system/secrets/sealane-identity'])
  for (const line of keyLines(parts)) t.notMatch(well.stdout, line)
  await broker.stop()
  const gone = await look(server, '--broker')
  t.match(gone.facts[1], { kind: 'broker-call', items: [{ stage: 'nothing', message: /connection refused/ }] })
  const rows: readonly (readonly [name: string, hello: (socket: Socket) => void, reason: string | undefined])[] = [
    ['it takes connections and says nothing, as one that hangs', () => undefined, 'BrokerLate'],
    ['it closes them', (socket) => socket.destroy(), undefined],
  ]
  for (const [name, hello, reason] of rows) {
    const held = createServer((socket) => hello(socket.on('error', () => undefined))).listen(broker.port, '127.0.0.1')
    await once(held, 'listening')
    const { facts } = await look(server, '--broker')
    held.close()
    t.match(facts[1], { kind: 'broker-call', items: [{ stage: 'tcp', reason }] }, name)
  }
})

t.test('an identity that cannot be had', async (t) => {
  const server = await fakeApiServer(t)
  t.strictSame((await look(server, '--broker')).facts, [], 'it has not joined')
  const key = [
    '-----BEGIN PRIVATE KEY-----',
    'S2V5LW9jdGV0cy10aGF0LW5vYm9keS1zZWVz',
    '-----END PRIVATE KEY-----',
    '',
  ].join('\n')
  const broker = JSON.stringify({
    cluster: 'milano',
    clusterset: 'demo',
    observedAddress: '192.0.2.1',
    addresses: ['a:1'],
  })
  putSecret(server, { 'broker.json': broker, 'cluster.key': key, 'cluster.crt': key, 'ca.crt': key })
  const spoilt = await look(server, '--broker')
  t.match(spoilt.facts, [
    { t: 'unanswered', what: 'Identity Secret sealane-system/sealane-identity', message: /sealane-identity: / },
  ])
  t.notMatch(spoilt.stdout + spoilt.stderr, 'S2V5LW9jdGV0cy10')
  server.fault = () => ({ status: 403, body: { kind: 'Status', message: 'secrets is forbidden', reason: 'Forbidden' } })
  t.match((await look(server, '--broker')).facts, [{ reason: 'RightMissing', message: /get secrets sealane-identity/ }])
})

t.test('servers of names, each by itself', async (t) => {
  const server = await fakeApiServer(t)
  const { port } = await startDns(t, new MemoryApi())
  const [silent, closed] = [await silentServer(t), `127.0.0.1:${await freePort()}`]
  const { facts, code, stdout } = await look(
    server,
    ...['--dns', `ours=127.0.0.1:${port}`, '--dns', `cluster=${silent}`, '--dns', `cluster=${closed}`],
  )
  t.equal(code, 0)
  t.match(facts, [
    { kind: 'dns-answer', items: [{ server: `127.0.0.1:${port}`, role: 'ours', result: 'NOERROR' }] },
    { kind: 'dns-answer', items: [{ server: silent, role: 'cluster', name: 'clusterset.local', result: 'timeout' }] },
    { kind: 'dns-answer', items: [{ server: closed, role: 'cluster', result: 'unreachable' }] },
  ])
  t.strictSame(server.requests, [], 'nobody asks the API server')
  t.type((JSON.parse(stdout) as { resolvConf?: string }).resolvConf, 'string', 'the resolver of the pod')
})

t.test('words that it does not take', async (t) => {
  const server = await fakeApiServer(t)
  const rows: readonly (readonly [word: string, said: RegExp])[] = [
    ['10.0.0.1:53', /expected ours= or cluster= and an address:port/],
    ['upstream=10.0.0.1:53', /expected ours= or cluster=/],
    ['ours=', /expected address:port/],
    ['ours=dns.example:53', /expected address:port/],
    ['ours=10.0.0.1:0', /a port from 1 to 65535/],
    ['cluster=10.0.0.1:53;x', /a port from 1 to 65535/],
  ]
  for (const [word, said] of rows) {
    const { code, stdout, stderr } = await look(server, '--dns', word)
    t.same([code, stdout], [2, ''], word)
    t.match(stderr, said, word)
  }
  const many = Array.from({ length: 65 }, (_, i) => ['--dns', `ours=10.0.0.${i + 1}:53`]).flat()
  t.match(await look(server, ...many), { stdout: '', stderr: /65 servers: expected 64 at most/ })
  t.strictSame((await look(server)).facts, [], 'nothing is asked')
})
