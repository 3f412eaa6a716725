/**
 * What an agent shows beside its certificate, and what no copy of its files has: a random number that its process made
 * and keeps in memory only. The broker keeps its hash. It proves nothing about who a caller is; where two hold one
 * identity, it shows that there are two (broker/identity/succession.ts).
 */
import { createHash, randomBytes } from 'node:crypto'

/** The header of each call that has the mark. */
export const PROCESS_HEADER = 'sealane-process'
const FORM = /^[0-9a-f]{32}$/u

/** A new mark: 32 hexadecimal digits. */
export function newProcessMark(): string {
  return randomBytes(16).toString('hex')
}

/** SHA-256 of the mark that a call bears, hex; `values` are those of its header. Undefined: no mark, or something else. */
export function markHashOf(values: readonly (string | Buffer)[]): string | undefined {
  const [mark, ...others] = values
  if (typeof mark !== 'string' || others.length > 0 || !FORM.test(mark)) return undefined
  return createHash('sha256').update(mark).digest('hex')
}
