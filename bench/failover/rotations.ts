/** The cost of key rotations of gateways, with other gateways that carry and without. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Caller } from '../../test/failover/caller.ts'
import type { SiteNode, TwoSites } from '../../test/failover/sites.ts'

/** The time for a new key to be announced, and used once all far ends know it. */
const ROTATE_MS = 10_000
const CALM_MS = 5000

/** Datagrams without an answer at each rotation. */
export async function rotated(
  callers: readonly Caller[],
  gateways: readonly SiteNode[],
  rotate: (gateway: SiteNode, request: string) => void,
): Promise<number[]> {
  const seen = () => Promise.all(callers.map((caller) => caller.seen()))
  const lost: number[] = []
  await seen()
  for (const [i, gateway] of gateways.entries()) {
    rotate(gateway, `request ${i}`)
    await sleep(ROTATE_MS)
    const all = await seen()
    lost.push(all.reduce((sum, { sent, answered }) => sum + sent - answered, 0))
    const broken = all.reduce((sum, one) => sum + one.broken, 0)
    process.stderr.write(`${gateway.port} has a new key: ${lost.at(-1)} lost, ${broken} broken since the start\n`)
  }
  return lost
}

/** One gateway on each side, so that no other can carry. */
export async function rotatedAlone({ gateways, rotate }: TwoSites, callers: readonly Caller[]): Promise<number[]> {
  await Promise.all(callers.map(({ started }) => started))
  await sleep(CALM_MS)
  const both = [...gateways('milano'), ...gateways('paris')]
  return rotated(callers, [...both, ...both], rotate)
}
