/** Leases that several write: the slower one is refused, and a foreign field stays. */
import t from 'tap'
import type { LeaseStore, StoredLease } from '../../../kubeapi/lease-store.ts'
import { failure } from '../../support/failure.ts'
import { fakeApiServer } from '../../support/fake-api-server.ts'
import { openFake } from './kube-site.ts'

const { signal } = new AbortController()

const lease = (holderIdentity: string, metadata: Partial<StoredLease['metadata']> = {}): StoredLease => ({
  apiVersion: 'coordination.k8s.io/v1',
  kind: 'Lease',
  metadata: { name: 'sealane-lane-0', ...metadata },
  spec: { holderIdentity, leaseDurationSeconds: 15 },
})

t.test('made once, replaced in turn', async (t) => {
  const server = await fakeApiServer(t)
  const stores: LeaseStore[] = []
  for (let i = 0; i < 3; i += 1) stores.push((await openFake(t, server)).api.leases)
  const [a, b, c] = stores as [LeaseStore, LeaseStore, LeaseStore]
  t.equal(await a.read('sealane-lane-0', signal), undefined)
  const made = await a.write(lease('a'), signal)
  t.equal(made.metadata.namespace, 'sealane-system', 'in our own namespace')
  t.match(await failure(b.write(lease('b'), signal)), { code: 'Conflict' }, 'made by two')
  const [seenByB, seenByC] = [await b.read('sealane-lane-0', signal), await c.read('sealane-lane-0', signal)]
  t.equal(seenByB?.spec?.holderIdentity, 'a')
  const annotations = { 'sealane.io/handover': 'drain' }
  await b.write({ ...lease('b'), metadata: { ...(seenByB?.metadata ?? { name: '' }), annotations } }, signal)
  const late = { ...lease('c'), metadata: seenByC?.metadata ?? { name: '' } }
  t.match(await failure(c.write(late, signal)), { code: 'Conflict' }, 'too late')
  const now = await c.read('sealane-lane-0', signal)
  t.match(now, { spec: { holderIdentity: 'b' }, metadata: { annotations } })
})
