/**
 * Ways past the access rules for a member that sends any packet it likes: frames that a gateway node would hand on
 * unchecked arrive at a worker. Each must be dropped and counted by its reason, and an allowed caller must not notice.
 */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { parseCounters } from '../../kernel/nft/nft-text.ts'
import { type NodeDropReason, nodeDropCounter } from '../../routeagent/world/drop-counts.ts'
import { inPod } from '../gateway/support/pod-programs.ts'
import { Calls } from '../netns/support/calls.ts'
import { here } from '../routeagent/support/datapath.ts'
import { ownSlice } from '../routeagent/support/own-slice.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { inPrivateNetns, withNetns } from '../support/netns.ts'
import { exportObject } from '../support/objects/service-objects.ts'
import {
  type AccessWorker,
  BRIDGE,
  DRAINED,
  FTP,
  GATEWAYS,
  LATE,
  OSLO,
  OSLO6,
  OTHER,
  OTHER6,
  OWN_ELSEWHERE,
  PARIS,
  PORTS,
  SIP,
  WEB,
  WEB6,
  WORKER,
  buildAccessWorker,
} from './support/access-worker.ts'
import { attack } from './support/attack.ts'
import { FLAG, MARK_TTL, PROTOCOL, about, extension, icmp, icmp6, packet, tcp, udp } from './support/ip-packets.ts'
import { vxlanFrameOf } from './support/raw-packets.ts'

inPrivateNetns(t, import.meta.url, () => {
  t.setTimeout(240_000 * SLOWNESS)
  return withNetns((web) =>
    withNetns((other) =>
      withNetns(async (far) => {
        const worker = await buildAccessWorker(t, { web, other, far })
        const targets = [`${WEB} ${PORTS.exported}`, `${WEB6} ${PORTS.exported}`]
        const caller = await Calls.begin(t, { from: far, own: [PARIS, 'fd00:20:42::5'], targets })
        const scene: Scene = { worker, caller, targets }
        await countPassed()
        for (const way of WAYS) await attack(way.id, (t) => refused(t, scene, way))
        await gateways(scene)
        await failover(scene)
        await errors(scene)
        await portsReused(scene)
        await helpers(scene)
        await media(scene)
        await withdrawn(scene)
        await drained(scene)
      }),
    ),
  )
})

interface Scene {
  readonly worker: AccessWorker
  /** It calls the exported port all the time. */
  readonly caller: Calls
  readonly targets: readonly string[]
}

interface Way {
  readonly id: string
  readonly packets: readonly Buffer[]
  /** The counter that takes each of them. Undefined: the kernel itself discards them, before any rule. */
  readonly reason: NodeDropReason | undefined
  /** How many packets the kernel makes of them. Absent: as many. */
  readonly count?: number
}

const SOURCE = 4242
const { exported, closed } = PORTS

/** A datagram to the exported port, in the name of `from`. */
const claiming = (from: string): Buffer =>
  packet({ from, to: WEB, protocol: PROTOCOL.udp, payload: udp({ from, to: WEB, source: SOURCE, port: exported }) })

const datagram = (to: string, port: number, from = to.includes(':') ? OSLO6 : OSLO): Buffer =>
  packet({ from, to, protocol: PROTOCOL.udp, payload: udp({ from, to, source: 53, port }) })

const segment = (flags: number, to = OTHER, port: number = closed): Buffer => {
  const from = to.includes(':') ? OSLO6 : OSLO
  return packet({ from, to, protocol: PROTOCOL.tcp, payload: tcp({ from, to, source: 443, port }, flags) })
}

const of = (protocol: number, payload: Buffer, to = WEB): Buffer =>
  packet({ from: to.includes(':') ? OSLO6 : OSLO, to, protocol, payload })

/** An inner packet that would reach the closed port if somebody unpacked it. */
const INNER = datagram(OTHER, closed)
const INNER6 = datagram(OTHER6, closed)
/** What no pod here has sent. */
const INVENTED = packet({
  from: WEB,
  to: OSLO,
  protocol: PROTOCOL.udp,
  payload: udp({ from: WEB, to: OSLO, source: 1, port: 2 }),
})
const ECHO_REPLY = Buffer.from([0, 7, 0, 1])

