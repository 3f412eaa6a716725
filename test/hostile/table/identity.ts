/** Keys, certificates and ids. */
import type { AttackRow } from './row.ts'

export const IDENTITY: readonly AttackRow[] = []
