/**
 * `npm run bench:probes -- [--json] [--links N] [--seconds S]`: the processor share of the probes of a gateway with N
 * links (default 800: 8 lanes and 100 clusters), over real sockets in two namespaces: without traffic, with traffic on
 * a tenth of the links, and on all. Both ends probe, as gateways do. The peer in the same run is bare sockets that send
 * and answer as many datagrams of that size, which is the cost of the packets alone.
 */
import { spawn } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { PROBE_BYTES } from '../kernel/probing/probe-packet.ts'
import { openUdpProbeSocket } from '../kernel/probing/probe-socket.ts'
import { type ProbedPeer, Prober } from '../kernel/probing/prober.ts'
import { GATEWAY_DEFAULTS } from '../gateway/world/config.ts'
import { LANE_PROBE_PORT } from '../model/kernel-ids.ts'
import { SystemClock } from '../reconcile/clock.ts'
import { type Netns, netnsMissing, withNetns } from '../test/support/netns.ts'
import { progress, round } from './figures.ts'

const ASKING = '10.98.0.1'
/** New links are probed often for ten seconds. */
const SETTLE_MS = 12_000

const farAddress = (i: number): string => `10.99.${i >> 8}.${i & 0xff}`

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean' },
      links: { type: 'string', default: '800' },
      seconds: { type: 'string', default: '20' },
    },
  })
  const [links, seconds] = [Number(values.links), Number(values.seconds)]
  if (!(Number.isInteger(links) && links > 0 && links <= 4000)) {
    throw new Error(`--links ${JSON.stringify(values.links)}: expected a whole number from 1 to 4000`)
  }
  if (!(seconds > 0)) throw new Error(`--seconds ${JSON.stringify(values.seconds)}: expected a number above 0`)
  const missing = netnsMissing()
  if (missing !== undefined) throw new Error(missing)
  await withNetns((near) =>
    withNetns(async (far) => {
      await wire(near, far)
      const shares: Record<string, number> = {}
      for (const busy of [0, 0.1, 1]) {
        const share = await measure(near, far, ['probe', links, seconds, busy])
        shares[`busy${busy * 100}Percent`] = round(share.share)
        shares[`bare${busy * 100}Percent`] = round(
          (await measure(near, far, ['bare', links, seconds, share.perSecond])).share,
        )
      }
      progress({ links, ...shares }, `${links} links, percent of a core: ${JSON.stringify(shares)}`)
    }),
  )
}

async function wire(near: Netns, far: Netns): Promise<void> {
  await near.exec('ip', `link add eth0 type veth peer name eth0 netns ${far.name}`.split(' '))
  for (const [ns, address] of [
    [near, ASKING],
    [far, '10.98.0.2'],
  ] as const) {
    await ns.exec('ip', `address add ${address}/24 dev eth0`.split(' '))
    await ns.exec('ip', 'link set eth0 up'.split(' '))
  }
  await near.exec('ip', 'route add 10.99.0.0/16 via 10.98.0.2'.split(' '))
  // All of these addresses are the far namespace's own.
  await far.exec('ip', 'route add local 10.99.0.0/16 dev lo'.split(' '))
}

interface Share {
  /** The percentage of a core. */
  readonly share: number
  readonly perSecond: number
}

async function measure(near: Netns, far: Netns, args: readonly (string | number)[]): Promise<Share> {
  const answering = run(far, [args[0] === 'bare' ? 'echo' : 'answer', ...args.slice(1)])
  await answering.line
  const asking = run(near, args)
  const share = JSON.parse(await asking.line) as Share
  for (const { child } of [answering, asking]) child.kill('SIGKILL')
  return share
}

function run(ns: Netns, args: readonly (string | number)[]) {
  const command = ['netns', 'exec', ns.name, process.execPath, import.meta.filename, ...args.map(String)]
  const child = spawn('ip', command, { stdio: ['ignore', 'pipe', 'inherit'] })
  const line = new Promise<string>((resolve) => createInterface({ input: child.stdout }).once('line', resolve))
  return { child, line }
}

