/**
 *   client 10.42.1.5 ── cni0 10.42.1.1 [ worker: this namespace ] 192.168.7.11 ══ sealane-vx ══ 192.168.7.1 [ gateway ]
 *                                                                               244.1.0.5 and 244.1.0.6 answer there
 * The real routeagent on the real drivers; the gateway node stands for the far cluster. The worker has a masquerade
 * rule as a CNI makes it.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { join } from 'node:path'
import t from 'tap'
import { MemoryCluster } from '../../cluster/memory/memory-cluster.ts'
import { NftSession } from '../../kernel/nft-session.ts'
import { ProcSysctl } from '../../kernel/proc-sysctl.ts'
import { Rtnetlink } from '../../kernel/rtnetlink.ts'
import { runCommand } from '../../kernel/run-command.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { runRouteAgent } from '../../routeagent/main.ts'
import { CapturingLogger } from '../../runtime/capturing-logger.ts'
import { createMetrics } from '../../runtime/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/status-board.ts'
import { cluster, endpoint, gateway, membership, node, serviceImport, slice } from '../routeagent/support/site.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, inPrivateNetns, withNetns } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const TALKER = join(import.meta.dirname, '..', 'routeagent', 'support', 'talker.ts')
const VIP = '245.0.0.7'

inPrivateNetns(t, import.meta.url, () => {
  t.test('clusterset IPs on a node', { timeout: 90_000 }, (t) =>
    withNetns((client) =>
      withNetns(async (far) => {
        await buildNode(client)
        await buildGateway(far)
        await serving(far.spawn(process.execPath, [TALKER, 'serve', '244.1.0.5:8080', '244.1.0.6:8080']))
        await serving(client.spawn(process.execPath, [TALKER, 'serve', '10.42.1.5:8080']))
        await new ProcSysctl().write('net/ipv4/ip_forward', '0')
        const before = await kernelDump()
        const site = startRouteAgent(temporaryFolder(t))
        await eventually(() => site.status.notReady().length === 0, { say: site.status.notReady().join('; ') })

        const fromPod = (kind: string, count: number, port = 80): Promise<string[]> => call(client, kind, count, port)
        const fromNode = (kind: string, count: number, port = 80): Promise<string[]> => callHere(kind, count, port)
        const settled = async (want: RegExp): Promise<void> => {
          await eventually(async () => want.test((await site.elements()).join(' ')), { say: String(want) })
        }

        await settled(/no-backends: 245.0.0.7/)
        t.strictSame(await fromPod('tcp', 1), ['ECONNREFUSED'], 'no backend: a pod is refused')
        t.strictSame(await fromNode('tcp', 1), ['ECONNREFUSED'], 'no backend: the node is refused')
        t.strictSame(await fromPod('udp', 1), ['ECONNREFUSED'], 'no backend, UDP')
        t.strictSame(await fromNode('udp', 1), ['ECONNREFUSED'], 'no backend, UDP, from the node')
        t.strictSame(await fromPod('tcp', 1, 81), ['EHOSTUNREACH'], 'a port that nobody has')

        site.api.put(slice('web', 'paris', ['244.1.0.5', '244.1.0.6'], PORTS))
        await settled(/slot-1: 245.0.0.7/)
        const answers = await fromPod('tcp', 400)
        t.strictSame(
          new Set(answers),
          new Set(['244.1.0.5 10.42.1.5', '244.1.0.6 10.42.1.5']),
          'both answer and see the pod itself, in spite of the masquerade rule',
        )
        const share = answers.filter((a) => a.startsWith('244.1.0.5')).length
        // 200 expected, standard deviation 10: five of them is one run in two million.
        t.ok(Math.abs(share - 200) <= 50, `${share} of 400 connections went to the first of two`)
        t.strictSame(
          new Set((await fromPod('udp', 12)).map((a) => a.split(' ')[1])),
          new Set(['10.42.1.5']),
          'UDP with 3,000 bytes',
        )
        t.strictSame(
          new Set((await fromNode('tcp', 30)).map((a) => a.split(' ')[1])),
          new Set(['10.42.1.1']),
          'the node calls with its pod network address',
        )
        t.equal(new Set((await fromNode('tcp', 30)).map((a) => a.split(' ')[0])).size, 2, 'and is balanced too')
        t.strictSame(
          new Set((await fromNode('udp', 5)).map((a) => a.split(' ')[1])),
          new Set(['10.42.1.1']),
          'UDP from the node',
        )

        const held = holdConnection(client)
        const first = await held.ask()
        const [mine, other] = first.startsWith('244.1.0.5') ? ['244.1.0.5', '244.1.0.6'] : ['244.1.0.6', '244.1.0.5']
        t.equal(await held.ask(), first, 'a connection stays where it is')
        const sockets = await far.exec('ss', ['-tinH', 'state', 'established'])
        const segments = [...sockets.matchAll(/ mss:(\d+)/g)].map((match) => Number(match[1]))
        t.ok(
          segments.length > 0 && Math.max(...segments) <= 1360,
          `segments of ${segments.join()} bytes fit a lane of 1400`,
        )
        site.api.put(slice('web', 'paris', [other], PORTS))
        await eventually(async () => !(await site.elements()).join(' ').includes(mine), { say: 'the backend is gone' })
        t.equal(await held.ask(), first, 'also when its backend takes no new ones')
        t.strictSame(
          new Set(await fromPod('tcp', 20)),
          new Set([`${other} 10.42.1.5`]),
          'new connections go to the one that is left',
        )

        site.api.put(slice('web', 'paris', [], PORTS))
        site.api.put(slice('web', 'milano', ['10.42.1.5'], PORTS))
        await settled(/hairpin: 10.42.1.5/)
        t.strictSame(await fromPod('tcp', 1), ['10.42.1.5 10.42.1.1'], 'a pod that is balanced to itself gets through')
        t.strictSame(await fromNode('tcp', 1), ['10.42.1.5 10.42.1.1'], 'from the node to a pod of its own')

        site.api.put(serviceImport('web', VIP, { ports: IMPORT_PORTS, sessionAffinity: 'ClientIP' }))
        site.api.put(slice('web', 'milano', [], PORTS))
        site.api.put(slice('web', 'paris', ['244.1.0.5', '244.1.0.6'], PORTS))
        await settled(/slot-63: 245.0.0.7/)
        t.equal(new Set(await fromPod('tcp', 30)).size, 1, 'with ClientIP affinity a client sticks')

        await breakAndRepair(site)
        t.equal(new Set(await fromPod('tcp', 5)).size, 1, 'a table that others broke works again')

        site.api.put(membership('leaving'))
        await site.ended
        t.equal(await kernelDump(), before, 'leaving leaves nothing behind')
      }),
    ),
  )
})

const PORTS = [
  { name: 'http', protocol: 'TCP', port: 8080 },
  { name: 'udp', protocol: 'UDP', port: 8080 },
] as const
const IMPORT_PORTS = [
  { name: 'http', protocol: 'TCP', port: 80 },
  { name: 'udp', protocol: 'UDP', port: 80 },
] as const

async function here(command: string, ...args: string[]): Promise<string> {
  const result = await runCommand(command, args)
  if (result.code !== 0) throw new Error(`${command} ${args.join(' ')}: ${result.stderr}`)
  return result.stdout
}

const ip = (text: string): Promise<string> => here('ip', ...text.split(' '))

async function buildNode(client: Netns): Promise<void> {
  // Its own addresses come and go at their own pace, and the dumps are compared.
  await new ProcSysctl().write('net/ipv6/conf/all/disable_ipv6', '1')
  await ip('link add cni0 type bridge')
  await ip('address add 10.42.1.1/24 dev cni0')
  await ip('link set cni0 up')
  await ip(`link add pod0 type veth peer name eth0 netns ${client.name}`)
  await ip('link set pod0 master cni0 up')
  // As CNIs do, so that a pod may be balanced to itself.
  await here('bridge', 'link', 'set', 'dev', 'pod0', 'hairpin', 'on')
  await client.exec('ip', ['address', 'add', '10.42.1.5/24', 'dev', 'eth0'])
  await client.exec('ip', ['link', 'set', 'eth0', 'up'])
  await client.exec('ip', ['route', 'add', 'default', 'via', '10.42.1.1'])
  await here('nft', 'add table ip cni')
  await here('nft', 'add chain ip cni post { type nat hook postrouting priority 100; }')
  await here('nft', 'add rule ip cni post ip saddr 10.42.0.0/16 ip daddr != 10.42.0.0/16 masquerade')
}

// What the routeagent of the gateway node would make, by hand.
async function buildGateway(far: Netns): Promise<void> {
  await ip(`link add eth0 type veth peer name eth0 netns ${far.name}`)
  await ip('address add 192.168.7.11/24 dev eth0')
  await ip('link set eth0 up')
  const lines = [
    'address add 192.168.7.1/24 dev eth0',
    'link set eth0 up',
    'link add sealane-vx address 0a:5e:c0:a8:07:01 mtu 1450 type vxlan id 7300 local 192.168.7.1 dstport 4810 nolearning',
    'link set sealane-vx up',
    'neighbour replace 192.168.7.11 lladdr 0a:5e:c0:a8:07:0b dev sealane-vx nud permanent',
    'route add 10.42.1.0/24 via 192.168.7.11 dev sealane-vx onlink',
    'address add 244.1.0.5/32 dev lo',
    'address add 244.1.0.6/32 dev lo',
  ]
  for (const line of lines) await far.exec('ip', line.split(' '))
  await far.exec('bridge', 'fdb replace 0a:5e:c0:a8:07:0b dev sealane-vx dst 192.168.7.11 self permanent'.split(' '))
}

interface Site {
  readonly api: MemoryCluster
  readonly status: StatusBoard
  readonly ended: Promise<void>
  readonly clock: LateClock
  readonly logger: CapturingLogger
  /** `slot-0: 245.0.0.7 . tcp . 80 244.1.0.5 . 8080`, of all maps that there are. */
  elements(): Promise<string[]>
}

