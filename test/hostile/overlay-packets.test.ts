/** Forged packets to the overlay of a node, and to the node itself. */
import t, { type Test } from 'tap'
import { parseCounters } from '../../kernel/nft/nft-text.ts'
import { nodeDropCounter } from '../../routeagent/world/drop-counts.ts'
import { here } from '../routeagent/support/datapath.ts'
import { countArrivals } from '../gateway/support/arrivals.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, inPrivateNetns, withNetns } from '../support/netns.ts'
import { attack } from './support/attack.ts'
import { type Datagram, type InnerPacket, TCP, knockAt, sendDatagrams, vxlanFrame } from './support/raw-packets.ts'
import {
  BRIDGE,
  BRIDGE6,
  FAR,
  FAR6,
  GATEWAY,
  HOST_PORT,
  NODE_PORT,
  POD,
  POD6,
  ROME,
  ROME6,
  STRANGER,
  WORKER,
  type Worker,
  buildWorker,
} from './support/worker.ts'

const PORT = 4810

inPrivateNetns(t, import.meta.url, () =>
  withNetns((pod) =>
    withNetns(async (far) => {
      const worker = await buildWorker(t, pod, far)
      const arrived = await arrivals(pod)
      await fromPods(worker, arrived)
      await fromTheUnderlay(worker, arrived)
      await toTheNode(worker)
    }),
  ),
)

/** Counts the attack datagrams that have reached the pod until now, over both families. */
async function arrivals(ns: Netns): Promise<() => Promise<number>> {
  const four = await countArrivals(ns, 'ip', { attack: 'udp dport 9999' })
  const six = await countArrivals(ns, 'ip6', { attack: 'udp dport 9999' })
  return async () => (await four()).concat(await six()).reduce((sum, one) => sum + one, 0)
}

const OUTER = [BRIDGE, WORKER]
const INNER4 = { from: ROME, to: POD }
const INNER6 = { from: ROME6, to: POD6 }

async function fromPods({ pod, far }: Worker, arrived: () => Promise<number>): Promise<void> {
  await attack('overlay-from-own-pod', (t) =>
    nothingArrives(t, arrived, () =>
      sendDatagrams(
        pod,
        OUTER.map((to) => ({ to, port: PORT, hex: vxlanFrame(WORKER, INNER4) })),
      ),
    ),
  )
  await attack('overlay-from-own-pod-ipv6-inside', (t) =>
    nothingArrives(t, arrived, () =>
      sendDatagrams(
        pod,
        OUTER.map((to) => ({ to, port: PORT, hex: vxlanFrame(WORKER, INNER6) })),
      ),
    ),
  )
  await attack('overlay-from-pod-as-node', (t) =>
    nothingArrives(t, arrived, () =>
      sendDatagrams(
        pod,
        OUTER.map((to) => ({ from: GATEWAY, to, port: PORT, hex: vxlanFrame(WORKER, INNER4) })),
      ),
    ),
  )
  await attack('overlay-to-another-node', async (t) => {
    // The inner MAC address that vxlanFrame() writes tells these frames from the node's own probes.
    const frame = `ip saddr { ${WORKER}, ${POD} } udp dport ${PORT} @th,176,48 0x020000000009`
    const seen = await countArrivals(far, 'ip', { overlay: frame })
    // The gateway also answers the node's probes with ICMP errors, and the kernel's rate limit would soon suppress
    // them.
    await far.exec('sysctl', ['-qw', 'net.ipv4.icmp_ratelimit=0'])
    await sendDatagrams(pod, [{ to: GATEWAY, port: PORT, hex: vxlanFrame(GATEWAY, { from: ROME, to: '10.42.0.5' }) }])
    await sendDatagrams(pod, [{ to: GATEWAY, port: 4811, hex: '00' }])
    t.equal(await knockAt(pod, 'udp', GATEWAY, 4811), 'ECONNREFUSED', 'other ports of that node are reached')
    t.strictSame(await seen(), [0], 'nothing for the overlay leaves in the name of the node')
  })
}

async function fromTheUnderlay({ far }: Worker, arrived: () => Promise<number>): Promise<void> {
  await attack('overlay-from-stranger', (t) =>
    nothingArrives(t, arrived, () => sendDatagrams(far, [outer(INNER4, STRANGER), outer(INNER6, STRANGER)])),
  )
  await attack('overlay-inner-source', async (t) => {
    const before = await arrived()
    const sources = ['192.168.7.50', '10.42.0.9', '198.51.100.7', BRIDGE, '246.0.2.0']
    const sources6 = ['fd00:10:42::9', '2001:db8::7', BRIDGE6]
    await sendDatagrams(far, [
      ...sources.map((from) => outer({ from, to: POD }, GATEWAY)),
      ...sources6.map((from) => outer({ from, to: POD6 }, GATEWAY)),
    ])
    await sendDatagrams(far, [outer({ from: FAR, to: POD }, GATEWAY), outer({ from: FAR6, to: POD6 }, GATEWAY)])
    await eventually(async () => (await arrived()) - before >= 2, { say: 'what may come has come' })
    t.equal((await arrived()) - before, 2, 'and nothing else')
  })
  await attack('overlay-inner-destination', async (t) => {
    const seen = await countArrivals(far, 'ip', { inner: 'udp dport 9998' })
    const here4 = ['192.168.7.50', STRANGER, WORKER, BRIDGE]
    const datagrams = here4.map((to) => outer({ from: FAR, to, port: 9998 }, GATEWAY))
    const input = await dropCounter(t, 'udp dport 9998')
    await sendDatagrams(far, datagrams)
    t.equal(await knockAt(far, 'udp', WORKER, HOST_PORT), 'connected', 'the node network itself is not our business')
    t.strictSame([await seen(), await input()], [[0], 0], 'nothing went on to the node network or into the node')
  })
}

