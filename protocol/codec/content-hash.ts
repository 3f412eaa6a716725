/**
 * Content hash of a record: SHA-256 over JSON with sorted keys. Both sides compute the same hash, whatever library
 * encoded the record. Absent and empty values have different hashes.
 */
import { createHash } from 'node:crypto'
import type { MemberRecord, StoredRecord } from '../../model/model.ts'
import type { MemberKey } from '../protocol.ts'

/** Returns 32 bytes, equal to storedContentHash() of a stored record with the same key and body. */
export function contentHash(record: MemberRecord): Uint8Array {
  return hashOf(record.namespace, record.name, record.body)
}

/** Returns the hash that the owner of a stored record computes for it. The broker compares digests with it. */
export function storedContentHash(record: StoredRecord): Uint8Array {
  return hashOf(record.key.namespace, record.key.name, record.body)
}

export function memberKey(record: MemberRecord): MemberKey {
  return { kind: record.body.kind, namespace: record.namespace, name: record.name }
}

/** Returns a unique text for each key of a cluster. No part of a key contains '/'. */
export function memberKeyText(key: MemberKey): string {
  return `${key.kind}/${key.namespace}/${key.name}`
}

function hashOf(namespace: string, name: string, body: object): Uint8Array {
  return createHash('sha256')
    .update(canonicalJson([namespace, name, body]))
    .digest()
}

/** Returns JSON with keys in code unit order, without keys whose value is undefined. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const object = value as Record<string, unknown>
  const keys = Object.keys(object).filter((key) => object[key] !== undefined)
  return `{${keys
    .sort()
    .map((key) => `${JSON.stringify(key)}:${canonicalJson(object[key])}`)
    .join(',')}}`
}

// Hash of a set of records. Equal sets have equal hashes in any order.

/** Takes content hashes of 32 bytes. Returns the SHA-256 over their sorted concatenation. */
export function setHash(hashes: Iterable<Uint8Array>): Uint8Array {
  const hash = createHash('sha256')
  for (const one of [...hashes].sort((a, b) => Buffer.compare(a, b))) hash.update(one)
  return hash.digest()
}
