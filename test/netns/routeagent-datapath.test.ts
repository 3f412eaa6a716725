/** IPv4 with packets: the worker and the gateway node of test/routeagent/support/datapath.ts. */
import t, { type Test } from 'tap'
import { ProcSysctl } from '../../kernel/tuning/proc-sysctl.ts'
import type { KubeObject, ServiceImport } from '../../model/objects.ts'
import { breakAndRepair } from '../routeagent/support/break-and-repair.ts'
import {
  type Site,
  TALKER,
  buildBridge,
  buildGatewayNode,
  kernelDump,
  serving,
  balancedTo,
  settled,
  startRouteAgent,
} from '../routeagent/support/datapath.ts'
import { cluster, endpoint, gateway, membership, node, serviceImport, slice } from '../routeagent/support/site.ts'
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
  t.test('clusterset IPs on a node', { timeout: 90_000 }, (t) =>
    withNetns((client) =>
      withNetns(async (far) => {
        await build(client, far)
        const before = await kernelDump()
        const site = startRouteAgent(t, objects())
        await eventually(() => site.status.notReady().length === 0, { say: site.status.notReady().join('; ') })
        const calls = callersOf(VIP, client)
        await settled(site, /no-backends: 245.0.0.7/)
        await refusals(t, calls)
        await balanced(t, site, calls)
        await connectionStays(t, site, { ...calls, far, held: holdConnection(client, VIP) })
        await toItself(t, site, calls)
        await keepsToItsPlace(t, site, calls)
        await sticks(t, site, calls)
        const probe = (number: number): string => `245.0.1.${number}`
        await breakAndRepair(t, site, { nft: 'ip', vip: VIP, probe, stranger: '192.0.2.0/24' })
        t.equal(new Set(await calls.fromPod('tcp', 5)).size, 1, 'a table that others broke works again')
        site.api.put(membership('leaving'))
        await site.ended
        t.equal(await kernelDump(), before, 'leaving leaves nothing behind')
      }),
    ),
  )
})

async function build(client: Netns, far: Netns): Promise<void> {
  // The kernel's own IPv6 addresses come and go at arbitrary times, and the dumps are compared.
  await new ProcSysctl().write('net/ipv6/conf/all/disable_ipv6', '1')
  await buildBridge([client])
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
  const answer = [`${CLIENT} ${NODE}`]
  t.strictSame(await fromPod('tcp', 1), answer, 'a pod that is balanced to itself gets through')
  t.strictSame(await fromNode('tcp', 1), answer, 'from the node to a pod of its own')
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
  t.strictSame(await fromPod('tcp', 1), ['timeout'], 'nobody on this node: a pod’s call is dropped')
  t.strictSame(await fromPod('udp', 1), ['timeout'], 'UDP')
  t.strictSame(await fromNode('tcp', 1), ['timeout'], 'and the node’s own')
  const close = { trafficDistribution: 'PreferClose' }
  await serves(['244.1.0.5'], close)
  site.api.put(node('worker', '192.168.7.11', '10.42.1.0/24', 'c'))
  site.api.put(slice('web', 'milano', [], PORTS))
  await serves([...FAR], close)
}

async function sticks(t: Test, site: Site, { fromPod }: Callers): Promise<void> {
  site.api.put(serviceImport('web', VIP, { ports: IMPORT_PORTS, sessionAffinity: 'ClientIP' }))
  site.api.put(slice('web', 'milano', [], PORTS))
  site.api.put(slice('web', 'paris', FAR, PORTS))
  await settled(site, /slot-63: 245.0.0.7/)
  t.equal(new Set(await fromPod('tcp', 30)).size, 1, 'with ClientIP affinity a client sticks')
}
