/**
 * The standard over two clusters that a user has joined: what the published suite asks (T01 to T27 in docs/mcs.md), in
 * our own words, and what no suite asks. Some stories go on where an earlier one ended.
 */
import t, { type Test } from 'tap'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { exportStory, withdrawStory } from './mcs/export-stories.ts'
import { aboutStory, namespaceStory, repairStory, sliceStory, stableStory } from './mcs/object-stories.ts'
import { type Shop, openShop } from './mcs/shop.ts'
import { localStory, nameStory, reachStory } from './mcs/traffic-stories.ts'
import { startJoinedClusters } from './support/joined-clusters.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'
import { FLAT } from './support/two-clusters.ts'

t.setTimeout(900_000)

t.test('the standard over two joined clusters', { skip: kubeletMissing() ?? false }, async (t) => {
  const joined = await startJoinedClusters({ directory: temporaryFolder(t), rows: FLAT })
  t.teardown(() => joined.stop())
  const shop = await openShop(joined)
  for (const [name, story] of Object.entries(STORIES)) await t.test(name, (t) => story(t, shop))
})

const STORIES: Readonly<Record<string, (t: Test, shop: Shop) => Promise<void>>> = {
  'About: each cluster knows its name and its clusterset': aboutStory,
  'each kind of export becomes what the standard says, in both clusters': exportStory,
  'the import stays until the last export goes': withdrawStory,
  'who reaches what, by TCP and UDP': reachStory,
  'a local Service of the same name is not impacted': localStory,
  'names: addresses, SRV, hostnames, and what has no name': nameStory,
  'slices of an import, in both clusters': sliceStory,
  'what somebody edits or deletes comes back': repairStory,
  'the clusterset IP stays while exporters and ports change': stableStory,
  'namespaces: no import without one': namespaceStory,
}
