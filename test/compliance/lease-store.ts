/** The suite for every LeaseStore. Several processes write a Lease, and the slower one is refused. */
import type { Test } from 'tap'
import type { LeaseStore, StoredLease } from '../../kubeapi/cluster-api.ts'
import { failure } from '../support/failure.ts'

const { signal } = new AbortController()
const NAME = 'sealane-lane-0'

/** Returns a Lease of 15 s that has not been written yet. */
export function newLease(holderIdentity: string, name = NAME): StoredLease {
  return {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: { name },
    spec: { holderIdentity, leaseDurationSeconds: 15 },
  }
}

/** Returns the Lease that was read, with another holder. */
export function heldBy(lease: StoredLease | undefined, holderIdentity: string): StoredLease {
  if (lease === undefined) throw new Error('there is no Lease')
  return { ...lease, spec: { ...lease.spec, holderIdentity } }
}

/**
 * `open` returns a function that gives the view of one more process. All views share the same Leases, and there are
 * none at first.
 */
export function leaseStoreCompliance(t: Test, open: (t: Test) => Promise<() => Promise<LeaseStore>>): void {
  t.test('made once, replaced in turn', async (t) => {
    const another = await open(t)
    const [a, b, c] = [await another(), await another(), await another()]
    t.equal(await a.read(NAME, signal), undefined)
    const made = await a.write(newLease('a'), signal)
    t.equal(made.metadata.namespace, 'sealane-system', 'in our own namespace')
    t.match(await failure(b.write(newLease('b'), signal)), { code: 'Conflict' }, 'made by two')
    const [seenByB, seenByC] = [await b.read(NAME, signal), await c.read(NAME, signal)]
    t.equal(seenByB?.spec?.holderIdentity, 'a')
    const annotations = { 'sealane.io/handover': 'drain' }
    const offered = heldBy(seenByB, 'b')
    await b.write({ ...offered, metadata: { ...offered.metadata, annotations } }, signal)
    t.match(await failure(c.write(heldBy(seenByC, 'c'), signal)), { code: 'Conflict' }, 'too late')
    const now = await c.read(NAME, signal)
    t.match(now, { spec: { holderIdentity: 'b' }, metadata: { annotations } })
  })

  t.test('what a write gives can be written again, and what was written before it cannot', async (t) => {
    const store = await (await open(t))()
    const first = await store.write(newLease('a'), signal)
    const second = await store.write(heldBy(first, 'b'), signal)
    t.same(await store.read(NAME, signal), second)
    t.match(await failure(store.write(heldBy(first, 'c'), signal)), { code: 'Conflict' })
    t.equal((await store.write(heldBy(second, ''), signal)).spec?.holderIdentity, '', 'nobody has it')
  })

  t.test('of many that write at once one wins, each time', async (t) => {
    const another = await open(t)
    const stores = await Promise.all(Array.from({ length: 8 }, another))
    let lease: StoredLease | undefined
    for (let round = 0; round < 5; round += 1) {
      const seen = lease
      const writes = stores.map((store, i) => {
        const holder = `node-${round}-${i}`
        return store.write(seen === undefined ? newLease(holder) : heldBy(seen, holder), signal)
      })
      const ends = await Promise.allSettled(writes)
      const won = ends.flatMap((end) => (end.status === 'fulfilled' ? [end.value] : []))
      t.equal(won.length, 1, `round ${round}`)
      for (const end of ends) if (end.status === 'rejected') t.match(end.reason, { code: 'Conflict' })
      lease = won[0]
      for (const store of stores) t.same(await store.read(NAME, signal), lease)
    }
  })

  t.test('names do not meet, and who is stopped gets no answer', async (t) => {
    const store = await (await open(t))()
    await store.write(newLease('a'), signal)
    await store.write(newLease('b', 'sealane-agent'), signal)
    t.equal((await store.read(NAME, signal))?.spec?.holderIdentity, 'a')
    t.equal((await store.read('sealane-agent', signal))?.spec?.holderIdentity, 'b')
    t.equal(await store.read('sealane-lane-1', signal), undefined)
    const stopped = AbortSignal.abort(new Error('stopped'))
    await t.rejects(store.read(NAME, stopped))
    await t.rejects(store.write(newLease('c', 'sealane-lane-1'), stopped))
    t.equal(await store.read('sealane-lane-1', signal), undefined, 'and nothing was written')
  })
}
