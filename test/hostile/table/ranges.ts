/** What one member states of its addresses. */
import type { AttackRow } from './row.ts'

export const RANGES: readonly AttackRow[] = []
