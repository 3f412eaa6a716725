/**
 * For the guest (test/emulated/gateway-loss.test.ts): two gateways in each of two sites with the kernel's own
 * WireGuard, and one node that loses power under traffic in both directions. The other gateways carry and no connection
 * breaks, over resilient groups; when the node is back, the groups give it its share again. Times under emulation mean
 * nothing, so they are printed and not asserted. test/lanes/gateway-loss.test.ts has more rounds and more traffic, over
 * WireGuard of user space.
 */
import t, { type Test } from 'tap'
import { parseCounters } from '../../kernel/nft/nft-text.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import type { Netns } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { Caller, answerIn } from './caller.ts'
import type { Seen } from './load.ts'
import { POD_ADDRESSES, type SiteNode, type TwoSites, withTwoSites } from './sites.ts'

t.setTimeout(240_000 * SLOWNESS)
/** The reports of six nodes, which read each other's, keep an emulated processor busy, so they come less often. */
process.env['SEALANE_TEST_STATUS_MS'] = '5000'

/** An emulated processor has little time left beside six nodes. */
const LOAD = { flows: 10, pps: 20, connections: 4, byteMs: 200 }
const DEADLINE_MS = 40_000
const LOOK_MS = 1000
/**
 * The number of datagrams and segments over both gateways of a site; a gateway with its share soon forwards as many.
 */
const CARRIES = 20

t.test('the node of a gateway is gone at once', { timeout: 200_000 * SLOWNESS }, (t) =>
  withTwoSites(temporaryFolder(t), async (sites) => {
    said(t, 'all links are up')
    for (const pod of Object.values(sites.pods)) await answerIn(pod)
    const { milano, paris } = sites.pods
    const traffic = new Traffic([
      new Caller(milano, POD_ADDRESSES.paris, LOAD),
      new Caller(paris, POD_ADDRESSES.milano, LOAD),
    ])
    await traffic.flows('at first')
    said(t, 'traffic flows')
    for (const gateway of [...sites.gateways('milano'), ...sites.gateways('paris')]) {
      t.match(await gateway.netns.exec('ip', ['-d', 'link', 'show', 'sealane1']), / wireguard /, gateway.port)
    }
    const gone = sites.gateways('milano')[0]!
    const worker = nodeOf(sites, 'worker')
    await countForwarded(gone.netns)
    await forwards(gone, 'at first')
    t.strictSame(await members(worker.netns), 2, 'the worker has a resilient group of both')

    await traffic.flows('before')
    traffic.takeGaps()
    await gone.cutOff()
    await eventually(async () => (await members(worker.netns)) === 1, {
      deadlineMs: DEADLINE_MS,
      intervalMs: LOOK_MS,
      say: 'the worker leaves it',
    })
    await traffic.flows('without it')
    t.equal(traffic.broken, 0, 'it is gone: no connection is broken')
    said(t, `gone: ${traffic.takeGaps()}`)

    await gone.bringBack()
    await eventually(async () => (await members(worker.netns)) === 2, {
      deadlineMs: DEADLINE_MS,
      intervalMs: LOOK_MS,
      say: 'the worker takes it again',
    })
    said(t, 'both are used')
    await hasItsShare(t, worker.netns)
    await forwards(gone, 'again')
    said(t, 'both carry')
    await traffic.flows('with it again')
    t.equal(traffic.broken, 0, 'it is back: no connection is broken')
    said(t, `back: ${traffic.takeGaps()}`)
    await traffic.stop()
  }),
)

/** Prints the elapsed time, for readers of the log. */
function said(t: Test, text: string): void {
  t.comment(`figures: after ${Math.round(performance.now() / 1000)} s: ${text}`)
}

/** What both callers have seen. */
class Traffic {
  readonly #callers: readonly Caller[]
  #gapMs = 0
  #tcpGapMs = 0
  broken = 0

  constructor(callers: readonly Caller[]) {
    this.#callers = callers
  }

  /** Waits until nearly all datagrams of an interval are answered, for each caller. */
  async flows(say: string): Promise<void> {
    await Promise.all(this.#callers.map(({ started }) => started))
    let looks: readonly Seen[] = []
    await eventually(
      async () => {
        looks = await Promise.all(this.#callers.map((caller) => caller.seen()))
        this.#gapMs = Math.max(this.#gapMs, ...looks.map(({ longestGapMs }) => longestGapMs))
        this.#tcpGapMs = Math.max(this.#tcpGapMs, ...looks.map(({ longestTcpGapMs }) => longestTcpGapMs))
        this.broken = looks.reduce((sum, { broken }) => sum + broken, 0)
        return looks.every(({ sent, answered }) => sent > 10 && answered > 0.9 * sent)
      },
      { deadlineMs: DEADLINE_MS, intervalMs: LOOK_MS, say: `traffic flows ${say}: ${JSON.stringify(looks)}` },
    )
  }

  /** The longest gaps since the last call. */
  takeGaps(): string {
    const text = `longest gap ${Math.round(this.#gapMs)} ms, of TCP ${Math.round(this.#tcpGapMs)} ms, emulated`
    this.#gapMs = 0
    this.#tcpGapMs = 0
    return text
  }

  async stop(): Promise<void> {
    await Promise.all(this.#callers.map((caller) => caller.stop()))
  }
}

function nodeOf({ nodes }: TwoSites, name: string): SiteNode {
  return nodes.find((one) => one.site === 'milano' && one.name === name)!
}

/** The members of the node's only group, which is resilient; 0 while there is none. */
async function members(node: Netns): Promise<number> {
  const line = (await node.exec('ip', ['-d', 'nexthop', 'show'])).split('\n').find((one) => one.includes(' group '))
  const [, group = ''] = / group (\S+) type resilient /.exec(line ?? '') ?? []
  return group === '' ? 0 : group.split('/').length
}

/** Counts the packets that the pods of its site send; probes of gateways are not forwarded. */
function countForwarded(node: Netns): Promise<string> {
  const chain = 'chain look { type filter hook forward priority raw; ip daddr 244.1.0.0/16 counter name pods; }'
  return node.exec('nft', ['-f', '-'], { input: `table ip look { counter pods {}; ${chain}; }` })
}

async function forwards({ netns, port }: SiteNode, say: string): Promise<void> {
  const count = async (): Promise<number> =>
    parseCounters(await netns.exec('nft', ['list', 'counters', 'table', 'ip', 'look'])).get('pods') ?? 0
  const before = await count()
  await eventually(async () => (await count()) - before > CARRIES, {
    deadlineMs: DEADLINE_MS,
    intervalMs: LOOK_MS,
    say: `${port} carries ${say}`,
  })
}

/** Each member has at least a third of the buckets: idle ones move at once, the others by the unbalanced timer. */
async function hasItsShare(t: Test, node: Netns): Promise<void> {
  const shares = await eventually(
    async () => {
      const buckets = (await node.exec('ip', ['nexthop', 'bucket', 'show'])).trim().split('\n')
      const counts = new Map<string, number>()
      for (const [, hop = ''] of buckets.flatMap((line) => [/ nhid (\d+)/.exec(line) ?? []])) {
        counts.set(hop, (counts.get(hop) ?? 0) + 1)
      }
      const all = [...counts.values()]
      return all.length === 2 && Math.min(...all) * 3 >= buckets.length && all
    },
    { deadlineMs: DEADLINE_MS, intervalMs: LOOK_MS, say: 'both have their share of the buckets' },
  )
  t.pass(`buckets: ${shares.join(' and ')}`)
}
