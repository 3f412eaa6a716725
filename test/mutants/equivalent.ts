/** Mutants that behave as the file does: no test can kill them, so they are not tried. */
import type { Mutant } from './make-mutants.ts'

interface Equivalent {
  readonly file: string
  /** What is replaced, and by what; all of the file's that are the same. */
  readonly was: string
  readonly becomes: string
  readonly why: string
}

export const EQUIVALENT: readonly Equivalent[] = []

export function isEquivalent({ file, was, becomes }: Mutant): boolean {
  return EQUIVALENT.some((one) => one.file === file && one.was === was && one.becomes === becomes)
}
