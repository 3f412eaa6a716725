/** How soon a lane comes up when the first calls are in vain. */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { introduce, report } from '../gateway/support/netns-sites.ts'
import { MILANO, PARIS, TOKYO, msUntilUp, withTwo } from '../gateway/support/two-gateways.ts'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { type Timed, undisturbed } from '../support/undisturbed.ts'

const skip = netnsMissing() ?? false

t.test('the far side learns our key only after we started calling', { skip, timeout: 120_000 }, async (t) => {
  const callInVain = (timed: Timed): Promise<number> =>
    withTwo(t, [MILANO, TOKYO], async (milano, tokyo) => {
      report(milano, tokyo)
      await eventually(() => tokyo.process.stateOf('milano') === 'connecting', { say: 'tokyo calls' })
      // The time is what is tested: calls of three seconds are lost.
      await sleep(3000)
      report(tokyo, milano)
      return timed(() => msUntilUp(milano, tokyo))
    })
  const ms = await undisturbed(t, callInVain, (ms) => ms <= 2500)
  t.ok(ms <= 2500, `up after ${ms} ms`)
})

t.test('both learn of each other at about the same time', { skip, timeout: 120_000 }, async (t) => {
  const meet = (timed: Timed): Promise<number> =>
    withTwo(t, [MILANO, PARIS], async (milano, paris) => {
      return timed(async () => {
        introduce(milano, paris)
        await eventually(() => milano.process.status !== undefined && paris.process.status !== undefined)
        return msUntilUp(milano, paris)
      })
    })
  const ms = await undisturbed(t, meet, (ms) => ms <= 2500)
  t.ok(ms <= 2500, `up after ${ms} ms`)
})
