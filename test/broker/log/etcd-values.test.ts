import fc from 'fast-check'
import t from 'tap'
import { MAX_OPS, nested, putOp } from '../../../broker/store/etcd/etcd-requests.ts'
import type { RequestOp } from '../../../broker/store/etcd/client/gen/etcd.ts'
import {
  EtcdKeys,
  REMEMBERED_WRITES,
  ValueReader,
  encodeRow,
  replicaOf,
  withWrite,
} from '../../../broker/store/etcd/etcd-rows.ts'
import type { Scope } from '../../../broker/store/rows.ts'
import { row } from '../../compliance/record-log.ts'
import { failure } from '../../support/failure.ts'

const keys = new EtcdKeys('/a/b')
const reader = new ValueReader('etcd://h/a/b', keys)

t.test('a row comes back from its key and value', async (t) => {
  const parts = fc.record({ scope: fc.constantFrom<Scope>('record', 'audit'), key: fc.string() })
  fc.assert(
    fc.property(parts, fc.nat(), fc.boolean(), ({ scope, key }, revision, gone) => {
      const change = { scope, key, revision, value: gone ? undefined : row(key) }
      const stored = keys.row(scope, key)
      const { rangeEnd, key: first } = keys.rows
      t.ok(Buffer.compare(first, stored) <= 0 && Buffer.compare(stored, rangeEnd) < 0)
      t.same(reader.row(stored, encodeRow(change)), {
        ...change,
        key: stored.toString().slice('/a/b/log/row/x'.length + scope.length),
      })
    }),
  )
  t.equal(keys.parseRow(keys.head), undefined)
})

t.test('the rows of a neighbour whose prefix begins alike are not ours', async (t) => {
  const { key, rangeEnd } = keys.all
  for (const prefix of ['/a/b2', '/a/bb', '/a', '/a/b-'])
    t.notOk(isIn(new EtcdKeys(prefix).head, key, rangeEnd), prefix)
  t.ok(isIn(keys.head, key, rangeEnd))
})

t.test('damage is named', async (t) => {
  const text = 'etcd://h/a/b: key /a/b/log/head is damaged (it has no revision): restore etcd from a backup'
  t.match(await failure(() => reader.head(Buffer.from('{"revision":"x"}'))), { code: 'Damaged', message: text })
  t.match(await failure(() => reader.head(Buffer.from('{'))), { code: 'Damaged' })
  t.match(await failure(() => reader.head(Buffer.from('null'))), { code: 'Damaged' })
  t.match(await failure(() => reader.format(Buffer.from('{}'))), { code: 'Damaged' })
  t.match(await failure(() => reader.row(keys.row('record', 'x'), Buffer.from('{}'))), { code: 'Damaged' })
})

t.test('the latest write of each replica is remembered, newest first, and not too many', async (t) => {
  t.same(withWrite(['b.7', 'a.3'], 'a.4'), ['a.4', 'b.7'])
  fc.assert(
    fc.property(fc.array(fc.nat(30), { maxLength: 80 }), (replicas) => {
      let writes: readonly string[] = []
      replicas.forEach((replica, i) => (writes = withWrite(writes, `r${replica}.${i}`)))
      const of = writes.map(replicaOf)
      const last = replicas.at(-1)
      t.ok(writes.length <= REMEMBERED_WRITES && new Set(of).size === of.length)
      t.equal(of[0], last === undefined ? undefined : `r${last}`)
    }),
  )
})

t.test('a transaction is nested so that etcd takes it: 128 operations on the way to each', async (t) => {
  for (const count of [0, 1, 32, 33, 64, 65, 1000, MAX_OPS]) {
    const ops = Array.from({ length: count }, (_, i) => putOp(Buffer.from(String(i)), Buffer.alloc(0)))
    const outer = nested(ops)
    const inner = outer.map(insideOf)
    t.same(inner.flat(), ops, `${count}: none is lost`)
    // One of the operations is for the head or, after a failed comparison, for the reads.
    t.ok(outer.length + 1 + Math.max(0, ...inner.map((one) => one.length)) <= 128, `${count}`)
  }
})

function insideOf(op: RequestOp): RequestOp[] {
  return op.request?.$case === 'requestTxn' ? op.request.value.success : [op]
}

function isIn(key: Buffer, from: Buffer, to: Buffer): boolean {
  return Buffer.compare(from, key) <= 0 && Buffer.compare(key, to) < 0
}
