/** The whole broker, with its process script, real TLS and gRPC on loopback. */
import { chmodSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { type IncomingHttpHeaders, connect as connectHttp2 } from 'node:http2'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type BrokerConfig, DEFAULT_BROKER_CONFIG } from '../../broker/config/broker-config.ts'
import { runBroker } from '../../broker/main.ts'
import { asOperator, openBrokerStore } from '../support/broker-store.ts'
import type { ClusterId } from '../../model/ids.ts'
import type { MemberRecord } from '../../model/records.ts'
import type { BrokerClient } from '../../protocol/broker-client.ts'
import { memberKey, memberKeyText } from '../../protocol/codec/content-hash.ts'
import { createKey, keyToPem } from '../../protocol/identity/keys.ts'
import { SERVER_NAME, certificateToPem } from '../../protocol/identity/certificates.ts'
import { parseJoinToken } from '../../protocol/identity/token.ts'
import { createCa, createCsr, issueMemberCertificate } from '../../protocol/identity/x509.ts'
import { PublishSession } from '../../protocol/sessions/publish-session.ts'
import { Replica } from '../../protocol/replica/record-replica.ts'
import { connectBroker, connectForJoin } from '../../protocol/transport/grpc-client.ts'
import { WatchSession } from '../../protocol/sessions/watch-session.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/component.ts'
import { openChannel } from '../hostile/support/raw-channel.ts'
import { rawJoin } from '../hostile/support/raw-join.ts'
import { RawPublish } from '../hostile/support/raw-publish.ts'
import { eventually } from '../support/eventually.ts'
import { failure, messageOf } from '../support/failure.ts'
import { freePort } from '../support/free-port.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { aSlice, anExport, facts } from './support/harness.ts'

const clock = new SystemClock()

function config(stateDir: string, port: number, change: Partial<BrokerConfig> = {}): BrokerConfig {
  const at = `127.0.0.1:${port}`
  return { ...DEFAULT_BROKER_CONFIG, stateDir, listen: at, advertise: [at], clusterset: 'demo', ...change }
}

interface Running {
  readonly status: StatusBoard
  readonly logger: CapturingLogger
  stop(): Promise<void>
}

/** Resolves when the broker listens. Rejects when it cannot start. */
async function start(t: Test, with_: BrokerConfig): Promise<Running> {
  const stop = new AbortController()
  const logger = new CapturingLogger()
  const status = new StatusBoard()
  let onListening: () => void = () => undefined
  const listening = new Promise<void>((resolve) => (onListening = resolve))
  const done = runBroker({ clock, logger, status, metrics: createMetrics('broker'), onListening }, with_, stop.signal)
  await Promise.race([listening, done])
  const end = async (): Promise<void> => {
    stop.abort()
    await done
  }
  t.teardown(end)
  return { status, logger, stop: end }
}

async function token(stateDir: string): Promise<string> {
  const store = await openBrokerStore(stateDir, clock)
  const { text } = await store.create({})
  await store.close()
  return text
}

interface Member {
  readonly tls: { readonly cert: string; readonly key: string; readonly ca: string[] }
  readonly publish: PublishSession
  readonly replica: Replica
  readonly watch: WatchSession
  readonly client: BrokerClient
  stop(): Promise<void>
}

async function member(t: Test, stateDir: string, cluster: string): Promise<Member> {
  const logger = new CapturingLogger()
  const signal = AbortSignal.timeout(20_000)
  const key = createKey()
  const joinToken = parseJoinToken(await token(stateDir), clock.now())
  const joining = await connectForJoin({ token: joinToken, clock, logger }, signal)
  const request = { secret: joinToken.secret(), cluster, csr: await createCsr(key), facts: facts(), nowMs: clock.now() }
  const { certificate, caBundle } = await joining.join(request, signal)
  joining.close()
  const { addresses } = joinToken
  const client = connectBroker({
    addresses,
    clusterset: 'demo',
    ca: caBundle,
    identity: { certificate, key },
    clock,
    logger,
  })
  const stop = new AbortController()
  const replica = new Replica()
  const connect = (): BrokerClient => client
  const publish = new PublishSession({ connect, clock, logger })
  publish.setDesired(new Map())
  const watch = new WatchSession({ connect, replica, clock, logger, onChange: () => undefined })
  const running = Promise.all([publish.run(stop.signal), watch.run(stop.signal)])
  const end = async (): Promise<void> => {
    stop.abort()
    await running
    client.close()
  }
  t.teardown(end)
  const tls = { cert: certificateToPem(certificate), key: keyToPem(key), ca: caBundle.map(certificateToPem) }
  return { publish, replica, watch, client, tls, stop: end }
}

