/** The files in a Lease's folder that are versions of it. */
import fc from 'fast-check'
import t from 'tap'
import { readVersions } from '../../../../kubeapi/files/lease-folder.ts'

t.test('by name', async (t) => {
  const rows: readonly (readonly [names: string, versions: string, strange: string])[] = [
    ['', '', ''],
    ['1.json', '1', ''],
    ['9.json 10.json 11.json', '11 10 9', ''],
    ['.1.json.77.0123456789ab.tmp 1.json .nfs0001', '1', ''],
    [
      '0.json 01.json 1.JSON 2 1.json 1.json~ -3.json 1e3.json',
      '1',
      '0.json 01.json 1.JSON 2 1.json~ -3.json 1e3.json',
    ],
    ['1.json 2.json 999999999999.json', '2 1', '999999999999.json'],
    ['1.json 999999999999.json', '1', '999999999999.json'],
    ['5.json 50000.json 50001.json 50002.json', '50002 50001 50000', '5.json'],
    ['9999999999999.json 3.json', '3', '9999999999999.json'],
    ['3.json 7.json', '7 3', ''],
  ]
  for (const [names, versions, strange] of rows) {
    const found = readVersions(names.split(' ').filter((name) => name !== ''))
    t.equal(found.versions.join(' '), versions, names)
    t.equal(found.strange.map(([name]) => name).join(' '), strange, `strange of ${names}`)
  }
})

t.test('whatever else lies there, versions that follow each other count', async (t) => {
  const run = fc.tuple(fc.integer({ min: 1, max: 1_000_000 }), fc.integer({ min: 3, max: 40 }))
  const rubbish = fc.array(fc.oneof(fc.string(), fc.constantFrom('999999999999.json', '900000000000.json')), {
    maxLength: 20,
  })
  fc.assert(
    fc.property(run, rubbish, ([first, length], others) => {
      const ours = Array.from({ length }, (_, i) => `${first + i}.json`)
      const apart = others.filter((name) => !/^[1-9]\d{0,8}\.json$/.test(name))
      const { versions } = readVersions([...new Set([...apart, ...ours])])
      return versions[0] === first + length - 1 && versions.length === length
    }),
  )
  t.pass('always')
})
