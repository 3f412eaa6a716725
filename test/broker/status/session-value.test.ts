/** Other programs may write the session values of replicas, so reading a value throws nothing, whatever it is. */
import fc from 'fast-check'
import t from 'tap'
import { formatSession, parseSession } from '../../../broker/store/etcd/replica-session.ts'

t.test('what is written is read', (t) => {
  const value = {
    members: ['c1', 'c2', 'c3'],
    host: 'sealane-broker-0',
    version: '0.2.0',
    keepsToOffers: true,
    keepsToTopology: true,
    keepsToTransit: true,
    keepsTokenLabels: true,
    keepsAddedRelays: true,
  } as const
  t.strictSame(parseSession(formatSession(value)), value)
  t.strictSame(parseSession(Buffer.from('{"members":["c1"]}')), { members: ['c1'] }, 'of an earlier release')
  t.strictSame(parseSession(Buffer.from('{"members":["c1"],"keepsToOffers":1}')), { members: ['c1'] }, 'no such word')
  t.strictSame(parseSession(Buffer.from('{"members":["c1"],"more":{}}')), { members: ['c1'] }, 'of a later one')
  t.end()
})

t.test('nonsense', (t) => {
  for (const text of ['', 'null', '[]', '7', '{', '{"members":"c1"}', '{"members":[1,{}]}', '{"host":"a\\u001bb"}'])
    t.strictSame(parseSession(Buffer.from(text)), { members: [] }, JSON.stringify(text))
  t.strictSame(parseSession(Buffer.alloc(1024 * 1024 + 1, ' ')), { members: [] }, 'a megabyte')
  t.strictSame(parseSession(Buffer.from(`{"host":"${'a'.repeat(254)}"}`)), { members: [] }, 'a long name')
  fc.assert(fc.property(fc.uint8Array(), (bytes) => Array.isArray(parseSession(Buffer.from(bytes)).members)))
  fc.assert(fc.property(fc.json(), (text) => Array.isArray(parseSession(Buffer.from(text)).members)))
  t.end()
})
