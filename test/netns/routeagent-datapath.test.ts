/** IPv4 with packets: the worker and the gateway node of test/routeagent/support/datapath.ts. */
import { createSocket } from 'node:dgram'
import t, { type Test } from 'tap'
import { elementStatements } from '../../kernel/nft/apply-table.ts'
import { NftSession } from '../../kernel/nft/nft-session.ts'
import type { NftElement } from '../../kernel/nft/nft-transaction.ts'
import { ProcSysctl } from '../../kernel/tuning/proc-sysctl.ts'
import { NFT_TABLE_NODE } from '../../model/kernel-ids.ts'
import type { KubeObject, ServiceImport } from '../../model/objects.ts'
import { elementChanges, layout } from '../../routeagent/balance/balance-elements.ts'
import { BalancePlanner } from '../../routeagent/balance/plan-balancing.ts'
import { type TablePlan, planTable } from '../../routeagent/balance/plan-node-table.ts'
import { addressFamily } from '../../routeagent/world/address-family.ts'
import { breakAndRepair } from '../routeagent/support/break-and-repair.ts'
import {
  type Site,
  TALKER,
  buildBridge,
  buildGatewayNode,
  here,
  ip,
  kernelDump,
  mountDevices,
  serving,
  balancedTo,
  settled,
  startRouteAgent,
} from '../routeagent/support/datapath.ts'
import {
  NFT_WORLD,
  SERVICE_CONTEXT,
  cluster,
  endpoint,
  gateway,
  membership,
  node,
  serviceImport,
  slice,
} from '../routeagent/support/site.ts'
import {
  type Callers,
  type HeldConnection,
  IMPORT_PORTS,
  PORTS,
  VIP,
  backends,
  callersOf,
  holdConnection,
  refusals,
  segmentsOf,
  sources,
} from '../routeagent/support/vip-calls.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, inPrivateNetns, withNetns } from '../support/netns.ts'

const CLIENT = '10.42.1.5'
const NODE = '10.42.1.1'
const FAR = ['244.1.0.5', '244.1.0.6'] as const

inPrivateNetns(t, import.meta.url, () => {
  t.test('clusterset IPs on a node', { timeout: 120_000 }, (t) =>
    withNetns((client) =>
      withNetns(async (far) => {
        await build(client, far)
        const before = await kernelDump()
        const site = startRouteAgent(t, objects(), { devices: await mountDevices(t) })
        await eventually(() => site.status.notReady().length === 0, { say: site.status.notReady().join('; ') })
        const calls = callersOf(VIP, client)
        await settled(site, /no-backends: 245.0.0.7/)
        await refusals(t, calls)
        await balanced(t, site, calls)
        await connectionStays(t, site, { ...calls, far, held: holdConnection(client, VIP) })
        await toItself(t, site, calls)
        await keepsToItsPlace(t, site, calls)
        await leavesOut(t, site, { calls, client, far })
        await sticks(t, site, calls)
        const probe = (number: number): string => `245.0.1.${number}`
        await breakAndRepair(t, site, { nft: 'ip', vip: VIP, probe, stranger: '192.0.2.0/24' })
        t.equal(new Set(await calls.fromPod('tcp', 5)).size, 1, 'a table that others broke works again')
        site.api.put(membership('leaving'))
        await site.ended
        t.equal(await kernelDump(), before, 'leaving leaves nothing behind')
        t.equal(await hairpinOf('pod0'), 'off', 'and the port is as it was')
      }),
    ),
  )

  t.test('shares, many endpoints and affinity, by counting connections', { timeout: 60_000 }, async (t) => {
    const table = await countedTable(t)
    await sharesAreKept(t, table)
    await allAreUsed(t, table)
    await clientsAreRemembered(t, table)
  })
})

async function build(client: Netns, far: Netns): Promise<void> {
  // The kernel's own IPv6 addresses come and go at arbitrary times, and the dumps are compared.
  await new ProcSysctl().write('net/ipv6/conf/all/disable_ipv6', '1')
  await buildBridge([client], { hairpin: 'off' })
  await buildGatewayNode(far)
  await serving(far.spawn(process.execPath, [TALKER, 'serve', ...FAR.map((address) => `${address}:8080`)]))
  await serving(client.spawn(process.execPath, [TALKER, 'serve', `${CLIENT}:8080`]))
  await new ProcSysctl().write('net/ipv4/ip_forward', '0')
}

