/** The exchanges of a pod with others (exchange.ts), and what has to come of them. */
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Netns } from '../support/netns.ts'
import type { Exchange } from './exchange.ts'
import type { SiteNode } from './sites.ts'

const PROGRAM = join(import.meta.dirname, 'exchange.ts')

/** So many callers at once are more than ICMP errors are sent for by default. */
export async function answersExchanges(pod: Netns): Promise<void> {
  await pod.exec('sysctl', ['-qw', 'net.ipv4.icmp_ratelimit=0', 'net.ipv6.icmp.ratelimit=0'])
  const server = pod.spawn(process.execPath, [PROGRAM, 'serve'])
  await new Promise((resolve) => server.stdout?.once('data', resolve))
}

export async function exchange({ pod }: SiteNode, to: readonly string[], call = 'call'): Promise<Exchange[]> {
  return JSON.parse(await pod!.exec(process.execPath, [PROGRAM, call, ...to])) as Exchange[]
}

/** All that was tried of each has come about. */
export function sameForAll(t: Test, found: readonly Exchange[], say: string): void {
  const wanted = found.map((one) => Object.fromEntries(Object.keys(one).map((key) => [key, 'ok'])))
  t.strictSame(
    found,
    wanted.map((one, i) => ({ ...one, address: found[i]?.address })),
    say,
  )
}
