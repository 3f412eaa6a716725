/** Short fingerprints for object names that are built from several parts. Pure. */
import { createHash } from 'node:crypto'

/** 16 hexadecimal digits of SHA-256: too many to find a second text with the same ones on purpose. */
export function nameHash(...parts: readonly string[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 16)
}
