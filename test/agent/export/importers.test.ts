import t from 'tap'
import {
  type ImportersInput,
  importedCondition,
  planImportedBy,
  planImporters,
} from '../../../agent/export/importers.ts'
import type { MemberStatus, NotImported, NotImportedReason } from '../../../model/member-status.ts'

function reported(...notImported: NotImported[]): MemberStatus {
  return { notImported, leftOut: 0 }
}

function not(reason: NotImportedReason, where: Partial<NotImported> = {}): NotImported {
  return { reason, namespace: '', name: '', cluster: '', ...where }
}

const MISSING = reported(not('NamespaceMissing', { namespace: 'shop' }))
const ALL = reported()

/** Returns the condition of the export shop/web of c1, which the broker stored at revision 100. */
function validate(statuses: Record<string, MemberStatus | undefined>, change: Partial<ImportersInput> = {}): string {
  const heard = Object.entries(statuses).filter((entry): entry is [string, MemberStatus] => entry[1] !== undefined)
  const importers = planImporters({
    own: 'c1',
    members: ['c1', ...Object.keys(statuses)],
    expired: new Set(),
    statuses: new Map(heard),
    unheardSince: new Map(),
    namespaces: new Set(['shop', 'other']),
    ...change,
  })
  const { type, status, reason, message } = importedCondition('shop/web', importers, 100)
  t.equal(type, 'sealane.io/Imported')
  return `${status}/${reason}: ${message}`
}

t.test('what an export is told', (t) => {
  const rows: [name: string, is: string, want: string][] = [
    ['alone', validate({}), 'Unknown/NoOtherMember: the clusterset has no other member'],
    ['all import', validate({ c3: ALL, c2: ALL }), 'True/Imported: imported by c2, c3'],
    [
      'one does not',
      validate({ c2: ALL, c3: MISSING, c4: ALL }),
      'True/Imported: imported by c2, c4; namespace shop is missing in c3',
    ],
    [
      'none does',
      validate({ c2: MISSING, c3: MISSING }),
      'False/NotImported: no member imports it: namespace shop is missing in c2, c3',
    ],
    [
      'each for a reason of its own',
      validate({
        c2: MISSING,
        c3: reported(not('NameTaken', { namespace: 'shop', name: 'web' })),
        c4: reported(not('ClusterNotUsable', { cluster: 'c1' })),
        c5: reported(not('IPFamilyNotSupported', { namespace: 'shop', name: 'web' })),
      }),
      "False/NotImported: no member imports it: this cluster's addresses overlap those of c4; " +
        'the service has no IP family that pods use in c5; ' +
        'a ServiceImport of this name that Sealane did not create exists in c3; namespace shop is missing in c2',
    ],
    [
      'what is about others',
      validate({
        c2: reported(
          not('NamespaceMissing', { namespace: 'other' }),
          not('NamespaceMissing', { namespace: 'stock' }),
          not('NameTaken', { namespace: 'shop', name: 'db' }),
          not('ExportRefused', { namespace: 'shop', name: 'web', cluster: 'c3' }),
          not('ClusterNotUsable', { cluster: 'c3' }),
        ),
      }),
      'True/Imported: imported by c2',
    ],
    [
      'an older release among them',
      validate({ c2: ALL, c3: undefined }),
      'True/Imported: imported by c2; no report from c3',
    ],
    ['older releases only', validate({ c2: undefined, c3: undefined }), 'Unknown/NotTold: no report from c2, c3'],
    [
      'an older release, and one that does not',
      validate({ c2: MISSING, c3: undefined }),
      'Unknown/NotTold: no report from c3; namespace shop is missing in c2',
    ],
    [
      'a dead one does not count',
      validate({ c2: ALL, c3: ALL }, { expired: new Set(['c2']) }),
      'True/Imported: imported by c3',
    ],
    [
      'one that was away when the export came knows nothing of it',
      validate({ c2: ALL, c3: ALL }, { unheardSince: new Map([['c2', 90]]) }),
      'True/Imported: imported by c3; no report from c2',
    ],
    [
      'one that went away later does',
      validate({ c2: ALL, c3: ALL }, { unheardSince: new Map([['c2', 110]]) }),
      'True/Imported: imported by c2, c3',
    ],
    [
      'one with more findings than it can tell',
      validate({ c2: { notImported: [], leftOut: 1 }, c3: { ...MISSING, leftOut: 7 } }),
      'Unknown/NotTold: no report from c2; namespace shop is missing in c3',
    ],
    [
      'many import',
      validate(Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`c${i + 1000}`, ALL]))),
      'True/Imported: imported by c1000, c1001, c1002, c1003, c1004 and others',
    ],
    [
      'many do not',
      validate(Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`c${i + 1000}`, MISSING]))),
      'False/NotImported: no member imports it: ' +
        'namespace shop is missing in c1000, c1001, c1002, c1003, c1004 and 995 more',
    ],
  ]
  for (const [name, is, want] of rows) t.equal(is, want, name)
  t.end()
})