function objects(): KubeObject[] {
  return [
    membership(),
    node('gw', '192.168.7.1', '10.42.0.0/24'),
    node('worker', '192.168.7.11', '10.42.1.0/24', 'a'),
    cluster('milano', 1, '244.0.0.0/16'),
    cluster('paris', 2, '244.1.0.0/16'),
    // These are neighbours in the interval set, which nft must return as they were sent.
    cluster('rome', 3, '244.2.0.0/16'),
    cluster('tokyo', 4, '244.3.0.0/16'),
    endpoint('milano', 'gw'),
    gateway('gw', { paris: 'up' }, 1400),
    serviceImport('web', VIP, { ports: IMPORT_PORTS }),
  ]
}

async function balanced(t: Test, site: Site, { fromPod, fromNode }: Callers): Promise<void> {
  site.api.put(slice('web', 'paris', FAR, PORTS))
  await settled(site, /slot-1: 245.0.0.7/)
  const answers = await fromPod('tcp', 400)
  const seen = new Set(FAR.map((address) => `${address} ${CLIENT}`))
  t.strictSame(new Set(answers), seen, 'both answer and see the pod itself, in spite of the masquerade rule')
  const share = answers.filter((answer) => answer.startsWith(FAR[0])).length
  // 200 are expected, with a standard deviation of 10: a deviation of five of them happens once in two million runs.
  t.ok(Math.abs(share - 200) <= 50, `${share} of 400 connections went to the first of two`)
  t.strictSame(sources(await fromPod('udp', 12)), new Set([CLIENT]), 'UDP with 3,000 bytes')
  t.strictSame(sources(await fromNode('tcp', 30)), new Set([NODE]), 'the node calls with its pod network address')
  t.equal(backends(await fromNode('tcp', 30)).size, 2, 'and is balanced too')
  t.strictSame(sources(await fromNode('udp', 5)), new Set([NODE]), 'UDP from the node')
}

interface Held extends Callers {
  readonly far: Netns
  readonly held: HeldConnection
}

async function connectionStays(t: Test, site: Site, { fromPod, far, held }: Held): Promise<void> {
  const first = await held.ask()
  const [mine, other] = first.startsWith(FAR[0]) ? FAR : ([FAR[1], FAR[0]] as const)
  t.equal(await held.ask(), first, 'a connection stays where it is')
  const segments = await segmentsOf(far)
  t.ok(segments.length > 0 && Math.max(...segments) <= 1360, `segments of ${segments.join()} bytes fit a lane of 1400`)
  site.api.put(slice('web', 'paris', [other], PORTS))
  await eventually(async () => !(await site.elements()).join(' ').includes(mine), { say: 'the backend is gone' })
  t.equal(await held.ask(), first, 'also when its backend takes no new ones')
  t.strictSame(
    new Set(await fromPod('tcp', 20)),
    new Set([`${other} ${CLIENT}`]),
    'new connections go to the one that is left',
  )
  held.end()
}

async function toItself(t: Test, site: Site, { fromPod, fromNode }: Callers): Promise<void> {
  site.api.put(slice('web', 'paris', [], PORTS))
  site.api.put(slice('web', 'milano', [CLIENT], PORTS))
  await settled(site, /hairpin: 10.42.1.5/)
  // Where netfilter sees bridges, the bridge itself hands the packets back to the port.
  if ((await new ProcSysctl().read('net/bridge/bridge-nf-call-iptables')) === '1')
    await eventually(async () => (await hairpinOf('pod0')) === 'on', { say: 'the port is in hairpin mode' })
  const answer = [`${CLIENT} ${NODE}`]
  t.strictSame(await fromPod('tcp', 1), answer, 'a pod that is balanced to itself gets through')
  t.strictSame(await fromNode('tcp', 1), answer, 'from the node to a pod of its own')
}

async function hairpinOf(port: string): Promise<string | undefined> {
  return /hairpin (on|off)/.exec(await here('bridge', '-d', 'link', 'show', 'dev', port))?.[1]
}

