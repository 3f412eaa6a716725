/** The nodes whose clean-up `sealane leave` waits for. */
import t from 'tap'
import { nodesLeft } from '../../../../cli/cluster/leave/leave-cluster.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'
import { nodeObject } from '../../../support/objects/node-objects.ts'

const { signal } = new AbortController()
const node = (name: string) => ({ ...nodeObject(name) })
const part = (kind: 'Gateway' | 'RouteAgent', name: string) => ({
  apiVersion: 'sealane.io/v1alpha1',
  kind,
  metadata: { name },
})

t.test('nodes that still have something of Sealane are waited for, those that are no more are not', async (t) => {
  const admin = new MemoryAdmin([
    node('a'),
    part('RouteAgent', 'a'),
    part('RouteAgent', 'gone'),
    part('Gateway', 'gone'),
  ])
  t.strictSame(await nodesLeft(admin, signal), { what: 'routeagent on a', why: undefined })
  await admin.remove({ apiVersion: 'sealane.io/v1alpha1', kind: 'RouteAgent', name: 'a' })
  t.equal(await nodesLeft(admin, signal), undefined)
})
