/**
 * Gateways on nodes that fail, on two joined clusters: one becomes silent, and returns; then the label moves between
 * nodes, one of which is lost; finally all leave. There is one world, because it takes minutes to make.
 */
import t from 'tap'
import { movingStories } from './gateways/moving-stories.ts'
import { startNodeWorld } from './gateways/node-world.ts'
import { staleStories } from './gateways/stale-stories.ts'
import { refusedByApiServer } from './support/pod-logs.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'

t.setTimeout(1_750_000)

t.test('nodes live and die', { skip: kubeletMissing() ?? false, timeout: 1_750_000 }, async (t) => {
  const world = await startNodeWorld(t)
  for (const { name, api } of [world.there, world.here]) {
    t.strictSame(await refusedByApiServer(api, 'sealane-system'), [], `${name}: nothing was refused`)
  }
  await t.test('a gateway stops to tell', (t) => staleStories(t, world))
  t.strictSame(await refusedByApiServer(world.there.api, 'sealane-system'), [], 'nothing was refused')
  await t.test('nodes come and go', (t) => movingStories(t, world))
})