/** The parts of a packet, cut at these offsets. */
function parts(to: string, protocol: number, payload: Buffer, cuts: readonly number[], id: number): Buffer[] {
  const from = to.includes(':') ? OSLO6 : OSLO
  return [0, ...cuts].map((offset, i) => {
    const end = cuts[i] ?? payload.length
    const part = { offset, more: end < payload.length, id }
    return packet({ from, to, protocol, payload: payload.subarray(offset, end), part })
  })
}

const SYN = tcp({ from: OSLO, to: OTHER, source: 443, port: closed }, FLAG.syn)
const SYN_OPEN = tcp({ from: OSLO, to: WEB, source: 443, port: exported }, FLAG.syn)
const SYN_CLOSED = tcp({ from: OSLO, to: WEB, source: 443, port: closed }, FLAG.syn)
const LONG6 = udp({ from: OSLO6, to: OTHER6, source: 53, port: closed }, Buffer.alloc(64))
const SYN6 = tcp({ from: OSLO6, to: OTHER6, source: 443, port: closed }, FLAG.syn)
/** RFC 5095 forbids it: the next address after WEB6. */
const ROUTING = Buffer.concat([Buffer.from([0, 1, 0, 0, 0, 0]), OTHER6_BYTES()])

function OTHER6_BYTES(): Buffer {
  return packet({ from: OSLO6, to: OTHER6, protocol: PROTOCOL.none, payload: Buffer.alloc(0) }).subarray(24, 40)
}

const gre = (inner: Buffer): Buffer => Buffer.concat([Buffer.from([0, 0, 0x08, 0]), inner])

