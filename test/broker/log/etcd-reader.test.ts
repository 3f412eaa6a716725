/** A list comes in answers of moderate size, whatever the rows are, and contains each row once and in order. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { EtcdError } from '../../../broker/store/etcd/client/etcd-connection.ts'
import type { KeyValue, RangeRequest } from '../../../broker/store/etcd/client/gen/etcd.ts'
import { EtcdKeys, ValueReader, encodeHead, encodeRow } from '../../../broker/store/etcd/etcd-rows.ts'
import { EtcdReader } from '../../../broker/store/etcd/etcd-reader.ts'
import type { EtcdStore } from '../../../broker/store/etcd/etcd-store.ts'
import { PACKED } from '../../../broker/store/packed-row.ts'
import { failure } from '../../support/failure.ts'

const keys = new EtcdKeys('/a/b')
const values = new ValueReader('etcd://h/a/b', keys)
const MIB = 1 << 20

interface RangeCall {
  readonly limit: number
  readonly bytes: number
}

/** Returns an etcd with these rows that supports lists only; an answer holds at most `most` octets. */
function storeWith(
  rows: readonly KeyValue[],
  most: number,
): { readonly store: EtcdStore; readonly asked: RangeCall[] } {
  const asked: RangeCall[] = []
  const kv = (value: Buffer): object => ({
    response: { $case: 'responseRange', value: { kvs: [{ key: keys.head, value, modRevision: 9 }], more: false } },
  })
  const format = Buffer.from(JSON.stringify({ sealane: 'broker', format: 1, epoch: 'e', clusterset: 'c' }))
  const head = encodeHead({ revision: rows.length, compacted: 0, writes: [] })
  const client = {
    txn: () => Promise.resolve({ succeeded: true, header: { revision: 9 }, responses: [kv(format), kv(head)] }),
    range: ({ key, limit }: RangeRequest) => {
      const left = rows.filter((one) => Buffer.compare(one.key, key) >= 0)
      const kvs = left.slice(0, limit)
      const bytes = kvs.reduce((sum, one) => sum + one.value.length, 0)
      asked.push({ limit, bytes })
      if (bytes > most) return Promise.reject(new EtcdError('tooLarge', 'received message larger than max'))
      return Promise.resolve({ kvs, more: left.length > kvs.length })
    },
  }
  return { store: { client, keys, values, gone: (why: string) => new Error(why) } as unknown as EtcdStore, asked }
}

function rowsOf(sizes: readonly number[]): readonly KeyValue[] {
  return sizes.map((size, i) => {
    const key = keys.row('audit', String(i).padStart(6, '0'))
    const value = encodeRow({ scope: 'audit', key: '', revision: i + 1, value: 'x'.repeat(size) as never })
    return { key, value, modRevision: 9, createRevision: 9 } as KeyValue
  })
}

async function listed(store: EtcdStore): Promise<readonly number[]> {
  const { changes } = await new EtcdReader(store, 'e').list(undefined, new AbortController().signal)
  return changes.map(({ revision }) => revision)
}

t.test('a hundred thousand small rows come in few answers', async (t) => {
  const rows = rowsOf(Array.from({ length: 100_000 }, () => 300))
  const { store, asked } = storeWith(rows, 256 * MIB)
  t.equal((await listed(store)).length, rows.length)
  t.ok(asked.length < 20, `${asked.length} answers`)
  t.ok(
    asked.every(({ bytes }) => bytes < 6 * MIB),
    `at most ${Math.max(...asked.map(({ bytes }) => bytes))} octets`,
  )
})

t.test('after small rows come large ones: what is more than an answer may have is asked for in parts', async (t) => {
  const rows = rowsOf([...Array.from({ length: 5000 }, () => 100), ...Array.from({ length: 40 }, () => MIB / 4)])
  const { store, asked } = storeWith(rows, 2 * MIB)
  t.same(
    await listed(store),
    rows.map((_, i) => i + 1),
  )
  t.ok(asked.length < 60, `${asked.length} answers`)
})

t.test('one row that is larger than any answer may be is an error, and no endless loop', async (t) => {
  const { store } = storeWith(rowsOf([10, MIB, 10]), MIB / 2)
  t.match(await failure(() => listed(store)), { failure: 'tooLarge' })
})

t.test('whatever the rows are, each comes once and in order', async () => {
  const sizes = fc.array(fc.oneof(fc.integer({ min: 0, max: 200 }), fc.integer({ min: 0, max: 60_000 })), {
    maxLength: 300,
  })
  await fc.assert(
    fc.asyncProperty(sizes, fc.integer({ min: 70_000, max: 200_000 }), async (all, most) => {
      const rows = rowsOf(all)
      assert.deepEqual(
        await listed(storeWith(rows, most).store),
        rows.map((_, i) => i + 1),
      )
    }),
    { numRuns: 40 },
  )
})

t.test('records are kept as they are stored, and what is none is named', async (t) => {
  const value = {
    createdAtMs: 5,
    body: { kind: 'ServiceExport', namespace: 'shop', name: 'größe' },
    hash: 'a'.repeat(64),
    bytes: 12,
  }
  const key = keys.row('record', 'c1/ServiceExport/shop/web')
  const stored = encodeRow({ scope: 'record', key: '', revision: 7, value: value as never })
  for (const packing of [undefined, PACKED]) {
    const read = values.row(key, stored, packing)
    t.same(JSON.parse(JSON.stringify(read?.value)), value)
    t.match(read, { scope: 'record', key: 'c1/ServiceExport/shop/web', revision: 7 })
    t.match(values.row(key, Buffer.from('{"r":8}'), packing), { revision: 8, value: undefined })
    for (const text of ['{"r":7,"v":{"createdAtMs":5', '{"r":7,"v":{}x}', '{"r":"7","v":{}}', '', '[]', '{"v":{}}']) {
      t.match(await failure(() => values.row(key, Buffer.from(text), packing)), { code: 'Damaged' }, text)
    }
  }
})