class LateClock extends SystemClock {
  lateMs = 0
  override monotonic(): number {
    return super.monotonic() + this.lateMs
  }
}

function startRouteAgent(stateDir: string): Site {
  const api = new MemoryCluster()
  api.put(membership())
  api.put(node('gw', '192.168.7.1', '10.42.0.0/24'))
  api.put(node('worker', '192.168.7.11', '10.42.1.0/24'))
  api.put(cluster('milano', 1, '244.0.0.0/16'))
  api.put(cluster('paris', 2, '244.1.0.0/16'))
  // Neighbours in the interval set, which nft must give back as they were sent.
  api.put(cluster('rome', 3, '244.2.0.0/16'))
  api.put(cluster('tokyo', 4, '244.3.0.0/16'))
  api.put(endpoint('milano', 'gw'))
  api.put(gateway('gw', { paris: 'up' }, 1400))
  api.put(serviceImport('web', VIP, { ports: IMPORT_PORTS }))
  const nft = new NftSession()
  const routes = new Rtnetlink()
  const status = new StatusBoard()
  const clock = new LateClock()
  const logger = new CapturingLogger()
  const stopping = new AbortController()
  const deps = {
    cluster: api,
    nft,
    routes,
    sysctl: new ProcSysctl(),
    clock,
    logger,
    metrics: createMetrics('routeagent'),
    status,
  }
  const ended = runRouteAgent(deps, { node: 'worker', stateDir }, stopping.signal).finally(() => {
    nft.close()
    routes.close()
  })
  t.teardown(async () => {
    stopping.abort()
    await ended
    if (!t.passing()) for (const line of logger.lines) t.comment(JSON.stringify(line))
  })
  return {
    api,
    status,
    ended,
    clock,
    logger,
    async elements() {
      const found: string[] = []
      for (const map of ['no-backends', 'hairpin', 'slot-0', 'slot-1', 'slot-63']) {
        const elements = await nft.elements('sealane_node', map).catch(() => [])
        found.push(...elements.map((e) => `${map}: ${e.key} ${e.value ?? ''}`))
      }
      return found
    },
  }
}

