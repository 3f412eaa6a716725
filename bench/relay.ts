/**
 * `npm run bench:relay -- [--json] [--rounds N] [--seconds N]`: how many packets a relay carries, by the table that a
 * gateway that relays writes (plan-relay-table.ts), against plain forwarding between the same namespaces in the same
 * run. iperf3 sends UDP as fast as it can; what leaves for the far end is counted there. The two are measured in turn, so
 * that a change of the machine's speed affects both.
 *
 *   sender 10.1.0.2 ── 10.1.0.1 relay 10.2.0.1 ── 10.2.0.2 receiver
 *
 * - `mbit`, `plainMbit`: datagrams of 1,400 octets. `pps`, `plainPps`: of 100 octets.
 * - `ratio`: the smaller of the two ratios, each the median of all rounds. The relay has no rate limit that matters here.
 *   Connection tracking is on all the time, as on every gateway node. Plain forwarding uses it, and the relay does not.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { planRelayTable } from '../gateway/reach/relay-server/plan-relay-table.ts'
import { formatNft } from '../kernel/nft/nft.ts'
import { parseAddress, parseAddressPort } from '../model/addresses/addresses.ts'
import { NFT_TABLE_RELAY, PAIRS_OF_RELAY, RELAY_LAST_PORT, RELAY_PORT } from '../model/kernel-ids.ts'
import { readRounds } from './read-rounds.ts'
import { eventually } from '../test/support/eventually.ts'
import { type Netns, withNetns } from '../test/support/netns.ts'
import { median, progress, round } from './figures.ts'

const SENDER = '10.1.0.2'
const RECEIVER = '10.2.0.2'
const RELAY = '10.1.0.1'
/** The ports of the pair: packets arrive at the first one from the sender, and at the second one from the receiver. */
const [NEAR_PORT, FAR_PORT] = [RELAY_PORT + 1, RELAY_PORT + 2]
const SENDER_PORT = 40_001
const IPERF_PORT = 5201
const LARGE = 1400
const SMALL = 100
/** UDP and IPv4 headers. */
const HEADERS = 28
/** A hundred times what a gateway lets one end send, so that the limits are looked at and never reached. */
const NO_LIMIT = 12_500_000_000
const AIM = 0.9
/** iperf3 agrees on each run by TCP, which is translated beside the relay. This switches connection tracking on. */
const CONTROL = `table ip control { chain in { type nat hook prerouting priority dstnat;
  ip daddr ${RELAY} tcp dport ${NEAR_PORT} dnat to ${RECEIVER}:${IPERF_PORT}; }; }\n`

interface World {
  readonly sender: Netns
  readonly relay: Netns
  readonly receiver: Netns
}

interface Rates {
  readonly large: number
  readonly small: number
}

async function main(): Promise<void> {
  const { rounds, seconds } = readRounds({ rounds: 7, seconds: 3 })
  const figures = await withNetns((sender) =>
    withNetns((relay) => withNetns((receiver) => measure({ sender, relay, receiver }, rounds, seconds))),
  )
  progress(
    figures,
    `a relay: ${figures.pps} packets of ${SMALL} octets a second, plain forwarding ${figures.plainPps}\n` +
      `datagrams of ${LARGE} octets: ${figures.mbit} Mbit/s, plain forwarding ${figures.plainMbit}\n` +
      `ratio ${figures.ratio} (aim ${AIM}; ${rounds} rounds of ${seconds} s)`,
  )
}

