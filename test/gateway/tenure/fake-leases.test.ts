/** The fake Leases of these tests behave like the real ones. */
import t from 'tap'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { leaseStoreCompliance } from '../../compliance/lease-store.ts'
import { FakeLeases } from '../support/fake-leases.ts'

leaseStoreCompliance(t, (t) => {
  const objects = new MemoryApi({ clock: new SystemClock() })
  t.teardown(() => objects.close())
  const leases = new FakeLeases(objects)
  return Promise.resolve(() => Promise.resolve(leases))
})
