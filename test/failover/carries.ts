/**
 * Whether a gateway carries more than its own probes, by the counters of the kernel, and over how many gateways traffic
 * is routed.
 */
import { eventually } from '../support/eventually.ts'
import type { SiteNode, TwoSites } from './sites.ts'

/** The most octets that the probes of both links of a gateway take in a second. */
const PROBE_BYTES = 4000
/** The interval of five datagrams of each flow. */
const LOOK_MS = 2000

/** Waits until the gateway carries much more than its own probes, or no more than these. */
export async function carries(gateway: SiteNode, much: boolean, say: string): Promise<void> {
  let last = { bytes: await carriedBytes(gateway), atMs: performance.now() }
  await eventually(
    async () => {
      const now = { bytes: await carriedBytes(gateway), atMs: performance.now() }
      if (now.atMs - last.atMs < LOOK_MS) return false
      const perSecond = ((now.bytes - last.bytes) / (now.atMs - last.atMs)) * 1000
      last = now
      if (much ? perSecond > 2 * PROBE_BYTES : perSecond < PROBE_BYTES) return true
      throw new Error(`${Math.round(perSecond)} octets a second`)
    },
    { deadlineMs: 40_000, intervalMs: 500, say: `${gateway.port} carries ${much ? 'much' : 'nothing'} ${say}` },
  )
}

/**
 * Waits until the workers and the first gateways have this many next hops to the other site. Second gateways may be
 * drained.
 */
export async function untilWays({ nodes }: TwoSites, count: number): Promise<void> {
  const rest = nodes.filter(({ name }) => name !== 'gw1')
  await eventually(
    async () => {
      const ways = await Promise.all(rest.map(waysOf))
      if (ways.every((one) => one === count)) return true
      throw new Error(ways.join(' '))
    },
    { deadlineMs: 60_000, intervalMs: 200, say: `${count} ways of each node` },
  )
}

/** The number of members of the largest group. */
async function waysOf({ netns }: SiteNode): Promise<number> {
  const listed = JSON.parse(await netns.exec('ip', ['-j', 'nexthop', 'show'])) as { group?: readonly unknown[] }[]
  return Math.max(0, ...listed.map(({ group = [] }) => group.length))
}

/** The octets in both directions by the kernel's counters, which are newer than the gateway's own report. */
export async function carriedBytes({ netns }: SiteNode): Promise<number> {
  const counters = [0, 1].flatMap((lane) => ['rx', 'tx'].map((way) => `sealane${lane}/statistics/${way}_bytes`))
  const files = counters.map((counter) => `/sys/class/net/${counter}`)
  const text = await netns.exec('cat', files)
  return text
    .trim()
    .split('\n')
    .map(Number)
    .reduce((sum, one) => sum + one)
}
