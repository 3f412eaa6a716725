/**
 * Faults in the middle, under traffic in both directions between two sites with two gateways each, while the broker is
 * away: broken links are left, sound ones carry, no connection breaks, and recovered links carry again.
 * bench/failover.ts measures how long it takes.
 */
import t, { type Test } from 'tap'
import { Caller, LIGHT_LOAD, answerIn, brokenOf, untilFlowing } from '../failover/caller.ts'
import {
  type Cut,
  LinkWatch,
  delayedTunnels,
  oneLink,
  oneOverlay,
  oneWayGateway,
  randomLoss,
  silentGateway,
} from '../failover/faults.ts'
import { downLinks, usedBy, workerOf } from '../failover/reported.ts'
import { POD_ADDRESSES, type SiteNode, type TwoSites, withTwoSites } from '../failover/sites.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false
t.setTimeout(500_000 * SLOWNESS)

const DEADLINE_MS = 40_000
/** More octets than the probes of a gateway's links can take in that time, which is 50,000. */
const CARRIES_BYTES = 100_000

interface Story {
  readonly t: Test
  readonly sites: TwoSites
  readonly callers: readonly Caller[]
}

t.test('with two gateways each', { skip, timeout: 450_000 * SLOWNESS }, (t) =>
  withTwoSites(temporaryFolder(t), async (sites) => {
    sites.broker.goAway()
    for (const pod of Object.values(sites.pods)) await answerIn(pod)
    const { milano, paris } = sites.pods
    const callers = [
      new Caller(milano, POD_ADDRESSES.paris, LIGHT_LOAD),
      new Caller(paris, POD_ADDRESSES.milano, LIGHT_LOAD),
    ]
    await Promise.all(callers.map(({ started }) => started))
    const story = { t, sites, callers }
    await untilFlowing(story.callers, 'at first')
    await linksAreLeft(story)
    await overlayIsLeft(story)
    await allAreGone(story)
    await nothingFlaps(story)
    await Promise.all(callers.map((caller) => caller.stop()))
  }),
)

/** Each fault has the links that go down, as `gateway lane`. */
async function linksAreLeft(story: Story): Promise<void> {
  const { internet, gateways } = story.sites
  const [m0, m1] = gateways('milano') as [SiteNode, SiteNode]
  const [p0, p1] = gateways('paris') as [SiteNode, SiteNode]
  const all = (gateway: SiteNode, far: readonly SiteNode[]): string[] => [
    ...far.map((_, lane) => `${gateway.port} ${lane}`),
    ...far.map(({ port }) => `${port} ${gateway.name.slice(2)}`),
  ]
  const rows: [cut: Cut, down: string[]][] = [
    [silentGateway(internet, m0), all(m0, [p0, p1])],
    [oneWayGateway(internet, p1, 'received'), all(p1, [m0, m1])],
    [oneWayGateway(internet, m1, 'sent'), all(m1, [p0, p1])],
    [oneLink(internet, m0, p1), ['milano-gw0 1', 'paris-gw1 0']],
  ]
  for (const [cut, down] of rows) {
    await cut.cutOff()
    await becomes(() => downLinks(story.sites), down.toSorted().join(', '), `${cut.name}: links that are down`)
    await goesOn(story, cut.name)
    await cut.bringBack()
    await becomes(() => downLinks(story.sites), '', `${cut.name}: over`)
    await carriesAgain(story, cut)
  }
}

async function overlayIsLeft(story: Story): Promise<void> {
  const { internet, gateways } = story.sites
  for (const [site, lane] of [
    ['milano', 0],
    ['paris', 1],
  ] as const) {
    const [gateway, other] = [gateways(site)[lane]!, gateways(site)[1 - lane]!]
    const worker = workerOf(story.sites, { site })
    const cut = oneOverlay(internet, worker, gateway)
    const watch = new LinkWatch(story.sites)
    const leadsBy = async (): Promise<string> => {
      const routes = await gateway.netns.exec('ip', ['route', 'show', 'table', '7310'])
      return /^10\.42\.6\.0\/24 via (\S+) /m.exec(routes)?.[1] ?? ''
    }
    await becomes(leadsBy, worker.address, `${gateway.port} leads straight to the worker`)
    await cut.cutOff()
    await becomes(leadsBy, other.address, `${cut.name}: ${gateway.port} leads there by ${other.port}`)
    await becomes(() => usedBy(worker)?.join(' ') ?? '', other.name, `${cut.name}: the worker leaves ${gateway.port}`)
    await goesOn(story, cut.name)
    await cut.bringBack()
    await becomes(leadsBy, worker.address, `${cut.name}: ${gateway.port} leads straight there again`)
    await carriesAgain(story, cut)
    story.t.equal(watch.downs, 0, `${cut.name}: no link went down`)
  }
}

async function allAreGone(story: Story): Promise<void> {
  const both = story.sites.gateways('milano')
  await Promise.all(both.map((one) => one.cutOff()))
  await becomes(
    () => downLinks(story.sites),
    'paris-gw0 0, paris-gw0 1, paris-gw1 0, paris-gw1 1',
    'all gateways of milano are gone',
  )
  for (const one of both) {
    await one.bringBack()
    await goesOn(story, `${one.port} is back`)
  }
  await becomes(() => downLinks(story.sites), '', 'all are back')
}

/** Datagrams of each caller in twenty seconds, in which a link is probed a hundred times. */
const STEADY_DATAGRAMS = 1000

async function nothingFlaps(story: Story): Promise<void> {
  const { internet } = story.sites
  for (const cut of [randomLoss(internet, 7), delayedTunnels(story.sites, 250, 50)]) {
    const watch = new LinkWatch(story.sites)
    await cut.cutOff()
    let sent = 0
    await eventually(
      async () => {
        sent += Math.min(...(await story.callers.map((one) => one.seen()).reduce(collected, Promise.resolve([]))))
        return sent > STEADY_DATAGRAMS
      },
      { deadlineMs: 3 * DEADLINE_MS, intervalMs: 1000, say: `${cut.name}: traffic goes on` },
    )
    story.t.equal(watch.downs, 0, `${cut.name}: no link went down`)
    story.t.equal(downLinks(story.sites), '', `${cut.name}: none is down`)
    await cut.bringBack()
    await goesOn(story, `after ${cut.name}`)
  }
}

async function collected(before: Promise<number[]>, one: Promise<{ readonly sent: number }>): Promise<number[]> {
  return [...(await before), (await one).sent]
}

async function becomes(now: () => string | Promise<string>, want: string, say: string): Promise<void> {
  let found = ''
  await eventually(
    async () => {
      found = await now()
      return found === want
    },
    { deadlineMs: DEADLINE_MS, say: `${say}: ${found}` },
  )
}

async function goesOn(story: Story, say: string): Promise<void> {
  await untilFlowing(story.callers, say)
  story.t.strictSame(await brokenOf(story.callers), [0, 0], `${say}: no connection is broken`)
}

async function carriesAgain(story: Story, cut: Cut): Promise<void> {
  const before = await cut.carriedBytes()
  await eventually(async () => (await cut.carriedBytes()) - before > CARRIES_BYTES, {
    deadlineMs: DEADLINE_MS,
    say: `${cut.name} carries again`,
  })
  await goesOn(story, `${cut.name} is back`)
}