const WAYS: readonly Way[] = [
  ...(
    [
      ['access-source-own-pod', OTHER],
      ['access-source-own-pod-elsewhere', OWN_ELSEWHERE],
      ['access-source-unspecified', '0.0.0.0'],
      ['access-source-loopback', '127.0.0.1'],
      ['access-source-broadcast', '255.255.255.255'],
      ['access-source-multicast', '224.0.0.1'],
      ['access-source-lane', '246.0.2.0'],
      ['access-source-clusterset-ip', '245.0.0.7'],
      ['access-source-no-member', '198.51.100.7'],
    ] as const
  ).map(([id, from]): Way => ({
    id,
    packets: [claiming(from)],
    reason: 'access-not-offered',
  })),
  { id: 'access-source-node', packets: [claiming('192.168.7.1')], reason: 'overlay-inner' },
  {
    id: 'access-not-offered',
    packets: [datagram(WEB, PORTS.offered), datagram(WEB6, PORTS.offered)],
    reason: 'access-not-offered',
  },
  {
    id: 'access-other-port',
    packets: [segment(FLAG.syn), segment(FLAG.syn, WEB), datagram(WEB, 53), segment(FLAG.syn, WEB6)],
    reason: 'access-not-exported',
  },
  {
    id: 'access-node-among-pods',
    packets: [segment(FLAG.syn, BRIDGE, 10250), segment(FLAG.syn, BRIDGE, exported), datagram(BRIDGE, 4810)],
    reason: 'access-node',
  },
  {
    id: 'access-node-itself',
    packets: [segment(FLAG.syn, WORKER, 10250), datagram(WORKER, exported), datagram(WORKER, 4810)],
    reason: undefined,
  },
  {
    id: 'access-no-pod-there',
    packets: ['169.254.169.254', '169.254.0.1', '224.0.0.1', '10.42.1.255', '255.255.255.255', '10.43.0.1', '127.0.0.1']
      .map((to) => datagram(to, exported))
      .concat(datagram('ff02::1', exported), datagram('fe80::1', exported), datagram('::1', exported)),
    reason: undefined,
  },
  { id: 'access-answer-syn-ack', packets: [segment(FLAG.syn | FLAG.ack)], reason: 'access-no-connection' },
  {
    id: 'access-answer-reset',
    packets: [segment(FLAG.rst), segment(FLAG.rst | FLAG.ack), segment(FLAG.rst, OTHER6)],
    reason: 'access-no-connection',
  },
  {
    id: 'access-answer-fin',
    packets: [segment(FLAG.fin), segment(FLAG.fin | FLAG.ack)],
    reason: 'access-no-connection',
  },
  {
    id: 'access-answer-ack',
    packets: [segment(FLAG.ack), segment(FLAG.ack | FLAG.push)],
    reason: 'access-not-exported',
  },
  {
    id: 'access-absurd-flags',
    packets: [segment(0), segment(0x3f), segment(FLAG.syn | FLAG.fin), segment(FLAG.syn | FLAG.rst)],
    reason: 'access-no-connection',
  },
  {
    id: 'access-answer-udp',
    packets: [datagram(OTHER, 33333), datagram(OTHER6, 33333), datagram(WEB, 33333)],
    reason: 'access-not-exported',
  },
  {
    id: 'access-echo-reply',
    packets: [of(PROTOCOL.icmp, icmp(0, 0, ECHO_REPLY), OTHER), of(PROTOCOL.icmp, icmp(0, 0, ECHO_REPLY))],
    reason: 'access-no-connection',
  },
  {
    id: 'access-echo-to-another',
    packets: [of(PROTOCOL.icmp, icmp(8, 0, ECHO_REPLY), OTHER)],
    reason: 'access-not-exported',
  },
  {
    id: 'access-error-invented',
    packets: [
      of(PROTOCOL.icmp, icmp(3, 3, about(INVENTED))),
      of(PROTOCOL.icmp, icmp(3, 4, about(INVENTED))),
      of(PROTOCOL.icmp, icmp(11, 0, about(INVENTED))),
      of(PROTOCOL.icmp, icmp(12, 0, about(INVENTED))),
      of(PROTOCOL.icmp, icmp(5, 1, about(INVENTED))),
    ],
    reason: 'access-no-connection',
  },
  {
    id: 'access-icmp-questions',
    packets: [
      of(PROTOCOL.icmp, icmp(13, 0, Buffer.alloc(16))),
      of(PROTOCOL.icmp, icmp(17, 0, Buffer.alloc(8))),
      of(PROTOCOL.icmp, icmp(15, 0, Buffer.alloc(4))),
    ],
    reason: 'access-not-exported',
  },
  {
    id: 'access-router-messages',
    packets: [133, 134, 135, 136].map((type) => {
      const ends = { from: OSLO6, to: WEB6 }
      return packet({
        ...ends,
        protocol: PROTOCOL.icmp6,
        payload: icmp6(type, 0, Buffer.concat([Buffer.alloc(4), OTHER6_BYTES(), OTHER6_BYTES()]), ends),
      })
    }),
    reason: 'access-not-exported',
  },
  { id: 'access-ipip', packets: [of(PROTOCOL.ipip, INNER), of(PROTOCOL.ipv6, INNER6)], reason: 'access-not-exported' },
  { id: 'access-gre', packets: [of(PROTOCOL.gre, gre(INNER))], reason: 'access-not-exported' },
  {
    id: 'access-vxlan-inside',
    packets: [4810, 4789, 8472].map((port) =>
      of(
        PROTOCOL.udp,
        udp({ from: OSLO, to: WEB, source: 4810, port }, Buffer.from(vxlanFrameOf('192.168.7.11', INNER), 'hex')),
      ),
    ),
    reason: 'access-not-exported',
  },
  {
    id: 'access-other-protocols',
    packets: [
      // Each has the exported port where UDP has it.
      ...[PROTOCOL.esp, PROTOCOL.udpLite, PROTOCOL.experiment].map((protocol) =>
        of(protocol, udp({ from: OSLO, to: WEB, source: SOURCE, port: exported })),
      ),
    ],
    reason: 'access-not-exported',
  },
  {
    id: 'access-source-route',
    packets: [
      packet({
        ...{ from: OSLO, to: BRIDGE, protocol: PROTOCOL.udp },
        payload: udp({ from: OSLO, to: BRIDGE, source: SOURCE, port: exported }),
        options: Buffer.from([0x83, 7, 4, ...OTHER.split('.').map(Number), 0]),
      }),
    ],
    reason: 'access-node',
  },
  // Connection tracking puts parts together before the rules look at them.
  {
    id: 'access-parts-tiny',
    packets: parts(OTHER, PROTOCOL.tcp, SYN, [8, 16], 71),
    reason: 'access-not-exported',
    count: 1,
  },
  {
    id: 'access-parts-overlap',
    packets: [
      ...parts(WEB, PROTOCOL.tcp, SYN_OPEN, [8], 72).slice(0, 1),
      packet({
        ...{ from: OSLO, to: WEB, protocol: PROTOCOL.tcp },
        payload: SYN_CLOSED,
        part: { offset: 0, more: false, id: 72 },
      }),
    ],
    reason: undefined,
  },
  {
    id: 'access-parts-without-head',
    packets: [
      ...parts(WEB, PROTOCOL.tcp, SYN_OPEN, [8], 73).slice(1),
      ...parts(WEB6, PROTOCOL.udp, LONG6, [16], 73).slice(1),
    ],
    reason: undefined,
  },
  {
    id: 'access-parts-ipv6',
    packets: [...parts(OTHER6, PROTOCOL.udp, LONG6, [16, 40], 74), ...parts(OTHER6, PROTOCOL.udp, LONG6, [], 75)],
    reason: 'access-not-exported',
    count: 2,
  },
  {
    id: 'access-extension-headers',
    packets: [
      of(PROTOCOL.hopByHop, extension(PROTOCOL.tcp, SYN6), OTHER6),
      of(PROTOCOL.destination, extension(PROTOCOL.tcp, SYN6), OTHER6),
      of(PROTOCOL.destination, extension(PROTOCOL.destination, extension(PROTOCOL.tcp, SYN6)), OTHER6),
    ],
    reason: 'access-not-exported',
  },
  {
    id: 'access-routing-header',
    packets: [of(PROTOCOL.routing, extension(PROTOCOL.tcp, SYN6, ROUTING), OTHER6)],
    reason: 'access-not-exported',
  },
]