const desired = (...records: MemberRecord[]): Map<string, MemberRecord> =>
  new Map(records.map((record) => [memberKeyText(memberKey(record)), record]))

t.test('two members over TLS, through a restart of the broker', async (t) => {
  const stateDir = join(temporaryFolder(t), 'state')
  const port = await freePort()
  const first = await start(t, config(stateDir, port))
  t.equal(statSync(stateDir).mode & 0o777, 0o700)
  t.equal(statSync(join(stateDir, 'broker.lock')).mode & 0o777, 0o600)
  for (const name of ['ca.key', 'server.key', 'broker.db'])
    t.equal(statSync(join(stateDir, name)).mode & 0o777, 0o600, name)
  t.same(first.status.notReady(), [])

  const milano = await member(t, stateDir, 'milano')
  const paris = await member(t, stateDir, 'paris')
  milano.publish.setDesired(desired(anExport('web'), aSlice('web', '10.42.1.7')))
  const has =
    (key: string): (() => boolean) =>
    () =>
      paris.replica.records.has(key)
  await eventually(has('milano/EndpointSlice/shop/web-1'))
  await eventually(has('/ClusterSetIP/shop/web'))
  t.match(paris.replica.records.get('milano/Cluster//milano')?.body, { spec: { globalCIDRs: ['244.0.0.0/16'] } })
  t.match(paris.replica.records.get('paris/Cluster//paris')?.body, { spec: { globalCIDRs: ['244.1.0.0/16'] } })
  await eventually(() => paris.replica.complete.has(''))
  t.equal(paris.watch.accessDefault(), 'none', 'no operator has set one')

  const revision = paris.replica.revision
  await first.stop()
  t.equal(paris.replica.records.size, 5, 'the broker is away, nothing is forgotten')
  const second = await start(t, config(stateDir, port))
  milano.publish.setDesired(desired(anExport('web'), aSlice('web', '10.42.1.7'), anExport('db')))
  await eventually(has('milano/ServiceExport/shop/db'), { deadlineMs: 10_000 })
  t.ok(paris.replica.revision > revision)
  t.same(second.logger.messages('warn'), [])

  await milano.client.leave(AbortSignal.timeout(5000))
  await eventually(() => [...paris.replica.records.keys()].join() === 'paris/Cluster//paris')
  await eventually(() => paris.replica.departed.has('milano'))
  await Promise.all([milano.stop(), paris.stop()])
  await second.stop()
})

t.test('how it is: served, stopped, and without a state', async (t) => {
  const stateDir = join(temporaryFolder(t), 'state')
  await t.rejects(
    asOperator(stateDir, clock, (admin) => admin.status()),
    { code: 'Absent' },
  )
  const broker = await start(t, config(stateDir, await freePort()))
  const served = await asOperator(stateDir, clock, (admin) => admin.status())
  t.match(served, { health: 'healthy', kind: 'sqlite', replicas: [{ id: `process ${process.pid}` }], problems: [] })
  t.match(served.log, { clusterset: 'demo', records: 0, authority: { phase: 'steady', waitsFor: 0 } })
  await broker.stop()
  const stopped = await asOperator(stateDir, clock, (admin) => admin.status())
  t.match(stopped, { health: 'down', replicas: [], problems: [{ text: 'no broker replica runs' }] })
  t.match(stopped.log, { clusterset: 'demo' }, 'what it knows can be read')
})

