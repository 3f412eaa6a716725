/** A bad day. */
import type { AttackRow } from './row.ts'

export const FAULTS: readonly AttackRow[] = []
