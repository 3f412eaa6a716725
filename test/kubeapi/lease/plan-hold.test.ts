/** What a process reads from a Lease, and what it writes. Processes of other releases read the same objects. */
import t from 'tap'
import type { StoredLease } from '../../../kubeapi/cluster-api.ts'
import {
  type HoldEvent,
  type HoldState,
  type LeaseTerms,
  candidatePauseMs,
  holdAfter,
  isRenewalDue,
  knownIn,
  leaseAfter,
  timeToRenewMs,
  whyVacant,
  writtenIn,
} from '../../../kubeapi/lease/plan-hold.ts'

const FACTS = { identity: 'a', unstatedMs: 15_000 }
const NOW = Date.parse('2026-01-01T00:00:00Z')
const NOW_TEXT = '2026-01-01T00:00:00.000000Z'
const EARLIER = '2025-12-31T23:59:00.000000Z'

function leaseOf(holderIdentity: string, renewTime = EARLIER): StoredLease {
  return {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: { name: 'l', resourceVersion: '7', annotations: { kept: 'yes' } },
    spec: { holderIdentity, leaseDurationSeconds: 10, acquireTime: EARLIER, renewTime, leaseTransitions: 3 },
  }
}

const UNREAD: HoldState = { is: 'unread', writtenMs: undefined }
const read = (lease: StoredLease | undefined, nowMs: number): HoldEvent => ({ is: 'read', lease, nowMs })
const wrote = (lease: StoredLease, nowMs: number): HoldEvent => ({ is: 'written', lease, nowMs })
const after = (...events: readonly HoldEvent[]): HoldState =>
  events.reduce<HoldState>((state, event) => holdAfter(state, event, FACTS), UNREAD)

t.test('the state follows what was read and written', async (t) => {
  const rows: readonly (readonly [want: HoldState['is'], ...events: readonly HoldEvent[]])[] = [
    ['unread'],
    ['absent', read(undefined, 1)],
    ['free', read(leaseOf(''), 1)],
    ['free', read({ ...leaseOf(''), spec: {} }, 1)],
    ['others', read(leaseOf('b'), 1)],
    ['own', read(leaseOf('a'), 1)],
    ['own', read(leaseOf('b'), 1), wrote(leaseOf('a'), 2)],
    ['free', wrote(leaseOf('a'), 2), wrote(leaseOf(''), 3)],
    ['unread', read(leaseOf('b'), 1), { is: 'forgotten' }],
  ]
  for (const [want, ...events] of rows) t.equal(after(...events).is, want, events.map(({ is }) => is).join())
})

t.test('a Lease lapses when this process saw no change for its duration', async (t) => {
  const seen = after(read(leaseOf('b'), 1000), read(leaseOf('b'), 9000))
  t.equal(whyVacant(knownIn(seen), 10_999), undefined)
  t.equal(whyVacant(knownIn(seen), 11_000), 'lapsed', 'and its own times do not count')
  const renewed = after(read(leaseOf('b'), 1000), read(leaseOf('b', NOW_TEXT), 9000))
  t.equal(whyVacant(knownIn(renewed), 18_999), undefined)
  const forgotten = after(read(leaseOf('b'), 1000), { is: 'forgotten' }, read(leaseOf('b'), 9000))
  t.equal(whyVacant(knownIn(forgotten), 18_999), undefined, 'what was seen before counts no more')
  const marked = { ...leaseOf('b'), metadata: { name: 'l', resourceVersion: '8' } }
  t.equal(knownIn(after(read(leaseOf('b'), 1000), read(marked, 9000)))?.changedMs, 1000, 'metadata are no renewal')
  for (const leaseDurationSeconds of [undefined, 0, -1]) {
    const unstated = { ...leaseOf('b'), spec: { holderIdentity: 'b', leaseDurationSeconds } } as StoredLease
    t.equal(knownIn(after(read(unstated, 0)))?.durationMs, 15_000, String(leaseDurationSeconds))
  }
  t.equal(whyVacant(undefined, 0), 'free')
  t.equal(whyVacant(knownIn(after(read(leaseOf(''), 0))), 0), 'free')
})

t.test('the last write counts until another holder is seen', async (t) => {
  const own = wrote(leaseOf('a'), 100)
  t.equal(writtenIn(after(own)), 100)
  t.equal(writtenIn(after(own, read(leaseOf('a'), 200))), 100)
  t.equal(writtenIn(after(own, read(undefined, 200))), 100, 'somebody removed it')
  t.equal(writtenIn(after(own, { is: 'forgotten' }, read(leaseOf('a'), 200))), 100, 'while nothing was read')
  t.equal(writtenIn(after(own, read(leaseOf('b'), 200), read(leaseOf('a'), 300))), undefined)
  t.equal(writtenIn(after(own, read(leaseOf(''), 200), read(undefined, 300))), undefined)
  t.equal(writtenIn(after(read(leaseOf('a'), 100))), undefined, 'of an earlier process')
})

t.test('when a holder renews, and when it must end', async (t) => {
  t.equal(isRenewalDue(undefined, 0, 3000), true)
  t.equal(isRenewalDue(1000, 3999, 3000), false)
  t.equal(isRenewalDue(1000, 4000, 3000), true)
  t.equal(timeToRenewMs(1000, 7999, 7000), 1)
  t.equal(timeToRenewMs(1000, 8000, 7000), 0)
  t.strictSame(
    [0, 0.5, 1].map((random) => candidatePauseMs(2000, random)),
    [1000, 1500, 2000],
  )
})

t.test('what is written', async (t) => {
  const terms: LeaseTerms = { name: 'l', holder: 'a', durationMs: 14_001, begins: true, nowMs: NOW }
  const taken = { holderIdentity: 'a', leaseDurationSeconds: 15, acquireTime: NOW_TEXT, renewTime: NOW_TEXT }
  const first = leaseAfter(undefined, terms)
  t.strictSame(first, {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: { name: 'l' },
    spec: { ...taken, leaseTransitions: 0 },
  })
  const from = leaseAfter(leaseOf('b'), terms)
  t.strictSame(from.spec, { ...taken, leaseTransitions: 4 }, 'taken from another')
  t.strictSame(from.metadata, leaseOf('b').metadata, 'as the version that was read')
  t.strictSame(leaseAfter({ ...leaseOf(''), spec: {} }, terms).spec, { ...taken, leaseTransitions: 1 }, 'spoilt')

  const renewed = leaseAfter(leaseOf('a'), { ...terms, begins: false })
  t.strictSame(renewed.spec, { ...taken, acquireTime: EARLIER, leaseTransitions: 3 }, 'renewed')
  const bare = { ...leaseOf('a'), spec: { holderIdentity: 'a' } }
  const whole = leaseAfter(bare, { ...terms, begins: false })
  t.strictSame(whole.spec, { ...taken, leaseTransitions: 0 }, 'renewed, and what was missing is there')
  const released = leaseAfter(leaseOf('a'), { ...terms, holder: '', durationMs: 1000, begins: false })
  t.match(released.spec, { holderIdentity: '', leaseDurationSeconds: 1, acquireTime: EARLIER, leaseTransitions: 3 })

  const marks = (metadata: StoredLease['metadata']) => ({ ...metadata, labels: { marked: 'yes' } })
  t.match(leaseAfter(leaseOf('a'), { ...terms, marks }).metadata, {
    annotations: { kept: 'yes' },
    labels: { marked: 'yes' },
  })
})
