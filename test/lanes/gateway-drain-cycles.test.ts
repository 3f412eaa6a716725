/**
 * Gateways of two sites with two gateways each are drained and come back under traffic: their links stay up, no traffic
 * uses them while drained, and no connection breaks. bench/failover.ts measures the loss.
 *
 * The second gateways of both sites are drained twenty times in a row, or fewer on a busy machine. Each time new
 * connections begin while both gateways carry, so that some of them use the second ones and have to move. Each
 * connection and each flow of datagrams is watched separately: none is without an answer for longer than a second, and
 * none breaks. Segments are of full size and joined as the product joins them, so that a path that drops large packets
 * is noticed.
 *
 * Then a gateway of one site is drained alone. Finally all gateways are drained, and they carry all the same.
 */
import t, { type Test } from 'tap'
import { Caller, LIGHT_LOAD, type Load, answerIn, brokenOf, untilFlowing } from '../failover/caller.ts'
import { carriedBytes, carries, untilWays } from '../failover/carries.ts'
import type { Seen } from '../failover/load.ts'
import { linkStates } from '../failover/reported.ts'
import { POD_ADDRESSES, type SiteNode, type TwoSites, withTwoSites } from '../failover/sites.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false
t.setTimeout(300_000 * SLOWNESS)
// The processes of the nodes read this variable (test/routeagent/support/run-node.ts).
process.env['SEALANE_TEST_TUNED'] = '1'

const MOST_CYCLES = 20
/** On a busy machine the test ends after this time, but not before this many cycles. */
const ENOUGH_MS = 70_000
const LEAST_CYCLES = 6
const LONGEST_MS = 1000 * SLOWNESS
/** The limit if wireguard-go did not run in time and its socket lost packets, which TCP sends again. */
const LONGEST_LOSSY_MS = 10 * LONGEST_MS
/** Each write fills two segments and a part of a third. */
const LOAD = { flows: 32, pps: 80, connections: 32, byteMs: 400, bytes: 1000, chunk: 3000 } satisfies Load
/** The octets of the load in a second, in both directions, at the gateways of both sites. */
const SECOND = 4 * ((LOAD.connections * LOAD.chunk * 1000) / LOAD.byteMs + LOAD.pps * LOAD.bytes)

t.test('drain and undrain in cycles', { skip, timeout: 280_000 * SLOWNESS }, (t) =>
  withTwoSites(temporaryFolder(t), async (sites) => {
    await answerIn(sites.pods.paris)
    const second = sites.nodes.filter(({ name }) => name === 'gw1')
    const gateways = sites.nodes.filter(({ name }) => name !== 'worker')
    const drain = (on: boolean): void => second.forEach((gateway) => sites.drain(gateway, on))
    const cycles: Cycle[] = []
    const startMs = performance.now()
    const isEnough = (): boolean => cycles.length >= LEAST_CYCLES && performance.now() - startMs > ENOUGH_MS
    while (cycles.length < MOST_CYCLES && !isEnough()) {
      const before = await overflows(gateways)
      const caller = new Caller(sites.pods.milano, POD_ADDRESSES.paris, LOAD)
      await caller.started
      await carryMore(second, SECOND / 8)
      drain(true)
      await untilWays(sites, 1)
      await carryMore(gateways, SECOND / 4)
      t.strictSame(second.map(linkStates), Array(second.length).fill(['up', 'up']), 'links stay while they are drained')
      drain(false)
      await untilWays(sites, 2)
      // A connection that stalls now would not be noticed in the next cycle, whose connections are new.
      await carryMore(gateways, SECOND)
      cycles.push({ ...(await caller.seen()), overflows: (await overflows(gateways)) - before })
      await caller.stop()
    }
    const bad = cycles.flatMap((cycle, i) => (isGood(cycle) ? [] : [`cycle ${i + 1}: ${words(cycle)}`]))
    t.strictSame(bad, [], `no flow is without an answer for longer than ${LONGEST_MS} ms, and none breaks`)
    for (const cycle of cycles) t.comment(words(cycle))
    await answerIn(sites.pods.milano)
    await oneThenAll(t, sites)
  }),
)

async function oneThenAll(t: Test, sites: TwoSites): Promise<void> {
  const callers = [
    new Caller(sites.pods.milano, POD_ADDRESSES.paris, LIGHT_LOAD),
    new Caller(sites.pods.paris, POD_ADDRESSES.milano, LIGHT_LOAD),
  ]
  await Promise.all(callers.map(({ started }) => started))
  await untilFlowing(callers, 'before the first gateway of paris is drained')
  const gateway = sites.gateways('paris')[0]!
  await carries(gateway, true, 'at first')
  sites.drain(gateway, true)
  await carries(gateway, false, 'while it is drained')
  t.strictSame(linkStates(gateway), ['up', 'up'], 'one is drained: its links stay')
  t.strictSame(await brokenOf(callers), [0, 0], 'one is drained: no connection is broken')
  sites.drain(gateway, false)
  await carries(gateway, true, 'again')
  t.strictSame(await brokenOf(callers), [0, 0], 'it is back: no connection is broken')
  for (const site of ['milano', 'paris'] as const) for (const one of sites.gateways(site)) sites.drain(one, true)
  await untilFlowing(callers, 'while all gateways are drained')
  t.strictSame(await brokenOf(callers), [0, 0], 'all are drained: no connection is broken')
  await Promise.all(callers.map((caller) => caller.stop()))
}

interface Cycle extends Seen {
  /** Packets that arrived at sockets of the gateways whose buffers were full. */
  readonly overflows: number
}

function isGood({ broken, longestGapMs, longestTcpGapMs, overflows }: Cycle): boolean {
  const mostMs = overflows === 0 ? LONGEST_MS : LONGEST_LOSSY_MS
  return broken === 0 && longestGapMs <= mostMs && longestTcpGapMs <= mostMs
}

function words({ broken, longestGapMs, longestTcpGapMs, sent, answered, overflows }: Cycle): string {
  const [udp, tcp] = [longestGapMs, longestTcpGapMs].map(Math.round)
  const lost = `${sent - answered} of ${sent} lost, ${overflows} at sockets`
  return `${broken} broken; longest without an answer: TCP ${tcp} ms, UDP ${udp} ms (${lost})`
}

/** Waits until the gateways have carried this many more octets in total. */
async function carryMore(gateways: readonly SiteNode[], octets: number): Promise<void> {
  const end = (await sum(gateways, carriedBytes)) + octets
  const say = `${gateways.map(({ port }) => port).join(', ')} carry`
  await eventually(async () => (await sum(gateways, carriedBytes)) >= end, { deadlineMs: 40_000, say })
}

/** RcvbufErrors of UDP, as /proc/net/snmp shows it. */
function overflows(gateways: readonly SiteNode[]): Promise<number> {
  return sum(gateways, async ({ netns }) => {
    const [names = [], values = []] = (await netns.exec('cat', ['/proc/net/snmp']))
      .split('\n')
      .filter((line) => line.startsWith('Udp: '))
      .map((line) => line.split(' '))
    return Number(values[names.indexOf('RcvbufErrors')])
  })
}

async function sum(gateways: readonly SiteNode[], of: (gateway: SiteNode) => Promise<number>): Promise<number> {
  return (await Promise.all(gateways.map(of))).reduce((total, one) => total + one, 0)
}
