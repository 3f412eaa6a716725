/** The whole gateway against fakes: a sequence of worlds on one node, and what its kernel and the API then hold. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { MemoryCluster } from '../../cluster/memory/memory-cluster.ts'
import { type GatewayConfigInit, gatewayConfig, runGateway } from '../../gateway/main.ts'
import { KernelError } from '../../kernel/errors.ts'
import { FakeNft } from '../../kernel/fake-nft.ts'
import { FakeRouteTable } from '../../kernel/fake-route-table.ts'
import { FakeSysctl } from '../../kernel/fake-sysctl.ts'
import { FakeWireguard } from '../../kernel/fake-wireguard.ts'
import type { Endpoint, Gateway, KubeObject, Node } from '../../model/objects.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../runtime/capturing-logger.ts'
import { createMetrics } from '../../runtime/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/status-board.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { FakeProbes } from './support/fake-probes.ts'
import { membership } from './support/netns-sites.ts'
import { cluster, endpoint, node } from './support/worlds.ts'

const MILANO = cluster('milano', 1, '10.42.0.0/16', '244.0.0.0/16')
const PARIS = cluster('paris', 2, '10.42.0.0/16', '244.1.0.0/16')
const PARIS_GW = endpoint('paris', 'gw', 0, ['public 198.51.100.20:4500', 'private 10.0.0.2:4500'])

class Stage {
  readonly clock = new FakeClock()
  readonly objects = new MemoryCluster({ clock: this.clock })
  readonly routes = new FakeRouteTable({
    links: [
      { name: 'eth0', mtu: 1500 },
      { name: 'cni0', kind: 'bridge' },
    ],
    addresses: [
      { device: 'eth0', address: '192.0.2.10/24' },
      { device: 'cni0', address: '10.42.0.1/24' },
    ],
    defaultDevice: 'eth0',
  })
  readonly nft = new FakeNft()
  readonly wireguard = new FakeWireguard({ routes: this.routes, driver: 'userspace' })
  readonly sysctl = new FakeSysctl()
  readonly probes = new FakeProbes()
  readonly logger = new CapturingLogger()
  readonly status = new StatusBoard()
  readonly stateDir: string
  readonly before: string
  #stopping = new AbortController()
  #running: Promise<void> = Promise.resolve()

  constructor(t: Test) {
    this.stateDir = join(temporaryFolder(t), 'gw')
    this.before = this.kernel()
    this.sysctl.provideDevice('sealane0')
    for (const object of [membership('milano', 'joined'), MILANO, node('gw', '192.0.2.10', '10.42.0.0/24')])
      this.objects.put(object)
    t.teardown(() => this.stop().catch(() => undefined))
  }

  start(init: Partial<GatewayConfigInit> = {}): void {
    const { clock, logger, status, routes, nft, wireguard, sysctl } = this
    const deps = {
      clock,
      logger,
      status,
      routes,
      nft,
      wireguard,
      sysctl,
      metrics: createMetrics('gateway'),
      cluster: this.objects,
      openProbeSocket: this.probes.openSocket,
    }
    const config = gatewayConfig({ node: 'gw', version: '1', stateDir: this.stateDir, lanes: [{ lane: 0 }], ...init })
    this.#stopping = new AbortController()
    this.#running = runGateway(deps, config, this.#stopping.signal)
  }

  stop(): Promise<void> {
    this.#stopping.abort()
    return this.#running
  }

  get ended(): Promise<void> {
    return this.#running
  }

  put(...objects: KubeObject[]): void {
    for (const object of objects) this.objects.put(object)
  }

  /** Lets fake time pass until the check holds. */
  async until(check: () => boolean, say: string, stepMs = 20): Promise<void> {
    await eventually(
      async () => {
        await this.clock.advance(stepMs)
        return check()
      },
      {
        intervalMs: 1,
        deadlineMs: 10_000,
        say: `${say}\n${this.kernel()}\n${JSON.stringify(this.logger.lines.slice(-3))}`,
      },
    )
  }

  /** Lets time pass in steps, so that what is started in between can finish. */
  async pass(ms: number): Promise<void> {
    for (let i = 0; i < ms; i += 20) await this.clock.advance(20)
  }

  /** Lets time pass no faster than the rounds, which read files, can follow. */
  async passSlowly(ms: number): Promise<void> {
    const endMs = this.clock.monotonic() + ms
    await this.until(() => this.clock.monotonic() >= endMs, 'time passes', 50)
  }

  kernel(): string {
    return [this.routes.toString(), this.wireguard.toString(), this.nft.tableNames().join()].join('\n')
  }

  routed(): string[] {
    return this.routes
      .toString()
      .split('\n')
      .filter((line) => line.includes('table 7311'))
  }

  gateway(): Gateway['status'] {
    return this.objects.cache('Gateway').get('gw')?.status
  }

  connection(id: string) {
    return this.gateway()?.connections.find((connection) => connection.cluster === id)
  }

  ownEndpoint(): Endpoint | undefined {
    return this.objects.cache('Endpoint').get('milano-gw-lane0')
  }
}

