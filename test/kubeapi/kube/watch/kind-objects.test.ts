/** An object that disappears from the server disappears here; a Membership first reports that it ends. */
import t from 'tap'
import { KindObjects } from '../../../../kubeapi/kube/kind-objects.ts'
import type { Kind } from '../../../../model/objects.ts'

function raw(kind: Kind, name: string, version: number, spec: object = {}) {
  const metadata = { name, uid: `${name}-${version}`, resourceVersion: String(version) }
  return { apiVersion: 'sealane.io/v1alpha1', kind, metadata, spec }
}

function complete<K extends Kind>(objects: KindObjects<K>, ...found: readonly ReturnType<typeof raw>[]): void {
  const list = objects.beginList()
  for (const one of found) list.add(one)
  objects.finishList(list)
}

t.test('a Membership that vanishes while it is joined goes on being known, until there is another', (t) => {
  for (const how of ['by the watch', 'by a list'] as const) {
    const objects = new KindObjects('Membership')
    const joined = raw('Membership', 'self', 1, { phase: 'joined', clusterId: 'c1' })
    const heard: string[] = []
    complete(objects, joined)
    objects.cache.onChange((change) => heard.push(change?.type ?? 'synced'))
    if (how === 'by the watch') objects.drop(joined)
    else complete(objects)
    t.equal(objects.cache.get('self')?.spec.phase, 'joined', how)
    t.equal(objects.holding('self'), undefined, 'but the server has it not: it can be written')
    t.strictSame(heard, [], 'nobody hears that it is gone')
    const leaving = raw('Membership', 'self', 5, { phase: 'leaving', clusterId: 'c1' })
    objects.take(leaving)
    t.equal(objects.cache.get('self')?.spec.phase, 'leaving')
    objects.drop(leaving)
    t.equal(objects.cache.get('self'), undefined, 'who leaves says so first, and is gone then')
    t.strictSame(heard, ['set', 'removed'])
  }
  t.end()
})

t.test('all other kinds are as the server says', (t) => {
  const objects = new KindObjects('Gateway')
  complete(objects, raw('Gateway', 'n1', 1), raw('Gateway', 'n2', 2))
  objects.drop(raw('Gateway', 'n1', 1))
  t.equal(objects.cache.get('n1'), undefined)
  complete(objects)
  t.strictSame(objects.cache.list(), [])
  t.end()
})
