/** The driver of a node that does not see the folder of its site: the suites of all drivers, and a hub that is lost. */
import { join } from 'node:path'
import t from 'tap'
import type { LogLine } from '../../../runtime/logging/capturing-logger.ts'
import { clusterApiCompliance, service, serviceImport } from '../../compliance/cluster-api.ts'
import { leaseStoreCompliance, newLease } from '../../compliance/lease-store.ts'
import { eventually } from '../../support/eventually.ts'
import { failure } from '../../support/failure.ts'
import { HubSite } from './hub-site.ts'

const anything = (): undefined => undefined
const deadline = (): AbortSignal => AbortSignal.timeout(5000)

t.test('as every driver', async (t) => {
  clusterApiCompliance(t, async (t) => {
    const site = await HubSite.open(t, { refuse: anything })
    return {
      api: await site.node('gw2'),
      other: await site.node('gw3'),
      put: (object) => site.put(object),
      drop: async (kind, name, namespace) => site.drop(kind, name, namespace),
      reported: async () => site.logger.lines.flatMap(asEvent),
    }
  })
})

/** The event as the compliance suite expects it: `warn ServiceExport shop/web: the note {reason}`. */
function asEvent({ level, message, fields }: LogLine): string[] {
  const note = /^ServiceExport \S+: (.*)$/.exec(message)?.[1]
  return note === undefined ? [] : [`${level === 'warn' ? 'Warning' : 'Normal'} ${String(fields['reason'])}: ${note}`]
}

t.test('as every store of Leases', async (t) => {
  leaseStoreCompliance(t, async (t) => {
    const site = await HubSite.open(t, { refuse: anything })
    let count = 0
    return async () => (await site.node(`gw${(count += 1)}`)).leases
  })
})

t.test('while the hub is lost everything stays, nothing is written, and later all differences arrive', async (t) => {
  const site = await HubSite.open(t, { refuse: anything })
  await site.put(service('web'))
  await site.put(service('api'))
  const api = await site.node('gw2')
  const cache = api.cache('Service')
  await cache.whenSynced(deadline())
  const changes: string[] = []
  cache.onChange((change) => void changes.push(`${change?.type ?? 'synced'} ${change?.object.metadata.name ?? ''}`))
  await site.stop()
  const refused = await eventually(() => failure(api.apply(serviceImport('web'))), { deadlineMs: 15_000 })
  t.match(refused, { code: 'Unavailable' })
  t.match(await failure(api.read('Service', 'web', 'shop')), { code: 'Unavailable' })
  t.match(await failure(api.leases.read('sealane-lane-0', deadline())), { code: 'Unavailable' })
  t.equal(cache.list().length, 2, 'the hub did not say that they went')
  t.same(changes, [])
  site.drop('Service', 'api', 'shop')
  await site.put(service('new'))
  await eventually(() => site.files.cache('Service').get('new', 'shop'))
  await site.start()
  await eventually(() => cache.get('new', 'shop') !== undefined && cache.get('api', 'shop') === undefined, {
    deadlineMs: 20_000,
  })
  t.same(changes.sort(), ['removed api', 'set new'])
  await eventually(() => api.apply(serviceImport('web')).then(() => true))
  t.equal(site.logger.messages('warn').filter((one) => one.includes('can be reached')).length, 1, 'told once')
})

t.test('a node that starts without a hub continues from what it knew, until the hub has said everything', async (t) => {
  const site = await HubSite.open(t, { refuse: anything })
  await site.put(service('web'))
  await site.put(service('api'))
  const known = join(site.site.folder, 'known')
  const caller = await site.enrolled('gw2')
  const first = site.open(caller, { known })
  await first.cache('Service').whenSynced(deadline())
  await first.cache('Pod').whenSynced(deadline())
  await first.close()
  await site.stop()
  site.drop('Service', 'api', 'shop')
  const second = site.open(caller, { known, waitMs: 50 })
  const cache = second.cache('Service')
  await cache.whenSynced(deadline())
  t.same(
    cache.list().map(({ metadata }) => metadata.name),
    ['api', 'web'],
  )
  await second.cache('Pod').whenSynced(deadline())
  const unknown = second.cache('Gateway')
  t.match(
    await failure(unknown.whenSynced(AbortSignal.timeout(300))),
    { name: 'TimeoutError' },
    'never known, not empty',
  )
  await site.start()
  await eventually(() => cache.get('api', 'shop') === undefined, { deadlineMs: 20_000 })
  await unknown.whenSynced(deadline())
})

t.test('a hub that answers in time is not preceded by what was known', async (t) => {
  const site = await HubSite.open(t, { refuse: anything })
  await site.put(service('web'))
  const known = join(site.site.folder, 'known')
  const caller = await site.enrolled('gw2')
  const first = site.open(caller, { known })
  await first.cache('Service').whenSynced(deadline())
  await first.close()
  site.drop('Service', 'web', 'shop')
  await site.put(service('api'))
  const services = site.files.cache('Service')
  await eventually(() => services.get('api', 'shop') !== undefined && services.get('web', 'shop') === undefined)
  const cache = site.open(caller, { known }).cache('Service')
  await cache.whenSynced(deadline())
  t.same(
    cache.list().map(({ metadata }) => metadata.name),
    ['api'],
  )
})

t.test('a Lease that another node wrote is seen past all caches', async (t) => {
  const site = await HubSite.open(t)
  const [gw2, gw3] = [await site.node('gw2'), await site.node('gw3')]
  await gw2.leases.write(newLease('gw2'), deadline())
  t.equal((await gw3.leases.read('sealane-lane-0', deadline()))?.spec?.holderIdentity, 'gw2')
  await gw3.cache('Lease').whenSynced(deadline())
  t.equal(gw3.cache('Lease').list().length, 1)
})
