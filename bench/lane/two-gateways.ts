/**
 * The second half of `npm run bench:lane`: two overlapping sites with two gateways each. In the first part only the
 * machine's cores limit them, and the peer is plain WireGuard with one device between two of the gateway nodes. In the
 * second part the uplink of each gateway has a fixed rate, and traffic uses both gateways, or one of each site while
 * the other is drained. There are several connections at once, since the ports of each decide which gateway it uses.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { untilWays } from '../../test/failover/carries.ts'
import { POD_ADDRESSES, type SiteName, type SiteNode, type TwoSites, withTwoSites } from '../../test/failover/sites.ts'
import { eventually } from '../../test/support/eventually.ts'
import type { Netns } from '../../test/support/netns.ts'
import { withSockets } from '../../test/support/wireguard-sockets.ts'
import { median, round } from '../figures.ts'

const BARE = { device: 'bare0', port: 51_820, addresses: ['10.99.0.1', '10.99.0.2'] } as const
/** As many flows as share two links evenly enough. */
const FLOWS = 32
/** The share of octets that a drained gateway sends at most while the other one carries: probes and handshakes. */
const DRAINED_SHARE = 0.02
/** Idle buckets of a group move to a member that is back after one second. */
const BALANCE_MS = 3000

export interface LaneGatewaysInit {
  readonly rounds: number
  readonly seconds: number
  /** The rate of each gateway's uplink in the second part. */
  readonly mbit: number
}

