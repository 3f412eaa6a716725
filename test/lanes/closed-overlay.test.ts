/**
 * Every nft table of a worker is lost again and again while its gateway node, as one without tables would, passes on 500
 * calls a second to what is not exported and to an address of the node. Nothing answers; an exported port, and the
 * worker's own pod as a caller, go on.
 */
import t from 'tap'
import { ProcSysctl } from '../../kernel/tuning/proc-sysctl.ts'
import type { Exposure } from '../../model/access/access.ts'
import type { KubeObject } from '../../model/objects.ts'
import { buildBridge, buildGatewayNode, here, ip, startRouteAgent } from '../routeagent/support/datapath.ts'
import { ownSlice } from '../routeagent/support/own-slice.ts'
import { cluster, endpoint, gateway, node } from '../routeagent/support/site.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { inPrivateNetns, withNetns } from '../support/netns.ts'
import { membershipObject } from '../support/objects/cluster-objects.ts'
import { exportObject } from '../support/objects/service-objects.ts'
import { Calls, serve } from '../netns/support/calls.ts'

const STRANGER = '244.1.0.5'
const POD = '10.42.1.5'
const EXPORTED = `${POD} 8080`
/** The address is one of the worker, and no pod. */
const CLOSED = [`${POD} 9000`, '192.168.77.1 9000']
const OUT = `${STRANGER} 9000`

inPrivateNetns(t, import.meta.url, () => {
  t.test('the tables of a worker are lost', { timeout: 120_000 * SLOWNESS }, (t) =>
    withNetns((pod) =>
      withNetns(async (far) => {
        await new ProcSysctl().write('net/ipv6/conf/all/disable_ipv6', '1')
        await buildBridge([pod])
        await buildGatewayNode(far)
        await ip('address add 192.168.77.1/32 dev eth0')
        await far.exec('ip', 'route add 192.168.77.1/32 via 192.168.7.11 dev sealane-vx onlink'.split(' '))
        const load = (text: string): Promise<string> => here('nft', text)
        await Promise.all([serve(t, pod), serve(t, far), serve(t, undefined)])

        let site = startRouteAgent(t, objects('pods'))
        const ready = (): Promise<unknown> =>
          eventually(() => site.status.notReady().length === 0, { say: site.status.notReady().join('; ') })
        await ready()
        await site.stop()
        await load('flush ruleset')
        const open = await Calls.begin(t, { from: far, own: [STRANGER], targets: CLOSED })
        await eventually(() => CLOSED.every((one) => open.answered(one) > 0), {
          say: `answers while all pods may be called: ${open.text()}`,
        })
        await open.stop()

        site = startRouteAgent(t, objects('exports'))
        await ready()

        await eventually(async () => (await ip('rule')).includes('blackhole'), { say: 'the rules' })
        const calls = await Calls.begin(t, { from: far, own: [STRANGER], targets: [EXPORTED, ...CLOSED] })
        const out = await Calls.begin(t, { from: pod, own: [POD], targets: [OUT] })
        const goesOn = async (what: string): Promise<void> => {
          const [had, hadOut, sent] = [calls.answered(EXPORTED), out.answered(OUT), calls.sent]
          const isEnough = (): boolean =>
            calls.answered(EXPORTED) > had + 100 && out.answered(OUT) > hadOut + 100 && calls.sent > sent + 500
          await eventually(isEnough, { say: `${what}: calls go on: ${calls.text()} ${out.text()}` })
          const answers = CLOSED.map((one) => calls.answered(one))
          t.strictSame(answers, [0, 0], `${what}: nothing else answered, of ${calls.sent - sent} calls to each`)
        }
        await goesOn('at first')
        const lost: Readonly<Record<string, () => Promise<unknown>>> = {
          'nft flush ruleset': () => load('flush ruleset'),
          'the table deleted': () => load('delete table ip sealane_node'),
          'another program loads its own ruleset': () => load('flush ruleset; table ip kube { chain c { }; }'),
          'the route agent ends, and starts without tables': async () => {
            await site.stop()
            await load('flush ruleset')
            const sent = calls.sent
            await eventually(() => calls.sent > sent + 300, { say: 'calls without tables' })
            site = startRouteAgent(t, objects('exports'))
          },
        }
        for (const [what, lose] of Object.entries(lost)) {
          const began = performance.now()
          await lose()
          await eventually(() => here('nft', 'list', 'table', 'ip', 'sealane_node'), { say: 'the table again' })
          t.comment(`${what}: the table is back after ${Math.round(performance.now() - began)} ms`)
          await goesOn(what)
        }
        await Promise.all([calls.stop(), out.stop()])

        site.api.put(membershipObject({ phase: 'leaving', clusterset: 'test' }))
        await site.ended
        const rules = /^\d+:.*(sealane|7318|blackhole)/m
        t.notMatch(await ip('rule'), rules, 'leaving leaves no rule')
      }),
    ),
  )
})

function objects(exposure: Exposure): KubeObject[] {
  return [
    membershipObject({ exposure, clusterset: 'test' }),
    node('gw', '192.168.7.1', '10.42.0.0/24'),
    node('worker', '192.168.7.11', '10.42.1.0/24'),
    cluster('milano', 1, '244.0.0.0/16'),
    cluster('paris', 2, '244.1.0.0/16'),
    endpoint('milano', 'gw'),
    gateway('gw', { paris: 'up' }, 1400),
    exportObject({ name: 'web' }),
    ownSlice(
      'web',
      [POD],
      [
        { name: 'tcp', protocol: 'TCP', port: 8080 },
        { name: 'udp', protocol: 'UDP', port: 8080 },
      ],
    ),
  ]
}
