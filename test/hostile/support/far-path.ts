/** Milano and Paris with a long delay between them, for kernels without a qdisc that delays. */
import { join } from 'node:path'
import type { Test } from 'tap'
import type { SiteInit } from '../../gateway/support/netns-sites.ts'
import { introduce } from '../../gateway/support/netns-sites.ts'
import { MILANO, PARIS, type Running, msUntilUp, withTwo } from '../../gateway/support/two-gateways.ts'
import { eventually } from '../../support/eventually.ts'
import type { Netns } from '../../support/netns.ts'

/** Each gateway is called at the router in front of the other, which forwards the packets. */
const FAR_MILANO: SiteInit = { ...MILANO, lane: { lane: 0, publicAddress: PARIS.router } }
const FAR_PARIS: SiteInit = { ...PARIS, lane: { lane: 0, publicAddress: MILANO.router } }

/** The router forwards nothing else between the two. */
const NO_SHORT_WAY = `table ip farpath {
  chain forward { type filter hook forward priority filter; policy drop; }
}`

/** Starts both gateways, and runs the story once the lane is up. */
export function withFarPath(
  t: Test,
  roundTripMs: number,
  story: (milano: Running, paris: Running, internet: Netns) => Promise<void>,
): Promise<void> {
  return withTwo(t, [FAR_MILANO, FAR_PARIS], async (milano, paris, internet) => {
    await internet.exec('nft', ['-f', '-'], { input: NO_SHORT_WAY })
    const places = [MILANO, PARIS].flatMap(({ router, address }) => [`${router}:4500`, `${address}:4500`])
    const program = join(import.meta.dirname, 'delaying-relay.ts')
    const relay = internet.spawn(process.execPath, [program, String(roundTripMs / 2), ...places])
    let said = ''
    relay.stdout?.on('data', (chunk: Buffer) => (said += chunk.toString()))
    relay.stderr?.on('data', (chunk: Buffer) => (said += chunk.toString()))
    await eventually(() => said.startsWith('ready'), { say: `the relay listens: ${said}` })
    introduce(milano, paris)
    await msUntilUp(milano, paris)
    await story(milano, paris, internet)
  })
}
