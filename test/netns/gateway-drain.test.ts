/**
 * A gateway is drained and comes back, on either side, under traffic both ways between two sites with two gateways each:
 * its links stay up, nothing flows over them any more, and no connection breaks. How much is lost is measured in
 * bench/failover.ts.
 */
import t from 'tap'
import type { Gateway } from '../../model/objects.ts'
import { Caller, answerIn } from '../failover/caller.ts'
import { POD_ADDRESSES, type SiteNode, withTwoSites } from '../failover/sites.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false
t.setTimeout(240_000 * SLOWNESS)

/** Less than in the bench: other tests run on this machine. */
const LOAD = { flows: 20, pps: 200, connections: 20, byteMs: 100 }
const DEADLINE_MS = 40_000

t.test('a gateway is drained', { skip, timeout: 200_000 * SLOWNESS }, (t) =>
  withTwoSites(temporaryFolder(t), async (sites) => {
    for (const pod of Object.values(sites.pods)) await answerIn(pod)
    const { milano, paris } = sites.pods
    const callers = [new Caller(milano, POD_ADDRESSES.paris, LOAD), new Caller(paris, POD_ADDRESSES.milano, LOAD)]
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
        return now.every(({ sent, answered }) => sent > 100 && answered > 0.9 * sent)
      },
      { deadlineMs: DEADLINE_MS, intervalMs: 1000, say: 'traffic flows while all gateways are drained' },
    )
    t.strictSame(brokenOf(await seen()), [0, 0], 'all are drained: no connection is broken')
    await Promise.all(callers.map((caller) => caller.stop()))
  }),
)

const brokenOf = (seen: readonly { readonly broken: number }[]): number[] => seen.map(({ broken }) => broken)

function statusOf({ process, name }: SiteNode): Gateway['status'] {
  return (process?.get('Gateway', name) as Gateway | undefined)?.status
}

function linkStates(gateway: SiteNode): string[] {
  return (statusOf(gateway)?.connections ?? []).map(({ state }) => state)
}

/** Octets both ways. */
function carriedBytes(gateway: SiteNode): number {
  return (statusOf(gateway)?.connections ?? []).reduce((sum, { txBytes, rxBytes }) => sum + txBytes + rxBytes, 0)
}

/** What its own probes of both links are in a second, at the most. */
const PROBE_BYTES = 4000
/** More than one heartbeat: bytes are written with it. */
const LOOK_MS = 6000

/** Waits until it carries much more than its own probes, or no more than these. */
async function carries(gateway: SiteNode, much: boolean, say: string): Promise<void> {
  let last = { bytes: carriedBytes(gateway), atMs: performance.now() }
  let perSecond = NaN
  await eventually(
    () => {
      const now = { bytes: carriedBytes(gateway), atMs: performance.now() }
      if (now.bytes === last.bytes || now.atMs - last.atMs < LOOK_MS) return false
      perSecond = ((now.bytes - last.bytes) / (now.atMs - last.atMs)) * 1000
      last = now
      return much ? perSecond > 2 * PROBE_BYTES : perSecond < PROBE_BYTES
    },
    { deadlineMs: DEADLINE_MS, say: `${gateway.port} carries ${much ? 'much' : 'nothing'} ${say}: ${perSecond}` },
  )
}