/** Counts what passes the node after all tables: marked packets, and the control that follows them. */
async function countPassed(): Promise<void> {
  for (const [family, field] of [
    ['ip', 'ip ttl'],
    ['ip6', 'ip6 hoplimit'],
  ] as const) {
    await here(
      'nft',
      `table ${family} passed {
        counter marked { }
        counter control { }
        chain on { type filter hook forward priority 500; ${field} ${MARK_TTL - 1} counter name marked; ${field} ${CONTROL_TTL - 1} counter name control; }
        chain in { type filter hook input priority 500; ${field} ${MARK_TTL} counter name marked; }
      }`,
    )
  }
}

const CONTROL_TTL = 150

interface Counts {
  readonly marked: number
  readonly control: number
  readonly reasons: Readonly<Record<string, number>>
}

async function counts(): Promise<Counts> {
  let [marked, control] = [0, 0]
  const reasons: Record<string, number> = {}
  for (const family of ['ip', 'ip6']) {
    const own = parseCounters(await here('nft', 'list', 'counters', 'table', family, 'passed'))
    marked += own.get('marked') ?? NaN
    control += own.get('control') ?? NaN
    for (const [name, count] of parseCounters(await here('nft', 'list', 'counters', 'table', family, 'sealane_node')))
      reasons[name] = (reasons[name] ?? 0) + count
  }
  return { marked, control, reasons }
}

/** The calls of an honest member, which follow every attack, so that its silence proves something. */
const CONTROLS = [WEB, WEB6].map((to) => {
  const from = to === WEB ? OSLO : OSLO6
  const payload = udp({ from, to, source: 6000, port: exported })
  return packet({ from, to, protocol: PROTOCOL.udp, payload, ttl: CONTROL_TTL })
})

async function refused(t: Test, scene: Scene, { packets, reason, count = packets.length }: Way): Promise<void> {
  const { worker, caller, targets } = scene
  const before = await counts()
  const had = targets.map((one) => caller.answered(one))
  await worker.send([...packets, ...CONTROLS])
  const name = reason === undefined ? undefined : nodeDropCounter(reason)
  const grown = (now: Counts): number =>
    name === undefined ? 0 : (now.reasons[name] ?? 0) - (before.reasons[name] ?? 0)
  let now = before
  await eventually(
    async () => {
      now = await counts()
      return now.control - before.control >= CONTROLS.length
    },
    { say: 'what is exported is reached after the attack' },
  )
  t.equal(now.marked, before.marked, 'nothing passes the node')
  if (name !== undefined) t.equal(grown(now), count, `each counts as ${name}: ${difference(before, now)}`)
  await eventually(() => targets.every((one, i) => caller.answered(one) > (had[i] ?? 0) + 10), {
    say: 'an allowed caller goes on',
  })
}

function difference(before: Counts, now: Counts): string {
  const grown = Object.entries(now.reasons).filter(([name, count]) => count !== before.reasons[name])
  return grown.map(([name, count]) => `${name} +${count - (before.reasons[name] ?? 0)}`).join(', ')
}