/** Simulates far ends, each of which also probes the near one, since both ends of a link do. */
function answer(links: number, seconds: number, busy: number): void {
  for (let i = 0; i < links; i += 1) {
    const address = farAddress(i)
    void start(
      address,
      [{ key: 'near', number: 0, address: ASKING }],
      () => i < links * Math.min(busy, 1),
      () => undefined,
    )
  }
  setTimeout(() => console.log('answering'), 500)
  setTimeout(() => process.exit(), (seconds + 60) * 1000)
}

function start(
  address: string,
  peers: readonly ProbedPeer[],
  isBusy: (peer: ProbedPeer) => boolean,
  count: () => void,
) {
  const { probeIntervalMs, idleProbeIntervalMs, quickProbeMs, ...limits } = GATEWAY_DEFAULTS
  const prober = new Prober(
    {
      clock: new SystemClock(),
      logger: { warn: console.error, error: console.error },
      openSocket: openUdpProbeSocket,
      count,
      onTransition: () => undefined,
      onSuspect: () => undefined,
      isBusy,
    },
    {
      ...limits,
      name: 'bench',
      number: 0,
      address,
      port: LANE_PROBE_PORT,
      intervals: { busyMs: probeIntervalMs, idleMs: idleProbeIntervalMs, quickMs: quickProbeMs },
    },
  )
  prober.setPeers(peers)
  return prober.run(new AbortController().signal)
}

async function probe(links: number, seconds: number, busy: number): Promise<void> {
  const peers = Array.from({ length: links }, (_, i) => ({ key: String(i), number: 0, address: farAddress(i) }))
  let counted = 0
  void start(
    ASKING,
    peers,
    ({ key }) => Number(key) < links * busy,
    () => (counted += 1),
  )
  await sleep(SETTLE_MS)
  counted = 0
  const share = await percentOfCore(seconds)
  // Each probe that is sent is answered, and the far ends send as many probes as this end.
  console.log(JSON.stringify({ share, perSecond: counted / seconds }))
}

async function percentOfCore(seconds: number): Promise<number> {
  const before = process.cpuUsage()
  await sleep(seconds * 1000)
  const { user, system } = process.cpuUsage(before)
  return (user + system) / (seconds * 10_000)
}

/** Sends as many datagrams in both directions, without the logic of probes. */
async function bare(links: number, seconds: number, perSecond: number): Promise<void> {
  const socket = createSocket('udp4')
  socket.on('message', () => undefined)
  await new Promise<void>((resolve) => socket.bind({ address: ASKING, port: LANE_PROBE_PORT + 1 }, resolve))
  const bytes = Buffer.alloc(PROBE_BYTES)
  const startMs = performance.now()
  let sent = 0
  setInterval(() => {
    for (; sent < ((performance.now() - startMs) * perSecond) / 1000; sent += 1)
      socket.send(bytes, LANE_PROBE_PORT + 1, '10.98.0.2', () => undefined)
  }, 10)
  await sleep(1000)
  console.log(JSON.stringify({ share: await percentOfCore(seconds), perSecond: sent / links }))
}

/** Returns each datagram to the bare sockets. */
function echo(): void {
  const socket = createSocket('udp4')
  socket.on('message', (bytes, from) => socket.send(bytes, from.port, from.address))
  socket.bind({ address: '10.98.0.2', port: LANE_PROBE_PORT + 1 }, () => console.log('answering'))
}

const [mode = '', ...numbers] = process.argv.slice(2)
const [first = 0, second = 0, third = 0] = numbers.map(Number)
if (mode === 'answer') answer(first, second, third)
else if (mode === 'echo') echo()
else if (mode === 'probe') await probe(first, second, third)
else if (mode === 'bare') await bare(first, second, third)
else await main()
