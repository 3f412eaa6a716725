/** An exporter learns which members import its service, and why the others do not. */
import t, { type Test } from 'tap'
import { findCondition } from '../../model/conditions.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { eventually } from '../support/eventually.ts'
import { importObject, namespaceObject } from '../support/objects/service-objects.ts'
import type { FakeLink } from './fake-clusterset.ts'
import { Site, service, slice } from './site.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { until, untilReported } from './until.ts'

const config = { reportMs: 20 }

async function sites(t: Test, ids: readonly string[]): Promise<{ set: FakeClusterset; all: Site[] }> {
  const set = new FakeClusterset()
  const all = ids.map((id, i) => new Site(set, { id, podCIDR: `10.${i + 1}.0.0/16`, config }))
  for (const site of all) await site.join()
  t.teardown(() => Promise.all(all.map((site) => site.stop())))
  return { set, all }
}

function addNamespace({ api }: Site, name: string): void {
  api.put(namespaceObject(name))
}

function exportWeb(site: Site): void {
  addNamespace(site, 'shop')
  site.api.put(service('shop', 'web'))
  site.api.put(slice('shop', 'web', ''))
  site.export('shop', 'web')
}

function imported(site: Site, name = 'web'): string {
  const found = site.api
    .get('ServiceExport', name, 'shop')
    ?.status?.conditions?.find(({ type }) => type === 'sealane.io/Imported')
  return found === undefined ? 'not reported' : `${found.status}/${found.reason}: ${found.message}`
}

t.test('a namespace is missing, comes, and goes', async (t) => {
  const { all } = await sites(t, ['c1', 'c2', 'c3', 'c4'])
  const [c1, c2, c3, c4] = all as [Site, Site, Site, Site]
  exportWeb(c1)
  for (const site of all) site.start()
  const nobody = 'False/NotImported: no member imports it: namespace shop is missing in c2, c3, c4'
  await until(t, () => imported(c1), nobody, 'nobody has the namespace')
  await untilReported(t, c1, [
    'ServiceExport web Normal Exported',
    'ServiceImport web Normal Imported',
    'ServiceExport web Warning NotImported',
  ])
  addNamespace(c2, 'shop')
  const one = 'True/Imported: imported by c2; namespace shop is missing in c3, c4'
  await until(t, () => imported(c1), one, 'one has it')
  await untilReported(t, c1, ['ServiceExport web Normal Imported'])
  addNamespace(c3, 'shop')
  addNamespace(c4, 'shop')
  await until(t, () => imported(c1), 'True/Imported: imported by c2, c3, c4', 'all have it')
  t.same(c1.reported(), [], 'who imports it besides is no event')

  c3.api.drop('Namespace', 'shop')
  await until(t, () => imported(c1), 'True/Imported: imported by c2, c4; namespace shop is missing in c3', 'it goes')
  t.match(await c3.metrics(), /^sealane_agent_not_imported\{.*reason="NamespaceMissing".*\} 1$/m, 'c3 counts it')
  t.match(await c4.metrics(), /^sealane_agent_not_imported\{.*reason="NamespaceMissing".*\} 0$/m)

  // Any member may export, and each exporter receives the reports about its own exports.
  exportWeb(c4)
  await until(t, () => imported(c4), 'True/Imported: imported by c1, c2; namespace shop is missing in c3', 'c4')
})

class ShiftedClock extends SystemClock {
  aheadMs = 0
  override monotonic(): number {
    return super.monotonic() + this.aheadMs
  }
}

t.test('the importers in the Cluster are written at most once a minute', async (t) => {
  const clock = new ShiftedClock()
  const set = new FakeClusterset()
  const c1 = new Site(set, { id: 'c1', podCIDR: '10.1.0.0/16', config, clock })
  const others = ['c2', 'c3'].map((id, i) => new Site(set, { id, podCIDR: `10.${i + 2}.0.0/16`, config }))
  const [c2, c3] = others as [Site, Site]
  const all = [c1, c2, c3]
  for (const site of all) await site.join()
  t.teardown(() => Promise.all(all.map((site) => site.stop())))
  const written: string[] = []
  c1.api.cache('Cluster').onChange((change) => {
    const rows = change?.object.metadata.name === 'c1' ? (change.object.status?.importedBy ?? []) : []
    const text = rows.map(({ name, clusters }) => `${name}: ${clusters.join()}`).join()
    if (text !== (written.at(-1) ?? '')) written.push(text)
  })
  exportWeb(c1)
  addNamespace(c2, 'shop')
  for (const site of all) site.start()
  await until(t, () => written.length, 1, 'the first at once')
  addNamespace(c3, 'shop')
  await until(t, () => imported(c1), 'True/Imported: imported by c2, c3', 'the condition follows')
  c2.api.drop('Namespace', 'shop')
  const want = 'True/Imported: imported by c3; namespace shop is missing in c2'
  await until(t, () => imported(c1), want, 'again')
  t.equal(written.length, 1, 'within the minute the Cluster stays')
  clock.aheadMs += 60_000
  addNamespace(c3, 'other')
  c1.api.put(service('shop', 'more'))
  c1.export('shop', 'more')
  await until(t, () => written.length, 2, 'after it')
  t.equal(written.at(-1), 'web: c3', 'what is true then')
})

