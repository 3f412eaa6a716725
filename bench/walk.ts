/**
 * `npm run walk -- [--json] [--files]`: the product's source files that run for one export on its way to an import of
 * another site, and for a gateway's key on its way to a far kernel. Broker, agents and the far gateway run in this
 * process, from the sources, with fake kernels. V8 counts the functions that run between the write and its effect. Those
 * that run without a write in an equally long time are subtracted, because timers run meanwhile, and only those count
 * that run for each of three writes. The fewer files there are, the fewer a reader has to understand.
 */
import { Session } from 'node:inspector/promises'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import type { Test } from 'tap'
import { WireguardCable } from '../gateway/cable/wireguard/wireguard-cable.ts'
import { gatewayConfig, runGateway } from '../gateway/main.ts'
import { FakeNft } from '../kernel/fake/fake-nft.ts'
import { FakeRouteTable } from '../kernel/fake/fake-route-table.ts'
import { FakeSysctl } from '../kernel/fake/fake-sysctl.ts'
import { FakeWireguard } from '../kernel/fake/fake-wireguard.ts'
import { FileApi } from '../kubeapi/files/file-api.ts'
import { SystemClock } from '../reconcile/clock.ts'
import { StatusBoard } from '../runtime/component.ts'
import { CapturingLogger } from '../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../runtime/metrics/prometheus-metrics.ts'
import { LoopbackBroker } from '../test/cli/loopback-broker.ts'
import { STAGE_ROUTES } from '../test/gateway/support/stage.ts'
import { StorySite } from '../test/story/site.ts'
import { eventually } from '../test/support/eventually.ts'
import { FakeProbes } from '../test/support/fake-probes.ts'
import { progress } from './figures.ts'

const ROOT = join(import.meta.dirname, '..')
const AIM = 70
/** Most timers have fired in that time. */
const QUIET_MS = 12_000
const POLLED = { deadlineMs: 20_000, intervalMs: 5 }
/** The first is there before the walk, so that the others change a key. */
const KEYS = ['A', 'B', 'C', 'D'].map((letter) => `${letter}${'/'.repeat(40)}w8=`)
const NAMES = ['web', 'api', 'log']

const NAMESPACE = `
apiVersion: v1
kind: Namespace
metadata: { name: shop }
`
const serviceOf = (name: string): string => `
---
apiVersion: v1
kind: Service
metadata: { name: ${name}, namespace: shop }
spec: { ports: [{ name: http, port: 80, targetPort: 8080 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: ${name}-1, namespace: shop, labels: { kubernetes.io/service-name: ${name} } }
addressType: IPv4
ports: [{ name: http, port: 8080 }]
endpoints: [{ addresses: [10.42.0.5], conditions: { ready: true } }]
`
const exportOf = (name: string): string => `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: { name: ${name}, namespace: shop }
`

/** From each file to its functions that ran. */
type Walked = ReadonlyMap<string, ReadonlySet<string>>

/** The part of a test that the test support uses. */
class Stage {
  readonly #ends: (() => unknown)[] = []

  teardown(end: () => unknown): void {
    this.#ends.unshift(end)
  }

  equal(found: unknown, wanted: unknown, message: string): void {
    if (found !== wanted) throw new Error(message)
  }

  async end(): Promise<void> {
    for (const end of this.#ends) await end()
  }
}

class Coverage {
  readonly #session = new Session()

  async start(): Promise<void> {
    this.#session.connect()
    await this.#session.post('Profiler.enable')
    await this.#session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
  }

  /** The functions that ran since the last call. */
  async take(): Promise<Walked> {
    const { result } = await this.#session.post('Profiler.takePreciseCoverage')
    const walked = new Map<string, Set<string>>()
    for (const { url, functions } of result) {
      const path = url.startsWith('file://') ? relative(ROOT, fileURLToPath(url)) : ''
      if (!isOfProduct(path)) continue
      // The first is the module itself, which ran when it was loaded.
      for (const { functionName, ranges } of functions.slice(1)) {
        if ((ranges[0]?.count ?? 0) === 0) continue
        const at = `${functionName}:${ranges[0]?.startOffset ?? 0}`
        walked.set(path, (walked.get(path) ?? new Set()).add(at))
      }
    }
    return walked
  }
}

function isOfProduct(path: string): boolean {
  return (
    /^[a-z]+\//.test(path) &&
    !/^(test|bench|demo|scripts|node_modules)\/|^kernel\/fake\/|\/capturing-logger\.ts$|\/fake-clock\.ts$|\/gen\//.test(
      path,
    )
  )
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { json: { type: 'boolean' }, files: { type: 'boolean' } } })
  const stage = new Stage()
  const stopping = new AbortController()
  try {
    const t = stage as unknown as Test
    const broker = await LoopbackBroker.start(t)
    const milano = await StorySite.join(t, 'milano', broker)
    const paris = await StorySite.join(t, 'paris', broker)
    milano.write('shop.yaml', NAMESPACE + NAMES.map(serviceOf).join(''))
    paris.write('shop.yaml', NAMESPACE)
    await Promise.all([milano.start(), paris.start()])
    const wireguard = farGateway(stage, paris, stopping.signal)
    const coverage = new Coverage()
    await coverage.start()
    await eventually(() => milano.knownOf('paris').includes('Cluster') && paris.knownOf('milano').includes('Cluster'))
    // An import and its slice of endpoints are a line each.
    const imports = (): number => paris.imports().length / 2
    const before = imports()
    const exported = await walk(
      coverage,
      NAMES.map((name, i) => async (reached) => {
        milano.write(`${name}.yaml`, exportOf(name))
        await eventually(() => imports() > before + i && reached(), { ...POLLED, say: 'paris imports' })
      }),
    )
    const [first = '', ...keys] = KEYS
    await milano.gateway(first)
    await eventually(() => wireguard.toString().includes(first), { say: "paris' kernel has a first key" })
    const keyed = await walk(
      coverage,
      keys.map((key) => async (reached) => {
        wireguard.onPeer = (found) => found === key && reached()
        await milano.gateway(key)
        await eventually(() => wireguard.toString().includes(key), { ...POLLED, say: "paris' kernel has the key" })
      }),
    )
    report({ exported, keyed }, values.files === true)
  } finally {
    stopping.abort()
    await stage.end()
  }
}