t.test('from the first start to the last day', async (t) => {
  const stage = new Stage(t)
  stage.start()

  await stage.until(
    () => stage.gateway() !== undefined && stage.ownEndpoint() !== undefined,
    'alone: the lane is there and told about',
  )
  t.strictSame(stage.ownEndpoint()?.spec.candidates, [{ kind: 'private', address: '192.0.2.10', port: 4500 }])
  t.equal(stage.ownEndpoint()?.spec.publicKey, (await stage.wireguard.read('sealane0'))?.publicKey)
  t.strictSame(stage.gateway(), {
    version: '1',
    lanes: [{ lane: 0, device: 'sealane0', mtu: 1440, driver: 'wireguard-userspace' }],
    connections: [],
  })
  t.equal(await stage.sysctl.read('net.ipv4.ip_forward'), '1')
  t.equal(await stage.sysctl.read('net/ipv4/conf/sealane0/rp_filter'), '2')
  t.strictSame(stage.status.notReady(), [])

  stage.put(PARIS, PARIS_GW)
  await stage.until(() => stage.connection('paris')?.state === 'connecting', 'paris is known')
  t.match(stage.wireguard.toString(), 'Endpoint = 198.51.100.20:4500')
  t.strictSame(
    stage.routed().filter((line) => line.includes('route')),
    ['ip route replace 246.0.2.0/32 dev sealane0 table 7311 proto 173 src 246.0.1.0'],
    'probes have a way, traffic has none',
  )
  t.match(
    stage.connection('paris')?.message,
    'no handshake yet: trying 198.51.100.20:4500 (public address, candidate 1 of 2)',
  )

  await stage.pass(5000)
  await stage.until(
    () => stage.wireguard.toString().includes('Endpoint = 10.0.0.2:4500'),
    'the second candidate has its turn',
  )

  const paris = PARIS_GW.spec.publicKey
  stage.wireguard.handshake('sealane0', paris, stage.clock.now(), '203.0.113.9:61000')
  stage.wireguard.traffic('sealane0', paris, 1000, 2000)
  stage.probes.alive.add('246.0.2.0')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'paris answers')
  t.ok(
    stage.routed().includes('ip route replace 244.1.0.0/16 dev sealane0 table 7311 proto 173 src 10.42.0.1'),
    'traffic has a way',
  )
  const { rttMs: _rtt, loss: _loss, handshakeAgeSeconds: _age, ...connection } = stage.connection('paris')!
  t.strictSame(connection, {
    cluster: 'paris',
    lane: 0,
    endpoint: 'paris-gw-lane0',
    state: 'up',
    message: '',
    usingAddress: '203.0.113.9:61000',
    usingNat: true,
    rxBytes: 1000,
    txBytes: 2000,
  })

  const touched = stage.wireguard.touched.length
  const transactions = stage.nft.accepted.length
  await stage.pass(65_000)
  t.equal(stage.wireguard.touched.length, touched, 'a peer that is up is left alone, its roamed address too')
  t.equal(stage.nft.accepted.length, transactions, 'and so is the nft table')

  stage.probes.alive.clear()
  await stage.until(() => stage.connection('paris')?.state === 'down', 'paris is silent')
  await stage.until(
    () => !stage.routed().some((line) => line.includes('244.1.0.0/16')),
    'its prefix has left the lanes',
  )
  t.ok(
    stage.routed().some((line) => line.includes('246.0.2.0/32')),
    'probes go on',
  )
  t.match(stage.wireguard.toString(), '203.0.113.9:61000', 'its address is kept for a while')
  await stage.pass(5000)
  await stage.until(
    () => stage.wireguard.toString().includes('Endpoint = 198.51.100.20:4500'),
    'then the candidates have their turn',
  )

  stage.probes.alive.add('246.0.2.0')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'paris is back')
  await stage.stop()
  t.ok(
    stage.routed().some((line) => line.includes('244.1.0.0/16')),
    'stopping leaves the data path',
  )
  t.strictSame(stage.nft.tableNames(), ['sealane_gateway'])

  stage.start()
  const peers = stage.wireguard.touched.length
  await stage.until(() => stage.probes.open.size === 1, 'started again')
  t.equal(stage.wireguard.touched.length, peers, 'sessions live on')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'and paris is up')

  stage.put(membership('milano', 'leaving'))
  await stage.until(() => stage.objects.cache('Gateway').get('gw') === undefined, 'left')
  await stage.ended
  t.equal(stage.kernel(), stage.before, 'the kernel is as it was')
  t.equal(await stage.sysctl.read('net.ipv4.ip_forward'), '0')
  t.equal(stage.ownEndpoint(), undefined)
  t.notOk(existsSync(join(stage.stateDir, 'lane0.key')))
  t.ok(stage.objects.cache('Endpoint').get('paris-gw-lane0'), 'what is not ours stays')
})

