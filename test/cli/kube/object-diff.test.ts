/** The parts of two objects that a diff shows, and the parts that it never shows. */
import t from 'tap'
import { objectDiff } from '../../../cli/cluster/preview-changes.ts'
import type { ManifestObject } from '../../../install/values/manifest.ts'

const object = (kind: string, more: object, metadata: object = {}): ManifestObject => ({
  apiVersion: 'v1',
  kind,
  metadata: { name: 'a', ...metadata },
  ...more,
})
const diff = (before: object, after: object, kind = 'Thing'): readonly string[] =>
  objectDiff(object(kind, before), object(kind, after))

t.test('one line for each place', (t) => {
  const rows: readonly (readonly [before: object, after: object, lines: readonly string[]])[] = [
    [{ spec: { a: 1 } }, { spec: { a: 1 } }, []],
    [{ spec: { replicas: 2 } }, { spec: { replicas: 3 } }, ['spec.replicas: 2 -> 3']],
    [{ spec: {} }, { spec: { on: true } }, ['spec.on: (none) -> true']],
    [{ spec: { 'a/b.c': 'x' } }, { spec: {} }, ['spec["a/b.c"]: "x" -> (none)']],
    [{ spec: { list: [] } }, { spec: {} }, []],
    [{ spec: { map: {}, nothing: null } }, { spec: {} }, []],
    [
      { spec: { containers: [{ name: 'x', image: 'a' }, { name: 'y' }] } },
      { spec: { containers: [{ name: 'y' }, { name: 'x', image: 'b' }] } },
      ['spec.containers[x].image: "a" -> "b"'],
    ],
    [{ args: ['--a', '1'] }, { args: ['--a', '2'] }, ['args[1]: "1" -> "2"']],
    [{ args: ['--a'] }, { args: ['--a', '2'] }, ['args: ["--a"] -> ["--a","2"]']],
    [{ items: [{ operator: 'Exists' }] }, { items: [] }, ['items: [{"operator":"Exists"}] -> []']],
    [
      { data: { 'site.yaml': 'a: 1\nb: 2\nc: 3\n' } },
      { data: { 'site.yaml': 'a: 1\nb: 4\nc: 3\nd: 5\n' } },
      ['data["site.yaml"]:', '  - b: 2', '  + b: 4', '  + d: 5'],
    ],
  ]
  for (const [before, after, lines] of rows) t.strictSame(diff(before, after), lines, JSON.stringify(after))
  t.end()
})

t.test('what the server writes by itself is no difference', (t) => {
  const stamps = { resourceVersion: '2', generation: 3, uid: 'u', creationTimestamp: 'now', managedFields: [{}] }
  const applied = { 'kubectl.kubernetes.io/last-applied-configuration': '{"data":{"key":"c2VjcmV0"}}' }
  const before = object('Thing', { status: { a: 1 } }, { annotations: applied })
  t.strictSame(objectDiff(before, object('Thing', {}, stamps)), [])
  const counted = object('Thing', {}, { annotations: { 'deprecated.daemonset.template.generation': '2' } })
  t.strictSame(objectDiff(object('Thing', {}), counted), [])
  const reported = objectDiff(object('Thing', {}), object('Thing', {}, { labels: { a: 'b' } }))
  t.strictSame(reported, ['metadata.labels: (none) -> {"a":"b"}'])
  t.end()
})

t.test('nothing of a Secret is shown', (t) => {
  const [old, now] = [
    { data: { key: 'b2xk', same: 'c2FtZQ==' } },
    { data: { key: 'bmV3', same: 'c2FtZQ==', more: 'eA==' } },
  ]
  t.strictSame(diff(old, now, 'Secret'), ['data.key: (hidden) -> (hidden)', 'data.more: (none) -> (hidden)'])
  t.strictSame(diff({}, now, 'Secret'), [
    'data.key: (none) -> (hidden)',
    'data.more: (none) -> (hidden)',
    'data.same: (none) -> (hidden)',
  ])
  t.end()
})

t.test('a difference without end has one', (t) => {
  const many = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`key-${String(i).padStart(2, '0')}`, i]))
  const lines = diff({ spec: { x: 1 } }, { spec: { ...many, x: 1 } })
  t.equal(lines.length, 61)
  t.equal(lines.at(-1), '… and 40 more lines')
  const [long] = diff({ spec: 'x' }, { spec: 'y'.repeat(1000) })
  t.ok((long ?? '').length < 200)
  t.end()
})