/** The same by each of eight gateway nodes, of which one drains: no gateway vouches for a packet. */
async function gateways(scene: Scene): Promise<void> {
  await attack('access-eight-gateways', async (t) => {
    for (const from of GATEWAYS) {
      const worker = { ...scene.worker, send: (packets: readonly Buffer[]) => scene.worker.send(packets, from) }
      const packets = [segment(FLAG.syn), segment(FLAG.ack), datagram(OTHER6, closed)]
      await refused(t, { ...scene, worker }, { id: from, packets, reason: 'access-not-exported' })
    }
  })
}

const through = (scene: Scene, from: string): Scene => {
  return { ...scene, worker: { ...scene.worker, send: (packets) => scene.worker.send(packets, from) } }
}

/** What another member sends to a port from which a pod has called paris, as if it were the answer. */
async function forgedAnswers({ worker }: Scene, port: number): Promise<Buffer[]> {
  await inWeb(worker, port, PARIS)
  const ends = { from: OSLO, to: WEB }
  return [
    packet({ ...ends, protocol: PROTOCOL.udp, payload: udp({ ...ends, source: 7777, port }) }),
    segment(FLAG.ack, WEB),
  ]
}

/** The answer of oslo to a datagram of a pod. */
async function trueAnswer({ worker }: Scene, port: number): Promise<Buffer> {
  await inWeb(worker, port, OSLO)
  const ends = { from: OSLO, to: WEB }
  return packet({ ...ends, protocol: PROTOCOL.udp, payload: udp({ ...ends, source: 7777, port }) })
}

async function passes(worker: AccessWorker, one: Buffer, say: string): Promise<void> {
  const before = await counts()
  await worker.send([one])
  await eventually(async () => (await counts()).marked === before.marked + 1, { say })
}

/** The gateway of open flows fails, and their packets come by another one. */
async function failover(scene: Scene): Promise<void> {
  await attack('access-failover', async (t) => {
    const { far } = scene.worker
    const [, other = ''] = GATEWAYS
    const program = `const socket = require('node:net').connect(
      { host: '${WEB}', port: ${FTP.port}, localAddress: '${PARIS}' })
      socket.on('data', (data) => console.log(data.toString().trim()))
      process.stdin.on('data', (data) => socket.write(data))`
    const held = spawn('ip', ['netns', 'exec', far.name, process.execPath, '-e', program])
    t.teardown(() => held.kill('SIGKILL'))
    const lines = createInterface({ input: held.stdout })[Symbol.asyncIterator]()
    t.match((await lines.next()).value, /^220/, 'a connection')
    const answer = await trueAnswer(scene, 5557)
    await passes(scene.worker, answer, 'an answer by the first gateway')
    await far.exec('nft', [
      `table ip failover {
        chain out { type filter hook output priority 0; udp dport 4810 counter ip saddr set ${other}; }
      }`,
    ])
    const { worker } = through(scene, other)
    held.stdin.write('PASV\r\n')
    t.match((await lines.next()).value, /^227/, 'the connection goes on')
    t.notMatch(await far.exec('nft', ['list', 'table', 'ip', 'failover']), /packets 0 /, 'by the other gateway')
    await passes(worker, answer, 'and so does a flow of a pod')
    const syn = [segment(FLAG.syn | FLAG.ack, WEB), segment(FLAG.rst, WEB)]
    await refused(t, { ...scene, worker }, { id: '', packets: syn, reason: 'access-no-connection' })
    const packets = await forgedAnswers(scene, 5559)
    await refused(t, { ...scene, worker }, { id: '', packets, reason: 'access-not-exported' })
    await far.exec('nft', ['delete', 'table', 'ip', 'failover'])
  })
}

/** By a gateway that drains open flows go on, and no more; by one that has gone nothing comes. */
async function drained(scene: Scene): Promise<void> {
  await attack('access-drained-gateway', async (t) => {
    const { site } = scene.worker
    const draining = through(scene, DRAINED.address)
    await passes(draining.worker, await trueAnswer(scene, 5560), 'a flow goes on')
    const packets = [segment(FLAG.syn), datagram(OTHER6, closed), ...(await forgedAnswers(scene, 5561))]
    await refused(t, draining, { id: '', packets, reason: 'access-not-exported' })
    await refused(t, draining, { id: '', packets: [claiming(OTHER)], reason: 'access-not-offered' })
    site.api.drop('Node', DRAINED.node)
    const nodes = (): Promise<string> => here('nft', 'list', 'set', 'ip', 'sealane_node', 'overlay-nodes')
    await eventually(async () => !(await nodes()).includes(DRAINED.address), { say: 'the node has gone' })
    const before = await counts()
    await draining.worker.send([...CONTROLS, await trueAnswer(scene, 5562)])
    const stranger = nodeDropCounter('overlay-stranger')
    await eventually(async () => (await counts()).reasons[stranger] === (before.reasons[stranger] ?? 0) + 3, {
      say: 'all are dropped before they are unpacked',
    })
    const { marked, control } = await counts()
    t.same([marked, control], [before.marked, before.control], 'nothing passes the node')
    await scene.caller.stop()
  })
}

