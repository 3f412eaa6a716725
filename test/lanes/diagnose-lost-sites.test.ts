/** More of the failure table on plain sites: kernel state that is lost or does not fit, and a path that is narrow. */
import t from 'tap'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { withFaultStory } from '../netns/support/fault-story.ts'
import { LATER_ROUNDS, LOST_ROUNDS, UNADDRESSED_SITES } from '../netns/support/lost-faults.ts'

t.setTimeout(290_000)

t.test('faults of plain sites that lose something', { skip: netnsMissing() ?? false }, async (t) => {
  await withFaultStory(t, temporaryFolder(t), UNADDRESSED_SITES, async (story) => {
    const { paris } = story.world
    paris.export('web', paris.machine('gw1'))
    story.upAll()
    await story.findsNothing()
    for (const rounds of [LOST_ROUNDS, LATER_ROUNDS]) await story.run(rounds)
  })
})
