import t from 'tap'
import { conditionsOf, listOf } from '../../../../cli/installation/object-status.ts'

const object = (status?: unknown) => ({ apiVersion: 'v1', kind: 'Pod', metadata: { name: 'a' }, status })

t.test('a status that nobody has written yet has no conditions', async (t) => {
  for (const status of [undefined, null, {}, { conditions: null }, { conditions: 'x' }]) {
    t.strictSame(conditionsOf(object(status)), [], JSON.stringify(status))
  }
  t.strictSame(conditionsOf(object({ conditions: [{ type: 'Ready', status: 'True' }] })), [
    { type: 'Ready', status: 'True' },
  ])
  t.strictSame(listOf(object({ addresses: [1] }), 'addresses'), [1])
})
