/** How soon a lane comes up when the first calls are in vain. */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { introduce, tell } from '../gateway/support/netns-sites.ts'
import { MILANO, PARIS, TOKYO, msUntilUp, withTwo } from '../gateway/support/two-gateways.ts'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'

const skip = netnsMissing() ?? false

t.test('the far side learns our key only after we started calling', { skip, timeout: 60_000 }, async (t) => {
  await withTwo(t, [MILANO, TOKYO], async (milano, tokyo) => {
    tell(milano, tokyo)
    await eventually(() => tokyo.process.stateOf('milano') === 'connecting', { say: 'tokyo calls' })
    // The time is what is tested: calls of three seconds are lost.
    await sleep(3000)
    tell(tokyo, milano)
    const ms = await msUntilUp(milano, tokyo)
    t.ok(ms <= 2500, `up after ${ms} ms`)
  })
})

t.test('both learn of each other at about the same time', { skip, timeout: 60_000 }, async (t) => {
  await withTwo(t, [MILANO, PARIS], async (milano, paris) => {
    introduce(milano, paris)
    t.ok(await eventually(() => milano.process.status !== undefined && paris.process.status !== undefined))
    const ms = await msUntilUp(milano, paris)
    t.ok(ms <= 2500, `up after ${ms} ms`)
  })
})
