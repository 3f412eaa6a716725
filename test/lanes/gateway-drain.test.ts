/**
 * A gateway is drained and comes back, on either side, under traffic both ways between two sites with two gateways each:
 * its links stay up, nothing flows over them any more, and no connection breaks. How much is lost is measured in
 * bench/failover.ts.
 */
import t from 'tap'
import { Caller, LIGHT_LOAD, answerIn } from '../failover/caller.ts'
import { carries } from '../failover/carries.ts'
import { linkStates } from '../failover/reported.ts'
import { POD_ADDRESSES, withTwoSites } from '../failover/sites.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false
t.setTimeout(240_000 * SLOWNESS)

const DEADLINE_MS = 40_000

t.test('a gateway is drained', { skip, timeout: 200_000 * SLOWNESS }, (t) =>
  withTwoSites(temporaryFolder(t), async (sites) => {
    for (const pod of Object.values(sites.pods)) await answerIn(pod)
    const { milano, paris } = sites.pods
    const callers = [
      new Caller(milano, POD_ADDRESSES.paris, LIGHT_LOAD),
      new Caller(paris, POD_ADDRESSES.milano, LIGHT_LOAD),
    ]
    await Promise.all(callers.map(({ started }) => started))
    const seen = () => Promise.all(callers.map((caller) => caller.seen()))
    for (const [site, lane] of [
      ['milano', 0],
      ['paris', 1],
      ['paris', 0],
    ] as const) {
      const gateway = sites.gateways(site)[lane]!
      await carries(gateway, true, 'at first')
      await seen()
      sites.drain(gateway, true)
      await carries(gateway, false, 'while it is drained')
      t.strictSame(linkStates(gateway), ['up', 'up'], `${gateway.port} is drained: its links stay`)
      const drained = await seen()
      t.strictSame(brokenOf(drained), [0, 0], `${gateway.port} is drained: no connection is broken`)
      t.comment(
        `${gateway.port} is drained: ${drained.map(({ sent, answered }) => `${sent - answered} of ${sent}`).join(', ')} lost`,
      )
      sites.drain(gateway, false)
      await carries(gateway, true, 'again')
      const back = await seen()
      t.strictSame(brokenOf(back), [0, 0], `${gateway.port} is back: no connection is broken`)
      t.comment(
        `${gateway.port} is back: ${back.map(({ sent, answered }) => `${sent - answered} of ${sent}`).join(', ')} lost`,
      )
    }
    // The last gateways of both sites carry all the same.
    for (const site of ['milano', 'paris'] as const) for (const one of sites.gateways(site)) sites.drain(one, true)
    await eventually(
      async () => {
        const now = await seen()
        return now.every(({ sent, answered }) => sent > 40 && answered > 0.9 * sent)
      },
      { deadlineMs: DEADLINE_MS, intervalMs: 1000, say: 'traffic flows while all gateways are drained' },
    )
    t.strictSame(brokenOf(await seen()), [0, 0], 'all are drained: no connection is broken')
    await Promise.all(callers.map((caller) => caller.stop()))
  }),
)

const brokenOf = (seen: readonly { readonly broken: number }[]): number[] => seen.map(({ broken }) => broken)
