/**
 * `npm run bench:lane -- [--json] [--rounds N] [--seconds N] [--mbit N]`: TCP from a pod on paris' worker to a pod on
 * milano's worker, both 10.42.0.0/16, against plain WireGuard (the same implementation without Sealane) between the two
 * gateway nodes. The two are measured in turn, so that a change of the machine's speed affects both. The same is then
 * measured between sites of two gateways each (lane/two-gateways.ts).
 */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { globalAddress } from '../demo/checks/world.ts'
import type { Lab } from '../demo/lab.ts'
import { until } from '../demo/until.ts'
import { median, round, progress } from './figures.ts'
import { type JoinedSites, withJoinedSites } from './joined-sites.ts'
import { measureGateways } from './lane/two-gateways.ts'

const BARE = { device: 'bare0', port: 51820, milano: '10.99.0.1', paris: '10.99.0.2' }

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean' },
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      mbit: { type: 'string' },
    },
  })
  const rounds = Number(values.rounds ?? 5)
  const seconds = Number(values.seconds ?? 5)
  const mbit = Number(values.mbit ?? 50)
  const single = await withJoinedSites({ names: ['milano', 'paris'] }, (joined) => measure(joined, rounds, seconds))
  const result = { ...single, ...(await measureGateways({ rounds, seconds, mbit })) }
  progress(
    result,
    `pod to pod across two overlapping sites: ${result.gbps} Gbit/s, round trip ${result.rttMs} ms\n` +
      `plain WireGuard between the gateways:   ${result.bareGbps} Gbit/s, round trip ${result.bareRttMs} ms\n` +
      `ratio ${result.ratio}, added round trip ${result.addedRttMs} ms (${rounds} rounds of ${seconds} s)\n` +
      `two gateways in each site, ${result.flows} connections: ${result.bothGbps} Gbit/s, ` +
      `plain WireGuard with one device ${result.bothBareGbps}; ratio ${result.bothRatio}\n` +
      `uplinks of ${result.gatewayMbit} Mbit/s: one gateway ${result.oneGbps} Gbit/s, two ${result.twoGbps}; ` +
      `${result.scaling} times as much`,
  )
}

async function measure(joined: JoinedSites, rounds: number, seconds: number) {
  const { lab } = joined
  await setUpBare(lab)
  const world = { ...joined, flat: false }
  const server = await globalAddress(world, 'milano', 'db-0')
  const laneGbps: number[] = []
  const bareGbps: number[] = []
  lab.spawn('milano-gw', 'bare-iperf3', 'iperf3', ['-s', '-B', BARE.milano])
  await until('iperf3 to answer over both', 20_000, async () => {
    const done = [
      await iperf(lab, 'paris-gw', BARE.milano, 1).catch(String),
      await iperf(lab, 'paris-web-0', server, 1).catch(String),
    ]
    return done.every((one) => typeof one === 'number') ? true : done.join(', ')
  })
  for (let i = 0; i < rounds; i += 1) {
    laneGbps.push(await iperf(lab, 'paris-web-0', server, seconds))
    bareGbps.push(await iperf(lab, 'paris-gw', BARE.milano, seconds))
  }
  const rttMs = await roundTrip(lab, 'paris-web-0', server)
  const bareRttMs = await roundTrip(lab, 'paris-gw', BARE.milano)
  return {
    gbps: round(median(laneGbps), 3),
    bareGbps: round(median(bareGbps), 3),
    ratio: round(median(laneGbps.map((value, i) => value / (bareGbps[i] ?? NaN))), 3),
    rttMs: round(rttMs, 3),
    bareRttMs: round(bareRttMs, 3),
    addedRttMs: round(rttMs - bareRttMs, 3),
  }
}

/** Sets up one WireGuard device on each gateway node beside Sealane's, made with `wg` alone. */
async function setUpBare(lab: Lab): Promise<void> {
  const sides = [
    { node: 'milano-gw', own: BARE.milano, far: BARE.paris, farAddress: '192.0.2.6' },
    { node: 'paris-gw', own: BARE.paris, far: BARE.milano, farAddress: '192.0.2.2' },
  ] as const
  const keys: { secret: string; shown: string }[] = []
  for (const { node } of sides) {
    const secret = (await lab.must(node, 'wg', ['genkey'])).trim()
    keys.push({ secret, shown: (await lab.must(node, 'wg', ['pubkey'], { input: secret })).trim() })
    const made = await lab.exec(node, 'ip', ['link', 'add', BARE.device, 'type', 'wireguard'])
    if (made.status !== 0) await lab.must(node, 'wireguard-go', [BARE.device])
  }
  for (const [i, { node, own, far, farAddress }] of sides.entries()) {
    const lines = [
      '[Interface]',
      `ListenPort = ${BARE.port}`,
      `PrivateKey = ${keys[i]?.secret ?? ''}`,
      '[Peer]',
      `PublicKey = ${keys[1 - i]?.shown ?? ''}`,
      `Endpoint = ${farAddress}:${BARE.port}`,
      `AllowedIPs = ${far}/32`,
    ]
    const file = join(lab.directory, `${node}-bare.conf`)
    await writeFile(file, `${lines.join('\n')}\n`, { mode: 0o600 })
    await lab.must(node, 'wg', ['setconf', BARE.device, file])
    await lab.ip(node, `addr add ${own}/24 dev ${BARE.device}`)
    await lab.ip(node, `link set ${BARE.device} mtu 1420 up`)
  }
}

interface IperfReport {
  readonly end?: { readonly sum_received?: { readonly bits_per_second: number } }
  readonly error?: string
}

/** The received Gbit/s of one TCP stream. Throws what iperf3 says if the server does not answer. */
async function iperf(lab: Lab, from: string, address: string, seconds: number): Promise<number> {
  const args = ['-c', address, '-t', String(seconds), '-O', '1', '-J']
  const done = await lab.exec(from, 'iperf3', args, { timeoutMs: (seconds + 20) * 1000 })
  const report = JSON.parse(done.stdout === '' ? '{}' : done.stdout) as IperfReport
  const rate = report.end?.sum_received?.bits_per_second ?? 0
  if (rate === 0) throw new Error(`iperf3 from ${from} to ${address}: ${report.error ?? done.stderr}`)
  return rate / 1e9
}

async function roundTrip(lab: Lab, from: string, address: string): Promise<number> {
  const text = await lab.must(from, 'ping', ['-q', '-c', '50', '-i', '0.02', address])
  return Number(/= [\d.]+\/([\d.]+)\//.exec(text)?.[1] ?? NaN)
}

await main()