t.test('findings about namespaces from which nothing is exported are not kept', (t) => {
  const { findings } = planImporters({
    own: 'c1',
    members: ['c2'],
    expired: new Set(),
    statuses: new Map([['c2', reported(not('NamespaceMissing', { namespace: 'stock' }))]]),
    unheardSince: new Map(),
    namespaces: new Set(['shop']),
  })
  t.equal(findings.size, 0)
  t.end()
})

t.test('members that it is not offered to do not count', async (t) => {
  const imported = (
    offered: readonly string[] | undefined,
    statuses: Record<string, MemberStatus | undefined>,
  ): string => {
    const heard = Object.entries(statuses).flatMap(([id, one]) => (one === undefined ? [] : [[id, one] as const]))
    const importers = planImporters({
      own: 'c1',
      members: Object.keys(statuses),
      expired: new Set(),
      statuses: new Map(heard),
      unheardSince: new Map(),
      namespaces: new Set(['shop']),
    })
    const { status, reason, message } = importedCondition('shop/web', importers, 100, offered)
    return `${status}/${reason}: ${message}`
  }
  const nobody = 'Unknown/OfferedToNobody: access policies offer it to no other member'
  const rows: readonly [string, readonly string[] | undefined, Record<string, MemberStatus | undefined>, string][] = [
    ['all', undefined, { c2: ALL, c3: ALL }, 'True/Imported: imported by c2, c3'],
    ['one of two', ['c3'], { c2: ALL, c3: ALL }, 'True/Imported: imported by c3'],
    ['one that cannot', ['c2'], { c2: ALL, c3: MISSING }, 'True/Imported: imported by c2'],
    ['a silent one', ['c3'], { c2: undefined, c3: ALL }, 'True/Imported: imported by c3'],
    ['nobody', [], { c2: ALL, c3: MISSING, c4: undefined }, nobody],
    ['no member', ['lima'], { c2: ALL }, nobody],
    ['no other member', [], {}, 'Unknown/NoOtherMember: the clusterset has no other member'],
  ]
  for (const [name, offered, statuses, want] of rows) t.equal(imported(offered, statuses), want, name)
})

t.test('who imports each export: bounded, and only who is known to', async (t) => {
  const many = Array.from({ length: 20 }, (_, i) => `m${String(i).padStart(2, '0')}`)
  const statuses = new Map<string, MemberStatus>(many.map((id) => [id, ALL]))
  statuses.set('c2', MISSING)
  statuses.set('c3', { notImported: [], leftOut: 1 })
  const members = ['c1', 'c2', 'c3', 'c4', ...many]
  const importers = planImporters({
    own: 'c1',
    ...{
      members,
      statuses,
      expired: new Set(),
      unheardSince: new Map([['m00', 50]]),
      namespaces: new Set(['shop', 'other']),
    },
  })
  const all = (keys: readonly string[], settled = keys) => ({
    importers,
    settled: new Map(settled.map((key) => [key as never, 100])),
    exports: new Map(keys.map((key) => [key as never, { offered: { clusters: offered[key] as never } }])),
    before: [],
  })
  const offered: Record<string, readonly string[] | undefined> = {
    'other/db': ['c2', 'c3', 'c4', 'lima'],
    'shop/db': [],
  }
  const keys = ['shop/web', 'other/db', 'shop/db', 'other/api']
  const rows = planImportedBy(all(keys))
  t.same(rows, [
    { namespace: 'other', name: 'api', clusters: ['c2', ...many.slice(1, 16)], more: 4 },
    { namespace: 'other', name: 'db', clusters: ['c2'] },
    { namespace: 'shop', name: 'web', clusters: many.slice(1, 17), more: 3 },
  ])
  const services = Array.from({ length: 300 }, (_, i) => `shop/s${i}`)
  t.equal(planImportedBy(all(services)).length, 256)
  t.same(planImportedBy(all([])), [])
  const before = [...rows, { namespace: 'shop', name: 'gone', clusters: ['c2'] }]
  t.same(planImportedBy({ ...all(keys, []), before }), rows, 'a new process removes nothing but what is not exported')
})
