/** Whether a gateway carries more than its own probes, by what the kernel counts. */
import { eventually } from '../support/eventually.ts'
import type { SiteNode } from './sites.ts'

/** What the probes of both links of a gateway are in a second, at the most. */
const PROBE_BYTES = 4000
/** Five datagrams of each flow. */
const LOOK_MS = 2000

/** Waits until it carries much more than its own probes, or no more than these. */
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

/** Octets both ways. What the gateway itself reports of them is as old as its heartbeat. */
async function carriedBytes({ netns }: SiteNode): Promise<number> {
  const counters = [0, 1].flatMap((lane) => ['rx', 'tx'].map((way) => `sealane${lane}/statistics/${way}_bytes`))
  const files = counters.map((counter) => `/sys/class/net/${counter}`)
  const text = await netns.exec('cat', files)
  return text
    .trim()
    .split('\n')
    .map(Number)
    .reduce((sum, one) => sum + one)
}
