/** Fields that an older schema lacks: what the server's message names, and the object without them. */
import fc from 'fast-check'
import t from 'tap'
import { unknownFields, withoutFields } from '../../../../kubeapi/kube/write/unknown-fields.ts'

const BEGIN = 'failed to create typed patch object (/paris; sealane.io/v1alpha1, Kind=Cluster): '
const END = ': field not declared in schema'
const BODY = {
  metadata: { name: 'paris' },
  spec: {
    id: 'paris',
    drained: true,
    ports: [
      { name: 'a', port: 80, fresh: 1 },
      { name: 'b.c', port: 81, fresh: 2 },
    ],
  },
}

t.test('messages', async (t) => {
  const rows: readonly (readonly [message: string, want: readonly string[]])[] = [
    [`${BEGIN}.spec.drained${END}`, ['.spec.drained']],
    [`${BEGIN}errors:\n  .spec.a${END}\n  .status.b[0].c${END}`, ['.spec.a', '.status.b[0].c']],
    [`${BEGIN}errors: .spec.a${END} .spec.l[name="x"].b${END}`, ['.spec.a', '.spec.l[name="x"].b']],
    [`${BEGIN}.spec.drained: expected string`, []],
    ['conflict with "argo": .spec.drained', []],
    ['', []],
  ]
  for (const [message, want] of rows) t.same(unknownFields(message), want, message)
})

t.test('objects without them', async (t) => {
  const rows: readonly (readonly [paths: readonly string[], want: unknown])[] = [
    [['.spec.drained'], { ...BODY, spec: { id: 'paris', ports: BODY.spec.ports } }],
    [
      ['.spec.ports[0].fresh', '.spec.ports[name="b.c",port=81].fresh'],
      {
        ...BODY,
        spec: {
          ...BODY.spec,
          ports: [
            { name: 'a', port: 80 },
            { name: 'b.c', port: 81 },
          ],
        },
      },
    ],
    [['.spec'], undefined],
    [['.spec.nosuch'], undefined],
    [['.spec.drained.more'], undefined],
    [['.spec.ports[5].fresh'], undefined],
    [['.spec.ports[0]'], undefined],
    [['.spec.__proto__.x'], undefined],
    [['.spec.constructor'], undefined],
  ]
  for (const [paths, want] of rows) t.same(withoutFields(BODY, paths), want, paths.join())
  t.ok(BODY.spec.drained, 'the object itself stays')
})

t.test('any text', async (t) => {
  fc.assert(
    fc.property(fc.string(), fc.string(), (before, path) => {
      const paths = unknownFields(`${before} .spec.${path}${END}`)
      const served = withoutFields(BODY, paths)
      return served === undefined || Object.keys(served.spec).every((key) => key in BODY.spec)
    }),
  )
  t.pass()
})
