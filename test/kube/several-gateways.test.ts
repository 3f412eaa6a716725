/**
 * Several gateways of one cluster, while two others call it twenty times a second: first one is active and one is a
 * standby, then a join makes both active. There is one world of three clusters, because it takes minutes to make.
 */
import t from 'tap'
import { activeStories } from './gateways/active-stories.ts'
import { ONE_AND_A_STANDBY, standbyStories } from './gateways/standby-stories.ts'
import { startGatewayWorld } from './support/gateway-world.ts'
import { refusedByApiServer } from './support/pod-logs.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'

t.setTimeout(1_750_000)

t.test('several gateways', { skip: kubeletMissing() ?? false, timeout: 1_750_000 }, async (t) => {
  const world = await startGatewayWorld(t, ONE_AND_A_STANDBY)
  await t.test('one is active, and one stands by', (t) => standbyStories(t, world))
  await t.test('two are active at once', (t) => activeStories(t, world))
  for (const calls of world.calls) await calls.stop()
  for (const site of [world.c2, world.c3]) {
    t.strictSame(await refusedByApiServer(site.api, 'sealane-system'), [], `${site.name}: nothing was refused`)
  }
})