/** Checks internalTrafficPolicy and trafficDistribution with packets. */
async function keepsToItsPlace(t: Test, site: Site, { fromPod, fromNode }: Callers): Promise<void> {
  const serves = async (want: string[], spec: Partial<ServiceImport['spec']>): Promise<void> => {
    site.api.put(serviceImport('web', VIP, { ports: IMPORT_PORTS, ...spec }))
    await balancedTo(site, VIP, want)
    t.strictSame(backends(await fromPod('tcp', 20)), new Set(want), JSON.stringify(spec))
  }
  const local = { internalTrafficPolicy: 'Local' }
  site.api.put(slice('web', 'paris', ['244.1.0.5 on worker in a', '244.1.0.6 in b'], PORTS))
  site.api.put(slice('web', 'milano', ['10.42.1.5 on worker in b'], PORTS))
  await serves(['10.42.1.5'], local)
  site.api.put(slice('web', 'milano', ['10.42.9.9 on other in b'], PORTS))
  await settled(site, /none-here: 245.0.0.7 /)
  const calls = [fromPod('tcp', 1), fromPod('udp', 1), fromNode('tcp', 1)]
  t.strictSame(await Promise.all(calls), [['timeout'], ['timeout'], ['timeout']], 'none on this node: all are dropped')
  const close = { trafficDistribution: 'PreferClose' }
  await serves(['244.1.0.5'], close)
  site.api.put(node('worker', '192.168.7.11', '10.42.1.0/24', 'c'))
  site.api.put(slice('web', 'milano', [], PORTS))
  await serves([...FAR], close)
}

async function sticks(t: Test, site: Site, { fromPod, fromNode }: Callers): Promise<void> {
  site.api.put(serviceImport('web', VIP, { ports: IMPORT_PORTS, sessionAffinity: 'ClientIP' }))
  site.api.put(slice('web', 'milano', [], PORTS))
  site.api.put(slice('web', 'paris', FAR, PORTS))
  await settled(site, /slot-63: 245.0.0.7/)
  for (const kind of ['tcp', 'udp'] as const) {
    const sticky = backends(await fromPod(kind, 20))
    t.ok(sticky.size === 1 && FAR.some((host) => sticky.has(host)), `with ClientIP affinity a client sticks: ${kind}`)
    t.equal(backends(await fromNode(kind, 10)).size, 1, `and the node itself: ${kind}`)
  }
}

