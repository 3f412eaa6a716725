/**
 * An agent is upgraded while its export of a guarded namespace has conditions that do not say whether an earlier release
 * has exported it: neither is it withdrawn from those who import it, nor exported for the first time.
 */
import t from 'tap'
import type { ClusterId } from '../../model/ids.ts'
import type { Condition } from '../../model/objects.ts'
import type { ConditionReason } from '../../model/reasons/reasons.ts'
import { recordKeyText } from '../../model/records.ts'
import { eventually } from '../support/eventually.ts'
import { namespaceObject } from '../support/objects/service-objects.ts'
import { FakeClusterset } from './fake-clusterset.ts'
import { Site, service, serviceExport, slice } from './site.ts'

const KEY = { cluster: 'milano' as ClusterId, kind: 'ServiceExport' as const, namespace: 'default', name: 'web' }
const BODY = {
  kind: 'ServiceExport' as const,
  uid: 'web',
  type: 'ClusterSetIP' as const,
  ports: [{ name: 'http', protocol: 'TCP' as const, port: 81 }],
  sessionAffinity: 'None' as const,
  ipFamilies: ['IPv4' as const],
  exportedLabels: {},
  exportedAnnotations: {},
}

function condition(type: string, status: Condition['status'], reason: ConditionReason): Condition {
  return { type, status, reason, message: '', lastTransitionTime: '2026-11-28T09:00:00Z' }
}

for (const [say, isStored] of [
  ['the broker has it: it stays', true],
  ['the broker has none: it was never exported, or left', false],
] as const) {
  t.test(say, async (t) => {
    const set = new FakeClusterset()
    const site = new Site(set, { id: 'milano', podCIDR: '10.42.0.0/16' })
    if (isStored) set.put(KEY, BODY)
    const removed: string[] = []
    const remove = set.remove.bind(set)
    set.remove = (key) => {
      removed.push(recordKeyText(key))
      remove(key)
    }
    await site.join()
    const conditions = [condition('Valid', 'True', 'Valid'), condition('Ready', 'False', 'Pending')]
    for (const namespace of ['default', 'shop']) {
      site.api.put(namespaceObject(namespace))
      site.api.put(service(namespace, 'web'))
      site.api.put(slice(namespace, 'web', '10.42.0.5'))
    }
    site.api.put({ ...serviceExport('default', 'web'), status: { conditions } })
    site.export('shop', 'web')
    set.online = false
    site.start()
    t.teardown(() => site.stop())
    await eventually(() => site.conditions('shop', 'web').startsWith('Valid=True/Valid Ready=False/Pending'))
    t.equal(site.conditions('default', 'web'), 'Valid=True/Valid Ready=False/Pending', 'not known while it is away')
    const said = (): unknown =>
      site.logger.lines
        .filter(({ fields }) => fields['reason'] === 'ExportsUndecided')
        .map(({ fields }) => [fields['service'], fields['count']])
    t.same(said(), [['default/web', 1]], 'nothing else is published either, which is logged once')
    t.equal(site.status.reports()['undecidedExports'], 1)
    set.online = true
    set.spread()
    await eventually(() => site.conditions('shop', 'web').includes('Ready=True/Exported'))
    const want = isStored ? 'Valid=True/Valid,ExportedBefore Ready=True/Exported' : 'Valid=False/NamespaceNotAllowed'
    await eventually(() => site.conditions('default', 'web').startsWith(want), { say: want })
    t.equal(set.records.has(recordKeyText(KEY)), isStored)
    t.equal(site.status.reports()['undecidedExports'], undefined)
    t.same(
      removed.filter((key) => key === recordKeyText(KEY)),
      [],
    )
  })
}
