/** A stranger against the broker. */
import type { AttackRow } from './row.ts'

export const STRANGERS: readonly AttackRow[] = []