/** One of two endpoints fails in several ways. */
async function leavesOut(
  t: Test,
  site: Site,
  { calls, client, far }: { readonly calls: Callers; readonly client: Netns; readonly far: Netns },
): Promise<void> {
  const spec = { passiveHealth: {} }
  const metadata = { name: 'web', namespace: 'shop', uid: 'web-1', creationTimestamp: '2026-11-29T00:00:00Z' }
  site.api.put({ apiVersion: 'sealane.io/v1alpha1', kind: 'TrafficPolicy', metadata, spec })
  site.api.put(serviceImport('web', VIP, { ports: IMPORT_PORTS }))
  site.api.put(slice('web', 'milano', [], PORTS))
  site.api.put(slice('web', 'paris', FAR, PORTS))
  await balancedTo(site, VIP, FAR)
  const rules = (): Promise<string> => here('nft', 'list', 'table', 'ip', NFT_TABLE_NODE)
  await eventually(async () => (await rules()).includes('"refusal"'), { say: 'refusals are logged' })
  const count = async (name: string): Promise<number> =>
    Number(
      new RegExp(`^sealane_routeagent_${name}(?:\\{.*\\})? (\\d+)$`, 'm').exec(await site.metrics.text())?.[1] ?? 0,
    )
  const fails = async (how: string): Promise<void> => {
    await far.exec('nft', ['add table ip failing; flush table ip failing'])
    await far.exec('nft', ['add chain ip failing in { type filter hook input priority 0; }'])
    if (how !== '') await far.exec('nft', [`add rule ip failing in tcp flags syn / syn,ack tcp dport 8080 ${how}`])
  }
  const [live, dead] = FAR

  const held = Array.from({ length: 6 }, () => holdConnection(client, VIP))
  const before = await Promise.all(held.map((one) => one.ask()))
  await fails(`ip daddr ${dead} drop`)
  // Each of these calls begins anew. The program gives up after three seconds.
  const first = await calls.fromPod('tcp', 20)
  t.strictSame(backends(first), new Set([live]), 'each call is answered by the other one within three seconds')
  await balancedTo(site, VIP, [live])
  t.ok((await count('calls_moved_total')) > 0, 'the first call to it was moved')
  t.equal(await count('endpoint_ejections_total'), 1)
  const started = performance.now()
  await calls.fromPod('tcp', 20)
  const ms = Math.round(performance.now() - started)
  t.ok(ms < 1500, `later ones at once: 20 calls and their program take ${ms} ms`)
  t.strictSame(await Promise.all(held.map((one) => one.ask())), before, 'connections go on')
  for (const one of held) one.end()

  await fails('drop')
  t.strictSame(await calls.fromPod('tcp', 1), ['timeout'])
  await balancedTo(site, VIP, [live])
  t.equal(await count('endpoint_ejections_total'), 1, 'the last one stays')

  await fails('')
  site.clock.lateMs += 10_000
  await balancedTo(site, VIP, FAR)
  const answered = async (): Promise<boolean> => {
    await calls.fromPod('tcp', 2)
    return site.logger.messages('info').includes('endpoint answers again')
  }
  await eventually(answered, { say: 'it is back, and answers', deadlineMs: 15_000 })

  await fails(`ip daddr ${dead} reject with tcp reset`)
  const refused = async (): Promise<boolean> => (await calls.fromPod('tcp', 4)).includes('ECONNREFUSED')
  await eventually(refused, { say: 'a call is refused', deadlineMs: 15_000 })
  await balancedTo(site, VIP, [live])
  t.strictSame(backends(await calls.fromPod('tcp', 20)), new Set([live]), 'and no other one is')
  const reasons = site.logger.lines.flatMap(({ fields }) =>
    fields['endpoint'] === `${dead} . 8080` ? [fields.reason] : [],
  )
  t.strictSame(
    reasons.filter((reason) => reason !== undefined),
    ['EndpointDoesNotAnswer', 'EndpointRefuses'],
  )
  await fails('')
  await balancedTo(site, VIP, [live])
  await far.exec('nft', [`add rule ip failing in ip daddr ${dead} udp dport 8080 reject`])
  const udp = async (): Promise<boolean> => (await calls.fromPod('udp', 4)).includes('ECONNREFUSED')
  await eventually(udp, { say: 'a datagram is refused', deadlineMs: 15_000 })
  const gone = async (): Promise<boolean> =>
    !(await site.elements()).some((one) => one.includes(' . udp . ') && one.includes(` ${dead} `))
  await eventually(gone, { say: 'UDP leaves it' })
  t.strictSame(backends(await calls.fromPod('udp', 12)), new Set([live]), 'UDP: the other one answers')
  await fails('')
  site.api.drop('TrafficPolicy', 'web', 'shop')
  await balancedTo(site, VIP, FAR)
}

interface CountedTable {
  /** Replaces the table by what the planner wants. */
  readonly start: (planner: BalancePlanner) => Promise<void>
  /** Sends what has changed since then. */
  readonly apply: (planner: BalancePlanner) => Promise<void>
  readonly nft: NftSession
  /** Begins so many connections from each of these addresses; returns `client backend` of each pair that was seen. */
  readonly flows: (count: number, clients?: readonly string[]) => Promise<string[]>
}