/** ICMP errors about flows that exist. */
async function errors(scene: Scene): Promise<void> {
  const { worker } = scene
  const flow = async (to: string, source: number): Promise<Buffer> => {
    await inWeb(worker, source, to)
    const payload = udp({ from: WEB, to, source, port: 7777 })
    return icmp(3, 3, about(packet({ from: WEB, to, protocol: PROTOCOL.udp, payload })))
  }
  await attack('access-error-about-others', async (t) => {
    // The kernel limits its errors, and the controls cause many.
    await worker.far.exec('sysctl', ['-qw', 'net.ipv4.icmp_ratelimit=0'])
    const packets = [of(PROTOCOL.icmp, await flow(OWN_ELSEWHERE, 5555))]
    await refused(t, scene, { id: '', packets, reason: 'access-no-connection' })
    const before = await counts()
    await worker.send([of(PROTOCOL.icmp, await flow(OSLO, 5556))])
    await eventually(async () => (await counts()).marked === before.marked + 1, { say: 'one about its own flow comes' })
    const own = await inPod(worker.web, 'closed', PARIS)
    t.equal(own, 'ECONNREFUSED', 'and an error that the kernel of another member sends')
  })
}

/** Sends one datagram from this port of the pod to port 7777. */
async function inWeb({ web }: AccessWorker, source: number, to: string): Promise<void> {
  const program = `const socket = require('node:dgram').createSocket('udp4')
    socket.bind(${source}, () => socket.send('x', 7777, '${to}', () => socket.close()))`
  await web.exec(process.execPath, ['-e', program])
}

async function portsReused(scene: Scene): Promise<void> {
  await attack('access-time-wait', async (t) => {
    const { other } = scene.worker
    const program = `const socket = require('node:net').connect(
      { host: '${PARIS}', port: ${exported}, localPort: 40000 }, () => socket.end())
      socket.on('close', () => process.exit()).resume(); setTimeout(() => socket.destroy(), 300)`
    await other.exec(process.execPath, ['-e', program])
    const ends = { from: PARIS, to: OTHER }
    const syn = tcp({ ...ends, source: exported, port: 40000 }, FLAG.syn)
    const packets = [packet({ ...ends, protocol: PROTOCOL.tcp, payload: syn })]
    await refused(t, scene, { id: '', packets, reason: 'access-not-exported' })
  })
}

/** Another program of the node lets the kernel follow FTP, and the caller opens a port by it. */
async function helpers(scene: Scene): Promise<void> {
  await attack('access-helper', async (t) => {
    await here(
      'nft',
      `table ip helpers {
        ct helper ftp { type "ftp" protocol tcp; }
        chain pre { type filter hook prerouting priority 0; tcp dport ${FTP.port} ct helper set "ftp"; }
      }`,
    )
    const program = `const socket = require('node:net').connect(
      { host: '${WEB}', port: ${FTP.port}, localAddress: '${PARIS}' })
      socket.on('data', (data) => data.toString().startsWith('220') ? socket.write('PASV\\r\\n') : console.log('named'))`
    const control = scene.worker.far.spawn(process.execPath, ['-e', program])
    await new Promise((resolve) => control.stdout?.once('data', resolve))
    const expected = await here('cat', '/proc/net/nf_conntrack_expect')
    t.match(expected, `dport=${FTP.opens}`, 'the kernel expects the connection')
    const ends = { from: PARIS, to: WEB }
    const syn = tcp({ ...ends, source: 4242, port: FTP.opens }, FLAG.syn)
    const packets = [packet({ ...ends, protocol: PROTOCOL.tcp, payload: syn })]
    await refused(t, scene, { id: '', packets, reason: 'access-not-exported' })
    control.kill()
    await here('nft', 'delete table ip helpers')
  })
}

