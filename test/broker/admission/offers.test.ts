/** Offers at the broker: admission, quota, the default of the clusterset, and statuses that name nothing restricted. */
import t from 'tap'
import { MAX_OFFER_RULES } from '../../../model/access/access.ts'
import type { ClusterId } from '../../../model/ids.ts'
import { Publisher, Watcher, aSlice, anExport, facts, join_, startBroker } from '../support/harness.ts'

const to = (...ids: string[]) => ids as ClusterId[]

t.test('a malformed or too large offer is refused, and a good one counts by its size', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  await publisher.publish([anExport('web')])
  const before = harness.log.recordBytes('milano')
  await publisher.put(anExport('a', { offeredTo: [{ clusters: to('A b') }] }))
  await publisher.put(
    anExport('b', { offeredTo: Array.from({ length: MAX_OFFER_RULES + 1 }, () => ({ clusters: to('paris') })) }),
  )
  await publisher.acknowledged()
  t.match(publisher.refusals(), [/offeredTo.*RFC 1123/, /offeredTo/])
  await publisher.put(anExport('web', { offeredTo: [{ clusters: to('paris') }] }))
  await publisher.acknowledged()
  t.ok(harness.log.recordBytes('milano') > before)
  t.same(harness.log.get('record', 'milano/ServiceExport/shop/web')?.readers, ['paris'])
  t.equal(harness.log.get('settings', 'settings')?.offers, true)
})

t.test('a stranger is not told of a service, its address and its slices, until it is offered', async (t) => {
  const harness = await startBroker(t)
  const { peer: milano } = await join_(harness, 'milano')
  const other = { facts: facts(['10.52.0.0/16'], { serviceCIDRs: ['10.53.0.0/16'] }) }
  const { peer: paris } = await join_(harness, 'paris', other)
  const exporter = new Publisher(harness, milano)
  const offeredTo = [{ clusters: to('tokyo') }]
  await exporter.publish([anExport('web', { offeredTo }), aSlice('web', '10.42.0.5')])
  const stranger = new Publisher(harness, paris)
  await stranger.publish([])
  const finding = { reason: 'NamespaceMissing' as const, namespace: 'shop', name: 'web', cluster: 'milano' }
  await stranger.status({ notImported: [finding], leftOut: 0 })
  await stranger.acknowledged()
  const body = harness.log.get('record', 'paris/MemberStatus//paris')?.body
  t.match(body, { notImported: [], leftOut: 1 }, 'a status names nothing that is not for all')
  const watcher = new Watcher(harness, paris)
  const own = new Watcher(harness, milano)
  await watcher.line(/^synced/)
  await own.line('put milano/EndpointSlice/shop/web-1')
  t.notOk(watcher.lines.some((line) => line.includes('shop')))
  await exporter.put(anExport('web'))
  await watcher.line('put milano/ServiceExport/shop/web')
  t.same(
    watcher.lines.slice(-3).map((line) => line.split(' ').slice(0, 2).join(' ')),
    ['put /ClusterSetIP/shop/web', 'put milano/EndpointSlice/shop/web-1', 'put milano/ServiceExport/shop/web'],
  )
  await exporter.put(anExport('web', { offeredTo }))
  await watcher.line('remove /ClusterSetIP/shop/web')
  t.same(watcher.lines.slice(-3).sort(), [
    'remove /ClusterSetIP/shop/web',
    'remove milano/EndpointSlice/shop/web-1',
    'remove milano/ServiceExport/shop/web',
  ])
  for (const one of [watcher, own]) await one.stop()
})

t.test('the default of the clusterset is stored, told at once, and kept by a restart', async (t) => {
  const first = await startBroker(t, { config: { defaultAccess: 'deny' } })
  const { peer } = await join_(first, 'milano')
  const watcher = new Watcher(first, peer)
  await watcher.line(/^synced/)
  await first.log.transact((tx) => {
    const settings = tx.get('settings', 'settings')
    if (settings !== undefined) tx.put('settings', 'settings', { ...settings, accessDefault: 'allow' })
  })
  await watcher.line('access allow')
  await watcher.stop()
  await first.stop()
  // The flag is for the first start: an operator has chosen since.
  const config = { defaultAccess: 'deny' } as const
  const second = await startBroker(t, { stateDir: first.stateDir, clock: first.clock, config })
  t.equal(second.log.get('settings', 'settings')?.accessDefault, 'allow')
})