/** Connections of this namespace leave by a device whose other end drops them. A rule behind the table counts where they went. */
async function countedTable(t: Test): Promise<CountedTable> {
  const nft = new NftSession()
  t.teardown(() => nft.close())
  await ip('link add hole0 type veth peer name hole1')
  await ip('link set hole1 up')
  await ip('link set hole0 arp off up')
  await ip('address add 10.42.1.200/24 dev hole0')
  for (let i = 0; i < CLIENTS.length; i++) await ip(`address add ${CLIENTS[i]}/24 dev hole0`)
  for (const range of ['245.0.0.0/16', '244.0.0.0/8']) await ip(`route add ${range} dev hole0`)
  await here('nft', 'add table ip counted')
  await here('nft', 'add set ip counted seen { type ipv4_addr . ipv4_addr; counter; flags dynamic; size 65535; }')
  await here('nft', 'add chain ip counted out { type filter hook postrouting priority 0; }')
  await here('nft', 'add rule ip counted out update @seen { ip saddr . ip daddr }')
  let table: Pick<TablePlan, 'layout' | 'localBackends'> | undefined
  return {
    nft,
    async start(planner) {
      planner.takeChanges()
      const planned = planTable(NFT_WORLD, planner.ports())
      await nft.run(planned.statements)
      table = planned
    },
    async apply(planner) {
      if (table === undefined) throw new Error('not started')
      const { localBackends } = table
      const changes = planner.takeChanges()
      const plans = changes.flatMap(({ after }) => (after === undefined ? [] : [after]))
      const { statements, result } = layout(plans, table.layout, addressFamily(4))
      table = { layout: result, localBackends }
      const elements = [...elementChanges(changes), localBackends.apply(changes)]
      await nft.run([...statements, ...elementStatements(NFT_TABLE_NODE, elements)])
    },
    async flows(count, clients = ['10.42.1.200']) {
      await here('nft', 'flush set ip counted seen')
      for (const client of clients) {
        for (let left = count; left > 0; left -= 250)
          await Promise.all(Array.from({ length: Math.min(left, 250) }, () => datagram(client)))
      }
      const listing = await here('nft', 'list set ip counted seen')
      const seen = listing.matchAll(/([\d.]+) \. ([\d.]+) counter packets (\d+)/g)
      return [...seen].flatMap(([, client, backend, n]) => new Array<string>(Number(n)).fill(`${client} ${backend}`))
    },
  }
}

let nextPort = 10_000

/** One datagram of a socket of its own. */
function datagram(from: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = createSocket('udp4')
    socket.on('error', reject)
    // A port that was used before would belong to a flow that the kernel has translated.
    nextPort += 1
    socket.bind(nextPort, from, () => socket.connect(80, VIP, () => socket.send('x', () => socket.close(resolve))))
  })
}

const CLIENTS = Array.from({ length: 40 }, (_, i) => `10.42.1.${100 + i}`)
const hosts = (cluster: number, count: number): string[] =>
  Array.from({ length: count }, (_, i) => `244.${cluster}.${1 + (i >> 8)}.${i & 255}`)
const UDP_WEB = (spec: Partial<ServiceImport['spec']> = {}): ServiceImport =>
  serviceImport('web', VIP, { ports: IMPORT_PORTS, ...spec })

/** A planner of service `web` with so many endpoints in milano, paris and tokyo. */
function plannerOf(
  endpoints: readonly [number, number, number],
  spec?: Partial<ServiceImport['spec']>,
): BalancePlanner {
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  planner.setImport(UDP_WEB(spec))
  for (const [i, id] of ['milano', 'paris', 'tokyo'].entries())
    planner.setSlice(slice('web', id, hosts(i + 1, endpoints[i] ?? 0), PORTS))
  return planner
}

async function sharesAreKept(t: Test, { start, flows }: CountedTable): Promise<void> {
  const planner = plannerOf([3, 1, 7])
  const weights = new Map([
    ['milano', 100],
    ['paris', 1000],
    ['tokyo', 8900],
  ])
  planner.setTraffic({ of: () => ({ clusterShares: weights }) })
  await start(planner)
  // The deviation of the smallest share is 0.07: more than 0.3 happens once in fifty thousand runs.
  const seen = await flows(20_000)
  t.equal(seen.length, 20_000, 'connections')
  const percent = (cluster: number): number =>
    seen.filter((one) => one.includes(` 244.${cluster}.`)).length / (seen.length / 100)
  const got = [percent(1), percent(2), percent(3)]
  for (const [i, want, most] of [
    [0, 1, 0.3],
    [1, 10, 1],
    [2, 89, 1],
  ] as const)
    t.ok(Math.abs((got[i] ?? 0) - want) <= most, `${got[i]} % of 20,000 connections, ${want} % wanted`)
  const ofTokyo = hosts(3, 7).map((host) => seen.filter((one) => one.endsWith(` ${host}`)).length)
  // Each of seven is drawn 2,543 times, with a standard deviation of 47.
  t.ok(Math.max(...ofTokyo) - Math.min(...ofTokyo) < 470, `within a cluster all alike: ${ofTokyo.join()}`)
  t.comment(`shares: ${got.join(' / ')}`)
}

