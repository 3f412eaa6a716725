import t from 'tap'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { clusterApiCompliance, service, serviceImport } from '../../compliance/cluster-api.ts'

clusterApiCompliance(t, async () => {
  const api = new MemoryApi()
  return {
    api,
    other: api,
    put: async (object) => api.put(object),
    drop: async (kind, name, namespace) => api.drop(kind, name, namespace),
    reported: async () => api.events.map(({ type, reason, note }) => `${type} ${reason}: ${note}`),
  }
})

t.test('hold keeps caches unsynced until release', async (t) => {
  const api = new MemoryApi({ hold: true })
  api.put(service('web'))
  const cache = api.cache('Service')
  await new Promise((resolve) => setImmediate(resolve))
  t.equal(cache.synced, false)
  t.same(cache.list(), [])
  api.release()
  t.equal(cache.synced, true)
  t.equal(cache.list().length, 1)
  await api.cache('Pod').whenSynced(AbortSignal.timeout(1000))
})

t.test('failure makes writes fail; writes lists what changed something', async (t) => {
  const api = new MemoryApi({ clock: new FakeClock() })
  api.failure = new ClusterApiError('Unavailable', 'no disk')
  await t.rejects(api.apply(serviceImport('web')), { code: 'Unavailable', message: 'no disk' })
  api.failure = undefined
  await api.apply(serviceImport('web'))
  await api.apply(serviceImport('web'))
  await api.remove('ServiceImport', 'web', 'shop')
  await api.remove('ServiceImport', 'web', 'shop')
  t.same(api.writes, [
    { verb: 'apply', kind: 'ServiceImport', name: 'web', namespace: 'shop' },
    { verb: 'remove', kind: 'ServiceImport', name: 'web', namespace: 'shop' },
  ])
})
