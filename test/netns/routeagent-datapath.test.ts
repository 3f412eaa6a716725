/**
 * IPv4 with packets: the worker and the gateway node of test/routeagent/support/datapath.ts. What becomes of endpoints
 * that fail, shares and affinity is in test/lanes/routeagent-*.
 */
import t, { type Test } from 'tap'
import { type Site, kernelDump, settled, startRouteAgent } from '../routeagent/support/datapath.ts'
import { CLIENT, FAR, NODE, buildSite, siteObjects } from '../routeagent/support/balanced-site.ts'
import { membership, slice } from '../routeagent/support/site.ts'
import {
  type Callers,
  type HeldConnection,
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

inPrivateNetns(t, import.meta.url, () => {
  t.test('clusterset IPs on a node', { timeout: 60_000 }, (t) =>
    withNetns((client) =>
      withNetns(async (far) => {
        await buildSite(client, far)
        const before = await kernelDump()
        const site = startRouteAgent(t, siteObjects())
        await eventually(() => site.status.notReady().length === 0, { say: site.status.notReady().join('; ') })
        const calls = callersOf(VIP, client)
        await settled(site, /no-backends: 245.0.0.7/)
        await refusals(t, calls)
        await balanced(t, site, calls)
        await connectionStays(t, site, { ...calls, far, held: holdConnection(client, VIP) })
        site.api.put(membership('leaving'))
        await site.ended
        t.equal(await kernelDump(), before, 'leaving leaves nothing behind')
      }),
    ),
  )
})

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
