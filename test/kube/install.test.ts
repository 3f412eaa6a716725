/**
 * Two clusters without Sealane, and what a platform engineer does with them. Between the stories everything is
 * uninstalled, and nothing may be left.
 */
import t from 'tap'
import { firstTry } from './install/first-try.ts'
import { fromNothing } from './install/from-nothing.ts'
import { secondJoin } from './install/second-join.ts'
import { type World, startWorld, takenOut } from './support/installing-world.ts'
import { type Story, chosenStories } from './support/stories.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'

t.setTimeout(1_780_000)

/** The last story leaves most behind: CRDs of others, and objects that Helm owns. */
const STORIES: Readonly<Record<string, Story<World>>> = {
  'first-try': firstTry,
  'from-nothing': fromNothing,
  'second-join': secondJoin,
}

t.test('two bare clusters', { skip: kubeletMissing() ?? false, timeout: 1_780_000 }, async (t) => {
  const chosen = chosenStories(STORIES)
  let world = await startWorld(t)
  for (const [i, [name, story]] of chosen.entries()) {
    await t.test(name, (t) => story(t, world))
    if (i === chosen.length - 1) return
    await t.test(`after ${name}`, async (t) => {
      world = await takenOut(t, world)
    })
  }
})
