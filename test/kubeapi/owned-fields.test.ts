/** The fields that we own, as the server's managedFields list them. */
import fc from 'fast-check'
import t from 'tap'
import { type FieldSet, appliedFields, fingerprint, ownedPart } from '../../kubeapi/kube/write/owned-fields.ts'

const rows: readonly { say: string; value: unknown; fields: FieldSet; want: unknown }[] = [
  { say: 'a scalar', value: { a: 1, b: 2 }, fields: { 'f:a': {} }, want: { a: 1 } },
  {
    say: 'a map, field by field',
    value: { l: { x: '1', y: '2' } },
    fields: { 'f:l': { 'f:x': {} } },
    want: { l: { x: '1' } },
  },
  { say: 'an atomic list', value: { l: [1, 2] }, fields: { 'f:l': {} }, want: { l: [1, 2] } },
  { say: 'what is owned and absent', value: {}, fields: { 'f:a': {}, 'f:b': { 'f:c': {} } }, want: {} },
  {
    say: 'items of a list by key, defaults left out',
    value: {
      ports: [
        { port: 80, protocol: 'TCP', name: 'a', nodePort: 3 },
        { port: 81, protocol: 'TCP' },
      ],
    },
    fields: { 'f:ports': { 'k:{"port":80,"protocol":"TCP"}': { '.': {}, 'f:port': {}, 'f:name': {} } } },
    want: { ports: [{ port: 80, name: 'a' }] },
  },
  {
    say: 'items of a set by value',
    value: { ips: ['10.0.0.1', '10.0.0.2'] },
    fields: { 'f:ips': { 'v:"10.0.0.2"': {} } },
    want: { ips: ['10.0.0.2'] },
  },
  { say: 'that a map exists', value: { m: { theirs: 1 } }, fields: { 'f:m': { '.': {} } }, want: { m: {} } },
  { say: 'keys that are no JSON', value: { l: [1] }, fields: { 'f:l': { 'k:{oops': {} } }, want: { l: [] } },
]

for (const { say, value, fields, want } of rows) {
  t.test(say, async (t) => {
    t.same(ownedPart(value, fields), want)
  })
}

t.test('only our own entry, of this version and this part, counts', async (t) => {
  const entry = { manager: 'sealane', operation: 'Apply', apiVersion: 'v1', fieldsV1: { 'f:a': {} } }
  t.same(appliedFields([entry], 'v1'), { 'f:a': {} })
  t.equal(appliedFields([{ ...entry, manager: 'argo' }], 'v1'), undefined)
  t.equal(appliedFields([{ ...entry, operation: 'Update' }], 'v1'), undefined)
  t.equal(appliedFields([{ ...entry, subresource: 'status' }], 'v1'), undefined)
  t.same(appliedFields([{ ...entry, subresource: 'status' }], 'v1', 'status'), { 'f:a': {} })
  t.equal(appliedFields([entry], 'v2'), undefined)
  t.equal(appliedFields(undefined, 'v1'), undefined)
})

const leaf = fc.oneof(fc.string(), fc.integer(), fc.boolean(), fc.array(fc.integer(), { maxLength: 3 }))
const tree = fc.dictionary(
  fc.stringMatching(/^[a-z]{1,3}$/),
  fc.oneof(leaf, fc.dictionary(fc.stringMatching(/^[a-z]{1,3}$/), leaf)),
  { maxKeys: 5 },
)

const fieldsOf = (value: Record<string, unknown>): FieldSet =>
  Object.fromEntries(
    Object.entries(value).flatMap(([name, inner]) => {
      if (typeof inner !== 'object' || Array.isArray(inner)) return [[`f:${name}`, {}]]
      const below = fieldsOf(inner as Record<string, unknown>)
      return Object.keys(below).length === 0 ? [] : [[`f:${name}`, below]]
    }),
  )

t.test('whatever others add, what we applied is found again', async () => {
  fc.assert(
    fc.property(tree, tree, (ours, theirs) => {
      const fields = fieldsOf(ours)
      const merged: Record<string, unknown> = { ...theirs }
      for (const [name, value] of Object.entries(ours)) {
        const other = theirs[name]
        const both = [value, other].every((side) => typeof side === 'object' && !Array.isArray(side))
        merged[name] = both ? { ...(other as object), ...(value as object) } : value
      }
      const want = Object.fromEntries(Object.entries(ours).filter(([name]) => fields[`f:${name}`] !== undefined))
      const found = Object.keys(fields).length === 0 ? {} : ownedPart(merged, fields)
      return fingerprint(found) === fingerprint(want)
    }),
  )
})

t.test('a fingerprint is about values, not about the order of fields', async (t) => {
  t.equal(fingerprint({ a: 1, b: { c: 2, d: 3 } }), fingerprint({ b: { d: 3, c: 2 }, a: 1 }))
  t.not(fingerprint({ a: [1, 2] }), fingerprint({ a: [2, 1] }))
  t.not(fingerprint({ a: 1 }), fingerprint({ a: '1' }))
})
