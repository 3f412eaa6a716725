/** Two processes, one Lease, and a store that may fail. */
import t from 'tap'
import { ClusterApiError, type LeaseStore } from '../../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { LeaseHold } from '../../../kubeapi/lease/lease-hold.ts'
import { knownIn, whyVacant } from '../../../kubeapi/lease/plan-hold.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { FakeLeases } from '../../gateway/support/fake-leases.ts'
import { failure } from '../../support/failure.ts'

const { signal } = new AbortController()
const WRITE = { durationMs: 10_000 }
const RELEASE = { durationMs: 1000, begins: false }
const NO_ANSWER = new ClusterApiError('Unavailable', 'no answer')

function twoProcesses() {
  const clock = new FakeClock()
  const leases = new FakeLeases(new MemoryApi({ clock }))
  const hold = (identity: string, store: LeaseStore = leases): LeaseHold =>
    new LeaseHold({ clock, leases: store }, { name: 'l', identity, unstatedMs: 15_000 })
  const holder = (): string | undefined => leases.get('l')?.spec?.holderIdentity
  return { clock, leases, hold, holder, a: hold('a'), b: hold('b') }
}

t.test('of two that take it at once, the later one is refused, and sees why', async (t) => {
  const { a, b, holder } = twoProcesses()
  await Promise.all([a.read(signal), b.read(signal)])
  await a.take(WRITE, signal)
  t.match(await failure(b.take(WRITE, signal)), { code: 'Conflict' })
  t.equal(b.state.is, 'absent', 'a refused write changes nothing')
  t.equal((await b.read(signal)).is, 'others')
  t.equal(holder(), 'a')
  await a.renew(WRITE, signal)
  await a.giveUp(RELEASE, signal)
  t.equal(a.state.is, 'free')
  t.equal((await b.read(signal)).is, 'free')
  await b.take(WRITE, signal)
  t.equal(b.state.is, 'own')
})

t.test('a store that does not answer changes nothing; what was seen counts until it is forgotten', async (t) => {
  const { a, b, clock, leases } = twoProcesses()
  await a.read(signal)
  await a.take(WRITE, signal)
  await b.read(signal)
  leases.failure = NO_ANSWER
  await clock.advance(10_000)
  t.match(await failure(b.read(signal)), { code: 'Unavailable' })
  t.match(await failure(a.renew(WRITE, signal)), { code: 'Unavailable' })
  t.equal(a.state.is, 'own')
  t.equal(whyVacant(knownIn(b.state), clock.monotonic()), 'lapsed')
  b.forget()
  leases.failure = undefined
  await b.read(signal)
  t.equal(whyVacant(knownIn(b.state), clock.monotonic()), undefined, 'counted from the first answer')
})

t.test('a Lease that was removed is made again by its holder', async (t) => {
  const { a, leases } = twoProcesses()
  await a.read(signal)
  leases.collects = true
  await a.take(WRITE, signal)
  leases.collects = false
  t.equal((await a.read(signal)).is, 'absent')
  await a.renew(WRITE, signal)
  t.match(leases.get('l'), { spec: { holderIdentity: 'a', leaseDurationSeconds: 10, leaseTransitions: 0 } })
})

t.test('it is given up although an own renewal came in between, and only by its holder', async (t) => {
  const { a, b, hold, holder, leases } = twoProcesses()
  await a.read(signal)
  await a.take(WRITE, signal)
  const lost = hold('a')
  await lost.read(signal)
  await lost.renew(WRITE, signal)
  await a.giveUp(RELEASE, signal)
  t.equal(holder(), '', 'read again, and given up')

  await b.read(signal)
  await b.take(WRITE, signal)
  await a.giveUp(RELEASE, signal)
  await lost.giveUp(RELEASE, signal)
  t.equal(lost.state.is, 'others')
  t.equal(holder(), 'b', 'another has it')
  leases.failure = NO_ANSWER
  t.match(await failure(b.giveUp(RELEASE, signal)), { code: 'Unavailable' })
})

t.test('a store that refuses each time is asked three times', async (t) => {
  const { leases, hold } = twoProcesses()
  let writes = 0
  const store: LeaseStore = {
    read: (name, until) => leases.read(name, until),
    write: (lease, until) => {
      writes += 1
      return writes === 1 ? leases.write(lease, until) : Promise.reject(new ClusterApiError('Conflict', 'again'))
    },
  }
  const a = hold('a', store)
  await a.read(signal)
  await a.take(WRITE, signal)
  t.match(await failure(a.giveUp(RELEASE, signal)), { code: 'Conflict' })
  t.equal(writes, 4)
  const stopped = AbortSignal.abort(new Error('stopped'))
  await t.rejects(a.giveUp(RELEASE, stopped))
  t.equal(writes, 5, 'and once when it is stopped')
})
