/** How a lane comes up for the first time when the first calls get no answer. bench:links measures how soon. */
import t from 'tap'
import { report } from '../gateway/support/netns-sites.ts'
import { pings } from '../gateway/support/pod-programs.ts'
import { MILANO, TOKYO, msUntilUp, withTwo } from '../gateway/support/two-gateways.ts'
import { callsAnew, countCalls } from '../gateway/support/wireguard-calls.ts'
import { netnsMissing } from '../support/netns.ts'

const skip = netnsMissing() ?? false

t.setTimeout(300_000)

t.test('the far side learns our key only after we started calling', { skip, timeout: 120_000 }, async (t) => {
  await withTwo(t, [MILANO, TOKYO], async (milano, tokyo, internet) => {
    const calls = await countCalls(internet, tokyo)
    report(milano, tokyo)
    const { sent, inOnePeer } = await callsAnew(tokyo, calls)
    t.ok(sent < inOnePeer, 'tokyo calls at once and not when WireGuard would repeat a call')
    report(tokyo, milano)
    await msUntilUp(milano, tokyo)
    t.match(await pings(milano.site.pod, '244.2.0.5'), '1 received')
  })
})
