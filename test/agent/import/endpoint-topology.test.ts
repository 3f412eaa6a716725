import { deepStrictEqual } from 'node:assert/strict'
import t from 'tap'
import fc from 'fast-check'
import { usableTopology } from '../../../agent/export/member-records.ts'
import { isLabelValue } from '../../../model/ids.ts'
import type { SliceEndpoint } from '../../../model/objects.ts'

const LONG = 'z'.repeat(63)
const EIGHT = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']
const hints = (...names: string[]): NonNullable<SliceEndpoint['hints']> => ({
  forZones: names.map((name) => ({ name })),
})

t.test('zones and hints that can be used, and a word on each that cannot', async (t) => {
  const rows: [say: string, given: Partial<SliceEndpoint>, want: Partial<SliceEndpoint>, notes: string[]][] = [
    ['nothing', {}, {}, []],
    ['a zone', { zone: 'eu-west-1a' }, { zone: 'eu-west-1a' }, []],
    ['the longest', { zone: LONG }, { zone: LONG }, []],
    ['an empty one is none', { zone: '' }, {}, []],
    ['too long', { zone: `${LONG}z` }, {}, [`zone "${LONG}z" is left out: not a label value`]],
    ['not a label', { zone: 'a b' }, {}, ['zone "a b" is left out: not a label value']],
    [
      'very long: told in part',
      { zone: '*'.repeat(200) },
      {},
      [`zone "${'*'.repeat(100)}" is left out: not a label value`],
    ],
    ['hints', { zone: 'a', hints: hints('b', 'a') }, { zone: 'a', hints: hints('a', 'b') }, []],
    ['twice is once', { hints: hints('a', 'a') }, { hints: hints('a') }, []],
    ['none', { hints: {} }, {}, []],
    ['an empty list', { hints: hints() }, {}, []],
    [
      'the good ones stay',
      { hints: hints('a', '-', '') },
      { hints: hints('a') },
      ['zone "-" is left out: not a label value', 'zone "" is left out: not a label value'],
    ],
    ['eight', { hints: hints(...EIGHT) }, { hints: hints(...EIGHT) }, []],
    ['nine', { hints: hints(...EIGHT, 'i') }, {}, ['hints for 9 zones are left out: at most 8']],
  ]
  for (const [say, given, want, notes] of rows) {
    const reported: string[] = []
    t.strictSame(
      usableTopology({ addresses: ['10.42.0.1'], ...given }, (note) => reported.push(note)),
      want,
      say,
    )
    t.strictSame(reported, notes, `${say}: told`)
  }
})

t.test('what is left is usable, and stays as it is', async () => {
  const zone = fc.oneof(fc.string(), fc.constantFrom('a', 'b', 'c', LONG))
  fc.assert(
    fc.property(fc.option(zone), fc.array(zone, { maxLength: 12 }), (own, names) => {
      const given = { addresses: ['10.42.0.1'], ...(own === null ? {} : { zone: own }), hints: hints(...names) }
      const kept = usableTopology(given, () => undefined)
      const again = usableTopology({ addresses: given.addresses, ...kept }, (note) => {
        throw new Error(note)
      })
      deepStrictEqual(again, kept)
      const zones = [
        ...(kept.zone === undefined ? [] : [kept.zone]),
        ...(kept.hints?.forZones ?? []).map((z) => z.name),
      ]
      return zones.length <= 9 && zones.every((name) => name !== '' && isLabelValue(name))
    }),
  )
})
