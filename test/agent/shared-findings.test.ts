/** SharedFindings notifies a loop of the changed findings, and of no others. */
import t from 'tap'
import type { ExportPlan } from '../../agent/export/plan-exports.ts'
import { SharedFindings } from '../../agent/loop/shared-findings.ts'
import { serviceKey } from '../../model/ids.ts'

t.test('what is set again as it was is no change', async (t) => {
  const importers = () => {
    const none = { silent: [], partial: new Set<string>(), unheardSince: new Map(), findings: new Map() }
    return { importers: { reporting: ['paris'], ...none }, settled: new Map([[serviceKey('shop', 'web'), 1]]) }
  }
  const needed = (cidr: string) => [{ cidr, why: 'nodes' }] as never
  const rows: readonly (readonly [name: string, listen: 'onNeeded' | 'onImporters' | 'onExpired', set: Setter[]])[] = [
    ['needed', 'onNeeded', ['10.1.0.0/16', '10.1.0.0/16', '10.2.0.0/16'].map((one) => (f) => f.setNeeded(needed(one)))],
    ['importers', 'onImporters', [importers(), importers(), { ...importers(), settled: new Map() }].map(setImporters)],
    [
      'expired',
      'onExpired',
      [
        ['a', 'b'],
        ['b', 'a'],
        ['a', 'c'],
      ].map((ids) => (f) => f.setExpired(new Set(ids))),
    ],
  ]
  for (const [name, listen, [first, same, other]] of rows) {
    const findings = new SharedFindings()
    let calls = 0
    findings[listen](() => (calls += 1))
    first!(findings)
    t.equal(calls, 1, `${name}: the first time`)
    same!(findings)
    t.equal(calls, 1, `${name}: the same`)
    other!(findings)
    t.equal(calls, 2, `${name}: another one`)
  }
})

type Setter = (findings: SharedFindings) => void

function setImporters(importers: Parameters<SharedFindings['setImporters']>[0]): Setter {
  return (findings) => findings.setImporters(importers)
}

t.test('that nobody is expired is news the first time', async (t) => {
  const findings = new SharedFindings()
  let calls = 0
  findings.onExpired(() => (calls += 1))
  for (const ids of [[], [], ['a'], [], []]) findings.setExpired(new Set(ids))
  t.equal(calls, 3)
})

t.test('exports and findings that are not the very same objects are named, and those that are gone', async (t) => {
  const findings = new SharedFindings()
  const heard: string[][] = []
  const [a, b, c] = ['a', 'b', 'c'].map((name) => serviceKey('shop', name))
  const records = { a: [], b: [], c: [], other: [] }
  const plan = (entries: readonly (readonly [string | undefined, unknown])[]): ExportPlan =>
    ({ exports: new Map(entries.map(([key, value]) => [key, { records: value }])) }) as unknown as ExportPlan
  findings.onExports((keys) => heard.push([...keys]))
  findings.setExportPlan(plan([]))
  findings.setExportPlan(
    plan([
      [a, records.a],
      [b, records.b],
    ]),
  )
  findings.setExportPlan(
    plan([
      [a, records.a],
      [b, records.b],
    ]),
  )
  findings.setExportPlan(
    plan([
      [a, records.other],
      [c, records.c],
    ]),
  )
  t.same(heard.splice(0), [[], [a, b], [a, c, b]])

  const conflicts = (entries: readonly (readonly [string | undefined, unknown])[]) => new Map(entries) as never
  const [one, other] = [{}, {}]
  findings.onFindings((keys) => heard.push([...keys]))
  findings.setOwnFindings(conflicts([[a, one]]))
  findings.setOwnFindings(conflicts([[a, one]]))
  findings.setOwnFindings(conflicts([[a, other]]))
  findings.setOwnFindings(conflicts([[b, one]]))
  t.same(heard, [[a], [a], [b, a]])
})
