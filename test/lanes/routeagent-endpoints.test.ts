/**
 * Which endpoints of a service get the calls of a worker, with packets; datapath.ts has the worker and its gateway node.
 * Endpoints here and there, endpoints that fail, affinity, and a table that others break.
 */
import t, { type Test } from 'tap'
import { ProcSysctl } from '../../kernel/tuning/proc-sysctl.ts'
import { NFT_TABLE_NODE } from '../../model/kernel-ids.ts'
import type { ServiceImport } from '../../model/objects.ts'
import { CLIENT, FAR, NODE, buildSite, siteObjects } from '../routeagent/support/balanced-site.ts'
import { breakAndRepair } from '../routeagent/support/break-and-repair.ts'
import {
  type Site,
  balancedTo,
  here,
  kernelDump,
  mountDevices,
  settled,
  startRouteAgent,
} from '../routeagent/support/datapath.ts'
import { membership, node, serviceImport, slice } from '../routeagent/support/site.ts'
import {
  type Callers,
  IMPORT_PORTS,
  PORTS,
  VIP,
  backends,
  callersOf,
  holdConnection,
} from '../routeagent/support/vip-calls.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, inPrivateNetns, withNetns } from '../support/netns.ts'

inPrivateNetns(t, import.meta.url, () => {
  t.test('the endpoints of a service that get calls', { timeout: 120_000 }, (t) =>
    withNetns((client) =>
      withNetns(async (far) => {
        await buildSite(client, far)
        const before = await kernelDump()
        const site = startRouteAgent(t, siteObjects(), { devices: await mountDevices(t) })
        await eventually(() => site.status.notReady().length === 0, { say: site.status.notReady().join('; ') })
        const calls = callersOf(VIP, client)
        await settled(site, /no-backends: 245.0.0.7/)
        // By its packets the bridge learns at which port the pod is.
        t.strictSame(await calls.fromPod('tcp', 1), ['ECONNREFUSED'])
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
})

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