t.test('a restart never takes the traffic away, not even for a moment', async (t) => {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  stage.probes.alive.add('246.0.2.0')
  stage.start()
  await stage.until(
    () => stage.wireguard.deviceNames().length > 0 && stage.connection('paris') !== undefined,
    'connecting',
  )
  stage.wireguard.handshake('sealane0', PARIS_GW.spec.publicKey, stage.clock.now(), '198.51.100.20:4500')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'up')
  await stage.stop()
  const seen: string[] = []
  stage.routes.onChange(() =>
    seen.push(stage.routed().some((line) => line.includes('244.1.0.0/16')) ? 'routed' : 'lost'),
  )
  stage.objects.cache('Gateway').onChange((change) => {
    if (change?.type === 'set') seen.push(change.object.status?.connections[0]?.state ?? 'none')
  })
  seen.length = 0
  stage.start()
  await stage.pass(3000)
  t.strictSame(
    seen.filter((word) => word !== 'up' && word !== 'routed'),
    [],
  )
  await stage.stop()

  stage.probes.alive.clear()
  stage.start()
  await stage.until(
    () => stage.connection('paris')?.state === 'down',
    'what is taken over is believed until the probes speak',
  )
  await stage.stop()

  stage.probes.alive.add('246.0.2.0')
  stage.start()
  await stage.until(() => stage.connection('paris')?.state === 'up', 'down is not taken over')
  await stage.stop()
  stage.clock.setWallClock(stage.clock.now() + 181_000)
  stage.probes.alive.clear()
  stage.start()
  await stage.until(() => stage.connection('paris')?.state === 'connecting', 'nor is a tunnel without a session')
})

