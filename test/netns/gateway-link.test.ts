/** A link that goes down and comes up again: the lane goes with it at once, and is back with it. */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { introduce } from '../gateway/support/netns-sites.ts'
import { MILANO, PARIS, TOKYO, idOf, msUntilUp, withTwo } from '../gateway/support/two-gateways.ts'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { undisturbed } from '../support/undisturbed.ts'

const skip = netnsMissing() ?? false

for (const far of [PARIS, TOKYO]) {
  t.test(`milano loses its link to ${far.cluster.spec.id}`, { skip, timeout: 120_000 }, async (t) => {
    await withTwo(t, [MILANO, far], async (left, right) => {
      introduce(left, right)
      await msUntilUp(left, right)
      const cut = async (downMs: number): Promise<{ downAfterMs: number; upAfterMs: number }> => {
        await left.site.gateway.exec('ip', ['link', 'set', 'uplink', 'down'])
        const since = performance.now()
        await eventually(() => right.process.stateOf('milano') === 'down', { say: 'down' })
        const downAfterMs = Math.round(performance.now() - since)
        await sleep(downMs)
        await left.site.gateway.exec('ip', ['link', 'set', 'uplink', 'up'])
        await left.site.gateway.exec('ip', ['route', 'replace', 'default', 'via', MILANO.router])
        return { downAfterMs, upAfterMs: await msUntilUp(left, right) }
      }
      for (const downMs of [300, 6000]) {
        const soon = await undisturbed(
          t,
          (timed) => timed(() => cut(downMs)),
          ({ downAfterMs, upAfterMs }) => downAfterMs < 1000 && upAfterMs <= 2000,
        )
        t.ok(soon.downAfterMs < 1000, `down after ${soon.downAfterMs} ms`)
        t.ok(soon.upAfterMs <= 2000, `${idOf(right)}, down for ${downMs} ms: up after ${soon.upAfterMs} ms`)
      }
    })
  })
}
