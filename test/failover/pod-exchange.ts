/** The exchanges of a pod with others (exchange.ts), and their expected results. */
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Netns } from '../support/netns.ts'
import type { Exchange } from './exchange.ts'
import type { SiteNode } from './sites.ts'

const PROGRAM = join(import.meta.dirname, 'exchange.ts')

/** The callers are so many that the default rate limit would suppress ICMP errors. */
export async function answersExchanges(pod: Netns): Promise<void> {
  await pod.exec('sysctl', ['-qw', 'net.ipv4.icmp_ratelimit=0', 'net.ipv6.icmp.ratelimit=0'])
  const server = pod.spawn(process.execPath, [PROGRAM, 'serve'])
  await new Promise((resolve) => server.stdout?.once('data', resolve))
}

export async function exchange({ pod }: SiteNode, to: readonly string[], call = 'call'): Promise<Exchange[]> {
  return JSON.parse(await pod!.exec(process.execPath, [PROGRAM, call, ...to])) as Exchange[]
}

/** Checks that every exchange that was tried succeeded, for each pod. */
export function sameForAll(t: Test, found: readonly Exchange[], say: string): void {
  const wanted = found.map((one) => Object.fromEntries(Object.keys(one).map((key) => [key, 'ok'])))
  t.strictSame(
    found,
    wanted.map((one, i) => ({ ...one, address: found[i]?.address })),
    say,
  )
}
