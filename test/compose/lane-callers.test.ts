/** The callers that the status page of a part refuses, as the objects of its cluster change. */
import t from 'tap'
import { laneCallers } from '../../compose/site/run-site.ts'
import type { ObjectCache } from '../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import type { Cluster } from '../../model/objects.ts'
import { clusterObject } from '../support/objects/cluster-objects.ts'

const WEST = clusterObject({ id: 'west', index: 1, podCIDRs: ['10.42.0.0/16'] })
const EAST = clusterObject({ id: 'east', index: 2, podCIDRs: ['10.50.0.0/16'] })
const FAR = '10.50.0.7'

async function emptyApi(): Promise<MemoryApi> {
  const api = new MemoryApi()
  const { signal } = new AbortController()
  await Promise.all((['Cluster', 'Node'] as const).map((kind) => api.cache(kind).whenSynced(signal)))
  return api
}

t.test('members come, are renumbered and go; what cannot be read leaves what was known', async (t) => {
  const api = await emptyApi()
  const turnsAway = laneCallers(api, 'west')
  api.put(EAST)
  t.notOk(turnsAway(FAR), 'this cluster is no member')
  api.put(WEST)
  t.ok(turnsAway(FAR))
  t.notOk(turnsAway('10.42.0.7'), 'own pods')
  api.put({ ...EAST, spec: { ...EAST.spec, globalCIDRs: ['244.1.0.0/16'] } })
  t.notOk(turnsAway(FAR))
  t.ok(turnsAway('244.1.0.7'))
  api.put({ ...WEST, spec: { ...WEST.spec, podCIDRs: ['10.42'] } })
  t.ok(turnsAway('244.1.0.7'), 'own ranges that are none')
  api.put(WEST)
  api.drop('Cluster', 'east')
  t.notOk(turnsAway('244.1.0.7'))
})

t.test('nobody is turned away before all objects have been read', async (t) => {
  const api = await emptyApi()
  for (const cluster of [WEST, EAST]) api.put(cluster)
  let synced = false
  const clusters = api.cache('Cluster')
  const slow: ObjectCache<Cluster> = {
    get synced() {
      return synced
    },
    list: () => clusters.list(),
    get: (name) => clusters.get(name),
    onChange: () => () => undefined,
    whenSynced: (signal) => clusters.whenSynced(signal),
  }
  const cache = ((kind) => (kind === 'Cluster' ? slow : api.cache(kind))) as MemoryApi['cache']
  const turnsAway = laneCallers({ cache }, 'west')
  t.notOk(turnsAway(FAR))
  synced = true
  t.ok(turnsAway(FAR))
})
