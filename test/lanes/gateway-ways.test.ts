/**
 * Every gateway carries every flow in both directions. In two sites with two gateways each and a pod on every node, the
 * request leaves by one gateway of the caller's site and arrives by one of the other, and the answer uses any two, in
 * all sixteen combinations; with translated addresses, and with flat ones of both families. Then many flows at once use
 * the gateways that the product chooses itself, and a clusterset IP.
 */
import t, { type Test } from 'tap'
import { answersExchanges, exchange, sameForAll } from '../failover/pod-exchange.ts'
import type { Exchange } from '../failover/exchange.ts'
import { type Way, forceWay } from '../failover/forced-ways.ts'
import {
  FLAT_DUAL_STACK,
  OVERLAPPING,
  type SiteAddresses,
  type SiteName,
  type SiteNode,
  type TwoSites,
  withTwoSites,
} from '../failover/sites.ts'
import { serviceImport, slice } from '../routeagent/support/site.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false
t.setTimeout(400_000 * SLOWNESS)

const WAYS: readonly Way[] = [0, 1].flatMap((near) => [0, 1].map((far) => [near, far] as const))

const CASES: readonly { readonly say: string; readonly addresses: SiteAddresses }[] = [
  { say: 'translated', addresses: OVERLAPPING },
  { say: 'flat, IPv4 and IPv6', addresses: FLAT_DUAL_STACK },
]

for (const { say, addresses } of CASES) {
  t.test(say, { skip, timeout: 300_000 * SLOWNESS }, (t) =>
    withTwoSites(temporaryFolder(t), (sites) => story(t, sites, addresses), { addresses, podsOnGateways: true }),
  )
}

async function story(t: Test, sites: TwoSites, addresses: SiteAddresses): Promise<void> {
  const [milano, paris] = [nodesOf(sites, 'milano'), nodesOf(sites, 'paris')]
  await Promise.all(sites.nodes.map(({ pod }) => answersExchanges(pod!)))
  await t.test('by the ways that the product takes itself', async (t) => {
    for (const from of sites.nodes) {
      const to = from.site === 'milano' ? paris : milano
      const all = to.flatMap((one) => podAddresses(one, addresses))
      const several = Array.from({ length: 8 }, () => all).flat()
      sameForAll(t, await exchange(from, several), `${from.port} to all`)
    }
  })
  await t.test('through a clusterset IP', async (t) => {
    offer(sites, addresses)
    for (const from of milano) sameForAll(t, await untilServed(from), from.port)
  })
  for (const question of WAYS) {
    for (const answer of WAYS) {
      await t.test(`question ${question.join('-')}, answer ${[...answer].reverse().join('-')}`, async (t) => {
        await forceWay(milano, question, addresses, 'paris')
        await forceWay(paris, [answer[1], answer[0]], addresses, 'milano')
        for (const from of milano) {
          const all = paris.flatMap((one) => podAddresses(one, addresses))
          sameForAll(t, await exchange(from, all), `${from.port} to all`)
        }
      })
    }
  }
}

function nodesOf({ nodes }: TwoSites, site: SiteName): readonly SiteNode[] {
  return nodes.filter((one) => one.site === site)
}

function podAddresses({ site, podNetwork }: SiteNode, { known, pods6 }: SiteAddresses): string[] {
  const ipv4 = `${known[site]}.${podNetwork}.7`
  return pods6 === undefined ? [ipv4] : [ipv4, `${pods6[site]}:0:${podNetwork}::7`]
}

const SERVICE_IP = '245.0.0.5'

/** Offers the Service web, which has one port and runs on the worker of paris. */
function offer({ nodes }: TwoSites, { known }: SiteAddresses): void {
  const ports = [
    { name: 'tcp', protocol: 'TCP', port: 9001 },
    { name: 'udp', protocol: 'UDP', port: 9001 },
  ] as const
  const web = serviceImport('web', SERVICE_IP, { ports })
  const backends = slice('web', 'paris', [`${known.paris}.6.7`], [...ports])
  for (const { process } of nodes.filter(({ site }) => site === 'milano')) process?.put(web, backends)
}

/**
 * Waits until the node balances the address, and then sends many flows at once. The node itself refuses a port that no
 * service has, with an error that UDP sockets do not report.
 */
async function untilServed(from: SiteNode): Promise<Exchange[]> {
  const ask = (times: number): Promise<Exchange[]> => exchange(from, Array<string>(times).fill(SERVICE_IP), 'call-open')
  await eventually(async () => (await ask(1))[0]?.tcp === 'ok', {
    deadlineMs: 20_000,
    say: `${from.port} balances the clusterset IP`,
  })
  return ask(8)
}
