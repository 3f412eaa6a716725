/** A link that goes down and comes up again: the lane goes with it at once, and is back with it. */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { introduce } from '../gateway/support/netns-sites.ts'
import { MILANO, PARIS, TOKYO, idOf, msUntilUp, withTwo } from '../gateway/support/two-gateways.ts'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'

const skip = netnsMissing() ?? false

for (const far of [PARIS, TOKYO]) {
  t.test(`milano loses its link to ${far.cluster.spec.id}`, { skip, timeout: 60_000 }, async (t) => {
    await withTwo(t, [MILANO, far], async (left, right) => {
      introduce(left, right)
      await msUntilUp(left, right)
      for (const downMs of [300, 6000]) {
        await left.site.gateway.exec('ip', ['link', 'set', 'uplink', 'down'])
        const cut = performance.now()
        await eventually(() => right.process.stateOf('milano') === 'down', { say: 'down' })
        const noticed = Math.round(performance.now() - cut)
        t.ok(noticed < 1000, `down after ${noticed} ms`)
        await sleep(downMs)
        await left.site.gateway.exec('ip', ['link', 'set', 'uplink', 'up'])
        await left.site.gateway.exec('ip', ['route', 'replace', 'default', 'via', MILANO.router])
        const ms = await msUntilUp(left, right)
        t.ok(ms <= 2000, `${idOf(right)}, down for ${downMs} ms: up after ${ms} ms`)
      }
    })
  })
}
