/** Tokens of our own parts that were stolen. */
import type { AttackRow } from './row.ts'

export const TOKENS: readonly AttackRow[] = []
