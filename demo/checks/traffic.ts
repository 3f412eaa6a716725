/** What the path carries: every kind of way through it, UDP and large packets, and nothing in the clear. */
import { DB, type Check, type World, fetchPage, globalAddress, globalAddresses } from './world.ts'

interface Way {
  readonly name: string
  readonly from: string
  readonly to: readonly [site: 'milano' | 'paris', pod: string]
}

const WAYS: readonly Way[] = [
  { name: 'worker to worker', from: 'tokyo-client-1', to: ['milano', 'db-0'] },
  { name: 'worker to gateway', from: 'tokyo-client-1', to: ['milano', 'db-1'] },
  { name: 'gateway to worker', from: 'tokyo-client-0', to: ['milano', 'db-0'] },
  { name: 'gateway to gateway', from: 'tokyo-client-0', to: ['paris', 'db-0'] },
  { name: 'from the gateway node itself', from: 'tokyo-gw', to: ['paris', 'db-0'] },
  { name: 'from the worker node itself', from: 'tokyo-w1', to: ['milano', 'db-0'] },
]

const LARGE = '3000'

async function ping(world: World, from: string, address: string): Promise<string> {
  const args = ['-c', '3', '-i', '0.2', '-W', '2', '-s', LARGE, address]
  const done = await world.lab.exec(from, 'ping', args)
  if (done.status !== 0) throw new Error(`${from}: ping ${address}: ${done.stdout.trim()} ${done.stderr.trim()}`)
  return /= [\d.]+\/([\d.]+)\//.exec(done.stdout)?.[1] ?? '?'
}

interface UdpReport {
  readonly end?: { readonly sum?: { readonly lost_packets: number; readonly packets: number } }
}

/** Sends 50 datagrams of 3,000 bytes at a rate that no machine drops for want of speed; gives how many there were. */
async function udp(world: World, from: string, address: string): Promise<number> {
  const args = ['-c', address, '-u', '-l', LARGE, '-b', '5M', '-k', '50', '-J']
  const done = await world.lab.exec(from, 'iperf3', args)
  const sum = (JSON.parse(done.stdout) as UdpReport).end?.sum
  if (done.status !== 0 || sum === undefined)
    throw new Error(`${from}: iperf3 ${address}: ${done.stdout.slice(0, 300)}`)
  if (sum.packets === 0 || sum.lost_packets > 0) throw new Error(`${from}: lost ${sum.lost_packets} of ${sum.packets}`)
  return sum.packets
}

const everyWay: Check = {
  name: 'TCP, UDP and 3,000 bytes pass on every path',
  async run(world) {
    let datagrams = 0
    let rtt = '?'
    const addressOf = await globalAddresses(world)
    for (const way of WAYS) {
      const address = addressOf(way.to[0], way.to[1])
      const page = await fetchPage(world, way.from, `http://${address}:5432/`)
      if (page !== way.to.join('/')) throw new Error(`${way.name}: answered by ${page}`)
      rtt = await ping(world, way.from, address)
      datagrams += await udp(world, way.from, address)
    }
    return `${WAYS.map((way) => way.name).join(', ')}; ${datagrams} datagrams of 3,000 bytes, none lost; ping ${rtt} ms`
  },
}

/** A node is a client too: whatever its own resolver is, the clusterset IP must work from it. */
const nodeUsesClustersetIp: Check = {
  name: 'a node itself calls the clusterset IP',
  async run(world) {
    const imports = await world.sites.show<{ metadata: { name: string }; spec: { ips?: string[] } }>(
      'tokyo',
      'services',
    )
    const ip = imports.find((service) => service.metadata.name === 'web')?.spec.ips?.[0]
    if (ip === undefined) throw new Error('tokyo has no clusterset IP for web')
    const pages = [
      await fetchPage(world, 'tokyo-w1', `http://${ip}/`),
      await fetchPage(world, 'tokyo-gw', `http://${ip}/`),
    ]
    return `${ip}: ${pages.join(', ')}`
  },
}

/** A refusal must find its way back through the translation of both ends: the error carries the inner header. */
const errorsComeBack: Check = {
  name: 'an ICMP error from the far pod reaches the caller',
  async run(world) {
    const address = await globalAddress(world, 'milano', 'db-0')
    const done = await world.lab.exec('tokyo-client-1', 'dig', ['+tries=1', '+time=2', '-p', '9', `@${address}`, DB])
    if (!`${done.stdout}${done.stderr}`.includes('connection refused')) {
      throw new Error(`a closed UDP port said: ${done.stdout.trim()} ${done.stderr.trim()}`)
    }
    return `UDP to a closed port of ${address}: connection refused`
  },
}

/** Pods answer other sites at exported ports alone. */
const closedUntilExported: Check = {
  name: 'nothing answers but what is exported',
  async run(world) {
    const address = await globalAddress(world, 'milano', 'db-0')
    const closed = [`${address}:22`, `${address}:8080`, `${address}:10250`]
    for (const at of closed) {
      const done = await world.lab.exec('tokyo-client-1', 'curl', ['-s', '-m', '1', `http://${at}/`])
      // 28 is the time limit of curl: a drop, not a refusal.
      if (done.status !== 28) throw new Error(`${at}: curl ended with ${done.status}: ${done.stdout.slice(0, 100)}`)
    }
    return `${closed.join(', ')}: no answer; ${await fetchPage(world, 'tokyo-client-1', `http://${address}:5432/`)} at 5432`
  },
}

/** Packets per counter on the internet. */
async function internetCounters(world: World): Promise<Readonly<Record<string, number>>> {
  const text = await world.lab.must('internet', 'nft', ['-j', 'list', 'counters', 'table', 'ip', 'watch'])
  const { nftables } = JSON.parse(text) as { nftables: { counter?: { name: string; packets: number } }[] }
  return Object.fromEntries(nftables.flatMap(({ counter }) => (counter ? [[counter.name, counter.packets]] : [])))
}

const onlyTunnels: Check = {
  name: 'the internet sees tunnels only',
  async run(world) {
    const counts = await internetCounters(world)
    const { tunnels = 0, broker = 0, inner = -1, other = -1 } = counts
    if (tunnels === 0) throw new Error('not one tunnel packet: the counter is not where the traffic is')
    if (inner !== 0 || other !== 0) throw new Error(`${inner} packets of inner addresses, ${other} of anything else`)
    return `${tunnels} tunnel packets, ${broker} to and from the broker, 0 of inner addresses, 0 of anything else`
  },
}

export const trafficChecks: readonly Check[] = [
  everyWay,
  nodeUsesClustersetIp,
  errorsComeBack,
  closedUntilExported,
  onlyTunnels,
]