t.test('drift is repaired', async (t) => {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  stage.probes.alive.add('246.0.2.0')
  stage.start()
  await stage.until(() => stage.connection('paris')?.state === 'up', 'up')
  const good = stage.kernel()
  const sessions = stage.wireguard.touched.length
  for (const route of await stage.routes.routes()) await stage.routes.deleteRoute(route)
  await stage.until(() => stage.kernel() === good, 'routes are back after the notification')
  await stage.nft.run([{ verb: 'flush-table', table: 'sealane_gateway' }])
  await stage.pass(60_000)
  await stage.until(() => stage.nft.toString().includes('jump from-lane'), 'the table is back after a resync')
  await stage.wireguard.deleteDevice('sealane0')
  await stage.until(() => stage.kernel() === good, 'the device is back')
  await stage.until(() => stage.wireguard.toString().includes('Endpoint = 198.51.100.20:4500'), 'its peer is called')
  t.ok(stage.wireguard.touched.length <= sessions + 2, 'once, or at first without the address')
})

t.test('a failure is told, the rest is done, and it is tried again', async (t) => {
  const stage = new Stage(t)
  stage.nft.failNext(new KernelError('EPERM', 'nft -f -', 'operation not permitted'))
  stage.start()
  await stage.until(() => stage.gateway()?.failure !== undefined, 'failure in the status')
  t.equal(stage.gateway()?.failure, 'nft -f -: operation not permitted')
  t.strictSame(stage.status.notReady(), ['gateway: nft -f -: operation not permitted'])
  t.strictSame(stage.wireguard.deviceNames(), [], 'no lane without its policy')
  t.equal(await stage.sysctl.read('net.ipv4.ip_forward'), '0')
  await stage.until(() => stage.gateway()?.failure === undefined, 'mended by itself')
  t.strictSame(stage.status.notReady(), [])
  t.strictSame(stage.wireguard.deviceNames(), ['sealane0'])
})

t.test('a failure that stays does not keep a dead lane in the routes', async (t) => {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  stage.probes.alive.add('246.0.2.0')
  stage.start()
  const routed = (): boolean => stage.routed().some((line) => line.includes('244.1.0.0/16'))
  await stage.until(() => stage.connection('paris')?.state === 'up' && routed(), 'up')
  stage.sysctl.read = () => Promise.reject(new KernelError('EPERM', 'sysctl', 'permission denied'))
  stage.put(node('worker', '192.0.2.11', '10.42.1.0/24'))
  await stage.until(() => stage.gateway()?.failure !== undefined, 'failing')
  await stage.pass(20_000)
  stage.probes.alive.clear()
  await stage.until(() => stage.connection('paris')?.state === 'down', 'silent')
  const start = stage.clock.monotonic()
  await stage.until(() => !routed(), 'its prefix has left the lanes')
  t.ok(stage.clock.monotonic() - start <= 1500, `after ${stage.clock.monotonic() - start} ms`)
  t.equal(stage.logger.messages('error').length, 1, 'told once, not at each try')
})

t.test('a peer that does not answer is called anew every second, one that shook hands is left alone', async (t) => {
  const stage = new Stage(t)
  stage.put(PARIS, endpoint('paris', 'gw', 0, ['public 198.51.100.20:4500']))
  const key = PARIS_GW.spec.publicKey
  stage.start()
  await stage.until(() => stage.connection('paris') !== undefined, 'known')
  const calls = (): number => stage.wireguard.touched.filter((one) => one === `sealane0 ${key}`).length
  const during = async (ms: number): Promise<number> => {
    const before = calls()
    await stage.passSlowly(ms)
    return (calls() - before) / 2 // taken out, and put back
  }
  const session = async () => (await stage.wireguard.read('sealane0'))?.peers[0]?.lastHandshakeMs
  const eager = await during(10_000)
  t.ok(eager >= 7 && eager <= 10, `${eager} calls in the first 10 s`)
  await stage.passSlowly(10_000)
  stage.clock.setWallClock(stage.clock.now() - 3_600_000)
  const calm = await during(30_000)
  t.ok(calm >= 4 && calm <= 6, `${calm} calls in 30 s after that, though the wall clock went back`)
  const shakenMs = stage.clock.now()
  stage.wireguard.handshake('sealane0', key, shakenMs, '203.0.113.9:61000')
  t.equal(await during(2500), 0, 'none just after a handshake')
  await stage.passSlowly(30_000)
  t.match(stage.wireguard.toString(), '198.51.100.20:4500', 'its candidates take turns')
  t.equal(await session(), shakenMs, 'but the session is kept: it can call us')
  stage.probes.alive.add('246.0.2.0')
  await stage.until(() => stage.connection('paris')?.state === 'up', 'up')
  t.equal(await during(30_000), 0, 'nor when it is up')
})