export async function measureGateways({ rounds, seconds, mbit }: LaneGatewaysInit) {
  // The processes of the nodes read this variable (test/routeagent/support/run-node.ts).
  process.env['SEALANE_TEST_TUNED'] = '1'
  const folder = mkdtempSync(join(tmpdir(), 'sealane-lane-'))
  try {
    return await withTwoSites(folder, async (sites) => {
      const ends = [gatewayOf(sites, 'milano'), gatewayOf(sites, 'paris')] as const
      const [near, far] = ends
      await makeBare(ends, join(folder, 'bare'))
      const overLanes = () => iperf(sites.pods.milano, POD_ADDRESSES.paris, seconds)
      const overBare = () => iperf(near.netns, BARE.addresses[1], seconds)
      await serve(sites.pods.paris, sites.pods.milano, POD_ADDRESSES.paris)
      await serve(far.netns, near.netns, BARE.addresses[1])
      const [both, bare, one, two] = [[], [], [], []] as [number[], number[], number[], number[]]
      for (let i = 0; i < rounds; i += 1) {
        both.push(await overLanes())
        bare.push(await overBare())
      }
      const gateways = sites.nodes.filter(({ name }) => name !== 'worker')
      for (const { netns } of gateways) await shape(netns, mbit)
      for (let i = 0; i < rounds; i += 1) {
        two.push(await overLanes())
        one.push(await withOneEach(sites, overLanes))
      }
      return {
        flows: FLOWS,
        bothGbps: round(median(both), 3),
        bothBareGbps: round(median(bare), 3),
        bothRatio: round(median(both.map((value, i) => value / (bare[i] ?? NaN))), 3),
        gatewayMbit: mbit,
        oneGbps: round(median(one), 4),
        twoGbps: round(median(two), 4),
        scaling: round(median(two.map((value, i) => value / (one[i] ?? NaN))), 3),
      }
    })
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function gatewayOf(sites: TwoSites, site: SiteName): SiteNode {
  const [first] = sites.gateways(site)
  if (first === undefined) throw new Error(`${site} has no gateway`)
  return first
}

/** Drains the second gateway of both sites while `work` runs. Throws if it still carries traffic. */
async function withOneEach(sites: TwoSites, work: () => Promise<number>): Promise<number> {
  const spare = sites.nodes.filter(({ name }) => name === 'gw1')
  for (const gateway of spare) sites.drain(gateway, true)
  await untilWays(sites, 1)
  await sleep(BALANCE_MS)
  const before = await sentOctets(sites)
  const gbps = await work()
  const after = await sentOctets(sites)
  const [kept = NaN, drained = NaN] = after.map((octets, i) => octets - (before[i] ?? NaN))
  if (!(drained < DRAINED_SHARE * kept)) {
    throw new Error(`the drained gateways sent ${drained} octets while the others sent ${kept}`)
  }
  for (const gateway of spare) sites.drain(gateway, false)
  await untilWays(sites, 2)
  await sleep(BALANCE_MS)
  return gbps
}

/** The octets sent on the uplinks of both sites' first gateways, and of their second ones. */
async function sentOctets({ nodes }: TwoSites): Promise<readonly [number, number]> {
  const sum = async (name: string): Promise<number> => {
    const uplinks = nodes.filter((one) => one.name === name)
    const texts = await Promise.all(
      uplinks.map(({ netns }) => netns.exec('cat', ['/sys/class/net/uplink/statistics/tx_bytes'])),
    )
    return texts.reduce((octets, text) => octets + Number(text), 0)
  }
  return [await sum('gw0'), await sum('gw1')]
}

/** Limits the rate at which a gateway sends: into the tunnel, and over the overlay to its worker. */
async function shape(gateway: Netns, mbit: number): Promise<void> {
  const limit = `qdisc replace dev uplink root tbf rate ${mbit}mbit burst 64kb latency 50ms`
  await gateway.exec('tc', limit.split(' '))
}

/** Makes one WireGuard device on each of two nodes, beside Sealane's, with `wg` alone. */
async function makeBare(ends: readonly SiteNode[], folder: string): Promise<void> {
  const secrets = await Promise.all(ends.map(({ netns }) => netns.exec('wg', ['genkey'])))
  const keys = await Promise.all(ends.map(({ netns }, i) => netns.exec('wg', ['pubkey'], { input: secrets[i] ?? '' })))
  for (const [i, { netns }] of ends.entries()) {
    const [far, sockets] = [1 - i, join(folder, String(i))]
    mkdirSync(sockets, { recursive: true })
    const run = ([command = '', ...args]: readonly string[]): Promise<string> => netns.exec(command, args)
    const made = await netns.tryExec('ip', ['link', 'add', BARE.device, 'type', 'wireguard'])
    if (made.code !== 0) await run(withSockets(sockets, ['wireguard-go', BARE.device]))
    const config = [
      '[Interface]',
      `PrivateKey = ${secrets[i]?.trim() ?? ''}`,
      `ListenPort = ${BARE.port}`,
      '[Peer]',
      `PublicKey = ${keys[far]?.trim() ?? ''}`,
      `Endpoint = ${ends[far]?.address ?? ''}:${BARE.port}`,
      `AllowedIPs = ${BARE.addresses[far] ?? ''}/32`,
    ]
    const file = join(sockets, 'bare.conf')
    writeFileSync(file, `${config.join('\n')}\n`, { mode: 0o600 })
    await run(withSockets(sockets, ['wg', 'setconf', BARE.device, file]))
    await run(['ip', 'address', 'add', `${BARE.addresses[i] ?? ''}/24`, 'dev', BARE.device])
    await run(['ip', 'link', 'set', BARE.device, 'mtu', '1420', 'up'])
  }
}

/** Starts the iperf3 server, and waits until it answers. */
async function serve(server: Netns, client: Netns, address: string): Promise<void> {
  server.spawn('iperf3', ['-s', '-B', address === POD_ADDRESSES.paris ? '0.0.0.0' : address])
  await eventually(async () => (await iperf(client, address, 1)) > 0, {
    deadlineMs: 20_000,
    intervalMs: 500,
    say: `iperf3 at ${address} answers`,
  })
}

interface IperfReport {
  readonly error?: string
  readonly end?: { readonly sum_received?: { readonly bits_per_second: number } }
}

/** The received Gbit/s of all connections together. Throws the message of iperf3, such as that the server is busy. */
async function iperf(client: Netns, address: string, seconds: number): Promise<number> {
  const args = ['-c', address, '-P', String(FLOWS), '-t', String(seconds), '-O', '1', '-J']
  const { stdout, stderr } = await client.tryExec('iperf3', args, { timeoutMs: (seconds + 60) * 1000 })
  const { end, error } = JSON.parse(stdout === '' ? '{}' : stdout) as IperfReport
  const received = end?.sum_received?.bits_per_second ?? 0
  if (received > 0) return received / 1e9
  throw new Error(`iperf3 to ${address}: ${error ?? (stderr === '' ? 'nothing was received' : stderr)}`)
}
