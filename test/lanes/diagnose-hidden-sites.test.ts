/**
 * More of the failure table on plain sites: two sites that cannot be called, clocks that are days off, dead gateways.
 */
import t from 'tap'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import type { Undo } from '../netns/support/fault.ts'
import { type FaultStory, withFaultStory } from '../netns/support/fault-story.ts'
import { DEAD_ROUNDS, HIDDEN, UNADDRESSED_SITES, hide } from '../netns/support/lost-faults.ts'

t.setTimeout(290_000)

t.test(
  'faults of plain sites that are hidden, in another time, or dead',
  { skip: netnsMissing() ?? false },
  async (t) => {
    let seen: Undo | undefined
    const story = async (one: FaultStory): Promise<void> => {
      one.upAll()
      await one.finds([HIDDEN])
      await seen?.()
      await one.findsNothing()
      await one.run(DEAD_ROUNDS)
    }
    await withFaultStory(t, temporaryFolder(t), UNADDRESSED_SITES, story, {
      prepare: async (internet) => (seen = await hide(internet)),
    })
  },
)
