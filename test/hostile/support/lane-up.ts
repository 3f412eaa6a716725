/** Two gateways in network namespaces of their own, attacked once the lane between them is up. */
import type { Test } from 'tap'
import { type SiteInit, introduce } from '../../gateway/support/netns-sites.ts'
import { type Running, msUntilUp, withTwo } from '../../gateway/support/two-gateways.ts'
import { type Netns, netnsMissing } from '../../support/netns.ts'

export type LaneStory = (left: Running, right: Running, internet: Netns) => Promise<void>

/** Introduces the two gateways to each other, and runs the story once both report the lane as up. */
export function withLaneUp(t: Test, sites: readonly [SiteInit, SiteInit], story: LaneStory): Promise<void> {
  return withTwo(t, sites, async (left, right, internet) => {
    introduce(left, right)
    await msUntilUp(left, right)
    await story(left, right, internet)
  })
}

/** withLaneUp() for all attacks of a file; without network namespaces it is one skipped test. */
export async function attackLane(t: Test, sites: readonly [SiteInit, SiteInit], story: LaneStory): Promise<void> {
  const missing = netnsMissing()
  if (missing === undefined) await withLaneUp(t, sites, story)
  else t.test('lanes', { skip: missing }, () => undefined)
}
