/**
 * `npm run bench:gateway-memory -- [--json] [--clusters N] [--far N] [--seconds S]`: resident memory and processor
 * share of a gateway with links to N clusters (default 100) of --far gateways each (default 2), where its own cluster
 * has two: 400 links of the cluster, 200 of each gateway. Each gateway is a process of the compiled product on the
 * files of one site, with a kernel in memory and simulated far ends (one-gateway.ts). The figures are those of the
 * larger one. The peers in the same run are a bare Node process, and the same gateways with one cluster. The processor
 * share does not include the cost of real sockets and a real kernel (bench/probes.ts).
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { stringify } from 'yaml'
import { FileApi } from '../../kubeapi/files/file-api.ts'
import type { Cluster, Endpoint, KubeObject } from '../../model/objects.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { clusterObject, endpointObject, membershipObject } from '../../test/support/objects/cluster-objects.ts'
import { internalIps, nodeObject } from '../../test/support/objects/node-objects.ts'
import type { Figures } from './one-gateway.ts'
import { compileProduct } from '../../scripts/compile-product.ts'
import { progress, round } from '../figures.ts'

const ROOT = join(import.meta.dirname, '..', '..')
/** The packages that it needs are found from this folder. */
const PRODUCT = join(ROOT, 'node_modules', '.cache', 'sealane-bench-product')
/** The program is compiled like the command line, because reading types takes about 30 MiB of a process. */
const PROGRAM = join(PRODUCT, 'gateway-memory', 'one-gateway.js')
/** The flags with which bin/sealane starts Node. */
const NODE_FLAGS = ['--max-semi-space-size=2', '--heap-growing-percent=20', '--disable-warning=ExperimentalWarning']
const NODE_ENV = { ...process.env, MALLOC_ARENA_MAX: '2' }
const OWN_GATEWAYS = [0, 1]
const UP_MS = 120_000
/** New links are probed often for ten seconds. */
const SETTLE_MS = 15_000

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean' },
      clusters: { type: 'string', default: '100' },
      far: { type: 'string', default: '2' },
      seconds: { type: 'string', default: '60' },
    },
  })
  const clusters = numberOf('clusters', values.clusters, 250)
  const far = numberOf('far', values.far, 8)
  const seconds = numberOf('seconds', values.seconds, 3600)
  rmSync(PRODUCT, { recursive: true, force: true })
  if (!compileProduct(PRODUCT, 'bench/gateway-memory/one-gateway.ts')) throw new Error('the product does not compile')
  const floor = await bareNode()
  const one = await measure({ clusters: 1, far, seconds: 15 })
  const { links, ...most } = await measure({ clusters, far, seconds })
  rmSync(PRODUCT, { recursive: true, force: true })
  const figures = {
    clusters,
    links,
    linksPerGateway: links / OWN_GATEWAYS.length,
    ...most,
    oneClusterRssMb: one.rssMb,
    oneClusterCpuPercent: one.cpuPercent,
    nodeRssMb: floor,
  }
  progress(
    figures,
    `${links} links of two gateways with ${clusters} clusters: ${most.rssMb} MiB resident, ` +
      `${most.peakRssMb} at most, ${most.cpuPercent} % of a core, the larger of the two\n` +
      `with one cluster: ${one.rssMb} MiB, ${one.cpuPercent} %; Node alone: ${floor} MiB`,
  )
}

function numberOf(flag: string, text: string, most: number): number {
  const number = Number(text)
  if (Number.isInteger(number) && number > 0 && number <= most) return number
  throw new Error(`--${flag} ${JSON.stringify(text)}: expected a whole number from 1 to ${most}`)
}

interface Load {
  readonly clusters: number
  /** The number of gateways of each other cluster. */
  readonly far: number
  readonly seconds: number
}

