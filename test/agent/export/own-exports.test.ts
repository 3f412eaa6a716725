import t from 'tap'
import { type ExportRecord, type SliceRecord, withOwnExport } from '../../../agent/import/clusterset-records.ts'
import type { ServiceKey } from '../../../model/ids.ts'
import { exported, sliceOf } from '../import-fixtures.ts'

const KEY: ServiceKey = 'shop/web'
const [own, other] = [exported('tokyo'), exported('milano')] as ExportRecord[]
const [ownSlice, otherSlice] = [sliceOf('tokyo', '10.1.0.1'), sliceOf('milano', '10.2.0.1')] as SliceRecord[]

t.test('what this cluster exports, its own API says', async (t) => {
  if (own === undefined || other === undefined || ownSlice === undefined || otherSlice === undefined) throw new Error()
  const reported = { exports: [own, other], slices: [ownSlice, otherSlice] }
  const see = (body: ExportRecord['body'] | undefined, ownKnown = true, facts = reported) =>
    withOwnExport(KEY, facts, {
      own: 'tokyo',
      ownKnown,
      ownExport: () => (body === undefined ? undefined : { body, slices: [] }),
    })
  t.equal(see(undefined, false).facts, reported, 'while nobody knows, the broker counts')
  t.strictSame(see(undefined).facts, { exports: [other], slices: [otherSlice] })
  t.strictSame(see(undefined).dropped, [
    {
      what: 'tokyo/ServiceExport/shop/web',
      reason: 'NotExported',
      message: 'this cluster does not export it',
      settles: true,
    },
  ])
  t.equal(see({ ...own.body }).facts.exports[0], own, 'the same says nothing new')
  const body = { ...own.body, type: 'Headless' as const }
  const first = see(body).facts.exports[0]
  t.strictSame(first, { ...own, body })
  t.equal(see(body).facts.exports[0], first, 'the same object again')
  const foreign = { exports: [other], slices: [otherSlice] }
  t.equal(see(body, true, foreign).facts, foreign, 'nothing is made up that the broker has not got')
})
