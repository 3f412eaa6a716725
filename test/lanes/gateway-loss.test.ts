/**
 * The node of a gateway disappears at once, on either side, under traffic in both directions between two sites with two
 * gateways each: no connection breaks, datagrams use the other gateway, and the recovered one carries again.
 * bench/failover.ts measures how long it takes.
 */
import t, { type Test } from 'tap'
import { Caller, LIGHT_LOAD, answerIn, brokenOf, untilFlowing } from '../failover/caller.ts'
import { nodeGone } from '../failover/faults.ts'
import { usedBy, workerOf } from '../failover/reported.ts'
import { POD_ADDRESSES, type SiteNode, type TwoSites, withTwoSites } from '../failover/sites.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false
t.setTimeout(240_000 * SLOWNESS)

const DEADLINE_MS = 40_000

t.test('the node of a gateway is gone at once', { skip, timeout: 200_000 * SLOWNESS }, (t) =>
  withTwoSites(temporaryFolder(t), async (sites) => {
    for (const pod of Object.values(sites.pods)) await answerIn(pod)
    const { milano, paris } = sites.pods
    const callers = [
      new Caller(milano, POD_ADDRESSES.paris, LIGHT_LOAD),
      new Caller(paris, POD_ADDRESSES.milano, LIGHT_LOAD),
    ]
    await Promise.all(callers.map(({ started }) => started))
    await untilFlowing(callers, 'at first')
    for (const [site, lane] of [
      ['milano', 0],
      ['paris', 1],
      ['paris', 0],
    ] as const) {
      const gateway = sites.gateways(site)[lane]!
      await gateway.cutOff()
      await othersCarry(sites, gateway)
      await untilFlowing(callers, `without ${gateway.port}`)
      t.strictSame(await brokenOf(callers), [0, 0], `${gateway.port} is gone: no connection is broken`)
      await gateway.bringBack()
      await carriesAgain(t, gateway)
      t.strictSame(await brokenOf(callers), [0, 0], `${gateway.port} is back: no connection is broken`)
    }
    await Promise.all(callers.map((caller) => caller.stop()))
  }),
)

/** Waits until the worker of the site has left the gateway, and so have the gateways of the other site. */
async function othersCarry(sites: TwoSites, gone: SiteNode): Promise<void> {
  const worker = workerOf(sites, gone)
  await eventually(() => usedBy(worker)?.includes(gone.name) === false, {
    deadlineMs: DEADLINE_MS,
    say: `the worker leaves ${gone.port}`,
  })
}

/** Waits until the gateway carries more than its own probes can, which is 50,000 octets. */
async function carriesAgain(t: Test, gateway: SiteNode): Promise<void> {
  const gone = nodeGone(gateway)
  const before = await gone.carriedBytes()
  await eventually(async () => (await gone.carriedBytes()) - before > 100_000, {
    deadlineMs: DEADLINE_MS,
    say: `${gateway.port} carries again`,
  })
  t.pass(`${gateway.port} carries again`)
}
