/** The agent against the real broker over TLS on loopback; only the Kubernetes side is in memory. */
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { agentConfig } from '../../agent/config.ts'
import { runAgent } from '../../agent/main.ts'
import { DEFAULT_BROKER_CONFIG } from '../../broker/config.ts'
import { runBroker } from '../../broker/main.ts'
import { openTokenStore } from '../../broker/token-store.ts'
import { MemoryCluster } from '../../cluster/memory/memory-cluster.ts'
import { parseClusterId } from '../../model/ids.ts'
import type { EndpointSlice } from '../../model/objects.ts'
import { createKey } from '../../protocol/identity/keys.ts'
import { writeMemberIdentity } from '../../protocol/identity/member-files.ts'
import { certificatesFromPem } from '../../protocol/identity/read-certificate.ts'
import { parseJoinToken } from '../../protocol/identity/token.ts'
import { createCsr } from '../../protocol/identity/x509.ts'
import { connectBroker } from '../../protocol/transport/grpc-client.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/capturing-logger.ts'
import { createMetrics } from '../../runtime/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/status-board.ts'
import { eventually } from '../support/eventually.ts'
import { service, serviceExport, showImport, showSlice, slice } from './site.ts'

const clock = new SystemClock()
const NEVER = new AbortController().signal

interface Running {
  stop(): Promise<void>
}

function run(work: (signal: AbortSignal) => Promise<void>): Running {
  const stop = new AbortController()
  const done = work(stop.signal)
  return {
    async stop() {
      stop.abort()
      await done
    },
  }
}

async function startBroker(directory: string, port: number): Promise<Running & { port: number }> {
  let address: { port: number } | undefined
  const deps = { clock, logger: new CapturingLogger(), metrics: createMetrics('broker'), status: new StatusBoard() }
  const config = {
    ...DEFAULT_BROKER_CONFIG,
    stateDir: directory,
    listen: `127.0.0.1:${port}`,
    advertise: ['127.0.0.1:7443'],
  }
  const broker = run((signal) => runBroker({ ...deps, onListening: (at) => (address = at) }, config, signal))
  await eventually(() => address !== undefined)
  return { ...broker, port: address?.port ?? 0 }
}

class Member {
  readonly api = new MemoryCluster()
  readonly status = new StatusBoard()
  readonly logger = new CapturingLogger()
  readonly id: string
  readonly #directory: string
  #running: Running | undefined

  constructor(id: string, directory: string) {
    this.id = id
    this.#directory = join(directory, id)
  }

  async join(brokerDirectory: string, port: number): Promise<void> {
    const cluster = parseClusterId(this.id)
    const tokens = await openTokenStore(brokerDirectory, clock)
    const token = parseJoinToken((await tokens.create({})).text, clock.now())
    await tokens.close()
    const [ca] = certificatesFromPem(await readFile(join(brokerDirectory, 'ca.crt'), 'utf8'))
    const addresses = [`127.0.0.1:${port}`]
    const client = connectBroker({ addresses, clusterset: 'default', ca: [ca!], clock, logger: this.logger })
    const key = createKey()
    const facts = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16'], labels: {}, version: '0' }
    const request = { secret: token.secret(), cluster, csr: await createCsr(key), facts, nowMs: clock.now() }
    const answer = await client.join(request, NEVER)
    client.close()
    await writeMemberIdentity(join(this.#directory, 'identity'), {
      cluster,
      clusterset: answer.clusterset,
      brokerAddresses: addresses,
      observedAddress: answer.observedAddress,
      key,
      certificate: answer.certificate,
      caBundle: answer.caBundle,
    })
    const spec = { id: this.id, index: answer.clusterIndex, ...facts, globalCIDRs: answer.globalCIDRs }
    const { version: _version, ...clusterSpec } = spec
    await this.api.apply({
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'Cluster',
      metadata: { name: this.id },
      spec: clusterSpec,
    })
    const { clusterset, globalRange, clustersetIpRange } = answer
    await this.api.apply({
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'Membership',
      metadata: { name: 'self' },
      spec: { clusterId: this.id, phase: 'joined', clusterset, globalRange, clustersetIpRange },
    })
    this.api.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'shop' } })
  }

  start(): void {
    const deps = { cluster: this.api, clock, logger: this.logger, metrics: createMetrics('agent'), status: this.status }
    this.#running = run((signal) => runAgent(deps, agentConfig(this.#directory), signal))
  }

  async stop(): Promise<void> {
    await this.#running?.stop()
  }

  shown(): string[] {
    const imports = this.api.cache('ServiceImport').list().map(showImport)
    const slices = this.api.cache('EndpointSlice').list()
    return [
      ...imports,
      ...slices.filter(({ metadata }) => metadata.name.startsWith('web-') && metadata.name.length > 20).map(showSlice),
    ]
  }
}