/** The same with SIP, whose answers name ports for media. */
async function media(scene: Scene): Promise<void> {
  await attack('access-helper-media', async (t) => {
    for (const family of ['ip', 'ip6'])
      t.notMatch(await here('nft', 'list', 'table', family, 'sealane_node'), /ct (helper|expectation)/, 'none is ours')
    await here(
      'nft',
      `table ip helpers {
        ct helper sip { type "sip" protocol udp; }
        chain pre { type filter hook prerouting priority 0; udp dport ${SIP.port} ct helper set "sip"; }
      }`,
    )
    const program = `const socket = require('node:dgram').createSocket('udp4')
      socket.on('message', (data) => { console.log(data.toString().split(' ')[1]); socket.close() })
      const lines = ['INVITE sip:web@${WEB} SIP/2.0', 'Call-ID: 1', 'CSeq: 1 INVITE', '', '']
      socket.bind(5060, '${PARIS}', () => socket.send(lines.join('\\r\\n'), ${SIP.port}, '${WEB}'))`
    t.equal((await scene.worker.far.exec(process.execPath, ['-e', program])).trim(), '200', 'the call is accepted')
    const expected = await here('cat', '/proc/net/nf_conntrack_expect')
    t.match(expected, `dport=${SIP.opens}`, 'the kernel expects its media')
    const ends = { from: PARIS, to: WEB }
    const packets = [SIP.opens, SIP.opens + 1].map((port) =>
      packet({ ...ends, protocol: PROTOCOL.udp, payload: udp({ ...ends, source: 4242, port }) }),
    )
    await refused(t, scene, { id: '', packets, reason: 'access-not-exported' })
    await here('nft', 'delete table ip helpers')
  })
}

async function withdrawn(scene: Scene): Promise<void> {
  const { worker } = scene
  const { api } = worker.site
  const target = `${LATE} ${exported}`
  const access = (): Promise<string> => here('nft', 'list', 'map', 'ip', 'sealane_node', 'access')
  const has = async (wanted: boolean): Promise<void> => {
    const key = `${LATE} . udp . ${exported}`
    await eventually(async () => (await access()).includes(key) === wanted, { say: `${key}: ${wanted}` })
  }
  const answers = async (calls: Calls): Promise<boolean> => {
    const more = async (count: number): Promise<void> => {
      const { sent } = calls
      await eventually(() => calls.sent > sent + count, { say: 'calls go on' })
    }
    await more(100)
    const had = calls.answered(target)
    await more(250)
    return calls.answered(target) > had
  }
  const whileCalling = async (t: Test, body: (calls: Calls) => Promise<void>): Promise<void> => {
    api.put(exportObject({ name: 'late' }))
    await has(true)
    const calls = await Calls.begin(t, { from: worker.far, own: [PARIS], targets: [target] })
    t.equal(await answers(calls), true, 'while it is exported')
    api.drop('ServiceExport', 'late', 'shop')
    await has(false)
    await body(calls)
    await calls.stop()
  }
  await attack('access-withdrawn', (t) =>
    whileCalling(t, async (calls) => {
      t.equal(await answers(calls), false, 'calls that run get no more answers')
      await refused(t, scene, { id: '', packets: [segment(FLAG.ack, LATE, exported)], reason: undefined })
    }),
  )
  await attack('access-namespace-renamed', (t) =>
    whileCalling(t, async (calls) => {
      api.put(exportObject({ name: 'late', namespace: 'store' }))
      t.equal(await answers(calls), false, 'an export of this name elsewhere opens nothing')
      api.put(exportObject({ name: 'late' }))
      await has(true)
      t.equal(await answers(calls), true, 'the export in its own namespace does')
      api.drop('ServiceExport', 'late', 'shop')
      await has(false)
    }),
  )
  await attack('access-endpoints-that-lie', async (t) => {
    const ports = [{ name: 'udp', protocol: 'UDP' as const, port: exported }]
    const lies = [BRIDGE, WORKER, OSLO, '169.254.169.254', '224.0.0.1']
    api.put(exportObject({ name: 'lie' }))
    api.put(ownSlice('lie', lies, ports))
    await eventually(async () => (await access()).includes(`${BRIDGE} . udp`), { say: 'they are planned' })
    await refused(t, scene, { id: '', packets: [datagram(BRIDGE, exported)], reason: 'access-node' })
    const packets = lies.slice(1).map((to) => datagram(to, exported))
    await refused(t, scene, { id: '', packets, reason: undefined })
    api.drop('ServiceExport', 'lie', 'shop')
  })
}
