/**
 * A random number that an agent process generates, keeps only in memory, and sends with each call. A copy of the
 * agent's files does not contain it. The broker stores its hash. The mark does not authenticate a caller; it shows that
 * two processes use the same identity (broker/identity/succession.ts).
 */
import { createHash, randomBytes } from 'node:crypto'

/** Header of each call that carries the mark. */
export const PROCESS_HEADER = 'sealane-process'
const FORM = /^[0-9a-f]{32}$/u

/** Returns a new mark of 32 hexadecimal digits. */
export function newProcessMark(): string {
  return randomBytes(16).toString('hex')
}

/**
 * Takes the values of the header, and returns the SHA-256 of the mark in hexadecimal. Undefined if there is no valid
 * mark.
 */
export function markHashOf(values: readonly (string | Buffer)[]): string | undefined {
  const [mark, ...others] = values
  if (typeof mark !== 'string' || others.length > 0 || !FORM.test(mark)) return undefined
  return createHash('sha256').update(mark).digest('hex')
}