async function allAreUsed(t: Test, { start, flows, nft }: CountedTable): Promise<void> {
  await start(plannerOf([0, 5000, 0]))
  const slots = await nft.elements(NFT_TABLE_NODE, 'slots')
  t.equal(new Set(slots.filter(({ key }) => key.includes(' . udp . ')).map(({ value }) => value)).size, 5000)
  const seen = new Set(await flows(5000))
  // 5,000 draws of 5,000 find 3,161, with a standard deviation of 22.
  t.ok(seen.size > 3000 && seen.size < 3320, `${seen.size} of 5,000 endpoints were called`)
}

async function clientsAreRemembered(t: Test, { start, apply, flows, nft }: CountedTable): Promise<void> {
  const planner = plannerOf([2, 2, 2], { sessionAffinity: 'ClientIP' })
  const places = async (count = 1): Promise<ReadonlyMap<string, string>> => {
    const seen = await flows(count, CLIENTS)
    t.equal(seen.length, count * CLIENTS.length, 'all connections arrive')
    const pairs = [...new Set(seen)].map((pair) => pair.split(' ') as [string, string])
    t.equal(pairs.length, CLIENTS.length, 'each client goes to one backend')
    return new Map(pairs)
  }
  const weigh = (milano: number, paris: number, tokyo: number): void => {
    const clusterShares = new Map(Object.entries({ milano, paris, tokyo }))
    planner.setTraffic({ of: () => ({ clusterShares }) })
  }
  await start(planner)
  const first = await places(3)
  t.ok(new Set(first.values()).size >= 4, 'clients are spread')
  planner.setSlice(slice('web', 'tokyo', hosts(3, 9), PORTS))
  await apply(planner)
  t.strictSame(await places(), first, 'a scale-up moves none')
  weigh(1000, 1000, 8000)
  await apply(planner)
  t.strictSame(await places(), first, 'a change of weights moves none')
  planner.setSlice(slice('web', 'paris', hosts(2, 1), PORTS))
  await apply(planner)
  const [gone = ''] = hosts(2, 2).slice(1)
  const after = await places(2)
  const others = (places: ReadonlyMap<string, string>): unknown =>
    [...places].filter(([client]) => first.get(client) !== gone).sort()
  t.strictSame(others(after), others(first), 'a backend that is gone moves its own clients alone')
  t.ok(![...after.values()].includes(gone) && [...first.values()].includes(gone), 'and these are drawn again')
  t.strictSame(await places(), after, 'once')
  weigh(1000, 0, 9000)
  await apply(planner)
  t.ok(![...(await places()).values()].some((backend) => backend.startsWith('244.2.')), 'a drained cluster has none')

  const short = { sessionAffinityConfig: { clientIP: { timeoutSeconds: 1 } } }
  planner.setImport(UDP_WEB({ sessionAffinity: 'ClientIP', ...short }))
  await apply(planner)
  await places()
  const remembered = (): Promise<readonly NftElement[]> => nft.elements(NFT_TABLE_NODE, 'affinity')
  await eventually(async () => (await remembered()).length === 0, { say: 'forgotten after the time-out' })

  const full = Array.from({ length: 65_536 }, (_, i) => {
    return { key: `198.18.${i >> 8}.${i & 255} . ${VIP} . udp . 80`, value: '244.1.1.0' }
  })
  // Elements that are no longer listed take room until the kernel collects them.
  const fill = async (): Promise<boolean> => {
    await nft.run(elementStatements(NFT_TABLE_NODE, [{ map: 'affinity', remove: [], add: full }]))
    return true
  }
  await eventually(fill, { say: 'the map is full' })
  const byHash = await places(3)
  t.ok(new Set(byHash.values()).size > 3, 'with a full map the clients are balanced, by their addresses')
}
