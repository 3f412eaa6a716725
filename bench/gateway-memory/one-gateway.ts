/**
 * The process that main.ts measures: a gateway as `sealane up --component gateway` starts it, on its site's files, with
 * a kernel in memory. The far ends are simulated: each answers its probes, makes a handshake every two minutes, and a
 * tenth of them has traffic. Arguments: site file, node, its lane, and the number of gateways of each other cluster. A
 * line on standard input requests a line of figures.
 */
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { withSite } from '../../cli/context/open-site.ts'
import { processOutput } from '../../cli/context/output.ts'
import { withProcess } from '../../compose/process.ts'
import { processMetrics } from '../../compose/site/run-site.ts'
import { WireguardCable } from '../../gateway/cable/wireguard/wireguard-cable.ts'
import { gatewayConfig, runGateway } from '../../gateway/main.ts'
import { FakeRouteTable } from '../../kernel/fake/fake-route-table.ts'
import { FakeSysctl } from '../../kernel/fake/fake-sysctl.ts'
import { FakeWireguard } from '../../kernel/fake/fake-wireguard.ts'
import { FakeNft } from '../../kernel/fake/fake-nft.ts'
import { decodeProbe, encodeProbe } from '../../kernel/probing/probe-packet.ts'
import type { OpenProbeSocket } from '../../kernel/probing/probe-socket.ts'
import { laneDevice } from '../../model/kernel-ids.ts'
import { readMachineNetwork } from '../../runtime/machine-network.ts'

export interface Figures {
  readonly rssMb: number
  /** The most memory since its start. */
  readonly peakRssMb: number
  /** The processor time since the last line; `wallMs` is the elapsed time. */
  readonly cpuMs: number
  readonly wallMs: number
  readonly linksUp: number
}

const [siteFile = '', node = '', laneText = '', farText = ''] = process.argv.slice(2)
const [lane, far] = [Number(laneText), Number(farText)]
const HANDSHAKE_MS = 120_000
const ANSWER_MS = 1
const BYTES_A_SECOND = 100_000

// The command line has loaded these modules by then.
await Promise.all([
  import('../../cli/program.ts'),
  import('../../cli/site/up.ts'),
  import('../../compose/site/gateway.ts'),
])

const routes = new FakeRouteTable({
  links: [
    { name: 'eth0', mtu: 1500 },
    { name: 'cni0', kind: 'bridge' },
  ],
  addresses: [
    { device: 'eth0', address: `192.0.2.${10 + lane}/24` },
    { device: 'cni0', address: `10.42.${lane}.1/24` },
  ],
  defaultDevice: 'eth0',
})
const [nft, nft6] = [new FakeNft(), new FakeNft({ family: 'ip6' })]
const wireguard = new FakeWireguard({ routes })
const sysctl = new FakeSysctl({ 'net.ipv4.ip_forward': '0', 'net.ipv6.conf.all.forwarding': '0' })
for (let remote = 0; remote < far; remote += 1) sysctl.provideDevice(laneDevice(remote))

/** Each far end answers asynchronously. */
const openProbeSocket: OpenProbeSocket = (_address, ownPort, events) => {
  queueMicrotask(() => events.onReady())
  return {
    send: (bytes, to, port) => {
      const probe = decodeProbe(bytes)
      if (probe?.type !== 'question' || port !== ownPort) return
      const answer = encodeProbe({ ...probe, type: 'answer' })
      setTimeout(() => events.onMessage(answer, { address: to, port }), ANSWER_MS)
    },
    probeTcp: () => () => undefined,
    close: () => undefined,
  }
}

/** Simulates one second of the far ends. */
async function simulate(): Promise<void> {
  nft.accepted.length = 0
  wireguard.touched.length = 0
  for (const device of wireguard.deviceNames()) {
    const { peers = [] } = (await wireguard.read(device)) ?? {}
    for (const [i, { publicKey, lastHandshakeMs = 0 }] of peers.entries()) {
      if (Date.now() - lastHandshakeMs > HANDSHAKE_MS) wireguard.handshake(device, publicKey, Date.now())
      if (i % 10 === 0) wireguard.traffic(device, publicKey, BYTES_A_SECOND, BYTES_A_SECOND)
    }
  }
}

const stopping = new AbortController()
process.once('SIGTERM', () => stopping.abort())
const { signal } = stopping
const metrics = (config: Parameters<typeof processMetrics>[0]) =>
  processMetrics(config, { node, components: ['gateway'] })
await withSite(siteFile, { signal, output: processOutput, serves: true, metrics }, async (site) => {
  const init = {
    name: 'gateway',
    statusListen: ['127.0.0.1:0'],
    logLevel: 'warn',
    metrics: site.metrics,
  } as const
  await withProcess(init, async (deps, started) => {
    const stateDir = join(site.config.state, 'nodes', node)
    const cable = new WireguardCable({ ...deps, routes, wireguard, sysctl }, { stateDir })
    const kernel = { routes, nextHops: routes.nextHops, nft, nft6, sysctl }
    const parts = { ...deps, ...kernel, api: site.api, cable, openProbeSocket, machineNetwork: readMachineNetwork }
    const lanes = [{ lane, publicAddress: `192.0.2.${10 + lane}` }]
    setInterval(() => void simulate(), 1000).unref()
    answerQuestions(() => {
      const status = site.api.cache('Gateway').get(node)?.status
      return (status?.connections ?? []).filter(({ state }) => state === 'up').length
    })
    started()
    await runGateway(parts, gatewayConfig({ node, version: 'bench', stateDir, lanes }), signal)
  })
})
process.exit(0)

function answerQuestions(linksUp: () => number): void {
  let last = { cpu: process.cpuUsage(), atMs: performance.now() }
  createInterface({ input: process.stdin }).on('line', () => {
    const { user, system } = process.cpuUsage(last.cpu)
    const { rss } = process.memoryUsage()
    const atMs = performance.now()
    const figures: Figures = {
      rssMb: rss / 2 ** 20,
      peakRssMb: process.resourceUsage().maxRSS / 2 ** 10,
      cpuMs: (user + system) / 1000,
      wallMs: atMs - last.atMs,
      linksUp: linksUp(),
    }
    console.log(JSON.stringify(figures))
    last = { cpu: process.cpuUsage(), atMs }
  })
}
