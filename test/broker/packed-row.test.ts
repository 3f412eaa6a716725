import fc from 'fast-check'
import t from 'tap'
import { packedBody, packedRow, rowFromText } from '../../broker/store/packed-row.ts'
import type { RecordRow } from '../../broker/store/rows.ts'
import { canonicalJson } from '../../protocol/codec/content-hash.ts'
import { encodePut, encodeRecordEvent } from '../../protocol/codec/records-codec.ts'
import { anExport } from './support/harness.ts'
import { anyStoredRecord } from '../protocol/arbitraries.ts'

t.test('a row that is kept as bytes says what it said, and is written as it was', (t) => {
  fc.assert(
    fc.property(anyStoredRecord, fc.option(fc.constant('ab'.repeat(32)), { nil: undefined }), (record, hash) => {
      const { createdAtMs, body } = record
      const row: RecordRow = { createdAtMs, body, ...(hash === undefined ? {} : { hash, bytes: 7 }) }
      const kept = packedRow(row)
      const isSmall = body.kind !== 'EndpointSlice' && body.kind !== 'ServiceExport'
      if ((kept === row) !== isSmall) return false
      const text = JSON.stringify(row)
      const stored = JSON.parse(JSON.stringify(kept)) as RecordRow
      const read = rowFromText(text)
      const same = (one: RecordRow): boolean =>
        canonicalJson(one.body) === canonicalJson(body) &&
        one.hash === hash &&
        one.bytes === row.bytes &&
        one.createdAtMs === createdAtMs &&
        canonicalJson(JSON.parse(JSON.stringify(one))) === canonicalJson(JSON.parse(text))
      return (
        same(read) &&
        // The call packs the body, so from here on the row holds bytes.
        (packedBody(read) === undefined || same(read)) &&
        canonicalJson(kept.body) === canonicalJson(body) &&
        canonicalJson(stored) === canonicalJson(row) &&
        kept.hash === hash &&
        kept.bytes === row.bytes &&
        packedRow(kept) === kept
      )
    }),
  )
  t.end()
})

t.test('its event is made of the same bytes without being read', (t) => {
  fc.assert(
    fc.property(anyStoredRecord, (record) => {
      const { createdAtMs, body } = record
      const bytes = packedBody(packedRow({ createdAtMs, body }))
      if (bytes === undefined) return true
      return Buffer.from(encodePut(record, bytes)).equals(encodeRecordEvent({ t: 'put', record }))
    }),
  )
  t.end()
})

t.test('a hash that is none is kept as it is', (t) => {
  const { body } = anExport('web')
  for (const hash of ['', 'x'.repeat(32), 'AB'.repeat(32), 'ab'.repeat(31), `${'ab'.repeat(32)}0`]) {
    const row: RecordRow = { createdAtMs: 1, body, hash, bytes: 3 }
    t.equal(packedRow(row), row, JSON.stringify(hash))
    t.equal(rowFromText(JSON.stringify(row)).hash, hash)
  }
  t.end()
})

t.test('a body that looks like the end of a row is a body', (t) => {
  const hash = 'ab'.repeat(32)
  const labels = { [`},"hash":"${hash}","bytes":5}`]: 'x', hash }
  const body = { ...anExport('web').body, exportedLabels: labels, exportedAnnotations: labels } as RecordRow['body']
  for (const row of [
    { createdAtMs: 1, body },
    { createdAtMs: 1, body, hash: 'cd'.repeat(32), bytes: 9 },
  ]) {
    const read = rowFromText(JSON.stringify(row))
    t.equal(read.hash, row.hash)
    t.same(read.body, body)
  }
  t.throws(() => rowFromText('{"createdAtMs":1,'), SyntaxError)
  t.end()
})