async function measure(world: World, rounds: number, seconds: number) {
  await connect(world)
  const server = world.receiver.spawn('iperf3', ['-s'])
  await eventually(async () => (await world.receiver.exec('ss', ['-Htln'])).includes(`:${IPERF_PORT} `), {
    say: 'iperf3 listens',
  })
  const plain: Rates[] = []
  const relayed: Rates[] = []
  for (let i = 0; i < rounds; i += 1) {
    plain.push(await both((octets) => packetsPerSecond(world, ['-c', RECEIVER], octets, seconds)))
    await offer(world.relay)
    const ends = ['-c', RELAY, '-p', String(NEAR_PORT), '--cport', String(SENDER_PORT)]
    relayed.push(await both((octets) => packetsPerSecond(world, ends, octets, seconds)))
    await withdraw(world.relay)
  }
  server.kill()
  const mid = (rates: readonly Rates[], size: keyof Rates): number => median(rates.map((one) => one[size]))
  const ratioOf = (size: keyof Rates): number =>
    median(relayed.map((one, i) => one[size] / (plain[i]?.[size] ?? Number.NaN)))
  const mbit = (pps: number): number => round((pps * (LARGE + HEADERS) * 8) / 1e6, 0)
  return {
    pps: Math.round(mid(relayed, 'small')),
    plainPps: Math.round(mid(plain, 'small')),
    mbit: mbit(mid(relayed, 'large')),
    plainMbit: mbit(mid(plain, 'large')),
    smallRatio: round(ratioOf('small'), 3),
    largeRatio: round(ratioOf('large'), 3),
    ratio: round(Math.min(ratioOf('small'), ratioOf('large')), 3),
  }
}

async function connect({ sender, relay, receiver }: World): Promise<void> {
  await wire(sender, SENDER, relay, 'near', RELAY)
  await wire(receiver, RECEIVER, relay, 'far', '10.2.0.1')
  await relay.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
  await relay.exec('nft', ['-f', '-'], { input: CONTROL })
}

async function wire(end: Netns, address: string, relay: Netns, device: string, router: string): Promise<void> {
  await end.exec('ip', `link add wan type veth peer name ${device} netns ${relay.name}`.split(' '))
  for (const [ns, name, own] of [
    [end, 'wan', address],
    [relay, device, router],
  ] as const) {
    await ns.exec('ip', ['address', 'add', `${own}/24`, 'dev', name])
    await ns.exec('ip', ['link', 'set', name, 'up'])
  }
  await end.exec('ip', ['route', 'add', 'default', 'via', router])
}

/** The relay as a gateway sets it up for one pair. */
async function offer(relay: Netns): Promise<void> {
  const [near, far] = [`${SENDER}:${SENDER_PORT}`, `${RECEIVER}:${IPERF_PORT}`].map((text) => parseAddressPort(text))
  if (near === undefined || far === undefined) throw new Error('no ends')
  const statements = planRelayTable({
    address: parseAddress(RELAY),
    ports: { first: RELAY_PORT, last: RELAY_LAST_PORT },
    mostPairs: PAIRS_OF_RELAY,
    paths: [
      { from: near, port: NEAR_PORT, to: far, leaves: FAR_PORT, member: 1, number: 1 },
      { from: far, port: FAR_PORT, to: near, leaves: NEAR_PORT, member: 2, number: 2 },
    ],
    openPorts: [NEAR_PORT, FAR_PORT],
    known: [
      { at: near, port: NEAR_PORT },
      { at: far, port: FAR_PORT },
    ],
    bytesPerSecond: NO_LIMIT,
    memberBytesPerSecond: NO_LIMIT,
  })
  await relay.exec('nft', ['-f', '-'], { input: formatNft(statements, 'ip') })
}

async function withdraw(relay: Netns): Promise<void> {
  await relay.exec('nft', ['-f', '-'], { input: `delete table ip ${NFT_TABLE_RELAY}\n` })
}

async function both(measured: (octets: number) => Promise<number>): Promise<Rates> {
  return { large: await measured(LARGE), small: await measured(SMALL) }
}

/** How many packets a second get to the receiver's device. */
async function packetsPerSecond(
  { sender, receiver }: World,
  ends: readonly string[],
  octets: number,
  seconds: number,
): Promise<number> {
  const args = [...ends, '-u', '-b', '0', '-l', String(octets), '-t', String(seconds)]
  // iperf3 takes one client at a time, and says so for a moment after the one before.
  for (let left = 10; ; left -= 1) {
    const before = await received(receiver)
    const { code, stdout, stderr } = await sender.tryExec('iperf3', args, { timeoutMs: (seconds + 20) * 1000 })
    if (code === 0) return ((await received(receiver)) - before) / seconds
    if (left === 0) throw new Error(`iperf3: ${stdout.slice(-300)} ${stderr}`)
    await sleep(200)
  }
}

async function received(receiver: Netns): Promise<number> {
  return Number(await receiver.exec('cat', ['/sys/class/net/wan/statistics/rx_packets']))
}

await main()