t.test('an eviction ends streams that say nothing', async (t) => {
  const stateDir = join(temporaryFolder(t), 'state')
  const port = await freePort()
  await start(t, config(stateDir, port))
  const broker = { address: `127.0.0.1:${port}`, state: stateDir }
  const channel = openChannel(broker, await rawJoin(broker, 'milano'))
  t.teardown(() => channel.close())
  const idle = await new RawPublish(channel).open()
  const store = await openBrokerStore(stateDir, clock)
  const { evictedAtMs } = await store.evict({ cluster: 'milano', force: true })
  await store.close()
  const at = new Date(evictedAtMs).toISOString().replace(/\.\d+Z$/, 'Z')
  t.equal((await idle.ended()).details, `cluster "milano" was evicted at ${at}: join again with a new token`)
})

t.test('an oversized message ends the stream, not the broker', async (t) => {
  const stateDir = temporaryFolder(t)
  const port = await freePort()
  const broker = await start(t, config(stateDir, port))
  const paris = await member(t, stateDir, 'paris')
  const oversized = { t: 'declare', setHash: new Uint8Array(5_000_000), count: 1 } as const
  t.equal(
    await messageOf(paris.client.publish(AbortSignal.timeout(5000)).send(oversized)),
    'message: 5000012 bytes: expected at most 4194304',
    'our own client does not even send it',
  )
  t.equal(
    await sendRaw(port, paris.tls, Buffer.alloc(5_000_000)),
    '8 Received message larger than max (5000000 vs 2097152)',
  )
  t.equal(
    await sendRaw(port, paris.tls, Buffer.from('nonsense')),
    '3 publish message: not a message of this kind: cant skip wire type 6',
    'a message that is none',
  )
  await paris.client.renew(await createCsr(createKey()), AbortSignal.timeout(5000))
  await paris.stop()
  await broker.stop()
})

/** Sends one hand-made gRPC message on a Publish stream, and returns the status that ends the stream. */
async function sendRaw(port: number, tls: Member['tls'], message: Buffer): Promise<string> {
  const session = connectHttp2(`https://127.0.0.1:${port}`, {
    ...tls,
    servername: SERVER_NAME,
    ALPNProtocols: ['h2'],
  })
  const stream = session.request({
    ':method': 'POST',
    ':path': '/sealane.v1.Broker/Publish',
    'content-type': 'application/grpc',
    te: 'trailers',
  })
  const header = Buffer.alloc(5)
  header.writeUInt32BE(message.length, 1)
  stream.on('error', () => undefined)
  const status = new Promise<string>((resolve) => {
    const onHeaders = (headers: IncomingHttpHeaders): void => {
      if (headers['grpc-status'] !== undefined) {
        resolve(`${String(headers['grpc-status'])} ${decodeURIComponent(String(headers['grpc-message'] ?? ''))}`)
      }
    }
    stream.on('response', onHeaders)
    stream.on('trailers', onHeaders)
    stream.on('close', () => resolve('closed'))
  })
  stream.resume()
  stream.write(Buffer.concat([header, message]))
  const text = await status
  session.destroy()
  return text
}

t.test('a certificate of another clusterset', async (t) => {
  const stateDir = temporaryFolder(t)
  const port = await freePort()
  const broker = await start(t, config(stateDir, port))
  const key = createKey()
  const logger = new CapturingLogger()
  const strangerCa = await createCa({ clusterset: 'elsewhere', key: createKey(), nowMs: clock.now() })
  const certificate = await issueMemberCertificate(strangerCa, {
    clusterset: 'elsewhere',
    cluster: 'milano' as ClusterId,
    csr: await createCsr(key),
    nowMs: clock.now(),
  })
  const ca = readFileSync(join(stateDir, 'ca.crt'), 'utf8')
  const der = Buffer.from(ca.replace(/-----[^-]+-----|\s/g, ''), 'base64')
  const client = connectBroker({
    addresses: [`127.0.0.1:${port}`],
    clusterset: 'demo',
    ca: [der],
    identity: { certificate, key },
    clock,
    logger,
  })
  const refused = await failure(client.leave(AbortSignal.timeout(5000)))
  t.equal(refused.name, 'CertificateError')
  t.equal(refused.message, 'the certificate belongs to clusterset "elsewhere", this broker to "demo"')
  client.close()
  await broker.stop()
})