/** Reports each peer that the kernel has been given. */
class ObservedWireguard extends FakeWireguard {
  onPeer: (publicKey: string) => unknown = () => undefined

  override async sync(...[name, config, signal]: Parameters<FakeWireguard['sync']>): Promise<void> {
    await super.sync(name, config, signal)
    for (const { publicKey } of config.peers) this.onPeer(publicKey)
  }

  override async replacePeer(...[name, from, peer, signal]: Parameters<FakeWireguard['replacePeer']>): Promise<void> {
    await super.replacePeer(name, from, peer, signal)
    this.onPeer(peer.publicKey)
  }
}

/** The gateway of paris, on its objects and a fake kernel. */
function farGateway(stage: Stage, paris: StorySite, signal: AbortSignal): ObservedWireguard {
  const clock = new SystemClock()
  const logger = new CapturingLogger()
  const routes = new FakeRouteTable(STAGE_ROUTES)
  const wireguard = new ObservedWireguard({ routes, driver: 'userspace' })
  const sysctl = new FakeSysctl({ 'net.ipv4.ip_forward': '0', 'net.ipv6.conf.all.forwarding': '0' })
  for (const device of ['sealane0', 'sealane1']) sysctl.provideDevice(device)
  const stateDir = paris.folder.path('gateway')
  const api = new FileApi(
    { clock, logger },
    { objects: paris.folder.path('objects'), state: paris.folder.path('state') },
  )
  const deps = {
    clock,
    logger,
    metrics: createMetrics('gateway'),
    status: new StatusBoard(),
    api,
    routes,
    nft: new FakeNft(),
    nft6: new FakeNft({ family: 'ip6' }),
    sysctl,
    cable: new WireguardCable({ clock, routes, wireguard, sysctl }, { stateDir }),
    openProbeSocket: new FakeProbes().openSocket,
    probeTcp: () => Promise.resolve(true),
  }
  const config = gatewayConfig({ node: 'gw', version: '1', stateDir, lanes: [{ lane: 0 }] })
  const running = runGateway(deps, config, signal)
  stage.teardown(async () => {
    await running
    await api.close()
  })
  return wireguard
}

/** Writes something, and calls `reached` as soon as its effect is seen. */
type Act = (reached: () => true) => Promise<void>

/** The functions that run because of each of the acts. */
async function walk(coverage: Coverage, acts: readonly Act[]): Promise<Walked> {
  const walks: Walked[] = []
  for (const act of acts) walks.push(await walkOnce(coverage, act))
  return walks.reduce((all, one) => combined(all, one, (is) => is))
}

async function walkOnce(coverage: Coverage, act: Act): Promise<Walked> {
  const clock = new SystemClock()
  const never = new AbortController().signal
  await clock.sleep(QUIET_MS, never)
  await coverage.take()
  await clock.sleep(QUIET_MS, never)
  const idle = await coverage.take()
  let all: Promise<Walked> | undefined
  await act(() => {
    all ??= coverage.take()
    return true
  })
  return combined((await all) ?? new Map(), idle, (is) => !is)
}

/** What is left of a walk if each of its functions is kept by whether it is in the other one. */
function combined(walked: Walked, other: Walked, keep: (isInOther: boolean) => boolean): Walked {
  const left = [...walked].map(
    ([path, ran]) => [path, new Set([...ran].filter((one) => keep(other.get(path)?.has(one) === true)))] as const,
  )
  return new Map(left.filter(([, ran]) => ran.size > 0))
}

function report({ exported, keyed }: { readonly exported: Walked; readonly keyed: Walked }, files: boolean): void {
  const functionsOf = (walked: Walked): number => [...walked.values()].reduce((sum, { size }) => sum + size, 0)
  const figures = {
    exportFiles: exported.size,
    exportFunctions: functionsOf(exported),
    keyFiles: keyed.size,
    keyFunctions: functionsOf(keyed),
    aim: AIM,
  }
  const list = (walked: Walked): string =>
    [...walked]
      .map(([path, { size }]) => `${size} ${path}`)
      .sort()
      .join('\n')
  progress(
    files ? { ...figures, export: [...exported.keys()].sort(), key: [...keyed.keys()].sort() } : figures,
    `an export to an import: ${figures.exportFiles} files, ${figures.exportFunctions} functions; ` +
      `a gateway's key to a far kernel: ${figures.keyFiles} files, ${figures.keyFunctions} functions (aim: ${AIM} files)` +
      (files ? `\n\nexport\n${list(exported)}\n\nkey\n${list(keyed)}` : ''),
  )
}

await main()
