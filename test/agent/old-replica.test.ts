/**
 * While the broker is away, an agent takes over with the records that it saved in its last leadership. Another agent
 * has written newer objects since, so this agent removes and restores nothing. It continues to publish what it learns
 * from its own cluster.
 */
import t, { type Test } from 'tap'
import { namespaceObject } from '../support/objects/service-objects.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { Site, service, slice } from './site.ts'
import { until } from './until.ts'

const namesOf = (site: Site): string[] => site.show().map((line) => /\/(\S+) /.exec(line)?.[1] ?? line)

function offer(site: Site, name: string, address = '10.42.0.5'): void {
  site.api.put(service('shop', name))
  site.api.put(slice('shop', name, address))
  site.export('shop', name)
}

async function twoSites(t: Test) {
  const set = new FakeClusterset()
  const milano = new Site(set, { id: 'milano', podCIDR: '10.42.0.0/16', globalCIDR: '244.1.0.0/16' })
  const tokyo = new Site(set, { id: 'tokyo', podCIDR: '10.42.0.0/16', globalCIDR: '244.3.0.0/16' })
  for (const site of [milano, tokyo]) {
    await site.join()
    site.api.put(namespaceObject('shop'))
    site.start()
  }
  t.teardown(() => Promise.all([milano.stop(), tokyo.stop()]))
  return { set, milano, tokyo }
}

t.test('an old replica, the broker away', async (t) => {
  const { set, milano, tokyo } = await twoSites(t)
  for (const name of ['kept', 'withdrawn', 'moved']) offer(milano, name)
  offer(tokyo, 'ours')
  await until(t, () => namesOf(tokyo), ['kept', 'moved', 'ours', 'withdrawn'], 'at first')
  const standby = set.link('tokyo')
  standby.restore()

  for (const name of ['n1', 'n2', 'n3']) offer(milano, name)
  milano.api.drop('ServiceExport', 'withdrawn', 'shop')
  milano.api.put(slice('shop', 'moved', '10.42.0.77'))
  const now = ['kept', 'moved', 'n1', 'n2', 'n3', 'ours']
  await until(t, () => namesOf(tokyo), now, 'the one that acts has written what is new')
  await until(t, () => tokyo.slices().some((line) => line.includes('244.1.0.77')), true, 'and what has moved')
  set.online = false
  await tokyo.stop()

  const changes: string[] = []
  for (const kind of ['ServiceImport', 'EndpointSlice', 'Cluster', 'Endpoint'] as const) {
    tokyo.api.cache(kind).onChange((change) => {
      const labels = change?.object.metadata.labels ?? {}
      if (change === undefined || labels['multicluster.kubernetes.io/source-cluster'] === 'tokyo') return
      // The test itself writes the slice of the Service.
      if (kind === 'EndpointSlice' && labels['multicluster.kubernetes.io/source-cluster'] === undefined) return
      changes.push(`${change.type} ${kind} ${change.object.metadata.name}`)
    })
  }
  tokyo.start(standby)
  tokyo.api.put(slice('shop', 'ours', '10.42.0.99'))
  await until(t, () => tokyo.slices().some((line) => line.includes('.99')), true, 'its own endpoints go on')
  tokyo.api.drop('ServiceExport', 'ours', 'shop')
  tokyo.api.drop('EndpointSlice', 'ours', 'shop')
  await until(t, () => tokyo.slices().some((line) => line.includes('.99')), false, 'and go when it withdraws them')
  t.same(namesOf(tokyo), now, 'all imports stay, and none comes back')
  t.same(changes, [], 'nothing of others is touched')

  offer(milano, 'n4')
  set.online = true
  set.spread()
  await until(t, () => namesOf(tokyo), [...now.slice(0, 5), 'n4'], 'the broker is back')
  t.same(
    changes.filter((change) => /ServiceImport/.test(change) && !/n4|ours/.test(change)),
    [],
    'nothing flapped',
  )
  t.ok(
    tokyo.slices().some((line) => line.includes('244.1.0.77')),
    'what has moved stays where it is',
  )
})

t.test('an old replica says nothing of conflicts', async (t) => {
  const { set, milano, tokyo } = await twoSites(t)
  const conflict = (name: string): string => /Conflict=(\S+)/.exec(tokyo.conditions('shop', name))?.[1] ?? 'none'
  for (const name of ['settled', 'begun']) offer(milano, name)
  milano.api.put(service('shop', 'settled', { clusterIP: 'None' }))
  for (const name of ['settled', 'begun']) offer(tokyo, name)
  await until(t, () => conflict('settled'), 'True/TypeConflict', 'at first')
  await until(t, () => conflict('begun'), 'False/NoConflicts', 'of one only')
  const standby = set.link('tokyo')
  standby.restore()
  milano.api.put(service('shop', 'settled'))
  milano.api.put(service('shop', 'begun', { clusterIP: 'None' }))
  await until(t, () => conflict('settled'), 'False/NoConflicts', 'settled')
  await until(t, () => conflict('begun'), 'True/TypeConflict', 'begun')
  set.online = false
  await tokyo.stop()

  const seen = new Set<string>()
  tokyo.api.cache('ServiceExport').onChange((change) => {
    const name = change?.object.metadata.name ?? ''
    seen.add(`${name} ${conflict(name)}`)
  })
  tokyo.start(standby)
  tokyo.api.put(slice('shop', 'settled', '10.42.0.99'))
  await until(t, () => tokyo.slices().some((line) => line.includes('.99')), true, 'it has mirrored its own')
  t.same(
    ['settled', 'begun'].map(conflict),
    ['False/NoConflicts', 'True/TypeConflict'],
    'as the agent before it has found',
  )
  t.same([...seen], [], 'and nothing was written')
})
