/**
 * IPv6 beside IPv4, with packets: the worker and the gateway node of test/routeagent/support/datapath.ts, each also
 * with IPv6. The pods are fd00:10:42:1::5 (the client) and fd00:10:42:1::6 here, fd00:20:42::5 and fd00:20:42::6 in the
 * far cluster.
 */
import t, { type Test } from 'tap'
import { ProcSysctl } from '../../kernel/tuning/proc-sysctl.ts'
import type { KubeObject } from '../../model/objects.ts'
import { breakAndRepair } from '../routeagent/support/break-and-repair.ts'
import {
  type Site,
  TALKER,
  balancedTo,
  buildBridge,
  buildGatewayNode,
  here,
  ip,
  kernelDump,
  serving,
  settled,
  startRouteAgent,
} from '../routeagent/support/datapath.ts'
import {
  cluster,
  dualStack,
  dualStackNode,
  endpoint,
  gateway,
  membership,
  node,
  serviceImport,
  slice,
  slice6,
} from '../routeagent/support/site.ts'
import {
  type Callers,
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
import { withWays } from '../support/route-ways.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, inPrivateNetns, withNetns } from '../support/netns.ts'

const VIP6 = 'fd53:ea1a:4e00::f500:7'
const CLIENT = 'fd00:10:42:1::5'
const LOCAL = 'fd00:10:42:1::6'
const FAR = ['fd00:20:42::5', 'fd00:20:42::6'] as const
const WEB = serviceImport('web', VIP, { ips: [VIP, VIP6], ports: IMPORT_PORTS })
const MILANO = cluster('milano', 1, '244.0.0.0/16')

inPrivateNetns(t, import.meta.url, () => {
  t.test('IPv6 clusterset IPs on a node', { timeout: 90_000 }, (t) =>
    withNetns((client) =>
      withNetns((local) =>
        withNetns(async (far) => {
          await buildDualStack([client, local], far)
          const before = await kernelDump()
          const site = startRouteAgent(t, objects())
          await eventually(() => site.status.notReady().length === 0, { say: site.status.notReady().join('; ') })
          const calls = callersOf(VIP6, client)
          await settled6(site, /no-backends: fd53:ea1a:4e00::f500:7/)
          await standsStill(t, site)
          await refusals(t, calls)
          await balanced(t, site, { ...calls, client, far })
          await nearby(t, site, calls)
          await bothFamilies(t, site, client)
          await repaired(t, site, calls)
          await withoutIpv6(t, site, client)
          site.api.put(membership('leaving'))
          await site.ended
          t.equal(await kernelDump(), before, 'leaving leaves nothing behind')
        }),
      ),
    ),
  )
})

const gatewayNode = (zone?: string): KubeObject =>
  dualStackNode(node('gw', '192.168.7.1', '10.42.0.0/24', zone), 'fd00:10:42::/64')

function objects(): KubeObject[] {
  return [
    membership(),
    gatewayNode(),
    dualStackNode(node('worker', '192.168.7.11', '10.42.1.0/24'), 'fd00:10:42:1::/64'),
    dualStack(MILANO, 'fd00:10:42::/56'),
    dualStack(cluster('paris', 2, '244.1.0.0/16'), 'fd00:20:42::/56'),
    // These are neighbours in the interval set, which nft must return as they were sent.
    dualStack(cluster('rome', 3, '244.2.0.0/16'), 'fd00:20:42:100::/56'),
    endpoint('milano', 'gw'),
    gateway('gw', { paris: 'up' }, 1400),
    WEB,
  ]
}

/** Makes addresses usable at once, and keeps the kernel from adding others later. */
async function quiet(run: (...args: string[]) => Promise<unknown>): Promise<void> {
  for (const where of ['all', 'default']) {
    for (const setting of ['accept_dad=0', 'accept_ra=0', 'router_solicitations=0']) {
      await run('sysctl', '-qw', `net.ipv6.conf.${where}.${setting}`)
    }
  }
}

async function buildDualStack(pods: readonly Netns[], far: Netns): Promise<void> {
  const inside =
    (ns: Netns) =>
    (command: string, ...args: string[]) =>
      ns.exec(command, args)
  await quiet(here)
  for (const ns of [...pods, far]) await quiet(inside(ns))
  await buildBridge(pods)
  await buildGatewayNode(far)
  await new ProcSysctl().write('net/ipv4/ip_forward', '0')
  await ip('address add fd00:10:42:1::1/64 dev cni0')
  for (const [i, pod] of pods.entries()) {
    await pod.exec('ip', ['address', 'add', `fd00:10:42:1::${5 + i}/64`, 'dev', 'eth0'])
    await pod.exec('ip', ['-6', 'route', 'add', 'default', 'via', 'fd00:10:42:1::1'])
  }
  const lines = [
    '-6 neighbour replace fe80::5ea1:c0a8:70b lladdr 0a:5e:c0:a8:07:0b dev sealane-vx nud permanent',
    '-6 route add fd00:10:42:1::/64 via fe80::5ea1:c0a8:70b dev sealane-vx onlink',
    ...FAR.map((address) => `address add ${address}/128 dev lo`),
  ]
  for (const line of lines) await far.exec('ip', line.split(' '))
  await here('nft', 'add table ip6 cni')
  await here('nft', 'add chain ip6 cni post { type nat hook postrouting priority 100; }')
  await here('nft', 'add rule ip6 cni post ip6 saddr fd00:10:42::/56 ip6 daddr != fd00:10:42::/56 masquerade')
  const where = FAR.map((address) => `[${address}]:8080`)
  await serving(far.spawn(process.execPath, [TALKER, 'serve', ...where, '244.1.0.5:8080']))
  for (const [i, pod] of pods.entries()) {
    await serving(pod.spawn(process.execPath, [TALKER, 'serve', `[fd00:10:42:1::${5 + i}]:8080`]))
  }
}

const settled6 = (site: Site, want: RegExp): Promise<void> => settled(site, want, 'ip6')

/** Checks that the kernel's listing of our IPv6 routes, rules and neighbours equals the plan: nothing is sent again. */
async function standsStill(t: Test, site: Site): Promise<void> {
  const way = async (): Promise<string> => ip('-6 route show table 7312 fd00:20:42::/56 metric 100')
  const second = [dualStackNode(node('gw2', '192.168.7.2'), 'fd00:10:42:2::/64'), endpoint('milano', 'gw2', 1)]
  for (const object of [...second, gateway('gw2', { paris: ['down', 'up'] }, 1400)]) site.api.put(object)
  await eventually(async () => /via fe80::5ea1:c0a8:702 .*weight 1 onlink/.test(await way()), { say: 'two gateways' })
  const changes = (): number => site.logger.messages('info').filter((line) => line === 'routes changed').length
  for (const turn of [1, 2]) {
    const [runs, before] = [await site.runs('routes'), changes()]
    site.api.put(gatewayNode(`zone-${turn}`))
    await eventually(async () => (await site.runs('routes')) > runs, { say: 'another run' })
    // An earlier run may still have been active in the first turn.
    if (turn === 2) t.equal(changes(), before, 'a run that finds all as it should be changes nothing')
  }
  site.api.drop('Gateway', 'gw2')
  site.api.drop('Endpoint', second[1]?.metadata.name ?? '')
  site.api.drop('Node', 'gw2')
  await eventually(async () => (await way()).includes('via fe80::5ea1:c0a8:701 dev'), { say: 'one again' })
}

interface Ends extends Callers {
  readonly client: Netns
  readonly far: Netns
}

async function balanced(t: Test, site: Site, { fromPod, fromNode, client, far }: Ends): Promise<void> {
  site.api.put(slice6('web', 'paris', FAR, PORTS))
  await settled6(site, /slot-1: fd53:ea1a:4e00::f500:7/)
  const answers = await fromPod('tcp', 200)
  const seen = new Set(FAR.map((address) => `${address} ${CLIENT}`))
  t.strictSame(new Set(answers), seen, 'both answer and see the pod itself, in spite of the masquerade rule')
  const share = answers.filter((answer) => answer.startsWith(FAR[0])).length
  // 100 are expected, with a standard deviation of 7: a deviation of five of them happens once in two million runs.
  t.ok(Math.abs(share - 100) <= 36, `${share} of 200 connections went to the first of two`)
  t.strictSame(sources(await fromPod('udp', 8)), new Set([CLIENT]), 'UDP with 3,000 bytes')
  t.strictSame(sources(await fromNode('tcp', 20)), new Set(['fd00:10:42:1::1']), 'the node calls with its pod address')
  t.strictSame(sources(await fromNode('udp', 4)), new Set(['fd00:10:42:1::1']), 'UDP from the node')
  const held = holdConnection(client, VIP6)
  await held.ask()
  const segments = await segmentsOf(far)
  held.end()
  t.ok(segments.length > 0 && Math.max(...segments) <= 1340, `segments of ${segments.join()} bytes fit a lane of 1400`)
}

/** A pod of this node is among the backends, and then is the only one. */
async function nearby(t: Test, site: Site, { fromPod }: Callers): Promise<void> {
  site.api.put(slice6('web', 'milano', [`${LOCAL} on worker`], PORTS))
  await settled6(site, /slot-2: fd53:ea1a:4e00::f500:7/)
  t.strictSame(backends(await fromPod('tcp', 60)), new Set([LOCAL, ...FAR]), 'pods here and there')
  site.api.put({ ...WEB, spec: { ...WEB.spec, internalTrafficPolicy: 'Local' } })
  await balancedTo(site, VIP6, [LOCAL])
  t.strictSame(backends(await fromPod('tcp', 10)), new Set([LOCAL]), 'only the pod here')
  site.api.put(slice6('web', 'milano', ['fd00:10:42::9 on gw'], PORTS))
  await settled6(site, /none-here: fd53:ea1a:4e00::f500:7/)
  t.strictSame(await fromPod('tcp', 1), ['timeout'], 'nobody here: dropped')
  site.api.put(WEB)
  site.api.put(slice6('web', 'paris', [], PORTS))
  site.api.put(slice6('web', 'milano', [CLIENT], PORTS))
  await settled6(site, /hairpin: fd00:10:42:1::5/)
  const self = await fromPod('tcp', 1)
  t.strictSame(self, [`${CLIENT} fd00:10:42:1::1`], 'a pod that is balanced to itself gets through')
}

async function bothFamilies(t: Test, site: Site, client: Netns): Promise<void> {
  const { fromPod } = callersOf(VIP6, client)
  site.api.put(slice('web', 'paris', ['244.1.0.5'], PORTS))
  site.api.put(slice6('web', 'milano', [], PORTS))
  site.api.put(slice6('web', 'paris', [FAR[1]], PORTS))
  await settled6(site, /slot-0: fd53:ea1a:4e00::f500:7 . tcp . 80 fd00:20:42::6 /)
  await settled(site, /slot-0: 245.0.0.7 . tcp . 80 244.1.0.5 /)
  t.strictSame(await callersOf(VIP, client).fromPod('tcp', 1), ['244.1.0.5 10.42.1.5'], 'IPv4')
  t.strictSame(await fromPod('tcp', 1), [`${FAR[1]} ${CLIENT}`], 'IPv6, by its own slices')
  site.api.put({ ...WEB, spec: { ...WEB.spec, sessionAffinity: 'ClientIP' } })
  site.api.put(slice6('web', 'paris', FAR, PORTS))
  await settled6(site, /slot-63: fd53:ea1a:4e00::f500:7/)
  t.equal(new Set(await fromPod('tcp', 20)).size, 1, 'with ClientIP affinity a client sticks')
}

/** Other programs break the table, then routes and rules. */
async function repaired(t: Test, site: Site, { fromPod }: Callers): Promise<void> {
  const probe = (number: number): string => `fd53:ea1a:4e00::f500:1${number}`
  await breakAndRepair(t, site, { nft: 'ip6', vip: VIP6, probe, stranger: '2001:db8::/32' })
  await ip('-6 route del fd00:20:42::/56 table 7312 metric 100')
  await ip('-6 rule del priority 75')
  await eventually(async () =>
    /fd00:20:42::\/56 .*via fe80::5ea1:c0a8:701/.test(
      withWays(await ip('-6 route show table 7312'), await ip('nexthop show')),
    ),
  )
  await eventually(async () => (await ip('-6 rule')).includes('75:\tnot from all fwmark 0x1073 lookup 7312'))
  t.equal(new Set(await fromPod('tcp', 5)).size, 1, 'and all works again')
}

/** The cluster gives up its IPv6 pod CIDR. */
async function withoutIpv6(t: Test, site: Site, client: Netns): Promise<void> {
  site.api.put(MILANO)
  const gone = async (): Promise<boolean> => !(await here('nft', 'list', 'tables')).includes('ip6 sealane_node')
  await eventually(gone, { say: 'no table' })
  const ours = async (): Promise<string> =>
    `${await ip('-6 route show table all proto 173')}${await ip('-6 neighbour show nud permanent dev sealane-vx')}`
  await eventually(async () => (await ours()) === '', { say: 'no routes and no neighbours' })
  t.notMatch(await ip('-6 rule'), /731/, 'no rules')
  t.strictSame(await callersOf(VIP, client).fromPod('tcp', 1), ['244.1.0.5 10.42.1.5'], 'IPv4 goes on')
}
