/**
 * A short form of the long stories of test/lanes, once each and in one world: two sites with two gateways each, under
 * traffic in both directions. A gateway is drained, a link is cut, a key is rotated, a node disappears, the path
 * becomes narrow, and requests and answers use different gateways.
 */
import t, { type Test } from 'tap'
import { Caller, LIGHT_LOAD, answerIn, brokenOf, untilFlowing } from '../failover/caller.ts'
import { carries } from '../failover/carries.ts'
import { oneLink } from '../failover/faults.ts'
import { forceWay } from '../failover/forced-ways.ts'
import { narrow, widen } from '../failover/path-faults.ts'
import { answersExchanges, exchange, sameForAll } from '../failover/pod-exchange.ts'
import { Stream } from '../failover/receiver.ts'
import { announcesKey, downLinks, keyOf, linkStates, statusOf, usedBy, workerOf } from '../failover/reported.ts'
import { OVERLAPPING, POD_ADDRESSES, type SiteNode, type TwoSites, withTwoSites } from '../failover/sites.ts'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const DEADLINE_MS = 40_000
/** The octets of a path, and those of a lane over it (test/lanes/gateway-path-size.test.ts). */
const NARROW = { path: 1280, lane: 1216 }

t.setTimeout(280_000)

t.test('two gateways on each side', { skip: netnsMissing() ?? false, timeout: 270_000 }, (t) =>
  withTwoSites(temporaryFolder(t), async (sites) => {
    for (const pod of Object.values(sites.pods)) await answerIn(pod)
    const { milano, paris } = sites.pods
    const callers = [
      new Caller(milano, POD_ADDRESSES.paris, LIGHT_LOAD),
      new Caller(paris, POD_ADDRESSES.milano, LIGHT_LOAD),
    ]
    await Promise.all(callers.map(({ started }) => started))
    await untilFlowing(callers, 'at first')
    const [m0, p1] = [sites.gateways('milano')[0]!, sites.gateways('paris')[1]!]
    const steps: [say: string, step: () => Promise<void>][] = [
      ['a gateway is drained', () => drained(t, sites, m0)],
      ['a link is cut', () => linkIsCut(sites, m0, p1)],
      ['a key is made anew', () => keyIsRotated(t, sites, m0)],
      ['a node is gone', () => nodeIsGone(sites, p1)],
    ]
    for (const [say, step] of steps) {
      await step()
      await untilFlowing(callers, `after ${say}`)
      t.strictSame(await brokenOf(callers), [0, 0], `${say}: no connection is broken`)
    }
    await Promise.all(callers.map((caller) => caller.stop()))
    await pathIsNarrow(t, sites)
    // This comes last, because it removes routes that the product made.
    await otherWays(t, sites)
  }),
)

async function drained(t: Test, sites: TwoSites, gateway: SiteNode): Promise<void> {
  await carries(gateway, true, 'at first')
  sites.drain(gateway, true)
  await carries(gateway, false, 'while it is drained')
  t.strictSame(linkStates(gateway), ['up', 'up'], 'its links stay')
  sites.drain(gateway, false)
  await carries(gateway, true, 'again')
}

async function linkIsCut(sites: TwoSites, a: SiteNode, b: SiteNode): Promise<void> {
  const cut = oneLink(sites.internet, a, b)
  await cut.cutOff()
  const down = `${a.port} ${b.name.slice(2)}, ${b.port} ${a.name.slice(2)}`
  await eventually(() => downLinks(sites) === down, { deadlineMs: DEADLINE_MS, say: `${down} are down` })
  await cut.bringBack()
  await eventually(() => downLinks(sites) === '', { deadlineMs: DEADLINE_MS, say: 'all links are up' })
}

async function keyIsRotated(t: Test, sites: TwoSites, gateway: SiteNode): Promise<void> {
  const before = keyOf(gateway)
  sites.rotate(gateway, 'request 1')
  await eventually(() => keyOf(gateway) !== before && !announcesKey(gateway), {
    deadlineMs: DEADLINE_MS,
    say: 'a new key',
  })
  t.strictSame(linkStates(gateway), ['up', 'up'], 'its links stay with the new key')
}

async function nodeIsGone(sites: TwoSites, gateway: SiteNode): Promise<void> {
  const worker = workerOf(sites, gateway)
  await gateway.cutOff()
  await eventually(() => usedBy(worker)?.includes(gateway.name) === false, {
    deadlineMs: DEADLINE_MS,
    say: `the worker leaves ${gateway.port}`,
  })
  await gateway.bringBack()
  await eventually(() => usedBy(worker)?.includes(gateway.name), {
    deadlineMs: DEADLINE_MS,
    say: `the worker takes ${gateway.port} again`,
  })
  await eventually(() => downLinks(sites) === '', { deadlineMs: DEADLINE_MS, say: 'all links are up again' })
}

async function otherWays(t: Test, sites: TwoSites): Promise<void> {
  const [milano, paris] = [workerOf(sites, { site: 'milano' }), workerOf(sites, { site: 'paris' })]
  await Promise.all([milano, paris].map(({ pod }) => answersExchanges(pod!)))
  sameForAll(t, await exchange(milano, [POD_ADDRESSES.paris]), 'by the ways that the product takes itself')
  sameForAll(t, await exchange(paris, [POD_ADDRESSES.milano]), 'and from the other side')
  const nodesOf = ({ site }: SiteNode): SiteNode[] => sites.nodes.filter((one) => one.site === site)
  await forceWay(nodesOf(milano), [0, 1], OVERLAPPING, 'paris')
  await forceWay(nodesOf(paris), [0, 1], OVERLAPPING, 'milano')
  sameForAll(t, await exchange(milano, [POD_ADDRESSES.paris]), 'question 0-1, answer 1-0')
}

async function pathIsNarrow(t: Test, sites: TwoSites): Promise<void> {
  const { internet, nodes, pods } = sites
  const stream = await Stream.start('tcp', pods.milano, pods.paris, POD_ADDRESSES.paris)
  await narrow(internet, nodes, NARROW.path)
  const links = () => sites.gateways('milano').flatMap((one) => statusOf(one)?.connections ?? [])
  await eventually(() => links().every(({ mtu }) => mtu === NARROW.lane), {
    deadlineMs: DEADLINE_MS,
    say: 'all links of milano are narrow',
  })
  t.match(links()[0]?.message, /^PathMtuReduced: packets larger than 1216 octets/)
  await stream.received()
  await eventually(async () => (await stream.received()).bytes > 100_000, {
    deadlineMs: DEADLINE_MS,
    intervalMs: 500,
    say: 'a connection goes on over the narrow path',
  })
  await stream.stop()
  await widen(internet, nodes)
}