t.test('export, broker outage with restart of an agent, unexport', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'sealane-agent-'))
  const brokerDirectory = join(directory, 'broker')
  let broker = await startBroker(brokerDirectory, 0)
  const milano = new Member('milano', directory)
  const paris = new Member('paris', directory)
  t.teardown(async () => {
    await Promise.all([milano.stop(), paris.stop()])
    await broker.stop()
    await rm(directory, { recursive: true, force: true })
  })
  for (const site of [milano, paris]) {
    await site.join(brokerDirectory, broker.port)
    site.start()
  }
  milano.api.put(service('shop', 'web'))
  milano.api.put(slice('shop', 'web', '10.42.0.5'))
  await eventually(() => paris.api.cache('Cluster').list().length === 2, { say: 'clusters know each other' })
  const global = paris.api.get('Cluster', 'milano')?.spec.globalCIDRs[0]
  t.match(global, /^244\.\d+\.0\.0\/16$/, 'overlapping clusters got global CIDRs')

  const times: number[] = []
  for (let i = 0; i < 20; i++) {
    const started = performance.now()
    milano.api.put(serviceExport('shop', 'web'))
    await eventually(() => paris.shown().length === 2, { intervalMs: 1, say: 'paris finds the service' })
    times.push(performance.now() - started)
    if (i === 19) break
    milano.api.drop('ServiceExport', 'web', 'shop')
    await eventually(() => paris.shown().length === 0, { intervalMs: 1, say: 'paris forgets the service' })
  }
  times.sort((a, b) => a - b)
  t.comment(`export to import: median ${times[10]?.toFixed(1)} ms, worst ${times[19]?.toFixed(1)} ms`)
  t.ok((times[10] ?? Infinity) < 500, 'quickly, even on a busy machine; the benchmark knows the real figure')
  const ip = paris.api.get('ServiceImport', 'web', 'shop')?.spec.ips?.[0] ?? ''
  const want = [
    `shop/web ClusterSetIP ${ip} http:80 from milano Ready`,
    `web<-milano http:8080 ${global?.replace('.0.0/16', '.0.5')}(10-42-0-5)`,
  ]
  await eventually(() => JSON.stringify(paris.shown()) === JSON.stringify(want)).catch(() => undefined)
  t.same(paris.shown(), want)

  await broker.stop()
  await paris.stop()
  paris.api.writes.length = 0
  paris.start()
  milano.api.put(slice('shop', 'web', '10.42.0.6'))
  await eventually(() => milano.shown()[1]?.includes('10.42.0.6'), {
    say: 'milano follows its own pods without the broker',
  })
  await eventually(() => paris.status.notReady().length === 0)
  await eventually(() => paris.status.plans().get('agent')?.includes('Cluster/milano'), {
    say: 'the saved replica is used',
  })
  t.same(paris.shown(), want, 'frozen')
  t.same(paris.api.writes, [], 'untouched')
  t.notMatch(paris.status.plans().get('agent'), 'broker: connected', 'and it says why')

  broker = await startBroker(brokerDirectory, broker.port)
  await eventually(() => paris.shown()[1]?.includes('.0.6('), {
    deadlineMs: 15_000,
    say: 'the broker is back, the difference arrives',
  })
  milano.api.drop('ServiceExport', 'web', 'shop')
  await eventually(() => paris.shown().length === 0, { say: 'unexported' })
  t.match(paris.status.plans().get('agent'), 'broker: connected')
})

t.test('a service of 5,000 endpoints: slices of at most 100, one flip is one write', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'sealane-agent-'))
  const broker = await startBroker(join(directory, 'broker'), 0)
  const milano = new Member('milano', directory)
  const paris = new Member('paris', directory)
  t.teardown(async () => {
    await Promise.all([milano.stop(), paris.stop()])
    await broker.stop()
    await rm(directory, { recursive: true, force: true })
  })
  for (const site of [milano, paris]) {
    await site.join(join(directory, 'broker'), broker.port)
    site.start()
  }
  // As the EndpointSlice controller divides them, and one slice as large as the API allows.
  const part = (i: number, size: number, flipped = -1): EndpointSlice => {
    const pods = Array.from(
      { length: size },
      (_, j) => `${j === flipped ? '!' : ''}10.42.${i * 4 + (j >> 8)}.${j & 255}`,
    )
    const metadata = { name: `web-${i}`, namespace: 'shop', labels: { 'kubernetes.io/service-name': 'web' } }
    return slice('shop', 'web', pods.join(' '), { metadata })
  }
  milano.api.put(service('shop', 'web', { clusterIP: 'None' }))
  for (let i = 0; i < 40; i += 1) milano.api.put(part(i, 100))
  milano.api.put(part(40, 1000))
  milano.api.put(serviceExport('shop', 'web'))
  const imported = (site: Member): readonly EndpointSlice[] =>
    site.api
      .cache('EndpointSlice')
      .list()
      .filter(({ metadata }) => metadata.labels?.['multicluster.kubernetes.io/source-cluster'] === 'milano')
  const sizes = (site: Member): string => {
    const counts = imported(site).map(({ endpoints }) => endpoints?.length ?? 0)
    return `${counts.length} slices, largest ${Math.max(...counts)}, ${counts.reduce((sum, one) => sum + one, 0)} in all`
  }
  for (const site of [milano, paris]) {
    await eventually(() => sizes(site) === '50 slices, largest 100, 5000 in all', { deadlineMs: 30_000 }).catch(
      () => undefined,
    )
    t.equal(sizes(site), '50 slices, largest 100, 5000 in all', `in ${site.id}`)
  }
  await eventually(() => paris.api.get('ServiceImport', 'web', 'shop')?.status !== undefined)
  for (const [i, size] of [
    [7, 100],
    [40, 1000],
  ] as const) {
    paris.api.writes.length = 0
    milano.api.put(part(i, size, 50))
    const notReady = (): number =>
      imported(paris)
        .flatMap(({ endpoints }) => endpoints ?? [])
        .filter(({ conditions }) => conditions?.ready === false).length
    await eventually(() => notReady() === (i === 7 ? 1 : 2), { intervalMs: 2, deadlineMs: 30_000 })
    t.same(
      paris.api.writes.map(({ verb, kind }) => `${verb} ${kind}`),
      ['apply EndpointSlice'],
      'one write',
    )
  }
  t.same(
    paris.logger.lines.filter(({ level }) => level === 'error'),
    [],
  )
})
