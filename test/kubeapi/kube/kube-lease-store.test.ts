/** Leases of a cluster, on a fake API server. */
import t from 'tap'
import { leaseStoreCompliance } from '../../compliance/lease-store.ts'
import { fakeApiServer } from '../../support/fake-api-server.ts'
import { openFake } from './kube-site.ts'

leaseStoreCompliance(t, async (t) => {
  const server = await fakeApiServer(t)
  return async () => (await openFake(t, server)).api.leases
})
