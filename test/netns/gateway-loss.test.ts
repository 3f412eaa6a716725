/**
 * The node of a gateway is gone at once, on either side, under traffic both ways between two sites with two gateways
 * each: no connection breaks, datagrams go on by the other gateway, and the one that comes back carries again. How long
 * it takes is measured in bench/failover.ts.
 */
import t, { type Test } from 'tap'
import type { Gateway } from '../../model/objects.ts'
import { Caller, answerIn } from '../failover/caller.ts'
import { POD_ADDRESSES, type SiteNode, type TwoSites, withTwoSites } from '../failover/sites.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false
t.setTimeout(240_000 * SLOWNESS)

/** Less than in the bench: other tests run on this machine. */
const LOAD = { flows: 20, pps: 200, connections: 20, byteMs: 100 }
const DEADLINE_MS = 40_000

t.test('the node of a gateway is gone at once', { skip, timeout: 200_000 * SLOWNESS }, (t) =>
  withTwoSites(temporaryFolder(t), async (sites) => {
    for (const pod of Object.values(sites.pods)) await answerIn(pod)
    const { milano, paris } = sites.pods
    const callers = [new Caller(milano, POD_ADDRESSES.paris, LOAD), new Caller(paris, POD_ADDRESSES.milano, LOAD)]
    await Promise.all(callers.map(({ started }) => started))
    await flows(callers, 'at first')
    for (const [site, lane] of [
      ['milano', 0],
      ['paris', 1],
      ['paris', 0],
    ] as const) {
      const gateway = sites.gateways(site)[lane]!
      await gateway.cutOff()
      await othersCarry(sites, gateway)
      await flows(callers, `without ${gateway.port}`)
      t.strictSame(await broken(callers), [0, 0], `${gateway.port} is gone: no connection is broken`)
      await gateway.bringBack()
      await carriesAgain(t, gateway)
      t.strictSame(await broken(callers), [0, 0], `${gateway.port} is back: no connection is broken`)
    }
    await Promise.all(callers.map((caller) => caller.stop()))
  }),
)

/** Waits until nearly all datagrams of a look are answered, and all connections are: for each caller. */
async function flows(callers: readonly Caller[], say: string): Promise<void> {
  let looks = ''
  await eventually(
    async () => {
      const seen = await Promise.all(callers.map((caller) => caller.seen()))
      looks = JSON.stringify(seen)
      return seen.every(({ sent, answered }) => sent > 20 && answered > 0.9 * sent)
    },
    { deadlineMs: DEADLINE_MS, intervalMs: 500, say: `traffic flows ${say}: ${looks}` },
  )
}

async function broken(callers: readonly Caller[]): Promise<number[]> {
  return (await Promise.all(callers.map((caller) => caller.seen()))).map((seen) => seen.broken)
}

/** The worker of the site has left it, and so have the gateways of the other site. */
async function othersCarry({ nodes }: TwoSites, gone: SiteNode): Promise<void> {
  const worker = nodes.find(({ site, name }) => site === gone.site && name === 'worker')!
  await eventually(
    () => {
      const agent = worker.process?.get('RouteAgent', 'worker')
      const used = agent?.kind === 'RouteAgent' ? agent.status?.clusters[0]?.gateways : undefined
      return used !== undefined && !used.includes(gone.name)
    },
    { deadlineMs: DEADLINE_MS, say: `the worker leaves ${gone.port}` },
  )
}

function sentBytes({ process, name }: SiteNode): number {
  const gateway = process?.get('Gateway', name) as Gateway | undefined
  return (gateway?.status?.connections ?? []).reduce((sum, { txBytes }) => sum + txBytes, 0)
}

/** More than its own probes can be. */
async function carriesAgain(t: Test, gateway: SiteNode): Promise<void> {
  const before = sentBytes(gateway)
  await eventually(() => sentBytes(gateway) - before > 200_000, {
    deadlineMs: DEADLINE_MS,
    say: `${gateway.port} carries again`,
  })
  t.pass(`${gateway.port} carries again`)
}
