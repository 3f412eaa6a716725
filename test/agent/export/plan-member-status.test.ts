import t from 'tap'
import { newImportMemory, planImports } from '../../../agent/import/plan-imports.ts'
import { planMemberStatus } from '../../../agent/publish/plan-member-report.ts'
import type { ServiceKey } from '../../../model/ids.ts'
import { type MemberStatus, type NotImportedReason, findingProblem } from '../../../model/member-status.ts'
import type { StoredRecord } from '../../../model/records.ts'
import { decodePublishMessage, encodePublishMessage } from '../../../protocol/codec/messages-codec.ts'
import { FLAT, INIT, IP, MILANO, cluster, exported, world } from '../import-fixtures.ts'

interface Change {
  readonly namespaces?: readonly string[]
  readonly problems?: readonly (readonly [ServiceKey, NotImportedReason])[]
  readonly allowed?: readonly string[]
  readonly exported?: readonly string[]
}

/** Returns the status that tokyo reports about these records. */
function status(
  records: StoredRecord[],
  { namespaces = ['shop'], problems = [], allowed = [], exported }: Change = {},
): MemberStatus {
  const all = world(records, { namespaces: new Set(namespaces) })
  const { basis } = planImports(all, newImportMemory(INIT))
  return planMemberStatus({
    own: 'tokyo',
    view: basis.view,
    exported: exported && new Set(exported),
    namespaces: all.namespaces,
    lists: { allowed, excluded: ['bank'] },
    clusters: basis.clusters,
    members: basis.view.clusters,
    problems: new Map(problems),
  })
}

function show({ notImported, leftOut }: MemberStatus): string {
  const lines = notImported.map((one) => `${one.namespace}/${one.name}@${one.cluster} ${one.reason}`)
  return [...lines, ...(leftOut === 0 ? [] : [`${leftOut} more`])].join(', ')
}

function at(record: StoredRecord, namespace: string, name = record.key.name): StoredRecord {
  return { ...record, key: { ...record.key, namespace, name } }
}

t.test('what is told', (t) => {
  const CLASH = cluster('clash', ['10.43.0.0/20'], [])
  const rows: [name: string, status: MemberStatus, want: string][] = [
    ['nothing', status([]), ''],
    ['all is imported', status([MILANO, IP, exported('milano')]), ''],
    ['one namespace is not here', status([MILANO, exported('milano')], { namespaces: [] }), 'shop/@ NamespaceMissing'],
    [
      'once for all in it',
      status([MILANO, FLAT, exported('milano'), exported('flat'), at(exported('milano'), 'shop', 'db')], {
        namespaces: ['default'],
      }),
      'shop/@ NamespaceMissing',
    ],
    ['own exports are no matter', status([exported('tokyo')], { namespaces: [] }), ''],
    [
      'what the local API says',
      status([MILANO, exported('milano'), at(exported('milano'), 'shop', 'db')], {
        problems: [
          ['shop/web', 'NameTaken'],
          ['shop/gone', 'NameTaken'],
        ],
      }),
      'shop/web@ NameTaken',
    ],
    [
      'only our own export of it is in the way',
      status([exported('tokyo')], { problems: [['shop/web', 'NameTaken']] }),
      '',
    ],
    ["a cluster whose addresses are this one's own", status([CLASH, exported('clash')]), '/@clash ClusterNotUsable'],
    ['that exports nothing', status([CLASH]), ''],
    ['a cluster that nobody has told of yet', status([exported('milano')]), ''],
    [
      'system namespaces',
      status([MILANO, at(exported('milano'), 'kube-system'), at(exported('milano'), 'kube-system', 'dns')]),
      'kube-system/@ NamespaceNotAllowed',
    ],
    [
      'malformed, and told by name',
      status([MILANO, exported('milano', { internalTrafficPolicy: 'Moon' })]),
      'shop/web@milano ExportRefused',
    ],
    [
      'malformed, and not to be named',
      status([MILANO, at(exported('milano'), '../..'), at(exported('milano'), 'shop', '<b>')]),
      '',
    ],
  ]
  for (const [name, is, want] of rows) t.equal(show(is), want, name)
  t.end()
})

t.test('it is bounded, and what holds for more comes first', (t) => {
  const long = 'n'.repeat(58)
  const services = Array.from({ length: 3000 }, (_, i) => at(exported('milano'), 'shop', `${long}-${1000 + i}`))
  const spaces = Array.from({ length: 500 }, (_, i) => at(exported('milano'), `${long}-${1000 + i}`))
  const problems = services.map(({ key }) => [`shop/${key.name}` as ServiceKey, 'NameTaken' as const] as const)
  const reported = status([MILANO, ...services, ...spaces], { problems })
  t.equal(reported.notImported.filter(({ reason }) => reason === 'NamespaceMissing').length, 500)
  t.ok(reported.notImported.length <= 1000)
  t.equal(reported.notImported.length + reported.leftOut, 3500)
  for (const one of reported.notImported) t.equal(findingProblem(one), undefined)
  const message = { t: 'status' as const, sequence: 1, status: reported }
  t.same(decodePublishMessage(encodePublishMessage(message)), message, 'the wire takes it')
  t.same(status([...spaces, MILANO, ...services.reverse()], { problems }), reported, 'in whatever order it comes')
  t.end()
})

t.test('namespaces whose records were not asked for are missing by the word of the broker', (t) => {
  const exported = ['shop', 'blue', 'kube-system']
  t.equal(show(status([], { exported: ['bank'] })), 'bank/@ NamespaceNotAllowed')
  t.equal(show(status([], { exported: ['bank'], allowed: ['bank'] })), 'bank/@ NamespaceMissing')
  t.equal(show(status([], { exported })), 'blue/@ NamespaceMissing, kube-system/@ NamespaceNotAllowed')
  const allowed = ['kube-system']
  t.equal(show(status([], { exported, allowed })), 'blue/@ NamespaceMissing, kube-system/@ NamespaceMissing')
  t.equal(show(status([], { exported: ['shop'] })), '')
  t.equal(show(status([], { exported: [] })), '')
  t.end()
})