t.test('somebody has a ServiceImport of that name', async (t) => {
  const { all } = await sites(t, ['c1', 'c2', 'c3'])
  const [c1, c2, c3] = all as [Site, Site, Site]
  exportWeb(c1)
  for (const site of [c2, c3]) addNamespace(site, 'shop')
  c2.api.put(importObject({ name: 'web' }))
  for (const site of all) site.start()
  const taken = 'a ServiceImport of this name that Sealane did not create exists in c2'
  await until(t, () => imported(c1), `True/Imported: imported by c3; ${taken}`, 'said by name')
  c2.api.drop('ServiceImport', 'web', 'shop')
  await until(t, () => imported(c1), 'True/Imported: imported by c2, c3', 'and taken back')
})

t.test('members of an earlier release tell nothing', async (t) => {
  const { set, all } = await sites(t, ['c1', 'c2', 'c3'])
  const [c1, c2] = all as [Site, Site, Site]
  exportWeb(c1)
  const link = set.link.bind(set)
  set.link = (cluster): FakeLink => Object.assign(link(cluster), { reports: cluster === 'c1' })
  for (const site of all) site.start()
  await until(t, () => imported(c1), 'Unknown/NotTold: no report from c2, c3', 'nobody tells')
  await c2.stop()
  set.link = link
  c2.start()
  const want = 'Unknown/NotTold: no report from c3; namespace shop is missing in c2'
  await until(t, () => imported(c1), want, 'one is upgraded')
})

t.test('a restart of the exporter, without the broker, changes nothing', async (t) => {
  const { set, all } = await sites(t, ['c1', 'c2', 'c3'])
  const [c1, c2] = all as [Site, Site, Site]
  exportWeb(c1)
  addNamespace(c2, 'shop')
  for (const site of all) site.start()
  const want = 'True/Imported: imported by c2; namespace shop is missing in c3'
  await until(t, () => imported(c1), want, 'told')
  set.online = false
  await c1.stop()
  c1.reported()
  c1.start()
  const rounds = async (): Promise<number> =>
    Number(/^sealane_agent_loop_seconds_count\{.*loop="report"\} (\d+)$/m.exec(await c1.metrics())?.[1] ?? 0)
  await eventually(async () => (await rounds()) >= 1, { say: 'it has looked' })
  t.equal(imported(c1), want)
  set.online = true
  set.spread()
  addNamespace(c2, 'other')
  await until(t, () => imported(c1), want, 'the same when it is back')
  t.same(c1.reported(), [], 'and nobody is told again')
})

t.test('what members tell is judged again by who reads it', async (t) => {
  const { set, all } = await sites(t, ['c1', 'c2', 'c3'])
  const [c1, c2] = all as [Site, Site, Site]
  exportWeb(c1)
  addNamespace(c2, 'shop')
  const link = set.link.bind(set)
  set.link = (cluster): FakeLink => Object.assign(link(cluster), { reports: cluster === 'c2' })
  for (const site of all) site.start()
  await until(t, () => imported(c1), 'True/Imported: imported by c2; no report from c3', 'told by c2')
  const hostile = { reason: 'NamespaceMissing' as const, namespace: 'shop\nall is well', name: '', cluster: '' }
  set.report('c3', { notImported: [hostile], leftOut: 0 })
  set.spread()
  await until(
    t,
    () => c1.logger.lines.some(({ fields }) => fields['record'] === 'c3/MemberStatus'),
    true,
    'the log says why it is left out',
  )
  t.equal(imported(c1), 'True/Imported: imported by c2; no report from c3', 'and counts as not told')
})

t.test('an export that becomes invalid, or is refused, and a member that leaves', async (t) => {
  const { set, all } = await sites(t, ['c1', 'c2', 'c3'])
  const [c1, c2] = all as [Site, Site, Site]
  exportWeb(c1)
  addNamespace(c2, 'shop')
  for (const site of all) site.start()
  await until(t, () => imported(c1).startsWith('True'), true, 'imported')
  c1.api.drop('Service', 'web', 'shop')
  await until(t, () => imported(c1), 'Unknown/Pending: waiting until the export is valid', 'invalid')
  c1.api.put(service('shop', 'web'))
  await until(t, () => imported(c1).startsWith('True'), true, 'again')
  set.admit = (_, { body }) => (body.kind === 'ServiceExport' ? 'not today' : undefined)
  c1.api.put(service('shop', 'web', { ports: [{ name: 'http', port: 81 }] }))
  await until(t, () => imported(c1), 'Unknown/Pending: waiting for the broker to accept the export', 'refused')
  set.admit = () => undefined
  c1.api.put(service('shop', 'web'))
  await until(t, () => imported(c1).startsWith('True'), true, 'taken again')
  await c1.setPhase('leaving')
  await c1.ended()
  t.equal(imported(c1), 'Unknown/Pending: this cluster has left the clusterset')
  const { conditions } = c1.api.get('ServiceExport', 'web', 'shop')?.status ?? {}
  t.match(findCondition(conditions, 'Valid'), { status: 'Unknown', reason: 'Pending' }, 'the next clusterset decides')
})
