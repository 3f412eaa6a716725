/** The Membership that says that this cluster has joined, or that it leaves. */
import t from 'tap'
import { MembershipChanges, watchLeaving, whenMembership } from '../../kubeapi/membership.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { MEMBERSHIP_NAME, type Membership } from '../../model/objects.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'

function membership(phase: Membership['spec']['phase'], clusterId = 'oslo'): Membership {
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Membership',
    metadata: { name: MEMBERSHIP_NAME },
    spec: { clusterId, clusterset: 'nordic', phase, globalRange: '244.0.0.0/8', clustersetIpRange: '245.0.0.0/16' },
  }
}

function start() {
  return new MemoryApi({ clock: new FakeClock() })
}

/** Stores the Membership, and waits until the cache shows it. */
async function join(api: MemoryApi): Promise<void> {
  await api.apply(membership('joined'))
  await whenMembership(api, () => true, new AbortController().signal)
}

t.test('a cluster that says so leaves', async (t) => {
  const api = start()
  const leaving = watchLeaving(api)
  t.same([leaving.signal.aborted, leaving.clusterId], [false, undefined], 'it may not have joined yet')
  await api.apply(membership('joined'))
  t.same([leaving.signal.aborted, leaving.clusterId], [false, 'oslo'])
  await api.apply(membership('leaving'))
  t.same([leaving.signal.aborted, leaving.clusterId], [true, 'oslo'])
  leaving.close()
  t.equal(watchLeaving(api).signal.aborted, true, 'also where it said so before')
})

t.test('a Membership that vanishes is a departure, one that never was is none', async (t) => {
  const api = start()
  await join(api)
  const [leaving, closed] = [watchLeaving(api), watchLeaving(api)]
  closed.close()
  await api.remove('Membership', MEMBERSHIP_NAME)
  t.same([leaving.signal.aborted, leaving.clusterId], [true, 'oslo'])
  t.equal(closed.signal.aborted, false)
  t.equal(watchLeaving(api).signal.aborted, false, 'nobody has seen one')
  t.equal(watchLeaving(api, membership('joined')).signal.aborted, true, 'it was seen before the watch')
})

t.test('another id is no departure', async (t) => {
  const api = start()
  await join(api)
  const leaving = watchLeaving(api)
  await api.apply(membership('joined', 'bergen'))
  t.same([leaving.signal.aborted, leaving.clusterId], [false, 'bergen'])
})

t.test('whenMembership waits for the one that is asked for', async (t) => {
  const api = start()
  const stop = new AbortController()
  const any = whenMembership(api, () => true, stop.signal)
  const last = whenMembership(api, ({ spec }) => spec.phase === 'leaving', stop.signal)
  const other = whenMembership(api, ({ spec }) => spec.clusterId === 'bergen', stop.signal)
  await api.apply(membership('joined'))
  t.match(await any, { spec: { phase: 'joined' } })
  await api.apply(membership('leaving'))
  t.match(await last, { spec: { phase: 'leaving' } })
  stop.abort()
  t.equal(await other, undefined)
  t.equal(await whenMembership(api, () => true, stop.signal), undefined, 'the signal came first')
})

t.test('changes come one after another, and one that is given up while it waits is left out', async (t) => {
  const api = start()
  await join(api)
  const hung = Promise.withResolvers<undefined>()
  const applied: string[] = []
  const changes = new MembershipChanges({
    read: (...args) => api.read(...args),
    apply: async (object, signal) => {
      const { clusterset } = (object as Membership).spec
      if (clusterset === 'slow') await hung.promise
      applied.push(clusterset)
      await api.apply(object, signal)
    },
  })
  const [whole, stop] = [new AbortController(), new AbortController()]
  const to = (clusterset: string, signal: AbortSignal) =>
    changes.apply(({ spec, ...rest }) => ({ ...rest, spec: { ...spec, clusterset } }), signal)
  const slow = to('slow', whole.signal)
  const waiting = to('waiting', stop.signal)
  const last = to('last', whole.signal)
  const why = new Error('the agent ends')
  stop.abort(why)
  await t.rejects(waiting, why, 'although the first one hangs')
  await t.rejects(to('late', stop.signal), why)
  hung.resolve(undefined)
  t.match(await slow, { spec: { clusterset: 'nordic' } })
  t.match(await last, { spec: { clusterset: 'slow' } }, 'it starts from what is stored')
  t.same(applied, ['slow', 'last'])
  await t.rejects(
    changes.write(() => Promise.reject(why), whole.signal),
    why,
  )
  t.match(await to('after', whole.signal), { spec: { clusterset: 'last' } }, 'a failure holds up nothing')
})