t.test('behind NAT: calls and is not called, keeps the mapping alive', async (t) => {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  stage.start({ observedAddress: '203.0.113.1' })
  await stage.until(() => stage.ownEndpoint() !== undefined && stage.connection('paris') !== undefined, 'told')
  t.strictSame(stage.ownEndpoint()?.spec.candidates, [])
  t.match(stage.wireguard.toString(), 'PersistentKeepalive = 10')
})

t.test('with port forwarding: called at the public address', async (t) => {
  const stage = new Stage(t)
  stage.start({ observedAddress: '203.0.113.1', lanes: [{ lane: 0, publicAddress: '203.0.113.1' }] })
  await stage.until(() => stage.ownEndpoint() !== undefined, 'told')
  t.strictSame(
    stage.ownEndpoint()?.spec.candidates.map((c) => `${c.kind} ${c.address}`),
    ['public 203.0.113.1', 'private 192.0.2.10'],
  )
})

t.test('lanes that are taken away are swept, with their endpoints', async (t) => {
  const stage = new Stage(t)
  stage.sysctl.provideDevice('sealane1')
  stage.start({ lanes: [{ lane: 0 }, { lane: 1 }] })
  await stage.until(() => stage.objects.cache('Endpoint').get('milano-gw-lane1') !== undefined, 'two lanes')
  await stage.stop()
  stage.start()
  await stage.until(() => stage.objects.cache('Endpoint').get('milano-gw-lane1') === undefined, 'one lane')
  t.strictSame(stage.wireguard.deviceNames(), ['sealane0'])
})

t.test('a narrower path makes the lane narrower, without a new session', async (t) => {
  const stage = new Stage(t)
  stage.put(PARIS, PARIS_GW)
  stage.probes.alive.add('246.0.2.0')
  stage.start()
  await stage.until(() => stage.connection('paris')?.state === 'up', 'up')
  const touched = stage.wireguard.touched.length
  await stage.routes.setLink('eth0', { mtu: 1400 })
  await stage.until(() => stage.gateway()?.lanes[0]?.mtu === 1340, '1400 - 60')
  t.equal(stage.wireguard.touched.length, touched)
})

t.test('not joined yet: waits, and says so', async (t) => {
  const stage = new Stage(t)
  stage.objects.drop('Membership', 'self')
  stage.start()
  await stage.until(
    () => stage.status.notReady().includes('gateway: this cluster has no Cluster object yet'),
    'says so',
  )
  t.equal(stage.kernel(), stage.before)
  stage.put(membership('milano', 'joined'))
  await stage.until(() => stage.gateway() !== undefined, 'then it works')
  stage.objects.drop('Membership', 'self')
  await stage.until(() => stage.gateway() === undefined, 'a membership that vanishes is a departure')
  await stage.ended
  t.equal(stage.kernel(), stage.before)
})

t.test('an unusable key stops the start', async (t) => {
  const stage = new Stage(t)
  const { mkdirSync, writeFileSync } = await import('node:fs')
  mkdirSync(stage.stateDir, { mode: 0o700 })
  writeFileSync(join(stage.stateDir, 'lane0.key'), 'garbage', { mode: 0o600 })
  stage.start()
  await t.rejects(stage.ended, { message: /not a WireGuard private key/ })
})

t.test("another node's object does not matter", async (t) => {
  const stage = new Stage(t)
  stage.start()
  await stage.until(() => stage.gateway() !== undefined, 'up')
  const changes = stage.nft.accepted.length
  const other: Node = node('worker', '192.0.2.11', '10.42.1.0/24')
  stage.put(other)
  await stage.pass(1000)
  t.equal(stage.nft.accepted.length, changes)
})
