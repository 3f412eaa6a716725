/**
 * Hash of what a record says, equal on both sides of the wire whatever library encoded it: SHA-256 over JSON with
 * sorted keys. Absent and empty are different content.
 */
import { createHash } from 'node:crypto'
import type { MemberRecord, StoredRecord } from '../../model/model.ts'
import type { MemberKey } from '../protocol.ts'

/** 32 bytes. A stored record of the same key and body has the same hash: see storedContentHash. */
export function contentHash(record: MemberRecord): Uint8Array {
  return hashOf(record.namespace, record.name, record.body)
}

/** The hash that the owner of a stored record computed for it: the broker compares digests with this. */
export function storedContentHash(record: StoredRecord): Uint8Array {
  return hashOf(record.key.namespace, record.key.name, record.body)
}

export function memberKey(record: MemberRecord): MemberKey {
  return { kind: record.body.kind, namespace: record.namespace, name: record.name }
}

/** One string per key inside one cluster; '/' cannot occur in any part. */
export function memberKeyText(key: MemberKey): string {
  return `${key.kind}/${key.namespace}/${key.name}`
}

function hashOf(namespace: string, name: string, body: object): Uint8Array {
  return createHash('sha256')
    .update(canonicalJson([namespace, name, body]))
    .digest()
}

/** JSON with keys in code unit order and without keys whose value is undefined. */
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

// Hash of a whole set of records: equal sets have equal hashes, in whatever order they are held.

/** Takes the content hashes (32 bytes each, content-hash.ts). SHA-256 over them, sorted bytewise and joined. */
export function setHash(hashes: Iterable<Uint8Array>): Uint8Array {
  const hash = createHash('sha256')
  for (const one of [...hashes].sort((a, b) => Buffer.compare(a, b))) hash.update(one)
  return hash.digest()
}