/** Counts the packets that the node accepts after every other table. */
async function dropCounter(t: Test, match: string): Promise<() => Promise<number>> {
  await here('nft', 'add table ip taken')
  t.teardown(() => here('nft', 'delete table ip taken'))
  await here('nft', 'add chain ip taken in { type filter hook input priority 400; }')
  await here('nft', `add rule ip taken in ${match} counter`)
  return async () => Number(/packets (\d+)/.exec(await here('nft', 'list table ip taken'))?.[1])
}

function outer(inner: InnerPacket, from: string): Datagram {
  return { from, to: WORKER, port: PORT, hex: vxlanFrame(WORKER, inner) }
}

async function nothingArrives(t: Test, arrived: () => Promise<number>, act: () => Promise<void>): Promise<void> {
  const before = await arrived()
  await act()
  // Once this ping is answered, the kernel has handled everything that was sent before it.
  await here('ping', '-c', '2', '-i', '0.2', '-W', '2', POD)
  t.equal(await arrived(), before, 'nothing comes in at the pod')
}

async function toTheNode({ far, pod }: Worker): Promise<void> {
  await attack('host-tcp-over-overlay', (t) => hostPorts(t, { far, pod }, 'tcp'))
  await attack('host-udp-over-overlay', (t) => hostPorts(t, { far, pod }, 'udp'))
  await attack('host-tcp-strays-over-overlay', async (t) => {
    await strays(t, far, { family: 'ip', from: FAR, to: BRIDGE })
    await strays(t, far, { family: 'ip6', from: FAR6, to: BRIDGE6 })
  })
  await attack('node-port-over-overlay', async (t) => {
    t.equal(await knockAt(far, 'tcp', POD, 8080), 'connected', 'the pod itself is reached')
    t.equal(await knockAt(far, 'tcp', POD6, 8080), 'connected', 'by IPv6 too')
    for (const address of [BRIDGE, BRIDGE6]) {
      t.equal(await knockAt(far, 'tcp', address, NODE_PORT), 'ECONNREFUSED', `${address} leads nowhere`)
    }
    t.equal(await knockAt(far, 'tcp', WORKER, NODE_PORT), 'connected', 'from the node network the port is open')
  })
}

async function hostPorts(t: Test, { far, pod }: Pick<Worker, 'far' | 'pod'>, protocol: 'tcp' | 'udp'): Promise<void> {
  for (const address of [BRIDGE, BRIDGE6]) {
    t.equal(await knockAt(pod, protocol, address, HOST_PORT), 'connected', `own pods reach ${address}`)
    t.equal(await knockAt(far, protocol, address, HOST_PORT), 'ECONNREFUSED', `pods of paris do not reach ${address}`)
    t.match(await pings(far, address), '1 received', `${address} answers echo`)
  }
}

interface Way {
  readonly family: 'ip' | 'ip6'
  readonly from: string
  readonly to: string
}

/** A segment of no connection must not end one, and a segment that opens one is refused at once. */
async function strays(t: Test, far: Netns, { family, from, to }: Way): Promise<void> {
  const segment = (flags: number): Datagram => outer({ from, to, port: HOST_PORT, tcp: flags }, GATEWAY)
  const resets = await countArrivals(far, family, { resets: `tcp sport ${HOST_PORT} tcp flags & rst == rst` })
  const before = await refusedPackets(family)
  await sendDatagrams(far, [TCP.rst, TCP.rst | TCP.ack, TCP.ack, TCP.syn | TCP.ack].map(segment))
  await eventually(async () => (await refusedPackets(family)) - before >= 4, { say: 'they have come' })
  t.strictSame(await resets(), [0], `${to} answers neither resets nor what it knows no connection of with a reset`)
  await sendDatagrams(far, [segment(TCP.syn)])
  await eventually(async () => (await resets())[0] === 1, { say: 'the first packet of a connection is reset' })
  t.equal((await refusedPackets(family)) - before, 5, 'each packet is counted once')
}

async function refusedPackets(family: string): Promise<number> {
  const counters = parseCounters(await here('nft', 'list', 'counters', 'table', family, 'sealane_node'))
  return counters.get(nodeDropCounter('host-service')) ?? NaN
}