/** Half a minute passes and something pokes the loop, first with nothing wrong, then twice with something broken. */
async function breakAndRepair(site: Site): Promise<void> {
  const warnings = (): string[] => site.logger.messages('warn').filter((m) => m.startsWith('someone'))
  const check = async (turn: number): Promise<void> => {
    site.clock.lateMs += 31_000
    site.api.put(serviceImport('other', `245.0.1.${turn}`))
    await eventually(async () => (await site.elements()).join(' ').includes(`no-backends: 245.0.1.${turn} `))
    await eventually(() => warnings().length === turn, { say: `${turn} warnings` })
  }
  await check(0)
  await here('nft', 'flush', 'chain', 'ip', 'sealane_node', 'balance-forwarded')
  await check(1)
  await here('nft', 'delete', 'element', 'ip', 'sealane_node', 'slot-7', `{ ${VIP} . tcp . 80 }`)
  await here('nft', 'add', 'element', 'ip', 'sealane_node', 'remote', '{ 192.0.2.0/24 }')
  await check(2)
  const all = ['someone changed our table; replacing it', 'someone changed elements of our table; putting them right']
  await eventually(() => warnings().join() === all.join())
  await check(2)
}

async function kernelDump(): Promise<string> {
  const parts = await Promise.all([
    here('nft', 'list', 'ruleset'),
    ip('-o link'),
    ip('address'),
    ip('rule'),
    ip('route show table all'),
    here('sysctl', 'net.ipv4.ip_forward'),
  ])
  // How far a device has come up is not of interest.
  return parts.join('\n').replaceAll(/ (state [A-Z]+|valid_lft \S+|preferred_lft \S+)/g, '')
}

async function call(ns: Netns, kind: string, count: number, port: number): Promise<string[]> {
  return JSON.parse(
    await ns.exec(process.execPath, [TALKER, 'call', kind, VIP, String(port), String(count)]),
  ) as string[]
}

async function callHere(kind: string, count: number, port: number): Promise<string[]> {
  return JSON.parse(await here(process.execPath, TALKER, 'call', kind, VIP, String(port), String(count))) as string[]
}

function serving(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => child.stdout?.once('data', () => resolve()))
}

function holdConnection(ns: Netns): { ask(): Promise<string> } {
  const child = spawn('ip', ['netns', 'exec', ns.name, process.execPath, TALKER, 'hold', VIP, '80'])
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  return {
    async ask() {
      child.stdin.write('hello\n')
      const line = await lines.next()
      return String(line.value)
    },
  }
}
