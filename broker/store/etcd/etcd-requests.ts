/** Builds the parts of etcd transactions. */
import type { Compare, DeleteRangeRequest, RangeResponse, RequestOp, TxnResponse } from './client/gen/etcd.ts'
import type { KeyRange } from './etcd-rows.ts'

const EQUAL = 0
const NOT_EQUAL = 3
const VERSION = 0
const CREATE = 1
const MOD = 2
const VALUE = 3

export function isAbsent(key: Buffer): Compare {
  return { result: EQUAL, target: VERSION, key, targetUnion: { $case: 'version', value: 0 } }
}

export function isThere(key: Buffer): Compare {
  return { result: NOT_EQUAL, target: VERSION, key, targetUnion: { $case: 'version', value: 0 } }
}

export function wasCreatedAt(key: Buffer, revision: number): Compare {
  return { result: EQUAL, target: CREATE, key, targetUnion: { $case: 'createRevision', value: revision } }
}

export function wasWrittenAt(key: Buffer, revision: number): Compare {
  return { result: EQUAL, target: MOD, key, targetUnion: { $case: 'modRevision', value: revision } }
}

export function hasValue(key: Buffer, value: Buffer): Compare {
  return { result: EQUAL, target: VALUE, key, targetUnion: { $case: 'value', value } }
}

export function putOp(key: Buffer, value: Buffer): RequestOp {
  return { request: { $case: 'requestPut', value: { key, value, lease: 0 } } }
}

export function removeOp(range: { readonly key: Buffer } & Partial<KeyRange>): RequestOp {
  const value: DeleteRangeRequest = { key: range.key, rangeEnd: range.rangeEnd ?? Buffer.alloc(0) }
  return { request: { $case: 'requestDeleteRange', value } }
}

export function readOp(key: Buffer): RequestOp {
  const none = { limit: 0, revision: 0, keysOnly: false, minModRevision: 0 }
  return { request: { $case: 'requestRange', value: { key, rangeEnd: Buffer.alloc(0), ...none } } }
}

/** Operations that run if the comparison holds, as a nested transaction. */
export function onlyIf(compare: Compare, ops: readonly RequestOp[]): RequestOp {
  return { request: { $case: 'requestTxn', value: { compare: [compare], success: [...ops], failure: [] } } }
}

/** The result of the readOp() at that index. */
export function readAt({ responses }: TxnResponse, place: number): RangeResponse | undefined {
  const response = responses[place]?.response
  return response?.$case === 'responseRange' ? response.value : undefined
}

/**
 * etcd allows 128 operations in one transaction, and each nested transaction may use what the outer one leaves: 64
 * times 64 are one atomic write of 4,096.
 */
const NESTED = 64
export const MAX_OPS = NESTED * NESTED - NESTED

/** Takes at most MAX_OPS operations and returns at most NESTED. */
export function nested(ops: readonly RequestOp[]): RequestOp[] {
  if (ops.length <= NESTED / 2) return [...ops]
  const groups: RequestOp[] = []
  for (let i = 0; i < ops.length; i += NESTED) {
    const value = { compare: [], success: ops.slice(i, i + NESTED), failure: [] }
    groups.push({ request: { $case: 'requestTxn', value } })
  }
  return groups
}
