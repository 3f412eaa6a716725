/**
 * Every nft table of a gateway is lost again and again while a gateway that another member has compromised calls 500
 * times a second what is not exported, and addresses of the node. Nothing answers, and an exported port goes on. The
 * table that admits calls is one of the test here.
 */
import t from 'tap'
import { formatRoute, formatRule } from '../../kernel/route/format-ip.ts'
import { planNodeSends } from '../../routeagent/routes/plan-overlay-drops.ts'
import { parsePrefix } from '../../model/values/ip.ts'
import { GatewayProcess, type Site, introduce, report, untilUp } from '../gateway/support/netns-sites.ts'
import { takeOver } from '../gateway/support/take-over.ts'
import {
  DUAL_STACK_MILANO,
  DUAL_STACK_PARIS,
  type Running,
  msUntilUp,
  withTwo,
} from '../gateway/support/two-gateways.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { Calls, serve } from '../netns/support/calls.ts'

const skip = netnsMissing() ?? false
t.setTimeout(180_000 * SLOWNESS)

const OWN = '244.1.0.9'
const OWN6 = 'fd42:2:0:9::9'
const NODE = '192.168.77.1'
const EXPORTED = '244.0.0.5 8080'
/** What nobody has exported, and addresses of the node. Without tables, the second and the last two are reachable. */
const CLOSED = ['244.0.0.5 9000', '10.42.0.5 9000', 'fd42:1::5 9000', `${NODE} 9000`, '192.0.2.10 9000']
const REACHED_WITHOUT_TABLES = CLOSED.slice(1)

const ADMITS = `table ip standin {
  chain admit {
    type filter hook prerouting priority -150;
    iifname "sealane*" ip daddr 10.42.0.5 meta l4proto { tcp, udp } th dport 8080 meta mark set meta mark | 0x2000
  }
  chain clear { type filter hook forward priority -10; meta mark set meta mark & 0xffffdfff; }
}`

t.test('the tables are lost', { skip, timeout: 150_000 * SLOWNESS }, async (t) => {
  await withTwo(t, [DUAL_STACK_MILANO, DUAL_STACK_PARIS], async (milano, paris) => {
    introduce(milano, paris)
    await msUntilUp(milano, paris)
    const { gateway, pod } = milano.site
    await gateway.exec('ip', ['address', 'add', `${NODE}/32`, 'dev', 'lo'])
    await Promise.all([serve(t, pod), serve(t, gateway)])
    await takeOver(paris, { own: [OWN, OWN6], targets: [EXPORTED, ...CLOSED].map((one) => one.split(' ')[0] ?? '') })
    const stranger = paris.site.gateway

    await milano.process.stop('SIGKILL')
    const before = await Calls.begin(t, { from: stranger, own: [OWN, OWN6], targets: CLOSED })
    await gateway.exec('nft', ['flush', 'ruleset'])
    await eventually(() => REACHED_WITHOUT_TABLES.every((one) => before.answered(one) > 0), {
      say: `answers while all pods may be called: ${before.text()}`,
    })
    await before.stop()

    for (const command of nodeSends()) await gateway.exec('ip', command.split(' ').slice(1))
    const closed: Site = { ...milano.site, init: { ...milano.site.init, exposure: 'exports' } }
    milano.process = startedAgain(milano, closed, paris)
    await untilUp(milano.process, 'paris')
    await eventually(async () => (await gateway.exec('ip', ['rule'])).includes('blackhole'), { say: 'the rules' })
    await gateway.exec('nft', ['-f', '-'], { input: ADMITS })
    const calls = await Calls.begin(t, { from: stranger, own: [OWN, OWN6], targets: [EXPORTED, ...CLOSED] })
    const goesOn = async (what: string): Promise<void> => {
      const had = calls.answered(EXPORTED)
      const sent = calls.sent
      await eventually(() => calls.answered(EXPORTED) > had + 100 && calls.sent > sent + 500, {
        say: `${what}: the exported port answers: ${calls.text()}`,
      })
      t.strictSame(
        CLOSED.map((one) => calls.answered(one)),
        CLOSED.map(() => 0),
        `${what}: nothing else answered, of ${calls.sent - sent} calls to each`,
      )
    }
    await goesOn('at first')
    const returned = (family: string): Promise<unknown> =>
      eventually(() => gateway.exec('nft', ['list', 'table', family, 'sealane_gateway']), { say: 'the table again' })
    const lost: Readonly<Record<string, () => Promise<unknown>>> = {
      'nft flush ruleset': () => gateway.exec('nft', ['-f', '-'], { input: `flush ruleset\n${ADMITS}` }),
      'both tables deleted': () =>
        gateway.exec('nft', ['-f', '-'], {
          input: 'delete table ip sealane_gateway\ndelete table ip6 sealane_gateway',
        }),
      'another program loads its own ruleset': () =>
        gateway.exec('nft', ['-f', '-'], { input: `flush ruleset\ntable ip kube { chain c { }; }\n${ADMITS}` }),
      'the gateway is killed, and restarted without tables': async () => {
        await milano.process.stop('SIGKILL')
        await gateway.exec('nft', ['-f', '-'], { input: `flush ruleset\n${ADMITS}` })
        const sent = calls.sent
        await eventually(() => calls.sent > sent + 300, { say: 'calls without tables' })
        milano.process = startedAgain(milano, closed, paris)
      },
    }
    for (const [what, lose] of Object.entries(lost)) {
      const began = performance.now()
      await lose()
      await Promise.all([returned('ip'), returned('ip6')])
      t.comment(`${what}: the tables are back after ${Math.round(performance.now() - began)} ms`)
      await goesOn(what)
    }
    await calls.stop()
  })
})

/** What the route agent of the node adds for it. */
function nodeSends(): string[] {
  const { routes, rules } = planNodeSends({
    family: 4,
    addresses: ['192.0.2.10/24', `${NODE}/32`, '10.42.0.1/24'].map((address) => ({ device: 'any', address })),
    pods: [parsePrefix('10.42.0.0/16')],
    destinations: ['244.1.0.0/16'],
  })
  return [...routes.map((route) => formatRoute(route)), ...rules.map((rule) => formatRule(rule))]
}

function startedAgain(before: Running, site: Site, paris: Running): GatewayProcess {
  const again = new GatewayProcess(site)
  for (const object of before.process.objects.values()) again.put(object)
  report(paris, { process: again, site })
  return again
}
