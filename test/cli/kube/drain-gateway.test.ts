/** Draining a gateway of a real cluster and ending the drain, as the command observes them. */
import t from 'tap'
import { drainGateway, undrainGateway } from '../../../cli/cluster/drain-gateway.ts'
import { drainService } from '../../../cli/cluster/drain-service.ts'
import type { ManifestObject } from '../../../install/values/manifest.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { MemoryAdmin } from '../../support/memory-admin.ts'

const node = (name: string, labels: Readonly<Record<string, string>> = { 'sealane.io/gateway': 'true' }) =>
  ({ apiVersion: 'v1', kind: 'Node', metadata: { name, labels } }) as ManifestObject

/** Returns a Gateway; `drained` is the status of its condition Drained. */
function gateway(name: string, drained?: 'True' | 'False', message = ''): ManifestObject {
  const conditions = drained === undefined ? [] : [{ type: 'Drained', status: drained, reason: 'Any', message }]
  const metadata = { name }
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Gateway',
    metadata,
    status: { lanes: [], connections: [], conditions },
  }
}

async function drain(
  objects: readonly ManifestObject[],
  name: string,
  init: { force?: boolean; later?: (admin: MemoryAdmin) => void } = {},
) {
  const admin = new MemoryAdmin(objects)
  const clock = new FakeClock()
  let said = ''
  const { signal } = new AbortController()
  const say = (text: string): void => void (said += text)
  let outcome: string | Error | undefined
  const ends = drainGateway(admin, name, { force: init.force ?? false, timeoutMs: 10_000, clock, signal, say }).then(
    (text) => (outcome = text),
    (error: unknown) => (outcome = error as Error),
  )
  for (let i = 0; i < 60 && outcome === undefined; i += 1) {
    await clock.advance(250)
    if (i === 4) init.later?.(admin)
  }
  await ends
  return { admin, outcome: outcome instanceof Error ? outcome.message : outcome, said }
}

const CHANGED = '  changed   Node a  (sealane.io/drain=true)\n'
const THREE = [node('a'), node('b'), node('c'), gateway('a'), gateway('b'), gateway('c')]

t.test('a gateway is drained', async (t) => {
  const flows = gateway('a', 'False', 'traffic with paris in the last 10 s')
  const rows: [say: string, later: (admin: MemoryAdmin) => void, outcome: string | RegExp][] = [
    ['nothing flows', (admin) => admin.put(gateway('a', 'True')), 'a carries no traffic'],
    [
      'another node takes its place',
      (admin) => admin.remove({ apiVersion: 'sealane.io/v1alpha1', kind: 'Gateway', name: 'a' }),
      'a is no longer a gateway: another node has taken over',
    ],
    ['something goes on', (admin) => admin.put(flows), /traffic on a.*traffic with paris in the last 10 s/],
  ]
  for (const [say, later, outcome] of rows) {
    const seen = await drain(THREE, 'a', { later })
    if (typeof outcome === 'string') t.equal(seen.outcome, outcome, say)
    else t.match(seen.outcome, outcome, say)
    t.match(seen.said, CHANGED, say)
    const marked = await seen.admin.get({ apiVersion: 'v1', kind: 'Node', name: 'a' })
    t.match(marked?.metadata.labels, { 'sealane.io/gateway': 'true', 'sealane.io/drain': 'true' })
  }
})

t.test('what is refused, and leaves the Node as it is', async (t) => {
  const rows: [say: string, objects: readonly ManifestObject[], name: string, message: RegExp][] = [
    ['no such Node', THREE, 'z', /^Node z: this cluster has no such Node$/],
    ['no gateway', [...THREE, node('w', {})], 'w', /^Node w is not a gateway: it has no label sealane\.io\/gateway$/],
    ['the only one', [node('a'), gateway('a')], 'a', /^Node a is the only active gateway/],
    [
      'the others are drained',
      [node('a'), gateway('a'), gateway('b', 'False'), gateway('c', 'True')],
      'a',
      /only active gateway/,
    ],
  ]
  for (const [say, objects, name, message] of rows) {
    const { outcome, said, admin } = await drain(objects, name)
    t.match(outcome, message, say)
    t.equal(said, '', say)
    t.equal(
      (await admin.get({ apiVersion: 'v1', kind: 'Node', name }))?.metadata.labels?.['sealane.io/drain'],
      undefined,
    )
  }
  const forced = await drain([node('a'), gateway('a')], 'a', { force: true })
  t.equal(forced.said.slice(0, CHANGED.length), CHANGED, 'by force')
})

t.test('a second time, the Node is left as it is, and the rest is the same', async (t) => {
  const marked = node('a', { 'sealane.io/gateway': 'true', 'sealane.io/drain': 'yes' })
  const rows: [say: string, objects: readonly ManifestObject[]][] = [
    ['others carry', [marked, node('b'), gateway('a', 'True'), gateway('b')]],
    ['it is the only one by now', [marked, gateway('a', 'True')]],
  ]
  for (const [say, objects] of rows) {
    const { outcome, said, admin } = await drain(objects, 'a')
    t.equal(outcome, 'a carries no traffic', say)
    t.notMatch(said, 'changed', say)
    const left = await admin.get({ apiVersion: 'v1', kind: 'Node', name: 'a' })
    t.equal(left?.metadata.labels?.['sealane.io/drain'], 'yes', say)
  }
})

t.test('and comes back', async (t) => {
  const admin = new MemoryAdmin([node('a', { 'sealane.io/gateway': '0', 'sealane.io/drain': 'yes' })])
  let said = ''
  const init = { signal: new AbortController().signal, say: (text: string) => void (said += text) }
  t.match(await undrainGateway(admin, 'a', init), /^a can carry traffic again/)
  t.equal(said, '  changed   Node a  (sealane.io/drain-)\n')
  t.equal(await undrainGateway(admin, 'a', init), 'a is not drained', 'a second time')
  await t.rejects(undrainGateway(admin, 'z', init), { message: 'Node z: this cluster has no such Node' })
})

t.test('one service of a cluster: the annotation of its ServiceExport, beside others', async (t) => {
  const ref = { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', namespace: 'shop', name: 'web' }
  const annotations = { note: 'kept' }
  const exported: ManifestObject = { ...ref, metadata: { name: 'web', namespace: 'shop', annotations } }
  const other: ManifestObject = { ...exported, metadata: { ...exported.metadata, namespace: 'test' } }
  const admin = new MemoryAdmin([exported, other])
  const { signal } = new AbortController()
  const mark = (drained: boolean, name = 'web') =>
    drainService(admin, { namespace: 'shop', name, drained, now: false, signal })
  t.equal(await mark(true), true)
  t.same((await admin.get(ref))?.metadata.annotations, { note: 'kept', 'sealane.io/drain': 'true' })
  t.equal(await mark(true), false)
  t.same((await admin.get({ ...ref, namespace: 'test' }))?.metadata.annotations, annotations)
  t.equal(await mark(false), true)
  t.same((await admin.get(ref))?.metadata.annotations, annotations)
  t.equal(await mark(false), false)
  t.strictSame(admin.done, ['merge ServiceExport shop/web', 'merge ServiceExport shop/web'])
  await t.rejects(mark(true, 'none'), { message: /service shop\/none is not exported/ })
})