async function measure({ clusters, far, seconds }: Load) {
  const folder = mkdtempSync(join(tmpdir(), 'sealane-gateway-memory-'))
  const gateways: RunningGateway[] = []
  try {
    await writeSite(folder, clusters, far)
    for (const lane of OWN_GATEWAYS)
      gateways.push(new RunningGateway([PROGRAM, join(folder, 'site.yaml'), `gw${lane}`, String(lane), String(far)]))
    await Promise.all(gateways.map((gateway) => gateway.untilUp(clusters * far)))
    await sleep(SETTLE_MS)
    await Promise.all(gateways.map((gateway) => gateway.figures()))
    await sleep(seconds * 1000)
    const all = await Promise.all(gateways.map((gateway) => gateway.figures()))
    const most = (of: (figures: Figures) => number): number => round(Math.max(...all.map(of)), 1)
    return {
      rssMb: most(({ rssMb }) => rssMb),
      peakRssMb: most(({ peakRssMb }) => peakRssMb),
      cpuPercent: most(({ cpuMs, wallMs }) => (100 * cpuMs) / wallMs),
      links: all.reduce((sum, { linksUp }) => sum + linksUp, 0),
    }
  } finally {
    await Promise.all(gateways.map((gateway) => gateway.stop()))
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Writes the site as its user and its agent would. */
async function writeSite(folder: string, clusters: number, far: number): Promise<void> {
  const [objects, state] = [join(folder, 'objects'), join(folder, 'state')]
  for (const path of [objects, state]) mkdirSync(path)
  const gateways = OWN_GATEWAYS.map((lane) => ({ node: `gw${lane}`, lane, publicAddress: `192.0.2.${10 + lane}` }))
  const spec = { objects, state, podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16'], gateways }
  const site = { apiVersion: 'sealane.io/v1alpha1', kind: 'Site', metadata: { name: 'milano' }, spec }
  writeFileSync(join(folder, 'site.yaml'), stringify(site))
  const nodes = OWN_GATEWAYS.map((lane) => {
    const podCIDR = `10.42.${lane}.0/24`
    return nodeObject(`gw${lane}`, {
      spec: { podCIDR, podCIDRs: [podCIDR] },
      status: internalIps(`192.0.2.${10 + lane}`),
    })
  })
  writeFileSync(join(objects, 'nodes.yaml'), nodes.map((node) => stringify(node)).join('---\n'))
  const api = new FileApi({ clock: new SystemClock(), logger: new CapturingLogger() }, { objects, state })
  const kinds = ['Membership', 'Cluster', 'Endpoint'] as const
  await Promise.all(kinds.map((kind) => api.cache(kind).whenSynced(new AbortController().signal)))
  const own = clusterOf('milano', 0)
  const others = Array.from({ length: clusters }, (_, i) => clusterOf(`site-${i + 1}`, i + 1))
  const endpoints = others.flatMap((one, i) => Array.from({ length: far }, (_, lane) => endpointOf(one, i, lane)))
  const all: readonly KubeObject[] = [membershipObject({ clusterId: 'milano' }), own, ...others, ...endpoints]
  for (const object of all) await api.apply(object)
  await api.close()
}

function clusterOf(id: string, i: number): Cluster {
  const ranges = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16'], globalCIDRs: [`244.${i}.0.0/16`] }
  return clusterObject({ id, index: i + 1, ...ranges })
}

function endpointOf({ spec }: Cluster, i: number, lane: number): Endpoint {
  return endpointObject({
    cluster: spec.id,
    node: `gw${lane}`,
    lane,
    publicKey: randomBytes(32).toString('base64'),
    candidates: [
      { kind: 'public', address: `198.51.${100 + lane}.${i + 1}`, port: 4500 + lane },
      { kind: 'private', address: `172.16.${lane}.${i + 1}`, port: 4500 + lane },
    ],
    capabilities: ['wireguard', 'all-pairs'],
  })
}

class RunningGateway {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>
  readonly #waiting: ((line: string) => void)[] = []
  readonly #ended: Promise<unknown>

  constructor(args: readonly string[]) {
    this.#child = spawn(process.execPath, [...NODE_FLAGS, ...args], {
      env: NODE_ENV,
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    this.#ended = new Promise((resolve) => this.#child.once('exit', resolve))
    this.#child.stdin.on('error', () => undefined)
    createInterface({ input: this.#child.stdout }).on('line', (line) => this.#waiting.shift()?.(line))
  }

  async figures(): Promise<Figures> {
    const line = new Promise<string>((resolve) => this.#waiting.push(resolve))
    this.#child.stdin.write('\n')
    const ended = this.#ended.then(() => Promise.reject(new Error('a gateway has ended')))
    return JSON.parse(await Promise.race([line, ended])) as Figures
  }

  async untilUp(links: number): Promise<void> {
    const end = performance.now() + UP_MS
    for (;;) {
      const { linksUp } = await this.figures()
      if (linksUp === links) return
      if (performance.now() > end) throw new Error(`${linksUp} of ${links} links are up after ${UP_MS} ms`)
      await sleep(500)
    }
  }

  async stop(): Promise<void> {
    this.#child.kill()
    await this.#ended
  }
}

/** The memory of a process that does nothing. */
async function bareNode(): Promise<number> {
  const program = 'setTimeout(() => console.log(process.memoryUsage().rss / 2 ** 20), 1000)'
  const child = spawn(process.execPath, [...NODE_FLAGS, '-e', program], {
    env: NODE_ENV,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  return round(
    Number(await new Promise<string>((resolve) => createInterface({ input: child.stdout }).once('line', resolve))),
    1,
  )
}

await main()
