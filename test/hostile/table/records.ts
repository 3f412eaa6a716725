/** Records that a member publishes. */
import type { AttackRow } from './row.ts'

export const RECORDS: readonly AttackRow[] = []
