/**
 * The standard over joined clusters, between the first two: the checks of the published suite (T01 to T27 in
 * docs/mcs.md), in our own words, and checks that no suite has. Some parts continue where an earlier one ended.
 */
import type { Test } from 'tap'
import { exportStory, withdrawStory } from '../mcs/export-stories.ts'
import { aboutStory, namespaceStory, repairStory, sliceStory, stableStory } from '../mcs/object-stories.ts'
import { type Shop, openShop } from '../mcs/shop.ts'
import { localStory, nameStory, reachStory } from '../mcs/traffic-stories.ts'
import type { JoinedClusters } from '../support/joined-clusters.ts'

export async function mcsStandard(t: Test, joined: JoinedClusters): Promise<void> {
  const shop = await openShop(joined)
  for (const [name, part] of Object.entries(PARTS)) await t.test(name, (t) => part(t, shop))
}

const PARTS: Readonly<Record<string, (t: Test, shop: Shop) => Promise<void>>> = {
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
