/** Hash of a whole set of records: equal sets have equal hashes, in whatever order they are held. */
import { createHash } from 'node:crypto'

/** Takes the content hashes (32 bytes each, content-hash.ts). SHA-256 over them, sorted bytewise and joined. */
export function setHash(hashes: Iterable<Uint8Array>): Uint8Array {
  const hash = createHash('sha256')
  for (const one of [...hashes].sort((a, b) => Buffer.compare(a, b))) hash.update(one)
  return hash.digest()
}