t.test('not ready before the port is open', async (t) => {
  const status = new StatusBoard()
  const stop = new AbortController()
  const deps = { clock, logger: new CapturingLogger(), metrics: createMetrics('broker'), status }
  const stateDir = join(temporaryFolder(t), 'state')
  let isListening = false
  const running = runBroker(
    { ...deps, onListening: () => (isListening = true) },
    config(stateDir, await freePort()),
    stop.signal,
  )
  t.same(status.notReady(), [`state: opening the store ${join(stateDir, 'broker.db')}`])
  await eventually(() => status.notReady().length === 0)
  t.ok(isListening)
  stop.abort()
  await running
})

t.test('what keeps a broker from starting is named', async (t) => {
  const folder = temporaryFolder(t)
  const good = join(folder, 'good')
  const port = await freePort()
  const running = await start(t, config(good, port))

  t.equal(
    await messageOf(start(t, config(good, await freePort()))),
    `${good} is in use by another broker: stop it, or choose another state directory`,
  )
  t.equal(
    await messageOf(start(t, config(join(folder, 'other'), port))),
    `cannot listen on 127.0.0.1:${port}: another process uses the address`,
  )
  await running.stop()

  const rows: [string, (dir: string) => void, string][] = [
    [
      'unwritable',
      (dir) => writeFileSync(dir, ''),
      `DIR cannot be created (EEXIST: file already exists, mkdir 'DIR'): check the directory and its permissions`,
    ],
    [
      'corrupt database',
      (dir) => writeFileSync(join(dir, 'broker.db'), 'x'.repeat(9000)),
      'DIR/broker.db is damaged (file is not a database): restore it from a backup, or move it away to start empty (members then publish again)',
    ],
    [
      'corrupt key',
      (dir) => writeFileSync(join(dir, 'ca.key'), 'x', { mode: 0o600 }),
      'DIR/ca.key is damaged (no private key in PEM form): restore it from a backup',
    ],
    [
      'corrupt certificate',
      (dir) => {
        writeFileSync(join(dir, 'broker.db'), '')
        writeFileSync(join(dir, 'ca.crt'), 'x')
      },
      'DIR/ca.crt is damaged (no CA certificate in PEM form): restore it from a backup',
    ],
  ]
  for (const [name, prepare, want] of rows) {
    const dir = join(folder, name.replaceAll(' ', '-'))
    if (name !== 'unwritable') mkdirSync(dir)
    prepare(dir)
    t.equal((await messageOf(start(t, config(dir, port)))).replaceAll(dir, 'DIR'), want, name)
  }

  chmodSync(join(good, 'ca.key'), 0o644)
  t.equal(
    await messageOf(start(t, config(good, port))),
    `${join(good, 'ca.key')} can be read by others (mode 0644): change its mode to 0600, and replace the key if others may have read it`,
  )
  chmodSync(join(good, 'ca.key'), 0o600)
  t.equal(
    await messageOf(start(t, config(good, port, { clusterset: 'other' }))),
    `${join(good, 'ca.crt')} belongs to clusterset "demo", not "other": a clusterset cannot be renamed`,
  )
  t.equal(
    await messageOf(start(t, config(good, port, { globalRange: '248.0.0.0/8' }))),
    'globalRange "248.0.0.0/8": expected "244.0.0.0/8" as at the first start, because members rely on it',
  )
  t.equal(
    await messageOf(start(t, config(good, port, { listen: 'nowhere' }))),
    'listen "nowhere": expected address:port such as 0.0.0.0:7443',
  )
  t.equal(
    await messageOf(start(t, config(good, port, { globalRange: '246.0.0.0/8' }))),
    'globalRange "246.0.0.0/8": expected no overlap with 246.0.0.0/8',
  )
  t.equal(
    await messageOf(openBrokerStore(join(folder, 'none'), clock)),
    `no broker state in ${join(folder, 'none', 'broker.db')}: start the broker once first`,
  )
})
